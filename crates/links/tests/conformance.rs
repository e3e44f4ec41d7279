//! Tests of the guarantees of every link over a byte stream. The carriers keep the order of the
//! stream. They lose and delay segments, and duplicate, change or hide what a tap (a capture of
//! the segments) shows.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy only knows the tests themselves")]

use std::collections::{BTreeMap, VecDeque};

use anabranch_links::{Context, EarlyRecords, Fault, Link, State, StreamFamily, StreamLink, Tls};
use anabranch_multipath::Time;
use anabranch_multipath::seed::stream;
use anabranch_testkit::every_link::{self, LinkEnds};
use anabranch_testkit::tls_peer::{Role, SUITE_COUNT, open_link};
use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;

const NOW: u64 = 1_800_000_000;
/// Bytes of a cell, which a link carries as a whole.
const CELL: usize = 518;
/// Maximum length of a segment in bytes.
const SEGMENT: usize = 1_448;

/// A carrier between two ends: the TCP receiver, and a tap (a capture of the segments).
#[derive(Clone, Copy, Debug, Default)]
struct Carrier {
    /// Number of segments in a thousand that arrive only after many later ones.
    lost: u32,
    /// Maximum number of other segments that a segment may overtake.
    delay: usize,
    /// Number of segments in a thousand that the tap shows again, from another offset on.
    doubled: u32,
    /// Number of segments in a thousand in which the tap shows a changed byte.
    changed: u32,
    /// Number of segments in a thousand that the tap does not show.
    blind: u32,
}

const ORDERED: Carrier = Carrier { lost: 0, delay: 0, doubled: 0, changed: 0, blind: 0 };
const CARRIERS: [(&str, Carrier); 7] = [
    ("ordered", ORDERED),
    ("lossy", Carrier { lost: 50, ..ORDERED }),
    ("delaying", Carrier { delay: 9, ..ORDERED }),
    ("duplicating", Carrier { lost: 50, doubled: 900, ..ORDERED }),
    ("changing some", Carrier { lost: 50, changed: 200, doubled: 500, ..ORDERED }),
    ("changing all", Carrier { lost: 50, delay: 5, changed: 1_000, ..ORDERED }),
    ("half blind", Carrier { lost: 50, blind: 500, ..ORDERED }),
];

/// One direction of a connection: the sent segments, and their delivery to the receiver.
struct Direction {
    carrier: Carrier,
    dice: ChaCha8Rng,
    sent: u64,
    /// Segments in flight, each with its offset.
    under_way: VecDeque<(u64, Vec<u8>)>,
    lost: Vec<(u64, Vec<u8>)>,
    /// Segments that the kernel holds back, by offset. It has delivered the bytes before `head`.
    held: BTreeMap<u64, Vec<u8>>,
    head: u64,
}

impl Direction {
    fn new(carrier: Carrier, seed: u64) -> Direction {
        let dice = stream(seed, 0, "carrier");
        let (under_way, lost, held) = Default::default();
        Direction { carrier, dice, sent: 0, under_way, lost, held, head: 0 }
    }

    fn chance(&mut self, of_thousand: u32) -> bool {
        self.dice.random_range(0..1_000) < of_thousand
    }

