//! Texts of microdescriptors, stored in one file. While texts are missing, the file is written
//! only at intervals, because thousands of texts arrive in batches of 90. The file is written
//! again when the last missing text has arrived.

use std::collections::{BTreeMap, BTreeSet};

/// Interval in milliseconds between writes of the microdescriptor file while microdescriptors are
/// missing.
const INTERVAL: u64 = 10_000;

/// The texts of the known microdescriptors, and whether all of them are on disk.
#[derive(Debug, Default)]
pub(super) struct Texts {
    all: BTreeMap<[u8; 32], String>,
    is_changed: bool,
    /// Earliest time, in milliseconds, of the next write to disk while microdescriptors are
    /// missing.
    next: u64,
}

impl Texts {
    /// Adds the microdescriptor `text`, whose digest is `digest`.
    pub(super) fn put(&mut self, digest: [u8; 32], text: String) {
        self.all.insert(digest, text);
        self.is_changed = true;
    }

    /// Returns whether to write the microdescriptor file at the time `now`, in milliseconds.
    /// `is_complete` is true if no microdescriptor is missing.
    pub(super) fn are_due(&self, now: u64, is_complete: bool) -> bool {
        self.is_changed && (is_complete || now >= self.next)
    }

    /// Returns the milliseconds until the next write to disk is due; `None` if everything is
    /// written.
    pub(super) fn wait(&self, now: u64) -> Option<u64> {
        self.is_changed.then(|| self.next.saturating_sub(now))
    }

    /// Returns the new content of the microdescriptor file: all texts whose digests are in
    /// `named`. Drops all other texts. `now` is the time in milliseconds.
    pub(super) fn write(&mut self, now: u64, named: &BTreeSet<[u8; 32]>) -> String {
        self.all.retain(|digest, _| named.contains(digest));
        (self.is_changed, self.next) = (false, now + INTERVAL);
        self.all.values().map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_in_batches_is_written_at_once_then_at_intervals_and_when_none_is_missing() {
        let mut texts = Texts::default();
        assert!(!texts.are_due(0, true) && texts.wait(0).is_none());
        texts.put([1; 32], "one\n".into());
        assert!(texts.are_due(5, false));
        let named = BTreeSet::from([[1; 32], [2; 32]]);
        assert_eq!(texts.write(5, &named), "one\n");
        texts.put([2; 32], "two\n".into());
        assert!(!texts.are_due(6, false));
        assert_eq!(texts.wait(5), Some(INTERVAL));
        assert!(texts.are_due(6, true) && texts.are_due(5 + INTERVAL, false));
        assert_eq!(texts.write(6, &BTreeSet::from([[2; 32]])), "two\n");
        assert!(!texts.are_due(7, true));
    }
}
