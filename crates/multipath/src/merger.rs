//! Merges the units (such as packets) of several paths into one ordered sequence.

use std::time::Duration;

use crate::{Insertion, PathId, Reorder, Time};

/// A merger, which restores the order of units (such as packets) that arrive on several paths, by
/// their sequence numbers.
///
/// Over reliable paths, `patience` is `None`: a unit waits for earlier, missing units without
/// limit. Over datagram paths, a unit waits for missing units at most for `patience` after its
/// arrival.
#[derive(Debug)]
pub struct Merger<T> {
    reorder: Reorder<(Time, T)>,
    limit: usize,
    patience: Option<Duration>,
    taken: Vec<u64>,
    lost: u64,
}

impl<T> Merger<T> {
    /// Returns a merger for `paths` paths. The first unit (such as a packet) has the sequence
    /// number `first`. At most `limit` units wait for earlier units.
    pub fn new(paths: usize, first: u64, limit: usize, patience: Option<Duration>) -> Merger<T> {
        let (reorder, taken) = (Reorder::new(first, limit), vec![0; paths]);
        Merger { reorder, limit, patience, taken, lost: 0 }
    }

    /// Changes the maximum time that units (such as packets) wait for missing ones; `None` for no
    /// limit.
    pub fn set_patience(&mut self, patience: Option<Duration>) {
        self.patience = patience;
    }

    /// Inserts the unit with the sequence number `number`, which arrived on `path`. The caller
    /// then calls [`Merger::poll`] until it returns `None`.
    pub fn handle(&mut self, now: Time, path: PathId, number: u64, unit: T) -> Insertion {
        let insertion = self.reorder.insert(number, (now, unit));
        if insertion == Insertion::Taken {
            self.taken[path.index()] += 1;
        }
        insertion
    }

    /// Counts the unit with the sequence number `number` as delivered, and returns true. If this
    /// unit (such as a packet) is not the next in order, or if other units wait, returns false and
    /// counts nothing. So a unit that arrives in order need not be stored.
    pub fn pass(&mut self, path: PathId, number: u64) -> bool {
        let passes = self.reorder.pass(number);
        self.taken[path.index()] += u64::from(passes);
        passes
    }

    /// Returns whether the unit with the sequence number `number` is stored, was delivered, or was
    /// given up as lost.
    pub fn has_seen(&self, number: u64) -> bool {
        self.reorder.has_seen(number)
    }

    /// Returns whether the unit with the sequence number `number` is stored until earlier units
    /// arrive.
    pub fn holds(&self, number: u64) -> bool {
        self.reorder.holds(number)
    }

    /// Returns the next unit (such as a packet) in order, with its sequence number; `None` if this
    /// unit has not arrived yet.
    pub fn poll(&mut self, now: Time) -> Option<(u64, T)> {
        if self.next_timeout().is_some_and(|due| now >= due) {
            self.skip_missing();
        }
        self.reorder.pop().map(|(number, (_, unit))| (number, unit))
    }

    /// Counts the missing units (such as packets) before the first waiting unit as lost, so that
    /// this unit can be delivered.
    pub fn skip_missing(&mut self) {
        self.lost += self.reorder.skip_gap();
    }

    /// Returns the time at which missing units (such as packets) will be given up as lost. Returns
    /// `None` if no unit waits, or if there is no limit.
    pub fn next_timeout(&self) -> Option<Time> {
        let (received, _) = self.reorder.first().filter(|_| self.reorder.has_gap())?;
        Some(*received + self.patience?)
    }

    /// Returns the sequence number of the next unit (such as a packet) in order.
    pub fn next_number(&self) -> u64 {
        self.reorder.next_number()
    }

    /// Returns whether the buffer is full: the maximum number of units (such as packets) wait for
    /// earlier units.
    pub fn is_full(&self) -> bool {
        self.reorder.len() >= self.limit
    }

    /// Returns the number of units (such as packets) received on each path, without duplicates.
    pub fn taken(&self) -> &[u64] {
        &self.taken
    }

    /// Returns the number of units (such as packets) that were given up as lost.
    pub fn lost(&self) -> u64 {
        self.lost
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
    fn a_unit_waits_no_longer_than_the_patience_however_many_gaps_are_before_it() {
        let mut merger = Merger::new(1, 0, 100, Some(Duration::from_millis(30)));
        merger.handle(Time::from_millis(0), PathId(0), 1, 1);
        merger.handle(Time::from_millis(10), PathId(0), 3, 3);
        merger.handle(Time::from_millis(20), PathId(0), 0, 0);
        assert_eq!(drain(&mut merger, Time::from_millis(20)), [0, 1]);
        assert_eq!(merger.next_timeout(), Some(Time::from_millis(40)));
        assert_eq!(drain(&mut merger, Time::from_millis(40)), [3]);
    }

    #[test]
    fn a_unit_whose_turn_it_is_passes_unless_others_wait() {
        let mut merger = Merger::new(1, 7, 1, Some(Duration::from_millis(30)));
        assert!(merger.pass(PathId(0), 7) && !merger.pass(PathId(0), 9));
        merger.handle(Time::ZERO, PathId(0), 9, 9);
        assert!(!merger.pass(PathId(0), 8), "9 is to follow it");
        assert!(merger.is_full());
        merger.skip_missing();
        assert_eq!((drain(&mut merger, Time::ZERO), merger.lost()), (vec![9], 1));
        assert_eq!(merger.taken(), [2]);
    }
}
