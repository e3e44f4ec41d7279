//! A queue of future events.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use anabranch_multipath::Time;

/// Number of a host, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

impl HostId {
    /// Returns the host's number as an index.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A queue of future events, ordered by time, then by host, then by the order in which they were
/// added for that host. The order of events at different hosts therefore does not depend on which
/// event was added first.
#[derive(Debug)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    /// Number of events added so far, by host.
    pushed: Vec<u64>,
}

#[derive(Debug)]
struct Entry<E> {
    time: Time,
    host: HostId,
    counter: u64,
    event: E,
}

impl<E> Entry<E> {
    fn key(&self) -> (Time, HostId, u64) {
        (self.time, self.host, self.counter)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Entry<E>) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Entry<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Entry<E>) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl<E> Default for EventQueue<E> {
    fn default() -> EventQueue<E> {
        EventQueue { heap: BinaryHeap::new(), pushed: Vec::new() }
    }
}

impl<E> EventQueue<E> {
    /// Adds an event of `host` at `time`.
    pub fn push(&mut self, time: Time, host: HostId, event: E) {
        if self.pushed.len() <= host.index() {
            self.pushed.resize(host.index() + 1, 0);
        }
        let pushed = &mut self.pushed[host.index()];
        let entry = Entry { time, host, counter: *pushed, event };
        *pushed += 1;
        self.heap.push(Reverse(entry));
    }

    /// Removes and returns the first event; `None` if there is no event at or before `until`.
    pub fn pop(&mut self, until: Time) -> Option<(Time, HostId, E)> {
        if self.next_time()? > until {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| (entry.time, entry.host, entry.event))
    }

    /// Returns the time of the first event; `None` if there is none.
    pub fn next_time(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(entry)| entry.time)
    }

    /// Returns the number of queued events.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns whether no event is queued.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(pushes: &[(u64, u32, &'static str)]) -> Vec<&'static str> {
        let mut queue = EventQueue::default();
        for &(time, host, event) in pushes {
            queue.push(Time::from_nanos(time), HostId(host), event);
        }
        std::iter::from_fn(|| queue.pop(Time::MAX)).map(|(.., event)| event).collect()
    }

    #[test]
    fn ties_go_to_the_lower_host_then_to_the_earlier_push() {
        let wanted = ["early", "a", "b", "c", "late"];
        let pushes = [(9, 0, "late"), (5, 2, "c"), (5, 1, "a"), (5, 1, "b"), (4, 7, "early")];
        assert_eq!(order(&pushes), wanted);
        // The order does not depend on which host pushes first.
        let pushes = [(5, 1, "a"), (4, 7, "early"), (5, 1, "b"), (9, 0, "late"), (5, 2, "c")];
        assert_eq!(order(&pushes), wanted);
    }

    #[test]
    fn nothing_is_popped_before_its_time() {
        let mut queue = EventQueue::default();
        queue.push(Time::from_nanos(5), HostId(0), ());
        assert_eq!(queue.pop(Time::from_nanos(4)), None);
        assert_eq!((queue.len(), queue.next_time()), (1, Some(Time::from_nanos(5))));
        assert_eq!(queue.pop(Time::from_nanos(5)), Some((Time::from_nanos(5), HostId(0), ())));
        assert!(queue.is_empty());
    }
}
