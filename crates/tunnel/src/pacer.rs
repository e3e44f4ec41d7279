//! Datagrams that waited for others leave as they came, not all at once.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_multipath::Time;

/// Those that are due within this time leave together.
const TOGETHER: Duration = Duration::from_millis(1);
/// What was late is made up for by this part of the time.
const FASTER: u32 = 16;
/// Nothing waits longer here.
const MOST: Duration = Duration::from_millis(250);

/// A queue in order.
pub(crate) struct Pacer<T> {
    queue: VecDeque<(Time, T)>,
    /// When the last one is due, and its steady time.
    last: Option<(Time, Time)>,
}

impl<T> Default for Pacer<T> {
    fn default() -> Pacer<T> {
        Pacer { queue: VecDeque::new(), last: None }
    }
}

impl<T> Pacer<T> {
    /// One that leaves before all others.
    pub(crate) fn push_first(&mut self, now: Time, one: T) {
        self.queue.push_front((now, one));
    }

    /// One that leaves at `steady` or later: behind all others, and not closer to the one before
    /// than their steady times are, or nearly.
    pub(crate) fn push(&mut self, now: Time, steady: Time, one: T) {
        let due = self.last.map_or(now, |(last, before)| {
            let apart = steady.since(before);
            last + (apart - apart / FASTER)
        });
        let due = due.max(steady).clamp(now, now + MOST);
        self.last = Some((due, steady));
        self.queue.push_back((due, one));
    }

    /// The next one that is due.
    pub(crate) fn pop(&mut self, now: Time) -> Option<T> {
        let due = self.queue.front()?.0;
        if due > now + TOGETHER {
            return None;
        }
        Some(self.queue.pop_front()?.1)
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.queue.front().map(|one| one.0)
    }
}