    fn send(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let length = self.dice.random_range(1..=SEGMENT).min(bytes.len());
            let (segment, rest) = bytes.split_at(length);
            bytes = rest;
            let segment = (self.sent, segment.to_vec());
            self.sent += length as u64;
            match self.chance(self.carrier.lost) {
                true => self.lost.push(segment),
                false => self.under_way.push_back(segment),
            }
        }
    }

    /// Delivers the segments in flight to the receiver, then the lost ones. Calls `on_arrival`
    /// after each segment.
    fn deliver<L: StreamLink + ?Sized>(
        &mut self,
        to: &mut L,
        mut on_arrival: impl FnMut(&mut L),
    ) -> Result<(), Fault> {
        loop {
            let window = self.under_way.len().min(1 + self.carrier.delay);
            if window == 0 {
                if self.lost.is_empty() {
                    return Ok(());
                }
                self.under_way.extend(self.lost.drain(..));
                continue;
            }
            let place = self.dice.random_range(0..window);
            let (offset, segment) = self.under_way.remove(place).unwrap();
            self.arrive(to, offset, segment)?;
            on_arrival(to);
        }
    }

    fn arrive<L: StreamLink + ?Sized>(
        &mut self,
        to: &mut L,
        offset: u64,
        segment: Vec<u8>,
    ) -> Result<(), Fault> {
        if offset > self.head {
            self.show(to, offset, &segment);
        }
        self.held.insert(offset, segment);
        while let Some(next) = self.held.remove(&self.head) {
            self.head += next.len() as u64;
            to.receive(Time::ZERO, &next)?;
        }
        Ok(())
    }

    /// Passes a segment that the kernel holds back to the link, as the tap shows it.
    fn show<L: StreamLink + ?Sized>(&mut self, to: &mut L, offset: u64, segment: &[u8]) {
        if self.chance(self.carrier.blind) {
            return;
        }
        let mut shown = segment.to_vec();
        if self.chance(self.carrier.changed) {
            let place = self.dice.random_range(0..shown.len());
            shown[place] ^= self.dice.random_range(1..=255u8);
        }
        let again = self.chance(self.carrier.doubled);
        let from = if again { self.dice.random_range(0..segment.len()) } else { 0 };
        let Some(to) = to.early_records_mut() else { return };
        to.receive_early(Time::ZERO, offset, &shown);
        if again {
            to.receive_early(Time::ZERO, offset + from as u64, &segment[from..]);
        }
    }
}

/// The two ends of a link, and both directions between them.
struct Ends<L: ?Sized> {
    ends: [Box<L>; 2],
    ways: [Direction; 2],
}

/// The two ends of a link of any type.
type AnyEnds = Ends<dyn StreamLink + Send>;

impl Ends<Tls> {
    fn of_any_kind(self) -> AnyEnds {
        let Ends { ends: [one, two], ways } = self;
        Ends { ends: [one, two], ways }
    }
}

impl<L: StreamLink + ?Sized> Ends<L> {
    fn new(ends: [Box<L>; 2], carrier: Carrier, seed: u64) -> Ends<L> {
        let ways = [0, 1].map(|way| Direction::new(carrier, 2 * seed + way));
        Ends { ends, ways }
    }

    /// Carries the bytes of both ends until neither sends more. Appends the bytes that each end
    /// reads to `received`, in the order of arrival.
    fn settle(&mut self, received: &mut [Vec<u8>; 2]) -> Result<(), Fault> {
        loop {
            let mut moved = false;
            for (from, to) in [(0, 1), (1, 0)] {
                let mut wire = Vec::new();
                moved |= self.ends[from].transmit(Time::ZERO, &mut wire);
                self.ways[from].send(&wire);
                let into = &mut received[to];
                self.ways[from].deliver(&mut *self.ends[to], |link| {
                    link.read(into).unwrap();
                })?;
            }
            if !moved {
                return Ok(());
            }
        }
    }
}

