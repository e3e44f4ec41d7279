//! The path with the lowest round-trip time.

use std::cmp::Reverse;
use std::time::Duration;

use super::{Built, Scheduler, no_argument};
use crate::path::usable;
use crate::seed::Stream;
use crate::{PathId, PathView, Time};

/// Turns that an unmeasured path gets before it ranks behind every measured one.
const TRIALS: u8 = 3;

/// Lowest round-trip time first (Conflux "LowRTT", Tor proposal 329, section 3.1).
///
/// Paths not measured yet come first, in order, so that each is measured early; one that took [`TRIALS`] runs and still
/// has no measurement ranks last. Load-aware: a path without room is passed over while another has some.
#[derive(Debug, Default)]
pub struct LowestRtt {
    trials: Vec<u8>,
}

impl LowestRtt {
    /// No path tried yet.
    pub fn new() -> LowestRtt {
        LowestRtt::default()
    }

    /// The rank of a path: room first, then the unmeasured that are still on trial (fewest trials first), then by time.
    fn rank(&self, index: usize, view: &PathView) -> (Reverse<bool>, Reverse<bool>, u8, Duration) {
        let trials = self.trials[index];
        let on_trial = view.rtt.is_none() && trials < TRIALS;
        let turn = if on_trial { trials } else { 0 };
        (Reverse(view.has_room()), Reverse(on_trial), turn, view.rtt.unwrap_or(Duration::MAX))
    }
}

impl Scheduler for LowestRtt {
    fn choose(&mut self, _now: Time, paths: &[PathView]) -> Option<PathId> {
        self.trials.resize(paths.len(), 0);
        let index = usable(paths).min_by_key(|&index| self.rank(index, &paths[index]))?;
        if paths[index].rtt.is_none() && paths[index].has_room() {
            self.trials[index] = self.trials[index].saturating_add(1);
        }
        Some(PathId::at(index))
    }

    fn load_aware(&self) -> bool {
        true
    }
}

pub(super) fn build(argument: Option<&str>, _paths: usize, _stream: Stream) -> Built {
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
