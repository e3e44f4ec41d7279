//! What waits because no window has room.

use std::collections::VecDeque;
use std::time::Duration;

use crate::{Assignment, PathId, PathView, Splitter, Time};

/// Units that wait at most.
const MOST: usize = 1_024;
/// What has waited for so long is dropped.
const LONGEST: Duration = Duration::from_millis(100);

/// Datagrams that wait for a window, in the order in which they came.
///
/// It is the one queue of the way that its sender is to feel: a program that sends more than all
/// paths take has to lose something, and should do so here, soon, and before the paths' own queues
/// are full. The *oldest* goes overboard, once it has waited 100 ms or 1,024 others wait: what is
/// behind it is of more use, and the program learns of it the earlier by the whole queue.
#[derive(Debug)]
pub struct Backlog<T> {
    /// When each came, and its bytes.
    units: VecDeque<(Time, usize, T)>,
    bytes: usize,
    dropped: u64,
}

impl<T> Default for Backlog<T> {
    fn default() -> Backlog<T> {
        Backlog { units: VecDeque::new(), bytes: 0, dropped: 0 }
    }
}

impl<T> Backlog<T> {
    /// One of so many bytes waits behind all others, which have at most `most` bytes together.
    pub fn push(&mut self, now: Time, (unit, bytes): (T, usize), most: usize) {
        self.units.push_back((now, bytes, unit));
        self.bytes += bytes;
        while self.units.len() > MOST || self.bytes > most {
            self.drop_oldest();
        }
    }

    /// Gives the next run a path: how many units go by it, and whether the run is a new one.
    /// [`Backlog::pop`] has the units. `None` if nothing waits, or no window has room for it.
    pub fn assign(
        &mut self,
        now: Time,
        splitter: &mut Splitter,
        views: &[PathView],
    ) -> Option<(PathId, u64, bool)> {
        while self.units.front().is_some_and(|(since, ..)| now.since(*since) >= LONGEST) {
            self.drop_oldest();
        }
        let waiting = self.units.len() as u64;
        match (waiting > 0).then(|| splitter.assign(now, views, waiting))? {
            Assignment::Send { path, units, fresh } => Some((path, units, fresh)),
            Assignment::Hold | Assignment::Nowhere => None,
        }
    }

    /// The oldest.
    pub fn pop(&mut self) -> Option<T> {
        let (_, bytes, unit) = self.units.pop_front()?;
        self.bytes -= bytes;
        Some(unit)
    }

    fn drop_oldest(&mut self) {
        self.dropped += u64::from(self.pop().is_some());
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.units.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// How many went overboard since this was asked last.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }
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
    fn the_oldest_goes_overboard_by_number_by_bytes_and_by_time() {
        let mut backlog = Backlog::default();
        (0..MOST + 2).for_each(|unit| backlog.push(Time::ZERO, (unit, 1), 1 << 20));
        assert_eq!((backlog.len(), backlog.take_dropped()), (MOST, 2));
        backlog.push(Time::from_millis(60), (7_777, 1_000), 1_500);
        assert_eq!(backlog.len(), 501);
        let later = Time::from_millis(100);
        assert!(backlog.assign(later, &mut splitter(), &with_room(1)).is_some());
        assert_eq!((backlog.pop(), backlog.is_empty()), (Some(7_777), true));
    }
}
