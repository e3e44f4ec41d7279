//! Samples apart for users who allow few relays, and for those who enter by bridges (guard-spec 2):
//! what such a user samples must not be left behind when the wish is gone, nor the other way round.

use super::{GuardParams, Guards, Listing, Name, Sampled};

/// Which sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instance {
    /// The usual one.
    Default,
    /// That of a user who allows but a small part of the guards.
    Restricted,
    /// That of a user who enters by bridges: all of them, in their order.
    Bridges,
}

/// All samples of a client, and which one is in use.
#[derive(Clone, Debug)]
pub struct Instances<I> {
    default: Guards<I>,
    restricted: Guards<I>,
    bridges: Guards<I>,
    current: Option<Instance>,
    /// The user was warned.
    warned: bool,
}

impl<I: Name> Instances<I> {
    /// Those that an earlier run kept.
    #[must_use]
    pub fn restore(
        default: Vec<Sampled<I>>,
        restricted: Vec<Sampled<I>>,
        bridges: Vec<Sampled<I>>,
    ) -> Instances<I> {
        let [default, restricted, bridges] = [default, restricted, bridges].map(Guards::restore);
        Instances { default, restricted, bridges, current: None, warned: false }
    }

    /// The user enters by bridges, from now on: [`Instances::select`] is not to be called.
    pub fn use_bridges(&mut self) {
        self.current = Some(Instance::Bridges);
    }

    /// The sample of an instance.
    #[must_use]
    pub fn of(&self, instance: Instance) -> &Guards<I> {
        match instance {
            Instance::Default => &self.default,
            Instance::Restricted => &self.restricted,
            Instance::Bridges => &self.bridges,
        }
    }

    /// Which one is in use.
    #[must_use]
    pub fn current(&self) -> Instance {
        self.current.unwrap_or(Instance::Default)
    }

    /// The sample in use.
    pub fn guards(&mut self) -> &mut Guards<I> {
        match self.current() {
            Instance::Default => &mut self.default,
            Instance::Restricted => &mut self.restricted,
            Instance::Bridges => &mut self.bridges,
        }
    }

    /// Chooses the sample by the share of all guards that the user allows: once chosen, it changes
    /// only when the share is well beyond the bound, so that it does not go back and forth. True if
    /// so few are allowed that the user should be warned: once.
    pub fn select(
        &mut self,
        allowed: usize,
        listing: &impl Listing<I>,
        params: &GuardParams,
    ) -> bool {
        let (allowed, all) = (allowed as u64, listing.count() as u64);
        // Shares in parts of ten thousand, the bound in percent, and five percent of it on either
        // side.
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
