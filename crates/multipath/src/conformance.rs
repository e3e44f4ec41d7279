//! Test suites that every scheduler and every core ([`Core`], a protocol as a state machine
//! without sockets and clock) must pass.
//!
//! Call [`check`] from a scheduler's test, and [`check_over_windows`] if the scheduler supports
//! paths with windows. Both panic with the name of the violated rule.
//!
//! Tests and fuzz targets poll cores with [`drain`] and [`run_out`], or call [`check_at_rest`]
//! after their own loop.

use std::collections::VecDeque;
use std::time::Duration;

use crate::schedule::Scheduler;
use crate::{Assignment, Boundary, Core, LegView, PathView, Silence, Splitter, Time, seed};

const PATHS: usize = 3;
/// Maximum number of outputs that a core (a protocol as a state machine) may return at one point
/// in time.
const MOST_OUTPUTS: usize = 1 << 20;

/// Returns the outputs of `core` that are due at `now`, and checks that `core` is then at rest
/// ([`check_at_rest`]).
///
/// # Panics
/// The core returns outputs without end, or is not at rest.
pub fn drain<C: Core>(core: &mut C, now: Time) -> Vec<C::Out> {
    let outputs: Vec<C::Out> = core.drain(now).take(MOST_OUTPUTS).collect();
    assert!(outputs.len() < MOST_OUTPUTS, "the core produces outputs without end at {now:?}");
    check_at_rest(core, now);
    outputs
}

/// Checks that `core` has nothing more to do at `now`, after it was polled until it returned
/// `None`. Otherwise the event loop that drives the core would never wait.
///
/// # Panics
/// `core` returns another output, or its next timeout has passed.
pub fn check_at_rest<C: Core>(core: &mut C, now: Time) {
    assert!(core.poll(now).is_none(), "the core has an output after the last one, at {now:?}");
    let due = core.next_timeout();
    assert!(due.is_none_or(|due| due > now), "a timeout that does nothing: {due:?} at {now:?}");
}

/// Polls `core` from `now` on at each of its timeouts, until no timer runs. Returns each output
/// with its time.
///
/// # Panics
/// Timers still run after `most` timeouts, or the core is not at rest after one.
pub fn run_out<C: Core>(core: &mut C, now: Time, most: usize) -> Vec<(Time, C::Out)> {
    let (mut now, mut all) = (now, Vec::new());
    for _ in 0..=most {
        all.extend(drain(core, now).into_iter().map(|output| (now, output)));
        let Some(next) = core.next_timeout() else { return all };
        now = next;
    }
    panic!("a timer still runs after {most} timeouts");
}

/// Checks that a scheduler obeys every rule of this test suite. `make` builds a scheduler for
/// three paths from a seed.
///
/// # Panics
/// A rule is violated.
pub fn check(make: impl Fn(u64) -> Box<dyn Scheduler>) {
    Rules { make, open: PathView::open() }.check();
}

/// Checks that a scheduler obeys every rule of this test suite over paths with windows, such as
/// circuits. Also checks that the scheduler chooses no path whose round-trip time is unmeasured,
/// and that all units (such as cells) are sent in the end. `make` builds a scheduler for three
/// paths from a seed.
///
/// # Panics
/// A rule is violated.
pub fn check_over_windows(make: impl Fn(u64) -> Box<dyn Scheduler>) {
    let rules = Rules { make, open: leg(0) };
    rules.check();
    rules.names_no_unmeasured_path();
    rules.sends_everything();
}

/// Window of a path in this suite, in units (such as cells).
const WINDOW: u64 = 124;
/// Number of units (such as cells) that one acknowledgement covers in this suite.
const STEP: u64 = 31;

/// Returns the state of a path with a window and a measured round-trip time, as a scheduler sees
/// it. `inflight` units (such as cells) are in flight on the path.
fn leg(inflight: u64) -> PathView {
    let rtt = Duration::from_millis(40);
    let leg = LegView {
        least_rtt: rtt,
        size: WINDOW,
        inflight,
        step: STEP,
        bdp: 100,
        ..LegView::default()
    };
    PathView::leg(Some(rtt), WINDOW - inflight, leg)
}

struct Rules<M> {
    make: M,
    /// The state of a usable path, as the tested scheduler sees it.
    open: PathView,
}

fn choices(scheduler: &mut dyn Scheduler, paths: &[PathView], n: u64) -> Vec<Option<usize>> {
    let choice = |step| scheduler.choose(Time::from_millis(step), paths).map(|path| path.index());
    (0..n).map(choice).collect()
}

fn boundary() -> Boundary {
    Boundary::new("1p".parse().expect("a literal"), seed::stream(1, 0, "boundary"))
}

