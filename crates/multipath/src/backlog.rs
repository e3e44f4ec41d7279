//! A queue for units (datagrams) that wait until a path's window has room.

use std::collections::VecDeque;
use std::time::Duration;

use crate::codel::{Codel, Law, Queue};
use crate::{Assignment, PathId, PathView, Splitter, Time};

/// Maximum number of waiting units (datagrams).
const MOST: usize = 4_096;
/// Maximum time that a unit (datagram) waits.
const LONGEST: Duration = Duration::from_secs(1);
/// Minimum of CoDel's interval. The interval is longer only if a path's round-trip time is above a
/// third of this minimum, which suits the usual round-trip times (RFC 8289, section 4.3).
const INTERVAL: Duration = Duration::from_millis(200);
/// CoDel's interval, in units of the longest of the paths' minimum round-trip times. The interval
/// is at least [`INTERVAL`]. A sender notices a drop after one round trip, and has reduced its
/// rate after another round trip (PRR, RFC 6937). Queues lengthen both round trips, so the factor
/// is 3. A second drop within this time would reduce the sender's rate twice for one excess.
const ROUND_TRIPS: u32 = 3;
/// Ratio of CoDel's interval to its target. The target is 10 % of the interval, the maximum that
/// RFC 8289, section 4.3, recommends. A path's window opens with each acknowledgement. Even with
/// the shortest interval, the target is longer than the wait for the next acknowledgement.
const TARGET: u32 = 10;
/// Value of [`Queue::max_unit`] in bytes: one packet of the usual maximum size. CoDel drops
/// nothing unless more bytes than this wait after the queue's first unit (datagram).
const MAX_UNIT: usize = 1_500;

/// A queue of units (datagrams) that wait for a window, in the order of their arrival.
///
/// If the program whose traffic is split sends more than all paths can carry, some datagrams must
/// be lost. They should be lost in this queue, before the paths' own queues are full. CoDel (RFC
/// 8289) drops single units from the head of a queue that does not drain. If several units were
/// dropped at once, a sender would reduce its rate several times for one excess.
///
/// In addition, a unit is dropped after a wait of 1 s, and the oldest unit is dropped when more
/// than 4,096 units wait. The program notices the loss of the *oldest* unit earlier than the loss
/// of the newest, by the delay of the whole queue.
#[derive(Debug)]
pub struct Backlog<T> {
    /// The arrival time of each unit (datagram), its size in bytes, and the unit itself.
    units: VecDeque<(Time, usize, T)>,
    bytes: usize,
    dropped: u64,
    codel: Law,
}

impl<T> Default for Backlog<T> {
    fn default() -> Backlog<T> {
        Backlog { units: VecDeque::new(), bytes: 0, dropped: 0, codel: Law::default() }
    }
}

impl<T> Backlog<T> {
    /// Appends `unit`, which has `bytes` bytes. Drops the oldest units (datagrams) while the queue
    /// holds more than `most` bytes.
    pub fn push(&mut self, now: Time, (unit, bytes): (T, usize), most: usize) {
        self.units.push_back((now, bytes, unit));
        self.bytes += bytes;
        while self.units.len() > MOST || self.bytes > most {
            self.drop_oldest();
        }
    }

    /// Assigns the oldest units to a path. Before that, drops units that CoDel selects, and units
    /// that have waited too long. Returns three values: the path, the number of units to remove
    /// with [`Backlog::pop`], and true if these units begin a new run (a group of consecutive
    /// units on one path).
    ///
    /// Returns `None` if no unit waits, if no path is usable, or if the units must wait because
    /// the chosen path is full ([`Assignment::Hold`]).
    pub fn assign(
        &mut self,
        now: Time,
        splitter: &mut Splitter,
        views: &[PathView],
    ) -> Option<(PathId, u64, bool)> {
        while self.units.front().is_some_and(|(since, ..)| now.since(*since) >= LONGEST) {
            self.drop_oldest();
        }
        self.keep_short(now, views);
        let waiting = self.units.len() as u64;
        match (waiting > 0).then(|| splitter.assign(now, views, waiting))? {
            Assignment::Send { path, units, fresh } => Some((path, units, fresh)),
            Assignment::Hold | Assignment::Nowhere => None,
        }
    }

    /// Removes and returns the oldest unit (datagram); `None` if none waits.
    pub fn pop(&mut self) -> Option<T> {
        let (_, bytes, unit) = self.units.pop_front()?;
        self.bytes -= bytes;
        Some(unit)
    }

    /// Drops the units (datagrams) at the head of the queue that CoDel selects.
    fn keep_short(&mut self, now: Time, views: &[PathView]) {
        if self.units.is_empty() {
            return self.codel.empty();
        }
        let units = self.units.iter().map(|(since, bytes, _)| (*since, *bytes));
        let queue = Queue { units, bytes: self.bytes, max_unit: MAX_UNIT };
        for _ in 0..self.codel.drops(&rule(views), now, queue) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        self.dropped += u64::from(self.pop().is_some());
    }

