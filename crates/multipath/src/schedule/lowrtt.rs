//! C tor's scheduler LOWRTT.

use super::{BuildResult, Family, Scheduler, no_argument};
use crate::path::quickest_ready;
use crate::seed::Stream;
use crate::{PathId, PathView, Time};

/// The scheduler `lowrtt`: syntax, help texts and default run length.
pub(super) const FAMILY: Family = Family {
    name: "lowrtt",
    syntax: "lowrtt",
    example: "lowrtt",
    about: "of the paths with room in their congestion window, the one with the lowest round-trip \
            time (LOWRTT in C tor)",
    plain: "the circuit that answers fastest is chosen while it has room",
    every: Some("1p"),
    needs_windows: true,
    build,
};

/// Scheduler that chooses the ready leg (circuit of a set) with the lowest round-trip time; the
/// first one if several are equal (Tor proposal 329, section 3.1; C tor's
/// `conflux_decide_circ_lowrtt`). A leg is ready if its window and its queue have room. So the
/// fastest leg's window is filled before another leg carries anything.
#[derive(Debug)]
struct LowRtt;

impl Scheduler for LowRtt {
    fn choose(&mut self, _now: Time, paths: &[PathView]) -> Option<PathId> {
        quickest_ready(paths).map(PathId::at)
    }

    fn load_aware(&self) -> bool {
        true
    }
}

fn build(argument: Option<&str>, _paths: usize, _stream: Stream) -> BuildResult {
    no_argument("lowrtt", argument)?;
    Ok(Box::new(LowRtt))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::LegView;

    #[test]
    fn the_quickest_leg_with_room_is_taken_and_the_first_of_equals() {
        let leg =
            |ms, room| PathView::leg(Some(Duration::from_millis(ms)), room, LegView::default());
        let choice = |legs: &[PathView]| LowRtt.choose(Time::ZERO, legs);
        assert_eq!(choice(&[leg(30, 1), leg(20, 1), leg(20, 1)]), Some(PathId(1)));
        assert_eq!(choice(&[leg(30, 1), leg(20, 0), leg(40, 1)]), Some(PathId(0)));
        assert_eq!(choice(&[leg(30, 0), leg(20, 0)]), Some(PathId(1)), "held for");
        let unmeasured = PathView::leg(None, 124, LegView::default());
        assert_eq!(choice(&[unmeasured, leg(900, 1)]), Some(PathId(1)));
        assert_eq!(choice(&[unmeasured]), None);
    }
}
