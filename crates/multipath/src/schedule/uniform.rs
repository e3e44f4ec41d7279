//! A scheduler that draws a random path for each run, all with equal probability.

use rand::RngExt;

use super::{BuildResult, Family, Scheduler, no_argument};
use crate::path::usable;
use crate::seed::Stream;
use crate::{PathId, PathView, Time};

/// The scheduler `uniform`: syntax and help texts.
pub(super) const FAMILY: Family = Family {
    name: "uniform",
    syntax: "uniform",
    example: "uniform",
    about: "a random path for each run, each path with the same probability",
    plain: "paths are chosen at random, all with the same probability",
    every: None,
    needs_windows: false,
    build,
};

/// Uniform random scheduler (CoMPS, section 4.2, "UR").
#[derive(Debug)]
pub struct Uniform {
    stream: Stream,
}

impl Uniform {
    /// Returns a scheduler that draws from `stream`.
    pub fn new(stream: Stream) -> Uniform {
        Uniform { stream }
    }
}

impl Scheduler for Uniform {
    fn choose(&mut self, _now: Time, paths: &[PathView]) -> Option<PathId> {
        let candidates = usable(paths).count();
        if candidates == 0 {
            return None;
        }
        let drawn = self.stream.random_range(0..candidates as u32) as usize;
        // If all paths are usable, no loop has to skip unusable paths. The length of such a loop
        // is random, and would cost mispredicted branches.
        let all = candidates == paths.len();
        if all { Some(PathId::at(drawn)) } else { usable(paths).nth(drawn).map(PathId::at) }
    }

    fn reseed(&mut self, stream: Stream) {
        self.stream = stream;
    }
}

fn build(argument: Option<&str>, _paths: usize, stream: Stream) -> BuildResult {
    no_argument("uniform", argument)?;
    Ok(Box::new(Uniform::new(stream)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::stream;

    #[test]
    fn each_usable_path_gets_its_equal_share() {
        let mut scheduler = Uniform::new(stream(1, 0, "scheduler"));
        let paths = [PathView::open(), PathView::dead(), PathView::open(), PathView::open()];
        let mut counts = [0u32; 4];
        for _ in 0..30_000 {
            counts[scheduler.choose(Time::ZERO, &paths).unwrap().index()] += 1;
        }
        assert_eq!(counts[1], 0);
        for index in [0, 2, 3] {
            let deviation = (f64::from(counts[index]) - 10_000.0).abs();
            assert!(deviation < 5.0 * 81.7, "{counts:?}: five standard deviations of a binomial");
        }
    }
}
