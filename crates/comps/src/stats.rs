//! Counters: uplink and downlink apart, never summed.

use std::time::Duration;

use anabranch_multipath::Time;

use crate::{Kept, SessionId};

/// One direction of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Datagrams.
    pub datagrams: u64,
    /// Bytes of UDP payload.
    pub bytes: u64,
}

impl Flow {
    pub(crate) fn add(&mut self, datagrams: u64, bytes: u64) {
        self.datagrams += datagrams;
        self.bytes += bytes;
    }

    /// What was counted did not go out after all.
    pub(crate) fn take_back(&mut self, datagrams: u64, bytes: u64) {
        self.datagrams = self.datagrams.saturating_sub(datagrams);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// Datagrams that did not go out, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// The path's socket was full. UDP paths have no window: such datagrams are dropped and
    /// counted.
    pub full: u64,
    /// Larger than the path's MTU (EMSGSIZE).
    pub too_big: u64,
    /// The path broke at that moment (no route, interface gone).
    pub unreachable: u64,
}

/// Everything counted on one path, over all sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounters {
    /// Client to server.
    pub up: Flow,
    /// Server to client.
    pub down: Flow,
    /// Runs that began here while the run before was on another path, or on another port of this
    /// one.
    pub switches: u64,
    /// Extra copies of live datagrams, sent to try the path or to keep it open at NATs (counted in
    /// `up` too).
    pub copies: u64,
    /// What did not go out.
    pub drops: Drops,
    /// Answers "port unreachable": the path works, the server's port is closed.
    pub refused: u64,
    /// Lowest round-trip time seen of late by any session.
    pub rtt: Option<Duration>,
    /// The path works, as far as this machine can tell (no local error stands).
    pub works: bool,
    /// Sessions that found it silent and do not use it.
    pub silent_sessions: usize,
    /// Counters of the stream, if the path is one; the driver fills them in.
    pub stream: Option<StreamCounters>,
}

/// A path that is a stream to the far end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounters {
    /// How the stream gets there, by the word before it in a path: `tcp`, `ssh`.
    pub kind: &'static str,
    /// Bytes that wait for room in its socket.
    pub queued: u64,
    /// Packets that were dropped because they waited too long.
    pub aged: u64,
    /// Connections that ended.
    pub ended: u64,
    /// Circuits that were too slow, so that another one was asked for.
    pub replaced: u64,
}

impl PathCounters {
    /// Adds what another path counted.
    pub(crate) fn absorb(&mut self, other: &PathCounters) {
        self.up.add(other.up.datagrams, other.up.bytes);
        self.down.add(other.down.datagrams, other.down.bytes);
        self.drops.full += other.drops.full;
        self.drops.too_big += other.drops.too_big;
        self.drops.unreachable += other.drops.unreachable;
        self.switches += other.switches;
        self.copies += other.copies;
        self.refused += other.refused;
    }
}

/// What a path carried beside the sessions: flows that are pinned to it, as TCP is. Their packets
/// do not come by the core; the driver has them counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pinned {
    /// Flows that began.
    pub flows: u64,
    /// IP packets from clients, and their bytes with all headers.
    pub up: Flow,
    /// The same to clients.
    pub down: Flow,
}

/// Sessions that were never split: all that their clients sent went by one path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unsplit {
    /// How many.
    pub sessions: u64,
    /// The first of them and why, at most [`Unsplit::NAMED`].
    pub first: Vec<(SessionId, Kept)>,
}

impl Unsplit {
    /// Sessions that are kept by their numbers.
    pub const NAMED: usize = 10;

    pub(crate) fn add(&mut self, session: SessionId, why: Kept) {
        self.sessions += 1;
        if self.first.len() < Unsplit::NAMED {
            self.first.push((session, why));
        }
    }
}

/// What is known of a tunnel to a far end of ours (told by the driver).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FarEndCounters {
    /// Whether it answers.
    pub up: bool,
    /// Packets of the far end's that were waited for in vain.
    pub lost: u64,
    /// How long a datagram waits at most for those that were sent before it.
    pub patience: Duration,
    /// Decoys that were sent to it, and those that came from it and were dropped; they are in no
    /// path's counters.
    pub decoys: [Flow; 2],
}

/// Sessions whose servers have been silent for 10 s and more, though their clients went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silent {
    /// Number of such sessions.
    pub sessions: usize,
    /// The longest of these silences.
    pub waited: Duration,
    /// When one of their servers last answered; `None` if none ever did.
    pub last: Option<Time>,
}

/// Counted over the whole splitter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// One entry a path, in the order given.
    pub paths: Vec<PathCounters>,
    /// What the paths had counted that are no more (see [`crate::Core::reconfigure`]), and what
    /// came late by them.
    pub removed: PathCounters,
    /// Sessions alive.
    pub sessions: usize,
    /// Those whose server is silent, if there are any.
    pub silent: Option<Silent>,
    /// Sessions that ever began.
    pub opened: u64,
    /// Sessions, alive or not, that one path alone has carried so far.
    pub unsplit: Unsplit,
    /// One entry a path where flows are pinned, else none (counted by the driver).
    pub pinned: Vec<Pinned>,
    /// Datagrams that waited in vain for a path.
    pub no_path: u64,
    /// Datagrams that wait now, those that are delayed among them.
    pub waiting: usize,
    /// Datagrams that left before their delay ended, because more waited than may.
    pub hurried: u64,
    /// Datagrams refused because they were our own coming back.
    pub looped: u64,
    /// Datagrams of new clients that were turned away.
    pub refused: u64,
    /// Datagrams dropped on arrival at our sockets because their buffers were full (counted by the
    /// driver).
    pub missed: u64,
    /// Datagrams that could not be handed to clients (counted by the driver).
    pub not_returned: u64,
    /// Datagrams of proxies that were dropped because they were no whole datagram of the server's
    /// (counted by the driver).
    pub foreign: u64,
    /// Packets of the kernel and of programs for their link that came to an interface (counted by
    /// the driver): ICMP errors, link-local and multicast. They are neither split nor refused.
    pub housekeeping: u64,
    /// The far end, where there is one (told by the driver).
    pub far_end: Option<FarEndCounters>,
}
