//! The interface between the core and its driver.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use anabranch_multipath::{PathId, PathView};

use crate::{Batch, DownReason, Event, SessionId, TupleId};

/// An event outside the core.
#[derive(Debug)]
pub enum Input<'a> {
    /// Datagrams of a client.
    Client {
        /// The client's address.
        client: SocketAddr,
        /// The server that it wants to reach; `None` for the only one of a listener.
        server: Option<SocketAddr>,
        /// The local address that it sent to, if the listener has several.
        local: Option<IpAddr>,
        /// The datagrams.
        batch: Batch<'a>,
    },
    /// Datagrams of the server.
    Server {
        /// The session whose socket they arrived at.
        session: SessionId,
        /// The tuple of that socket.
        tuple: TupleId,
        /// The datagrams.
        batch: Batch<'a>,
    },
    /// Datagrams of the server at a socket whose path has been removed.
    Late {
        /// The session whose socket they arrived at.
        session: SessionId,
        /// The datagrams.
        batch: Batch<'a>,
    },
    /// The answer to [`Output::Resolve`]. It is repeated when other paths lead there, and after
    /// [`Core::reconfigure`](crate::Core::reconfigure).
    Resolved {
        /// The session.
        session: SessionId,
        /// Whether the server has an address.
        found: bool,
        /// The paths that do not lead there (such as one without IPv6 to a server that has nothing
        /// else).
        barred: &'a [PathId],
    },
    /// A socket was opened for a tuple.
    Opened {
        /// Its local address, which identifies our own traffic if it returns to us.
        local: SocketAddr,
    },
    /// A socket was closed.
    Shut {
        /// Its local address.
        local: SocketAddr,
    },
    /// A socket refused datagrams, or reported an error of earlier ones.
    Failed {
        /// The session.
        session: SessionId,
        /// The tuple.
        tuple: TupleId,
        /// The error.
        failure: Failure,
        /// Datagrams that were not sent (0 for a late error).
        datagrams: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// A path broke (`Some`) or works again (`None`), as far as this machine can detect.
    Path {
        /// The path.
        path: PathId,
        /// The error of the path.
        broken: Option<DownReason>,
    },
    /// The state of each path's window, one view per path, for a schedule that uses windows.
    /// Datagrams that wait for a window are then sent.
    Windows(&'a [PathView]),
    /// The program ends.
    Shutdown,
}

/// The reason why a datagram was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The socket's buffer is full.
    Full,
    /// Larger than the path's MTU.
    TooBig,
    /// "Port unreachable": the server was reached, and no program listens there. The path is not
    /// at fault.
    Refused,
    /// No route, or an ICMP error of a router.
    Unreachable,
    /// The interface or the address was removed.
    Interface,
    /// The path's proxy does not serve this session, while it may serve others.
    Proxy,
    /// No socket could be opened for the tuple: the program has reached its limit of open files.
    NoSocket,
}

/// The two ends of a session: a client, and the server that it named (`None`: the only one).
pub(crate) type Ends = (SocketAddr, Option<SocketAddr>);

/// An action for the driver.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Send datagrams to the server by a tuple. Open its socket first if there is none.
    Send {
        /// The session.
        session: SessionId,
        /// The tuple.
        tuple: TupleId,
        /// The path that the tuple belongs to.
        path: PathId,
        /// The datagrams.
        payload: Payload,
    },
    /// Send the batch just handled, or a held one, to the client.
    Return {
        /// The client.
        client: SocketAddr,
        /// The server that the client named: the answer's source address.
        server: Option<SocketAddr>,
        /// The local address to answer from.
        local: Option<IpAddr>,
        /// The held batch; `None` for the batch just handled.
        held: Option<Held>,
    },
    /// Find the server's address for a new session, and report it with [`Input::Resolved`].
    Resolve {
        /// The session.
        session: SessionId,
        /// The server that its client named; `None` for the only one.
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

/// Datagrams to a client that were held until earlier ones had arrived
/// ([`Config::in_order`](crate::Config::in_order)).
#[derive(Debug, PartialEq, Eq)]
pub struct Held {
    /// The datagrams, one after the other.
    pub bytes: Box<[u8]>,
    /// Length in bytes of each datagram but the last.
    pub stride: usize,
    /// Their ECN bits.
    pub ecn: u8,
}

/// Datagrams to send.
#[derive(Debug, PartialEq, Eq)]
pub enum Payload {
    /// These bytes of the batch just handled, divided by its stride, with its ECN bits.
    Live(Range<usize>),
    /// One datagram that waited.
    Kept {
        /// The datagram.
        bytes: Box<[u8]>,
        /// Its ECN bits.
        ecn: u8,
    },
}
