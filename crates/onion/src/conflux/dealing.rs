//! Distribution of messages among the legs (circuits) of a set.

use std::fmt;

use anabranch_multipath::schedule::Spec;
use anabranch_multipath::{Every, Silence, seed};

use crate::wire::conflux::DesiredUx;

/// The shortest run (consecutive cells on one of the parallel circuits): one cell, so that the
/// scheduler chooses the leg of each cell separately.
const EACH: Every = Every::Packets { mean: 1, random: false };

/// A scheduler and its settings, such as the time or the number of cells for which it stays on one
/// leg (parallel circuit).
#[derive(Clone, Debug)]
pub struct LegScheduler {
    /// The scheduler that chooses the leg (parallel circuit) for each run of consecutive cells.
    pub schedule: Spec,
    /// Length of a run of consecutive cells on one leg (parallel circuit).
    pub every: Every,
    /// Time without traffic after which a new random schedule is chosen; `None` if the first
    /// schedule is kept.
    pub redraw: Option<Silence>,
}

impl LegScheduler {
    /// Returns the scheduler that C tor uses if the other end does not request a particular one.
    #[must_use]
    pub fn usual() -> Spec {
        Spec::over_windows("lowrtt").expect("a scheduler of this name exists")
    }

    /// Returns the scheduler `name`, which stays on one leg (parallel circuit) for its default
    /// length.
    ///
    /// # Panics
    /// If there is no scheduler of this name.
    #[must_use]
    pub fn of(name: &str) -> LegScheduler {
        let schedule = Spec::over_windows(name).expect("a scheduler of this name exists");
        let every = schedule.family().every.and_then(|every| every.parse().ok());
        LegScheduler { schedule, every: every.unwrap_or(EACH), redraw: None }
    }

    /// Parses the other end's request for a scheduler and the length of its runs (consecutive
    /// cells on one of the parallel circuits), such as `round-robin 1p`. Returns `None` if no
    /// scheduler of this name supports `legs` legs, or if the length is invalid.
    #[must_use]
    pub fn read(text: &str, legs: usize) -> Option<LegScheduler> {
        let (schedule, every) = text.split_once(' ')?;
        let (schedule, every) = (Spec::over_windows(schedule).ok()?, every.parse().ok()?);
        let known = schedule.build(legs, seed::stream(0, 0, "scheduler")).is_ok();
        known.then_some(LegScheduler { schedule, every, redraw: None })
    }

    /// Returns the scheduler that C tor uses if the other end requests `desired`. This scheduler
    /// chooses a leg (parallel circuit) for each cell separately.
    #[must_use]
    pub fn as_desired(desired: DesiredUx) -> LegScheduler {
        let schedule =
            Spec::over_windows(desired.scheduler()).unwrap_or_else(|_| LegScheduler::usual());
        LegScheduler { schedule, every: EACH, redraw: None }
    }
}

impl fmt::Display for LegScheduler {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.schedule, self.every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wish_names_a_scheduler_of_c_tor() {
        for (desired, name) in [
            (DesiredUx::None, "lowrtt"),
            (DesiredUx::MinLatency, "minrtt"),
            (DesiredUx::LowMemLatency, "minrtt"),
            (DesiredUx::HighThroughput, "lowrtt"),
            (DesiredUx::LowMemThroughput, "minrtt"),
        ] {
            let LegScheduler { schedule, every, .. } = LegScheduler::as_desired(desired);
            assert_eq!((schedule.to_string().as_str(), every.to_string().as_str()), (name, "1p"));
        }
        assert_eq!(LegScheduler::usual().to_string(), "lowrtt");
    }

    #[test]
    fn what_an_end_would_like_reads_back_and_nonsense_does_not() {
        for text in ["round-robin 1p", "weights:1,2,3,4,5,6,7,8 100ms", "pull 50-70p"] {
            assert_eq!(
                LegScheduler::read(text, 8).map(|dealing| dealing.to_string()).as_deref(),
                Some(text)
            );
        }
        for text in ["", "pull", "fastest 1p", "pull 0p", "weights:1,2 1p", "pull 1p 1p"] {
            assert!(LegScheduler::read(text, 8).is_none(), "{text}");
        }
        assert_eq!(LegScheduler::of("conflux-2013").to_string(), "conflux-2013 1p");
    }
}
