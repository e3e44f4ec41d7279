//! Events for the person who runs the splitter.

use std::net::SocketAddr;
use std::time::Duration;

use anabranch_multipath::{PathId, Time};

use crate::Protocol;
use crate::protocol::Confidence;

/// Identifier of a session. Identifiers count up from 0 and are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// An event to report to the user. It contains neither payload nor keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A session was opened, because the first datagram of a client arrived.
    Opened {
        /// The new session.
        session: SessionId,
        /// Address of the session's client.
        client: SocketAddr,
        /// The server that the client named; `None` if the listener has a single server.
        server: Option<SocketAddr>,
    },
    /// The session's protocol was recognised, or the confidence in it changed. The event is
    /// reported again if later datagrams show another protocol.
    Recognised {
        /// The session.
        session: SessionId,
        /// The recognised protocol of the session.
        protocol: Protocol,
        /// The confidence in the recognised protocol.
        confidence: Confidence,
    },
    /// The packets of a split session carry sequence numbers in clear. From them, the observer of
    /// one path learns how many packets all paths carried. Reported once per protocol.
    NumbersInClear {
        /// The first session in which such packets were seen.
        session: SessionId,
        /// Protocol of the session; [`Protocol::Other`] if it is unknown.
        protocol: Protocol,
    },
    /// The server has not answered on any path for 10 s, although the client sent at least three
    /// times, over at least 4 s. Reported again after increasing intervals while the client
    /// continues to send.
    Unanswered {
        /// The session.
        session: SessionId,
        /// The server that the client named; `None` if the listener has a single server.
        server: Option<SocketAddr>,
        /// Time since the client's first datagram after the last answer.
        waited: Duration,
        /// Time of the server's last answer, in this session or an earlier one; `None` if it never
        /// answered.
        last: Option<Time>,
    },
    /// The server answers again, after the user was informed of its silence.
    Answered {
        /// The session.
        session: SessionId,
        /// The server that the client named; `None` if the listener has a single server.
        server: Option<SocketAddr>,
        /// Length of the silence.
        waited: Duration,
    },
    /// The session uses fewer four-tuples (addresses and ports) than its paths and ports allow,
    /// because QUIC connections may use only a limited number
    /// ([`Config::quic_tuples`](crate::Config::quic_tuples)).
    TuplesCut {
        /// The session.
        session: SessionId,
        /// Number of four-tuples that the session's paths and their source ports allow.
        wanted: usize,
        /// Number of four-tuples in use.
        used: usize,
    },
    /// A session with a QUIC connection is kept on one path from now on, until the handshake is
    /// confirmed.
    Pinned {
        /// The session.
        session: SessionId,
        /// The path on which the connection stays.
        path: PathId,
    },
    /// The handshakes of all QUIC connections of the session are confirmed, so the session leaves
    /// its single path. From now on the schedule chooses the path of each datagram.
    Released {
        /// The session.
        session: SessionId,
        /// Measured round-trip time of the handshake; `None` if it was not measured.
        rtt: Option<Duration>,
    },
    /// A session has stayed on one path for a reason other than the schedule's random choices.
    /// Reported once per stay, after at least 3 s of traffic and at least three runs. A run is the
    /// datagrams between two choices of a path.
    Kept {
        /// The session.
        session: SessionId,
        /// The path on which the session stays.
        path: PathId,
        /// The reason.
        why: StayReason,
    },
    /// A path is out of use, either for one session or for all.
    Down {
        /// The path.
        path: PathId,
        /// The session that lost the path; `None` if all sessions lost it.
        session: Option<SessionId>,
        /// The reason.
        reason: DownReason,
    },
    /// A path that was out of use is used again.
    Up {
        /// The path.
        path: PathId,
        /// The session that may use the path again; `None` if all sessions may.
        session: Option<SessionId>,
    },
    /// The server's answers stay on one path while the client's datagrams change paths, so the
    /// downlink is not split like the uplink. Reported after at least four changes of the uplink's
    /// path, and again after 10 min.
    Skewed {
        /// The session.
        session: SessionId,
        /// The path on which the server's answers stay.
        path: PathId,
        /// Share of the downlink bytes that arrived by `path`, in percent.
        percent: u8,
        /// Whether the server has ever answered on another path. If so, it has followed its client
        /// at least once.
        followed: bool,
    },
    /// A session ended.
    Closed {
        /// The session.
        session: SessionId,
        /// The reason.
        reason: CloseReason,
    },
    /// New clients were refused: too many arrived at once, or there was no room for their
    /// sessions. Reported at most once per second.
    Refused {
        /// The client that was refused last.
        client: SocketAddr,
        /// Number of datagrams refused since the last report.
        datagrams: u64,
    },
    /// One of our own datagrams arrived at our listener as if from a new client, because a route
    /// leads our traffic back to us. Reported at most once per second.
    Loop {
        /// Source address of the returned datagram.
        client: SocketAddr,
    },
}

/// The reason why a session stays on one path, or was never split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StayReason {
    /// The session has had only one run (the consecutive datagrams between two choices of a path).
    Short,
    /// The handshake of a QUIC connection in the session is not confirmed yet.
    Handshake,
    /// The session consists only of handshakes and DNS queries, and all of these use the path that
    /// the user named for them.
    HandshakePath,
    /// The session's server identifies the client by its address
    /// ([`Protocol::keeps_to_one_path`]).
    Protocol(Protocol),
    /// No other path can carry the session: the others are down, do not lead to its server, or
    /// exceed the limit on four-tuples of a QUIC connection.
    OtherPaths,
    /// The schedule has chosen the same path each time.
    Schedule,
}

/// The reason why a path is out of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownReason {
    /// The interface or its address is removed, or is down.
    Interface,
    /// The machine has no route over this path, or an ICMP error reports that this path does not
    /// reach the server.
    Unreachable,
    /// The proxy of the path is unreachable or refuses to serve us.
    Proxy,
    /// The path is a stream (such as TCP) to the far end, our program in front of the server, and
    /// the driver is still opening the stream's connection.
    Dialling,
    /// The session could open no socket for this path: the program has reached its limit of open
    /// files.
    NoSocket,
    /// The path was used for a second without an answer, while the server answered on other paths.
    Silent,
    /// No answer has ever arrived on this path, and only one other path has received answers.
    /// Either this path discards everything, or the server does not follow its client. In the 3 s
    /// before the path was taken out of use, its datagrams were also sent on the other path.
    NeverAnswered,
    /// The path was used for a second without an answer, while the server answered on other paths.
    /// At most three answers had arrived on this path before. Either the path loses most
    /// datagrams, or the server accepts data from one address only and sends occasional handshakes
    /// to others.
    DataUnanswered,
    /// The far end (our program in front of the server) did not answer the probes on this path.
    Unheard,
}

impl DownReason {
    /// Returns whether only an answer of the server on the path makes the path usable again.
    pub(crate) fn needs_answer(self) -> bool {
        matches!(self, DownReason::Silent | DownReason::NeverAnswered | DownReason::DataUnanswered)
    }
}

/// The reason why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The session's client was silent for the idle time.
    Idle,
    /// The limit on sessions was reached. This session was the oldest without an answer from its
    /// server or, if all had answers, it had been idle longest.
    Evicted,
    /// The server's name does not resolve.
    Unresolved,
    /// No path leads to the server.
    Unreachable,
    /// The program shuts down.
    Shutdown,
}
