//! Our record layer of TLS 1.3 with a peer that has the keys. Records that it seals in order
//! arrive in order and once, forbidden ones end the link, and the peer can read our records. A
//! second check is for a link with a tap, a capture of the connection's segments, which delivers
//! records out of order and with any content. In-order data has the same effect as without a tap.

use std::collections::BTreeSet;

use anabranch_links::{EarlyRecords, Link, State, StreamLink, Tls};
use anabranch_multipath::Time;
use anabranch_testkit::tls_peer::{RawTlsPeer, Role, SUITE_COUNT, open_link};

use crate::input::Input;

const HANDSHAKE: u8 = 22;
const ALERT: u8 = 21;
const DATA: u8 = 23;

/// A link, the peer that attacks it, and the data that must arrive.
struct Play<'a> {
    input: Input<'a>,
    link: Tls,
    forger: RawTlsPeer,
    /// An honest end that reads the link's output.
    reader: Tls,
    /// Data that was sealed correctly.
    sealed: Vec<u8>,
    arrived: Vec<u8>,
    /// Whether a record was sent for which the link may close.
    spoilt: bool,
    /// Whether bytes were sent that are not a record: nothing after them may arrive.
    lost: bool,
}

/// Checks an input. The first bytes choose the suite, whether there is a tap, and the attacked
/// side; then there are steps.
pub fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let choice = input.below(2 * SUITE_COUNT);
    let suite = choice % SUITE_COUNT;
    let (own, other) = match input.coin() {
        true => (Role::Client, Role::Server),
        false => (Role::Server, Role::Client),
    };
    if choice >= SUITE_COUNT {
        return TappedPlay::new(input, suite, [own, other]).run();
    }
    let mut play = Play {
        input,
        link: open_link(own, suite, Some(5)),
        forger: RawTlsPeer::new(other, suite),
        reader: open_link(other, suite, None),
        sealed: Vec::new(),
        arrived: Vec::new(),
        spoilt: false,
        lost: false,
    };
    while !play.input.is_empty() && play.link.state() == State::Open {
        play.step();
    }
    assert!(play.spoilt || play.arrived == play.sealed, "honest data is missing");
}

impl Play<'_> {
    fn step(&mut self) {
        let what = self.input.below(8);
        let length = self.input.below(200);
        match what {
            0 | 1 => {
                let content = self.input.take(length);
                let padding = self.input.below(256);
                self.send_message(DATA, content, padding);
            }
            2 => {
                let record = self.forger.update(length % 2 == 1);
                self.deliver(&record);
            }
            3 => self.odd(HANDSHAKE, length),
            4 => self.odd(ALERT, length % 4),
            5 => {
                let kind = self.input.byte();
                self.odd(kind, length);
            }
            6 => {
                let garbage = self.input.take(length);
                if !garbage.is_empty() {
                    (self.spoilt, self.lost) = (true, true);
                }
                self.deliver(garbage);
            }
            _ => self.corrupt(length),
        }
        // Each side sends data, because KeyUpdates without data in between are limited.
        self.send_message(DATA, b"", 0);
        self.answer();
    }

    /// Seals a record in order, and adds its data to `sealed`. The record's type is its last byte
    /// that is not zero, so it may be a byte of `content` if `kind` is 0.
    fn send_message(&mut self, kind: u8, content: &[u8], padding: usize) {
        let inner = [content, &[kind]].concat();
        let end = inner.iter().rposition(|byte| *byte != 0);
        if let Some(end) = end.filter(|end| inner[*end] == DATA && !self.lost) {
            self.sealed.extend_from_slice(&inner[..end]);
        }
        let record = self.forger.record(kind, content, padding);
        self.deliver(&record);
    }

    /// Seals a record with content from the input, which may be valid or an incomplete message.
    fn odd(&mut self, kind: u8, length: usize) {
        let content = self.input.take(length);
        self.spoilt = true;
        self.send_message(kind, content, 0);
    }

    /// Delivers an honest record with one byte changed: nothing after it may arrive.
    fn corrupt(&mut self, length: usize) {
        (self.spoilt, self.lost) = (true, true);
        let mut record = self.forger.record(DATA, &vec![7; length], 0);
        let place = self.input.below(256) % record.len();
        // The version is not checked, but authenticated.
        record[place] ^= self.input.byte().max(1);
        let before = self.arrived.len();
        self.deliver(&record);
        assert_eq!(self.arrived.len(), before, "a changed record was read");
    }

    fn deliver(&mut self, mut bytes: &[u8]) {
        let piece = 1 + self.input.below(256);
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(piece.min(bytes.len()));
            bytes = rest;
            let open = self.link.state() == State::Open;
            let faulty = self.link.receive(Time::ZERO, now).is_err();
            assert!(!faulty || self.link.state() == State::Ended, "a fault ends the link");
            assert!(!faulty || self.spoilt, "an honest peer was refused");
            let received = self.link.read(&mut self.arrived).expect("the stream finds faults");
            assert!(open || received == 0, "data from a link that has ended");
        }
        assert!(self.sealed.starts_with(&self.arrived), "not what was sealed");
    }

    /// Checks that the link's output can be read by the peer: one byte of data, after KeyUpdates.
    fn answer(&mut self) {
        self.link.write(b"x").expect("the link is not closed by us");
        let (mut wire, mut plain) = (Vec::new(), Vec::new());
        self.link.transmit(Time::ZERO, &mut wire);
        let answer = self.reader.receive(Time::ZERO, &wire);
        self.reader.read(&mut plain).expect("the stream finds faults");
        if self.link.state() == State::Open {
            answer.expect("what we say can be read");
            assert_eq!(plain, b"x");
        }
    }
}

