//! What the core tells the person who runs it.

use std::net::SocketAddr;
use std::time::Duration;

use anabranch_multipath::{PathId, Time};

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
    /// The server has not answered for 10 s, by whatever path, though its client went on. Reported
    /// again after ever longer pauses while the client does.
    Unanswered {
        /// The session.
        session: SessionId,
        /// The server that the client named; `None` for the one of all.
        server: Option<SocketAddr>,
        /// Since the client's first datagram after the last answer.
        waited: Duration,
        /// When the server last answered, this session or an earlier one; `None` if it never did.
        last: Option<Time>,
    },
    /// The server answers after a silence that was reported.
    Answered {
        /// The session.
        session: SessionId,
        /// The server that the client named; `None` for the one of all.
        server: Option<SocketAddr>,
        /// Length of the silence.
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
    /// A session that could have been split has kept to one path for 3 s of its traffic and three
    /// runs of the schedule, for a reason other than the schedule's draws. Reported once for each
    /// stay.
    Kept {
        /// The session.
        session: SessionId,
        /// The path that it keeps to.
        path: PathId,
        /// The reason.
        why: Kept,
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
    /// The server answers on another path than those that it is spoken to: uplink and downlink are
    /// split differently. Reported after at least four changes of the uplink's path, and again
    /// after 10 min.
    Skewed {
        /// The session.
        session: SessionId,
        /// The path on which the server's answers stay.
        path: PathId,
        /// Share of the downlink bytes that came by that path, in percent.
        percent: u8,
        /// Whether the server was heard by another path before, so that it has followed once.
        followed: bool,
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

/// Why a session keeps to one path, or was never split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is shorter than a run of the schedule.
    Short,
    /// The handshake of a QUIC connection is not confirmed.
    Handshake,
    /// All of it belongs to the path that handshakes and DNS queries take.
    HandshakePath,
    /// Its server knows it by its address ([`Protocol::keeps_to_one_path`]).
    Protocol(Protocol),
    /// No other path can carry it: they are down, do not lead to its server, or exceed the
    /// four-tuples of a QUIC connection.
    OtherPaths,
    /// The schedule has named no other path.
    Schedule,
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
    /// The path is a stream to the far end, which has ended or is not open yet: it is dialled.
    Dialling,
    /// This session has no socket there: the program has all the files that it may have.
    NoSocket,
    /// Used for a second without an answer, while the server was heard by other paths.
    Silent,
    /// It has never brought an answer of a server that was heard by one other path alone: it
    /// swallows what is sent, or the server does not follow its client. For 3 s all that went by it
    /// also went by the other.
    NeverAnswered,
    /// The far end is not heard by it: it left questions of ours unanswered.
    Unheard,
}

impl DownReason {
    /// Whether only an answer brings the path back.
    pub(crate) fn needs_answer(self) -> bool {
        matches!(self, DownReason::Silent | DownReason::NeverAnswered)
    }
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
