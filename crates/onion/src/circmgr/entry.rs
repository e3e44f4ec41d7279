//! A client's guards in the known network, within the user's restrictions.

use rand_core::Rng;

use super::KeptGuards;
use super::bridges::{Bridges, Nameable};
use crate::directory::network::{Network, Position, RelayRestrictions};
use crate::guards::{GuardParams, Guards, Instance, Instances, Listing, Purpose};

/// A client's guards, and a flag for changes of the network since the guards were last updated.
#[derive(Debug)]
pub(super) struct Entry {
    instances: Instances<[u8; 20]>,
    /// The bridges, if the user enters the network only through bridges.
    bridges: Option<Bridges>,
    stale: bool,
    /// Number of circuits (legs) in a set. At least this many guards are in use.
    legs: usize,
}

/// Outcome of [`Entry::renew`], the update of the guards.
#[derive(Debug, Default)]
pub(super) struct EntryUpdate {
    /// True if the guards that the client saves on disk have changed.
    pub(super) changed: bool,
    /// Number of relays that are allowed as guards, if they are so few that the user must be
    /// warned; else `None`.
    pub(super) few: Option<usize>,
}

impl Entry {
    pub(super) fn restore(kept: KeptGuards) -> Entry {
        let instances = Instances::restore(kept.default, kept.restricted, kept.bridges);
        Entry { instances, bridges: None, stale: true, legs: 1 }
    }

    /// Restricts the first hop to `bridges`.
    pub(super) fn set_bridges(&mut self, bridges: Bridges) {
        self.bridges = Some(bridges);
        self.instances.use_bridges();
        self.stale = true;
    }

    pub(super) fn bridges(&self) -> Option<&Bridges> {
        self.bridges.as_ref()
    }

    pub(super) fn bridges_mut(&mut self) -> Option<&mut Bridges> {
        self.bridges.as_mut()
    }

    /// Returns the guards to save on disk.
    pub(super) fn kept(&self) -> KeptGuards {
        let all = |instance| self.instances.of(instance).kept().cloned().collect();
        KeptGuards {
            default: all(Instance::Default),
            restricted: all(Instance::Restricted),
            bridges: all(Instance::Bridges),
        }
    }

    /// Sets the number of circuits (legs) that each set of circuits has.
    pub(super) fn set_legs(&mut self, legs: usize) {
        self.stale |= legs != self.legs;
        self.legs = legs;
    }

    /// Returns the guards that the circuits (legs) of sets use. The result is empty if a set has
    /// only one circuit.
    pub(super) fn in_use(&self) -> Vec<[u8; 20]> {
        let primary = self.current().primary().iter().copied();
        if self.legs < 2 { Vec::new() } else { primary.take(self.legs).collect() }
    }

    /// Records that there is a new consensus, or that more of its relays are known.
    pub(super) fn network_changed(&mut self) {
        self.stale = true;
    }

    /// Returns the current sample of guards for reading.
    pub(super) fn current(&self) -> &Guards<[u8; 20]> {
        self.instances.of(self.instances.current())
    }

    /// Returns the current sample of guards.
    pub(super) fn guards(&mut self) -> &mut Guards<[u8; 20]> {
        self.instances.guards()
    }

    /// Updates the guards if the network has changed. Bridges are updated even without a known
    /// network.
    pub(super) fn renew(
        &mut self,
        unix_now: u64,
        network: Option<&Network>,
        restrictions: &RelayRestrictions,
        rng: &mut impl Rng,
    ) -> EntryUpdate {
        if !self.stale || network.is_none() && self.bridges.is_none() {
            return EntryUpdate::default();
        }
        self.stale = false;
        if let Some(bridges) = &self.bridges {
            let params =
                network.map_or_else(GuardParams::default, |one| one.params().guards.clone());
            let params = params.for_legs(self.legs).for_bridges();
            let (named, dated) = (Nameable { bridges, restrictions }, (unix_now, true));
            let changed = self.instances.guards().renew(unix_now, dated, &params, &named, rng);
            return EntryUpdate { changed, few: None };
        }
        let Some(network) = network else { return EntryUpdate::default() };
        let params = &network.params().guards.for_legs(self.legs);
        let allowed =
            network.guards().filter(|one| allows(restrictions, &one.rsa_identity)).count();
        let all = Eligible { network, restrictions, only_allowed: false };
        let extreme = self.instances.select(allowed, &all, params);
        let consensus = network.consensus();
        let live = (consensus.valid_after..=consensus.valid_until).contains(&unix_now);
        let eligible = self.eligible(network, restrictions);
        let dated = (consensus.valid_after, live);
        let changed = self.instances.guards().renew(unix_now, dated, params, &eligible, rng);
        EntryUpdate { changed, few: extreme.then_some(allowed) }
    }