impl<M: Fn(u64) -> Box<dyn Scheduler>> Rules<M> {
    fn check(&self) {
        self.names_only_usable_paths();
        self.names_none_when_none_is_usable();
        self.is_a_function_of_its_seed();
        self.tolerates_a_path_that_comes_back();
        self.begins_anew_after_a_silence();
        if !self.make(1).load_aware() {
            self.ignores_windows();
            self.holds_for_the_path_it_chose();
        } else if !self.make(1).waits() {
            self.passes_over_full_paths();
        }
    }

    fn make(&self, seed: u64) -> Box<dyn Scheduler> {
        (self.make)(seed)
    }

    /// Returns the states of three paths, as a scheduler sees them. Path `i` is usable if bit `i`
    /// of `mask` is 1.
    fn views(&self, mask: usize) -> Vec<PathView> {
        let view = |index| if mask >> index & 1 == 1 { self.open } else { PathView::dead() };
        (0..PATHS).map(view).collect()
    }

    /// Returns the states of three paths, as a scheduler sees them, where path `index` has room
    /// for `room(index)` units.
    fn with_room(&self, room: impl Fn(usize) -> u64) -> Vec<PathView> {
        let view = |index| PathView { window: Some(room(index)), ..self.open };
        (0..PATHS).map(view).collect()
    }

    fn names_only_usable_paths(&self) {
        for mask in 1..1 << PATHS {
            let paths = self.views(mask);
            for choice in choices(&mut *self.make(1), &paths, 200) {
                let named = choice.expect("rule: the scheduler names a path while one is usable");
                assert!(
                    paths[named].usable,
                    "rule: the scheduler names only usable paths (mask {mask:b}, named {named})"
                );
            }
        }
    }

    fn names_none_when_none_is_usable(&self) {
        let none = choices(&mut *self.make(1), &self.views(0), 1);
        assert_eq!(none, [None], "rule: the scheduler names no path if none is usable");
        let none = choices(&mut *self.make(1), &[], 1);
        assert_eq!(none, [None], "rule: an empty list of paths is not an error");
    }

    fn is_a_function_of_its_seed(&self) {
        for seed in 0..8 {
            let draw = || choices(&mut *self.make(seed), &self.views(7), 500);
            assert_eq!(draw(), draw(), "rule: the same seed gives the same choices (seed {seed})");
        }
    }

    fn tolerates_a_path_that_comes_back(&self) {
        let mut scheduler = self.make(1);
        for step in 0..600u64 {
            let paths = self.views(1 + (step as usize / 7) % 7);
            let named = scheduler.choose(Time::from_millis(step), &paths);
            let named = named.expect("rule: the scheduler names a path while one is usable");
            assert!(
                paths[named.index()].usable,
                "rule: the scheduler names only usable paths while paths fail and return"
            );
        }
    }

    /// Checks a splitter that draws a new random schedule after each pause in the traffic. After a
    /// pause, the splitter must choose the same paths as a new splitter with this schedule.
    fn begins_anew_after_a_silence(&self) {
        let views = self.views(7);
        let load = |splitter: &mut Splitter, begins: Time| -> Vec<usize> {
            let at = |unit: u64| begins + Duration::from_millis(5 * unit);
            (0..300).map(|unit| path_of(splitter.assign(at(unit), &views, 1))).collect()
        };
        let (first, second) = (self.make(11), self.make(12));
        let alone = [first, second]
            .map(|scheduler| load(&mut Splitter::new(scheduler, boundary()), Time::ZERO));
        let parts = std::sync::Mutex::new(vec![self.make(12), self.make(11)]);
        let draw = move |_| {
            let next = parts.lock().ok().and_then(|mut parts| parts.pop());
            (next.expect("rule: each page load has one random draw"), boundary())
        };
        let mut session = Splitter::redrawing(Silence::USUAL, Box::new(draw));
        let loads = [0, 9].map(|second| load(&mut session, Time::from_secs(second)));
        assert_eq!(loads, alone, "rule: after a silence the schedule starts from the beginning");
    }

    fn ignores_windows(&self) {
        let draw = |paths: &[PathView]| choices(&mut *self.make(3), paths, 500);
        assert_eq!(
            draw(&self.views(7)),
            draw(&self.with_room(|_| 0)),
            "rule: a scheduler that ignores load makes the same choices with any windows"
        );
    }