/// Returns the cell with this number, which differs from all other cells.
fn cell(number: u32) -> Vec<u8> {
    let mut bytes = vec![0; CELL];
    stream(number.into(), 0, "unit").fill_bytes(&mut bytes);
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Returns the numbers of the cells in `received`, in their order.
fn numbers(received: &[u8]) -> Vec<u32> {
    assert_eq!(received.len() % CELL, 0, "cells come whole");
    let cells = received.chunks(CELL).map(|bytes| {
        let number = u32::from_be_bytes(*bytes.first_chunk().unwrap());
        assert!(bytes == cell(number), "a cell that nobody sent");
        number
    });
    cells.collect()
}

/// Checks every rule with the pairs that `make` returns. A pair is open, or its handshake is still
/// in progress.
fn conforms<L: StreamLink + ?Sized>(make: impl Fn(Carrier, u64) -> Ends<L>) {
    for (name, carrier) in CARRIERS {
        for seed in 0..6 {
            all_cells_come_once(make(carrier, seed), name);
            a_goodbye_ends_behind_all_cells(make(carrier, seed), name);
        }
        a_cut_stream_gives_nothing_false(make(carrier, 7), name);
        a_changed_stream_ends_the_link(make(carrier, 8), name);
        keys_are_the_same_at_both_ends(&make(carrier, 9), name);
    }
}

/// Both ends send 400 cells, several of them in one write. Each cell arrives once. The cells arrive
/// in order if the link promises it.
fn all_cells_come_once<L: StreamLink + ?Sized>(mut ends: Ends<L>, name: &str) {
    let whole = ends.ends[0].promises().in_order;
    let mut received = [Vec::new(), Vec::new()];
    for turn in 0..20u32 {
        for end in &mut ends.ends {
            let cells = (0..20).flat_map(|n| cell(20 * turn + n)).collect::<Vec<u8>>();
            for batch in cells.chunks(CELL * (1 + turn as usize % 20)) {
                end.write(batch).unwrap();
            }
        }
        ends.settle(&mut received).unwrap();
    }
    for received in received {
        let mut found = numbers(&received);
        let in_order = found.is_sorted();
        assert!(in_order || !whole, "{name}: out of order");
        assert!(whole || name != "lossy" || !in_order, "{name}: nothing was early");
        found.sort_unstable();
        assert!(found.into_iter().eq(0..400), "{name}: not all, or twice");
    }
}

fn a_goodbye_ends_behind_all_cells<L: StreamLink + ?Sized>(mut ends: Ends<L>, name: &str) {
    let mut received = [Vec::new(), Vec::new()];
    (0..60).for_each(|n| ends.ends[0].write(&cell(n)).unwrap());
    ends.settle(&mut received).unwrap();
    (60..90).for_each(|n| ends.ends[0].write(&cell(n)).unwrap());
    ends.ends[0].close();
    assert!(matches!(ends.ends[0].write(&cell(0)), Err(Fault::Misuse(_))), "{name}");
    ends.settle(&mut received).unwrap();
    let mut found = numbers(&received[1]);
    found.sort_unstable();
    assert!(found.into_iter().eq(0..90), "{name}");
    assert_eq!(ends.ends[1].state(), State::Ended, "{name}");
}

/// The stream is cut in the middle. All cells that arrive were sent, none arrives twice, and the
/// link does not count as closed.
fn a_cut_stream_gives_nothing_false<L: StreamLink + ?Sized>(mut ends: Ends<L>, name: &str) {
    let mut received = [Vec::new(), Vec::new()];
    ends.settle(&mut received).unwrap();
    (0..60).for_each(|n| ends.ends[0].write(&cell(n)).unwrap());
    ends.ends[0].close();
    let mut wire = Vec::new();
    ends.ends[0].transmit(Time::ZERO, &mut wire);
    wire.truncate(wire.len() * 2 / 3);
    ends.ways[0].send(&wire);
    let (way, to, into) = (&mut ends.ways[0], &mut *ends.ends[1], &mut received[1]);
    way.deliver(to, |link| {
        link.read(into).unwrap();
    })
    .unwrap();
    assert_eq!(ends.ends[1].state(), State::Open, "{name}");
    received[1].truncate(received[1].len() / CELL * CELL);
    let mut found = numbers(&received[1]);
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), received[1].len() / CELL, "{name}: twice");
}

