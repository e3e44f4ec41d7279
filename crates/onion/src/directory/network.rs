//! The relays of a consensus together with their microdescriptors, and the choice of paths among
//! them (path-spec 2.2).

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use rand_core::Rng;

use super::params::Params;
use crate::wire::netdoc::{Bridge, Consensus, Microdesc, RelayStatus};
use listing::Listing;
use tables::{Part, Table, Tables};

mod listing;
mod possible;
mod tables;
#[cfg(test)]
mod tests;

/// Ports whose connections live long, so that all relays of their circuits should be stable (C
/// tor's list).
const LONG_LIVED: [u16; 12] = [21, 22, 706, 1863, 5050, 5190, 5222, 5223, 6523, 6667, 6697, 8300];

/// What is known of the network. A copy shares all documents with its original.
#[derive(Clone, Debug)]
pub struct Network {
    listing: Arc<Listing>,
    /// At the place of each relay in the consensus.
    microdescs: Vec<Option<Arc<Microdesc>>>,
    /// The weight of the relays whose microdescriptors are known, as [`Listing::weight_of`] counts
    /// it.
    known: [u64; 3],
    /// First hops that no consensus need list, and that nobody draws.
    bridges: Vec<Arc<Bridge>>,
    /// Made when it is first drawn from.
    tables: OnceLock<Arc<Tables>>,
    /// Whether two relays of a path may share a /16 (IPv6: a /32). Only test networks allow it.
    pub share_subnets: bool,
}

/// A relay that can be used: listed, and its keys are known.
#[derive(Clone, Copy, Debug)]
pub struct Relay<'a> {
    /// What authorities say of it.
    pub status: &'a RelayStatus,
    /// What it says of itself.
    pub microdesc: &'a Microdesc,
}

/// Where in a path a relay is to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The first hop.
    Guard,
    /// Between others.
    Middle,
    /// The last hop of a path to this target.
    Exit(Target),
    /// The only hop, asked for directory documents.
    Directory,
}

/// What a path must lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The port of the destination.
    pub port: u16,
    /// Whether it must be reached by IPv6.
    pub v6: bool,
}

impl Target {
    /// Whether streams to this port live long.
    #[must_use]
    pub fn is_long_lived(self) -> bool {
        LONG_LIVED.contains(&self.port)
    }
}

/// The RSA identities of a path's three hops, first hop first.
pub type Path = [[u8; 20]; 3];

/// Which relays a user wants in a position: RSA identities; no limit if empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// First hops.
    pub entry: Vec<[u8; 20]>,
    /// Middle hops.
    pub middle: Vec<[u8; 20]>,
    /// Last hops.
    pub exit: Vec<[u8; 20]>,
    /// Never, anywhere.
    pub exclude: Vec<[u8; 20]>,
}

impl Wishes {
    /// Whether this relay may stand there.
    #[must_use]
    pub fn allow(&self, position: Position, id: &[u8; 20]) -> bool {
        let wanted = self.wanted(position);
        !self.exclude.contains(id) && (wanted.is_empty() || wanted.contains(id))
    }

    fn wanted(&self, position: Position) -> &[[u8; 20]] {
        match position {
            Position::Guard | Position::Directory => &self.entry,
            Position::Middle => &self.middle,
            Position::Exit(_) => &self.exit,
        }
    }
}

/// No relay fits a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRelay(pub Position);

impl std::fmt::Display for NoRelay {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Position::Guard => out.write_str("no usable relay can be the first of a circuit"),
            Position::Middle => {
                out.write_str("no usable relay is left for the middle of a circuit")
            }
            Position::Exit(Target { port, v6: false }) => {
                write!(out, "no exit's policy allows port {port}")
            }
            Position::Exit(Target { port, v6: true }) => {
                write!(out, "no exit's policy allows port {port} by IPv6")
            }
            Position::Directory => out.write_str("no relay answers directory requests"),
        }
    }
}

