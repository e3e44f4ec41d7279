//! Samples of the relays of a real consensus.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use anabranch_multipath::seed::stream;
use anabranch_onion::directory::network::{Network, Relay};
use anabranch_onion::wire::crypto::Sha256;
use anabranch_onion::wire::netdoc::Flags;
use digest::Digest;
use rand::RngExt;

/// Minimum rate of a sampled relay's access line, in bits per second. It is also the minimum in
/// the rate tables.
const LEAST_RATE: u64 = 128_000;
/// Number of classes of relays. The flags Exit and Guard, each present or absent, determine a
/// relay's class.
const CLASSES: usize = 4;

/// A relay that a consensus lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedRelay {
    id: [u8; 20],
    pub(super) flags: Flags,
    /// Weight in the consensus, in kilobytes per second.
    pub(super) weight: u32,
    /// Ports of the exit policy, such as `accept 80,443` or `reject 25,119`; `None` if the relay
    /// permits no streams.
    ports: Option<String>,
}

impl ListedRelay {
    fn new(relay: &Relay<'_>) -> ListedRelay {
        let permits = relay.microdesc.exits() && !relay.status.flags.bad_exit;
        ListedRelay {
            id: relay.status.rsa_identity,
            flags: relay.status.flags,
            weight: relay.status.bandwidth,
            ports: permits.then(|| relay.microdesc.ports_v4()),
        }
    }

    /// Returns the index of the relay's class. Classes of exits come after the classes of other
    /// relays.
    fn class(&self) -> usize {
        usize::from(self.flags.guard) + 2 * usize::from(self.is_exit())
    }

    /// Returns whether the relay counts as an exit: it has the flag Exit, but not the flag
    /// BadExit.
    fn is_exit(&self) -> bool {
        self.flags.exit && !self.flags.bad_exit
    }

    /// Returns whether streams may leave the network at the relay.
    pub(super) fn permits_streams(&self) -> bool {
        self.ports.is_some()
    }

    /// Returns the rules of the relay's exit policy as a descriptor contains them.
    pub(super) fn rules(&self) -> Vec<String> {
        let Some((verb, ports)) = self.ports.as_deref().and_then(|ports| ports.split_once(' '))
        else {
            return vec!["reject *:*".to_owned()];
        };
        let rest = if verb == "accept" { "reject" } else { "accept" };
        let ports = ports.split(',').map(|ports| match ports {
            "1-65535" => format!("{verb} *:*"),
            ports => format!("{verb} *:{ports}"),
        });
        ports.chain([format!("{rest} *:*")]).collect()
    }

    /// Returns the rate of the relay's access line in bits per second: its weight, or
    /// [`LEAST_RATE`] if the weight is lower.
    pub(super) fn rate(&self) -> NonZeroU64 {
        let rate = (u64::from(self.weight) * 8000).max(LEAST_RATE);
        NonZeroU64::new(rate).unwrap_or(NonZeroU64::MIN)
    }
}

/// The relays of a consensus from which networks are sampled. Relays without a weight are left
/// out.
///
/// A sample is stratified, as in "Once is Never Enough" (USENIX Security 2021): each class of
/// relays (by the flags Exit and Guard) has the same share of the sample as of the consensus. A
/// class is sorted by weight and divided into strata, one for each relay of the sample, and a
/// relay is drawn from each stratum. A sample therefore has nearly the same distribution of
/// weights as the whole network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsensusRelays {
    /// Relays by class, each class sorted by weight.
    classes: [Vec<ListedRelay>; CLASSES],
    /// Bandwidth weights, by position in a path (`Wgg`, ...).
    pub(super) weights: BTreeMap<String, i32>,
}

impl ConsensusRelays {
    /// Returns the relays of the consensus of `network` that have a weight.
    pub fn new(network: &Network) -> ConsensusRelays {
        let mut classes: [Vec<ListedRelay>; CLASSES] = Default::default();
        for relay in network.relays().filter(|relay| relay.status.bandwidth > 0) {
            let relay = ListedRelay::new(&relay);
            classes[relay.class()].push(relay);
        }
        classes.iter_mut().for_each(|class| class.sort_by_key(|relay| (relay.weight, relay.id)));
        ConsensusRelays { classes, weights: network.consensus().weights.clone() }
    }

    /// Returns the number of relays.
    pub fn count(&self) -> usize {
        self.classes.iter().map(Vec::len).sum()
    }

    /// Returns the number of relays that are not exits, and the number of exits, in a sample of
    /// `count` relays. Both are the same for all samples of this size.
    pub fn counts(&self, count: usize) -> [usize; 2] {
        let [plain, guards, exits, both] = self.quotas(count);
        [plain + guards, exits + both]
    }

