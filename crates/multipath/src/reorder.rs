//! Putting numbered units back in order.

use std::collections::BTreeMap;

/// The result of inserting a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// The unit is kept until its turn.
    Taken,
    /// The unit was there before, or its turn has passed.
    Duplicate,
    /// The buffer is full, and this unit is not the missing one.
    Full,
}

/// A bounded buffer that returns units in the order of their numbers.
#[derive(Debug)]
pub struct Reorder<T> {
    next: u64,
    waiting: BTreeMap<u64, T>,
    limit: usize,
}

impl<T> Reorder<T> {
    /// Returns a buffer that begins with number `first` and keeps at most `limit` units.
    pub fn new(first: u64, limit: usize) -> Reorder<T> {
        Reorder { next: first, waiting: BTreeMap::new(), limit }
    }

    /// Takes unit `number`. The missing unit itself is always taken, so that a full buffer can
    /// drain.
    pub fn insert(&mut self, number: u64, unit: T) -> Insertion {
        if number < self.next || self.waiting.contains_key(&number) {
            return Insertion::Duplicate;
        }
        if self.waiting.len() >= self.limit && number != self.next {
            return Insertion::Full;
        }
        self.waiting.insert(number, unit);
        Insertion::Taken
    }

    /// Returns whether unit `number` waits.
    pub fn holds(&self, number: u64) -> bool {
        self.waiting.contains_key(&number)
    }

    /// Returns the next unit in order, if it has arrived.
    pub fn pop(&mut self) -> Option<(u64, T)> {
        let unit = self.waiting.remove(&self.next)?;
        self.next += 1;
        Some((self.next - 1, unit))
    }

    /// Counts unit `number` as delivered at once, if it is the next one and none waits. Returns
    /// whether it did.
    pub fn pass(&mut self, number: u64) -> bool {
        let passes = number == self.next && self.waiting.is_empty();
        self.next += u64::from(passes);
        passes
    }

    /// Counts unit `number` as delivered at once, if it is the next one. Others may wait: they are
    /// popped after it. Returns whether it did.
    pub fn advance(&mut self, number: u64) -> bool {
        let next = number == self.next;
        self.next += u64::from(next);
        next
    }

    /// Returns the first waiting unit.
    pub fn first(&self) -> Option<&T> {
        self.waiting.values().next()
    }

    /// Gives up the missing units, and continues with the first waiting one. Returns the number of
    /// units given up.
    pub fn skip_gap(&mut self) -> u64 {
        let Some(&first) = self.waiting.keys().next() else { return 0 };
        let lost = first - self.next;
        self.next = first;
        lost
    }

    /// Returns the number of the next unit in order.
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Returns the number of waiting units.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns whether units wait for a missing one.
    pub fn has_gap(&self) -> bool {
        self.waiting.keys().next().is_some_and(|&first| first > self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::stream;
    use rand::seq::SliceRandom;

    #[test]
    fn any_order_comes_out_in_order() {
        let mut numbers: Vec<u64> = (5..105).collect();
        numbers.shuffle(&mut stream(1, 0, "shuffle"));
        let mut reorder = Reorder::new(5, 100);
        let mut out = Vec::new();
        for number in numbers {
            assert_eq!(reorder.insert(number, number), Insertion::Taken);
            out.extend(std::iter::from_fn(|| reorder.pop()).map(|(_, unit)| unit));
        }
        assert_eq!(out, (5..105).collect::<Vec<_>>());
    }

    #[test]
    fn duplicates_before_and_after_their_turn_are_refused() {
        let mut reorder = Reorder::new(0, 10);
        assert_eq!(reorder.insert(1, 'b'), Insertion::Taken);
        assert_eq!(reorder.insert(1, 'b'), Insertion::Duplicate);
        reorder.insert(0, 'a');
        assert_eq!(reorder.pop(), Some((0, 'a')));
        assert_eq!(reorder.insert(0, 'a'), Insertion::Duplicate);
    }

    #[test]
    fn a_full_buffer_still_takes_the_missing_unit() {
        let mut reorder = Reorder::new(0, 2);
        reorder.insert(1, ());
        reorder.insert(2, ());
        assert_eq!(reorder.insert(3, ()), Insertion::Full);
        assert_eq!(reorder.insert(0, ()), Insertion::Taken);
        assert_eq!(std::iter::from_fn(|| reorder.pop()).count(), 3);
    }

    #[test]
    fn the_missing_unit_may_be_handed_up_without_being_kept() {
        let mut reorder = Reorder::new(1, 9);
        reorder.insert(2, 'b');
        assert!(!reorder.advance(2) && reorder.advance(1) && !reorder.advance(1));
        assert_eq!((reorder.pop(), reorder.pop()), (Some((2, 'b')), None));
    }

    #[test]
    fn a_gap_that_is_given_up_is_counted() {
        let mut reorder = Reorder::new(0, 10);
        reorder.insert(4, 'e');
        assert!(reorder.has_gap());
        assert_eq!(reorder.skip_gap(), 4);
        assert_eq!(reorder.pop(), Some((4, 'e')));
    }
}
