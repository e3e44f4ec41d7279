//! A snapshot of a client's state.

use std::time::Duration;

use anabranch_links::EarlyCounts;
use anabranch_multipath::Time;
use anabranch_onion::SetNumbers;
use anabranch_onion::circmgr::Stage;
use anabranch_onion::conflux::Design;
use anabranch_onion::guards::Reach;

use crate::onion::tap::TapKind;

/// A client's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Time since the client was started.
    pub now: Time,
    /// Number of relays in the consensus, and of those with usable descriptors.
    pub relays: [usize; 2],
    /// Nicknames of the primary guards, best first.
    pub guards: Vec<(String, Reach)>,
    /// The circuits for programs, oldest first.
    pub circuits: Vec<CircuitStatus>,
    /// The sets that several circuits may join, oldest first.
    pub sets: Vec<SetStatus>,
    /// Design of circuits with several legs.
    pub design: Design,
    /// Number of connected programs.
    pub programs: usize,
    /// Number of their streams.
    pub streams: usize,
    /// Number of links to relays.
    pub links: usize,
    /// Bytes over links: received, sent.
    pub wire: [u64; 2],
    /// Padding cells: received, sent.
    pub padding: [u64; 2],
    /// Bytes of queued cells: in total, including cells that wait for other legs; only the latter.
    pub waiting: [usize; 2],
    /// Maximum bytes that have ever waited in one set for other legs.
    pub most_reordered: usize,
    /// Limit of queued cells, in bytes (`--memory`).
    pub memory: usize,
    /// Tap for out-of-order delivery, if links may be unordered.
    pub tap: Option<TapKind>,
    /// Number of records opened out of order.
    pub early: EarlyCounts,
    /// Number of open QUIC links and of circuits on them, if QUIC is enabled.
    pub quic: Option<[usize; 2]>,
}

impl Status {
    /// Returns the number of built circuits, and of those being built.
    #[must_use]
    pub fn circuits(&self) -> (usize, usize) {
        let is_built = |seen: &&CircuitStatus| !matches!(seen.stage, Stage::Building(_));
        let built = self.circuits.iter().filter(is_built).count();
        (built, self.circuits.len() - built)
    }
}

/// A set that several circuits may join.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetStatus {
    /// Number of the circuit that began it.
    pub number: u64,
    /// The core's view of the set.
    pub seen: SetNumbers,
    /// Further facts about its legs, in the order of [`SetNumbers::legs`].
    pub places: Vec<LegPlace>,
}

/// A leg's number and path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LegPlace {
    /// Number in the set, from 0; reused after the leg is gone.
    pub leg: usize,
    /// Its relays, first hop first.
    pub relays: Vec<RelayName>,
}

/// A relay's names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayName {
    /// Nickname; `?` if it is no longer listed.
    pub nickname: String,
    /// Fingerprint in upper-case hexadecimal.
    pub fingerprint: String,
}

/// A circuit's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircuitStatus {
    /// Number.
    pub number: u64,
    /// Nicknames of its relays, first hop first.
    pub path: Vec<String>,
    /// Time since it was begun.
    pub age: Duration,
    /// Stage of its life.
    pub stage: Stage,
    /// Number of streams on it.
    pub streams: usize,
    /// Bytes of streams: received, sent.
    pub carried: [u64; 2],
}
