//! Limits on fake relays. Anybody can make any number of descriptors with any addresses. There are
//! therefore limits on the relays at one address, and on the relays that have never answered a
//! probe. New relays from different parts of the Internet take turns.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::flags::Merits;

/// Maximum number of relays that have never answered a probe, in total.
const MOST: usize = 2_000;
/// Maximum number of relays that have never answered a probe and whose descriptors came from one
/// uploader.
const MOST_OF_ONE: usize = 32;
/// Maximum number of relays that have never answered a probe and whose descriptors were uploaded
/// over circuits. The addresses of such uploaders are unknown.
const MOST_BY_CIRCUITS: usize = 256;
/// Number of relays kept for one address, as a multiple of the number that a consensus may list.
/// The surplus can replace relays that are down.
const SPARE: usize = 4;
/// Minimum number of relays kept for one address.
const LEAST: usize = 8;
/// Number of remembered address blocks above which the blocks whose relays have all been probed
/// are forgotten.
const PARTS: usize = 4_096;

/// The origin of a descriptor: an IPv4 address, the first 48 bits of an IPv6 address (one
/// customer's block), or a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Origin(Option<IpAddr>);

impl Origin {
    /// Returns the origin of an upload from the address `visitor`, which is `None` over a circuit.
    pub(super) fn of(visitor: Option<IpAddr>) -> Origin {
        Origin(visitor.map(|visitor| match visitor.to_canonical() {
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 80 << 80).into(),
            v4 => v4,
        }))
    }

    /// Returns the origin's part of the Internet: the first 16 bits of an IPv4 address, or 32 bits
    /// of IPv6. Few operators own many such parts.
    fn part(self) -> Origin {
        Origin(self.0.map(|from| match from {
            IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() >> 16 << 16).into(),
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 96 << 96).into(),
        }))
    }

    fn most(self) -> usize {
        if self.0.is_some() { MOST_OF_ONE } else { MOST_BY_CIRCUITS }
    }
}

/// A limit that is reached, and the relays from which one must be removed to make room. Only
/// relays that have never answered a probe can be removed.
pub(super) enum Full {
    /// One of these relays must be removed.
    These(BTreeSet<[u8; 20]>),
    /// Any relay that has never answered a probe may be removed.
    All,
}

/// The known relays by address and by origin, for the limits on fake relays.
#[derive(Clone, Debug, Default)]
pub(super) struct SybilLimits {
    at: BTreeMap<IpAddr, BTreeSet<[u8; 20]>>,
    /// Relays that have never answered a probe, each with the origin of its descriptor.
    strangers: BTreeMap<[u8; 20], Origin>,
    of: BTreeMap<Origin, BTreeSet<[u8; 20]>>,
    /// The last turn (place in the order of probes) assigned to each part of the Internet.
    parts: BTreeMap<Origin, u64>,
    /// The latest turn (place in the order of probes) at which a relay was probed.
    now: u64,
}

impl SybilLimits {
    /// Records that the relay `id` has these addresses.
    pub(super) fn settle(&mut self, id: [u8; 20], addresses: &[SocketAddr]) {
        for address in addresses {
            self.at.entry(address.ip()).or_default().insert(id);
        }
    }

    /// Removes the relay `id` from these addresses.
    pub(super) fn leave(&mut self, id: &[u8; 20], addresses: &[SocketAddr]) {
        addresses.iter().for_each(|address| take(&mut self.at, &address.ip(), id));
    }

    /// Records a relay that has never answered a probe, and the origin of its descriptor.
    pub(super) fn add_stranger(&mut self, id: [u8; 20], origin: Origin) {
        self.strangers.insert(id, origin);
        self.of.entry(origin).or_default().insert(id);
    }

    /// Returns the turn of a new relay from `origin`. New relays are probed in the order of their
    /// turns. Each part of the Internet gets one relay per turn (start-time fair queueing).
    pub(super) fn turn(&self, origin: Origin) -> u64 {
        self.now.max(self.parts.get(&origin.part()).copied().unwrap_or(0)) + 1
    }

    /// Records that `turn` (a place in the order of probes) was assigned to a relay from the same
    /// part of the Internet as `origin`. It is the latest turn for this part.
    pub(super) fn take_turn(&mut self, origin: Origin, turn: u64) {
        if self.parts.len() > PARTS {
            self.parts.retain(|_, last| *last > self.now);
        }
        self.parts.insert(origin.part(), turn);
    }

    /// Records that the relay with this `turn` (place in the order of probes) is being probed.
    pub(super) fn probe_started(&mut self, turn: u64) {
        self.now = self.now.max(turn);
    }

    /// Removes a relay from the relays that have never answered a probe, because it has answered
    /// one or was removed from the list of relays.
    pub(super) fn remove_stranger(&mut self, id: &[u8; 20]) {
        if let Some(origin) = self.strangers.remove(id) {
            take(&mut self.of, &origin, id);
        }
    }

