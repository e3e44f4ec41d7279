//! The QUIC connections of two UDP ports: there may be several at once, for clients begin many from
//! one socket.
//!
//! Initial packets tell whose they are by the keys that open them: those of the first packet of a
//! connection, or of the first after a Retry, which therefore counts as a connection of its own and
//! says everything once more. A packet sent again, or sent to the server's own connection ID, has
//! the same keys.

use std::collections::VecDeque;

use super::hello::server_name;
use super::initial::{self, ClientKeys, Initial};
use super::start::{Names, Start};

/// Connections of two ports that are remembered; one more, and the oldest is forgotten.
const CONNECTIONS: usize = 8;

/// In the order of their beginnings.
#[derive(Debug, Default)]
pub(super) struct Quic(VecDeque<Connection>);

#[derive(Debug)]
struct Connection {
    keys: ClientKeys,
    start: Start,
}

impl Quic {
    /// Whether a datagram of either side may pass. Where it holds no Initial packet of a client,
    /// nobody can tell whose it is: it may, unless all connections are blocked. Those that are do
    /// not come so far as to send others.
    pub(super) fn pass(&mut self, datagram: &[u8], names: &Names) -> bool {
        let initials = initial::packets(datagram);
        let said: Vec<bool> = initials.filter_map(|packet| self.hear(&packet, names)).collect();
        if said.is_empty() {
            return self.0.is_empty() || self.0.iter().any(|each| !each.start.is_blocked());
        }
        said.into_iter().all(|passes| passes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Connections that are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes in what a client said in an Initial packet, and says whether its connection may go on;
    /// `None` if it is no client's.
    fn hear(&mut self, packet: &Initial<'_>, names: &Names) -> Option<bool> {
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

    /// Adds a connection; its place.
    fn remember(&mut self, keys: ClientKeys) -> usize {
        if self.0.len() >= CONNECTIONS {
            self.0.pop_front();
        }
        self.0.push_back(Connection { keys, start: Start::default() });
        self.0.len() - 1
    }
}
