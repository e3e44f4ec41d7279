//! Assignment of streams to lanes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use quinn_proto::StreamId;

use super::units::{UnitReader, fault};
use crate::Fault;

/// A stream that has a lane, or will have one.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) reader: UnitReader,
    /// Bytes that wait until the previous lane of the same number has ended.
    pub(super) held: Option<Held>,
}

/// The unit that makes a lane, and the bytes received after it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) unit: Vec<u8>,
    pub(super) rest: Vec<u8>,
}

/// The streams of one link, except that of lane 0.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    streams: BTreeMap<StreamId, Stream>,
    by_number: BTreeMap<u32, StreamId>,
    /// Streams whose lane number another stream still has; that stream is being closed.
    heirs: BTreeMap<u32, StreamId>,
}

impl Lanes {
    /// Returns the stream of a lane.
    pub(super) fn of(&self, lane: u32) -> Option<StreamId> {
        self.by_number.get(&lane).copied()
    }

    pub(super) fn get_mut(&mut self, stream: StreamId) -> Option<&mut Stream> {
        self.streams.get_mut(&stream)
    }

    /// Adds the stream of a lane that we have made.
    pub(super) fn made(&mut self, lane: u32, stream: StreamId) {
        self.streams.insert(stream, Stream { reader: UnitReader::of(lane), held: None });
        self.by_number.insert(lane, stream);
    }

    /// Adds a stream that the peer has opened.
    pub(super) fn came(&mut self, stream: StreamId) {
        self.streams.insert(stream, Stream { reader: UnitReader::unnamed(), held: None });
    }

    /// Assigns an inbound stream to `lane`; returns false if another stream still has the number.
    ///
    /// # Errors
    /// [`Fault::Peer`]: this is the third stream with the number.
    pub(super) fn name(&mut self, lane: u32, stream: StreamId) -> Result<bool, Fault> {
        if let Entry::Vacant(free) = self.by_number.entry(lane) {
            free.insert(stream);
            return Ok(true);
        }
        match self.heirs.insert(lane, stream) {
            None => Ok(false),
            Some(_) => Err(fault("a circuit opened three times")),
        }
    }

    /// Stores the bytes of a stream whose lane has to wait.
    pub(super) fn hold(&mut self, stream: StreamId, held: Held) {
        if let Some(lane) = self.streams.get_mut(&stream) {
            lane.held = Some(held);
        }
    }

    /// Returns whether a stream's lane still has to wait.
    pub(super) fn waits(&self, stream: StreamId) -> bool {
        let held = self.streams.get(&stream).filter(|lane| lane.held.is_some());
        let lane = held.and_then(|lane| lane.reader.lane());
        lane.is_some_and(|lane| self.of(lane) != Some(stream))
    }

    /// Removes a stream from its lane. Returns the stream that waited for the lane's number, if
    /// any.
    pub(super) fn gone(&mut self, stream: StreamId) -> Option<StreamId> {
        let lane = self.streams.remove(&stream)?.reader.lane()?;
        if self.heirs.get(&lane) == Some(&stream) {
            self.heirs.remove(&lane);
            return None;
        }
        if self.by_number.get(&lane) != Some(&stream) {
            return None;
        }
        self.by_number.remove(&lane);
        let heir = self.heirs.remove(&lane)?;
        self.by_number.insert(lane, heir);
        Some(heir)
    }

    /// Returns the number of lanes that have a stream.
    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }
}