    /// Returns the number of waiting units (datagrams).
    pub fn len(&self) -> usize {
        self.units.len()
    }

    /// Returns whether no unit (datagram) waits.
    pub fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// Returns the number of units (datagrams) dropped since the last call of this function.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }
}

/// Returns CoDel's target and interval for paths with the round-trip times in `views`.
fn rule(views: &[PathView]) -> Codel {
    let trips = views.iter().filter(|view| view.usable).map(|view| view.leg.least_rtt);
    let interval = INTERVAL.max(trips.max().unwrap_or_default() * ROUND_TRIPS);
    Codel { target: interval / TARGET, interval }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Spec;
    use crate::seed::stream;
    use crate::{Boundary, LegView};

    fn splitter() -> Splitter {
        let spec = Spec::over_windows("lowrtt").unwrap();
        let boundary = Boundary::new("1p".parse().unwrap(), stream(1, 0, "boundary"));
        Splitter::new(spec.build(2, stream(1, 0, "scheduler")).unwrap(), boundary)
    }

    fn with_room(room: u64) -> [PathView; 2] {
        [PathView::leg(Some(Duration::from_millis(20)), room, LegView::NOTHING); 2]
    }

    #[test]
    fn what_waits_goes_in_order_once_there_is_room() {
        let (mut backlog, mut splitter) = (Backlog::default(), splitter());
        (0..3).for_each(|unit| backlog.push(Time::ZERO, (unit, 9), 99));
        assert_eq!(backlog.assign(Time::ZERO, &mut splitter, &with_room(0)), None);
        let mut gone = Vec::new();
        while let Some((_, units, _)) = backlog.assign(Time::ZERO, &mut splitter, &with_room(1)) {
            gone.extend((0..units).filter_map(|_| backlog.pop()));
        }
        assert_eq!((gone, backlog.take_dropped()), (vec![0, 1, 2], 0));
    }

    #[test]
    fn the_oldest_is_dropped_by_number_by_bytes_and_by_time() {
        let mut backlog = Backlog::default();
        (0..MOST + 2).for_each(|unit| backlog.push(Time::ZERO, (unit, 1), 1 << 20));
        assert_eq!((backlog.len(), backlog.take_dropped()), (MOST, 2));
        backlog.push(Time::from_millis(600), (7_777, 1_000), 1_500);
        assert_eq!(backlog.len(), 501);
        let later = Time::from_secs(1);
        assert!(backlog.assign(later, &mut splitter(), &with_room(1)).is_some());
        assert_eq!((backlog.pop(), backlog.is_empty()), (Some(7_777), true));
    }

    #[test]
    fn a_queue_that_does_not_drain_loses_single_units() {
        let (mut backlog, mut splitter) = (Backlog::default(), splitter());
        let mut dropped = Vec::new();
        for millis in 0..600 {
            let now = Time::from_millis(millis);
            // Two units arrive for each unit that leaves, until 100 units wait. Then one arrives
            // for each.
            for _ in 0..if backlog.len() < 100 { 2 } else { 1 } {
                backlog.push(now, (millis, 1_400), 1 << 20);
            }
            if backlog.assign(now, &mut splitter, &with_room(1)).is_some() {
                backlog.pop();
            }
            dropped.push(backlog.take_dropped());
        }
        let total: u64 = dropped.iter().sum();
        assert!((2..10).contains(&total), "{total} dropped");
        assert!(dropped.iter().all(|at_once| *at_once <= 1));
        assert_eq!(dropped[..200].iter().sum::<u64>(), 0, "a burst is let be");
    }

    /// Checks that the first two drops are one interval apart, which is at least three round
    /// trips. A sender reduces its rate two round trips after a drop. So it reduces the rate once
    /// before the second drop.
    #[test]
    fn the_next_drop_leaves_a_long_path_time_to_react() {
        for (trip, apart) in [(40, 200), (120, 360)] {
            let (mut backlog, mut splitter) = (Backlog::default(), splitter());
            let least_rtt = Duration::from_millis(trip);
            let leg = LegView { least_rtt, ..LegView::NOTHING };
            let views = [PathView::leg(Some(least_rtt), 1, leg); 2];
            let mut drops = Vec::new();
            for millis in 0..1_500 {
                let now = Time::from_millis(millis);
                for _ in 0..if backlog.len() < 100 { 2 } else { 1 } {
                    backlog.push(now, (millis, 1_400), 1 << 20);
                }
                if backlog.assign(now, &mut splitter, &views).is_some() {
                    backlog.pop();
                }
                drops.extend((0..backlog.take_dropped()).map(|_| millis));
            }
            assert_eq!(drops[1] - drops[0], apart, "{trip} ms: {drops:?}");
        }
    }
}
