//! A scheduler and a boundary joined: which path takes the next units.

use crate::schedule::Scheduler;
use crate::{Boundary, PathId, PathView, Time};

/// What becomes of the next units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// The first `units` of them go by `path`.
    Send {
        /// The path that carries them.
        path: PathId,
        /// How many, from 1 up to the number asked about; ask again for the rest.
        units: u64,
        /// Whether a new run begins here (its path may be the one before).
        fresh: bool,
    },
    /// They wait: the chosen path has no room in its window.
    Hold,
    /// No path is usable.
    Nowhere,
}

/// Cuts a sequence of units into runs and gives each run a path.
///
/// Only here does the choice of a full path become *hold*: schedulers that do not look at windows
/// keep their split under any load, instead of degenerating into "whichever path has room".
#[derive(Debug)]
pub struct Splitter {
    scheduler: Box<dyn Scheduler>,
    boundary: Boundary,
    current: Option<PathId>,
}

impl Splitter {
    /// A splitter that has not chosen yet.
    pub fn new(scheduler: Box<dyn Scheduler>, boundary: Boundary) -> Splitter {
        Splitter { scheduler, boundary, current: None }
    }

    /// The path of the present run.
    pub fn current(&self) -> Option<PathId> {
        self.current
    }

    /// Assigns the next `units` (at least 1) at `now`; `paths[i]` describes path `i`. `units` is
    /// all that waits, as far as that is known: a scheduler may wait for a better path if little
    /// is left.
    ///
    /// A run ends at its boundary or with its path's life, whichever comes first.
    #[inline]
    pub fn assign(&mut self, now: Time, paths: &[PathView], units: u64) -> Assignment {
        let fresh = self.needs_choice(now, paths);
        if fresh {
            self.current = self.scheduler.deal(now, paths, units);
            self.boundary.begin(now);
        }
        let Some(path) = self.current else { return Assignment::Nowhere };
        let room = paths[path.index()].window.unwrap_or(u64::MAX);
        if room == 0 {
            return self.when_full(now, paths, units, fresh);
        }
        let units = units.min(room).min(self.boundary.packets_left());
        self.boundary.spend(units);
        Assignment::Send { path, units, fresh }
    }

    /// When time ends the present run, as [`Boundary::ends`]: units that come before may be
    /// assigned together.
    pub fn ends(&self) -> Time {
        self.boundary.ends()
    }

    /// Begins a whole run at `now`, on the path of the present one; where there is none, the next
    /// unit is scheduled.
    pub fn begin_run(&mut self, now: Time) {
        self.boundary.restart(now);
    }

    fn needs_choice(&self, now: Time, paths: &[PathView]) -> bool {
        let usable = |path: PathId| paths.get(path.index()).is_some_and(|view| view.usable);
        !self.current.is_some_and(usable) || self.boundary.over(now)
    }

    /// A load-blind scheduler waits for its path. A load-aware one, whose path became full during a
    /// run, chooses at once; if it has just named a full path, it is asked again when some window
    /// has opened.
    fn when_full(&mut self, now: Time, paths: &[PathView], units: u64, fresh: bool) -> Assignment {
        if !self.scheduler.load_aware() {
            return Assignment::Hold;
        }
        self.current = None;
        if fresh { Assignment::Hold } else { self.assign(now, paths, units) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LegView;
    use crate::schedule::{LowestRtt, RoundRobin};
    use crate::seed::stream;

    fn splitter(scheduler: impl Scheduler + 'static, every: &str) -> Splitter {
        Splitter::new(
            Box::new(scheduler),
            Boundary::new(every.parse().unwrap(), stream(1, 0, "boundary")),
        )
    }

    fn path_of(assignment: Assignment) -> u16 {
        match assignment {
            Assignment::Send { path, .. } => path.0,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_batch_is_cut_where_the_run_ends() {
        let mut splitter = splitter(RoundRobin::new(), "50p");
        let paths = [PathView::open(); 2];
        let mut units = Vec::new();
        let mut left = 120;
        while left > 0 {
            let Assignment::Send { path, units: n, .. } = splitter.assign(Time::ZERO, &paths, left)
            else {
                panic!()
            };
            units.push((path.0, n));
            left -= n;
        }
        assert_eq!(units, [(0, 50), (1, 50), (0, 20)]);
    }

    #[test]
    fn a_run_ends_with_its_path() {
        let mut splitter = splitter(RoundRobin::new(), "never");
        let mut paths = [PathView::open(); 2];
        assert_eq!(path_of(splitter.assign(Time::ZERO, &paths, 1)), 0);
        paths[0] = PathView::dead();
        assert_eq!(path_of(splitter.assign(Time::ZERO, &paths, 1)), 1);
        paths[1] = PathView::dead();
        assert_eq!(splitter.assign(Time::ZERO, &paths, 1), Assignment::Nowhere);
    }

    #[test]
    fn a_load_blind_scheduler_holds_for_its_path_and_goes_on_there() {
        let mut splitter = splitter(RoundRobin::new(), "10p");
        let mut paths = [PathView { window: Some(4), ..PathView::open() }; 2];
        assert_eq!(
            splitter.assign(Time::ZERO, &paths, 9),
            Assignment::Send { path: PathId(0), units: 4, fresh: true }
        );
        paths[0].window = Some(0);
        assert_eq!(splitter.assign(Time::ZERO, &paths, 5), Assignment::Hold);
        paths[0].window = Some(9);
        assert_eq!(path_of(splitter.assign(Time::ZERO, &paths, 5)), 0);
    }

    #[test]
    fn a_load_aware_scheduler_takes_the_path_with_room() {
        let mut splitter = splitter(LowestRtt::new(), "1p");
        let rtt = |ms| Some(std::time::Duration::from_millis(ms));
        let leg = |ms, room| PathView::leg(rtt(ms), room, LegView::NOTHING);
        let mut paths = [leg(10, 0), leg(20, 0)];
        assert_eq!(splitter.assign(Time::ZERO, &paths, 1), Assignment::Hold);
        paths[1].window = Some(1);
        assert_eq!(path_of(splitter.assign(Time::ZERO, &paths, 1)), 1);
    }

    #[test]
    fn a_load_aware_scheduler_leaves_a_path_that_fills_during_a_run() {
        let mut splitter = splitter(LowestRtt::new(), "10p");
        let rtt = |ms| Some(std::time::Duration::from_millis(ms));
        let leg = |ms, room| PathView::leg(rtt(ms), room, LegView::NOTHING);
        assert_eq!(path_of(splitter.assign(Time::ZERO, &[leg(10, 4), leg(20, 9)], 4)), 0);
        assert_eq!(path_of(splitter.assign(Time::ZERO, &[leg(10, 0), leg(20, 9)], 4)), 1);
    }
}
