//! Pieces of a TCP stream that arrived before earlier bytes of the stream.

use std::collections::BTreeMap;
use std::ops::Range;

/// Maximum length in bytes of a run (stored bytes that are contiguous in the stream). It limits
/// the number of bytes that are moved in memory when a run is split.
const LONGEST_RUN: usize = 64 << 10;
/// Maximum number of runs (contiguous stored bytes). It limits the cost of forged one-byte
/// segments.
const RUNS: usize = 4 << 10;

/// A store for bytes of a stream by offset, within a window after the read position. A stored byte
/// is not overwritten by later copies, until [`Reassembler::remove`] drops it.
#[derive(Debug)]
pub struct Reassembler {
    /// Read position of the stream. Earlier bytes are not needed.
    head: u64,
    window: u64,
    runs: BTreeMap<u64, Vec<u8>>,
    held: usize,
}

impl Reassembler {
    /// Returns an empty reassembler. It stores bytes up to `window` bytes after the read position.
    #[must_use]
    pub fn new(window: usize) -> Reassembler {
        Reassembler { head: 0, window: window as u64, runs: BTreeMap::new(), held: 0 }
    }

    /// Returns the number of bytes stored.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    /// Advances the stream's read position to `head`, and drops the bytes before it.
    pub fn advance(&mut self, head: u64) {
        if head > self.head {
            self.remove(self.head..head);
            self.head = head;
        }
    }

    /// Stores the part of `bytes` that is within the window, and returns the range of the offsets
    /// of this part. `bytes` begins at `offset`.
    pub fn insert(&mut self, offset: u64, bytes: &[u8]) -> Range<u64> {
        let end = offset.saturating_add(bytes.len() as u64);
        let from = offset.max(self.head);
        let to = end.min(self.head.saturating_add(self.window)).max(from);
        let mut at = from;
        while at < to && self.runs.len() < RUNS {
            let (missing, next) = self.gap(at, to);
            if !missing.is_empty() {
                let within = |at: u64| (at - offset) as usize;
                self.put(missing.start, &bytes[within(missing.start)..within(missing.end)]);
            }
            at = next;
        }
        from..to
    }

    /// Returns the first range of missing bytes in `at..to`, and the offset at which the search for
    /// the next range continues. The range is empty where one stored block ends and the next
    /// begins, and if no byte before `to` is missing.
    fn gap(&self, at: u64, to: u64) -> (Range<u64>, u64) {
        let before = self.runs.range(..=at).next_back().map(|(start, run)| end_of(*start, run));
        let start = before.map_or(at, |end| end.max(at)).min(to);
        let end = self.runs.range(start..).next().map_or(to, |(next, _)| (*next).min(to));
        (start..end, end.max(start))
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.held += bytes.len();
        if let Some((start, run)) = self.runs.range_mut(..at).next_back()
            && end_of(*start, run) == at
            && run.len() + bytes.len() <= LONGEST_RUN
        {
            run.extend_from_slice(bytes);
            return;
        }
        self.runs.insert(at, bytes.to_vec());
    }

    /// Returns whether all bytes of `range` are stored.
    #[must_use]
    pub fn covers(&self, range: Range<u64>) -> bool {
        self.pieces(range.clone()).map(|piece| piece.len() as u64).sum::<u64>()
            == range.end.saturating_sub(range.start)
    }

    /// Appends to `into` the stored bytes of `range`.
    pub fn copy(&self, range: Range<u64>, into: &mut Vec<u8>) {
        self.pieces(range).for_each(|piece| into.extend_from_slice(piece));
    }

    /// Returns the stored pieces of `range`, in order.
    fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = &[u8]> {
        let first = self.runs.range(..=range.start).next_back().map_or(range.start, |(at, _)| *at);
        let last = range.end.max(first);
        self.runs.range(first..last).filter_map(move |(start, run)| {
            let from = range.start.max(*start);
            let to = range.end.min(end_of(*start, run));
            (from < to).then(|| &run[(from - start) as usize..(to - start) as usize])
        })
    }

