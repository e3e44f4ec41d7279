//! Assignment of QUIC streams to lanes. A lane is the order domain of one circuit in a link.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use quinn_proto::StreamId;

use super::units::{UnitReader, fault};
use crate::Fault;

/// A QUIC stream that carries a lane (the order domain of one circuit), or waits until the
/// previous lane with the same number has ended.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) reader: UnitReader,
    /// Bytes that wait until the previous lane with the same number has ended. `None` if the lane
    /// need not wait.
    pub(super) held: Option<WaitingUnit>,
}

/// The bytes of a waiting stream: the first unit (cell) of its lane, and the bytes after it.
#[derive(Debug)]
pub(super) struct WaitingUnit {
    pub(super) unit: Vec<u8>,
    pub(super) rest: Vec<u8>,
}

/// The QUIC streams of one link, except the stream of lane 0. Each stream carries the lane (order
/// domain) of one circuit.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    streams: BTreeMap<StreamId, Stream>,
    by_number: BTreeMap<u32, StreamId>,
    /// Streams that wait until an earlier stream with the same lane number is closed, by that
    /// number.
    successors: BTreeMap<u32, StreamId>,
}

impl Lanes {
    /// Returns the QUIC stream of `lane`; `None` if the lane has none.
    pub(super) fn of(&self, lane: u32) -> Option<StreamId> {
        self.by_number.get(&lane).copied()
    }

    pub(super) fn get_mut(&mut self, stream: StreamId) -> Option<&mut Stream> {
        self.streams.get_mut(&stream)
    }

    /// Adds `stream`, which carries a lane that we have opened.
    pub(super) fn made(&mut self, lane: u32, stream: StreamId) {
        self.streams.insert(stream, Stream { reader: UnitReader::of(lane), held: None });
        self.by_number.insert(lane, stream);
    }

    /// Adds a stream that the peer has opened.
    pub(super) fn add_opened(&mut self, stream: StreamId) {
        self.streams.insert(stream, Stream { reader: UnitReader::unnamed(), held: None });
    }

    /// Assigns the inbound stream `stream` to `lane`. Returns false if `stream` must wait, because
    /// another stream still has this lane.
    ///
    /// # Errors
    /// [`Fault::Peer`]: another stream has this lane, and a second one already waits for it.
    pub(super) fn name(&mut self, lane: u32, stream: StreamId) -> Result<bool, Fault> {
        if let Entry::Vacant(free) = self.by_number.entry(lane) {
            free.insert(stream);
            return Ok(true);
        }
        match self.successors.insert(lane, stream) {
            None => Ok(false),
            Some(_) => Err(fault("a circuit opened three times")),
        }
    }

    /// Stores the bytes of a stream that must wait for its lane.
    pub(super) fn hold(&mut self, stream: StreamId, held: WaitingUnit) {
        if let Some(lane) = self.streams.get_mut(&stream) {
            lane.held = Some(held);
        }
    }

    /// Returns whether a stream must wait for its lane.
    pub(super) fn waits(&self, stream: StreamId) -> bool {
        let held = self.streams.get(&stream).filter(|lane| lane.held.is_some());
        let lane = held.and_then(|lane| lane.reader.lane());
        lane.is_some_and(|lane| self.of(lane) != Some(stream))
    }

    /// Removes a stream from its lane. Returns the stream that waited for this lane, if any.
    pub(super) fn gone(&mut self, stream: StreamId) -> Option<StreamId> {
        let lane = self.streams.remove(&stream)?.reader.lane()?;
        if self.successors.get(&lane) == Some(&stream) {
            self.successors.remove(&lane);
            return None;
        }
        if self.by_number.get(&lane) != Some(&stream) {
            return None;
        }
        self.by_number.remove(&lane);
        let heir = self.successors.remove(&lane)?;
        self.by_number.insert(lane, heir);
        Some(heir)
    }

    /// Returns the number of lanes that have an assigned stream.
    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }
}
