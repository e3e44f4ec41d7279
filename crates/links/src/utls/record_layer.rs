//! Early decryption of records. All records have one size, so the offset of a record in the stream
//! determines its number.

use std::collections::BTreeSet;
use std::ops::Range;

use anabranch_multipath::Time;

use super::{Anchor, Reassembler, TrialBudget};
use crate::tls::keys::{HEADER, RecordKeys, TAG};
use crate::tls::messages::DATA;

/// Counts of attempts to decrypt a record before earlier ones have arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EarlyCounts {
    /// Number of records decrypted before earlier ones had arrived.
    pub opened: u64,
    /// Number of records that could not be decrypted: they were changed, forged, or not at the
    /// expected offset.
    pub failed: u64,
}

/// A layer that decrypts a peer's records before earlier ones have arrived. All records must have
/// the same size.
///
/// The caller passes an [`Anchor`] that advances with each record read in order. The layer
/// remembers which numbers were decrypted, so that each record is delivered once.
#[derive(Debug)]
pub struct RecordLayer {
    /// Number of bytes of content in a record that is delivered early. The content of such a
    /// record is application data.
    content: usize,
    held: Reassembler,
    opened: BTreeSet<u64>,
    /// Numbers of records that were decrypted early but are not data of the agreed length, such as
    /// key changes. They are processed once all earlier records have arrived.
    waiting: BTreeSet<u64>,
    budget: TrialBudget,
    counts: EarlyCounts,
}

impl EarlyCounts {
    /// Returns the sums of these counts and `other`.
    #[must_use]
    pub fn with(self, other: EarlyCounts) -> EarlyCounts {
        EarlyCounts { opened: self.opened + other.opened, failed: self.failed + other.failed }
    }
}

impl RecordLayer {
    /// Returns a layer for records with `content` bytes of content. It decrypts records within
    /// `window` bytes after the anchor.
    #[must_use]
    pub fn new(now: Time, content: usize, window: usize) -> RecordLayer {
        RecordLayer {
            content,
            held: Reassembler::new(window),
            opened: BTreeSet::new(),
            waiting: BTreeSet::new(),
            budget: TrialBudget::new(now),
            counts: EarlyCounts::default(),
        }
    }

    /// Returns the length of a record in bytes, including header and tag.
    #[must_use]
    pub fn size(&self) -> usize {
        HEADER + self.content + 1 + TAG
    }

    /// Returns the number of bytes of a record's content.
    pub(crate) fn content(&self) -> usize {
        self.content
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn counts(&self) -> EarlyCounts {
        self.counts
    }

    /// Processes bytes from a tap (a capture of the connection's segments). Appends to `plain` the
    /// data of the records that these bytes complete, in the order of their numbers.
    pub(crate) fn receive(
        &mut self,
        now: Time,
        anchor: Anchor,
        keys: &RecordKeys,
        (offset, bytes): (u64, &[u8]),
        plain: &mut Vec<u8>,
    ) {
        self.held.advance(anchor.offset);
        let new = self.held.insert(offset, bytes);
        let Some(numbers) = anchor.numbers(new.start, new.end, self.size()) else { return };
        for number in numbers {
            let Some(start) = anchor.start(number, self.size()) else { return };
            let range = start..start.saturating_add(self.size() as u64);
            if self.opened.contains(&number) || self.waiting.contains(&number) {
                self.held.remove(range);
            } else if self.held.covers(range.clone()) && self.budget.allows(now) {
                self.attempt(number, range, keys, plain);
            }
        }
    }

    /// Tries to decrypt one record. After a failure, another copy of the record is accepted later.
    fn attempt(&mut self, number: u64, range: Range<u64>, keys: &RecordKeys, plain: &mut Vec<u8>) {
        let before = plain.len();
        let body = range.start + HEADER as u64;
        let header = self.header();
        self.held.copy(range.start..body, plain);
        let is_expected = plain[before..] == header;
        plain.truncate(before);
        self.held.copy(body..range.end, plain);
        self.held.remove(range);
        let opened = match is_expected {
            true => keys.open(number, header, &mut plain[before..]),
            false => None,
        };
        match opened {
            Some(length) if self.is_data(&plain[before..before + length]) => {
                plain.truncate(before + self.content);
                self.opened.insert(number);
                self.counts.opened += 1;
            }
            Some(_) => {
                plain.truncate(before);
                self.waiting.insert(number);
            }
            None => {
                plain.truncate(before);
                self.budget.failed();
                self.counts.failed += 1;
            }
        }
    }

    /// Returns the header, which is the same for every record.
    fn header(&self) -> [u8; HEADER] {
        let [high, low] = ((self.size() - HEADER) as u16).to_be_bytes();
        [DATA, 3, 3, high, low]
    }

    /// Returns whether `inner`, a decrypted record, is data of the agreed length.
    fn is_data(&self, inner: &[u8]) -> bool {
        inner.len() == self.content + 1 && inner[self.content] == DATA
    }

    /// Returns true if record `number`, which is next in order, was decrypted before. The caller
    /// must call this once for each record.
    pub(crate) fn is_done(&mut self, number: u64) -> bool {
        self.waiting.remove(&number);
        self.opened.remove(&number)
    }

    /// Resets the record numbers after the peer's key change.
    pub(crate) fn rekeyed(&mut self) {
        self.opened.clear();
        self.waiting.clear();
        self.budget.renew();
    }
}
