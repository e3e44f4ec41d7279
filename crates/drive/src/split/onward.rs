//! What is on its way out after one reception: gathered, so that neighbours for one socket leave in one system call.

use std::borrow::Cow;
use std::ops::Range;

use anabranch_comps::{SessionId, TupleId};
use anabranch_multipath::PathId;

use crate::udp::Datagrams;

/// Datagrams for one tuple.
pub(super) struct Outgoing<'a> {
    pub(super) session: SessionId,
    pub(super) tuple: TupleId,
    pub(super) path: PathId,
    pub(super) bytes: Cow<'a, [u8]>,
    pub(super) stride: usize,
    pub(super) ecn: u8,
}

impl Outgoing<'_> {
    /// As the socket takes them.
    pub(super) fn datagrams(&self) -> Datagrams<'_> {
        Datagrams { bytes: &self.bytes, stride: self.stride, ecn: self.ecn, to: None, source: None }
    }

    /// How many they are.
    pub(super) fn count(&self) -> usize {
        self.bytes.len().div_ceil(self.stride.max(1)).max(1)
    }

    fn same_socket(&self, other: &Outgoing<'_>) -> bool {
        (self.session, self.tuple) == (other.session, other.tuple)
    }
}

/// The ranges of neighbours for the same socket, in order.
pub(super) fn groups<'g>(outgoing: &'g [Outgoing<'_>]) -> impl Iterator<Item = Range<usize>> + 'g {
    let mut start = 0;
    outgoing.chunk_by(Outgoing::same_socket).map(move |group| {
        let range = start..start + group.len();
        start = range.end;
        range
    })
}