/// The stream itself is changed. The link reports a fault, and delivers no false cell.
fn a_changed_stream_ends_the_link<L: StreamLink + ?Sized>(mut ends: Ends<L>, name: &str) {
    let mut received = [Vec::new(), Vec::new()];
    ends.settle(&mut received).unwrap();
    let mut wire = Vec::new();
    (0..3).for_each(|n| ends.ends[0].write(&cell(n)).unwrap());
    ends.ends[0].transmit(Time::ZERO, &mut wire);
    *wire.last_mut().unwrap() ^= 1;
    let to = &mut ends.ends[1];
    assert!(matches!(to.receive(Time::ZERO, &wire), Err(Fault::Peer(_))), "{name}");
    to.read(&mut received[1]).unwrap();
    let before = received[1].len();
    if let Some(early) = to.early_records_mut() {
        early.receive_early(Time::ZERO, ends.ways[0].head + 1_000_000, &wire);
    }
    let _ = to.receive(Time::ZERO, &wire);
    to.read(&mut received[1]).unwrap();
    assert_eq!((to.state(), received[1].len()), (State::Ended, before), "{name}");
    received[1].truncate(before / CELL * CELL);
    assert!(numbers(&received[1]).iter().all(|number| *number < 3), "{name}");
}

fn keys_are_the_same_at_both_ends<L: StreamLink + ?Sized>(ends: &Ends<L>, name: &str) {
    let [one, other] = &ends.ends;
    if one.state() == State::Open {
        let label = b"EXPORTER FOR TOR TLS CLIENT BINDING AUTH0003";
        assert_eq!(one.export(label, b"id"), other.export(label, b"id"), "{name}");
    }
}

/// Returns two ends that have completed their handshake.
fn agreed(context: &Context, carrier: Carrier, seed: u64) -> Ends<Tls> {
    let ends = [context.connect().unwrap(), context.accept().unwrap()].map(Box::new);
    let mut ends = Ends::new(ends, carrier, seed);
    ends.settle(&mut [Vec::new(), Vec::new()]).unwrap();
    ends
}

/// An open pair of ends, with the length of its cells. `shakes_hands` is true if the pair had a
/// handshake.
struct Pair {
    ends: AnyEnds,
    cell: usize,
    shakes_hands: bool,
}

impl LinkEnds for Pair {
    fn link(&mut self, end: usize) -> &mut dyn Link {
        &mut *self.ends.ends[end]
    }

    fn cell(&self) -> usize {
        self.cell
    }

    fn shakes_hands(&self) -> bool {
        self.shakes_hands
    }

    fn settle(&mut self, received: &mut [Vec<u8>; 2]) {
        self.ends.settle(received).unwrap();
    }
}

/// Checks the rules of every type of link with pairs over all carriers.
fn every_link(make: impl Fn(Carrier, u64) -> AnyEnds, shakes_hands: bool) {
    for (name, carrier) in CARRIERS {
        let mut seed = 20;
        every_link::conforms(name, || {
            seed += 1;
            Pair { ends: make(carrier, seed), cell: CELL, shakes_hands }
        });
    }
}

#[test]
fn every_kind_of_link_over_a_stream_is_a_link() {
    let context = Context::new(NOW).unwrap();
    for family in StreamFamily::ALL {
        let make = |carrier, seed| {
            let ends = [family.connect, family.accept].map(|make| make(&context).unwrap());
            let mut ends = AnyEnds::new(ends, carrier, seed);
            ends.settle(&mut [Vec::new(), Vec::new()]).unwrap();
            ends
        };
        every_link(make, true);
        conforms(make);
        assert_eq!(StreamFamily::named(family.name).map(|found| found.name), Some(family.name));
    }
    assert!(StreamFamily::named("carrier pigeon").is_none());
}

#[test]
fn unordered_tls_is_a_link_as_every_other() {
    let context = Context::new(NOW).unwrap();
    every_link(|carrier, seed| unordered(agreed(&context, carrier, seed)).of_any_kind(), true);
    for suite in 0..SUITE_COUNT {
        let make = |carrier, seed| {
            let ends = [Role::Client, Role::Server];
            let ends = ends.map(|role| Box::new(open_link(role, suite, None)));
            unordered(Ends::new(ends, carrier, seed)).of_any_kind()
        };
        every_link(make, false);
    }
}

