//! The relays by which a client enters the network (guard-spec): few, kept for months, and left for
//! others only when they cannot be reached. Whoever changes them often will sooner or later have a
//! hostile one.
//!
//! * The *sample*: relays drawn by weight, in the order in which they were drawn. It grows only as
//!   far as is needed and bounds how many relays can ever see the client in a time.
//! * *Filtered* are those of the sample that are listed and that the user allows; *confirmed* those
//!   through which a circuit was built, in that order; *primary* the first few of both, confirmed
//!   ones first.
//! * A circuit through a primary guard is good when it is built. One through another guard waits
//!   until it is sure that there is no better one ([`Guards::ready`]).
//!
//! The core is generic over what names a relay, so that a simulation of many clients can name them
//! by small numbers. Times are seconds since 1970.

use rand_core::Rng;

use crate::draw::below;

use circuits::Circuits;
pub use circuits::Standing;
pub use instances::{Instance, Instances};
pub use params::GuardParams;
use sample::Guard;
pub use sample::{Confirmed, Reach, Sampled};

mod circuits;
mod instances;
mod params;
mod retry;
mod sample;

/// What a relay is named by.
pub trait Name: Copy + Ord {}

impl<I: Copy + Ord> Name for I {}

/// What guards are chosen from: a consensus and what the user allows.
pub trait Listing<I> {
    /// How many relays could be guards.
    fn count(&self) -> usize;
    /// Whether this one could be.
    fn lists(&self, id: I) -> bool;
    /// Whether the user's wishes and the addresses that can be reached let us use it.
    fn allows(&self, id: I) -> bool;
    /// Draws one that could be a guard by the weights of path selection, but none that is taken.
    fn draw(&self, taken: &dyn Fn(I) -> bool, rng: &mut dyn Rng) -> Option<I>;
}

/// What a circuit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Streams.
    Traffic,
    /// Directory requests, which more guards share.
    Directory,
}

/// The guard for one circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice<I> {
    /// The relay.
    pub id: I,
    /// Whether the circuit may be used as soon as it is built.
    pub standing: Standing,
}

/// The guards of a client.
#[derive(Clone, Debug)]
pub struct Guards<I> {
    params: GuardParams,
    /// In the order of sampling.
    sample: Vec<Guard<I>>,
    /// In the order of preference.
    primary: Vec<I>,
    circuits: Circuits<I>,
    /// When a circuit was last built.
    online: Option<u64>,
}

impl<I: Name> Guards<I> {
    /// Those that an earlier run kept, in the order of sampling. [`Guards::renew`] follows.
    #[must_use]
    pub fn restore(kept: Vec<Sampled<I>>) -> Guards<I> {
        Guards {
            params: GuardParams::default(),
            sample: kept.into_iter().map(Guard::from).collect(),
            primary: Vec::new(),
            circuits: Circuits::default(),
            online: None,
        }
    }

    /// What is to be kept for the next run, in the order of sampling.
    pub fn kept(&self) -> impl Iterator<Item = &Sampled<I>> {
        self.sample.iter().map(|guard| &guard.kept)
    }

    /// The primary guards, best first.
    #[must_use]
    pub fn primary(&self) -> &[I] {
        &self.primary
    }

    /// Whether a guard can be reached, as far as this run knows.
    #[must_use]
    pub fn reach(&self, id: I) -> Reach {
        self.find(id).map_or(Reach::Maybe, |guard| guard.reach)
    }

