//! Records that arrive before earlier records, on unordered links (uTLS). All records have the
//! same size, so the boundaries of records are known in any part of the stream.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// State of one direction of an unordered link, whose TLS records have equal size and may be read
/// before earlier records have arrived.
#[derive(Debug)]
pub(super) struct EarlyRecords {
    /// Offset in the stream at which the first record of equal size begins.
    start: u64,
    /// Length of a record in bytes.
    size: usize,
    /// Position of the content within a record.
    content: Range<usize>,
    /// Received parts of incomplete records, by the record's index in the stream.
    parts: BTreeMap<u64, Part>,
    /// Indices of records that were read before all earlier records had arrived, and that have not
    /// arrived in order yet.
    opened: BTreeSet<u64>,
}

#[derive(Debug)]
struct Part {
    bytes: Vec<u8>,
    missing: usize,
}

impl EarlyRecords {
    /// Expects records from the offset `start` on. Each record has a header, content and a trailer
    /// of the given lengths.
    pub(super) fn new(start: u64, [header, content, trailer]: [usize; 3]) -> EarlyRecords {
        EarlyRecords {
            start,
            size: header + content + trailer,
            content: header..header + content,
            parts: BTreeMap::new(),
            opened: BTreeSet::new(),
        }
    }

    /// Adds the bytes of the stream that begin at `offset`. Appends to `plain` the content of the
    /// records that these bytes complete. The caller must add each byte at most once.
    pub(super) fn insert(&mut self, offset: u64, mut bytes: &[u8], plain: &mut Vec<u8>) {
        let Some(mut at) = offset.checked_sub(self.start) else { return };
        while !bytes.is_empty() {
            let (number, within) = (at / self.size as u64, (at % self.size as u64) as usize);
            let (now, rest) = bytes.split_at(bytes.len().min(self.size - within));
            let empty = || Part { bytes: vec![0; self.size], missing: self.size };
            let part = self.parts.entry(number).or_insert_with(empty);
            part.bytes[within..within + now.len()].copy_from_slice(now);
            part.missing -= now.len();
            if part.missing == 0 {
                plain.extend_from_slice(&part.bytes[self.content.clone()]);
                self.parts.remove(&number);
                self.opened.insert(number);
            }
            (at, bytes) = (at + now.len() as u64, rest);
        }
    }

    /// Returns whether the record at `offset`, which has now arrived in order, was read before
    /// earlier records had arrived. Discards the state of this record and of earlier records.
    pub(super) fn reached(&mut self, offset: u64) -> bool {
        let Some(at) = offset.checked_sub(self.start) else { return false };
        let number = at / self.size as u64;
        self.parts = self.parts.split_off(&(number + 1));
        let was_opened = self.opened.contains(&number);
        self.opened = self.opened.split_off(&(number + 1));
        was_opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTENT: usize = 10;
    const LENGTHS: [usize; 3] = [5, CONTENT, 17];
    const SIZE: usize = 32;

    /// Returns a stream of five records. The content of each record is its number.
    fn stream() -> Vec<u8> {
        let record = |number| [vec![0xff; 5], vec![number; CONTENT], vec![0xff; 17]].concat();
        (0..5).flat_map(record).collect()
    }

    #[test]
    fn whole_records_are_opened_and_parts_wait_for_the_rest() {
        let (sent, mut early, mut plain) = (stream(), EarlyRecords::new(100, LENGTHS), Vec::new());
        let mut insert = |from: usize, to: usize| {
            plain.clear();
            early.insert(100 + from as u64, &sent[from..to], &mut plain);
            plain.clone()
        };
        // These bytes are the end of record 1, all of record 2, and the beginning of record 3.
        assert_eq!(insert(2 * SIZE - 3, 3 * SIZE + 4), [2; CONTENT]);
        assert_eq!(insert(3 * SIZE + 4, 4 * SIZE), [3; CONTENT]);
        assert_eq!(insert(SIZE, 2 * SIZE - 3), [1; CONTENT]);
        let reached = [0, 1, 2, 3, 4].map(|number| early.reached(100 + number * SIZE as u64));
        assert_eq!(reached, [false, true, true, true, false]);
        assert!(early.parts.is_empty() && early.opened.is_empty());
    }

    #[test]
    fn a_record_that_arrives_in_order_is_not_opened_again() {
        let (sent, mut early, mut plain) = (stream(), EarlyRecords::new(0, LENGTHS), Vec::new());
        early.insert(SIZE as u64 + 5, &sent[SIZE + 5..2 * SIZE], &mut plain);
        assert!(plain.is_empty() && early.parts.len() == 1);
        assert!(!early.reached(SIZE as u64));
        assert!(early.parts.is_empty());
    }
}
