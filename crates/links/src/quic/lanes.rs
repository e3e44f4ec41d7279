//! Which stream is which lane's.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use quinn_proto::StreamId;

use super::units::{UnitReader, fault};
use crate::Fault;

/// A stream that is, or will be, a lane's.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) reader: UnitReader,
    /// What waits until the lane of the same number has ended.
    pub(super) held: Option<Held>,
}

/// The unit that makes a lane, and what came with it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) unit: Vec<u8>,
    pub(super) rest: Vec<u8>,
}

/// The streams of one link, but for that of lane 0.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    streams: BTreeMap<StreamId, Stream>,
    by_number: BTreeMap<u32, StreamId>,
    /// Streams whose lanes' numbers others have, whose end is under way.
    heirs: BTreeMap<u32, StreamId>,
}

impl Lanes {
    /// The stream of a lane.
    pub(super) fn of(&self, lane: u32) -> Option<StreamId> {
        self.by_number.get(&lane).copied()
    }

    pub(super) fn get_mut(&mut self, stream: StreamId) -> Option<&mut Stream> {
        self.streams.get_mut(&stream)
    }

    /// We have made a lane on this stream.
    pub(super) fn made(&mut self, lane: u32, stream: StreamId) {
        self.streams.insert(stream, Stream { reader: UnitReader::of(lane), held: None });
        self.by_number.insert(lane, stream);
    }

    /// The peer has opened this stream.
    pub(super) fn came(&mut self, stream: StreamId) {
        self.streams.insert(stream, Stream { reader: UnitReader::unnamed(), held: None });
    }

    /// A stream that came is of this lane; false if the number is still another's.
    ///
    /// # Errors
    /// [`Fault::Peer`]: a third stream wants it.
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

    /// A stream's lane has to wait.
    pub(super) fn hold(&mut self, stream: StreamId, held: Held) {
        if let Some(lane) = self.streams.get_mut(&stream) {
            lane.held = Some(held);
        }
    }

    /// Whether a stream's lane has to wait still.
    pub(super) fn waits(&self, stream: StreamId) -> bool {
        let held = self.streams.get(&stream).filter(|lane| lane.held.is_some());
        let lane = held.and_then(|lane| lane.reader.lane());
        lane.is_some_and(|lane| self.of(lane) != Some(stream))
    }

    /// A stream is no lane's any more: the stream that waited for its number, if one did.
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

    /// Lanes that have a stream.
    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }
}
