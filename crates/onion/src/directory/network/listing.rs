//! A consensus, and values that depend on it alone.

use super::Position;
use crate::directory::params::Params;
use crate::wire::netdoc::{Consensus, RelayStatus};

/// The position weight that stands for a factor of 1 (default of `bwweightscale`).
const WHOLE: u64 = 10_000;
/// The letters of positions in the names of the consensus's `bandwidth-weights`, such as the `g`
/// in `Wgd`: guard, middle, exit, and directory request (`b`).
const POSITIONS: [char; 4] = ['g', 'm', 'e', 'b'];
/// The letters of relay types in the names of the consensus's `bandwidth-weights`, such as the `d`
/// in `Wgd`: guard only, neither guard nor exit (`m`), exit only, and both guard and exit (`d`).
const KINDS: [char; 4] = ['g', 'm', 'e', 'd'];

/// A consensus, and frequently needed values that are derived from it.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) consensus: Consensus,
    pub(super) params: Params,
    /// Digests of microdescriptors in sorted order, each with the index of its relay.
    digests: Vec<([u8; 32], u32)>,
    /// Total bandwidth of all guards, of all exits, and of all relays ([`Listing::weight_of`]).
    pub(super) weight: [u64; 3],
    /// Number of relays that could be guards.
    pub(super) guards: usize,
    /// Position weights, by position and then by type of relay.
    weights: [[u64; 4]; 4],
}

impl Listing {
    pub(super) fn new(consensus: Consensus) -> Listing {
        let relays = &consensus.relays;
        let mut digests: Vec<([u8; 32], u32)> =
            relays.iter().map(|relay| relay.microdesc).zip(0..).collect();
        digests.sort_unstable();
        let mut weight = [0; 3];
        for relay in relays {
            weight.iter_mut().zip(Listing::weight_of(relay)).for_each(|(sum, more)| *sum += more);
        }
        let guards = relays.iter().filter(|relay| super::is_guard(relay)).count();
        let weights = POSITIONS.map(|place| {
            KINDS.map(|kind| {
                let value = consensus.weights.get(&format!("W{place}{kind}"));
                value.map_or(WHOLE, |&value| u64::try_from(value).unwrap_or(0)).min(WHOLE)
            })
        });
        let params = Params::new(&consensus.params);
        Listing { params, digests, weight, guards, weights, consensus }
    }

    /// Returns the relays whose microdescriptor has this digest. There is usually one. There are
    /// more only if relays copy the microdescriptor of another.
    pub(super) fn named(&self, digest: &[u8; 32]) -> &[([u8; 32], u32)] {
        let begin = self.digests.partition_point(|(other, _)| other < digest);
        let end = self.digests.partition_point(|(other, _)| other <= digest);
        &self.digests[begin..end]
    }

    /// Returns the bandwidth that a relay contributes to each of three sums: guards, exits, and
    /// all relays.
    pub(super) fn weight_of(relay: &RelayStatus) -> [u64; 3] {
        let bandwidth = u64::from(relay.bandwidth);
        let one = |is: bool| if is { bandwidth } else { 0 };
        [one(relay.flags.guard), one(relay.flags.exit), bandwidth]
    }

    /// Returns the weight of `position` for relays of this relay's type, in parts of 10,000
    /// (dir-spec 3.8.3).
    pub(super) fn position_weight(&self, relay: &RelayStatus, position: Position) -> u64 {
        let kind = match (relay.flags.guard, relay.flags.exit && !relay.flags.bad_exit) {
            (true, false) => 0,
            (false, false) => 1,
            (false, true) => 2,
            (true, true) => 3,
        };
        let position = match position {
            Position::Guard => 0,
            Position::Middle => 1,
            Position::Exit(_) => 2,
            Position::Directory => 3,
        };
        self.weights[position][kind]
    }
}
