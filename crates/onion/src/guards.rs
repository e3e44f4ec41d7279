//! Guards: the relays through which a client enters the network (guard-spec). A client has few
//! guards, keeps them for months, and replaces them only if they are unreachable. A client that
//! changes its guards often will eventually choose a hostile one.
//!
//! * The *sample* contains relays drawn at random by weight, in the order of drawing. It grows
//!   only as needed, which limits the number of relays that can observe the client in a period.
//! * *Filtered* guards are the relays of the sample that are in the consensus and that the user
//!   allows. *Confirmed* guards have been the first hop of a built circuit; they are ordered by
//!   the time of their first circuit. *Primary* guards are the first few filtered guards, with
//!   confirmed guards first.
//! * A circuit through a primary guard is usable as soon as it is built. A circuit through another
//!   guard waits until it is certain that no better guard works ([`Guards::ready`]).
//!
//! The core is generic over the identifiers of relays. A simulation of many clients can thus use
//! small numbers. Times are seconds since 1970.

use rand_core::Rng;

use crate::draw::below;

use circuits::Circuits;
pub use circuits::Readiness;
pub use instances::{Instance, Instances};
pub use params::GuardParams;
use sample::Guard;
pub use sample::{Confirmed, GuardReachability, SampledGuard};

mod circuits;
mod instances;
mod params;
mod retry;
mod sample;

/// An identifier of a relay.
pub trait Name: Copy + Ord {}

impl<I: Copy + Ord> Name for I {}

/// The relays from which guards are chosen at random, determined by a consensus and the user's
/// restrictions.
pub trait Listing<I> {
    /// Returns the number of relays that could be guards.
    fn count(&self) -> usize;
    /// Returns whether the relay `id` could be a guard.
    fn lists(&self, id: I) -> bool;
    /// Returns true if the client may use the relay `id` as a guard, because the user's
    /// restrictions permit it.
    fn allows(&self, id: I) -> bool;
    /// Returns a random relay that could be a guard, by the weights of path selection. Skips
    /// relays for which `taken` returns true. Returns `None` if no relay is left.
    fn draw(&self, taken: &dyn Fn(I) -> bool, rng: &mut dyn Rng) -> Option<I>;
}

/// Purpose of a circuit. It decides from how many primary guards the circuit's guard is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A circuit for users' streams.
    Traffic,
    /// A circuit for directory requests, which are spread over more guards.
    Directory,
}

/// A guard chosen for a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice<I> {
    /// The relay that is the guard.
    pub id: I,
    /// State that determines whether the circuit may be used, or must wait for a circuit through a
    /// better guard.
    pub readiness: Readiness,
}

/// The guards of a client, and the circuits whose use depends on them.
#[derive(Clone, Debug)]
pub struct Guards<I> {
    params: GuardParams,
    /// The sample: relays drawn at random as possible guards, in the order of drawing.
    sample: Vec<Guard<I>>,
    /// The primary guards, best first.
    primary: Vec<I>,
    circuits: Circuits<I>,
    /// The last time at which a circuit was built; `None` if none was built yet.
    online: Option<u64>,
}

impl<I: Name> Guards<I> {
    /// Restores the sample of guards that an earlier process stored. `kept` is in the order in
    /// which the guards were drawn. The caller must call [`Guards::renew`] next.
    #[must_use]
    pub fn restore(kept: Vec<SampledGuard<I>>) -> Guards<I> {
        Guards {
            params: GuardParams::default(),
            sample: kept.into_iter().map(Guard::from).collect(),
            primary: Vec::new(),
            circuits: Circuits::default(),
            online: None,
        }
    }

    /// Returns the guards to store on disk, in the order in which they were drawn.
    pub fn kept(&self) -> impl Iterator<Item = &SampledGuard<I>> {
        self.sample.iter().map(|guard| &guard.kept)
    }

    /// Returns the primary guards (the guards that the client tries first), best first.
    #[must_use]
    pub fn primary(&self) -> &[I] {
        &self.primary
    }

    /// Returns the reachability of a guard, as far as this process has observed it.
    #[must_use]
    pub fn reach(&self, id: I) -> GuardReachability {
        self.find(id).map_or(GuardReachability::Maybe, |guard| guard.reach)
    }