    /// Returns the limits that the relay `id` would exceed at `addresses`. `most` is the maximum
    /// number of listed relays per address; if it is 0, only the total of relays that have never
    /// answered a probe is limited. `stranger` is the origin of the relay's descriptor if the
    /// relay has never answered a probe, else `None`.
    pub(super) fn full(
        &self,
        id: &[u8; 20],
        addresses: &[SocketAddr],
        stranger: Option<Origin>,
        most: usize,
    ) -> Vec<Full> {
        let mut full = Vec::new();
        let mut check = |sybil: Option<&BTreeSet<[u8; 20]>>, most: usize| {
            if let Some(sybil) = sybil.filter(|sybil| sybil.len() >= most && !sybil.contains(id)) {
                full.push(Full::These(sybil.clone()));
            }
        };
        if most > 0 {
            let kept = (most * SPARE).max(LEAST);
            addresses.iter().for_each(|address| check(self.at.get(&address.ip()), kept));
            stranger.into_iter().for_each(|origin| check(self.of.get(&origin), origin.most()));
        }
        if stranger.is_some() && self.strangers.len() >= MOST && !self.strangers.contains_key(id) {
            full.push(Full::All);
        }
        full
    }
}

fn take<K: Ord>(crowds: &mut BTreeMap<K, BTreeSet<[u8; 20]>>, key: &K, id: &[u8; 20]) {
    if let Some(sybil) = crowds.get_mut(key) {
        sybil.remove(id);
        if sybil.is_empty() {
            crowds.remove(key);
        }
    }
}

/// A relay that the consensus may list.
pub(super) struct Candidate<'a> {
    pub(super) id: [u8; 20],
    pub(super) merits: &'a Merits,
    /// The relay's addresses that count for the limit per address.
    pub(super) at: BTreeSet<IpAddr>,
}

/// Returns the relays to leave out because more than `most` relays share an address (dir-spec,
/// "Sybil"); 0 means no limit. Authorities are preferred, then running relays, then relays with
/// more bandwidth.
pub(super) fn sybils(mut all: Vec<Candidate<'_>>, most: usize) -> BTreeSet<[u8; 20]> {
    if most == 0 {
        return BTreeSet::new();
    }
    all.sort_by_key(|Candidate { id, merits, .. }| {
        (Reverse(merits.authority), Reverse(merits.running), Reverse(merits.bandwidth), *id)
    });
    let mut counted: BTreeMap<IpAddr, usize> = BTreeMap::new();
    let mut beyond = BTreeSet::new();
    for Candidate { id, at, .. } in all {
        for address in at {
            let count = counted.entry(address).or_default();
            *count += 1;
            if *count > most {
                beyond.insert(id);
            }
        }
    }
    beyond
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visitors_of_one_network_are_one() {
        let of = |text: &str| Origin::of(Some(text.parse().unwrap()));
        assert_eq!(of("2001:db8:1:2::3"), of("2001:db8:1:ffff::"));
        assert_ne!(of("2001:db8:1::"), of("2001:db8:2::"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_ne!(of("192.0.2.2"), Origin::of(None));
    }

    #[test]
    fn parts_of_the_internet_take_turns() {
        let mut sybil = SybilLimits::default();
        let of = |text: &str| Origin::of(Some(text.parse().unwrap()));
        for number in 0..100 {
            let origin = of(&format!("192.0.{number}.1"));
            assert_eq!(sybil.turn(origin), number + 1);
            sybil.take_turn(origin, number + 1);
        }
        assert_eq!(sybil.turn(of("198.51.100.1")), 1);
        sybil.probe_started(30);
        assert_eq!((sybil.turn(of("198.51.100.1")), sybil.turn(of("192.0.9.9"))), (31, 101));
        sybil.probe_started(100);
        (0..PARTS as u32).for_each(|n| {
            sybil.take_turn(Origin::of(Some(Ipv4Addr::from_bits(n << 16).into())), 7)
        });
        sybil.take_turn(Origin::of(None), 101);
        assert_eq!(sybil.parts.len(), 1);
    }

    #[test]
    fn crowds_fill_up_and_empty_again() {
        let mut sybil = SybilLimits::default();
        let (here, there) = (["192.0.2.1:1".parse().unwrap()], ["192.0.2.2:1".parse().unwrap()]);
        let origin = Origin::of(Some("192.0.2.9".parse().unwrap()));
        let count =
            |sybil: &SybilLimits, id: u8, at, from| sybil.full(&[id; 20], at, from, 2).len();
        for id in 0..8 {
            assert_eq!(count(&sybil, id, &here, Some(origin)), 0);
            sybil.settle([id; 20], &here);
            sybil.add_stranger([id; 20], origin);
        }
        assert_eq!(count(&sybil, 9, &here, None), 1);
        assert_eq!(sybil.full(&[9; 20], &here, Some(origin), 0).len(), 0, "without a limit");
        assert_eq!((count(&sybil, 3, &here, None), count(&sybil, 9, &there, None)), (0, 0));
        (8..32).for_each(|id| sybil.add_stranger([id; 20], origin));
        assert_eq!(count(&sybil, 40, &there, Some(origin)), 1);
        assert_eq!(count(&sybil, 40, &there, None), 0, "who has answered is not a stranger");
        sybil.remove_stranger(&[3; 20]);
        sybil.leave(&[3; 20], &here);
        assert_eq!(count(&sybil, 40, &here, Some(origin)), 0);
    }
}
