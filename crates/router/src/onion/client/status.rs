//! A snapshot of a client's state.

use std::time::Duration;

use anabranch_links::EarlyCounts;
use anabranch_multipath::Time;
use anabranch_onion::SetNumbers;
use anabranch_onion::circmgr::Stage;
use anabranch_onion::conflux::Design;
use anabranch_onion::guards::GuardReachability;

use crate::onion::tap::TapKind;

/// State of a client at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Time since the client was started.
    pub now: Time,
    /// Number of relays in the consensus, and number of relays with usable descriptors.
    pub relays: [usize; 2],
    /// The primary guards in order of preference: the nickname and the reachability of each.
    pub guards: Vec<(String, GuardReachability)>,
    /// The circuits that carry programs' streams, oldest first.
    pub circuits: Vec<CircuitStatus>,
    /// Sets of several circuits that carry the same streams, the oldest set first.
    pub sets: Vec<SetStatus>,
    /// Multipath design: the protocol that lets several circuits carry the same streams.
    pub design: Design,
    /// Number of connected programs.
    pub programs: usize,
    /// Number of open streams of all programs.
    pub streams: usize,
    /// Number of links to relays.
    pub links: usize,
    /// Bytes received and sent on all links.
    pub wire: [u64; 2],
    /// Number of padding cells received and sent.
    pub padding: [u64; 2],
    /// Bytes of queued cells: the total, and the part that waits for earlier cells on other
    /// circuits of the same set, because the order must be restored.
    pub waiting: [usize; 2],
    /// Maximum number of bytes, since the client's start, that one set of circuits has buffered in
    /// order to restore the order of cells.
    pub most_reordered: usize,
    /// Maximum memory for queued cells in bytes (option `--memory`).
    pub memory: usize,
    /// Kind of the packet tap that delivers TCP segments before earlier segments have arrived;
    /// `None` if only ordered links are used.
    pub tap: Option<TapKind>,
    /// Number of TLS records that were decrypted before earlier records had arrived, and number of
    /// records for which this failed.
    pub early: EarlyCounts,
    /// Number of open QUIC links, and number of circuits on QUIC links; `None` if QUIC is
    /// disabled.
    pub quic: Option<[usize; 2]>,
}

impl Status {
    /// Returns the number of built circuits, and the number of circuits being built.
    #[must_use]
    pub fn circuits(&self) -> (usize, usize) {
        let is_built = |seen: &&CircuitStatus| !matches!(seen.stage, Stage::Building(_));
        let built = self.circuits.iter().filter(is_built).count();
        (built, self.circuits.len() - built)
    }
}

/// State of a set of several circuits that carry the same streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetStatus {
    /// Identifier of the set: the identifier of its first circuit.
    pub number: u64,
    /// Counters and state of the set as the protocol core reports them.
    pub seen: SetNumbers,
    /// For each circuit of the set, its index in the set and its relays, in the order of
    /// [`SetNumbers::legs`].
    pub places: Vec<LegPath>,
}

/// Index of a circuit within its set, and the circuit's relays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LegPath {
    /// Index of the circuit within its set, from 0. After the circuit is closed, a new circuit of
    /// the set may get the same index.
    pub leg: usize,
    /// Relays of the circuit, first hop first.
    pub relays: Vec<RelayName>,
}

/// A relay's nickname and fingerprint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayName {
    /// Nickname; `?` if the consensus no longer lists the relay.
    pub nickname: String,
    /// Fingerprint in upper-case hexadecimal.
    pub fingerprint: String,
}

/// A circuit's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircuitStatus {
    /// Identifier of the circuit.
    pub number: u64,
    /// Nicknames of the circuit's relays, first hop first.
    pub path: Vec<String>,
    /// Time since the client began to build the circuit.
    pub age: Duration,
    /// Stage of the circuit: being built, in use, or retired.
    pub stage: Stage,
    /// Number of streams on the circuit.
    pub streams: usize,
    /// Stream bytes received and sent on the circuit.
    pub transferred: [u64; 2],
}
