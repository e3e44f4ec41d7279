//! The units of several paths, in order again.

use std::time::Duration;

use crate::{Insertion, PathId, Reorder, Time};

/// Merges numbered units that came by several paths.
///
/// Over reliable paths a missing unit is waited for without end (`patience` = `None`); over datagram paths it is given
/// up after `patience`, counted from the moment it was first seen to be missing.
#[derive(Debug)]
pub struct Merger<T> {
    reorder: Reorder<T>,
    patience: Option<Duration>,
    gap_since: Option<Time>,
    taken: Vec<u64>,
    lost: u64,
}

impl<T> Merger<T> {
    /// For `paths` paths; the first unit has number `first`, at most `limit` units wait.
    pub fn new(paths: usize, first: u64, limit: usize, patience: Option<Duration>) -> Merger<T> {
        Merger {
            reorder: Reorder::new(first, limit),
            patience,
            gap_since: None,
            taken: vec![0; paths],
            lost: 0,
        }
    }

    /// Takes unit `number`, which came by `path`. Then [`Merger::poll`] until it returns `None`.
    pub fn handle(&mut self, now: Time, path: PathId, number: u64, unit: T) -> Insertion {
        let insertion = self.reorder.insert(number, unit);
        if insertion == Insertion::Taken {
            self.taken[path.index()] += 1;
        }
        self.watch_gap(now);
        insertion
    }

    /// The next unit in order, with its number.
    pub fn poll(&mut self, now: Time) -> Option<(u64, T)> {
        if self.next_timeout().is_some_and(|due| now >= due) {
            self.lost += self.reorder.skip_gap();
            self.gap_since = None;
        }
        let unit = self.reorder.pop();
        if unit.is_some() {
            self.gap_since = None;
            self.watch_gap(now);
        }
        unit
    }

    /// When a missing unit will be given up.
    pub fn next_timeout(&self) -> Option<Time> {
        Some(self.gap_since? + self.patience?)
    }

    /// Units taken from each path, duplicates not counted.
    pub fn taken(&self) -> &[u64] {
        &self.taken
    }

    /// Units given up.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn watch_gap(&mut self, now: Time) {
        if !self.reorder.has_gap() {
            self.gap_since = None;
        } else if self.gap_since.is_none() {
            self.gap_since = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(merger: &mut Merger<u64>, now: Time) -> Vec<u64> {
        std::iter::from_fn(|| merger.poll(now)).map(|(number, _)| number).collect()
    }

    #[test]
    fn a_slow_path_delays_but_loses_nothing() {
        let mut merger = Merger::new(2, 0, 100, None);
        for number in [1, 3, 5] {
            merger.handle(Time::from_millis(1), PathId(0), number, number);
        }
        assert_eq!(drain(&mut merger, Time::from_secs(60)), []);
        for number in [0, 2, 4] {
            merger.handle(Time::from_secs(60), PathId(1), number, number);
        }
        assert_eq!(drain(&mut merger, Time::from_secs(60)), [0, 1, 2, 3, 4, 5]);
        assert_eq!(merger.taken(), [3, 3]);
        assert_eq!(merger.lost(), 0);
    }

    #[test]
    fn over_datagram_paths_a_missing_unit_is_given_up_after_the_patience() {
        let mut merger = Merger::new(1, 0, 100, Some(Duration::from_millis(30)));
        merger.handle(Time::from_millis(10), PathId(0), 1, 1);
        assert_eq!(merger.next_timeout(), Some(Time::from_millis(40)));
        assert_eq!(drain(&mut merger, Time::from_millis(39)), []);
        assert_eq!(drain(&mut merger, Time::from_millis(40)), [1]);
        assert_eq!(merger.lost(), 1);
        assert_eq!(merger.next_timeout(), None);
    }

    #[test]
    fn the_patience_for_a_second_gap_starts_when_the_first_is_closed() {
        let mut merger = Merger::new(1, 0, 100, Some(Duration::from_millis(30)));
        merger.handle(Time::from_millis(0), PathId(0), 1, 1);
        merger.handle(Time::from_millis(0), PathId(0), 3, 3);
        merger.handle(Time::from_millis(20), PathId(0), 0, 0);
        assert_eq!(drain(&mut merger, Time::from_millis(20)), [0, 1]);
        assert_eq!(merger.next_timeout(), Some(Time::from_millis(50)));
    }
}