    /// Checks that full paths only delay the units of a scheduler that ignores windows, and do not
    /// change its choices. The test always has units to send. Path `index` (from 0) has room for
    /// one unit in each tick whose number is divisible by `index * 3 + 1`, and no room in other
    /// ticks.
    fn holds_for_the_path_it_chose(&self) {
        let mut free = Splitter::new(self.make(5), boundary());
        let mut tight = Splitter::new(self.make(5), boundary());
        let views = self.views(7);
        let expected: Vec<_> =
            (0..300).map(|_| path_of(free.assign(Time::ZERO, &views, 1))).collect();
        let mut got = Vec::new();
        for tick in 0usize.. {
            let paths = self.with_room(|index| u64::from(tick.is_multiple_of(index * 3 + 1)));
            let sent = tight.assign(Time::ZERO + Duration::from_micros(tick as u64), &paths, 1);
            if sent != Assignment::Hold {
                got.push(path_of(sent));
            }
            if got.len() == expected.len() {
                break;
            }
        }
        assert_eq!(
            got, expected,
            "rule: windows delay the choices of a scheduler that ignores load, but do not change \
             them"
        );
    }

    fn passes_over_full_paths(&self) {
        for open in 0..PATHS {
            let paths = self.with_room(|index| u64::from(index == open));
            for choice in choices(&mut *self.make(1), &paths, 50) {
                let rule = "rule: a scheduler that considers load takes the path with room";
                assert_eq!(choice, Some(open), "{rule}");
            }
        }
    }

    fn names_no_unmeasured_path(&self) {
        let unmeasured = PathView::leg(None, WINDOW, LegView::default());
        for measured in 0..PATHS {
            let mut paths = vec![unmeasured; PATHS];
            assert_eq!(
                choices(&mut *self.make(1), &paths, 1),
                [None],
                "rule: an unmeasured path with a window carries nothing"
            );
            paths[measured] = leg(0);
            let chosen = choices(&mut *self.make(1), &paths, 50);
            assert_eq!(chosen, [Some(measured); 50], "rule: only a measured path carries anything");
        }
    }

    /// Checks that all units are sent over three paths that acknowledge after 1, 3 and 10 ticks.
    fn sends_everything(&self) {
        let mut splitter = Splitter::new(self.make(9), boundary());
        let mut acknowledgements: Vec<VecDeque<u64>> = vec![VecDeque::new(); PATHS];
        let mut inflight = [0u64; PATHS];
        let (mut left, mut tick) = (20_000u64, 0);
        while left > 0 {
            assert!(tick < 20_000, "rule: every unit is sent in the end ({left} of 20000 left)");
            for (path, due) in acknowledgements.iter_mut().enumerate() {
                while due.pop_front_if(|at| *at <= tick).is_some() {
                    inflight[path] -= STEP;
                }
            }
            while left > 0 {
                let paths = inflight.map(leg);
                let now = Time::from_millis(tick);
                let Assignment::Send { path, units, .. } = splitter.assign(now, &paths, left)
                else {
                    break;
                };
                let path = path.index();
                assert_eq!(units, 1, "rule: a run of one unit has one unit");
                inflight[path] += 1;
                left -= 1;
                if inflight[path].is_multiple_of(STEP) {
                    acknowledgements[path].push_back(tick + [1, 3, 10][path]);
                }
            }
            tick += 1;
        }
    }
}

fn path_of(assignment: Assignment) -> usize {
    match assignment {
        Assignment::Send { path, .. } => path.index(),
        other => panic!("rule: a run for which there is room is sent, not {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A timer that runs `left` times, 1 s apart. A broken one never advances.
    struct Ticks {
        due: Time,
        left: usize,
        broken: bool,
    }

    impl Core for Ticks {
        type In<'a> = ();
        type Out = usize;

        fn handle(&mut self, now: Time, (): ()) {
            self.due = now;
        }

        fn poll(&mut self, now: Time) -> Option<usize> {
            if self.left == 0 || now < self.due || self.broken {
                return None;
            }
            self.due = now + Duration::from_secs(1);
            self.left -= 1;
            Some(self.left)
        }

        fn next_timeout(&self) -> Option<Time> {
            (self.left > 0).then_some(self.due)
        }
    }

    #[test]
    fn a_core_runs_out_after_its_last_timeout() {
        let mut ticks = Ticks { due: Time::from_secs(1), left: 3, broken: false };
        let at = |second, left| (Time::from_secs(second), left);
        assert_eq!(run_out(&mut ticks, Time::ZERO, 3), [at(1, 2), at(2, 1), at(3, 0)]);
    }

    #[test]
    #[should_panic(expected = "a timer still runs after 3 timeouts")]
    fn timers_without_an_end_are_found() {
        run_out(&mut Ticks { due: Time::ZERO, left: 9, broken: false }, Time::ZERO, 3);
    }

    #[test]
    #[should_panic(expected = "a timeout that does nothing")]
    fn a_spin_is_found() {
        drain(&mut Ticks { due: Time::ZERO, left: 1, broken: true }, Time::ZERO);
    }

    #[test]
    #[should_panic(expected = "an output after the last one")]
    fn a_core_that_was_not_drained_is_found() {
        check_at_rest(&mut Ticks { due: Time::ZERO, left: 1, broken: false }, Time::ZERO);
    }
}
