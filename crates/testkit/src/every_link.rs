//! Conformance suite for all implementations of OR links, on every kind of transport that a link
//! supports.
//!
//! Further rules are in `links/tests/conformance.rs` (streams that an observer reads) and in
//! `links/tests/quic` (circuits in separate streams, called lanes).

use std::collections::BTreeMap;

use anabranch_links::{Fault, Link, State};

/// Command of the unit (cell) that opens a lane, an independently ordered stream in a link.
pub const MAKES: u8 = 10;
/// A command of units (cells) that neither opens nor closes a lane (stream in a link).
pub const DATA: u8 = 3;
/// Numbers of the lanes (independently ordered streams in a link) that each end opens. The highest
/// bit is 0 in the lanes of the end that opened the link.
const LANES: [[u32; 3]; 2] = [[1, 2, 3], [0x8000_0001, 0x8000_0002, 0x8000_0003]];
/// Number of units (cells) that the tests send in each lane (stream in a link).
const UNITS: u32 = 40;

/// Both ends of a link under test, and the connection between them.
pub trait LinkEnds {
    /// Returns the link at `end`; end 0 opened it.
    fn link(&mut self, end: usize) -> &mut dyn Link;

    /// Returns the size in bytes of a unit (cell), which the link delivers as a whole.
    fn unit(&self) -> usize;

    /// Returns whether the link had a handshake in which the accepting end showed a certificate.
    fn shakes_hands(&self) -> bool;

    /// Delivers everything that both ends have sent. Appends the data that each end reads to its
    /// vector in `received`.
    fn settle(&mut self, received: &mut [Vec<u8>; 2]);
}

/// Returns a unit (cell) of `length` bytes: lane (stream in the link), command, number, and bytes
/// that depend on the number.
#[must_use]
pub fn unit(lane: u32, command: u8, number: u32, length: usize) -> Vec<u8> {
    let mut bytes = vec![(number % 251) as u8; length];
    bytes[..4].copy_from_slice(&lane.to_be_bytes());
    bytes[4] = command;
    bytes[5..9].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Checks all rules on pairs of open links that `make` creates. `name` identifies the link in a
/// failure.
///
/// # Panics
/// A rule is broken.
pub fn conforms<P: LinkEnds>(name: &str, mut make: impl FnMut() -> P) {
    units_come_once_and_in_the_order_that_is_promised(&mut make(), name);
    a_goodbye_ends_the_link_and_nothing_is_written_behind_it(&mut make(), name);
    keys_are_the_same_at_both_ends_and_follow_from_the_context(&mut make(), name);
    the_end_that_opened_it_is_shown_the_others_certificate(&mut make(), name);
    a_link_at_rest_gives_back_what_a_burst_took(&mut make(), name);
}

fn units_come_once_and_in_the_order_that_is_promised(pair: &mut impl LinkEnds, name: &str) {
    let (length, mut received) = (pair.unit(), [Vec::new(), Vec::new()]);
    let [promises, theirs] = [0, 1].map(|end| pair.link(end).promises());
    let same = [promises.whole == theirs.whole, promises.lanes == theirs.lanes];
    assert_eq!(same, [true; 2], "{name}: both ends promise the same");
    for number in 0..UNITS {
        let command = if number == 0 { MAKES } else { DATA };
        for (end, lanes) in LANES.into_iter().enumerate() {
            let units = lanes.map(|lane| unit(lane, command, number, length)).concat();
            assert_eq!(pair.link(end).write(&units), Ok(()), "{name}");
        }
        if number % 8 == 0 {
            pair.settle(&mut received);
        }
    }
    pair.settle(&mut received);
    for (received, lanes) in received.iter().zip([LANES[1], LANES[0]]) {
        assert_eq!(received.len() % length, 0, "{name}: units come whole");
        let mut by_lane: BTreeMap<u32, Vec<u32>> = lanes.map(|lane| (lane, Vec::new())).into();
        let mut all = Vec::new();
        for bytes in received.chunks(length) {
            let word = |at: usize| u32::from_be_bytes(*bytes[at..].first_chunk().unwrap());
            let (lane, number) = (word(0), word(5));
            assert!(bytes == unit(lane, bytes[4], number, length), "{name}: nobody sent that");
            by_lane.get_mut(&lane).unwrap().push(number);
            all.push(number);
        }
        assert!(!promises.whole || promises.lanes || all.is_sorted(), "{name}: out of order");
        for (lane, mut numbers) in by_lane {
            assert!(!promises.whole || numbers.is_sorted(), "{name}: lane {lane:#x}");
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..UNITS), "{name}: lane {lane:#x}: not all, or twice");
        }
    }
}

fn a_goodbye_ends_the_link_and_nothing_is_written_behind_it(pair: &mut impl LinkEnds, name: &str) {
    let (length, mut received) = (pair.unit(), [Vec::new(), Vec::new()]);
    let first = unit(1, MAKES, 0, length);
    pair.link(0).write(&first).unwrap();
    pair.settle(&mut received);
    assert_eq!(pair.link(1).state(), State::Open, "{name}");
    pair.link(0).close();
    let result = pair.link(0).write(&unit(1, DATA, 1, length));
    assert!(matches!(result, Err(Fault::Misuse(_))), "{name}: {result:?}");
    pair.settle(&mut received);
    assert_eq!(pair.link(1).state(), State::Ended, "{name}");
    assert!(received[1] == first, "{name}: nothing came behind the goodbye");
}

fn keys_are_the_same_at_both_ends_and_follow_from_the_context(
    pair: &mut impl LinkEnds,
    name: &str,
) {
    let label = b"EXPORTER FOR TOR TLS CLIENT BINDING AUTH0003";
    let mut export = |end, context: &[u8]| pair.link(end).export(label, context).unwrap();
    let secret = export(0, b"id");
    assert_eq!(secret, export(1, b"id"), "{name}");
    assert_ne!(secret, export(0, b"di"), "{name}");
}

fn the_end_that_opened_it_is_shown_the_others_certificate(pair: &mut impl LinkEnds, name: &str) {
    if pair.shakes_hands() {
        let own = pair.link(1).own_certificate().to_vec();
        assert_eq!(pair.link(0).peer_certificate(), Some(&own[..]), "{name}");
        assert!(!own.is_empty(), "{name}");
    }
    assert_eq!(pair.link(1).peer_certificate(), None, "{name}");
}

fn a_link_at_rest_gives_back_what_a_burst_took(pair: &mut impl LinkEnds, name: &str) {
    let (length, mut received) = (pair.unit(), [Vec::new(), Vec::new()]);
    pair.link(0).write(&unit(1, MAKES, 0, length)).unwrap();
    for number in 1..64 {
        pair.link(0).write(&unit(1, DATA, number, length)).unwrap();
    }
    pair.settle(&mut received);
    for end in 0..2 {
        pair.link(end).rest();
        assert_eq!(pair.link(end).rest(), 0, "{name}: there is no more");
    }
    pair.link(0).write(&unit(1, DATA, 64, length)).unwrap();
    pair.settle(&mut received);
    assert_eq!(received[1].len(), 65 * length, "{name}: it goes on");
}