impl std::error::Error for NoRelay {}

impl Network {
    /// A network of which no microdescriptor is known yet.
    #[must_use]
    pub fn new(consensus: Consensus) -> Network {
        Network {
            microdescs: vec![None; consensus.relays.len()],
            listing: Arc::new(Listing::new(consensus)),
            known: [0; 3],
            bridges: Vec::new(),
            tables: OnceLock::new(),
            share_subnets: false,
        }
    }

    /// The same relays under a newer consensus; microdescriptors that are still named stay.
    #[must_use]
    pub fn renewed(self, consensus: Consensus) -> Network {
        let mut fresh = Network::new(consensus).with_bridges(self.bridges);
        fresh.share_subnets = self.share_subnets;
        for microdesc in self.microdescs.into_iter().flatten() {
            fresh.learn_shared(&microdesc);
        }
        fresh
    }

    /// The same with these bridges, which are relays like others but for that no position draws
    /// them. One that the consensus lists, too, is what it says of itself.
    #[must_use]
    pub fn with_bridges(mut self, bridges: Vec<Arc<Bridge>>) -> Network {
        self.bridges = bridges;
        self
    }

    fn bridge(&self, id: &[u8; 20]) -> Option<&Bridge> {
        self.bridges.iter().find(|bridge| bridge.status.rsa_identity == *id).map(|one| &**one)
    }

    /// The consensus.
    #[must_use]
    pub fn consensus(&self) -> &Consensus {
        &self.listing.consensus
    }

    /// The parameters of the consensus.
    #[must_use]
    pub fn params(&self) -> &Params {
        &self.listing.params
    }

    /// Takes a microdescriptor; false if the consensus does not name it.
    pub fn learn(&mut self, microdesc: Microdesc) -> bool {
        self.learn_shared(&Arc::new(microdesc))
    }

    fn learn_shared(&mut self, microdesc: &Arc<Microdesc>) -> bool {
        let named = self.listing.named(&microdesc.digest);
        for &(_, place) in named {
            let place = place as usize;
            if self.microdescs[place].replace(Arc::clone(microdesc)).is_none() {
                let weight = Listing::weight_of(&self.listing.consensus.relays[place]);
                self.known.iter_mut().zip(weight).for_each(|(sum, more)| *sum += more);
            }
        }
        self.tables.take();
        !named.is_empty()
    }

    /// The digests of microdescriptors that are named and not known.
    pub fn missing(&self) -> impl Iterator<Item = [u8; 32]> {
        let all = self.consensus().relays.iter().zip(&self.microdescs);
        all.filter(|(_, known)| known.is_none()).map(|(status, _)| status.microdesc)
    }

