//! The interface between the splitter's state machine (core) and its driver, the loop that reads
//! and writes sockets.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use anabranch_multipath::{PathId, PathView};

use crate::{Batch, DownReason, Event, SessionId, TupleId};

/// An event that the driver passes to the core.
#[derive(Debug)]
pub enum Input<'a> {
    /// Datagrams of a client.
    Client {
        /// The client's address.
        client: SocketAddr,
        /// The server that the client wants to reach; `None` if the listener has a single server.
        server: Option<SocketAddr>,
        /// The local address that the client sent to; `None` if the listener has only one.
        local: Option<IpAddr>,
        /// The datagrams.
        batch: Batch<'a>,
    },
    /// Datagrams of the server.
    Server {
        /// The session that owns the socket at which the datagrams arrived.
        session: SessionId,
        /// The tuple of the socket at which the datagrams arrived: its path, with one of the
        /// path's source ports.
        tuple: TupleId,
        /// The datagrams.
        batch: Batch<'a>,
    },
    /// Datagrams of the server that arrived at a socket whose path has been removed.
    Late {
        /// The session that owns the socket at which the datagrams arrived.
        session: SessionId,
        /// The datagrams.
        batch: Batch<'a>,
    },
    /// The answer to [`Output::Resolve`]. The driver sends this answer again when the set of paths
    /// that lead to the server changes, and after [`Core::reconfigure`](crate::Core::reconfigure).
    Resolved {
        /// The session.
        session: SessionId,
        /// Whether the server has an address.
        found: bool,
        /// The paths that do not lead to the server, such as a path without IPv6 if the server has
        /// only an IPv6 address.
        barred: &'a [PathId],
    },
    /// The driver opened a socket for a tuple (a path with one of its source ports).
    Opened {
        /// Local address of the socket. A datagram from this address is our own traffic, looped
        /// back.
        local: SocketAddr,
    },
    /// The driver closed a socket, so its address no longer identifies our own traffic.
    Shut {
        /// Local address of the socket.
        local: SocketAddr,
    },
    /// A socket refused datagrams, or reported an error of datagrams sent earlier.
    Failed {
        /// The session.
        session: SessionId,
        /// The tuple (a path with one of its source ports) of the socket.
        tuple: TupleId,
        /// The error.
        failure: Failure,
        /// Number of datagrams that were not sent; 0 if the error concerns datagrams sent earlier.
        datagrams: u64,
        /// Total bytes of the datagrams that were not sent.
        bytes: u64,
    },
    /// A path broke or works again for all sessions. The driver has observed this on this machine
    /// or, with a far end (our program in front of the server), by probes of the path.
    Path {
        /// The path.
        path: PathId,
        /// The reason why the path is broken; `None` if it works again.
        broken: Option<DownReason>,
    },
    /// The state of each path's congestion window, for a schedule that uses windows. The core then
    /// sends datagrams that wait for room in a window.
    Windows(&'a [PathView]),
    /// The program shuts down.
    Shutdown,
}

/// The reason why a datagram was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The socket's buffer is full.
    Full,
    /// The datagram is larger than the path's MTU.
    TooBig,
    /// The server's host answered "port unreachable": no program listens there. The path is not at
    /// fault.
    Refused,
    /// The machine has no route, or a router reported an ICMP error.
    Unreachable,
    /// The interface or the address was removed.
    Interface,
    /// The path's proxy does not serve this session, but may serve other sessions.
    Proxy,
    /// No socket could be opened for the tuple (path and source port): the program has reached its
    /// limit of open files.
    NoSocket,
}

/// The two ends of a session: a client, and the server that the client named (`None` if the
/// listener has a single server).
pub(crate) type Ends = (SocketAddr, Option<SocketAddr>);

/// An action that the core requests from the driver, the loop that reads and writes sockets.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Send datagrams to the server from a tuple (a path with one of its source ports). If the
    /// tuple has no socket, open one first.
    Send {
        /// The session.
        session: SessionId,
        /// The tuple (a path with one of its source ports) that sends the datagrams.
        tuple: TupleId,
        /// The path that the tuple belongs to.
        path: PathId,
        /// The datagrams.
        payload: Payload,
    },
    /// Send datagrams to the client: the batch that the core has just handled, or a batch that was
    /// held to restore the order.
    SendToClient {
        /// The client.
        client: SocketAddr,
        /// The server that the client named, whose address is the source of the datagrams; `None`
        /// if the listener has a single server.
        server: Option<SocketAddr>,
        /// The local address to send the datagrams from; `None` if the listener has only one
        /// address.
        local: Option<IpAddr>,
        /// The batch that was held to restore the order; `None` for the batch that the core has
        /// just handled.
        held: Option<HeldDatagrams>,
    },
    /// Find the server's address for a new session, and report it with [`Input::Resolved`].
    Resolve {
        /// The session.
        session: SessionId,
        /// The server that the session's client named; `None` if the listener has a single server.
        server: Option<SocketAddr>,
    },
    /// Close all sockets of a session.
    Close {
        /// The session.
        session: SessionId,
    },
    /// Report an event to the user.
    Event(Event),
}

/// Datagrams to a client that were held until earlier datagrams had arrived
/// ([`Config::in_order`](crate::Config::in_order)).
#[derive(Debug, PartialEq, Eq)]
pub struct HeldDatagrams {
    /// The datagrams, stored one after the other.
    pub bytes: Box<[u8]>,
    /// Length in bytes of each datagram; the last one may be shorter.
    pub stride: usize,
    /// ECN bits of the datagrams.
    pub ecn: u8,
}

/// Datagrams to send.
#[derive(Debug, PartialEq, Eq)]
pub enum Payload {
    /// A byte range of the batch that the core has just handled. The datagrams in this range have
    /// the batch's stride (length of one datagram) and ECN bits.
    Live(Range<usize>),
    /// One datagram from the core's queues. The core's copy is passed on, because the batch that
    /// contained it is gone.
    Kept {
        /// The datagram.
        bytes: Box<[u8]>,
        /// ECN bits of the datagram.
        ecn: u8,
    },
}
