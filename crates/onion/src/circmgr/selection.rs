//! The choice of a stream's circuit among several circuits that fit.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anabranch_multipath::Time;

use super::Circuit;
use crate::client::CircuitKey;

/// Criterion for choosing a stream's circuit among several circuits that fit.
///
/// The criteria by age prefer circuits in use to unused circuits. The criteria by build time and
/// by round-trip time treat used and unused circuits alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// The circuit that was begun first.
    #[default]
    Oldest,
    /// The circuit that was begun last, as in C tor.
    Newest,
    /// The circuit that was built in the shortest time.
    BuildTime,
    /// The circuit with the shortest round-trip time. This time was measured when the circuit's
    /// last hop was added, and includes the handshake with that hop.
    Rtt,
}

/// Error for an unknown name of a [`Selection`]; contains that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownSelection(String);

impl fmt::Display for UnknownSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Selection::ALL.map(Selection::name).join(", ");
        write!(f, "no rule for selecting circuits is called '{}'; choose one of {names}", self.0)
    }
}

impl std::error::Error for UnknownSelection {}

impl Selection {
    /// All criteria.
    pub const ALL: [Selection; 4] =
        [Selection::Oldest, Selection::Newest, Selection::BuildTime, Selection::Rtt];

    /// Returns the criterion's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Selection::Oldest => "oldest",
            Selection::Newest => "newest",
            Selection::BuildTime => "build-time",
            Selection::Rtt => "rtt",
        }
    }

    /// Returns the sort key of a circuit: the measured time (zero if age decides), whether the
    /// circuit is unused, and its place in the order in which circuits were begun. The circuit
    /// with the smallest key is selected.
    pub(super) fn rank(self, key: CircuitKey, circuit: &Circuit) -> (Duration, bool, u64) {
        let is_unused = circuit.isolation.is_none();
        match self {
            Selection::Oldest => (Duration::ZERO, is_unused, key.0),
            Selection::Newest => (Duration::ZERO, is_unused, u64::MAX - key.0),
            Selection::BuildTime => (circuit.timing.build, is_unused, key.0),
            Selection::Rtt => (circuit.timing.rtt, is_unused, key.0),
        }
    }
}

impl FromStr for Selection {
    type Err = UnknownSelection;

    fn from_str(text: &str) -> Result<Selection, UnknownSelection> {
        let found = Selection::ALL.into_iter().find(|selection| selection.name() == text);
        found.ok_or_else(|| UnknownSelection(text.to_owned()))
    }
}

/// Times that were measured while a circuit was built.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timing {
    /// Time at which the extension to the last hop began.
    last: Time,
    /// Time from the circuit's beginning until it was built.
    build: Duration,
    /// Round-trip time to the last hop, including the handshake there.
    rtt: Duration,
}

impl Timing {
    /// Records that another hop was added to the circuit at `now`, and that the extension to the
    /// next hop begins.
    pub(super) fn extended(&mut self, now: Time) {
        self.last = now;
    }

    /// Records that the circuit, which was begun at `begun`, is built.
    pub(super) fn built(&mut self, now: Time, begun: Time) {
        (self.build, self.rtt) = (now.since(begun), now.since(self.last.max(begun)));
    }
}
