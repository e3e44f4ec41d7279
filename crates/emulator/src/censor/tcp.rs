//! The current TCP connection between two ports, as the censor tracks it.

use std::net::SocketAddr;

use super::hello;
use super::start::{Names, Start};

/// The parsed fields of a TCP segment.
pub(super) struct Segment<'a> {
    /// Whether the segment has the flag SYN without ACK, and thus opens a connection.
    pub(super) begins: bool,
    pub(super) sequence: u32,
    pub(super) payload: &'a [u8],
}

/// A TCP connection whose SYN was seen.
#[derive(Debug)]
pub(super) struct Tcp {
    client: SocketAddr,
    /// Sequence number of the SYN that opened the connection.
    syn: u32,
    start: Start,
}

impl Segment<'_> {
    /// Returns a new connection opened by `client` if the segment is a SYN, else `None`.
    pub(super) fn begun(&self, client: SocketAddr) -> Option<Tcp> {
        let new = || Tcp { client, syn: self.sequence, start: Start::default() };
        self.begins.then(new)
    }
}

impl Tcp {
    /// Returns whether the SYN of `other` is a retransmission of this connection's SYN.
    pub(super) fn is(&self, other: &Tcp) -> bool {
        (self.client, self.syn) == (other.client, other.syn)
    }

    /// Returns whether a TCP segment may pass the censor. Reads the client's bytes until the
    /// connection is allowed or blocked.
    pub(super) fn pass(&mut self, from: SocketAddr, segment: &Segment<'_>, names: &Names) -> bool {
        if from == self.client {
            // The SYN has the sequence number before the number of the first byte. The first byte
            // may be in the SYN segment (RFC 7413).
            let syn = u32::from(!segment.begins);
            let at = segment.sequence.wrapping_sub(self.syn).wrapping_sub(syn);
            self.start.take(at.into(), segment.payload);
            self.start.decide(names, hello::of_records);
        }
        !self.start.is_blocked()
    }
}
