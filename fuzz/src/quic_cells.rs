//! Streams and datagrams of a QUIC link, from any peer. Splitting the bytes anywhere does not
//! change the cells. Whatever strangers send and the network changes, a link delivers the sent
//! cells, in order in each circuit, and each lossy cell at most once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

use anabranch_links::quic::{
    Arrival, CellFormat, CellReader, Congestion, ConnId, Endpoint, EndpointInput, EndpointOutput,
    Head, SocketIndex,
};
use anabranch_links::{Context, Fault, Link as _, State};
use anabranch_multipath::{Core as _, Time};

use crate::input::Input;

/// Size of a cell in bytes: circuit, command, number.
const CELL: usize = 9;
const CREATES: u8 = 10;
const ENDS: u8 = 4;
const FORMAT: CellFormat =
    CellFormat { head, end, longest: 100, longest_of_circuit: 60, lossy: CELL };

/// Parses the head of a cell; commands from 128 are followed by a length.
fn head(bytes: &[u8], first: bool) -> Option<Head> {
    let (circuit, rest) = bytes.split_first_chunk()?;
    let (&command, rest) = rest.split_first()?;
    let length = match command {
        128.. => 6 + usize::from(*rest.first()?),
        // The first cell is shorter, like a cell before the width of circuit IDs is negotiated.
        _ => CELL - usize::from(first),
    };
    let circuit = u32::from_be_bytes(*circuit);
    Some(Head { circuit, length, creates: command == CREATES, ends: command == ENDS })
}

fn end(circuit: u32) -> Vec<u8> {
    cell(circuit, ENDS, u32::MAX)
}

fn cell(circuit: u32, command: u8, number: u32) -> Vec<u8> {
    [&circuit.to_be_bytes()[..], &[command], &number.to_be_bytes()].concat()
}

/// Checks an input; the first choice selects the check.
pub fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.below(2) {
        0 => streams(input),
        _ => Play::new().run(input),
    }
}

/// Checks that bytes contain the same cells if they are read at once and in pieces.
fn streams(mut input: Input<'_>) {
    let kind = input.below(3);
    let make = || match kind {
        0 => CellReader::own(),
        1 => CellReader::unnamed(),
        _ => CellReader::of(1),
    };
    let (mut pieces, mut all) = (Vec::new(), Vec::new());
    while !input.is_empty() {
        let length = input.below(30);
        let piece = input.take(length);
        all.extend_from_slice(piece);
        pieces.push(piece);
    }
    let at_once = read(make(), &[&all]);
    assert_eq!(at_once, read(make(), &pieces));
    let (heads, received, _) = at_once;
    assert_eq!(heads.iter().map(|head| head.length).sum::<usize>(), received.len());
    assert!(all.starts_with(&received), "cells are what came");
    assert!(heads.iter().all(|head| head.length <= FORMAT.longest));
    assert!(heads.windows(2).all(|pair| pair[0].circuit == pair[1].circuit), "of one circuit");
}

fn read(mut reader: CellReader, pieces: &[&[u8]]) -> (Vec<Head>, Vec<u8>, Option<Fault>) {
    let (mut heads, mut received) = (Vec::new(), Vec::new());
    for mut piece in pieces.iter().copied() {
        loop {
            match reader.next(&FORMAT, &mut piece, &mut received) {
                Ok(Some(head)) => heads.push(head),
                Ok(None) => break,
                Err(fault) => return (heads, received, Some(fault)),
            }
        }
        assert!(piece.is_empty());
    }
    (heads, received, None)
}

/// Two ends, and the datagrams in flight between them.
struct Play {
    now: Time,
    ends: [Endpoint; 2],
    ids: [Option<ConnId>; 2],
    under_way: Vec<(usize, Vec<u8>)>,
    /// By circuit: the number of cells sent, the number received, and whether the circuit has
    /// ended.
    circuits: BTreeMap<u32, (u32, u32, bool)>,
    /// Number of lossy cells sent, and the numbers of those that arrived.
    lossy: (u32, BTreeSet<u32>),
}

fn address(end: usize) -> SocketAddr {
    (Ipv4Addr::new(192, 0, 2, 1 + end as u8), 9001).into()
}

impl Play {
    fn new() -> Play {
        static CONTEXT: OnceLock<Context> = OnceLock::new();
        let context = CONTEXT.get_or_init(|| Context::new(1_800_000_000).expect("settings hold"));
        let make = |end: u8| {
            Endpoint::new(
                context,
                FORMAT,
                [end; 32],
                (end == 1).then_some(SocketIndex::ONLY),
                Congestion::default(),
            )
        };
        let mut ends = [0, 1].map(|end| make(end).expect("settings hold"));
        let now = Time::from_secs(1);
        let id = ends[0].connect(now, address(1), None).expect("an address");
        let (under_way, circuits, lossy) = Default::default();
        Play { now, ends, ids: [Some(id), None], under_way, circuits, lossy }
    }

