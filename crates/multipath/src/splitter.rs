//! The splitter: a scheduler, which chooses paths, and a boundary, which determines for how many
//! units (such as packets) or how much time each choice applies.

use std::fmt;
use std::time::Duration;

use crate::schedule::{Scheduler, Spec, SpecError};
use crate::seed::Stream;
use crate::{Boundary, Every, PathId, PathView, Silence, Time};

/// The decision on which path the next units (such as packets) are sent, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// Send the first `units` of the waiting units (such as packets) on `path`.
    Send {
        /// The path that carries the first `units` units (such as packets).
        path: PathId,
        /// Number of units (such as packets) to send, from 1 to the count passed to
        /// [`Splitter::assign`]. Call it again for the other units.
        units: u64,
        /// True if a new run begins with the sent units (such as packets). A new run may use the
        /// path of the previous run.
        fresh: bool,
    },
    /// Keep the units (such as packets) waiting: the chosen path has no room in its window.
    Hold,
    /// No path is usable.
    Nowhere,
}

/// A splitter, which cuts a sequence of units (such as packets) into runs, and chooses a path for
/// each run.
///
/// If a scheduler that ignores windows chooses a full path, the splitter returns *hold*. So the
/// split of such a scheduler does not depend on the load, and does not degenerate into "whichever
/// path has room".
#[derive(Debug)]
pub struct Splitter {
    scheduler: Box<dyn Scheduler>,
    boundary: Boundary,
    current: Option<PathId>,
    /// Time at which the last units (such as packets) arrived; [`Time::MAX`] before the first.
    last_arrival: Time,
    silence: Silence,
    redraw: Option<Redraw>,
}

/// A function that draws a random schedule: a scheduler, and the state that determines when its
/// runs (consecutive units on one path) end. The argument is the index of the draw, from 0.
pub type DrawSchedule = dyn Fn(u64) -> (Box<dyn Scheduler>, Boundary) + Send;

/// The function that draws a random schedule after each pause in the traffic, and the count of its
/// calls.
struct Redraw {
    draw: Box<DrawSchedule>,
    /// Number of times that the schedule was drawn, including the first.
    draws: u64,
}

impl fmt::Debug for Redraw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redraw({})", self.draws)
    }
}

impl Splitter {
    /// Returns a splitter that has not chosen a path yet, and that keeps its schedule after pauses
    /// in the traffic.
    pub fn new(scheduler: Box<dyn Scheduler>, boundary: Boundary) -> Splitter {
        Splitter {
            scheduler,
            boundary,
            current: None,
            last_arrival: Time::MAX,
            silence: Silence::USUAL,
            redraw: None,
        }
    }

    /// Returns a splitter that draws a new random schedule after each `silence` (pause in the
    /// traffic). To an observer each load (burst of traffic) then looks like the first load of
    /// another session.
    ///
    /// `draw(0)` returns the first schedule, and `draw(n)` the schedule after pause number n. Each
    /// must use its own random numbers.
    pub fn redrawing(silence: Silence, draw: Box<DrawSchedule>) -> Splitter {
        let (scheduler, boundary) = draw(0);
        let redraw = Some(Redraw { draw, draws: 1 });
        Splitter { silence, redraw, ..Splitter::new(scheduler, boundary) }
    }

    /// Returns a splitter with the scheduler `spec` over `paths` paths, in runs of `every`. With
    /// `redraw`, the splitter draws a new random schedule after each pause in the traffic of at
    /// least this length.
    ///
    /// `dice` returns the random stream of a purpose. The purposes are `scheduler` and `boundary`,
    /// and after pause number n `scheduler draw n` and `boundary draw n`.
    ///
    /// # Errors
    /// The schedule does not fit `paths` paths.
    pub fn drawn(
        spec: &Spec,
        paths: usize,
        every: Every,
        redraw: Option<Silence>,
        dice: impl Fn(&str) -> Stream + Send + 'static,
    ) -> Result<Splitter, SpecError> {
        let first = spec.build(paths, dice("scheduler"))?;
        let boundary = Boundary::new(every, dice("boundary"));
        let Some(silence) = redraw else { return Ok(Splitter::new(first, boundary)) };
        let spec = spec.clone();
        let draw = move |draws: u64| {
            let name = |what: &str| match draws {
                0 => what.to_owned(),
                _ => format!("{what} draw {draws}"),
            };
            let scheduler = spec.build(paths, dice(&name("scheduler")));
            let scheduler =
                scheduler.expect("the scheduler was already built for this number of paths");
            (scheduler, Boundary::new(every, dice(&name("boundary"))))
        };
        Ok(Splitter::redrawing(silence, Box::new(draw)))
    }

    /// Returns the path of the present run (group of units on one path); `None` if there is no
    /// run.
    pub fn current(&self) -> Option<PathId> {
        self.current
    }

