//! Messages that wait for others: those that came by a quicker leg.

use anabranch_multipath::{Insertion, PathId, Reorder};

use crate::wire::message::RelayCommand;

/// Bytes that a queue may always hold.
const LEAST: usize = 1 << 20;
/// How many of the largest window seen it may hold.
const WINDOWS: usize = 4;
/// Bytes that a message costs besides its data: its place in the tree, and what it is.
const BESIDES: usize = 96;
/// Bytes of a cell's message.
const CELL: usize = 498 + BESIDES;

/// A message that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The leg that it came by.
    pub leg: PathId,
    /// What it is.
    pub command: RelayCommand,
    /// The stream that it is of.
    pub stream: u16,
    /// Its data.
    pub data: Vec<u8>,
}

impl Held {
    fn cost(&self) -> usize {
        self.data.len() + BESIDES
    }
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It is the next: it is the caller's, and [`ReorderQueue::pop`] has those that follow it.
    Next,
    /// It must wait.
    Waits,
    /// It was there before.
    Repeated,
    /// It would have to wait, and too much does already.
    Full,
}

/// The queue of a set, bounded in bytes: four times the largest window seen, at least 1 MiB. (C
/// tor's default is 2 GiB, Arti's is not bounded.)
#[derive(Debug)]
pub struct ReorderQueue {
    waiting: Reorder<Held>,
    bytes: usize,
    most: usize,
    window: usize,
    pressed: bool,
}

impl Default for ReorderQueue {
    fn default() -> ReorderQueue {
        let waiting = Reorder::new(1, usize::MAX);
        ReorderQueue { waiting, bytes: 0, most: 0, window: 0, pressed: false }
    }
}

impl ReorderQueue {
    /// Empty; the first message has number 1.
    #[must_use]
    pub fn new() -> ReorderQueue {
        ReorderQueue::default()
    }

    /// A leg's window was so many cells.
    pub fn saw_window(&mut self, cells: u64) {
        self.window = self.window.max(usize::try_from(cells).unwrap_or(usize::MAX));
    }

    /// Bytes that may wait.
    #[must_use]
    pub fn budget(&self) -> usize {
        self.window.saturating_mul(WINDOWS * CELL).max(LEAST)
    }

    /// Bytes that wait.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The most bytes that ever waited.
    #[must_use]
    pub const fn most(&self) -> usize {
        self.most
    }

    /// The number of the message that is to be delivered next.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.waiting.next_number()
    }

    /// A message of this number came.
    pub fn offer(&mut self, number: u64, message: impl FnOnce() -> Held) -> Offer {
        if self.waiting.advance(number) {
            return Offer::Next;
        }
        let held = message();
        let cost = held.cost();
        let full = self.bytes.saturating_add(cost) > self.budget();
        if full && number > self.waiting.next_number() {
            return Offer::Full;
        }
        match self.waiting.insert(number, held) {
            Insertion::Taken => {
                self.bytes += cost;
                self.most = self.most.max(self.bytes);
                Offer::Waits
            }
            Insertion::Duplicate => Offer::Repeated,
            Insertion::Full => Offer::Full,
        }
    }

    /// The next message, if it waits.
    pub fn pop(&mut self) -> Option<Held> {
        let (_, held) = self.waiting.pop()?;
        self.bytes -= held.cost();
        Some(held)
    }

    /// Whether the streams should be told to rest (XOFF): from half of the budget on, until a
    /// quarter is left.
    pub fn is_pressed(&mut self) -> bool {
        let budget = self.budget();
        self.pressed = self.bytes >= if self.pressed { budget / 4 } else { budget / 2 };
        self.pressed
    }

    /// Forgets all that waits.
    pub fn clear(&mut self) {
        let ReorderQueue { window, most, .. } = *self;
        *self = ReorderQueue { window, most, ..ReorderQueue::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(length: usize) -> Held {
        Held { leg: PathId(0), command: RelayCommand::DATA, stream: 1, data: vec![7; length] }
    }

    fn offer(queue: &mut ReorderQueue, number: u64) -> Offer {
        queue.offer(number, || held(498))
    }

    #[test]
    fn what_fills_a_gap_is_handed_on_at_once_and_then_what_waited() {
        let mut queue = ReorderQueue::new();
        assert_eq!(offer(&mut queue, 2), Offer::Waits);
        assert_eq!(offer(&mut queue, 3), Offer::Waits);
        assert_eq!(queue.pop(), None);
        assert_eq!(offer(&mut queue, 1), Offer::Next);
        assert_eq!(std::iter::from_fn(|| queue.pop()).count(), 2);
        assert_eq!((queue.next_number(), queue.bytes(), queue.most()), (4, 0, 2 * 594));
        assert_eq!(offer(&mut queue, 3), Offer::Repeated);
        assert_eq!(offer(&mut queue, 4), Offer::Next);
    }

    #[test]
    fn a_full_queue_takes_what_is_missing_and_nothing_else() {
        let mut queue = ReorderQueue::new();
        let full = (2..).find(|number| offer(&mut queue, *number) == Offer::Full).unwrap();
        assert!(queue.bytes() <= 1 << 20 && queue.bytes() > (1 << 20) - 594);
        assert_eq!(offer(&mut queue, 2), Offer::Full, "nor what was there before");
        assert_eq!(offer(&mut queue, 1), Offer::Next);
        assert_eq!(std::iter::from_fn(|| queue.pop()).count() as u64, full - 2);
        assert_eq!(queue.bytes(), 0);
    }

    #[test]
    fn the_budget_is_four_of_the_largest_window_and_at_least_a_mebibyte() {
        let mut queue = ReorderQueue::new();
        for (window, budget) in [(124, 1 << 20), (1_000, 4_000 * 594), (500, 4_000 * 594)] {
            queue.saw_window(window);
            assert_eq!(queue.budget(), budget);
        }
        queue.saw_window(u64::MAX);
        assert_eq!(queue.budget(), usize::MAX);
    }

    #[test]
    fn streams_rest_from_half_of_the_budget_on_until_a_quarter_is_left() {
        let mut queue = ReorderQueue::new();
        let mut pressed = None;
        for number in 2..1_500 {
            offer(&mut queue, number);
            if queue.is_pressed() && pressed.is_none() {
                pressed = Some(queue.bytes());
            }
        }
        assert!(pressed.is_some_and(|bytes| (bytes - (1 << 19)) < 594));
        offer(&mut queue, 1);
        let mut released = None;
        while queue.pop().is_some() {
            if !queue.is_pressed() && released.is_none() {
                released = Some(queue.bytes());
            }
        }
        assert!(released.is_some_and(|bytes| (1 << 18) - bytes <= 594));
    }
}
