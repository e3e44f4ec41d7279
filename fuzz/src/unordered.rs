//! Data of a stream from a tap, a capture of the connection's segments; it may be forged. A
//! reassembler behaves like a map of bytes, numbers and offsets never overflow, and an unordered
//! link delivers every unit once and unchanged. For cells with any numbers, no circuit's cells are
//! out of order, and the number of queued cells is bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anabranch_links::utls::{Anchor, Origin, Reassembler};
use anabranch_links::{EarlyRecords, Link, State, StreamLink, Tls};
use anabranch_multipath::Time;
use anabranch_onion::order::{CellOrder, Turn, WrongNumber};
use anabranch_onion::wire::cell::{BODY, Cell, Command};
use anabranch_testkit::tls_peer::{Role, SUITE_COUNT, open_link};

use crate::input::Input;

/// Size of a unit in bytes.
const UNIT: usize = 20;
const WINDOW: u64 = 400;

/// Checks an input; the first choice selects the check.
pub fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.below(4) {
        0 => pieces(input),
        1 => places(input),
        3 => order(input),
        _ => Play::new(input).run(),
    }
}

/// Compares a reassembler with a map that has an entry for each byte.
fn pieces(mut input: Input<'_>) {
    let mut held = Reassembler::new(WINDOW as usize);
    let (mut head, mut model) = (0u64, BTreeMap::new());
    while !input.is_empty() {
        let what = input.below(6);
        let from = (head + u64::from(input.byte()) * 2).saturating_sub(30);
        let length = input.below(80);
        let range = from..from + length as u64;
        match what {
            0 => {
                held.advance(range.start);
                head = head.max(range.start);
                model.retain(|at, _| *at >= head);
            }
            1 => {
                held.remove(range.clone());
                model.retain(|at, _| !range.contains(at));
            }
            _ => {
                let bytes = input.take(length);
                held.insert(from, bytes);
                for (at, byte) in (from..).zip(bytes) {
                    if (head..head + WINDOW).contains(&at) {
                        model.entry(at).or_insert(*byte);
                    }
                }
            }
        }
        let mut found = Vec::new();
        held.copy(range.clone(), &mut found);
        let wanted: Vec<u8> = model.range(range.clone()).map(|(_, byte)| *byte).collect();
        assert_eq!(found, wanted);
        assert_eq!(held.covers(range), wanted.len() == length);
        assert_eq!(held.held(), model.len());
    }
}

/// Checks that any numbers cause no overflow.
fn places(mut input: Input<'_>) {
    let mut number = || {
        let bytes: Vec<u8> = (0..8).map(|_| input.byte()).collect();
        bytes.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let origin = Origin::of_syn(number() as u32);
    let (sequence, head) = (number() as u32, number());
    if let Some(offset) = origin.offset(sequence, head) {
        assert_eq!(origin.offset(sequence, offset), Some(offset), "the nearest is itself");
        assert!(offset.abs_diff(head) <= 1 << 31);
    }
    let anchor = Anchor { offset: number(), number: number() };
    let (from, to, size) = (number(), number(), 1 + number() as u16 as usize);
    if let Some(numbers) = anchor.numbers(from, to.max(from), size) {
        let start = anchor.start(*numbers.start(), size);
        assert!(start.is_some_and(|start| start <= from.max(anchor.offset)));
    }
}

/// Checks cells with any numbers: each circuit's cells are delivered in sequence.
fn order(mut input: Input<'_>) {
    let mut order = CellOrder::default();
    let mut next: BTreeMap<u32, u32> = BTreeMap::new();
    let mut now = Time::ZERO;
    while !input.is_empty() {
        let (circuit, what) = (u32::from(input.byte() % 4), input.byte());
        let expected = next.get(&circuit).copied().unwrap_or(0);
        let number = match what % 8 {
            0 => 0,
            1 => u32::from(input.word()) << 16,
            _ => expected.wrapping_add(u32::from(what / 8) % 5),
        };
        let command = input.pick(&[Command::RELAY, Command::CREATE2, Command::DESTROY]);
        let mut body = [0; BODY];
        body[..4].copy_from_slice(&number.to_be_bytes());
        let cell = Cell { circuit, command, number: Some(number), head: &[], body: &mut body };
        match order.take(&cell, number) {
            // The link would be closed.
            Err(WrongNumber) => return,
            Ok(Turn::Later) => continue,
            Ok(Turn::Now) => assert_eq!(number, expected, "not its turn"),
        }
        next.insert(circuit, number.wrapping_add(1));
        ends(&mut order, &mut next, circuit, command);
        while let Some(mut held) = order.next(circuit) {
            let cell = held.cell();
            let number =
                u32::from_be_bytes([cell.body[0], cell.body[1], cell.body[2], cell.body[3]]);
            assert_eq!(number, next.get(&circuit).copied().unwrap_or(0), "not its turn");
            let command = cell.command;
            next.insert(circuit, number.wrapping_add(1));
            ends(&mut order, &mut next, circuit, command);
        }
        now += Duration::from_secs(u64::from(what / 64));
        order.tick(now);
    }
}

/// Ends a circuit if `command` is DESTROY. The numbers of its ID then start again at zero.
fn ends(order: &mut CellOrder, next: &mut BTreeMap<u32, u32>, circuit: u32, command: Command) {
    if command == Command::DESTROY {
        order.close(circuit);
        order.forget(circuit);
        next.remove(&circuit);
    }
}

/// A sender, its receiver, and the stream between them.
struct Play<'a> {
    input: Input<'a>,
    sender: Tls,
    receiver: Tls,
    stream: Vec<u8>,
    head: usize,
    sent: u32,
    received: BTreeSet<u32>,
}

