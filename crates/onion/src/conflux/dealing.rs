//! How the messages of a set are dealt among its legs.

use anabranch_multipath::schedule::Spec;
use anabranch_multipath::{Every, Silence};

use crate::wire::conflux::DesiredUx;

/// A scheduler, and the length of its runs in cells or in time.
#[derive(Clone, Debug)]
pub struct Dealing {
    /// Which leg takes a run.
    pub schedule: Spec,
    /// How long a run is.
    pub every: Every,
    /// The silence after which the schedule is drawn anew, if it ever is.
    pub redraw: Option<Silence>,
}

impl Dealing {
    /// The scheduler of C tor where the other end does not wish for another.
    #[must_use]
    pub fn usual() -> Spec {
        Spec::over_windows("lowrtt").expect("a scheduler of this name exists")
    }

    /// As C tor deals to an end with this wish: each cell anew.
    #[must_use]
    pub fn as_desired(desired: DesiredUx) -> Dealing {
        let schedule = Spec::over_windows(desired.scheduler()).unwrap_or_else(|_| Dealing::usual());
        Dealing { schedule, every: Every::Packets { mean: 1, random: false }, redraw: None }
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
            let Dealing { schedule, every, .. } = Dealing::as_desired(desired);
            assert_eq!((schedule.to_string().as_str(), every.to_string().as_str()), (name, "1p"));
        }
        assert_eq!(Dealing::usual().to_string(), "lowrtt");
    }
}
