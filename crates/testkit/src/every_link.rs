//! Conformance suite for all implementations of OR links (connections between Tor relays), on
//! every transport protocol that a link supports.
//!
//! Further rules are in `links/tests/conformance.rs` (streams that an observer reads) and in
//! `links/tests/quic` (circuits in separate streams).

use std::collections::BTreeMap;

use anabranch_links::{Fault, Link, State};

/// Command of the cell that opens a circuit.
pub const CREATES: u8 = 10;
/// A command of cells that neither opens nor closes a circuit.
pub const DATA: u8 = 3;
/// Circuit IDs that each end opens. The highest bit is 0 in the circuit IDs of the end that opened
/// the link.
const CIRCUITS: [[u32; 3]; 2] = [[1, 2, 3], [0x8000_0001, 0x8000_0002, 0x8000_0003]];
/// Number of cells that the tests send in each circuit.
const CELLS: u32 = 40;

/// Both ends of a link under test, and the connection between them.
pub trait LinkEnds {
    /// Returns the link object of `end`. End 0 opened the link, and end 1 accepted it.
    fn link(&mut self, end: usize) -> &mut dyn Link;

    /// Returns the size of a cell in bytes.
    fn cell(&self) -> usize;

    /// Returns whether the link began with a handshake in which the accepting end showed a
    /// certificate.
    fn shakes_hands(&self) -> bool;

    /// Delivers everything that both ends have sent. Appends the data that each end reads to its
    /// vector in `received`.
    fn settle(&mut self, received: &mut [Vec<u8>; 2]);
}

/// Returns a cell of `length` bytes for `circuit`: the circuit ID, `command`, `number`, and bytes
/// that depend on `number`.
#[must_use]
pub fn cell(circuit: u32, command: u8, number: u32, length: usize) -> Vec<u8> {
    let mut bytes = vec![(number % 251) as u8; length];
    bytes[..4].copy_from_slice(&circuit.to_be_bytes());
    bytes[4] = command;
    bytes[5..9].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Checks all rules of links on pairs of open links that `make` creates. `name` identifies the
/// kind of link in a failure message.
///
/// # Panics
/// A rule is broken.
pub fn conforms<P: LinkEnds>(name: &str, mut make: impl FnMut() -> P) {
    cells_come_once_and_in_the_order_that_is_promised(&mut make(), name);
    a_goodbye_ends_the_link_and_nothing_is_written_behind_it(&mut make(), name);
    keys_are_the_same_at_both_ends_and_follow_from_the_context(&mut make(), name);
    the_end_that_opened_it_is_shown_the_others_certificate(&mut make(), name);
    a_link_at_rest_gives_back_what_a_burst_took(&mut make(), name);
}

fn cells_come_once_and_in_the_order_that_is_promised(pair: &mut impl LinkEnds, name: &str) {
    let (length, mut received) = (pair.cell(), [Vec::new(), Vec::new()]);
    let [promises, theirs] = [0, 1].map(|end| pair.link(end).promises());
    let same = [
        promises.in_order == theirs.in_order,
        promises.stream_per_circuit == theirs.stream_per_circuit,
    ];
    assert_eq!(same, [true; 2], "{name}: both ends promise the same");
    for number in 0..CELLS {
        let command = if number == 0 { CREATES } else { DATA };
        for (end, circuits) in CIRCUITS.into_iter().enumerate() {
            let cells = circuits.map(|circuit| cell(circuit, command, number, length)).concat();
            assert_eq!(pair.link(end).write(&cells), Ok(()), "{name}");
        }
        if number % 8 == 0 {
            pair.settle(&mut received);
        }
    }
    pair.settle(&mut received);
    for (received, circuits) in received.iter().zip([CIRCUITS[1], CIRCUITS[0]]) {
        assert_eq!(received.len() % length, 0, "{name}: cells come whole");
        let mut by_circuit: BTreeMap<u32, Vec<u32>> =
            circuits.map(|circuit| (circuit, Vec::new())).into();
        let mut all = Vec::new();
        for bytes in received.chunks(length) {
            let word = |at: usize| u32::from_be_bytes(*bytes[at..].first_chunk().unwrap());
            let (circuit, number) = (word(0), word(5));
            assert!(bytes == cell(circuit, bytes[4], number, length), "{name}: nobody sent that");
            by_circuit.get_mut(&circuit).unwrap().push(number);
            all.push(number);
        }
        assert!(
            !promises.in_order || promises.stream_per_circuit || all.is_sorted(),
            "{name}: out of order"
        );
        for (circuit, mut numbers) in by_circuit {
            assert!(!promises.in_order || numbers.is_sorted(), "{name}: circuit {circuit:#x}");
            numbers.sort_unstable();
            assert!(
                numbers.into_iter().eq(0..CELLS),
                "{name}: circuit {circuit:#x}: not all, or twice"
            );
        }
    }
}

fn a_goodbye_ends_the_link_and_nothing_is_written_behind_it(pair: &mut impl LinkEnds, name: &str) {
    let (length, mut received) = (pair.cell(), [Vec::new(), Vec::new()]);
    let first = cell(1, CREATES, 0, length);
    pair.link(0).write(&first).unwrap();
    pair.settle(&mut received);
    assert_eq!(pair.link(1).state(), State::Open, "{name}");
    pair.link(0).close();
    let result = pair.link(0).write(&cell(1, DATA, 1, length));
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
    let (length, mut received) = (pair.cell(), [Vec::new(), Vec::new()]);
    pair.link(0).write(&cell(1, CREATES, 0, length)).unwrap();
    for number in 1..64 {
        pair.link(0).write(&cell(1, DATA, number, length)).unwrap();
    }
    pair.settle(&mut received);
    for end in 0..2 {
        pair.link(end).shrink_buffers();
        assert_eq!(pair.link(end).shrink_buffers(), 0, "{name}: there is no more");
    }
    pair.link(0).write(&cell(1, DATA, 64, length)).unwrap();
    pair.settle(&mut received);
    assert_eq!(received[1].len(), 65 * length, "{name}: it goes on");
}
