//! C tor's scheduler MINRTT.

use super::{BuildResult, Family, Scheduler, no_argument};
use crate::path::{quickest, usable};
use crate::seed::Stream;
use crate::{PathId, PathView, Time};

/// The scheduler `minrtt`: syntax, help texts and default run length.
pub(super) const FAMILY: Family = Family {
    name: "minrtt",
    syntax: "minrtt",
    example: "minrtt",
    about: "always the path with the lowest round-trip time. While the congestion window of this \
            path is full, packets wait (MINRTT in C tor)",
    plain: "all data use the circuit that answers fastest, and wait while its congestion window \
            is full",
    every: Some("1p"),
    needs_windows: true,
    build,
};

/// Scheduler that chooses the leg (circuit of a set) with the lowest round-trip time, and sends
/// nothing while that leg has no room (Tor proposal 329, section 3.1; C tor's
/// `conflux_decide_circ_minrtt`). C tor's clients upload with it, because its exits request it.
#[derive(Debug)]
struct MinRtt;

impl Scheduler for MinRtt {
    fn choose(&mut self, _now: Time, paths: &[PathView]) -> Option<PathId> {
        quickest(paths, usable(paths)).map(PathId::at)
    }

    fn load_aware(&self) -> bool {
        true
    }

    fn waits(&self) -> bool {
        true
    }
}

fn build(argument: Option<&str>, _paths: usize, _stream: Stream) -> BuildResult {
    no_argument("minrtt", argument)?;
    Ok(Box::new(MinRtt))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::LegView;

    #[test]
    fn the_quickest_leg_is_waited_for() {
        let leg =
            |ms, room| PathView::leg(Some(Duration::from_millis(ms)), room, LegView::default());
        let choice = |legs: &[PathView]| MinRtt.choose(Time::ZERO, legs);
        assert_eq!(choice(&[leg(30, 9), leg(20, 0)]), Some(PathId(1)));
        assert_eq!(choice(&[leg(20, 1), leg(20, 1)]), Some(PathId(0)));
    }
}
