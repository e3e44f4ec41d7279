//! A queue of future events.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use anabranch_multipath::Time;

/// Identifier of a host, counted from 0.
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
///
/// Most events in the queue are timers that are seconds away. A single heap would therefore be
/// large, and each of its levels would cost a cache miss. Instead, time is divided into slots of
/// about a millisecond, and a heap has only the events of the present slot. Events of the
/// following slots wait unordered in a ring of slots. A second heap has the events after the last
/// slot of the ring.
#[derive(Debug)]
pub struct EventQueue<E> {
    /// Events of the time slot `current` (an interval of about a millisecond) and of earlier
    /// slots.
    heap: BinaryHeap<Entry<E>>,
    current: u64,
    /// Events of the [`RING`] slots from `current` on. A slot is at the index that is its number
    /// modulo [`RING`]. The slot `current` itself is empty.
    ring: Vec<Vec<Entry<E>>>,
    /// Number of events in `ring`.
    in_ring: usize,
    /// Events after the last time slot of `ring`.
    far: BinaryHeap<Entry<E>>,
    /// Empty vectors, to be reused as time slots of `ring`. The last one was used most recently.
    spare: Vec<Vec<Entry<E>>>,
    /// Number of events added so far.
    pushed: u64,
}

/// Binary logarithm of the length of a time slot in nanoseconds. A slot lasts 1.05 ms.
const SLOT_BITS: u32 = 20;
/// Number of time slots in the ring. Together they last 4.3 s.
const RING: u64 = 4_096;

/// Number of bits of an event's counter in the key of its entry.
const COUNTER_BITS: u32 = 40;
/// Number of bits of a host's number in the key of an entry.
const HOST_BITS: u32 = 24;

/// An event in the heap. Its key has the time in the upper 64 bits, then the host, then the number
/// of events added before. Entries are ordered by descending key, so that the largest entry of a
/// [`BinaryHeap`] is the first event. The key is one integer, because a comparison of two integers
/// has no branches, but a comparison of three fields does. Most of the queue's CPU time is
/// comparisons.
#[derive(Debug)]
struct Entry<E> {
    key: u128,
    event: E,
}

impl<E> Entry<E> {
    fn new(time: Time, host: HostId, counter: u64, event: E) -> Entry<E> {
        assert!(host.0 >> HOST_BITS == 0, "host {} is above 2^{HOST_BITS}", host.0);
        assert!(counter >> COUNTER_BITS == 0, "more than 2^{COUNTER_BITS} events");
        let low = u64::from(host.0) << COUNTER_BITS | counter;
        Entry { key: u128::from(time.nanos()) << 64 | u128::from(low), event }
    }

    /// Returns the number of the slot (interval of about a millisecond) that contains the event.
    fn slot(&self) -> u64 {
        (self.key >> (64 + SLOT_BITS)) as u64
    }

    fn time(&self) -> Time {
        Time::from_nanos((self.key >> 64) as u64)
    }

    fn host(&self) -> HostId {
        HostId((self.key as u64 >> COUNTER_BITS) as u32)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Entry<E>) -> bool {
        self.key == other.key
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Entry<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }

    fn lt(&self, other: &Entry<E>) -> bool {
        self.key > other.key
    }

    fn le(&self, other: &Entry<E>) -> bool {
        self.key >= other.key
    }

    fn gt(&self, other: &Entry<E>) -> bool {
        self.key < other.key
    }

    fn ge(&self, other: &Entry<E>) -> bool {
        self.key <= other.key
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Entry<E>) -> Ordering {
        other.key.cmp(&self.key)
    }
}

impl<E> Default for EventQueue<E> {
    fn default() -> EventQueue<E> {
        EventQueue {
            heap: BinaryHeap::new(),
            current: 0,
            ring: (0..RING).map(|_| Vec::new()).collect(),
            in_ring: 0,
            far: BinaryHeap::new(),
            spare: Vec::new(),
            pushed: 0,
        }
    }
}

