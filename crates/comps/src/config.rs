//! What the splitter's core is told before it begins.

use std::time::Duration;

use anabranch_multipath::schedule::Spec;
use anabranch_multipath::{Every, Jitter, Silence};

/// The schedule where none is named: weighted random with chances less uneven than the paper's. The
/// observer of the fullest path recognises less by it, the others no more within what was measured
/// (docs/results/fingerprinting.md, "Findings").
pub const SCHEDULE: &str = "weighted:4";

/// The length of a run where neither the user nor the schedule's authors name one.
pub const EVERY: &str = "100ms";

/// The schedule with a far end, where both ends split: on simulated Tor fewer loads are recognised
/// from the fullest path than of [`SCHEDULE`] (docs/results/schedules.md), and it has no chances of
/// a session that could be learnt.
pub const FAR_END_SCHEDULE: &str = "uniform";

/// The length of a run with a far end, unless the schedule's authors name one. Less is recognised
/// by it than by runs of 50 ms, and it is quicker, as several paths are filled at a time
/// (docs/results/schedules.md, docs/notes/forwarder-performance.md).
pub const FAR_END_EVERY: &str = "~10p";

/// The settings of one splitter: its paths, and how sessions use them.
#[derive(Clone, Debug)]
pub struct Config {
    /// For each path, how many source ports it rotates over (at least 1).
    pub ports: Vec<u16>,
    /// The path that the handshakes of QUIC and WireGuard and DNS queries take, by its place in
    /// `ports`.
    pub handshake: Option<usize>,
    /// Whether the schedule may use the handshake path for everything else too. If not, it is the
    /// last path.
    pub handshake_scheduled: bool,
    /// Who names the path of the next run.
    pub schedule: Spec,
    /// How long a run is.
    pub every: Every,
    /// The silence of a session after which its schedule is drawn anew; `None` keeps the first draw
    /// for all its life.
    pub redraw: Option<Silence>,
    /// How long each datagram of a client is delayed before the split; `None` delays nothing.
    pub jitter: Option<Jitter>,
    /// Source of all chance.
    pub seed: u64,
    /// Four-tuples that one QUIC connection may use, the handshake path included (at least 1).
    pub quic_tuples: usize,
    /// How long a path's datagrams to the client may be held until those by the path before have
    /// come; `None` delivers all as it comes.
    pub in_order: Option<Duration>,
    /// Whether a path that has never brought an answer keeps its share where the server was heard
    /// by one path alone. Otherwise it is taken out after 3 s
    /// ([`DownReason::NeverAnswered`](crate::DownReason::NeverAnswered)).
    pub keep_silent_paths: bool,
    /// A session without a datagram from its client for so long is closed.
    pub idle: Duration,
    /// Sessions that live at once; one more closes the one that was idle longest.
    pub sessions: usize,
    /// What the sessions carry, or [`Guess::Look`] to find out.
    pub protocol: Guess,
    /// Whether the server is a far end of ours: the driver asks it by each path whether that is
    /// heard, and says so by [`Input::Path`](crate::Input::Path). Then no path is blamed for a
    /// server's silence, and nothing is copied.
    pub far_end: bool,
}

impl Config {
    /// How many paths the schedule may use: all, or all but the last, which is then the handshake
    /// path.
    pub fn scheduled(&self) -> usize {
        let apart = self.handshake.is_some() && !self.handshake_scheduled;
        self.ports.len() - usize::from(apart)
    }

    /// Settings for `paths` paths of one port each, as the command line has them by default.
    pub fn of(paths: usize) -> Config {
        Config {
            ports: vec![1; paths],
            handshake: None,
            handshake_scheduled: true,
            schedule: SCHEDULE.parse().expect("a family of that name exists"),
            every: EVERY.parse().expect("a run length"),
            redraw: None,
            jitter: None,
            seed: 0,
            quic_tuples: 4,
            in_order: None,
            keep_silent_paths: false,
            idle: Duration::from_secs(180),
            sessions: 4096,
            protocol: Guess::Look,
            far_end: false,
        }
    }
}

/// How a session's protocol is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guess {
    /// By looking at its first datagrams.
    Look,
    /// The user said so.
    Is(crate::Protocol),
}
