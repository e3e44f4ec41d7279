//! The relays of a consensus together with their microdescriptors, and the selection of paths from
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

/// Ports with long-lived connections, for which all relays of a circuit should be stable (C tor's
/// list).
const LONG_LIVED: [u16; 12] = [21, 22, 706, 1863, 5050, 5190, 5222, 5223, 6523, 6667, 6697, 8300];

/// The known relays of the network, with their documents. A copy shares all documents with its
/// original.
#[derive(Clone, Debug)]
pub struct Network {
    listing: Arc<Listing>,
    /// Microdescriptors, by the relay's index in the consensus. `None` if the microdescriptor is
    /// unknown.
    microdescs: Vec<Option<Arc<Microdesc>>>,
    /// Total bandwidth of guards, of exits, and of all relays ([`Listing::weight_of`]). Only
    /// relays whose microdescriptors are known count.
    known: [u64; 3],
    /// Bridges. They need not be in the consensus, and are never chosen at random.
    bridges: Vec<Arc<Bridge>>,
    /// Tables for the random choice of relays. They are computed at the first choice.
    tables: OnceLock<Arc<Tables>>,
    /// True if two relays of a path may share a /16 (IPv6: a /32). Only test networks permit it.
    pub share_subnets: bool,
}

/// A usable relay: the consensus lists it, and its keys are known.
#[derive(Clone, Copy, Debug)]
pub struct Relay<'a> {
    /// The relay's entry in the consensus.
    pub status: &'a RelayStatus,
    /// The relay's microdescriptor.
    pub microdesc: &'a Microdesc,
}

/// A relay's position in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The first hop.
    Guard,
    /// A hop between the first and the last.
    Middle,
    /// The last hop of a path to this target.
    Exit(Target),
    /// The only hop, for requests of directory documents.
    Directory,
}

/// The destination that a path must reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The port of the destination.
    pub port: u16,
    /// True if the exit must reach the destination over IPv6.
    pub v6: bool,
}

impl Target {
    /// Returns whether connections to this port are long-lived.
    #[must_use]
    pub fn is_long_lived(self) -> bool {
        LONG_LIVED.contains(&self.port)
    }
}

/// The RSA identities of the three hops of a path, first hop first.
pub type Path = [[u8; 20]; 3];

/// Relays that a user permits for each position, by RSA identity. An empty list permits all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayRestrictions {
    /// Relays that may be first hops; empty if all relays may.
    pub entry: Vec<[u8; 20]>,
    /// Relays that may be middle hops; empty if all relays may.
    pub middle: Vec<[u8; 20]>,
    /// Relays that may be last hops; empty if all relays may.
    pub exit: Vec<[u8; 20]>,
    /// Relays that are not used in any position.
    pub exclude: Vec<[u8; 20]>,
}

impl RelayRestrictions {
    /// Returns whether the relay `id` may be used in `position`.
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

/// The position in a path for which no relay fits.
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
    /// Creates a network from a consensus. No microdescriptors are known at first.
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

    /// Replaces the consensus. Known microdescriptors that the new consensus lists are kept.
    #[must_use]
    pub fn renewed(self, consensus: Consensus) -> Network {
        let mut fresh = Network::new(consensus).with_bridges(self.bridges);
        fresh.share_subnets = self.share_subnets;
        for microdesc in self.microdescs.into_iter().flatten() {
            fresh.learn_shared(&microdesc);
        }
        fresh
    }

    /// Sets the bridges. They can be used like other relays, but are never chosen at random. If
    /// the consensus also lists a bridge, the bridge's descriptor takes precedence over the
    /// consensus entry.
    #[must_use]
    pub fn with_bridges(mut self, bridges: Vec<Arc<Bridge>>) -> Network {
        self.bridges = bridges;
        self
    }

    fn bridge(&self, id: &[u8; 20]) -> Option<&Bridge> {
        self.bridges.iter().find(|bridge| bridge.status.rsa_identity == *id).map(|one| &**one)
    }

    /// Returns the consensus.
    #[must_use]
    pub fn consensus(&self) -> &Consensus {
        &self.listing.consensus
    }

    /// Returns the parameters of the consensus.
    #[must_use]
    pub fn params(&self) -> &Params {
        &self.listing.params
    }

    /// Adds a microdescriptor. Returns false if the consensus does not list it.
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

    /// Returns the digests of microdescriptors that the consensus lists but that are not known.
    pub fn missing(&self) -> impl Iterator<Item = [u8; 32]> {
        let all = self.consensus().relays.iter().zip(&self.microdescs);
        all.filter(|(_, known)| known.is_none()).map(|(status, _)| status.microdesc)
    }

