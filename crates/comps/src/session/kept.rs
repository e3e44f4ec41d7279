//! The time for which a session has stayed on one path, and the reason.

use std::time::Duration;

use anabranch_multipath::{Every, PathId};

use super::{Common, Session};
use crate::{Event, Protocol, StayReason};

/// Minimum time of traffic on one path before the stay is reported. The stay must also last
/// [`RUNS`] times the length of a run (the consecutive datagrams between two choices of a path).
const LONG: Duration = Duration::from_secs(3);
/// Minimum length of a stay on one path before it is reported, in runs (the consecutive datagrams
/// between two choices of a path).
const RUNS: u32 = 3;
/// Longest pause between two datagrams that counts as part of the stay on one path. Of a longer
/// pause, only this time counts.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The traffic of a session since it last changed its path.
#[derive(Debug, Default)]
pub(super) struct PathStay {
    path: Option<PathId>,
    used: Duration,
    datagrams: u64,
    /// Number of runs (consecutive datagrams between two choices of a path) that the schedule has
    /// begun since the session was opened.
    pub(super) runs: u64,
    /// Whether this stay on one path was reported.
    reported: bool,
}

impl PathStay {
    /// Returns the state of a new stay on one path, which begins with the next datagram.
    pub(super) fn restarted(&self) -> PathStay {
        PathStay { runs: self.runs, ..PathStay::default() }
    }

    /// Counts `datagrams` datagrams sent on `path`. `pause` is the time since the previous
    /// datagrams.
    pub(super) fn on_sent(&mut self, path: PathId, datagrams: u64, pause: Duration) {
        if self.path != Some(path) {
            *self = PathStay { path: Some(path), ..self.restarted() };
            return;
        }
        self.used += pause.min(LONGEST_PAUSE);
        self.datagrams += datagrams;
    }

    /// Returns whether the stay has lasted at least [`LONG`], and at least [`RUNS`] times `every`,
    /// the length of a run (the consecutive datagrams between two choices of a path).
    fn is_long(&self, every: Every) -> bool {
        let outlasted = match every {
            Every::Never => false,
            Every::Packets { mean: most, .. } | Every::PacketRange { most, .. } => {
                self.datagrams >= most.saturating_mul(RUNS.into())
            }
            Every::Time { mean: most, .. }
            | Every::TimeRange { most, .. }
            | Every::Growing { most, .. } => self.used >= most.saturating_mul(RUNS),
        };
        self.used >= LONG && outlasted
    }
}

impl Session {
    /// Reports, once per stay, that something other than the schedule keeps the session on one
    /// path.
    pub(super) fn report_stay(&mut self, common: &mut Common) {
        let could_split = common.config.scheduled() > 1 && !self.usage.stay.reported;
        let Some(path) = self.usage.stay.path.filter(|_| could_split) else { return };
        if !self.usage.stay.is_long(common.config.every) {
            return;
        }
        let why = self.stay_reason(common.config.far_end);
        if !matches!(why, StayReason::Schedule | StayReason::Short | StayReason::HandshakePath) {
            self.usage.stay.reported = true;
            common.event(Event::Kept { session: self.origin.id, path, why });
        }
    }

    /// Returns why the session has stayed on one path. `far_end` states whether the session has a
    /// far end (our program in front of the server). A far end removes one reason, because then no
    /// protocol needs a single path.
    pub(crate) fn stay_reason(&self, far_end: bool) -> StayReason {
        let keeps = |protocol: &Protocol| !far_end && protocol.keeps_to_one_path();
        if let Some(protocol) = self.recognition.protocol().filter(keeps) {
            return StayReason::Protocol(protocol);
        }
        match self.recognition.protocol() {
            Some(Protocol::Quic) if self.handshakes.pins.any() || self.usage.stay.runs == 0 => {
                StayReason::Handshake
            }
            Some(_) if self.usage.stay.runs == 0 => StayReason::HandshakePath,
            _ if self.paths.views().iter().filter(|view| view.usable).count() < 2 => {
                StayReason::OtherPaths
            }
            _ if self.usage.stay.runs < 2 => StayReason::Short,
            _ => StayReason::Schedule,
        }
    }
}