/// Size of a unit, the content of a record that may arrive out of order.
const UNIT: usize = 20;

/// A link with a tap, its twin that gets the same data in order only, and the peer of both.
struct TappedPlay<'a> {
    input: Input<'a>,
    /// Links, the one with a tap first.
    links: [Tls; 2],
    forger: RawTlsPeer,
    /// Data that the peer has sent; `head` is the length delivered in order.
    stream: Vec<u8>,
    head: usize,
    units: u32,
    received: [BTreeSet<u32>; 2],
    /// Whether a record was sent that may end the link.
    spoilt: bool,
}

impl<'a> TappedPlay<'a> {
    fn new(input: Input<'a>, suite: usize, [own, other]: [Role; 2]) -> TappedPlay<'a> {
        let links = [(); 2].map(|()| {
            let mut link = open_link(own, suite, Some(5));
            link.open_early(Time::ZERO, UNIT).expect("it is open");
            link
        });
        let forger = RawTlsPeer::new(other, suite);
        let (stream, received) = Default::default();
        TappedPlay { input, links, forger, stream, head: 0, units: 0, received, spoilt: false }
    }

    fn run(mut self) {
        while !self.input.is_empty() {
            self.step();
            self.look();
        }
        self.deliver(usize::MAX);
        self.look();
        let [tapped, twin] = &self.received;
        assert!(tapped.is_superset(twin), "earliness has cost a unit");
        if !self.spoilt {
            assert_eq!(self.links[0].state(), State::Open, "an honest peer was refused");
            assert!(tapped.iter().copied().eq(0..self.units), "honest units are missing");
        }
    }

    fn step(&mut self) {
        match self.input.below(9) {
            0..=2 => self.say_units(),
            3 => {
                let padded = self.input.below(UNIT + 1);
                self.forger.pad_updates(padded);
                let requested = self.input.coin();
                let update = self.forger.update(requested);
                self.stream.extend(update);
                // Data is sent in between, because KeyUpdates without data are limited.
                self.say_units();
            }
            4 => self.say_what_is_no_unit(),
            5 => self.show(0),
            6 => {
                let change = self.input.byte();
                self.show(change);
            }
            _ => {
                let length = 2 * self.input.below(256);
                self.deliver(length);
            }
        }
    }

    fn say_units(&mut self) {
        for _ in 0..=self.input.below(5) {
            let mut unit = [self.units as u8; UNIT];
            unit[..4].copy_from_slice(&self.units.to_be_bytes());
            let record = self.forger.record(DATA, &unit, 0);
            self.stream.extend(record);
            self.units += 1;
        }
    }

    /// Seals content shorter than a unit, of any type, in a record of any length: nothing, an
    /// alert, or a KeyUpdate after which keys do not change.
    fn say_what_is_no_unit(&mut self) {
        let kind = self.input.pick(&[DATA, ALERT, HANDSHAKE, 0, 20, 24]);
        let length = self.input.below(UNIT);
        let content = self.input.take(length);
        let padding = match self.input.coin() {
            true => UNIT - content.len(),
            false => self.input.below(UNIT),
        };
        let record = self.forger.record(kind, content, padding);
        self.stream.extend(record);
        self.spoilt |= kind != DATA || !content.is_empty();
    }

    /// Passes some undelivered data to the tapped link, perhaps with a byte changed.
    fn show(&mut self, change: u8) {
        let from = (self.head + 2 * self.input.below(256)).min(self.stream.len());
        let to = (from + 1 + 2 * self.input.below(256)).min(self.stream.len());
        let mut bytes = self.stream[from..to].to_vec();
        if !bytes.is_empty() {
            let place = self.input.below(256) % bytes.len();
            bytes[place] ^= change;
        }
        self.links[0].receive_early(Time::ZERO, from as u64, &bytes);
    }

    /// Delivers bytes in order to both links, as the kernel does.
    fn deliver(&mut self, length: usize) {
        let end = self.stream.len().min(self.head.saturating_add(length));
        let bytes = &self.stream[self.head..end];
        let [tapped, twin] = self.links.each_mut().map(|link| link.receive(Time::ZERO, bytes));
        assert_eq!(tapped, twin, "what comes early changes what comes in order");
        self.head = end;
    }

    /// Checks that both links have the same state and output, and that units arrive whole and
    /// once.
    fn look(&mut self) {
        let [tapped, twin] = self.links.each_mut().map(|link| {
            let mut wire = Vec::new();
            link.transmit(Time::ZERO, &mut wire);
            (link.state(), wire)
        });
        assert_eq!(tapped, twin);
        for (link, received) in self.links.iter_mut().zip(&mut self.received) {
            let mut plain = Vec::new();
            link.read(&mut plain).expect("the stream finds faults");
            assert!(plain.len().is_multiple_of(UNIT), "units come whole");
            for unit in plain.chunks(UNIT) {
                let number = u32::from_be_bytes([unit[0], unit[1], unit[2], unit[3]]);
                assert!(number < self.units, "a unit that nobody sent");
                assert!(unit[4..].iter().all(|byte| *byte == number as u8), "a changed unit");
                assert!(received.insert(number), "a unit came twice");
            }
        }
    }
}
