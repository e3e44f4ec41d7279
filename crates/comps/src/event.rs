//! Events for the person who runs the splitter.

use std::net::SocketAddr;
use std::time::Duration;

use anabranch_multipath::{PathId, Time};

use crate::Protocol;
use crate::protocol::Confidence;

/// A session's number: counts up from 0, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// An event that a person may want to see. No payload, no keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first datagram of a client arrived.
    Opened {
        /// The new session.
        session: SessionId,
        /// Its client's address.
        client: SocketAddr,
        /// The server that the client named; `None` for the only one.
        server: Option<SocketAddr>,
    },
    /// The session's protocol was recognised, or is known with another confidence. It is reported
    /// again if later datagrams show another protocol.
    Recognised {
        /// The session.
        session: SessionId,
        /// The protocol that it carries.
        protocol: Protocol,
        /// The evidence for it.
        confidence: Confidence,
    },
    /// The packets of a split session are numbered in clear: the observer of one path learns from
    /// them how much all paths carried. Reported once for each protocol.
    NumbersInClear {
        /// The first such session.
        session: SessionId,
        /// The protocol, [`Protocol::Other`] if it is not known.
        protocol: Protocol,
    },
    /// The server has not answered for 10 s, by any path, though its client continued. Reported
    /// again after ever longer pauses while the client continues.
    Unanswered {
        /// The session.
        session: SessionId,
        /// The server that the client named; `None` for the only one.
        server: Option<SocketAddr>,
        /// Time since the client's first datagram after the last answer.
        waited: Duration,
        /// When the server last answered, in this session or an earlier one; `None` if it never
        /// did.
        last: Option<Time>,
    },
    /// The server answers after a silence that was reported.
    Answered {
        /// The session.
        session: SessionId,
        /// The server that the client named; `None` for the only one.
        server: Option<SocketAddr>,
        /// Length of the silence.
        waited: Duration,
    },
    /// Fewer four-tuples are used than the paths and ports allow.
    TuplesCut {
        /// The session.
        session: SessionId,
        /// Paths times ports.
        wanted: usize,
        /// Number of four-tuples in use.
        used: usize,
    },
    /// A QUIC connection stays on one path until its handshake is confirmed.
    Pinned {
        /// The session.
        session: SessionId,
        /// The path that it stays on.
        path: PathId,
    },
    /// All QUIC connections of the session are confirmed: the schedule takes over.
    Released {
        /// The session.
        session: SessionId,
        /// Measured round-trip time of the handshake.
        rtt: Duration,
    },
    /// A splittable session has stayed on one path for 3 s of its traffic and three runs of the
    /// schedule, for a reason other than the schedule's draws. Reported once for each stay.
    Kept {
        /// The session.
        session: SessionId,
        /// The path that it stays on.
        path: PathId,
        /// The reason.
        why: Kept,
    },
    /// A path left the candidate set, for one session or for all (`None`).
    Down {
        /// The path.
        path: PathId,
        /// The session that lost it.
        session: Option<SessionId>,
        /// The reason.
        reason: DownReason,
    },
    /// A path is a candidate again.
    Up {
        /// The path.
        path: PathId,
        /// The session that has it again, `None` for all.
        session: Option<SessionId>,
    },
    /// The server does not answer on the path where it is addressed: uplink and downlink are split
    /// differently. Reported after at least four changes of the uplink's path, and again after 10
    /// min.
    Skewed {
        /// The session.
        session: SessionId,
        /// The path on which the server's answers stay.
        path: PathId,
        /// Share of the downlink bytes that arrived by that path, in percent.
        percent: u8,
        /// Whether the server was heard by another path before, so that it has followed once.
        followed: bool,
    },
    /// A session ended.
    Closed {
        /// The session.
        session: SessionId,
        /// The reason.
        reason: CloseReason,
    },
    /// New clients were refused: too many at once, or no room for their sessions. Reported at most
    /// once per second.
    Refused {
        /// The client refused last.
        client: SocketAddr,
        /// Datagrams refused since the last report.
        datagrams: u64,
    },
    /// One of our own datagrams returned as if from a new client: a route leads our traffic into
    /// our own listener. Reported at most once per second.
    Loop {
        /// The source address.
        client: SocketAddr,
    },
}

/// The reason why a session stays on one path, or was never split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is shorter than a run of the schedule.
    Short,
    /// The handshake of a QUIC connection is not confirmed.
    Handshake,
    /// It consists only of packets for the path of handshakes and DNS queries.
    HandshakePath,
    /// Its server identifies it by its address ([`Protocol::keeps_to_one_path`]).
    Protocol(Protocol),
    /// No other path can carry it: the others are down, do not lead to its server, or exceed the
    /// four-tuples of a QUIC connection.
    OtherPaths,
    /// The schedule has chosen no other path.
    Schedule,
}

/// The reason why a path is no candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownReason {
    /// The interface or its address is removed, or is down.
    Interface,
    /// No route, or an ICMP error reports that this path does not reach the server.
    Unreachable,
    /// The proxy of the path does not serve us: it is gone, or refuses.
    Proxy,
    /// The path is a stream to the far end, which has ended or is not open yet. It is being
    /// dialled.
    Dialling,
    /// This session has no socket there: the program has reached its limit of open files.
    NoSocket,
    /// Used for a second without an answer, while the server was heard by other paths.
    Silent,
    /// It has never brought an answer, and one other path alone has. Either the path discards
    /// everything, or the server does not follow its client. For 3 s all its datagrams were sent
    /// by the other path, too.
    NeverAnswered,
    /// The far end does not answer by it: probes stayed unanswered.
    Unheard,
}

impl DownReason {
    /// Returns whether only an answer makes the path usable again.
    pub(crate) fn needs_answer(self) -> bool {
        matches!(self, DownReason::Silent | DownReason::NeverAnswered)
    }
}

/// The reason why a session ended.
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
