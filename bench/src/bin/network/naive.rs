//! The baseline: an earlier implementation, which iterates over all relays for each choice instead
//! of summing weights once per consensus.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use anabranch_onion::directory::network::Target;
use anabranch_onion::wire::netdoc::{Consensus, Microdesc, RelayStatus};
use rand_core::Rng;

/// Consensus and microdescriptors by digest.
#[derive(Clone)]
pub(crate) struct Naive {
    consensus: Consensus,
    microdescs: BTreeMap<[u8; 32], Microdesc>,
}

type Relay<'a> = (&'a RelayStatus, &'a Microdesc);

impl Naive {
    pub(crate) fn new(consensus: Consensus) -> Naive {
        Naive { consensus, microdescs: BTreeMap::new() }
    }

    pub(crate) fn learn(&mut self, microdesc: Microdesc) {
        if self.consensus.relays.iter().any(|one| one.microdesc == microdesc.digest) {
            self.microdescs.insert(microdesc.digest, microdesc);
        }
    }

    pub(crate) fn missing(&self) -> impl Iterator<Item = [u8; 32]> {
        let all = self.consensus.relays.iter().map(|one| one.microdesc);
        all.filter(|digest| !self.microdescs.contains_key(digest))
    }

    pub(crate) fn is_enough(&self) -> bool {
        let weigh = |wanted: fn(&RelayStatus) -> bool, known: bool| -> u64 {
            let all = self.consensus.relays.iter().filter(|one| wanted(one));
            let counted = all.filter(|one| !known || self.microdescs.contains_key(&one.microdesc));
            counted.map(|one| u64::from(one.bandwidth)).sum()
        };
        let positions: [fn(&RelayStatus) -> bool; 3] =
            [|one| one.flags.guard, |one| one.flags.exit, |_| true];
        positions.iter().all(|wanted| weigh(*wanted, true) * 4 >= weigh(*wanted, false) * 3)
    }

    /// Returns a path through `guard`.
    pub(crate) fn path(
        &self,
        target: Target,
        guard: &[u8; 20],
        rng: &mut impl Rng,
    ) -> Option<[[u8; 20]; 3]> {
        let exits = |one: &Relay<'_>| !one.0.flags.bad_exit && one.1.exits_to(target.port, false);
        let exit = self.draw('e', exits, rng)?;
        let guard = self.relays().find(|(status, _)| status.rsa_identity == *guard)?;
        let middle = |one: &Relay<'_>| {
            one.0.flags.fast && go_together(one, &guard) && go_together(one, &exit)
        };
        let middle = self.draw('m', middle, rng)?;
        Some([guard, middle, exit].map(|(status, _)| status.rsa_identity))
    }

    pub(crate) fn draw_guard(&self, taken: &[[u8; 20]], rng: &mut impl Rng) -> Option<[u8; 20]> {
        let free = |(status, _): &Relay<'_>| {
            let flags = status.flags;
            flags.guard
                && flags.stable
                && flags.fast
                && flags.v2dir
                && !taken.contains(&status.rsa_identity)
        };
        self.draw('g', free, rng).map(|(status, _)| status.rsa_identity)
    }

    fn relays<'a>(&'a self) -> impl Iterator<Item = Relay<'a>> {
        let with =
            |status: &'a RelayStatus| Some((status, self.microdescs.get(&status.microdesc)?));
        self.consensus.relays.iter().filter_map(with)
    }

    fn draw(
        &self,
        position: char,
        fits: impl Fn(&Relay<'_>) -> bool,
        rng: &mut impl Rng,
    ) -> Option<Relay<'_>> {
        let fitting: Vec<Relay<'_>> = self.relays().filter(fits).collect();
        let weights: Vec<u64> =
            fitting.iter().map(|(status, _)| self.weight(status, position)).collect();
        let total: u64 = weights.iter().sum();
        let mut left = rng.next_u64() % total.max(1);
        let place = weights.iter().position(|&weight| {
            let here = left < weight;
            left = left.saturating_sub(weight);
            here
        })?;
        Some(fitting[place])
    }

    fn weight(&self, status: &RelayStatus, position: char) -> u64 {
        let kind = match (status.flags.guard, status.flags.exit) {
            (true, true) => "d",
            (true, false) => "g",
            (false, true) => "e",
            (false, false) => "m",
        };
        let weight = self.consensus.weights.get(&format!("W{position}{kind}"));
        let weight = weight.map_or(10_000, |&weight| u64::try_from(weight).unwrap_or(0));
        u64::from(status.bandwidth) * weight
    }
}

fn go_together(one: &Relay<'_>, other: &Relay<'_>) -> bool {
    let related = one.1.family.contains(&other.0.rsa_identity)
        && other.1.family.contains(&one.0.rsa_identity);
    let subnet = |at: &SocketAddr| match at.ip() {
        IpAddr::V4(ip) => u128::from(ip.to_bits() >> 16),
        IpAddr::V6(ip) => ip.to_bits() >> 96,
    };
    let near =
        one.0.addresses.iter().any(|a| other.0.addresses.iter().any(|b| subnet(a) == subnet(b)));
    one.0.rsa_identity != other.0.rsa_identity && !related && !near
}
