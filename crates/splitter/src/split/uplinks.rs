//! The connections to the servers: the paths' egresses, their sockets, proxies and streams, and
//! each session's server.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use anabranch_comps::{Protocol, SessionId, TupleId};
use anabranch_multipath::{PathId, Time};
use anabranch_os::poller::Poller;
use anabranch_os::udp::SendQueue;

use super::egress_table::EgressTable;
use super::proxies::Proxies;
use super::resolver::Resolver;
use super::sockets::Sockets;
use super::streams::Streams;
use crate::socks::Association;

/// The state of the connections to the servers: path sockets, proxies, streams and name lookups.
pub(super) struct Uplinks {
    pub(super) egress_table: EgressTable,
    pub(super) sockets: Sockets,
    pub(super) proxies: Proxies,
    pub(super) streams: Streams,
    pub(super) resolver: Resolver,
    /// The server's address, if the user gave an address; `None` if the user gave a name, or if
    /// each packet names its server.
    pub(super) literal: Option<SocketAddr>,
    /// The server of each session.
    pub(super) servers: HashMap<SessionId, SocketAddr>,
    /// The protocol of each session, once it is recognised.
    pub(super) protocols: HashMap<SessionId, Protocol>,
    pub(super) queue: SendQueue,
}

impl Uplinks {
    /// Creates the state of the connections, without open sockets. Sockets that are opened later
    /// get the firewall mark `fwmark`.
    pub(super) fn new(
        (egress_table, fwmark): (EgressTable, Option<u32>),
        (proxies, streams): (Proxies, Streams),
        (resolver, literal): (Resolver, Option<SocketAddr>),
    ) -> Uplinks {
        let (sockets, queue) = (Sockets::new(fwmark), SendQueue::new());
        let (servers, protocols) = (HashMap::new(), HashMap::new());
        Uplinks {
            egress_table,
            sockets,
            proxies,
            streams,
            resolver,
            literal,
            servers,
            protocols,
            queue,
        }
    }

    /// Returns the time at which the next timer of the paths, sockets, proxies, streams or name
    /// lookups expires; `None` if no timer runs.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let dues = [
            self.sockets.next_timeout(),
            self.egress_table.next_timeout(),
            self.resolver.next_timeout(),
            self.proxies.next_timeout(),
            self.streams.next_timeout(),
        ];
        dues.into_iter().flatten().min()
    }

    /// Opens the socket of a four-tuple, connected to the session's server, or to a proxy's UDP
    /// relay if `by` is given. Returns the socket's local address; `None` if the server is
    /// unknown, or the path does not lead to it.
    pub(super) fn open(
        &mut self,
        key: (SessionId, TupleId, PathId),
        by: Option<(Association, Time)>,
        poller: &Poller,
    ) -> Option<io::Result<SocketAddr>> {
        let server = *self.servers.get(&key.0)?;
        let egress = self.egress_table.towards(key.2, server)?;
        Some(self.sockets.open(key, egress, server, by, poller))
    }

    /// Returns the paths that a session with `server` cannot use, because they lead only to
    /// servers of the other IP version. If this would exclude all paths, returns an empty list.
    /// The session then tries all paths, because the IP version may become available again.
    pub(super) fn barred(&self, server: SocketAddr) -> Vec<PathId> {
        let mut barred = self.egress_table.barred(server);
        if barred.len() == self.egress_table.len() {
            barred.clear();
        }
        barred
    }

    /// Removes a closed session. Returns the local addresses of its sockets.
    pub(super) fn close(&mut self, session: SessionId) -> Vec<SocketAddr> {
        self.servers.remove(&session);
        self.protocols.remove(&session);
        self.resolver.forget(session);
        self.proxies.forget(session);
        self.sockets.close(session)
    }

    /// Retires the sockets of all paths, because the server has another address: they send nothing
    /// more, but still receive for a while.
    pub(super) fn retire_all(&mut self, now: Time) {
        (0..self.egress_table.len()).for_each(|path| self.sockets.retire(now, PathId::at(path)));
    }
}
