//! The texts of microdescriptors, stored in one file. While texts are missing, the file is written
//! only at intervals, because thousands of texts arrive in batches of 90. It is written again once
//! no text is missing.

use std::collections::{BTreeMap, BTreeSet};

/// Interval between writes while texts are missing, in milliseconds.
const INTERVAL: u64 = 10_000;

/// The known texts, and whether all of them are on disk.
#[derive(Debug, Default)]
pub(super) struct Texts {
    all: BTreeMap<[u8; 32], String>,
    is_changed: bool,
    /// Earliest time, in milliseconds, at which the texts are written to disk again while some are
    /// still missing.
    next: u64,
}

impl Texts {
    /// Adds `text`, whose digest is `digest`.
    pub(super) fn put(&mut self, digest: [u8; 32], text: String) {
        self.all.insert(digest, text);
        self.is_changed = true;
    }

    /// Returns whether to write the file at `now`, in milliseconds. `is_complete` is whether no
    /// text is missing.
    pub(super) fn are_due(&self, now: u64, is_complete: bool) -> bool {
        self.is_changed && (is_complete || now >= self.next)
    }

    /// Returns the milliseconds until the next write is due; `None` if everything is written.
    pub(super) fn wait(&self, now: u64) -> Option<u64> {
        self.is_changed.then(|| self.next.saturating_sub(now))
    }

    /// Returns the content to write to the file at `now`: all texts whose digests are in `named`.
    /// Other texts are dropped.
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
