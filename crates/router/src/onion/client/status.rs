//! What there is to see of a client at a moment.

use std::time::Duration;

use anabranch_links::EarlyCounts;
use anabranch_multipath::Time;
use anabranch_onion::SetNumbers;
use anabranch_onion::circmgr::Stage;
use anabranch_onion::conflux::Design;
use anabranch_onion::guards::Reach;

use crate::onion::tap::TapKind;

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Time since the client was started.
    pub now: Time,
    /// Relays that the consensus lists, and those that are known well enough to be used.
    pub relays: [usize; 2],
    /// The primary guards by nickname, best first.
    pub guards: Vec<(String, Reach)>,
    /// The circuits for programs, the oldest first.
    pub circuits: Vec<CircuitStatus>,
    /// The sets that several circuits may join, the oldest first.
    pub sets: Vec<SetStatus>,
    /// Which design circuits of several legs are of.
    pub design: Design,
    /// Connected programs.
    pub programs: usize,
    /// Streams of theirs.
    pub streams: usize,
    /// Links to relays.
    pub links: usize,
    /// Bytes that went over links: received, sent.
    pub wire: [u64; 2],
    /// Cells of padding: received, sent.
    pub padding: [u64; 2],
    /// Bytes of queued cells, for links and for those of other legs; the latter alone.
    pub waiting: [usize; 2],
    /// Most bytes that ever waited in one set for those of other legs.
    pub most_reordered: usize,
    /// How many may wait (`--memory`).
    pub memory: usize,
    /// Tap that shows segments before their turn, if links may be unordered.
    pub tap: Option<TapKind>,
    /// Records opened before their turn.
    pub early: EarlyCounts,
    /// Open QUIC links and circuits on them, if there may be any.
    pub quic: Option<[usize; 2]>,
}

impl Status {
    /// How many circuits are built, and how many are being built.
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
    /// The number of the circuit that began it.
    pub number: u64,
    /// What the core knows of it.
    pub seen: SetNumbers,
    /// What else is known of its legs, in the order of [`SetNumbers::legs`].
    pub places: Vec<LegPlace>,
}

/// Where a leg stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LegPlace {
    /// Its number in the set, from 0; used again when it is gone.
    pub leg: usize,
    /// Its relays, first hop first.
    pub relays: Vec<RelayName>,
}

/// A relay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayName {
    /// Its nickname; `?` if it is listed no more.
    pub nickname: String,
    /// Its fingerprint, upper-case hex.
    pub fingerprint: String,
}

/// A circuit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircuitStatus {
    /// Its number.
    pub number: u64,
    /// The nicknames of its relays, first hop first.
    pub path: Vec<String>,
    /// How long ago it was begun.
    pub age: Duration,
    /// Where it stands.
    pub stage: Stage,
    /// Streams on it.
    pub streams: usize,
    /// Bytes of streams: received, sent.
    pub carried: [u64; 2],
}
