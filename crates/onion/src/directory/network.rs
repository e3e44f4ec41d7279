//! The relays of a consensus together with their microdescriptors, and the choice of paths among
//! them (path-spec 2.2).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use rand_core::Rng;

use super::params::Params;
use crate::wire::netdoc::{Consensus, Microdesc, RelayStatus};

mod possible;

/// Ports whose connections live long, so that all relays of their circuits should be stable (C tor's
/// list).
const LONG_LIVED: [u16; 12] = [21, 22, 706, 1863, 5050, 5190, 5222, 5223, 6523, 6667, 6697, 8300];
/// Weights are in parts of this.
const WHOLE: u64 = 10_000;

/// What is known of the network.
#[derive(Clone, Debug)]
pub struct Network {
    consensus: Consensus,
    microdescs: BTreeMap<[u8; 32], Microdesc>,
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
        let wanted = match position {
            Position::Guard | Position::Directory => &self.entry,
            Position::Middle => &self.middle,
            Position::Exit(_) => &self.exit,
        };
        !self.exclude.contains(id) && (wanted.is_empty() || wanted.contains(id))
    }
}

/// No relay fits a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRelay(pub Position);

impl std::fmt::Display for NoRelay {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Position::Guard => out.write_str("no relay can be the first hop of a path"),
            Position::Middle => out.write_str("no relay is left for the middle of a path"),
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
        Network { consensus, microdescs: BTreeMap::new(), share_subnets: false }
    }

    /// The same relays under a newer consensus; microdescriptors that are still named stay.
    #[must_use]
    pub fn renewed(mut self, consensus: Consensus) -> Network {
        let mut fresh = Network::new(consensus);
        fresh.share_subnets = self.share_subnets;
        for status in &fresh.consensus.relays {
            if let Some(known) = self.microdescs.remove(&status.microdesc) {
                fresh.microdescs.insert(known.digest, known);
            }
        }
        fresh
    }

    /// The consensus.
    #[must_use]
    pub fn consensus(&self) -> &Consensus {
        &self.consensus
    }

    /// The parameters of the consensus.
    #[must_use]
    pub fn params(&self) -> Params {
        Params::new(&self.consensus.params)
    }

    /// Takes a microdescriptor; false if the consensus does not name it.
    pub fn learn(&mut self, microdesc: Microdesc) -> bool {
        let named = self.consensus.relays.iter().any(|one| one.microdesc == microdesc.digest);
        if named {
            self.microdescs.insert(microdesc.digest, microdesc);
        }
        named
    }

    /// The digests of microdescriptors that are named and not known.
    pub fn missing(&self) -> impl Iterator<Item = [u8; 32]> {
        let known = |digest: &[u8; 32]| self.microdescs.contains_key(digest);
        self.consensus.relays.iter().map(|one| one.microdesc).filter(move |one| !known(one))
    }

    /// Relays that can be used.
    pub fn relays(&self) -> impl Iterator<Item = Relay<'_>> {
        let with =
            |status| Some(Relay { status, microdesc: self.microdescs.get(&status.microdesc)? });
        self.consensus.relays.iter().filter_map(with)
    }

    /// What authorities say of the relay of this RSA identity.
    #[must_use]
    pub fn status(&self, id: &[u8; 20]) -> Option<&RelayStatus> {
        let relays = &self.consensus.relays;
        let place = relays.binary_search_by_key(id, |status| status.rsa_identity).ok()?;
        Some(&relays[place])
    }

    /// The relay of this RSA identity, if it can be used.
    #[must_use]
    pub fn relay(&self, id: &[u8; 20]) -> Option<Relay<'_>> {
        let status = self.status(id)?;
        Some(Relay { status, microdesc: self.microdescs.get(&status.microdesc)? })
    }

    /// Whether paths can be built: the known relays have three quarters of the weight of each position
    /// (path-spec 2.1.1 asks for 60 % of whole paths).
    #[must_use]
    pub fn is_enough(&self) -> bool {
        let weigh = |wanted: fn(&RelayStatus) -> bool, known: bool| -> u64 {
            let all = self.consensus.relays.iter().filter(|one| wanted(one));
            let counted = all.filter(|one| !known || self.microdescs.contains_key(&one.microdesc));
            counted.map(|one| u64::from(one.bandwidth)).sum()
        };
        let positions: [fn(&RelayStatus) -> bool; 3] =
            [|one| one.flags.guard, |one| one.flags.exit, |_| true];
        let enough = |wanted: &fn(&RelayStatus) -> bool| {
            let (all, known) = (weigh(*wanted, false), weigh(*wanted, true));
            known * 4 >= all * 3
        };
        !self.consensus.relays.is_empty()
            && self.relays().next().is_some()
            && positions.iter().all(enough)
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
        let fitting: Vec<Relay<'_>> = self
            .relays()
            .filter(|relay| wishes.allow(position, &relay.status.rsa_identity))
            .filter(|relay| self.fits(relay, position))
            .filter(|relay| others.iter().all(|other| self.go_together(relay, other)))
            .collect();
        let weights: Vec<u64> = fitting.iter().map(|relay| self.weight(relay, position)).collect();
        draw(&weights, rng).map(|place| fitting[place]).ok_or(NoRelay(position))
    }

    /// Draws a path to `target`: the exit first, as it is hardest to find, then the guard that `guard` gives for it, then what is between
    /// them.
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
        self.consensus.relays.iter().filter(|status| could_be_guard(status))
    }

    /// Draws one of the relays that could be guards and that `wanted` admits, by bandwidth weights.
    pub fn draw_guard(
        &self,
        wanted: impl Fn(&[u8; 20]) -> bool,
        rng: &mut impl Rng,
    ) -> Option<[u8; 20]> {
        let fitting: Vec<Relay<'_>> = self
            .relays()
            .filter(|relay| could_be_guard(relay.status) && wanted(&relay.status.rsa_identity))
            .collect();
        let weights: Vec<u64> =
            fitting.iter().map(|relay| self.weight(relay, Position::Guard)).collect();
        draw(&weights, rng).map(|place| fitting[place].status.rsa_identity)
    }

    fn fits(&self, relay: &Relay<'_>, position: Position) -> bool {
        let flags = relay.status.flags;
        match position {
            Position::Guard => could_be_guard(relay.status),
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
    fn weight(&self, relay: &Relay<'_>, position: Position) -> u64 {
        let flags = relay.status.flags;
        let kind = match (flags.guard, flags.exit && !flags.bad_exit) {
            (true, true) => "d",
            (true, false) => "g",
            (false, true) => "e",
            (false, false) => "m",
        };
        let place = match position {
            Position::Guard => "g",
            Position::Middle => "m",
            Position::Exit(_) => "e",
            Position::Directory => "b",
        };
        let weight = self.consensus.weights.get(&format!("W{place}{kind}"));
        let weight = weight.map_or(WHOLE, |&weight| u64::try_from(weight).unwrap_or(0));
        u64::from(relay.status.bandwidth) * weight.min(WHOLE)
    }
}

/// Whether a relay has all the flags that a guard needs for any circuit (guard-spec 4.0).
fn could_be_guard(status: &RelayStatus) -> bool {
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

/// A place drawn by weight; by equal chances where all weights are zero.
fn draw(weights: &[u64], rng: &mut impl Rng) -> Option<usize> {
    let total: u64 = weights.iter().sum();
    if weights.is_empty() {
        return None;
    }
    if total == 0 {
        return Some(below(weights.len() as u64, rng) as usize);
    }
    let mut left = below(total, rng);
    weights.iter().position(|&weight| {
        let here = left < weight;
        left = left.saturating_sub(weight);
        here
    })
}

/// An even draw below `end`, which is above zero: what would favour small numbers is drawn again.
pub(crate) fn below(end: u64, rng: &mut (impl Rng + ?Sized)) -> u64 {
    let fair = u64::MAX - u64::MAX % end;
    loop {
        let drawn = rng.next_u64();
        if drawn < fair {
            return drawn % end;
        }
    }
}
