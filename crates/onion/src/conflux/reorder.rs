//! The queue for messages that overtook earlier ones, because they arrived on a faster circuit
//! (leg) of the set. They wait until the earlier messages have arrived.

use anabranch_multipath::{Insertion, PathId, Reorder};

use crate::wire::message::RelayCommand;

/// Minimum capacity of a reorder queue in bytes.
const LEAST: usize = 1 << 20;
/// Capacity of a reorder queue, in multiples of the largest window of a circuit so far.
const WINDOWS: usize = 4;
/// Memory in bytes that a queued message takes in addition to its data, for its tree node and
/// metadata.
const BESIDES: usize = 96;
/// Memory in bytes that a queued message takes if it fills a cell (498 bytes of data).
const CELL: usize = 498 + BESIDES;

/// A message that waits for earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldMessage {
    /// The leg (parallel circuit) on which the message arrived.
    pub leg: PathId,
    /// The message's command.
    pub command: RelayCommand,
    /// ID of the message's stream; 0 if the message belongs to no stream.
    pub stream: u16,
    /// The message's data.
    pub data: Vec<u8>,
}

impl HeldMessage {
    fn cost(&self) -> usize {
        self.data.len() + BESIDES
    }
}

/// Outcome of passing a message to the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// The message is next in order. The caller handles it, and then the messages that
    /// [`ReorderQueue::pop`] returns.
    Next,
    /// The message waits in the queue for earlier ones.
    Waits,
    /// A message with this sequence number was received before.
    Repeated,
    /// The message would have to wait, but the queue is full.
    Full,
}

/// Queue for received messages of a set of circuits that wait for earlier messages. Its size in
/// bytes is limited to four times the largest window of a circuit so far, but at least 1 MiB. C
/// tor's default limit is 2 GiB, and Arti's queue has no limit.
#[derive(Debug)]
pub struct ReorderQueue {
    waiting: Reorder<HeldMessage>,
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
    /// Returns an empty queue. It expects the message with the sequence number 1 first.
    #[must_use]
    pub fn new() -> ReorderQueue {
        ReorderQueue::default()
    }

    /// Records that a leg (parallel circuit) has a window of `cells` cells. The queue's limit
    /// grows with the largest window.
    pub fn saw_window(&mut self, cells: u64) {
        self.window = self.window.max(usize::try_from(cells).unwrap_or(usize::MAX));
    }

    /// Returns the maximum total size of waiting messages in bytes.
    #[must_use]
    pub fn budget(&self) -> usize {
        self.window.saturating_mul(WINDOWS * CELL).max(LEAST)
    }

    /// Returns the total size of waiting messages in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the largest total size in bytes that waiting messages have had so far.
    #[must_use]
    pub const fn most(&self) -> usize {
        self.most
    }

    /// Returns the sequence number of the next message to deliver.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.waiting.next_number()
    }

    /// Passes a received message with the sequence number `number` to the queue. The queue stores
    /// the message if it must wait.
    pub fn offer(&mut self, number: u64, message: impl FnOnce() -> HeldMessage) -> Offer {
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

    /// Removes and returns the next message in order; `None` if it is not in the queue.
    pub fn pop(&mut self) -> Option<HeldMessage> {
        let (_, held) = self.waiting.pop()?;
        self.bytes -= held.cost();
        Some(held)
    }

    /// Returns true if the streams should be paused (XOFF). The pause begins when the queue is
    /// half full, and ends when it is less than a quarter full.
    pub fn is_pressed(&mut self) -> bool {
        let budget = self.budget();
        self.pressed = self.bytes >= if self.pressed { budget / 4 } else { budget / 2 };
        self.pressed
    }

    /// Drops all waiting messages.
    pub fn clear(&mut self) {
        let ReorderQueue { window, most, .. } = *self;
        *self = ReorderQueue { window, most, ..ReorderQueue::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(length: usize) -> HeldMessage {
        HeldMessage {
            leg: PathId(0),
            command: RelayCommand::DATA,
            stream: 1,
            data: vec![7; length],
        }
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
