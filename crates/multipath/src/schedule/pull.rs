//! mTor's scheduler, in which each leg (circuit of a set) takes the next cell when its window
//! opens.

use super::{BuildResult, Family, Scheduler, no_argument};
use crate::path::{ready, usable};
use crate::seed::Stream;
use crate::{PathId, PathView, Time};

/// The scheduler `pull`: syntax, help texts and default run length.
pub(super) const FAMILY: Family = Family {
    name: "pull",
    syntax: "pull",
    example: "pull",
    about: "one path after another, one packet each; paths whose congestion window is full are \
            left out (the method of the paper mTor)",
    plain: "each circuit takes the next data as soon as it can carry more",
    every: Some("1p"),
    needs_windows: true,
    build,
};

/// Scheduler in which a leg (circuit of a set) pulls the oldest cell whenever its window is open
/// (mTor: Yang and Li, CNS 2015; paper 001: de la Cadena et al., DBSec 2019, section 3.2). With
/// fixed windows, each stream has its own window on each leg. With congestion control, each leg
/// has one window.
///
/// The scheduler needs no estimate. If more cells wait than the windows take, a leg has room only
/// after a SENDME has opened its window. So the share of a leg follows the rate of its SENDMEs. If
/// several legs have room, they take turns.
#[derive(Debug, Default)]
struct Pull {
    next: usize,
}

impl Scheduler for Pull {
    fn choose(&mut self, _now: Time, paths: &[PathView]) -> Option<PathId> {
        let later = ready(paths).find(|&index| index >= self.next);
        let Some(index) = later.or_else(|| ready(paths).next()) else {
            return usable(paths).next().map(PathId::at);
        };
        self.next = index + 1;
        Some(PathId::at(index))
    }

    fn load_aware(&self) -> bool {
        true
    }
}

fn build(argument: Option<&str>, _paths: usize, _stream: Stream) -> BuildResult {
    no_argument("pull", argument)?;
    Ok(Box::new(Pull::default()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::LegView;

    #[test]
    fn legs_with_room_take_turns_and_a_woken_one_takes_all() {
        let leg = |room| PathView::leg(Some(Duration::from_millis(9)), room, LegView::default());
        let mut pull = Pull::default();
        let mut choices = |legs: &[PathView], n: usize| -> Vec<u16> {
            (0..n).map(|_| pull.choose(Time::ZERO, legs).unwrap().0).collect()
        };
        assert_eq!(choices(&[leg(9), leg(9), leg(9)], 4), [0, 1, 2, 0]);
        assert_eq!(choices(&[leg(0), leg(0), leg(31)], 3), [2, 2, 2]);
    }
}