#[test]
fn tls_is_a_link() {
    let context = Context::new(NOW).unwrap();
    conforms(|carrier, seed| agreed(&context, carrier, seed));
    let context = context.only_tls12().unwrap();
    conforms(|carrier, seed| agreed(&context, carrier, seed));
}

#[test]
fn tls_is_a_link_before_its_keys_are_agreed() {
    let context = Context::new(NOW).unwrap();
    for (name, carrier) in CARRIERS {
        let ends = [context.connect().unwrap(), context.accept().unwrap()].map(Box::new);
        all_cells_come_once(Ends::new(ends, carrier, 3), name);
    }
}

fn unordered(mut ends: Ends<Tls>) -> Ends<Tls> {
    for end in &mut ends.ends {
        end.send_fixed(CELL).unwrap();
        end.open_early(Time::ZERO, CELL).unwrap();
    }
    ends
}

#[test]
fn unordered_tls_is_a_link() {
    let context = Context::new(NOW).unwrap();
    conforms(|carrier, seed| unordered(agreed(&context, carrier, seed)));
    for suite in 0..SUITE_COUNT {
        // Keys change every few records.
        for limit in [None, Some(50)] {
            conforms(|carrier, seed| {
                let ends = [Role::Client, Role::Server]
                    .map(|role| Box::new(open_link(role, suite, limit)));
                unordered(Ends::new(ends, carrier, seed))
            });
        }
    }
}

#[test]
fn nearly_all_is_early_that_a_tap_shows() {
    let context = Context::new(NOW).unwrap();
    for (name, carrier) in CARRIERS {
        let mut ends = unordered(agreed(&context, carrier, 1));
        let mut received = [Vec::new(), Vec::new()];
        for n in 0..2_000 {
            ends.ends[0].write(&cell(n)).unwrap();
        }
        ends.settle(&mut received).unwrap();
        let counts = ends.ends[1].early_counts().unwrap();
        let (least, most) = match name {
            "ordered" => (0, 0),
            // Because of a changed byte, one of the records in its segment cannot be decrypted
            // early.
            "changing all" => (200, 1_200),
            "changing some" | "half blind" => (300, 1_700),
            "delaying" => (100, 2_000),
            _ => (1_300, 2_000),
        };
        assert!((least..=most).contains(&counts.opened), "{name}: {counts:?}");
        assert!(carrier.changed > 0 || counts.failed == 0, "{name}: {counts:?}");
    }
}

#[test]
fn what_is_not_a_whole_cell_is_no_record_of_an_unordered_link() {
    let context = Context::new(NOW).unwrap();
    let mut ends = unordered(agreed(&context, ORDERED, 1));
    for length in [1, CELL - 1, CELL + 1] {
        assert!(matches!(ends.ends[0].write(&vec![7; length]), Err(Fault::Misuse(_))), "{length}");
    }
    assert_eq!(ends.ends[0].promises().record, CELL);
    // It is a fault of the peer if its records have another length.
    let mut ends = agreed(&context, ORDERED, 1);
    ends.ends[1].open_early(Time::ZERO, CELL).unwrap();
    ends.ends[0].write(&cell(1)[1..]).unwrap();
    assert!(ends.settle(&mut [Vec::new(), Vec::new()]).is_err());
}

#[test]
fn only_open_links_of_tls_13_can_be_unordered() {
    let context = Context::new(NOW).unwrap();
    let mut early = context.connect().unwrap();
    assert!(early.send_fixed(CELL).is_err() && early.open_early(Time::ZERO, CELL).is_err());
    let mut older = agreed(&context.clone().only_tls12().unwrap(), ORDERED, 1);
    assert!(older.ends[0].send_fixed(CELL).is_err());
    assert!(older.ends[0].open_early(Time::ZERO, CELL).is_err());
    let mut open = agreed(&context, ORDERED, 1);
    for content in [0, 4, 16_385] {
        assert!(open.ends[0].send_fixed(content).is_err(), "{content}");
        assert!(open.ends[0].open_early(Time::ZERO, content).is_err(), "{content}");
    }
}
