//! Separate samples of guards: for users who allow few relays, for users of bridges, and for all
//! others (guard-spec 2). The guards chosen under a restriction must not affect the guards used
//! without it, and vice versa.

use super::{GuardParams, Guards, Listing, Name, SampledGuard};

/// Name of one of the client's separate samples of guards (relays drawn at random).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instance {
    /// The sample of guards of a user who has no bridges and allows at least
    /// `guard-meaningful-restriction-percent` of all guards.
    Default,
    /// The sample of guards of a user who allows less than `guard-meaningful-restriction-percent`
    /// of all guards.
    Restricted,
    /// The sample of guards of a user of bridges. It contains all bridges, in the user's order.
    Bridges,
}

/// All samples of guards that a client has, and the choice of the sample that is in use now.
#[derive(Clone, Debug)]
pub struct Instances<I> {
    default: Guards<I>,
    restricted: Guards<I>,
    bridges: Guards<I>,
    current: Option<Instance>,
    /// True if the user was warned that the configuration allows only few guards.
    warned: bool,
}

impl<I: Name> Instances<I> {
    /// Restores the samples of guards that an earlier process stored.
    #[must_use]
    pub fn restore(
        default: Vec<SampledGuard<I>>,
        restricted: Vec<SampledGuard<I>>,
        bridges: Vec<SampledGuard<I>>,
    ) -> Instances<I> {
        let [default, restricted, bridges] = [default, restricted, bridges].map(Guards::restore);
        Instances { default, restricted, bridges, current: None, warned: false }
    }

    /// Selects the sample of guards that consists of bridges. After this, the caller must not call
    /// [`Instances::select`].
    pub fn use_bridges(&mut self) {
        self.current = Some(Instance::Bridges);
    }

    /// Returns the sample of guards named `instance`.
    #[must_use]
    pub fn of(&self, instance: Instance) -> &Guards<I> {
        match instance {
            Instance::Default => &self.default,
            Instance::Restricted => &self.restricted,
            Instance::Bridges => &self.bridges,
        }
    }

    /// Returns the name of the sample of guards that is in use now.
    #[must_use]
    pub fn current(&self) -> Instance {
        self.current.unwrap_or(Instance::Default)
    }

    /// Returns the sample of guards that is in use now.
    pub fn guards(&mut self) -> &mut Guards<I> {
        match self.current() {
            Instance::Default => &mut self.default,
            Instance::Restricted => &mut self.restricted,
            Instance::Bridges => &mut self.bridges,
        }
    }

    /// Selects the restricted sample if the user allows less than
    /// `guard-meaningful-restriction-percent` of all guards, otherwise the default sample.
    /// `allowed` is the number of allowed guards. To prevent oscillation, a change of the sample
    /// needs a clear difference: the share of allowed guards must be below 95 % of the parameter,
    /// or at least 105 % of it. Returns true if the user must be warned now that too few guards
    /// are allowed.
    pub fn select(
        &mut self,
        allowed: usize,
        listing: &impl Listing<I>,
        params: &GuardParams,
    ) -> bool {
        let (allowed, all) = (allowed as u64, listing.count() as u64);
        // Shares are in units of 1/10,000. The bound is in percent, with a hysteresis of 5 % of
        // the bound on either side.
        let share = (allowed * 10_000).checked_div(all).unwrap_or(10_000);
        let bound = match self.current {
            None | Some(Instance::Bridges) => params.meaningful_restriction * 100,
            Some(Instance::Default) => params.meaningful_restriction * 95,
            Some(Instance::Restricted) => params.meaningful_restriction * 105,
        };
        let few = share < bound;
        self.current = Some(if few { Instance::Restricted } else { Instance::Default });
        let extreme = share < params.extreme_restriction * 100;
        let warn = extreme && !self.warned;
        self.warned = extreme;
        warn
    }
}
