//! A scheduler that draws a random path for each run. The probabilities are set from the paths'
//! measured capacities, at growing intervals.

use std::time::Duration;

use super::weighted::Weighted;
use super::{BuildResult, Family, Scheduler, no_argument};
use crate::path::usable;
use crate::seed::Stream;
use crate::{PathId, PathView, Time};

/// The scheduler `by-capacity`: syntax, help texts and default run length.
pub(super) const FAMILY: Family = Family {
    name: "by-capacity",
    syntax: "by-capacity",
    example: "by-capacity",
    about: "a random path for each run. All paths have the same probability, except that a slow \
            path has a lower one, so that it does not limit the speed of the others. The \
            probabilities are computed from measured capacities, often at the start and later \
            every hour. The start is repeated if the fastest path turns out to be twice as fast. \
            On Tor circuits, whose capacity is not measured, all probabilities are \
            equal",
    plain: "paths are chosen at random; slow paths are chosen less often, whatever the traffic is",
    every: Some("~4p"),
    needs_windows: true,
    build,
};

/// Maximum time between two updates of the probabilities from the paths' capacities. The time
/// doubles after each update, up to this maximum.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// Time between the first two updates of the probabilities from the paths' capacities.
const FIRST: Duration = Duration::from_secs(1);

/// The growing intervals start again when the largest capacity has grown by this factor.
const FASTER: u64 = 2;

/// Rate of all paths together for which the probabilities are computed, in units of the fastest
/// path's capacity. The value is above 1 to leave a reserve: at times, random choices overload a
/// path, and the packets on other paths then have to wait for its packets. With 1.2 and runs of
/// `~4p`, paths of 50, 30 and 10 Mbit/s together reached only 0.92 of the rate of the 50 Mbit/s
/// path alone (`tunnel/tests/goodput.rs`).
const TARGET_RATE: f64 = 1.4;

/// A random scheduler whose probabilities do not depend on the present traffic.
///
/// With probabilities p and path capacities c, all paths together carry min(c/p). So a slow path
/// with an equal share would delay all others. Here p is the most even distribution whose min(c/p)
/// is [`TARGET_RATE`] times the largest c. A path whose capacity is too small for an equal share
/// has a lower probability; all other paths have the same probability. A path that was never full
/// counts as one of the fastest.
///
/// All paths have equal probabilities until a path has been full. Then the probabilities are set
/// from the capacities. They are set again after 1 s, 2 s, 4 s and so on, in the end every hour,
/// because the first estimates are rough. They are also set whenever a path fails or returns.
///
/// A capacity that was measured while only acknowledgements were sent is far too low, and so the
/// intervals start again when the largest capacity is [`FASTER`] times as large as when they last
/// started. This happens at most about ten times, because the line's real rate bounds it. So it
/// reveals that the line was full for the first time, and no later traffic.
#[derive(Debug)]
struct ByCapacity {
    chances: Weighted,
    /// For each path, whether it was usable when the probabilities were set.
    usable: Vec<bool>,
    /// Time of the next update of the probabilities from the paths' capacities.
    next: Time,
    /// Time between the next update of the probabilities and the update after it.
    wait: Duration,
    /// Largest capacity of a path when the growing intervals last started; 0 before that.
    fastest: u64,
}

impl ByCapacity {
    /// Sets the probabilities if an update is due, or if the set of usable paths has changed.
    fn update(&mut self, now: Time, paths: &[PathView]) {
        let changed = !paths.iter().map(|path| path.usable).eq(self.usable.iter().copied());
        if changed {
            self.usable = paths.iter().map(|path| path.usable).collect();
            self.chances.set(vec![1.0; paths.len()]);
            (self.next, self.wait, self.fastest) = (now, FIRST, 0);
        }
        let fastest = usable(paths).map(|place| paths[place].leg.max_rate).max().unwrap_or(0);
        if fastest >= FASTER * self.fastest.max(1) {
            (self.next, self.wait, self.fastest) = (now, FIRST, fastest);
        }
        if now >= self.next && fastest > 0 {
            self.next = now + self.wait;
            self.wait = LONGEST_WAIT.min(self.wait * 2);
            let capacity = |path: &PathView| match path.leg.max_rate {
                _ if !path.usable => 0.0,
                0 => fastest as f64,
                max_rate => max_rate as f64,
            };
            self.chances.set(least_unequal(&paths.iter().map(capacity).collect::<Vec<_>>()));
        }
    }
}

impl Scheduler for ByCapacity {
    fn choose(&mut self, now: Time, paths: &[PathView]) -> Option<PathId> {
        self.update(now, paths);
        self.chances.choose(now, paths)
    }

    fn reseed(&mut self, stream: Stream) {
        self.chances.reseed(stream);
    }
}

fn build(argument: Option<&str>, paths: usize, stream: Stream) -> BuildResult {
    no_argument("by-capacity", argument)?;
    let chances = Weighted::fixed(vec![1.0; paths.max(1)], stream)?;
    Ok(Box::new(ByCapacity {
        chances,
        usable: Vec::new(),
        next: Time::ZERO,
        wait: FIRST,
        fastest: 0,
    }))
}

