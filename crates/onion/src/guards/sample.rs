//! A guard of a client's sample: a relay that was drawn at random as a possible guard.

use std::cmp::Reverse;

use rand_core::Rng;

use super::{GuardParams, before};

/// The state of a guard that is stored on disk (guard-spec 4.1). Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledGuard<I> {
    /// The relay that is the guard.
    pub id: I,
    /// The time at which the guard was added to the sample, randomly shifted into the past.
    pub added: u64,
    /// True if the last consensus lists the relay as a guard.
    pub listed: bool,
    /// The time since which consensuses do not list the relay, randomly shifted into the past;
    /// `None` while they list it.
    pub unlisted_since: Option<u64>,
    /// The record of the first circuit that was built through the guard; `None` if no circuit was
    /// built through it yet.
    pub confirmed: Option<Confirmed>,
}

/// The record of the first circuit that was built through a guard. This circuit confirms the
/// guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed {
    /// The time at which the circuit was built, randomly shifted into the past.
    pub on: u64,
    /// The guard's place in the order of confirmed guards. Guards with lower places are preferred.
    pub place: u32,
}

impl<I> SampledGuard<I> {
    /// Creates the state of a guard that was just added to the sample.
    pub(super) fn new(id: I, added: u64) -> SampledGuard<I> {
        SampledGuard { id, added, listed: true, unlisted_since: None, confirmed: None }
    }

    /// Returns whether the guard's lifetime is over.
    pub(super) fn is_over(&self, now: u64, params: &GuardParams) -> bool {
        now >= self.over_at(params)
    }

    /// Returns the time at which the guard's lifetime ends. The result is valid until a consensus
    /// starts or stops listing the guard.
    pub(super) fn over_at(&self, params: &GuardParams) -> u64 {
        let unlisted = self.unlisted_since.filter(|_| !self.listed);
        let long_gone = unlisted.map_or(u64::MAX, |since| since + params.unlisted_lifetime);
        let confirmed =
            self.confirmed.map_or(0, |confirmed| confirmed.on + params.confirmed_lifetime);
        let old = (self.added + params.lifetime).max(confirmed);
        long_gone.min(old).saturating_add(1)
    }
}

/// A guard of the sample, with additional state that is not stored on disk.
#[derive(Clone, Debug)]
pub(super) struct Guard<I> {
    pub(super) kept: SampledGuard<I>,
    pub(super) reach: GuardReachability,
    pub(super) tried: Option<u64>,
    pub(super) failing_since: Option<u64>,
    /// True while a circuit is under construction that will show whether the guard is reachable.
    pub(super) pending: bool,
    /// True if the consensus lists the guard and the user allows it.
    pub(super) filtered: bool,
}

/// Present knowledge of a guard's reachability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardReachability {
    /// The guard is reachable: the last circuit through it was built.
    Yes,
    /// The guard is not reachable: the last circuit through it was not built.
    No,
    /// The reachability is unknown, or it is time for another attempt.
    Maybe,
}

/// The sort key of a guard by preference (guard-spec 4.3); the smallest key is the best. It
/// contains the guard's place among confirmed guards (the maximum if unconfirmed), whether a
/// circuit through the guard is being tried, and the time of the last attempt. Guards that are
/// being tried come first among unconfirmed guards, and guards without an attempt come last.
pub(super) type Rank = (u32, Reverse<bool>, u64);

impl<I> From<SampledGuard<I>> for Guard<I> {
    fn from(kept: SampledGuard<I>) -> Guard<I> {
        Guard {
            filtered: kept.listed,
            kept,
            reach: GuardReachability::Maybe,
            tried: None,
            failing_since: None,
            pending: false,
        }
    }
}

impl<I> Guard<I> {
    /// Returns whether a circuit through the guard may be tried now.
    pub(super) fn is_usable(&self) -> bool {
        self.filtered && self.reach != GuardReachability::No
    }

    /// Returns the guard's place in the order of confirmed guards; `None` if it is not confirmed.
    pub(super) fn place(&self) -> Option<u32> {
        self.kept.confirmed.map(|confirmed| confirmed.place)
    }

    pub(super) fn rank(&self) -> Rank {
        let place = self.place().unwrap_or(u32::MAX);
        (place, Reverse(self.pending), self.tried.unwrap_or(u64::MAX))
    }

    /// Records whether a consensus lists the guard. The consensus is valid from `dated`.
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