    /// A new consensus, or other wishes (guard-spec 4.10). `live`: the consensus holds now, so that
    /// it may remove guards. `dated`: from when it is. Returns whether what is kept has changed.
    pub fn renew(
        &mut self,
        now: u64,
        consensus: (u64, bool),
        params: &GuardParams,
        listing: &impl Listing<I>,
        rng: &mut dyn Rng,
    ) -> bool {
        let before: Vec<Sampled<I>> = self.kept().cloned().collect();
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

    /// When [`Guards::renew`] removes a guard next, in seconds since 1970, if the consensus lists
    /// until then what it lists now.
    #[must_use]
    pub fn next_over(&self) -> Option<u64> {
        self.sample.iter().map(|guard| guard.kept.over_at(&self.params)).min()
    }

    /// Guards for the legs of a circuit, one for each of `keys` and none twice. In use are the
    /// first primary guards that may be reached and that `avoid` does not name, as many as
    /// `guard-n-primary-guards-to-use` or the legs, whichever is more: the legs take all of them,
    /// best first, or by lot where there are more than legs. Beyond those others of the sample, as
    /// guard-spec 4.6 has it. Fewer if there are no more. A client whose circuits have several legs
    /// gives [`GuardParams::for_legs`] to [`Guards::renew`].
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

    /// A guard for the first leg of a circuit that is to have so many, or for the next one if
    /// `avoid` names those of the others ([`Guards::choose_legs`]).
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

    /// A guard for a further leg: the best of those in use that `avoid` does not name, and never
    /// one beyond them. A set has fewer legs rather than a guard more (C tor's issue 40876).
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
        let choice = Choice { id, standing: Standing::OnCompletion };
        let avoided = self.sample.iter().map(|guard| guard.kept.id).filter(|&id| avoid(id));
        self.circuits.began(key, choice, now, avoided.collect());
        self.guard(id)?.tried = Some(now);
        Some(choice)
    }

    /// A guard for the circuit `key` (guard-spec 4.6), none that `avoid` names: those that do not
    /// go with the circuit's exit. For traffic it is that of a circuit of one leg
    /// ([`Guards::choose_legs`]). `None` if there is none at the moment.
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