/// Returns the most even probabilities, with sum 1, that the capacities allow. No probability
/// exceeds its path's capacity divided by [`TARGET_RATE`] times the largest capacity. If the sum
/// of all capacities is less than [`TARGET_RATE`] times the largest, the probabilities are
/// proportional to the capacities.
fn least_unequal(capacities: &[f64]) -> Vec<f64> {
    let largest = capacities.iter().copied().fold(0.0, f64::max);
    let sum: f64 = capacities.iter().sum();
    let speed = TARGET_RATE.min(sum / largest);
    let bounds: Vec<f64> = capacities.iter().map(|capacity| capacity / speed / largest).collect();
    let mut ascending = bounds.clone();
    ascending.sort_by(f64::total_cmp);
    // The slowest paths get their maximum probability, until the remaining paths can have equal
    // probabilities.
    let (mut left, mut level) = (1.0, 1.0);
    for (place, bound) in ascending.iter().enumerate() {
        level = left / (ascending.len() - place) as f64;
        if level <= *bound {
            break;
        }
        left -= bound;
    }
    bounds.into_iter().map(|bound| bound.min(level)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LegView;
    use crate::seed::stream;

    fn path(capacity: u64) -> PathView {
        let leg = LegView { max_rate: capacity, ..LegView::default() };
        PathView::leg(Some(Duration::from_millis(40)), 100, leg)
    }

    fn shares(scheduler: &mut dyn Scheduler, from: Time, paths: &[PathView]) -> Vec<f64> {
        let mut counts = vec![0u32; paths.len()];
        for _ in 0..40_000 {
            counts[scheduler.choose(from, paths).unwrap().index()] += 1;
        }
        counts.iter().map(|&count| f64::from(count) / 40_000.0).collect()
    }

    fn assert_near(shares: &[f64], wanted: &[f64]) {
        let near = shares.iter().zip(wanted).all(|(one, other)| (one - other).abs() < 0.0125);
        assert!(near, "{shares:?}, not {wanted:?}: five standard deviations");
    }

    #[test]
    fn chances_are_as_equal_as_the_speed_of_the_best_path_allows() {
        // The upper bounds are 50/70, 30/70 and 10/70. The third path gets its bound, and the
        // others share the rest.
        assert_near(&least_unequal(&[50.0, 30.0, 10.0]), &[3.0 / 7.0, 3.0 / 7.0, 1.0 / 7.0]);
        assert_near(&least_unequal(&[30.0, 30.0, 30.0]), &[1.0 / 3.0; 3]);
        // All capacities together are less than 1.4 times the largest. The probabilities are
        // therefore proportional to them.
        assert_near(&least_unequal(&[100.0, 5.0, 5.0]), &[10.0 / 11.0, 0.5 / 11.0, 0.5 / 11.0]);
        assert_near(&least_unequal(&[8.0]), &[1.0]);
    }

    #[test]
    fn they_are_equal_until_a_capacity_is_known_and_then_set_at_fixed_times() {
        let mut scheduler = build(None, 3, stream(1, 0, "scheduler")).unwrap();
        let second = Time::from_secs;
        assert_near(&shares(&mut *scheduler, second(1), &[0, 0, 0].map(path)), &[1.0 / 3.0; 3]);
        let first = [3.0 / 7.0, 3.0 / 7.0, 1.0 / 7.0];
        assert_near(&shares(&mut *scheduler, second(5), &[50, 30, 10].map(path)), &first);
        let later = [10, 30, 50].map(path);
        let just_before = second(6) - Duration::from_nanos(1);
        assert_near(&shares(&mut *scheduler, just_before, &later), &first);
        assert_near(
            &shares(&mut *scheduler, second(6), &later),
            &[1.0 / 7.0, 3.0 / 7.0, 3.0 / 7.0],
        );
    }

    #[test]
    fn the_growing_intervals_start_again_when_a_path_is_twice_as_fast() {
        let mut scheduler = build(None, 3, stream(1, 0, "scheduler")).unwrap();
        // While the other end sends, acknowledgements alone show almost no capacity.
        for seconds in 1..8 {
            shares(&mut *scheduler, Time::from_secs(seconds), &[3, 3, 3].map(path));
        }
        let found = shares(&mut *scheduler, Time::from_secs(9), &[50, 30, 10].map(path));
        assert_near(&found, &[3.0 / 7.0, 3.0 / 7.0, 1.0 / 7.0]);
        // A second later the first estimate is corrected, as at the start.
        let later = shares(&mut *scheduler, Time::from_secs(10), &[50, 10, 30].map(path));
        assert_near(&later, &[3.0 / 7.0, 1.0 / 7.0, 3.0 / 7.0]);
        // A capacity that is less than twice as large does not change the probabilities before
        // their time, nor does a smaller one.
        let early = Time::from_secs(11);
        let grown = shares(&mut *scheduler, early, &[10, 99, 99].map(path));
        assert_near(&grown, &[3.0 / 7.0, 1.0 / 7.0, 3.0 / 7.0]);
    }

    #[test]
    fn a_path_that_was_never_full_counts_as_the_fastest() {
        let mut scheduler = build(None, 3, stream(1, 0, "scheduler")).unwrap();
        let chances = shares(&mut *scheduler, Time::from_secs(1), &[0, 50, 10].map(path));
        assert_near(&chances, &[3.0 / 7.0, 3.0 / 7.0, 1.0 / 7.0]);
    }

    #[test]
    fn a_path_that_returns_carries_at_once() {
        let mut scheduler = build(None, 3, stream(1, 0, "scheduler")).unwrap();
        let down = [path(30), path(30), PathView::dead()];
        assert_near(&shares(&mut *scheduler, Time::from_secs(1), &down), &[0.5, 0.5, 0.0]);
        let back = [30, 30, 30].map(path);
        assert_near(&shares(&mut *scheduler, Time::from_secs(1), &back), &[1.0 / 3.0; 3]);
    }
}
