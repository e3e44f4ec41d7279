//! The connection that two TCP ports have at present.

use std::net::SocketAddr;

use super::hello;
use super::start::{Names, Start};

/// What of a segment matters here.
pub(super) struct Segment<'a> {
    /// SYN without ACK.
    pub(super) begins: bool,
    pub(super) sequence: u32,
    pub(super) payload: &'a [u8],
}

/// A connection whose begin was seen.
#[derive(Debug)]
pub(super) struct Tcp {
    client: SocketAddr,
    /// The number of its SYN.
    syn: u32,
    start: Start,
}

impl Segment<'_> {
    /// The connection that it begins.
    pub(super) fn begun(&self, client: SocketAddr) -> Option<Tcp> {
        let new = || Tcp { client, syn: self.sequence, start: Start::default() };
        self.begins.then(new)
    }
}

impl Tcp {
    /// Whether a SYN is this connection's own, sent again.
    pub(super) fn is(&self, other: &Tcp) -> bool {
        (self.client, self.syn) == (other.client, other.syn)
    }

    /// Whether a segment may pass.
    pub(super) fn pass(&mut self, from: SocketAddr, segment: &Segment<'_>, names: &Names) -> bool {
        if from == self.client {
            // The SYN has a number of its own, before that of the first byte (which may come with
            // it, RFC 7413).
            let syn = u32::from(!segment.begins);
            let at = segment.sequence.wrapping_sub(self.syn).wrapping_sub(syn);
            self.start.take(at.into(), segment.payload);
            self.start.decide(names, hello::of_records);
        }
        !self.start.is_blocked()
    }
}