    /// Returns the usable relays.
    pub fn relays(&self) -> impl Iterator<Item = Relay<'_>> {
        self.placed().map(|(_, relay)| relay)
    }

    /// Returns the usable relays with their indices in the consensus.
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

    /// Returns the consensus entry of the relay with this RSA identity. For a bridge, returns an
    /// equivalent entry from its descriptor. Returns `None` for an unknown relay.
    #[must_use]
    pub fn status(&self, id: &[u8; 20]) -> Option<&RelayStatus> {
        if let Some(bridge) = self.bridge(id) {
            return Some(&bridge.status);
        }
        Some(&self.consensus().relays[self.place(id)?])
    }

    /// Returns the relay or bridge with this RSA identity, if it is usable.
    #[must_use]
    pub fn relay(&self, id: &[u8; 20]) -> Option<Relay<'_>> {
        if let Some(bridge) = self.bridge(id) {
            return Some(Relay { status: &bridge.status, microdesc: &bridge.microdesc });
        }
        self.at(self.place(id)?)
    }

    /// Returns true if paths can be built. The usable relays must have three quarters of the
    /// bandwidth of all guards, of all exits, and of all relays. path-spec 2.1.1 requires 60 % of
    /// all paths instead.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        let enough = |(known, all): (&u64, &u64)| known * 4 >= all * 3;
        self.microdescs.iter().any(Option::is_some)
            && self.known.iter().zip(&self.listing.weight).all(enough)
    }

    /// Chooses a random relay for `position`, by bandwidth weight. `chosen` contains the other
    /// relays of the path: the chosen relay has no family or subnet in common with them.
    ///
    /// # Errors
    /// Returns [`NoRelay`] if no relay fits.
    pub fn choose(
        &self,
        position: Position,
        chosen: &[[u8; 20]],
        restrictions: &RelayRestrictions,
        rng: &mut impl Rng,
    ) -> Result<Relay<'_>, NoRelay> {
        let others: Vec<Relay<'_>> = chosen.iter().filter_map(|id| self.relay(id)).collect();
        let suits = |relay: &Relay<'_>| {
            !restrictions.exclude.contains(&relay.status.rsa_identity)
                && others.iter().all(|other| self.go_together(relay, other))
        };
        let drawn = match restrictions.wanted(position) {
            [] => self.draw(self.part(position), suits, rng),
            wanted => {
                let wanted = Table::of(self, position, self.fitting(wanted, position));
                self.draw(wanted.whole(), suits, rng)
            }
        };
        drawn.ok_or(NoRelay(position))
    }

    /// Returns the relays that fit `position`, as ranges of the tables for random choices.
    fn part(&self, position: Position) -> Part<'_> {
        let tables = self.tables();
        match position {
            Position::Guard => tables.guards.whole(),
            Position::Middle => tables.middles.whole(),
            Position::Directory => tables.directories.whole(),
            Position::Exit(target) => tables.exits.to(self, target),
        }
    }

    /// Returns the indices of the relays in `wanted` that fit `position`, without duplicates.
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

    /// Returns the relays that fit a position, each with its weight there.
    #[must_use]
    pub fn weights(&self, position: Position) -> Vec<([u8; 20], u64)> {
        let fitting = self.relays().filter(|relay| self.fits(relay, position));
        let with =
            |relay: Relay<'_>| (relay.status.rsa_identity, self.weight(relay.status, position));
        fitting.map(with).collect()
    }

    /// Chooses a random path to `target`: first the exit, which is hardest to find, then the
    /// guard, which `guard` returns for that exit, and then the middle hop.
    ///
    /// # Errors
    /// Returns the position for which no relay fits.
    pub fn path<R: Rng>(
        &self,
        target: Target,
        restrictions: &RelayRestrictions,
        rng: &mut R,
        guard: impl FnOnce(&[u8; 20], &mut R) -> Option<[u8; 20]>,
    ) -> Result<Path, NoRelay> {
        let exit = self.choose(Position::Exit(target), &[], restrictions, rng)?.status.rsa_identity;
        let guard = guard(&exit, rng).ok_or(NoRelay(Position::Guard))?;
        let middle = self.choose(Position::Middle, &[guard, exit], restrictions, rng)?;
        Ok([guard, middle.status.rsa_identity, exit])
    }

    /// Returns true if the relays `one` and `other` may be in the same path. Returns false if
    /// either of them is unknown.
    #[must_use]
    pub fn agree(&self, one: &[u8; 20], other: &[u8; 20]) -> bool {
        let pair = self.relay(one).zip(self.relay(other));
        pair.is_some_and(|(one, other)| self.go_together(&one, &other))
    }

    /// Returns the relays that could be guards, whether or not their keys are known.
    pub fn guards(&self) -> impl Iterator<Item = &RelayStatus> {
        self.consensus().relays.iter().filter(|status| is_guard(status))
    }

    /// Returns the number of relays that could be guards.
    #[must_use]
    pub fn guard_count(&self) -> usize {
        self.listing.guards
    }

    /// Returns whether the relay could be a guard, whether or not its keys are known.
    #[must_use]
    pub fn lists_guard(&self, id: &[u8; 20]) -> bool {
        self.status(id).is_some_and(is_guard)
    }

    /// Chooses a random guard, by bandwidth weight, from the relays that could be guards and that
    /// `wanted` accepts. Returns `None` if there is no such relay.
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

    /// Returns true if `one` and `other` may be in the same path: they are different relays
    /// without a common family or subnet.
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

    /// Returns the relay's bandwidth, multiplied by the weight that `position` has for relays of
    /// its type (dir-spec 3.8.3).
    fn weight(&self, relay: &RelayStatus, position: Position) -> u64 {
        u64::from(relay.bandwidth) * self.listing.position_weight(relay, position)
    }
}

/// Returns whether a relay has all the flags that a guard needs for any circuit (guard-spec 4.0).
fn is_guard(status: &RelayStatus) -> bool {
    let flags = status.flags;
    flags.guard && flags.stable && flags.fast && flags.v2dir && !flags.middle_only
}

/// Returns whether two relays have addresses in the same /16 (IPv6: /32).
fn share_subnet(one: &[SocketAddr], other: &[SocketAddr]) -> bool {
    let subnet = |at: &SocketAddr| match at.ip() {
        IpAddr::V4(ip) => (4, ip.to_bits() >> 16),
        IpAddr::V6(ip) => (
            6,
            u32::try_from(ip.to_bits() >> 96)
                .expect("the upper 32 bits of an address fit into 32 bits"),
        ),
    };
    one.iter().any(|a| other.iter().any(|b| subnet(a) == subnet(b)))
}