    /// Applies a new consensus or new restrictions (guard-spec 4.10). `consensus` contains the
    /// time from which the consensus is valid, and `true` if the consensus is valid at `now`.
    /// Guards are removed only if this flag is `true`. Returns true if the state to store has
    /// changed.
    pub fn renew(
        &mut self,
        now: u64,
        consensus: (u64, bool),
        params: &GuardParams,
        listing: &impl Listing<I>,
        rng: &mut dyn Rng,
    ) -> bool {
        let before: Vec<SampledGuard<I>> = self.kept().cloned().collect();
        let (dated, live) = consensus;
        self.params = params.clone();
        for guard in &mut self.sample {
            guard.listed(listing.lists(guard.kept.id), dated, params, rng);
            guard.filtered = guard.kept.listed && listing.allows(guard.kept.id);
        }
        if live {
            self.sample.retain(|guard| !guard.kept.is_over(now, params));
        }
        self.fill(now, listing, rng);
        self.elect();
        !self.kept().eq(&before)
    }

    /// Returns the time in seconds since 1970 at which [`Guards::renew`] will remove a guard,
    /// provided that later consensuses list the same guards. Returns `None` if the sample is
    /// empty.
    #[must_use]
    pub fn next_over(&self) -> Option<u64> {
        self.sample.iter().map(|guard| guard.kept.over_at(&self.params)).min()
    }

    /// Chooses distinct guards for the legs of a set (parallel circuits), one for each circuit in
    /// `keys`. Returns fewer guards than legs if no more are available.
    ///
    /// The guards in use are the first usable primary guards that `avoid` does not exclude. Their
    /// number is `guard-n-primary-guards-to-use` or the number of legs, whichever is larger. If
    /// there are more such guards than legs, each leg takes one at random; otherwise the legs take
    /// them best first. Remaining legs take further guards of the sample, as in guard-spec 4.6. A
    /// client whose sets have several legs passes [`GuardParams::for_legs`] to [`Guards::renew`].
    pub fn choose_legs(
        &mut self,
        now: u64,
        keys: &[u64],
        avoid: &dyn Fn(I) -> bool,
        listing: &impl Listing<I>,
        rng: &mut dyn Rng,
    ) -> Vec<Choice<I>> {
        let mut legs: Vec<Choice<I>> = Vec::with_capacity(keys.len());
        for &key in keys {
            let avoided = |id| avoid(id) || legs.iter().any(|leg| leg.id == id);
            let circuit = (key, keys.len());
            let Some(choice) = self.choose_leg(now, circuit, &avoided, listing, rng) else {
                break;
            };
            legs.push(choice);
        }
        legs
    }

    /// Chooses a guard for one leg (parallel circuit) of a set of `legs` legs, by the rules of
    /// [`Guards::choose_legs`]. From the second leg on, `avoid` must exclude the guards of the
    /// other legs. Returns `None` if no guard is available.
    pub fn choose_leg(
        &mut self,
        now: u64,
        (key, legs): (u64, usize),
        avoid: &dyn Fn(I) -> bool,
        listing: &impl Listing<I>,
        rng: &mut dyn Rng,
    ) -> Option<Choice<I>> {
        let few = self.params.primary_to_use.saturating_sub(legs) + 1;
        self.choose_among(few, now, key, avoid, listing, rng)
    }

    /// Chooses the guard of an additional leg (parallel circuit): the best guard in use that
    /// `avoid` does not exclude. The guards in use are the first [`GuardParams::primary_to_use`]
    /// usable primary guards. No other guard is chosen, so that additional legs do not expose the
    /// client to more relays (C tor's issue 40876). Returns `None` if `avoid` excludes all guards
    /// in use.
    pub fn choose_further_leg(
        &mut self,
        now: u64,
        key: u64,
        avoid: &dyn Fn(I) -> bool,
    ) -> Option<Choice<I>> {
        self.retry(now);
        let usable = |id: &&I| self.find(**id).is_some_and(Guard::is_usable);
        let mut in_use = self.primary.iter().filter(usable).take(self.params.primary_to_use);
        let id = *in_use.find(|id| !avoid(**id))?;
        let choice = Choice { id, readiness: Readiness::OnCompletion };
        let avoided = self.sample.iter().map(|guard| guard.kept.id).filter(|&id| avoid(id));
        self.circuits.began(key, choice, now, avoided.collect());
        self.guard(id)?.tried = Some(now);
        Some(choice)
    }

    /// Chooses a guard for the circuit `key` (guard-spec 4.6). `avoid` excludes guards that must
    /// not share a path with the circuit's exit. For traffic, the guard is chosen by the rules of
    /// [`Guards::choose_legs`], as for a set of one circuit. Returns `None` if no guard is
    /// available at the moment.
    pub fn choose(
        &mut self,
        now: u64,
        circuit: (u64, Purpose),
        avoid: &dyn Fn(I) -> bool,
        listing: &impl Listing<I>,
        rng: &mut dyn Rng,
    ) -> Option<Choice<I>> {
        let (key, purpose) = circuit;
        match purpose {
            Purpose::Traffic => self.choose_legs(now, &[key], avoid, listing, rng).pop(),
            Purpose::Directory => {
                let few = self.params.primary_for_directory;
                self.choose_among(few, now, key, avoid, listing, rng)
            }
        }
    }

