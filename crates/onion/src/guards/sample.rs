//! A guard of the sample.

use std::cmp::Reverse;

use rand_core::Rng;

use super::{GuardParams, before};

/// The state of a guard that is stored from one run to the next (guard-spec 4.1). Times are
/// seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampled<I> {
    /// The relay.
    pub id: I,
    /// The time at which it was drawn, randomly shifted into the past.
    pub added: u64,
    /// Whether the last consensus lists it as a guard.
    pub listed: bool,
    /// The time since which no consensus has listed it, randomly shifted into the past.
    pub unlisted_since: Option<u64>,
    /// Whether, and when, a circuit was first built through it.
    pub confirmed: Option<Confirmed>,
}

/// The record that a circuit was built through a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed {
    /// The time, randomly shifted into the past.
    pub on: u64,
    /// Its place in the order of confirmed guards: lower ones are preferred.
    pub place: u32,
}

impl<I> Sampled<I> {
    /// Creates the state of a guard that was just drawn.
    pub(super) fn new(id: I, added: u64) -> Sampled<I> {
        Sampled { id, added, listed: true, unlisted_since: None, confirmed: None }
    }

    /// Returns whether it has expired.
    pub(super) fn is_over(&self, now: u64, params: &GuardParams) -> bool {
        now >= self.over_at(params)
    }

    /// Returns the time at which it expires if it stays listed, or unlisted, as it is.
    pub(super) fn over_at(&self, params: &GuardParams) -> u64 {
        let unlisted = self.unlisted_since.filter(|_| !self.listed);
        let long_gone = unlisted.map_or(u64::MAX, |since| since + params.unlisted_lifetime);
        let confirmed =
            self.confirmed.map_or(0, |confirmed| confirmed.on + params.confirmed_lifetime);
        let old = (self.added + params.lifetime).max(confirmed);
        long_gone.min(old).saturating_add(1)
    }
}

/// A guard, with state that only the present run has.
#[derive(Clone, Debug)]
pub(super) struct Guard<I> {
    pub(super) kept: Sampled<I>,
    pub(super) reach: Reach,
    pub(super) tried: Option<u64>,
    pub(super) failing_since: Option<u64>,
    /// Whether a circuit is being built to find out whether it is reachable.
    pub(super) pending: bool,
    /// Whether it is listed and the user allows it.
    pub(super) filtered: bool,
}

/// Whether a guard is reachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The last circuit through it was built.
    Yes,
    /// The last circuit through it was not built.
    No,
    /// Unknown, or due for another attempt.
    Maybe,
}

/// The order of preference (guard-spec 4.3), best first: confirmed guards, then those being tried,
/// the longest-running attempt first.
pub(super) type Rank = (u32, Reverse<bool>, u64);

impl<I> From<Sampled<I>> for Guard<I> {
    fn from(kept: Sampled<I>) -> Guard<I> {
        Guard {
            filtered: kept.listed,
            kept,
            reach: Reach::Maybe,
            tried: None,
            failing_since: None,
            pending: false,
        }
    }
}

impl<I> Guard<I> {
    /// Returns whether it may be tried.
    pub(super) fn is_usable(&self) -> bool {
        self.filtered && self.reach != Reach::No
    }

    /// Returns its place in the order of confirmed guards.
    pub(super) fn place(&self) -> Option<u32> {
        self.kept.confirmed.map(|confirmed| confirmed.place)
    }

    pub(super) fn rank(&self) -> Rank {
        let place = self.place().unwrap_or(u32::MAX);
        (place, Reverse(self.pending), self.tried.unwrap_or(u64::MAX))
    }

    /// Records whether the consensus from `dated` lists it.
    pub(super) fn listed(
        &mut self,
        listed: bool,
        dated: u64,
        params: &GuardParams,
        rng: &mut dyn Rng,
    ) {
        let kept = &mut self.kept;
        kept.listed = listed;
        if listed {
            kept.unlisted_since = None;
        } else if kept.unlisted_since.is_none() {
            kept.unlisted_since = Some(before(dated, params.unlisted_lifetime / 5, rng));
        }
    }
}