    /// Returns the number of relays of each class in a sample of `count` relays, rounded by the
    /// method of largest remainders.
    fn quotas(&self, count: usize) -> [usize; CLASSES] {
        let all = self.count().max(1);
        let count = count.min(self.count());
        let share = |class: usize| count * self.classes[class].len();
        let mut quotas = [0, 1, 2, 3].map(|class| share(class) / all);
        let mut order = [0, 1, 2, 3];
        order.sort_by_key(|&class| std::cmp::Reverse(share(class) % all));
        let left = count - quotas.iter().sum::<usize>();
        order.iter().take(left).for_each(|&class| quotas[class] += 1);
        quotas
    }

    /// Draws a sample of `count` relays with the seed `network`. In the result, exits come after
    /// other relays.
    pub(super) fn draw(&self, count: usize, network: u64) -> Vec<&ListedRelay> {
        let quotas = self.quotas(count);
        let classes = self.classes.iter().zip(quotas).enumerate();
        let relays = classes.flat_map(|(class, (relays, quota))| {
            (0..quota).map(move |stratum| {
                let [from, to] = [stratum, stratum + 1].map(|edge| edge * relays.len() / quota);
                let entity = ((class as u64) << 32) | stratum as u64;
                let mut rng = stream(network, entity, "sampled relay");
                &relays[rng.random_range(from..to)]
            })
        });
        relays.collect()
    }

    /// Returns the SHA-256 digest of the relays and weights. The digest identifies the consensus
    /// in results, so that results from different consensuses are not mixed.
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for relay in self.classes.iter().flatten() {
            hash.update(relay.id);
            hash.update(format!("{:?} {} {:?}\n", relay.flags, relay.weight, relay.ports));
        }
        hash.chain_update(format!("{:?}", self.weights)).finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the relays of a consensus, given the number of relays in each class. Some relays
    /// have low weights, and some have high weights.
    fn listed(sizes: [usize; CLASSES]) -> ConsensusRelays {
        let class = |(class, size): (usize, usize)| {
            let relay = |place: usize| ListedRelay {
                id: [place as u8; 20],
                flags: Flags { guard: class % 2 == 1, exit: class > 1, ..Flags::default() },
                weight: 10 + place as u32,
                ports: (class > 1).then(|| "accept 80,443".to_owned()),
            };
            (0..size).map(relay).collect::<Vec<_>>()
        };
        let mut all = sizes.into_iter().enumerate().map(class);
        let classes = [(); CLASSES].map(|()| all.next().unwrap());
        ConsensusRelays { classes, weights: BTreeMap::new() }
    }

    #[test]
    fn a_sample_has_each_class_and_each_range_of_weights_in_proportion() {
        let all = listed([100, 60, 30, 10]);
        assert_eq!((all.quotas(20), all.counts(20)), ([10, 6, 3, 1], [16, 4]));
        // Shares of 3.5, 2.1, 1.05 and 0.35 relays.
        assert_eq!(all.quotas(7), [4, 2, 1, 0]);
        for network in 1..20 {
            let drawn = all.draw(20, network);
            assert_eq!(drawn, all.draw(20, network));
            assert!(drawn.iter().map(|relay| relay.class()).is_sorted());
            let weights: Vec<u32> = drawn[..10].iter().map(|relay| relay.weight).collect();
            for (stratum, weight) in (0..).zip(weights) {
                assert!((10 + 10 * stratum..20 + 10 * stratum).contains(&weight));
            }
        }
        assert_ne!(all.draw(20, 1), all.draw(20, 2), "networks differ");
        assert_eq!(all.draw(200, 1).len(), 200);
        assert_eq!(all.draw(999, 1).len(), 200, "no relay twice");
    }

    #[test]
    fn policies_become_rules_with_the_same_ports() {
        let rules = |ports: Option<&str>| {
            let mut relay = listed([1, 0, 0, 0]).classes[0][0].clone();
            relay.ports = ports.map(str::to_owned);
            (relay.permits_streams(), relay.rules().join(", "))
        };
        let of = |permits: bool, text: &str| (permits, text.to_owned());
        assert_eq!(rules(None), of(false, "reject *:*"));
        assert_eq!(
            rules(Some("accept 80,443-445")),
            of(true, "accept *:80, accept *:443-445, reject *:*")
        );
        assert_eq!(rules(Some("reject 25")), of(true, "reject *:25, accept *:*"));
        assert_eq!(rules(Some("accept 1-65535")), of(true, "accept *:*, reject *:*"));
    }

    #[test]
    fn two_consensuses_have_two_digests() {
        let one = listed([3, 2, 2, 1]);
        assert_eq!(one.digest(), listed([3, 2, 2, 1]).digest());
        let mut other = one.clone();
        other.classes[2][0].weight += 1;
        assert_ne!(one.digest(), other.digest());
    }
}