    /// Chooses a guard among the first `few` usable primary guards. If `avoid` excludes them or
    /// none is usable, chooses another guard of the sample. Returns `None` if no guard is
    /// available.
    fn choose_among(
        &mut self,
        few: usize,
        now: u64,
        key: u64,
        avoid: &dyn Fn(I) -> bool,
        listing: &impl Listing<I>,
        rng: &mut dyn Rng,
    ) -> Option<Choice<I>> {
        self.retry(now);
        let choice = self.best(few, avoid, rng).or_else(|| {
            self.fill(now, listing, rng);
            self.spare(avoid)
        });
        let choice = choice.or_else(|| {
            // No guard is left: treat all as untried, and start again with the first.
            self.sample.iter_mut().for_each(|guard| guard.reach = GuardReachability::Maybe);
            self.best(few, avoid, rng)
        })?;
        let avoided = self.sample.iter().map(|guard| guard.kept.id).filter(|&id| avoid(id));
        self.circuits.began(key, choice, now, avoided.collect());
        let guard = self.guard(choice.id)?;
        guard.tried = Some(now);
        guard.pending = choice.readiness == Readiness::IfNoBetter;
        Some(choice)
    }

    /// Records that the circuit `key` was built (guard-spec 4.8). Returns true if the circuit may
    /// be used now. Otherwise [`Guards::ready`] returns the circuit later.
    pub fn succeeded(&mut self, now: u64, key: u64, rng: &mut dyn Rng) -> bool {
        let Some(id) = self.circuits.guard(key) else { return true };
        let away = self.params.internet_likely_down;
        let was_away = self.online.is_none_or(|at| now.saturating_sub(at) > away);
        self.online = Some(now);
        self.confirm(now, id, rng);
        // If this has made the guard primary, the circuit need not wait for a better guard (as in
        // C tor).
        let is_primary = self.primary.contains(&id);
        if !self.circuits.built(now, key, is_primary) {
            return true;
        }
        if was_away {
            // The network may have been down when better guards failed.
            let primary = &self.primary;
            let better = self.sample.iter_mut().filter(|guard| primary.contains(&guard.kept.id));
            better.for_each(|guard| guard.reach = GuardReachability::Maybe);
        }
        false
    }

    /// Records that the guard of the circuit `key` could not be reached (guard-spec 4.7).
    pub fn failed(&mut self, now: u64, key: u64) {
        let Some(id) = self.circuits.guard(key) else { return };
        self.circuits.closed(key);
        if let Some(guard) = self.guard(id) {
            guard.reach = GuardReachability::No;
            guard.pending = false;
            guard.failing_since.get_or_insert(now);
        }
    }

    /// Removes the circuit `key`, which closed for a reason unrelated to its guard.
    pub fn closed(&mut self, key: u64) {
        let Some(id) = self.circuits.guard(key) else { return };
        let was_built = self.circuits.closed(key);
        if let Some(guard) = self.guard(id).filter(|_| !was_built) {
            guard.pending = false;
        }
    }

    /// Returns the circuits that may be used from now on (guard-spec 4.9). They have waited
    /// because a circuit through a better guard was still possible.
    pub fn ready(&mut self, now: u64) -> Vec<u64> {
        let down = |id| self.find(id).is_none_or(|guard| guard.reach == GuardReachability::No);
        if !self.primary.iter().all(|&id| down(id)) {
            return Vec::new();
        }
        let ranks: Vec<(I, sample::Rank)> =
            self.sample.iter().map(|guard| (guard.kept.id, guard.rank())).collect();
        let rank = |id| ranks.iter().find(|(other, _)| *other == id).map(|(_, rank)| *rank);
        self.circuits.upgrade(now, self.params.connect_timeout, &rank)
    }

    /// Removes and returns the circuits that have waited too long for circuits through better
    /// guards. The caller must close them.
    pub fn outdated(&mut self, now: u64) -> Vec<u64> {
        self.circuits.outdated(now, self.params.idle_timeout)
    }

    /// Makes all unreachable guards usable again. The caller does this when the cause of the
    /// failures may be gone, for example a local network that was down.
    pub fn forgive(&mut self) {
        for guard in self.sample.iter_mut().filter(|guard| guard.reach == GuardReachability::No) {
            guard.reach = GuardReachability::Maybe;
        }
    }