    /// The same among the first `few` primary guards that may be used.
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
            // None is left: begin again from the first.
            self.sample.iter_mut().for_each(|guard| guard.reach = Reach::Maybe);
            self.best(few, avoid, rng)
        })?;
        let avoided = self.sample.iter().map(|guard| guard.kept.id).filter(|&id| avoid(id));
        self.circuits.began(key, choice, now, avoided.collect());
        let guard = self.guard(choice.id)?;
        guard.tried = Some(now);
        guard.pending = choice.standing == Standing::IfNoBetter;
        Some(choice)
    }

    /// A circuit was built (guard-spec 4.8): whether it may be used now. If not, [`Guards::ready`]
    /// will tell.
    pub fn succeeded(&mut self, now: u64, key: u64, rng: &mut dyn Rng) -> bool {
        let Some(id) = self.circuits.guard(key) else { return true };
        let away = self.params.internet_likely_down;
        let was_away = self.online.is_none_or(|at| now.saturating_sub(at) > away);
        self.online = Some(now);
        self.confirm(now, id, rng);
        // The guard may have become primary by that: then none is better that could be waited for
        // (as C tor has it).
        let is_primary = self.primary.contains(&id);
        if !self.circuits.built(now, key, is_primary) {
            return true;
        }
        if was_away {
            // Perhaps it was the network that failed the better ones.
            let primary = &self.primary;
            let better = self.sample.iter_mut().filter(|guard| primary.contains(&guard.kept.id));
            better.for_each(|guard| guard.reach = Reach::Maybe);
        }
        false
    }

    /// The guard of this circuit could not be reached (guard-spec 4.7).
    pub fn failed(&mut self, now: u64, key: u64) {
        let Some(id) = self.circuits.guard(key) else { return };
        self.circuits.closed(key);
        if let Some(guard) = self.guard(id) {
            guard.reach = Reach::No;
            guard.pending = false;
            guard.failing_since.get_or_insert(now);
        }
    }

    /// A circuit is gone, for whatever reason that says nothing of its guard.
    pub fn closed(&mut self, key: u64) {
        let Some(id) = self.circuits.guard(key) else { return };
        let was_built = self.circuits.closed(key);
        if let Some(guard) = self.guard(id).filter(|_| !was_built) {
            guard.pending = false;
        }
    }

    /// Circuits that waited for a better guard and may be used now (guard-spec 4.9).
    pub fn ready(&mut self, now: u64) -> Vec<u64> {
        let down = |id| self.find(id).is_none_or(|guard| guard.reach == Reach::No);
        if !self.primary.iter().all(|&id| down(id)) {
            return Vec::new();
        }
        let ranks: Vec<(I, sample::Rank)> =
            self.sample.iter().map(|guard| (guard.kept.id, guard.rank())).collect();
        let rank = |id| ranks.iter().find(|(other, _)| *other == id).map(|(_, rank)| *rank);
        self.circuits.upgrade(now, self.params.connect_timeout, &rank)
    }

    /// Circuits that waited for too long, and are to be closed.
    pub fn outdated(&mut self, now: u64) -> Vec<u64> {
        self.circuits.outdated(now, self.params.idle_timeout)
    }

    /// What kept guards from being reached may be over: each may be tried again.
    pub fn forgive(&mut self) {
        for guard in self.sample.iter_mut().filter(|guard| guard.reach == Reach::No) {
            guard.reach = Reach::Maybe;
        }
    }

    /// Whether circuits wait: then [`Guards::ready`] and [`Guards::outdated`] are to be asked about
    /// once a second.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.circuits.is_waiting()
    }

    /// The first `few` primary guards that may be reached, one of them by lot.
    fn best(&self, few: usize, avoid: &dyn Fn(I) -> bool, rng: &mut dyn Rng) -> Option<Choice<I>> {
        let usable = |&id: &I| self.find(id).is_some_and(Guard::is_usable) && !avoid(id);
        let first: Vec<I> = self.primary.iter().copied().filter(usable).take(few).collect();
        let last = first.len().checked_sub(1)?;
        let id = first[below(last as u64 + 1, rng) as usize];
        Some(Choice { id, standing: Standing::OnCompletion })
    }

    /// The best guard that is not primary: a confirmed one, else the first of the sample, each for
    /// one circuit at a time.
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
        Some(Choice { id: guard.kept.id, standing: Standing::IfNoBetter })
    }

    /// Draws into the sample until enough of it can be used, or it is as large as it may be.
    fn fill(&mut self, now: u64, listing: &impl Listing<I>, rng: &mut dyn Rng) {
        let most = self.params.most_sampled(listing.count());
        while self.sample.len() < most
            && self.sample.iter().filter(|guard| guard.is_usable()).count()
                < self.params.min_filtered_sample
        {
            let taken = |id| self.find(id).is_some();
            let Some(id) = listing.draw(&taken, rng) else { return };
            let added = before(now, self.params.lifetime / 10, rng);
            let mut guard = Guard::from(Sampled::new(id, added));
            guard.filtered = listing.allows(id);
            self.sample.push(guard);
        }
    }

    /// Chooses the primary guards: confirmed ones in their order, then those that were primary,
    /// then others as they were sampled.
    fn elect(&mut self) {
        let mut able: Vec<&Guard<I>> = self.sample.iter().filter(|guard| guard.filtered).collect();
        // The sort is stable: what is equal stays in the order of sampling.
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
        guard.reach = Reach::Yes;
        guard.pending = false;
        guard.failing_since = None;
        if guard.kept.confirmed.is_none() {
            guard.kept.confirmed = Some(Confirmed { on, place });
            self.elect();
        }
    }

    fn retry(&mut self, now: u64) {
        let primary = &self.primary;
        for guard in self.sample.iter_mut().filter(|guard| guard.reach == Reach::No) {
            let is_primary = primary.contains(&guard.kept.id);
            if retry::is_due(now, guard.tried, guard.failing_since, is_primary) {
                guard.reach = Reach::Maybe;
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

/// A time between `now` and `interval` before, by lot, so that nobody can tell when something began
/// (guard-spec A.2).
fn before(now: u64, interval: u64, rng: &mut dyn Rng) -> u64 {
    now.saturating_sub(below(interval + 1, rng))
}

#[cfg(test)]
mod tests;
