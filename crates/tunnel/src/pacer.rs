//! A queue that releases datagrams with the spacing with which they arrived. Without it, datagrams
//! that have waited for a missing one would leave all at once.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_multipath::Time;

use crate::delays::LONGEST;

/// Maximum time before a datagram's due time at which it may leave, together with earlier
/// datagrams.
const TOGETHER: Duration = Duration::from_millis(1);
/// Divisor of the gaps between datagrams. Each gap is shortened by a sixteenth, so that a queue
/// that is late catches up.
const FASTER: u32 = 16;
/// Maximum number of queued datagrams. Beyond this number, the first datagrams leave before they
/// are due, so that memory stays bounded.
const MOST: usize = 8_192;

/// A queue of datagrams, in the order in which they leave.
pub(crate) struct Pacer<T> {
    queue: VecDeque<(Time, T)>,
    /// The last datagram's due time, its argument `steady` of [`Pacer::push`], and the sender's
    /// timestamp; `None` before the first datagram.
    last: Option<(Time, Time, u32)>,
}

impl<T> Default for Pacer<T> {
    fn default() -> Pacer<T> {
        Pacer { queue: VecDeque::new(), last: None }
    }
}

impl<T> Pacer<T> {
    /// Adds a datagram that leaves before all others.
    pub(crate) fn push_first(&mut self, now: Time, one: T) {
        self.queue.push_front((now, one));
    }

    /// Adds a datagram that leaves after all others. `steady` is the time at which the datagram
    /// would have arrived on the slowest path. `stamp` is the sender's timestamp, in microseconds.
    /// The datagram is not due before `steady`, unless `steady` is more than [`LONGEST`] after
    /// `now`. It is due within [`LONGEST`] in any case.
    ///
    /// The minimum gap to the previous datagram is computed from two differences: between the
    /// values of `steady`, and between the timestamps of both datagrams. The gap is the smaller
    /// difference, less a sixteenth. If several paths are used at once, the timestamps limit the
    /// gap: gaps between the datagrams of one path are larger than gaps in the whole sequence.
    pub(crate) fn push(&mut self, now: Time, (steady, stamp): (Time, u32), one: T) {
        let due = self.last.map_or(now, |(last, before, sent)| {
            let sent = Duration::from_micros(stamp.wrapping_sub(sent).into());
            let apart = steady.since(before).min(sent);
            last + (apart - apart / FASTER)
        });
        let due = due.max(steady).clamp(now, now + LONGEST);
        self.last = Some((due, steady, stamp));
        self.queue.push_back((due, one));
    }

    /// Removes and returns the next datagram that is due at `now`; `None` if none is due.
    pub(crate) fn pop(&mut self, now: Time) -> Option<T> {
        let due = self.queue.front()?.0;
        if due > now + TOGETHER && self.queue.len() <= MOST {
            return None;
        }
        Some(self.queue.pop_front()?.1)
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.queue.front().map(|one| one.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const START: Time = Time::from_secs(1);

    /// Returns each datagram with the time at which it leaves.
    fn leaves(pacer: &mut Pacer<u32>) -> Vec<(u32, Duration)> {
        let mut out = Vec::new();
        while let Some(due) = pacer.next_timeout() {
            out.extend(std::iter::from_fn(|| pacer.pop(due)).map(|one| (one, due.since(START))));
        }
        out
    }

    #[test]
    fn what_is_late_makes_up_for_a_sixteenth_of_the_time() {
        let mut pacer = Pacer::default();
        // The first datagram arrived 32 ms late. The later datagrams arrived every 16 ms.
        pacer.push(START + MS * 32, (START, 0), 0);
        for one in 1..5 {
            pacer.push(START + MS * 32, (START + MS * 16 * one, 16_000 * one), one);
        }
        let all = leaves(&mut pacer);
        assert_eq!(all, [(0, MS * 32), (1, MS * 47), (2, MS * 62), (3, MS * 77), (4, MS * 92)]);
    }

    #[test]
    fn nothing_leaves_before_its_time_or_waits_for_long() {
        let mut pacer = Pacer::default();
        pacer.push(START, (START + MS * 40, 0), 0);
        assert_eq!(pacer.pop(START + MS * 38), None);
        assert_eq!(pacer.pop(START + MS * 39), Some(0), "within a millisecond they leave together");
        pacer.push(START + MS * 40, (START + MS * 9_000, 9_000_000), 1);
        assert_eq!(pacer.next_timeout(), Some(START + MS * 40 + LONGEST));
        pacer.push_first(START + MS * 41, 2);
        assert_eq!(pacer.pop(START + MS * 41), Some(2), "late ones go before all others");
    }

    #[test]
    fn memory_is_bounded() {
        let mut pacer = Pacer::default();
        for one in 0..MOST as u32 + 2 {
            pacer.push(START, (START + MS * 100, one), one);
        }
        assert_eq!([(); 3].map(|()| pacer.pop(START)), [Some(0), Some(1), None]);
    }
}
