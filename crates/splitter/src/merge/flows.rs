//! Sockets to servers. Each flow (the datagrams of one program of a client) has its own socket, so
//! a server sees a separate address for each program of a client.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_tunnel::ClientId;

use anabranch_os::poller::Poller;
use anabranch_os::udp::{UdpOptions, UdpSocket};

/// Size of the receive buffer, and also of the send buffer, of a socket to a server, in bytes.
const BUFFER: usize = 2 << 20;

/// Identifier of a flow (the datagrams of one program of a client): the client, and the flow's
/// number.
pub(super) type FlowKey = (ClientId, u16);

/// The socket of a flow (one program's datagrams).
pub(super) struct FlowSocket {
    pub(super) key: FlowKey,
    pub(super) udp: UdpSocket,
    pub(super) server: SocketAddr,
    /// Time of the flow's last datagram.
    used: Time,
}

/// The table of all flows (each has the datagrams of one program of a client), with a limit on the
/// number of flows.
pub(super) struct Flows {
    sockets: HashMap<u64, FlowSocket>,
    tokens: HashMap<FlowKey, u64>,
    /// Poller token of the next new socket. Tokens are not reused.
    next: u64,
    most: usize,
}

impl Flows {
    /// Returns an empty table for at most `most` flows.
    pub(super) fn new(most: usize) -> Flows {
        Flows { sockets: HashMap::new(), tokens: HashMap::new(), next: 0, most }
    }

    /// Sets the maximum number of flows to `most`.
    pub(super) fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    pub(super) fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Returns the flow whose socket has `token`, and records that it was used at `now`. Returns
    /// `None` if there is no such flow.
    pub(super) fn by_token(&mut self, now: Time, token: u64) -> Option<&FlowSocket> {
        let flow = self.sockets.get_mut(&token)?;
        flow.used = now;
        Some(flow)
    }

    /// Returns the socket of the flow `key` to `server`, and records that it was used at `now`.
    /// Opens a socket if the flow has no socket, or if its socket leads to another server.
    ///
    /// # Errors
    /// The kernel cannot open the socket; or the maximum number of flows is open, and none of them
    /// belongs to this client, so none can be replaced.
    pub(super) fn of(
        &mut self,
        now: Time,
        key: FlowKey,
        server: SocketAddr,
        poller: &Poller,
    ) -> io::Result<&FlowSocket> {
        let known = self.tokens.get(&key).copied();
        let fits = known.filter(|token| self.sockets[token].server == server);
        let token = match fits {
            Some(token) => token,
            None => self.open(now, key, server, poller)?,
        };
        let flow = self.sockets.get_mut(&token).expect("the flow exists, or was opened above");
        flow.used = now;
        Ok(flow)
    }

    fn open(
        &mut self,
        now: Time,
        key: FlowKey,
        server: SocketAddr,
        poller: &Poller,
    ) -> io::Result<u64> {
        self.close(key);
        if self.sockets.len() >= self.most {
            let of_client = self.sockets.values().filter(|flow| flow.key.0 == key.0);
            let oldest = of_client.min_by_key(|flow| flow.used).map(|flow| flow.key);
            self.close(
                oldest.ok_or_else(|| io::Error::other("too many sockets to servers are open"))?,
            );
        }
        let options = UdpOptions {
            recv_buffer: BUFFER,
            send_buffer: BUFFER,
            error_queue: false,
            ..UdpOptions::default()
        };
        let udp = UdpSocket::connect(None, server, &options)?;
        let token = self.next;
        poller.add(&udp, token)?;
        self.next += 1;
        self.sockets.insert(token, FlowSocket { key, udp, server, used: now });
        self.tokens.insert(key, token);
        Ok(token)
    }

    fn close(&mut self, key: FlowKey) {
        if let Some(token) = self.tokens.remove(&key) {
            self.sockets.remove(&token);
        }
    }

    /// Closes all flows of `client`.
    pub(super) fn close_all(&mut self, client: ClientId) {
        self.close_where(|flow| flow.key.0 == client);
    }

    /// Closes flows that were idle for at least `idle`.
    pub(super) fn close_idle(&mut self, now: Time, idle: Duration) {
        self.close_where(|flow| now.since(flow.used) >= idle);
    }

    fn close_where(&mut self, over: impl Fn(&FlowSocket) -> bool) {
        self.sockets.retain(|_, flow| !over(flow));
        let sockets = &self.sockets;
        self.tokens.retain(|_, token| sockets.contains_key(token));
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket as PlainSocket;

    use super::*;

    #[test]
    fn flows_are_bounded_by_time_and_number_and_each_client_closes_its_own() {
        let server = PlainSocket::bind("127.0.0.1:0").unwrap();
        let (server, poller) = (server.local_addr().unwrap(), Poller::new(8).unwrap());
        let mut flows = Flows::new(2);
        let [one, other] = [0, 1].map(ClientId);
        let at = Time::from_secs;
        let open = |flows: &mut Flows, now, key| {
            flows.of(now, key, server, &poller).map(|flow| flow.udp.local_addr().unwrap())
        };
        let first = open(&mut flows, at(1), (one, 0)).unwrap();
        assert_eq!(open(&mut flows, at(2), (one, 0)).unwrap(), first, "it stays");
        open(&mut flows, at(3), (one, 1)).unwrap();
        assert!(open(&mut flows, at(4), (other, 0)).is_err(), "no flow of this client can go");
        open(&mut flows, at(4), (one, 2)).unwrap();
        assert_eq!(flows.len(), 2);
        assert_ne!(open(&mut flows, at(5), (one, 0)).unwrap(), first, "the oldest had gone");
        flows.close_idle(at(9), Duration::from_secs(5));
        assert_eq!(flows.len(), 1, "that of second 4 is over");
        flows.close_all(one);
        assert_eq!(flows.len(), 0);
        open(&mut flows, at(9), (other, 0)).unwrap();
    }
}
