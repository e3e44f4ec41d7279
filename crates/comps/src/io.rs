//! What the outside and the core tell one another.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use anabranch_multipath::{PathId, PathView};

use crate::{Batch, DownReason, Event, SessionId, TupleId};

/// What happened outside.
#[derive(Debug)]
pub enum Input<'a> {
    /// Datagrams of a client.
    Client {
        /// Its address.
        client: SocketAddr,
        /// The server that it wants to reach; `None` for the one that all clients of a listener
        /// reach.
        server: Option<SocketAddr>,
        /// The address of ours that it spoke to, where the listener has several.
        local: Option<IpAddr>,
        /// The datagrams.
        batch: Batch<'a>,
    },
    /// Datagrams of the server.
    Server {
        /// The session whose socket they came to.
        session: SessionId,
        /// The tuple that the socket stands for.
        tuple: TupleId,
        /// The datagrams.
        batch: Batch<'a>,
    },
    /// Datagrams of the server, come to a socket whose path is no more.
    Late {
        /// The session whose socket they came to.
        session: SessionId,
        /// The datagrams.
        batch: Batch<'a>,
    },
    /// The answer to [`Output::Resolve`]; again when other paths lead there, and after
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
        /// Its local address, by which our own traffic is known if it comes back.
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
        /// What is wrong.
        failure: Failure,
        /// Datagrams that did not go out (0 for a late error).
        datagrams: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// A path broke (`Some`) or works again (`None`), as far as this machine can tell.
    Path {
        /// The path.
        path: PathId,
        /// What is wrong with it.
        broken: Option<DownReason>,
    },
    /// What each path takes now, by a schedule that looks at windows; one view a path. What waited
    /// for a window goes.
    Windows(&'a [PathView]),
    /// The program ends.
    Shutdown,
}

/// Why a datagram did not go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The socket's buffer is full.
    Full,
    /// Larger than the path's MTU.
    TooBig,
    /// "Port unreachable": the server was reached, and nobody listens there. Says nothing against
    /// the path.
    Refused,
    /// No route, or an ICMP error of a router.
    Unreachable,
    /// The interface or the address is gone.
    Interface,
    /// The path's proxy does not serve this session, while it may serve others.
    Proxy,
    /// No socket could be opened for the tuple: the program has all the files that it may have.
    NoSocket,
}

/// Who speaks with whom: a client, and the server that it named (`None`: the one of all). A session
/// each.
pub(crate) type Ends = (SocketAddr, Option<SocketAddr>);

/// What is to be done outside.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Send datagrams to the server by a tuple; open its socket first if there is none.
    Send {
        /// The session.
        session: SessionId,
        /// The tuple.
        tuple: TupleId,
        /// The path that the tuple belongs to.
        path: PathId,
        /// What to send.
        payload: Payload,
    },
    /// Send the whole batch just handled to the client, or one that was held.
    Return {
        /// The client.
        client: SocketAddr,
        /// The server that the client named, so that the answer seems to come from there.
        server: Option<SocketAddr>,
        /// The address of ours to answer from.
        local: Option<IpAddr>,
        /// What was held; `None` for the batch just handled.
        held: Option<Held>,
    },
    /// Find the server's address for a new session, and tell by [`Input::Resolved`].
    Resolve {
        /// The session.
        session: SessionId,
        /// The server that its client named; `None` for the one of all.
        server: Option<SocketAddr>,
    },
    /// Close all sockets of a session.
    Close {
        /// The session.
        session: SessionId,
    },
    /// Tell the user.
    Event(Event),
}

/// Datagrams to a client that were held for those that left the server before
/// ([`Config::in_order`](crate::Config::in_order)).
#[derive(Debug, PartialEq, Eq)]
pub struct Held {
    /// The datagrams, one behind the other.
    pub bytes: Box<[u8]>,
    /// Length of each but the last, in bytes.
    pub stride: usize,
    /// Their ECN bits.
    pub ecn: u8,
}

/// Datagrams to send.
#[derive(Debug, PartialEq, Eq)]
pub enum Payload {
    /// These bytes of the batch just handled, cut by its stride, with its ECN bits.
    Live(Range<usize>),
    /// One datagram that waited.
    Kept {
        /// The datagram.
        bytes: Box<[u8]>,
        /// Its ECN bits.
        ecn: u8,
    },
}