    /// Returns true if built circuits wait because a circuit through a better guard is still
    /// possible. The caller must then call [`Guards::ready`] and [`Guards::outdated`] once per
    /// second.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.circuits.is_waiting()
    }

    /// Chooses at random one of the first `few` usable primary guards that `avoid` does not
    /// exclude. Returns `None` if there is none.
    fn best(&self, few: usize, avoid: &dyn Fn(I) -> bool, rng: &mut dyn Rng) -> Option<Choice<I>> {
        let usable = |&id: &I| self.find(id).is_some_and(Guard::is_usable) && !avoid(id);
        let first: Vec<I> = self.primary.iter().copied().filter(usable).take(few).collect();
        let last = first.len().checked_sub(1)?;
        let id = first[below(last as u64 + 1, rng) as usize];
        Some(Choice { id, readiness: Readiness::OnCompletion })
    }

    /// Chooses the best usable guard that is not primary and that `avoid` does not exclude.
    /// Confirmed guards come first, then unconfirmed guards in the order in which they were drawn.
    /// A guard that another circuit is trying is chosen only if it is confirmed and no other
    /// confirmed guard is left. Returns `None` if no guard remains.
    fn spare(&self, avoid: &dyn Fn(I) -> bool) -> Option<Choice<I>> {
        let open = |guard: &&Guard<I>| {
            let id = guard.kept.id;
            guard.is_usable() && !avoid(id) && !self.primary.contains(&id)
        };
        let mut confirmed: Vec<&Guard<I>> =
            self.sample.iter().filter(open).filter(|guard| guard.place().is_some()).collect();
        confirmed.sort_by_key(|guard| guard.place());
        let free = confirmed.iter().find(|guard| !guard.pending).or(confirmed.first()).copied();
        let fresh = || {
            let mut others = self.sample.iter().filter(open);
            others.find(|guard| guard.place().is_none() && !guard.pending)
        };
        let guard = free.or_else(fresh)?;
        Some(Choice { id: guard.kept.id, readiness: Readiness::IfNoBetter })
    }

    /// Adds randomly drawn relays to the sample (the possible guards) until the sample contains
    /// enough usable guards, or has reached its maximum size.
    fn fill(&mut self, now: u64, listing: &impl Listing<I>, rng: &mut dyn Rng) {
        let most = self.params.most_sampled(listing.count());
        while self.sample.len() < most
            && self.sample.iter().filter(|guard| guard.is_usable()).count()
                < self.params.min_filtered_sample
        {
            let taken = |id| self.find(id).is_some();
            let Some(id) = listing.draw(&taken, rng) else { return };
            let added = before(now, self.params.lifetime / 10, rng);
            let mut guard = Guard::from(SampledGuard::new(id, added));
            guard.filtered = listing.allows(id);
            self.sample.push(guard);
        }
    }

    /// Chooses the primary guards: first confirmed guards in their order, then guards that were
    /// primary before, then the others in the order of sampling.
    fn elect(&mut self) {
        let mut able: Vec<&Guard<I>> = self.sample.iter().filter(|guard| guard.filtered).collect();
        // The sort is stable: guards of equal rank stay in the order of sampling.
        able.sort_by_key(|guard| match guard.place() {
            Some(place) => (0, place),
            None if self.primary.contains(&guard.kept.id) => (1, 0),
            None => (2, 0),
        });
        self.primary = able.iter().map(|guard| guard.kept.id).take(self.params.primary).collect();
    }

    fn confirm(&mut self, now: u64, id: I, rng: &mut dyn Rng) {
        let place = self.sample.iter().filter_map(Guard::place).max().map_or(0, |last| last + 1);
        let on = before(now, self.params.lifetime / 10, rng);
        let Some(guard) = self.guard(id) else { return };
        guard.reach = GuardReachability::Yes;
        guard.pending = false;
        guard.failing_since = None;
        if guard.kept.confirmed.is_none() {
            guard.kept.confirmed = Some(Confirmed { on, place });
            self.elect();
        }
    }

    fn retry(&mut self, now: u64) {
        let primary = &self.primary;
        for guard in self.sample.iter_mut().filter(|guard| guard.reach == GuardReachability::No) {
            let is_primary = primary.contains(&guard.kept.id);
            if retry::is_due(now, guard.tried, guard.failing_since, is_primary) {
                guard.reach = GuardReachability::Maybe;
            }
        }
    }

    fn find(&self, id: I) -> Option<&Guard<I>> {
        self.sample.iter().find(|guard| guard.kept.id == id)
    }

    fn guard(&mut self, id: I) -> Option<&mut Guard<I>> {
        self.sample.iter_mut().find(|guard| guard.kept.id == id)
    }
}

/// Returns a random time between `now - interval` and `now`. Stored times are randomised so that
/// they do not reveal when an event happened (guard-spec A.2).
fn before(now: u64, interval: u64, rng: &mut dyn Rng) -> u64 {
    now.saturating_sub(below(interval + 1, rng))
}

#[cfg(test)]
mod tests;