impl<'a> Play<'a> {
    fn new(mut input: Input<'a>) -> Play<'a> {
        let suite = input.below(SUITE_COUNT);
        let mut sender = open_link(Role::Client, suite, Some(9));
        let mut receiver = open_link(Role::Server, suite, None);
        sender.send_fixed(UNIT).expect("it is open");
        receiver.send_fixed(UNIT).expect("it is open");
        receiver.open_early(Time::ZERO, UNIT).expect("it is open");
        let (stream, received) = Default::default();
        Play { input, sender, receiver, stream, head: 0, sent: 0, received }
    }

    fn run(mut self) {
        while !self.input.is_empty() {
            self.step();
            self.read();
        }
        self.deliver(usize::MAX);
        self.read();
        assert!(self.received.iter().copied().eq(0..self.sent), "a unit is missing");
        assert_eq!(self.receiver.state(), State::Open);
    }

    fn step(&mut self) {
        match self.input.below(7) {
            0 | 1 => self.send(),
            2 => {
                let length = self.input.below(256);
                self.deliver(length);
            }
            3 => {
                self.sender.refresh_keys().expect("it is open");
                // Data is sent in between, because KeyUpdates without data are limited.
                self.send();
            }
            4 => self.show(0),
            5 => {
                let change = self.input.byte();
                self.show(change);
            }
            _ => {
                let offset = u64::from(self.input.word()) * u64::from(self.input.byte());
                let length = self.input.below(256);
                let garbage = self.input.take(length);
                self.receiver.receive_early(Time::ZERO, offset, garbage);
            }
        }
    }

    fn send(&mut self) {
        for _ in 0..=self.input.below(5) {
            let mut unit = [self.sent as u8; UNIT];
            unit[..4].copy_from_slice(&self.sent.to_be_bytes());
            self.sender.write(&unit).expect("it is open");
            self.sent += 1;
        }
        self.sender.transmit(Time::ZERO, &mut self.stream);
    }

    /// Delivers bytes in order, as the kernel does.
    fn deliver(&mut self, length: usize) {
        let end = self.stream.len().min(self.head.saturating_add(length));
        let bytes = &self.stream[self.head..end];
        self.receiver.receive(Time::ZERO, bytes).expect("an honest stream");
        self.head = end;
    }

    /// Passes some undelivered data from the tap to the link, perhaps with a byte changed.
    fn show(&mut self, change: u8) {
        let from = (self.head + 4 * self.input.below(256)).min(self.stream.len());
        let to = (from + 1 + self.input.below(256)).min(self.stream.len());
        let mut bytes = self.stream[from..to].to_vec();
        if !bytes.is_empty() {
            let place = self.input.below(256) % bytes.len();
            bytes[place] ^= change;
        }
        self.receiver.receive_early(Time::ZERO, from as u64, &bytes);
    }

    fn read(&mut self) {
        let mut plain = Vec::new();
        self.receiver.read(&mut plain).expect("the stream finds faults");
        assert_eq!(plain.len() % UNIT, 0, "units come whole");
        for unit in plain.chunks(UNIT) {
            let number = u32::from_be_bytes([unit[0], unit[1], unit[2], unit[3]]);
            assert!(number < self.sent, "a unit that nobody sent");
            assert!(unit[4..].iter().all(|byte| *byte == number as u8), "a changed unit");
            assert!(self.received.insert(number), "a unit came twice");
        }
    }
}
