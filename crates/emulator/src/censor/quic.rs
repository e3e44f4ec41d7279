//! The QUIC connections of a pair of UDP ports. There may be several at once, because clients open
//! many connections from one socket.
//!
//! An Initial packet belongs to the connection whose keys decrypt the packet. These keys derive
//! from the first packet of a connection. After a Retry packet of the server, new keys derive from
//! the client's next packet. The connection then counts as a new one, and the client sends its
//! ClientHello again. A retransmitted packet, or a packet sent to the server's own connection ID,
//! has the same keys.

use std::collections::VecDeque;

use super::hello::server_name;
use super::initial::{self, ClientKeys, Initial};
use super::start::{Names, Start};

/// Maximum number of QUIC connections remembered for a pair of UDP ports. If there are more, the
/// oldest is evicted.
const CONNECTIONS: usize = 8;

/// The remembered QUIC connections of a pair of UDP ports, oldest first.
#[derive(Debug, Default)]
pub(super) struct Quic(VecDeque<Connection>);

#[derive(Debug)]
struct Connection {
    keys: ClientKeys,
    start: Start,
}

impl Quic {
    /// Returns whether a datagram of the client or the server may pass. A datagram without an
    /// Initial packet of a client cannot be assigned to a connection. Such a datagram passes
    /// unless all connections of the ports are blocked, because a blocked connection never gets
    /// past its Initial packets.
    pub(super) fn pass(&mut self, datagram: &[u8], names: &Names) -> bool {
        let initials = initial::packets(datagram);
        let verdicts: Vec<bool> =
            initials.filter_map(|packet| self.add_packet(&packet, names)).collect();
        if verdicts.is_empty() {
            return self.0.is_empty() || self.0.iter().any(|each| !each.start.is_blocked());
        }
        verdicts.into_iter().all(|passes| passes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of remembered connections.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds the content of a client's Initial packet to its connection. Returns whether that
    /// connection is still allowed; `None` if the packet is not from a client.
    fn add_packet(&mut self, packet: &Initial<'_>, names: &Names) -> Option<bool> {
        let known = self.0.iter().enumerate().rev();
        let known = known.map(|(at, connection)| (at, packet.open(&connection.keys)));
        let known = known.filter_map(|(at, frames)| Some((at, frames?))).next();
        let (at, frames) = match known {
            Some(known) => known,
            None => {
                let keys = packet.keys()?;
                let frames = packet.open(&keys)?;
                (self.remember(keys), frames)
            }
        };
        let Connection { start, .. } = &mut self.0[at];
        initial::crypto_frames(&frames, |at, bytes| start.take(at, bytes));
        start.decide(names, server_name);
        Some(!start.is_blocked())
    }

    /// Adds a connection with `keys`, and returns its index.
    fn remember(&mut self, keys: ClientKeys) -> usize {
        if self.0.len() >= CONNECTIONS {
            self.0.pop_front();
        }
        self.0.push_back(Connection { keys, start: Start::default() });
        self.0.len() - 1
    }
}
