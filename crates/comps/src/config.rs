//! The settings of the splitter's core.

use std::time::Duration;

use anabranch_multipath::schedule::Spec;
use anabranch_multipath::{Every, Jitter, Silence};

/// Default schedule: weighted random with probabilities less uneven than the paper's. The observer
/// of the fullest path recognises less, the others no more, as far as was measured
/// (docs/results/fingerprinting.md, "Findings").
pub const SCHEDULE: &str = "weighted:4";

/// Default length of a run, unless the user or the schedule's authors name one.
pub const EVERY: &str = "100ms";

/// Default schedule with a far end, where both ends split. On simulated Tor fewer loads are
/// recognised from the fullest path than with [`SCHEDULE`] (docs/results/schedules.md). It has no
/// probabilities of a session that an observer could learn.
pub const FAR_END_SCHEDULE: &str = "uniform";

/// Default length of a run with a far end, unless the schedule's authors name one. Less is
/// recognised than with runs of 50 ms, and it is faster, because several paths are filled at a
/// time (docs/results/schedules.md, docs/notes/forwarder-performance.md).
pub const FAR_END_EVERY: &str = "~10p";

/// The settings of one splitter: its paths, and how sessions use them.
#[derive(Clone, Debug)]
pub struct Config {
    /// For each path, the number of source ports that it rotates over (at least 1).
    pub ports: Vec<u16>,
    /// The path of QUIC and WireGuard handshakes and of DNS queries, by its place in `ports`.
    pub handshake: Option<usize>,
    /// Whether the schedule may use the handshake path for everything else, too. If not, it is the
    /// last path.
    pub handshake_scheduled: bool,
    /// The scheduler that chooses the path of each run.
    pub schedule: Spec,
    /// The length of a run.
    pub every: Every,
    /// The silence of a session after which its schedule is redrawn; `None` keeps the first draw
    /// for the session's life.
    pub redraw: Option<Silence>,
    /// The random delay of a client's datagrams before the split; `None` delays nothing.
    pub jitter: Option<Jitter>,
    /// The seed of all random choices.
    pub seed: u64,
    /// Most four-tuples that one QUIC connection may use, the handshake path included (at least
    /// 1).
    pub quic_tuples: usize,
    /// Longest time that a path's datagrams to the client are held until those of the path before
    /// have arrived. `None` delivers all on arrival.
    pub in_order: Option<Duration>,
    /// Whether a path that has never brought an answer keeps its share where the server was heard
    /// by one path alone. Otherwise it is taken out after 3 s
    /// ([`DownReason::NeverAnswered`](crate::DownReason::NeverAnswered)).
    pub keep_silent_paths: bool,
    /// Time without a datagram from its client after which a session is closed.
    pub idle: Duration,
    /// Most live sessions. One more closes the session idle longest.
    pub sessions: usize,
    /// The protocol of all sessions, or [`Guess::Look`] to recognise it.
    pub protocol: Guess,
    /// Whether the server is a far end of ours. The driver then probes it by each path and reports
    /// the result with [`Input::Path`](crate::Input::Path). Then no path is blamed for a server's
    /// silence, and nothing is copied.
    pub far_end: bool,
}

impl Config {
    /// Returns the number of paths that the schedule may use: all, or all but the last, which is
    /// then the handshake path.
    pub fn scheduled(&self) -> usize {
        let apart = self.handshake.is_some() && !self.handshake_scheduled;
        self.ports.len() - usize::from(apart)
    }

    /// Returns the command line's default settings for `paths` paths of one port each.
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

/// How a session's protocol is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guess {
    /// By inspection of its first datagrams.
    Look,
    /// By the user's choice.
    Is(crate::Protocol),
}
