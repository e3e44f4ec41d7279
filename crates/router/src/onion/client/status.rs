//! A snapshot of a client's state.

use std::time::Duration;

use anabranch_links::EarlyCounts;
use anabranch_multipath::Time;
use anabranch_onion::SetNumbers;
use anabranch_onion::circmgr::Stage;
use anabranch_onion::conflux::Design;
use anabranch_onion::guards::Reach;

use crate::onion::tap::TapKind;

/// State of a client at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Time since the client was started.
    pub now: Time,
    /// Number of relays in the consensus, and how many of them have usable descriptors.
    pub relays: [usize; 2],
    /// Nicknames of the primary guards in order of preference, each with its reachability.
    pub guards: Vec<(String, Reach)>,
    /// The circuits that carry programs' streams, oldest first.
    pub circuits: Vec<CircuitStatus>,
    /// Sets of several circuits over which streams are split, oldest first.
    pub sets: Vec<SetStatus>,
    /// Multipath design, which all sets use.
    pub design: Design,
    /// Number of connected programs.
    pub programs: usize,
    /// Number of the programs' streams.
    pub streams: usize,
    /// Number of links to relays.
    pub links: usize,
    /// Bytes on all links: received, sent.
    pub wire: [u64; 2],
    /// Numbers of padding cells: received, sent.
    pub padding: [u64; 2],
    /// Bytes of queued cells: in total, and waiting for cells on other legs of their set.
    pub waiting: [usize; 2],
    /// Maximum number of bytes that have waited for other legs in one set since the start.
    pub most_reordered: usize,
    /// Maximum bytes of queued cells (`--memory`).
    pub memory: usize,
    /// Kind of the tap that delivers TCP segments out of order; `None` if links must be ordered.
    pub tap: Option<TapKind>,
    /// Numbers of TLS records that were opened out of order, and that could not be.
    pub early: EarlyCounts,
    /// Number of open QUIC links, and number of circuits on them; `None` if QUIC is disabled.
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

/// State of a set of several circuits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetStatus {
    /// Number of the set's first circuit.
    pub number: u64,
    /// State of the set as the core reports it.
    pub seen: SetNumbers,
    /// Numbers and paths of the set's legs, in the order of [`SetNumbers::legs`].
    pub places: Vec<LegPath>,
}

/// A leg's number and path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LegPath {
    /// Number of the leg in its set, from 0. It is reused after the leg is closed.
    pub leg: usize,
    /// Relays of the leg, first hop first.
    pub relays: Vec<RelayName>,
}

/// A relay's names.
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
    /// Number of the circuit.
    pub number: u64,
    /// Nicknames of the circuit's relays, first hop first.
    pub path: Vec<String>,
    /// Time since building of the circuit began.
    pub age: Duration,
    /// Stage of the circuit's life.
    pub stage: Stage,
    /// Number of streams on the circuit.
    pub streams: usize,
    /// Bytes of streams on the circuit: received, sent.
    pub carried: [u64; 2],
}
