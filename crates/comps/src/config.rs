//! The settings of the splitter's state machine ([`Core`](crate::Core)).

use std::time::Duration;

use anabranch_multipath::schedule::Spec;
use anabranch_multipath::{Every, Jitter, Silence};

/// Default schedule: paths are chosen at random. Each session draws the paths' probabilities,
/// which are more even than in the CoMPS paper (PETS 2022). In our measurements, website
/// fingerprinting on the path with the most traffic recognises fewer page loads than with the
/// paper's probabilities. On the other paths it recognises no more
/// (docs/results/fingerprinting.md, "Findings").
pub const SCHEDULE: &str = "weighted:4";

/// Default length of a run (the consecutive datagrams that a session sends on one path). The
/// default applies if neither the user nor the paper that describes the schedule specifies a
/// length.
pub const EVERY: &str = "100ms";

/// Default schedule with a far end (our program in front of the server), where both ends split
/// their traffic over the paths. In simulations of Tor, website fingerprinting on the path with
/// the most traffic recognises fewer page loads than with [`SCHEDULE`]
/// (docs/results/schedules.md). All paths have the same probability in every session, so the
/// probabilities do not identify a session.
pub const FAR_END_SCHEDULE: &str = "uniform";

/// Default length of a run (consecutive datagrams on one path) with a far end: a geometric random
/// number of datagrams with mean 10. The default applies if the paper that describes the schedule
/// specifies no length. Compared with runs of 50 ms, website fingerprinting recognises fewer short
/// and slow page loads, and transfers are faster because several paths carry data at a time
/// (docs/results/schedules.md, docs/notes/forwarder-performance.md).
pub const FAR_END_EVERY: &str = "~10p";

/// The settings of one splitter: its paths, and how sessions use them.
#[derive(Clone, Debug)]
pub struct Config {
    /// Number of source ports of each path, at least 1. Each new run (consecutive datagrams on one
    /// path) uses the next port of its path.
    pub ports: Vec<u16>,
    /// Index in `ports` of the path that carries QUIC and WireGuard handshakes and DNS queries;
    /// `None` if the user names no such path.
    pub handshake: Option<usize>,
    /// Whether the path that the user named for handshakes may also carry other datagrams. If
    /// false, it must be the last path.
    pub handshake_scheduled: bool,
    /// The scheduler that chooses the path of each run (consecutive datagrams of a session on one
    /// path).
    pub schedule: Spec,
    /// Length of a run, after which the schedule chooses a path again. A run is consecutive
    /// datagrams of a session that use one path.
    pub every: Every,
    /// Idle time after which a session draws the random parameters of its schedule again, such as
    /// each path's probability; `None` keeps the first draw for the session's lifetime.
    pub redraw: Option<Silence>,
    /// The random delay of a client's datagrams before the split; `None` delays nothing.
    pub jitter: Option<Jitter>,
    /// The seed of all random choices.
    pub seed: u64,
    /// Maximum number of four-tuples (addresses and ports) that one QUIC connection may use; at
    /// least 1. The four-tuple of the handshake path is included.
    pub quic_tuples: usize,
    /// Maximum time that datagrams from the server are held to restore their order after the
    /// server has moved to another path; `None` delivers all datagrams on arrival.
    pub in_order: Option<Duration>,
    /// Whether the splitter goes on using a path without any answer so far, although answers have
    /// arrived on another path. If false, and if only one other path has had answers, the silent
    /// path is taken out of use after 3 s
    /// ([`DownReason::NeverAnswered`](crate::DownReason::NeverAnswered)).
    pub keep_silent_paths: bool,
    /// Time without a datagram from the client after which its session is closed.
    pub idle: Duration,
    /// Maximum number of live sessions. A further session closes an older session: the oldest
    /// without an answer from its server or, if there is none, the session that has been idle
    /// longest.
    pub sessions: usize,
    /// The protocol of all sessions, or [`Guess::Look`] to recognise it.
    pub protocol: Guess,
    /// Whether the datagrams go to a far end, our program in front of the server. If so, the
    /// driver (the loop that reads and writes sockets) probes the far end over each path and
    /// reports the result with [`Input::Path`](crate::Input::Path). The core then takes no path
    /// out of use because of a server's silence, and copies no datagram.
    pub far_end: bool,
}

impl Config {
    /// Returns the number of paths that the schedule may use: all paths, or all but the last if
    /// the last is used for handshakes only.
    pub fn scheduled(&self) -> usize {
        let apart = self.handshake.is_some() && !self.handshake_scheduled;
        self.ports.len() - usize::from(apart)
    }

    /// Returns the command line's default settings for `paths` paths with one source port each.
    pub fn of(paths: usize) -> Config {
        Config {
            ports: vec![1; paths],
            handshake: None,
            handshake_scheduled: true,
            schedule: SCHEDULE.parse().expect("the default schedule exists"),
            every: EVERY.parse().expect("the default run length is valid"),
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

/// Rule that determines the protocol of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guess {
    /// The protocol is recognised from the session's first datagrams.
    Look,
    /// The user has chosen the protocol of all sessions.
    Is(crate::Protocol),
}
