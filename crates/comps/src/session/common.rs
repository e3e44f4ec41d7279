//! State shared by all sessions of a core.

use std::collections::{BTreeSet, VecDeque};

use anabranch_multipath::{PathId, PathView, Time};

use crate::config::Config;
use crate::looped::Fingerprints;
use crate::{DownReason, Event, Output, PathCounters, Protocol, SessionId};

/// The state that all sessions of a core share. The core owns it, and passes it to a session with
/// each call.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) config: Config,
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) counters: Vec<PathCounters>,
    pub(crate) no_path: u64,
    pub(crate) hurried: u64,
    pub(crate) fingerprints: Fingerprints,
    /// Protocols with unencrypted packet numbers that were already reported to the user.
    pub(crate) numbered: BTreeSet<Protocol>,
    /// The earliest time at which a session may report again that its server does not answer. All
    /// sessions share this limit.
    pub(crate) next_unanswered: Time,
    /// For each path, an error that concerns all sessions, as the driver has reported it; `None`
    /// for a path without such an error.
    pub(crate) broken: Vec<Option<DownReason>>,
    /// The state of each path's congestion window, if the schedule uses windows.
    pub(crate) windows: Option<Vec<PathView>>,
    /// Queue of the sessions whose datagrams wait for room in a congestion window. The sessions
    /// take turns (round robin).
    pub(crate) held: VecDeque<SessionId>,
    /// Arrival time of the datagrams being handled, if they come from one of our queues. Outputs
    /// must then contain a copy of their bytes. `None` if the driver has just passed the
    /// datagrams.
    pub(crate) queued_at: Option<Time>,
    /// Limits on the bytes that the session being handled may queue.
    pub(crate) room: Room,
}

/// Maximum bytes of a session's datagrams that may wait.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    /// Maximum bytes that wait for a path, or for room in a congestion window.
    pub(crate) patience: usize,
    /// Maximum bytes that are delayed at random (by the jitter) before their path is chosen.
    pub(crate) delayed: usize,
}

impl Common {
    pub(crate) fn new(config: Config) -> Common {
        let paths = config.ports.len();
        Common {
            outputs: VecDeque::new(),
            counters: vec![PathCounters::default(); paths],
            no_path: 0,
            hurried: 0,
            fingerprints: Fingerprints::new(),
            numbered: BTreeSet::new(),
            next_unanswered: Time::ZERO,
            broken: vec![None; paths],
            windows: closed(&config),
            held: VecDeque::new(),
            queued_at: None,
            room: Room::default(),
            config,
        }
    }

    /// Adopts changed settings, and returns the former settings. The caller moves the entries of
    /// `broken` and `counters` to the new indices of their paths.
    pub(crate) fn reconfigure(&mut self, config: Config) -> Config {
        self.windows = closed(&config);
        std::mem::replace(&mut self.config, config)
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// Returns the path that the user named for handshakes; `None` if the user named none.
    pub(super) fn handshake(&self) -> Option<PathId> {
        self.config.handshake.map(PathId::at)
    }

    pub(super) fn is_scheduled(&self, path: PathId) -> bool {
        path.index() < self.config.scheduled()
    }
}

/// Returns the initial view of each path's congestion window: no room, until the driver reports
/// its state. Returns `None` if the schedule does not use windows.
fn closed(config: &Config) -> Option<Vec<PathView>> {
    let looks = config.schedule.family().needs_windows;
    looks.then(|| vec![PathView::dead(); config.ports.len()])
}