    /// Relays that can be used.
    pub fn relays(&self) -> impl Iterator<Item = Relay<'_>> {
        self.placed().map(|(_, relay)| relay)
    }

    /// The same, each with its place in the consensus.
    fn placed(&self) -> impl Iterator<Item = (usize, Relay<'_>)> {
        (0..self.microdescs.len()).filter_map(|place| Some((place, self.at(place)?)))
    }

    fn at(&self, place: usize) -> Option<Relay<'_>> {
        let microdesc = self.microdescs[place].as_deref()?;
        Some(Relay { status: &self.consensus().relays[place], microdesc })
    }

    fn place(&self, id: &[u8; 20]) -> Option<usize> {
        self.consensus().relays.binary_search_by_key(id, |status| status.rsa_identity).ok()
    }

    /// What authorities say of the relay of this RSA identity, or a bridge of itself.
    #[must_use]
    pub fn status(&self, id: &[u8; 20]) -> Option<&RelayStatus> {
        if let Some(bridge) = self.bridge(id) {
            return Some(&bridge.status);
        }
        Some(&self.consensus().relays[self.place(id)?])
    }

    /// The relay of this RSA identity, or the bridge, if it can be used.
    #[must_use]
    pub fn relay(&self, id: &[u8; 20]) -> Option<Relay<'_>> {
        if let Some(bridge) = self.bridge(id) {
            return Some(Relay { status: &bridge.status, microdesc: &bridge.microdesc });
        }
        self.at(self.place(id)?)
    }

    /// Whether paths can be built: the known relays have three quarters of the weight of each
    /// position (path-spec 2.1.1 asks for 60 % of whole paths).
    #[must_use]
    pub fn is_enough(&self) -> bool {
        let enough = |(known, all): (&u64, &u64)| known * 4 >= all * 3;
        self.microdescs.iter().any(Option::is_some)
            && self.known.iter().zip(&self.listing.weight).all(enough)
    }

    /// Draws a relay for a position, by bandwidth weights, that goes with those already chosen.
    ///
    /// # Errors
    /// None fits.
    pub fn choose(
        &self,
        position: Position,
        beside: &[[u8; 20]],
        wishes: &Wishes,
        rng: &mut impl Rng,
    ) -> Result<Relay<'_>, NoRelay> {
        let others: Vec<Relay<'_>> = beside.iter().filter_map(|id| self.relay(id)).collect();
        let suits = |relay: &Relay<'_>| {
            !wishes.exclude.contains(&relay.status.rsa_identity)
                && others.iter().all(|other| self.go_together(relay, other))
        };
        let drawn = match wishes.wanted(position) {
            [] => self.draw(self.part(position), suits, rng),
            wanted => {
                let wanted = Table::of(self, position, self.fitting(wanted, position));
                self.draw(wanted.whole(), suits, rng)
            }
        };
        drawn.ok_or(NoRelay(position))
    }

    /// The relays that fit a position.
    fn part(&self, position: Position) -> Part<'_> {
        let tables = self.tables();
        match position {
            Position::Guard => tables.guards.whole(),
            Position::Middle => tables.middles.whole(),
            Position::Directory => tables.directories.whole(),
            Position::Exit(target) => tables.exits.to(self, target),
        }
    }

    /// The places of those of `wanted` that fit a position, each once.
    fn fitting(&self, wanted: &[[u8; 20]], position: Position) -> Vec<usize> {
        let fits = |&place: &usize| self.at(place).is_some_and(|one| self.fits(&one, position));
        let mut places: Vec<usize> =
            wanted.iter().filter_map(|id| self.place(id)).filter(fits).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    fn draw(
        &self,
        part: Part<'_>,
        suits: impl Fn(&Relay<'_>) -> bool,
        rng: &mut impl Rng,
    ) -> Option<Relay<'_>> {
        let suits = |place| self.at(place).is_some_and(|relay| suits(&relay));
        self.at(part.draw(suits, rng)?)
    }

    fn tables(&self) -> &Tables {
        self.tables.get_or_init(|| Arc::new(Tables::of(self)))
    }

    /// The relays that fit a position, each with its weight there.
    #[must_use]
    pub fn weights(&self, position: Position) -> Vec<([u8; 20], u64)> {
        let fitting = self.relays().filter(|relay| self.fits(relay, position));
        let with =
            |relay: Relay<'_>| (relay.status.rsa_identity, self.weight(relay.status, position));
        fitting.map(with).collect()
    }

    /// Draws a path to `target`: the exit first, as it is hardest to find, then the guard that
    /// `guard` gives for it, then what is between them.
    ///
    /// # Errors
    /// The position that nobody fits.
    pub fn path<R: Rng>(
        &self,
        target: Target,
        wishes: &Wishes,
        rng: &mut R,
        guard: impl FnOnce(&[u8; 20], &mut R) -> Option<[u8; 20]>,
    ) -> Result<Path, NoRelay> {
        let exit = self.choose(Position::Exit(target), &[], wishes, rng)?.status.rsa_identity;
        let guard = guard(&exit, rng).ok_or(NoRelay(Position::Guard))?;
        let middle = self.choose(Position::Middle, &[guard, exit], wishes, rng)?;
        Ok([guard, middle.status.rsa_identity, exit])
    }

    /// Whether one path may have both; a relay that is not known goes with nobody.
    #[must_use]
    pub fn agree(&self, one: &[u8; 20], other: &[u8; 20]) -> bool {
        let pair = self.relay(one).zip(self.relay(other));
        pair.is_some_and(|(one, other)| self.go_together(&one, &other))
    }

    /// Relays that could be guards, whether their keys are known or not.
    pub fn guards(&self) -> impl Iterator<Item = &RelayStatus> {
        self.consensus().relays.iter().filter(|status| is_guard(status))
    }

    /// How many relays could be guards.
    #[must_use]
    pub fn guard_count(&self) -> usize {
        self.listing.guards
    }

    /// Whether this relay could be a guard, its keys known or not.
    #[must_use]
    pub fn lists_guard(&self, id: &[u8; 20]) -> bool {
        self.status(id).is_some_and(is_guard)
    }

    /// Draws one of the relays that could be guards and that `wanted` admits, by bandwidth weights.
    pub fn draw_guard(
        &self,
        wanted: impl Fn(&[u8; 20]) -> bool,
        rng: &mut impl Rng,
    ) -> Option<[u8; 20]> {
        let wanted = |relay: &Relay<'_>| wanted(&relay.status.rsa_identity);
        self.draw(self.part(Position::Guard), wanted, rng).map(|relay| relay.status.rsa_identity)
    }

    fn fits(&self, relay: &Relay<'_>, position: Position) -> bool {
        let flags = relay.status.flags;
        match position {
            Position::Guard => is_guard(relay.status),
            Position::Middle => flags.fast,
            Position::Directory => flags.v2dir,
            Position::Exit(to) => {
                let stable = flags.stable || !to.is_long_lived();
                let trusted = !flags.bad_exit && !flags.middle_only && stable;
                trusted && relay.microdesc.exits_to(to.port, to.v6)
            }
        }
    }

    /// Whether one path may have both: not one relay twice, no family, no common subnet.
    fn go_together(&self, one: &Relay<'_>, other: &Relay<'_>) -> bool {
        let (a, b) = (one.status, other.status);
        let lists = |of: &Relay<'_>, id: &[u8; 20]| of.microdesc.family.contains(id);
        let related = lists(one, &b.rsa_identity) && lists(other, &a.rsa_identity);
        let family = |id| other.microdesc.family_ids.contains(id);
        let same = a.rsa_identity == b.rsa_identity
            || one.microdesc.ed_identity == other.microdesc.ed_identity;
        let near = !self.share_subnets && share_subnet(&a.addresses, &b.addresses);
        !(same || related || one.microdesc.family_ids.iter().any(family) || near)
    }

    /// Bandwidth times the weight of the position (dir-spec 3.8.3).
    fn weight(&self, relay: &RelayStatus, position: Position) -> u64 {
        u64::from(relay.bandwidth) * self.listing.position_weight(relay, position)
    }
}

/// Whether a relay has all the flags that a guard needs for any circuit (guard-spec 4.0).
fn is_guard(status: &RelayStatus) -> bool {
    let flags = status.flags;
    flags.guard && flags.stable && flags.fast && flags.v2dir && !flags.middle_only
}

/// Whether two relays have addresses in one /16 (IPv6: /32).
fn share_subnet(one: &[SocketAddr], other: &[SocketAddr]) -> bool {
    let subnet = |at: &SocketAddr| match at.ip() {
        IpAddr::V4(ip) => (4, ip.to_bits() >> 16),
        IpAddr::V6(ip) => (6, u32::try_from(ip.to_bits() >> 96).expect("32 bits are left")),
    };
    one.iter().any(|a| other.iter().any(|b| subnet(a) == subnet(b)))
}