    fn run(mut self, mut input: Input<'_>) {
        // The link is opened. Its first cell, which belongs to no circuit, is shorter.
        (0..6).for_each(|_| self.carry(None));
        self.write(&cell(0, 3, 0)[..CELL - 1]);
        self.carry(None);
        while !input.is_empty() {
            match input.below(6) {
                0 => {
                    let length = input.below(256);
                    let bytes = input.take(length).to_vec();
                    self.deliver(1, address(input.below(3)), &bytes);
                }
                1 => self.carry(Some(&mut input)),
                2 => {
                    self.now += Duration::from_millis(u64::from(input.byte()) * 4);
                }
                3 => self.under_way.truncate(input.below(4)),
                _ => self.send_message(input.below(8) as u32 + 1, input.coin()),
            }
            self.look();
        }
    }

    /// Sends the next cell of a circuit. If `ends` is true and it is not the first, it ends the
    /// circuit.
    fn send_message(&mut self, circuit: u32, ends: bool) {
        let (next, _, over) = self.circuits.entry(circuit).or_insert((0, 0, false));
        if *over {
            return;
        }
        let number = std::mem::replace(next, *next + 1);
        let command = if number == 0 { CREATES } else { [3, ENDS][usize::from(ends)] };
        *over = command == ENDS;
        self.write(&cell(circuit, command, number));
        self.say_lossy();
    }

    /// Sends the next lossy cell.
    fn say_lossy(&mut self) {
        let link = self.ids[0].and_then(|id| self.ends[0].link(id));
        let Some(link) = link.filter(|link| link.state() == State::Open) else { return };
        assert!(link.takes_lossy(), "both ends accept lossy cells");
        link.write_lossy(self.now, &cell(0, 3, self.lossy.0)).expect("a whole cell");
        self.lossy.0 += 1;
        self.look();
    }

    fn write(&mut self, bytes: &[u8]) {
        let link = self.ids[0].and_then(|id| self.ends[0].link(id));
        if let Some(link) = link.filter(|link| link.state() == State::Open) {
            link.write(bytes).expect("whole cells");
        }
        self.look();
    }

    /// Delivers the datagrams in flight, changed as the input requests.
    fn carry(&mut self, mut input: Option<&mut Input<'_>>) {
        self.look();
        for (from, mut bytes) in std::mem::take(&mut self.under_way) {
            let place = input.as_mut().map(|input| input.word());
            if let Some(byte) = place.and_then(|place| bytes.get_mut(usize::from(place))) {
                *byte ^= 1;
            }
            self.deliver(1 - from, address(from), &bytes);
        }
        self.look();
    }

    fn deliver(&mut self, to: usize, from: SocketAddr, bytes: &[u8]) {
        let arrival = Arrival { from, to: None, ecn: 0, bytes };
        let admit = &mut |_, from| from == address(0);
        self.ends[to].handle(self.now, EndpointInput { arrival, admit });
    }

    fn look(&mut self) {
        for end in 0..2 {
            while let Some(output) = self.ends[end].poll(self.now) {
                let EndpointOutput::Touched(id) = output else { continue };
                self.ids[end].get_or_insert(id);
                let (mut received, mut lossy, mut out) = (Vec::new(), Vec::new(), Vec::new());
                if let Some(link) = self.ends[end].link(id) {
                    link.admit_circuits();
                    link.read(&mut received).expect("an honest peer");
                    link.read_lossy(&mut lossy).expect("an honest peer");
                }
                self.take(end, &received);
                self.take_lossy(&lossy);
                while let Some(packets) = self.ends[end].transmit(self.now, id, &mut out) {
                    let stride = if packets.stride == 0 { out.len() } else { packets.stride };
                    self.under_way.extend(out.chunks(stride).map(|bytes| (end, bytes.to_vec())));
                }
            }
        }
    }

    fn take_lossy(&mut self, received: &[u8]) {
        for received in received.chunks(CELL) {
            let number = u32::from_be_bytes(*received[5..].first_chunk().expect("a cell"));
            assert!(number < self.lossy.0 && received == cell(0, 3, number), "nothing false");
            assert!(self.lossy.1.insert(number), "a cell that came twice");
        }
    }

    fn take(&mut self, end: usize, received: &[u8]) {
        // The first cell, which belongs to no circuit, is shorter.
        let received = &received[received.len() % CELL..];
        assert!(received.is_empty() || end == 1, "the other says nothing");
        for cell in received.chunks(CELL) {
            let circuit = u32::from_be_bytes(*cell.first_chunk().expect("a cell"));
            let number = u32::from_be_bytes(*cell[5..].first_chunk().expect("a cell"));
            let (written, next, _) =
                self.circuits.get_mut(&circuit).expect("a circuit that was made");
            assert!(number == *next && number < *written, "in order, and nothing false");
            *next += 1;
        }
    }
}
