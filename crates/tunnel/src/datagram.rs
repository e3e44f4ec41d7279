//! A datagram received for a program or a server.

use std::ops::Range;

use anabranch_multipath::PathId;

/// A received datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The path that it arrived by.
    pub path: PathId,
    /// The near end's program that it belongs to.
    pub flow: u16,
    /// The number of its packet.
    pub(crate) number: u64,
    /// Its position among the parts of a datagram, if it is a part.
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

    /// These follow.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.frame.truncate(self.place.end);
        self.frame.extend_from_slice(bytes);
        self.place.end = self.frame.len();
    }

    /// What the other end was given.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.frame[self.place.clone()]
    }
}
