//! C tor's scheduler CWNDRTT. No Conflux peer can request it, because no UX value (the preference
//! that a peer sends) stands for it.

use std::time::Duration;

use super::{BuildResult, Family, Scheduler, no_argument};
use crate::path::{quickest, ready, usable};
use crate::seed::Stream;
use crate::{PathId, PathView, Time};

/// The scheduler `cwndrtt`: syntax, help texts and default run length.
pub(super) const FAMILY: Family = Family {
    name: "cwndrtt",
    syntax: "cwndrtt",
    example: "cwndrtt",
    about: "the path with the lowest round-trip time. While the congestion window of this path is \
            full, another path is chosen, if it can send at least one packet before the fastest \
            path has room again (CWNDRTT in C tor)",
    plain: "the circuit that answers fastest is chosen; while its congestion window is full, \
            another circuit is chosen",
    every: Some("1p"),
    needs_windows: true,
    build,
};

/// C tor's rule (`conflux_decide_circ_cwndrtt`). The scheduler chooses the leg (circuit of a set)
/// with the lowest round-trip time if that leg has room. Otherwise it chooses a leg with room that
/// can send at least one cell while the acknowledgements of the fastest leg are in flight. The
/// condition is room × least RTT / own RTT > 0, in whole cells, or any room in slow start.
///
/// If there are several such legs, C tor's comment promises the leg with the lowest round-trip
/// time, but its loop takes the *last* leg in the list. This scheduler follows the loop. No UX
/// (the preference that a peer sends) leads to this rule.
#[derive(Debug)]
struct CwndRtt;

impl Scheduler for CwndRtt {
    fn choose(&mut self, _now: Time, paths: &[PathView]) -> Option<PathId> {
        let best = quickest(paths, usable(paths))?;
        if paths[best].has_room() {
            return Some(PathId::at(best));
        }
        let least = paths[best].rtt.unwrap_or(Duration::ZERO);
        let other = ready(paths).filter(|&index| suffices(&paths[index], least)).last();
        Some(PathId::at(other.unwrap_or(best)))
    }

    fn load_aware(&self) -> bool {
        true
    }

    fn waits(&self) -> bool {
        true
    }
}

/// Returns whether a leg with room can send at least one whole cell within `least`, the lowest
/// round-trip time of any leg. Always true in slow start.
fn suffices(view: &PathView, least: Duration) -> bool {
    let room = u128::from(view.window.unwrap_or(u64::MAX));
    let own = view.rtt.unwrap_or(Duration::MAX).as_micros().max(1);
    view.leg.slow_start || room * least.as_micros() / own > 0
}

fn build(argument: Option<&str>, _paths: usize, _stream: Stream) -> BuildResult {
    no_argument("cwndrtt", argument)?;
    Ok(Box::new(CwndRtt))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LegView;

    fn leg(ms: u64, room: u64, slow_start: bool) -> PathView {
        let leg = LegView { slow_start, ..LegView::default() };
        PathView::leg(Some(Duration::from_millis(ms)), room, leg)
    }

    fn choice(legs: &[PathView]) -> Option<PathId> {
        CwndRtt.choose(Time::ZERO, legs)
    }

    #[test]
    fn of_the_legs_whose_window_suffices_the_last_is_taken_not_the_quickest() {
        let full = leg(10, 0, false);
        assert_eq!(choice(&[leg(20, 1, false), leg(10, 1, false)]), Some(PathId(1)));
        assert_eq!(choice(&[full, leg(20, 9, false), leg(90, 9, false)]), Some(PathId(2)));
    }

    #[test]
    fn a_window_that_is_too_small_does_not_suffice_but_in_slow_start() {
        let full = leg(10, 0, false);
        assert_eq!(choice(&[full, leg(100, 9, false)]), Some(PathId(0)), "9 × 10 / 100 is 0");
        assert_eq!(choice(&[full, leg(100, 10, false)]), Some(PathId(1)));
        assert_eq!(choice(&[full, leg(100, 1, true)]), Some(PathId(1)));
    }
}