    /// Returns a guard for the circuit `key`, which ends at `exit`. Returns `None` if no guard is
    /// suitable.
    pub(super) fn choose(
        &mut self,
        unix_now: u64,
        key: u64,
        exit: &[u8; 20],
        network: &Network,
        restrictions: &RelayRestrictions,
        rng: &mut impl Rng,
    ) -> Option<[u8; 20]> {
        let avoid = |id: [u8; 20]| !network.agree(&id, exit);
        let circuit = (key, self.legs);
        let eligible = self.eligible(network, restrictions);
        let guards = self.instances.guards();
        let choice = match &self.bridges {
            Some(bridges) => {
                let named = Nameable { bridges, restrictions };
                guards.choose_leg(unix_now, circuit, &avoid, &named, rng)
            }
            None => guards.choose_leg(unix_now, circuit, &avoid, &eligible, rng),
        };
        Some(choice?.id)
    }

    /// Returns a guard for another leg (circuit) of a set. Chooses one of the guards in use that
    /// conflicts with no relay of the set's other legs (their relays are the argument `chosen`).
    /// Returns `None` if there is no such guard.
    pub(super) fn choose_leg(
        &mut self,
        unix_now: u64,
        key: u64,
        chosen: &[[u8; 20]],
        network: &Network,
        restrictions: &RelayRestrictions,
    ) -> Option<[u8; 20]> {
        let goes = |id: &[u8; 20]| chosen.iter().all(|other| network.agree(id, other));
        let avoid = |id: [u8; 20]| !goes(&id) || !allows(restrictions, &id);
        Some(self.instances.guards().choose_further_leg(unix_now, key, &avoid)?.id)
    }

    /// Returns a guard for a one-hop circuit to a directory cache (guard-spec 4.6). Returns `None`
    /// if no guard is suitable.
    pub(super) fn choose_cache(
        &mut self,
        unix_now: u64,
        key: u64,
        network: Option<&Network>,
        restrictions: &RelayRestrictions,
        rng: &mut impl Rng,
    ) -> Option<[u8; 20]> {
        let circuit = (key, Purpose::Directory);
        let choice = if let Some(bridges) = &self.bridges {
            let (named, guards) = (Nameable { bridges, restrictions }, self.instances.guards());
            guards.choose(unix_now, circuit, &|_| false, &named, rng)
        } else {
            let eligible = self.eligible(network?, restrictions);
            self.instances.guards().choose(unix_now, circuit, &|_| false, &eligible, rng)
        };
        Some(choice?.id)
    }

    fn eligible<'a>(
        &self,
        network: &'a Network,
        restrictions: &'a RelayRestrictions,
    ) -> Eligible<'a> {
        // If few relays are allowed, a sample of all relays would contain hardly any of them. As
        // in C tor, it then contains only allowed relays.
        let only_allowed = self.instances.current() == Instance::Restricted;
        Eligible { network, restrictions, only_allowed }
    }
}

/// The relays from which guards are chosen at random.
struct Eligible<'a> {
    network: &'a Network,
    restrictions: &'a RelayRestrictions,
    only_allowed: bool,
}

impl Listing<[u8; 20]> for Eligible<'_> {
    fn count(&self) -> usize {
        match self.only_allowed {
            false => self.network.guard_count(),
            true => self.network.guards().filter(|one| self.allows(one.rsa_identity)).count(),
        }
    }

    fn lists(&self, id: [u8; 20]) -> bool {
        self.network.lists_guard(&id)
    }

    fn allows(&self, id: [u8; 20]) -> bool {
        allows(self.restrictions, &id)
    }

    fn draw(&self, taken: &dyn Fn([u8; 20]) -> bool, mut rng: &mut dyn Rng) -> Option<[u8; 20]> {
        self.network.draw_guard(|id| self.is_eligible(id) && !taken(*id), &mut rng)
    }
}

impl Eligible<'_> {
    fn is_eligible(&self, id: &[u8; 20]) -> bool {
        !self.only_allowed || allows(self.restrictions, id)
    }
}

fn allows(restrictions: &RelayRestrictions, id: &[u8; 20]) -> bool {
    restrictions.allow(Position::Guard, id)
}
