//! A buffer that restores the order of units (such as packets) by their sequence numbers.

use std::collections::BTreeMap;

/// The result of inserting a unit (such as a packet).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// The unit (such as a packet) is stored until its turn.
    Taken,
    /// The unit (such as a packet) is already stored, was delivered or was given up.
    Duplicate,
    /// The buffer is full, and this unit (such as a packet) is not the next unit in order.
    Full,
}

/// A bounded buffer that returns units (such as packets) in the order of their sequence numbers.
#[derive(Debug)]
pub struct Reorder<T> {
    next: u64,
    waiting: BTreeMap<u64, T>,
    limit: usize,
}

impl<T> Reorder<T> {
    /// Returns an empty buffer for at most `limit` units (such as packets). The first unit has the
    /// sequence number `first`.
    pub fn new(first: u64, limit: usize) -> Reorder<T> {
        Reorder { next: first, waiting: BTreeMap::new(), limit }
    }

    /// Inserts the unit with the sequence number `number`. The next unit (such as a packet) in
    /// order is accepted even by a full buffer, so that the buffer can drain.
    pub fn insert(&mut self, number: u64, unit: T) -> Insertion {
        if self.has_seen(number) {
            return Insertion::Duplicate;
        }
        if self.waiting.len() >= self.limit && number != self.next {
            return Insertion::Full;
        }
        self.waiting.insert(number, unit);
        Insertion::Taken
    }

    /// Returns whether the unit with the sequence number `number` is stored, was delivered, or was
    /// given up as lost.
    pub fn has_seen(&self, number: u64) -> bool {
        number < self.next || self.holds(number)
    }

    /// Returns whether the unit with the sequence number `number` is stored.
    pub fn holds(&self, number: u64) -> bool {
        self.waiting.contains_key(&number)
    }

    /// Returns the next unit (such as a packet) in order, with its sequence number; `None` if this
    /// unit has not arrived.
    pub fn pop(&mut self) -> Option<(u64, T)> {
        let unit = self.waiting.remove(&self.next)?;
        self.next += 1;
        Some((self.next - 1, unit))
    }

    /// Counts the unit with the sequence number `number` as delivered, if it is the next in order
    /// and no unit (such as a packet) is stored. Returns whether the unit was counted.
    pub fn pass(&mut self, number: u64) -> bool {
        let passes = number == self.next && self.waiting.is_empty();
        self.next += u64::from(passes);
        passes
    }

    /// Counts the unit with the sequence number `number` as delivered, if it is the next in order.
    /// In contrast to [`Reorder::pass`], other units (such as packets) may be stored. Returns
    /// whether the unit was counted.
    pub fn advance(&mut self, number: u64) -> bool {
        let next = number == self.next;
        self.next += u64::from(next);
        next
    }

    /// Returns the stored unit (such as a packet) with the lowest sequence number; `None` if none
    /// is stored.
    pub fn first(&self) -> Option<&T> {
        self.waiting.values().next()
    }

    /// Gives up the missing units (such as packets) before the first stored unit as lost. That
    /// stored unit becomes the next in order. Returns the count of lost units.
    pub fn skip_gap(&mut self) -> u64 {
        let Some(&first) = self.waiting.keys().next() else { return 0 };
        let lost = first - self.next;
        self.next = first;
        lost
    }

    /// Returns the sequence number of the next unit (such as a packet) in order.
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Returns the number of stored units (such as packets).
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether no unit (such as a packet) is stored.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns whether stored units (such as packets) wait for a missing unit.
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
        assert_eq!([0, 1, 2].map(|number| reorder.has_seen(number)), [false, true, false]);
        reorder.insert(0, 'a');
        assert_eq!(reorder.pop(), Some((0, 'a')));
        assert_eq!([0, 1, 2].map(|number| reorder.has_seen(number)), [true, true, false]);
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
