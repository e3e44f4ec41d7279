//! What the core tells the person who runs it.

use std::net::SocketAddr;
use std::time::Duration;

use anabranch_multipath::PathId;

use crate::Protocol;
use crate::protocol::Confidence;

/// A session's number: counts up from 0, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Something that happened and that a person may want to see. No payload, no keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client spoke for the first time.
    Opened {
        /// The new session.
        session: SessionId,
        /// Its client's address.
        client: SocketAddr,
        /// The server that the client named; `None` for the one of all.
        server: Option<SocketAddr>,
    },
    /// The session's protocol was recognised, or is known with another confidence. Comes again
    /// where later datagrams show that it is another one.
    Recognised {
        /// The session.
        session: SessionId,
        /// What it carries.
        protocol: Protocol,
        /// The ground for it.
        confidence: Confidence,
    },
    /// The packets of a session that is split are numbered in clear: the observer of one path reads
    /// from them what all paths carried. Reported once for each protocol.
    NumbersInClear {
        /// The first such session.
        session: SessionId,
        /// The protocol, [`Protocol::Other`] if it is not known.
        protocol: Protocol,
    },
    /// The server has never answered, by whatever path. Told after 10 s, and again after ever
    /// longer pauses while the client goes on.
    Unanswered {
        /// The session.
        session: SessionId,
        /// The server that the client named; `None` for the one of all.
        server: Option<SocketAddr>,
        /// Since the client's first datagram.
        waited: Duration,
    },
    /// Fewer four-tuples are used than the paths and ports would give.
    TuplesCut {
        /// The session.
        session: SessionId,
        /// Paths times ports.
        wanted: usize,
        /// What is used.
        used: usize,
    },
    /// A QUIC connection keeps to one path until its handshake is confirmed.
    Pinned {
        /// The session.
        session: SessionId,
        /// The path it keeps to.
        path: PathId,
    },
    /// All QUIC connections of the session are confirmed: the schedule takes over.
    Released {
        /// The session.
        session: SessionId,
        /// Measured round-trip time of the handshake.
        rtt: Duration,
    },
    /// A path left the candidate set, for one session or (`None`) for all.
    Down {
        /// The path.
        path: PathId,
        /// The session that lost it.
        session: Option<SessionId>,
        /// Why.
        reason: DownReason,
    },
    /// A path is a candidate again.
    Up {
        /// The path.
        path: PathId,
        /// The session that has it back, `None` for all.
        session: Option<SessionId>,
    },
    /// The server answers on other paths than those that it is spoken to: uplink and downlink are
    /// split differently.
    Skewed {
        /// The session.
        session: SessionId,
        /// The path on which the server's answers stay.
        path: PathId,
        /// Share of the downlink bytes that came by that path, in percent.
        percent: u8,
    },
    /// A session ended.
    Closed {
        /// The session.
        session: SessionId,
        /// Why.
        reason: CloseReason,
    },
    /// New clients were turned away: too many at once, or no room for their sessions. Told once a
    /// second at most.
    Refused {
        /// The one turned away last.
        client: SocketAddr,
        /// Datagrams refused since this was last told.
        datagrams: u64,
    },
    /// A datagram that we sent came back as if from a new client: routes lead our own traffic into
    /// us. Told once a second at most.
    Loop {
        /// Where it came from.
        client: SocketAddr,
    },
}

/// Why a path is no candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownReason {
    /// The interface or its address is gone, or is down.
    Interface,
    /// No route, or an ICMP error says that the server cannot be reached this way.
    Unreachable,
    /// The proxy that the path leads through does not serve us: it is gone, or refuses.
    Proxy,
    /// This session has no socket there: the program has all the files that it may have.
    NoSocket,
    /// Used for a second without an answer, by a server that had followed the session there before.
    Silent,
    /// The far end is not heard by it: it left questions of ours unanswered.
    Unheard,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Its client was silent for the idle time.
    Idle,
    /// Room was needed for another session, and this one was idle longest.
    Evicted,
    /// The server's name does not resolve.
    Unresolved,
    /// No path leads to the server.
    Unreachable,
    /// The program ends.
    Shutdown,
}
