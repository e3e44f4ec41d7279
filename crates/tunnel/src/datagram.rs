//! A datagram that arrived through the tunnel, to be delivered to a program or a server.

use std::ops::Range;

use anabranch_multipath::PathId;

/// A received datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The path on which the datagram arrived.
    pub path: PathId,
    /// Identifier of the program at the near end (the user's side) that sends or receives the
    /// datagram.
    pub flow: u16,
    /// Packet number of the packet that carried the datagram.
    pub(crate) number: u64,
    /// Index of this part in its datagram, if the datagram was split; `None` if the packet carried
    /// a whole datagram.
    pub(crate) part: Option<u8>,
    pub(crate) frame: Vec<u8>,
    pub(crate) place: Range<usize>,
}

impl Datagram {
    #[cfg(test)]
    pub(crate) fn new(flow: u16, number: u64, part: Option<u8>, bytes: &[u8]) -> Datagram {
        let place = 0..bytes.len();
        Datagram { path: PathId(0), flow, number, part, frame: bytes.to_vec(), place }
    }

    /// Appends the bytes of the next part.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.frame.truncate(self.place.end);
        self.frame.extend_from_slice(bytes);
        self.place.end = self.frame.len();
    }

    /// Returns the bytes of the datagram, as the other end passed them to the tunnel.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.frame[self.place.clone()]
    }
}