impl<E> EventQueue<E> {
    /// Adds an event of `host` at `time`.
    ///
    /// # Panics
    /// If the host's number has more than 24 bits, or after 2^40 events.
    pub fn push(&mut self, time: Time, host: HostId, event: E) {
        let entry = Entry::new(time, host, self.pushed, event);
        self.pushed += 1;
        self.place(entry);
    }

    fn place(&mut self, entry: Entry<E>) {
        let slot = entry.slot();
        if slot <= self.current {
            self.heap.push(entry);
        } else if slot - self.current < RING {
            let events = &mut self.ring[(slot % RING) as usize];
            if events.capacity() == 0 {
                *events = self.spare.pop().unwrap_or_default();
            }
            events.push(entry);
            self.in_ring += 1;
        } else {
            self.far.push(entry);
        }
    }

    /// Moves `current` to the time slot of the next event, and the events of that slot to `heap`.
    /// Does nothing if `heap` already has events.
    fn advance(&mut self) {
        while self.heap.is_empty() {
            self.current = match (self.in_ring, self.far.peek()) {
                (0, None) => return,
                (0, Some(first)) => first.slot(),
                _ => self.current + 1,
            };
            let events = std::mem::take(&mut self.ring[(self.current % RING) as usize]);
            if events.capacity() > 0 {
                self.in_ring -= events.len();
                let used = std::mem::replace(&mut self.heap, BinaryHeap::from(events));
                self.spare.push(used.into_vec());
            }
            while self.far.peek().is_some_and(|first| first.slot() - self.current < RING) {
                self.far.pop().into_iter().for_each(|entry| self.place(entry));
            }
        }
    }

    /// Removes and returns the first event; `None` if there is no event at or before `until`.
    pub fn pop(&mut self, until: Time) -> Option<(Time, HostId, E)> {
        if self.next_time()? > until {
            return None;
        }
        self.heap.pop().map(|entry| (entry.time(), entry.host(), entry.event))
    }

    /// Returns the time of the first event; `None` if there is none.
    pub fn next_time(&mut self) -> Option<Time> {
        self.advance();
        self.heap.peek().map(Entry::time)
    }

    /// Returns the number of queued events.
    pub fn len(&self) -> usize {
        self.heap.len() + self.in_ring + self.far.len()
    }

    /// Returns whether no event is queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use anabranch_multipath::seed;
    use rand::RngExt;

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

    /// Adds and removes events at random, and compares the queue with a sorted set.
    #[test]
    fn events_of_any_distance_are_in_order() {
        let mut dice = seed::stream(5, 0, "events");
        let (mut queue, mut set) = (EventQueue::default(), BTreeSet::new());
        let mut now = 0;
        for number in 0..60_000u32 {
            // From nanoseconds to days, and sometimes the present instant.
            let bits = [48, 36].map(|most| dice.random_range(0..most));
            let ahead = dice.random_range(0..=1u64 << bits[0]);
            let (time, host) = (now + ahead - 1.min(ahead), dice.random_range(0..4));
            queue.push(Time::from_nanos(time), HostId(host), number);
            set.insert((time, host, number));
            let until = now + dice.random_range(0..=1u64 << bits[1]);
            for _ in 0..dice.random_range(0..3) {
                let wanted = set.first().copied().filter(|first| first.0 <= until);
                let popped = queue.pop(Time::from_nanos(until));
                assert_eq!(popped.map(|(time, host, it)| (time.nanos(), host.0, it)), wanted);
                let Some(first) = wanted else { break };
                set.remove(&first);
                now = first.0;
            }
            assert_eq!((queue.len(), queue.is_empty()), (set.len(), set.is_empty()));
        }
        let left: Vec<_> = std::iter::from_fn(|| queue.pop(Time::MAX)).collect();
        assert_eq!(left.len(), set.len());
        let wanted =
            set.into_iter().map(|(time, host, it)| (Time::from_nanos(time), HostId(host), it));
        assert!(left.into_iter().eq(wanted));
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