    /// Decides on the path of the first of `units` waiting units (such as packets), at `now`.
    /// `units` (at least 1) counts all units known to wait, because a scheduler may wait for a
    /// better path if few units are left. `paths[i]` is the state of path `i`.
    ///
    /// A run ends when it has reached its length, or when its path becomes unusable, whichever is
    /// first.
    #[inline]
    pub fn assign(&mut self, now: Time, paths: &[PathView], units: u64) -> Assignment {
        if self.on_arrival(now) >= self.silence.least() {
            self.after_silence();
        }
        let fresh = self.needs_choice(now, paths);
        if fresh {
            self.current = self.scheduler.deal(now, paths, units);
            self.boundary.begin(now);
        }
        let Some(path) = self.current else { return Assignment::Nowhere };
        let room = paths[path.index()].window.unwrap_or(u64::MAX);
        if room == 0 {
            return self.on_full_path(now, paths, units, fresh);
        }
        let units = units.min(room).min(self.boundary.packets_left());
        self.boundary.spend(units);
        self.scheduler.on_sent(now, path, units);
        Assignment::Send { path, units, fresh }
    }

    /// Records that a group of units (such as packets), which were assigned together, has arrived
    /// by `now`. The duration of the next pause is measured from `now`. Returns the time since the
    /// previous record.
    pub fn on_arrival(&mut self, now: Time) -> Duration {
        now.since(std::mem::replace(&mut self.last_arrival, now))
    }

    /// Returns the minimum length of a pause that separates two loads (bursts of traffic).
    pub fn silence(&self) -> Silence {
        self.silence
    }

    fn after_silence(&mut self) {
        match &mut self.redraw {
            Some(redraw) => {
                (self.scheduler, self.boundary) = (redraw.draw)(redraw.draws);
                redraw.draws += 1;
                self.current = None;
            }
            None => {
                self.scheduler.after_silence();
                self.boundary.after_silence();
            }
        }
    }

    /// Returns the time at which the present run (group of units on one path) ends
    /// ([`Boundary::ends`]). Units that arrive earlier may be assigned together.
    pub fn ends(&self) -> Time {
        self.boundary.ends()
    }

    /// Begins a new run (group of units on one path) at `now`, on the path of the present run.
    /// Without a present run, the next unit (such as a packet) is scheduled as usual.
    pub fn begin_run(&mut self, now: Time) {
        self.boundary.restart(now);
    }

    /// Returns whether the scheduler reads the TCP state of the paths' first links
    /// ([`Scheduler::sees_links`]).
    pub fn sees_links(&self) -> bool {
        self.scheduler.sees_links()
    }

    fn needs_choice(&self, now: Time, paths: &[PathView]) -> bool {
        let usable = |path: PathId| paths.get(path.index()).is_some_and(|view| view.usable);
        !self.current.is_some_and(usable) || self.boundary.over(now)
    }

    /// Returns the decision about units (such as packets) whose path is full. With a scheduler
    /// that ignores windows, the units wait for this path. A scheduler that considers windows
    /// chooses another path: at once if the path became full during a run, or at the next call if
    /// it has just chosen the full path (`fresh`).
    fn on_full_path(
        &mut self,
        now: Time,
        paths: &[PathView],
        units: u64,
        fresh: bool,
    ) -> Assignment {
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

    /// Sends a unit every 10 ms for 400 ms, starting at `second`. Returns the path of each unit,
    /// and the number of runs.
    fn load(splitter: &mut Splitter, second: u64) -> (Vec<u16>, usize) {
        let mut runs = 0;
        let paths = (0..40).map(|unit| {
            let now = Time::from_secs(second) + Duration::from_millis(10 * unit);
            let assigned = splitter.assign(now, &[PathView::open(); 3], 1);
            runs += usize::from(matches!(assigned, Assignment::Send { fresh: true, .. }));
            path_of(assigned)
        });
        (paths.collect(), runs)
    }

    #[test]
    fn only_a_silence_draws_anew() {
        let draw = |draws: u64| -> (Box<dyn Scheduler>, Boundary) {
            let weights = (0..3).map(|path| f64::from(u8::from(path == draws % 3))).collect();
            let chosen = crate::schedule::Weighted::fixed(weights, stream(1, draws, "scheduler"));
            let every = "never".parse().unwrap();
            (Box::new(chosen.unwrap()), Boundary::new(every, stream(1, draws, "boundary")))
        };
        let mut splitter = Splitter::redrawing("2s".parse().unwrap(), Box::new(draw));
        assert_eq!(load(&mut splitter, 0), (vec![0; 40], 1));
        assert_eq!(load(&mut splitter, 2), (vec![0; 40], 0), "1.61 s are no silence");
        splitter.on_arrival(Time::from_millis(3_200));
        assert_eq!(load(&mut splitter, 5), (vec![0; 40], 0), "units assigned together lasted");
        assert_eq!(load(&mut splitter, 8), (vec![1; 40], 1));
        assert_eq!(load(&mut splitter, 60), (vec![2; 40], 1));
    }

    #[test]
    fn runs_that_grow_are_short_at_the_beginning_of_each_load() {
        let mut splitter = splitter(RoundRobin::new(), "grow:10-100ms");
        let (_, first) = load(&mut splitter, 0);
        let (_, later) = load(&mut splitter, 1);
        assert!(first > 8 && later < 6, "{first} {later}: the pause was .6 s");
        let (_, again) = load(&mut splitter, 9);
        assert!(again > 8, "{again}");
    }
}
