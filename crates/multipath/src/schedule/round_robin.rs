//! A scheduler that takes each path in turn.

use super::{BuildResult, Family, Scheduler, no_argument};
use crate::path::usable;
use crate::seed::Stream;
use crate::{PathId, PathView, Time};

/// The scheduler `round-robin`: syntax and help texts.
pub(super) const FAMILY: Family = Family {
    name: "round-robin",
    syntax: "round-robin",
    example: "round-robin",
    about: "one path after another, again and again",
    plain: "the paths take turns",
    every: None,
    needs_windows: false,
    build,
};

/// Scheduler that chooses the usable paths in the given order, again and again: round robin
/// (CoMPS, section 4.2, "RR").
#[derive(Debug, Default)]
pub struct RoundRobin {
    next: usize,
}

impl RoundRobin {
    /// Returns a scheduler that begins with the first path.
    pub fn new() -> RoundRobin {
        RoundRobin::default()
    }
}

impl Scheduler for RoundRobin {
    fn choose(&mut self, _now: Time, paths: &[PathView]) -> Option<PathId> {
        let later = usable(paths).find(|&index| index >= self.next);
        let index = later.or_else(|| usable(paths).next())?;
        self.next = index + 1;
        Some(PathId::at(index))
    }
}

fn build(argument: Option<&str>, _paths: usize, _stream: Stream) -> BuildResult {
    no_argument("round-robin", argument)?;
    Ok(Box::new(RoundRobin::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_path_is_left_out_of_the_turn() {
        let mut scheduler = RoundRobin::new();
        let paths = [PathView::open(), PathView::dead(), PathView::open()];
        let turns: Vec<_> =
            (0..4).map(|_| scheduler.choose(Time::ZERO, &paths).unwrap().0).collect();
        assert_eq!(turns, [0, 2, 0, 2]);
    }
}
