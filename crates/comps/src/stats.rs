//! Counters of the splitter. Uplink and downlink are counted separately.

use std::time::Duration;

use anabranch_multipath::Time;

use crate::{SessionId, StayReason};

/// Traffic in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Number of datagrams.
    pub datagrams: u64,
    /// Bytes of UDP payload.
    pub bytes: u64,
}

impl Flow {
    pub(crate) fn add(&mut self, datagrams: u64, bytes: u64) {
        self.datagrams += datagrams;
        self.bytes += bytes;
    }

    /// Subtracts datagrams that were counted as sent, but that the socket did not accept.
    pub(crate) fn take_back(&mut self, datagrams: u64, bytes: u64) {
        self.datagrams = self.datagrams.saturating_sub(datagrams);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// Datagrams that were not sent, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// Datagrams for which the socket's send buffer had no room.
    pub full: u64,
    /// Datagrams that were larger than the path's MTU (EMSGSIZE).
    pub too_big: u64,
    /// Datagrams whose path failed (no route, or the interface was removed).
    pub unreachable: u64,
}

/// All counters of one path, over all sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounters {
    /// Traffic from clients to servers.
    pub up: Flow,
    /// Traffic from servers to clients.
    pub down: Flow,
    /// Number of times that a session changed to this path, or to another source port of this
    /// path.
    pub switches: u64,
    /// Additional copies of live datagrams, sent to test the path or to keep it open at NATs
    /// (counted in `up`, too).
    pub copies: u64,
    /// Datagrams that were not sent.
    pub drops: Drops,
    /// Number of ICMP answers "port unreachable": the path works, but the server's port is closed.
    pub refused: u64,
    /// Lowest recent round-trip time of all sessions; `None` if it was not measured.
    pub rtt: Option<Duration>,
    /// Whether the path works: the driver (our code that does the I/O) has reported no error that
    /// concerns all sessions.
    pub works: bool,
    /// Number of sessions that do not use the path at present because no answers arrived on it.
    pub silent_sessions: usize,
    /// Counters of the stream; `None` if the path is not a stream (such as TCP) to the far end,
    /// our program in front of the server. The driver (our code that does the I/O) fills them in.
    pub stream: Option<StreamCounters>,
}

/// Counters of a path that is a stream (such as TCP) to the far end, our program in front of the
/// server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounters {
    /// The stream's transport, by its prefix in a path: `tcp`, `ssh`.
    pub kind: &'static str,
    /// Bytes that wait for room in the send buffer of the stream's socket.
    pub queued: u64,
    /// Number of packets dropped because they waited too long.
    pub aged: u64,
    /// Number of connections of the stream that ended.
    pub ended: u64,
    /// Number of onion circuits that were replaced because they were too slow.
    pub replaced: u64,
}

impl PathCounters {
    /// Adds the counters of another path.
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

/// Traffic of a path outside the sessions: flows that stay on one path, such as TCP connections.
/// Their packets do not pass through this crate; the driver (our code that does the I/O) counts
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pinned {
    /// Number of flows that began.
    pub flows: u64,
    /// IP packets from clients, and their bytes with all headers.
    pub up: Flow,
    /// IP packets to clients, and their bytes with all headers.
    pub down: Flow,
}

/// Sessions that were never split: one path carried all datagrams of their clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unsplit {
    /// Number of sessions that were never split.
    pub sessions: u64,
    /// The first sessions that were never split, each with the reason; at most [`Unsplit::NAMED`].
    pub first: Vec<(SessionId, StayReason)>,
}

impl Unsplit {
    /// Maximum number of sessions in [`Unsplit::first`].
    pub const NAMED: usize = 10;

    pub(crate) fn add(&mut self, session: SessionId, why: StayReason) {
        self.sessions += 1;
        if self.first.len() < Unsplit::NAMED {
            self.first.push((session, why));
        }
    }
}

/// Counters of the tunnel to a far end, our program in front of the server. The driver (our code
/// that does the I/O) provides them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FarEndCounters {
    /// Whether the far end (our program in front of the server) answers.
    pub up: bool,
    /// Number of packets from the far end (our program in front of the server) that never arrived.
    pub lost: u64,
    /// Maximum time for which a received datagram at present waits for missing earlier datagrams.
    pub patience: Duration,
    /// Decoys (dummy packets) sent to the far end (our program in front of the server), and decoys
    /// received from it and dropped. No path's counters include them.
    pub decoys: [Flow; 2],
}

/// Sessions whose servers have been silent for at least 10 s, though their clients continued to
/// send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silent {
    /// Number of sessions with a silent server.
    pub sessions: usize,
    /// Length of the longest silence of a server.
    pub waited: Duration,
    /// Time of the last answer in any of the sessions with a silent server; `None` if no server
    /// has ever answered.
    pub last: Option<Time>,
}

/// The counters of the whole splitter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Counters of each path, in the order in which the user named the paths.
    pub paths: Vec<PathCounters>,
    /// Counters of removed paths (see [`crate::Core::reconfigure`]), and of datagrams that arrived
    /// on a path after its removal.
    pub removed: PathCounters,
    /// Number of live sessions.
    pub sessions: usize,
    /// The sessions whose server is silent; `None` if there are none.
    pub silent: Option<Silent>,
    /// Number of sessions opened since the start.
    pub opened: u64,
    /// Live and closed sessions that used only one path.
    pub unsplit: Unsplit,
    /// Traffic outside the sessions, one entry per path; empty if no flows are kept on one path.
    /// The driver (our code that does the I/O) counts this traffic.
    pub pinned: Vec<Pinned>,
    /// Number of datagrams dropped because they had waited too long for a path.
    pub no_path: u64,
    /// Number of datagrams in the queues of all sessions now, including randomly delayed
    /// datagrams.
    pub waiting: usize,
    /// Datagrams that were sent before the end of their random delay, because the delay queue was
    /// full.
    pub hurried: u64,
    /// Number of our own datagrams that a routing loop returned to our listener. They were
    /// dropped.
    pub looped: u64,
    /// Number of datagrams dropped because no session could be opened for their clients.
    pub refused: u64,
    /// Datagrams dropped at our sockets because their buffers were full. The driver (our code that
    /// does the I/O) counts them.
    pub missed: u64,
    /// Datagrams that could not be delivered to clients. The driver (our code that does the I/O)
    /// counts them.
    pub not_returned: u64,
    /// Datagrams from proxies that were dropped because they did not contain a whole datagram of
    /// the server. The driver (our code that does the I/O) counts them.
    pub foreign: u64,
    /// Packets at an interface that belong to no session: ICMP errors, link-local, broadcast and
    /// multicast packets. They are neither split nor refused. The driver (our code that does the
    /// I/O) counts them.
    pub housekeeping: u64,
    /// Counters of the tunnel to the far end (our program in front of the server); `None` if there
    /// is no far end. The driver (our code that does the I/O) provides them.
    pub far_end: Option<FarEndCounters>,
}