    /// Drops the bytes of `range`, so that another copy of them is accepted.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.runs.range(..=range.start).next_back().map_or(range.start, |(at, _)| *at);
        let within: Vec<u64> = self.runs.range(first..range.end).map(|(at, _)| *at).collect();
        for start in within {
            let Some(mut run) = self.runs.remove(&start) else { continue };
            self.held -= run.len();
            let end = end_of(start, &run);
            if end > range.end {
                let tail = run[(range.end.max(start) - start) as usize..].to_vec();
                self.held += tail.len();
                self.runs.insert(range.end.max(start), tail);
            }
            if start < range.start {
                run.truncate((range.start - start) as usize);
                self.held += run.len();
                self.runs.insert(start, run);
            }
        }
    }
}

fn end_of(start: u64, run: &[u8]) -> u64 {
    start + run.len() as u64
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed::stream;
    use rand::RngExt;

    use super::*;

    const WINDOW: usize = 300;

    /// A simple model of the reassembler for comparison, which stores one byte per offset.
    struct Model {
        head: u64,
        bytes: BTreeMap<u64, u8>,
    }

    impl Model {
        fn insert(&mut self, offset: u64, bytes: &[u8]) {
            for (at, byte) in (offset..).zip(bytes) {
                if (self.head..self.head + WINDOW as u64).contains(&at) {
                    self.bytes.entry(at).or_insert(*byte);
                }
            }
        }

        fn remove(&mut self, range: Range<u64>) {
            self.bytes.retain(|at, _| !range.contains(at));
        }
    }

    #[test]
    fn it_holds_what_a_map_of_bytes_holds() {
        for seed in 0..200 {
            let mut dice = stream(seed, 0, "pieces");
            let mut own = Reassembler::new(WINDOW);
            let mut model = Model { head: 0, bytes: BTreeMap::new() };
            for _ in 0..200 {
                let start = model.head.saturating_sub(20) + dice.random_range(0..400u64);
                let length = dice.random_range(0..60usize);
                match dice.random_range(0..8) {
                    0 => {
                        let head = model.head + dice.random_range(0..30u64);
                        own.advance(head);
                        model.remove(model.head..head);
                        model.head = head;
                    }
                    1 => {
                        own.remove(start..start + length as u64);
                        model.remove(start..start + length as u64);
                    }
                    _ => {
                        let bytes: Vec<u8> = (0..length).map(|_| dice.random()).collect();
                        own.insert(start, &bytes);
                        model.insert(start, &bytes);
                    }
                }
                assert_eq!(own.held(), model.bytes.len(), "seed {seed}");
                let range = start..start + 40;
                let wanted: Vec<u8> =
                    model.bytes.range(range.clone()).map(|(_, byte)| *byte).collect();
                let mut found = Vec::new();
                own.copy(range.clone(), &mut found);
                assert_eq!(found, wanted, "seed {seed}");
                assert_eq!(own.covers(range), wanted.len() == 40, "seed {seed}");
            }
        }
    }

    #[test]
    fn the_range_that_is_given_is_what_may_be_new() {
        let mut held = Reassembler::new(100);
        held.advance(1_000);
        assert_eq!(held.insert(990, &[1; 20]), 1_000..1_010);
        assert_eq!(held.insert(1_090, &[1; 20]), 1_090..1_100);
        assert!(held.insert(0, &[1; 20]).is_empty());
        assert!(held.insert(5_000, &[1; 20]).is_empty());
        assert!(held.insert(u64::MAX - 3, &[1; 20]).is_empty());
        assert_eq!(held.held(), 20);
    }

    #[test]
    fn pieces_of_one_byte_cost_a_bounded_number_of_runs() {
        let mut held = Reassembler::new(1 << 20);
        for at in 0..100_000u64 {
            held.insert(2 * at, &[7]);
        }
        assert_eq!(held.runs.len(), RUNS);
        // Once the window has passed the stored pieces, there is room for others.
        held.advance(2 * RUNS as u64);
        held.insert(3 * RUNS as u64, &[7; 100]);
        assert_eq!(held.held(), 100);
    }

    #[test]
    fn a_changed_copy_is_retaken_once_it_was_removed() {
        let mut held = Reassembler::new(100);
        held.insert(10, b"wrong");
        held.insert(8, b"a right one");
        let copy = |held: &Reassembler| {
            let mut found = Vec::new();
            held.copy(8..19, &mut found);
            found
        };
        assert_eq!(copy(&held), b"a wrong one");
        held.remove(10..15);
        assert!(!held.covers(8..19));
        held.insert(8, b"a right one");
        assert_eq!(copy(&held), b"a right one");
    }
}
