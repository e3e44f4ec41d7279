//! The queue of lossy units (cells that may be lost) that wait for a link's congestion window.
//! Lanes (one for each circuit) take turns, and each lane has its own CoDel. This is FQ-CoDel (RFC
//! 8290) without the quantum, because all units have the same length.

use std::collections::{BTreeMap, VecDeque};

use anabranch_multipath::Time;
use anabranch_multipath::codel::{Codel, Law, Queue};
use bytes::Bytes;

/// Maximum number of queued units (cells), which limits bursts. CoDel keeps a permanent queue far
/// shorter.
pub(super) const MOST_WAITING: usize = 256;

/// Queued units (cells) of one lane (the order domain of one circuit).
#[derive(Debug, Default)]
struct Lane {
    units: VecDeque<(Time, Bytes)>,
    law: Law,
}

/// The queue of lossy units (cells that may be lost) of one link.
#[derive(Debug, Default)]
pub(super) struct FairQueue {
    lanes: BTreeMap<u32, Lane>,
    /// Lanes that have queued units, in the order of their turns.
    turns: VecDeque<u32>,
    /// Number of queued units (cells).
    len: usize,
    /// Number of units (cells) dropped so far.
    pub(super) dropped: u64,
}

impl FairQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Queues a unit (a cell), which begins with the number of its lane (4 bytes). If the queue is
    /// full, drops the oldest unit of the lane with the most queued units (RFC 8290, section
    /// 4.1.1).
    pub(super) fn push(&mut self, now: Time, unit: Bytes) {
        if self.len >= MOST_WAITING {
            self.drop_of_longest();
        }
        let number = unit.first_chunk().map_or(0, |number| u32::from_be_bytes(*number));
        let lane = self.lanes.entry(number).or_default();
        if lane.units.is_empty() {
            self.turns.push_back(number);
        }
        lane.units.push_back((now, unit));
        self.len += 1;
    }

    fn drop_of_longest(&mut self) {
        let longest = self.lanes.iter_mut().max_by_key(|(_, lane)| lane.units.len());
        let Some((&number, lane)) = longest else { return };
        lane.units.pop_front();
        (self.len, self.dropped) = (self.len - 1, self.dropped + 1);
        if lane.units.is_empty() {
            self.lanes.remove(&number);
            self.turns.retain(|turn| *turn != number);
        }
    }

    /// Removes and returns the next unit (cell); `None` if the queue is empty. CoDel may first
    /// drop units of the same lane. Call this only when the unit can be sent. `together` is the
    /// number of units that fit into a datagram. CoDel drops nothing while at most this number of
    /// units is queued.
    pub(super) fn pop(&mut self, now: Time, together: usize) -> Option<Bytes> {
        let number = self.turns.pop_front()?;
        let lane = self.lanes.get_mut(&number)?;
        let length = lane.units.front().map_or(0, |(_, unit)| unit.len());
        let units = lane.units.iter().map(|(received, unit)| (*received, unit.len()));
        let queue = Queue { units, bytes: lane.units.len() * length, max_unit: together * length };
        let drops = lane.law.drops(&Codel::default(), now, queue).min(lane.units.len() - 1);
        lane.units.drain(..drops);
        let unit = lane.units.pop_front().map(|(_, unit)| unit);
        (self.len, self.dropped) = (self.len - drops - 1, self.dropped + drops as u64);
        match lane.units.is_empty() {
            true => drop(self.lanes.remove(&number)),
            false => self.turns.push_back(number),
        }
        unit
    }

    /// Drops all queued units (cells).
    pub(super) fn clear(&mut self) {
        self.dropped += self.len as u64;
        (self.len, self.lanes, self.turns) = <_>::default();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn unit(lane: u32, number: u8) -> Bytes {
        Bytes::from([&lane.to_be_bytes()[..], &[number]].concat())
    }

    fn popped(queue: &mut FairQueue, now: Time) -> Vec<(u32, u8)> {
        let pop = || queue.pop(now, 2).map(|unit| (u32::from(unit[3]), unit[4]));
        std::iter::from_fn(pop).collect()
    }

    #[test]
    fn lanes_take_turns_whatever_waits_of_each() {
        let (mut queue, now) = (FairQueue::default(), Time::from_secs(1));
        (0..4).for_each(|number| queue.push(now, unit(1, number)));
        queue.push(now, unit(2, 9));
        queue.push(now, unit(3, 8));
        let wanted = [(1, 0), (2, 9), (3, 8), (1, 1), (1, 2), (1, 3)];
        assert_eq!(popped(&mut queue, now), wanted);
        assert!(queue.is_empty() && queue.dropped == 0);
    }

    #[test]
    fn a_full_queue_drops_the_oldest_of_the_longest_lane() {
        let (mut queue, now) = (FairQueue::default(), Time::from_secs(1));
        queue.push(now, unit(2, 7));
        (0..=255).for_each(|number| queue.push(now, unit(1, number)));
        assert_eq!(queue.dropped, 1);
        let popped = popped(&mut queue, now);
        assert_eq!(popped.len(), MOST_WAITING);
        assert_eq!(popped[..3], [(2, 7), (1, 1), (1, 2)]);
    }

    #[test]
    fn only_a_lane_that_waits_too_long_loses_units() {
        let (mut queue, mut now) = (FairQueue::default(), Time::from_secs(1));
        let mut of_quiet = 0;
        for round in 0..2_000 {
            // One lane sends twice as many units as the queue serves. The other lane sends one now
            // and then.
            queue.push(now, unit(1, 0));
            queue.push(now, unit(1, 1));
            if round % 20 == 0 {
                queue.push(now, unit(2, 0));
                of_quiet += usize::from(queue.pop(now, 2).is_some());
            }
            drop(queue.pop(now, 2));
            now += Duration::from_millis(1);
        }
        assert!(queue.dropped > 200, "{}", queue.dropped);
        assert_eq!(of_quiet, 100);
        let left = popped(&mut queue, now).into_iter().filter(|(lane, _)| *lane == 2).count();
        assert!(left <= 1, "the quiet lane has its turns: {left} wait");
    }

    #[test]
    fn what_is_cleared_counts_as_dropped() {
        let (mut queue, now) = (FairQueue::default(), Time::from_secs(1));
        (0..5).for_each(|number| queue.push(now, unit(number, 0)));
        queue.clear();
        assert!(queue.is_empty() && queue.pop(now, 2).is_none());
        assert_eq!(queue.dropped, 5);
    }
}
