//! A scheduler that chooses the path with the lowest round-trip time.

use std::time::Duration;

use super::{BuildResult, Family, Scheduler, no_argument};

use crate::seed::Stream;
use crate::{PathId, PathView, Time};

/// The scheduler `lowest-rtt`: syntax and help texts.
pub(super) const FAMILY: Family = Family {
    name: "lowest-rtt",
    syntax: "lowest-rtt",
    example: "lowest-rtt",
    about: "the path with the lowest round-trip time. Paths without a measurement are tried first",
    plain: "the path that answers fastest is chosen",
    every: None,
    needs_windows: false,
    build,
};

/// Number of runs that an unmeasured path gets before it ranks after every measured path.
const TRIALS: u8 = 3;
/// Lowest rank of a path without room. All paths with room have lower ranks, which are preferred.
const FULL: u64 = 1 << 63;
/// Rank of a path that was tried but could not be measured. It ranks after every measured path,
/// because [`nanos`] returns at most 2^61.
const HOPELESS: u64 = FULL - 1;

/// Scheduler that prefers the path with the lowest round-trip time (Conflux "LowRTT", Tor proposal
/// 329, section 3.1).
///
/// Unmeasured paths are chosen before measured ones, those with the fewest runs first. So each
/// path is measured early. A path that took `TRIALS` runs without a measurement ranks last. The
/// scheduler considers windows: it skips a path without room while another path has room. C tor's
/// own rule, for legs that are all measured, is `lowrtt`.
#[derive(Debug, Default)]
pub struct LowestRtt {
    trials: Vec<u8>,
}

impl LowestRtt {
    /// Returns a scheduler that has not tried any path.
    pub fn new() -> LowestRtt {
        LowestRtt::default()
    }

    /// Returns the index of the usable path with the lowest rank (the first one if several are
    /// equal); `None` if no path is usable. Uses a plain loop, which takes a third of the time of
    /// `min_by_key`.
    fn best(&self, paths: &[PathView]) -> Option<usize> {
        let mut best = None;
        let mut lowest = u64::MAX;
        for (index, (view, &trials)) in paths.iter().zip(&self.trials).enumerate() {
            let rank = rank(view, trials);
            if view.usable && rank < lowest {
                (best, lowest) = (Some(index), rank);
            }
        }
        best
    }
}

/// Returns the rank of a path as one number. The lowest rank is chosen first. Paths on trial have
/// the lowest ranks (by number of trials), then measured paths (by round-trip time), then paths
/// tried without success. Paths without room follow, in the same order.
fn rank(view: &PathView, trials: u8) -> u64 {
    let rank = match view.rtt {
        Some(rtt) => (nanos(rtt) + u64::from(TRIALS)).min(HOPELESS - 1),
        None if trials < TRIALS => u64::from(trials),
        None => HOPELESS,
    };
    if view.has_room() { rank } else { FULL + rank }
}

/// Returns the nanoseconds of `span`, at most 2^61.
fn nanos(span: Duration) -> u64 {
    span.as_secs().min(1 << 31) * 1_000_000_000 + u64::from(span.subsec_nanos())
}

impl Scheduler for LowestRtt {
    fn choose(&mut self, _now: Time, paths: &[PathView]) -> Option<PathId> {
        if self.trials.len() < paths.len() {
            self.trials.resize(paths.len(), 0);
        }
        let index = self.best(paths)?;
        if paths[index].rtt.is_none() && paths[index].has_room() {
            self.trials[index] = self.trials[index].saturating_add(1);
        }
        Some(PathId::at(index))
    }

    fn load_aware(&self) -> bool {
        true
    }
}

fn build(argument: Option<&str>, _paths: usize, _stream: Stream) -> BuildResult {
    no_argument("lowest-rtt", argument)?;
    Ok(Box::new(LowestRtt::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(ms: u64) -> PathView {
        PathView { rtt: Some(Duration::from_millis(ms)), ..PathView::open() }
    }

    fn turns(scheduler: &mut LowestRtt, paths: &[PathView], n: usize) -> Vec<u16> {
        (0..n).map(|_| scheduler.choose(Time::ZERO, paths).unwrap().0).collect()
    }

    #[test]
    fn the_lowest_measured_path_is_taken() {
        assert_eq!(
            turns(&mut LowestRtt::new(), &[measured(30), measured(20), measured(40)], 2),
            [1, 1]
        );
    }

    #[test]
    fn unmeasured_paths_are_tried_in_turn_and_then_rank_last() {
        let paths = [measured(30), PathView::open(), PathView::open()];
        assert_eq!(turns(&mut LowestRtt::new(), &paths, 8), [1, 2, 1, 2, 1, 2, 0, 0]);
    }

    #[test]
    fn a_path_without_room_is_passed_over_unless_all_are_full() {
        let full = PathView { window: Some(0), ..measured(10) };
        assert_eq!(turns(&mut LowestRtt::new(), &[full, measured(20)], 1), [1]);
        assert_eq!(turns(&mut LowestRtt::new(), &[full, full], 1), [0]);
    }
}
