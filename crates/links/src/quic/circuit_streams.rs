//! Assignment of QUIC streams to circuits. Each circuit has a stream of its own.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use quinn_proto::StreamId;

use super::cells::{CellReader, fault};
use crate::Fault;

/// A QUIC stream that carries a circuit, or waits until the previous circuit with the same number
/// has ended.
#[derive(Debug)]
pub(super) struct CircuitStream {
    pub(super) reader: CellReader,
    /// Bytes that wait until the previous circuit with the same number has ended. `None` if the
    /// circuit need not wait.
    pub(super) held: Option<WaitingCell>,
}

/// The bytes of a waiting stream: the first cell of its circuit, and the bytes after it.
#[derive(Debug)]
pub(super) struct WaitingCell {
    pub(super) cell: Vec<u8>,
    pub(super) rest: Vec<u8>,
}

/// The QUIC streams of one link, except the stream of circuit 0. Each stream carries the cells of
/// one circuit.
#[derive(Debug, Default)]
pub(super) struct CircuitStreams {
    streams: BTreeMap<StreamId, CircuitStream>,
    by_circuit: BTreeMap<u32, StreamId>,
    /// Streams that wait until an earlier stream with the same circuit ID is closed. The key is
    /// the circuit ID.
    successors: BTreeMap<u32, StreamId>,
}

impl CircuitStreams {
    /// Returns the QUIC stream of `circuit`; `None` if the circuit has none.
    pub(super) fn of(&self, circuit: u32) -> Option<StreamId> {
        self.by_circuit.get(&circuit).copied()
    }

    pub(super) fn get_mut(&mut self, stream: StreamId) -> Option<&mut CircuitStream> {
        self.streams.get_mut(&stream)
    }

    /// Adds `stream`, which carries a circuit that we have opened.
    pub(super) fn add_ours(&mut self, circuit: u32, stream: StreamId) {
        self.streams.insert(stream, CircuitStream { reader: CellReader::of(circuit), held: None });
        self.by_circuit.insert(circuit, stream);
    }

    /// Adds a stream that the peer has opened.
    pub(super) fn add_opened(&mut self, stream: StreamId) {
        self.streams.insert(stream, CircuitStream { reader: CellReader::unnamed(), held: None });
    }

    /// Assigns the inbound stream `stream` to `circuit`. Returns false if `stream` must wait,
    /// because another stream still has this circuit.
    ///
    /// # Errors
    /// [`Fault::Peer`]: another stream has this circuit, and a second one already waits for it.
    pub(super) fn assign(&mut self, circuit: u32, stream: StreamId) -> Result<bool, Fault> {
        if let Entry::Vacant(free) = self.by_circuit.entry(circuit) {
            free.insert(stream);
            return Ok(true);
        }
        match self.successors.insert(circuit, stream) {
            None => Ok(false),
            Some(_) => Err(fault("a circuit opened three times")),
        }
    }

    /// Stores the bytes of a stream that must wait for its circuit.
    pub(super) fn hold(&mut self, stream: StreamId, held: WaitingCell) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.held = Some(held);
        }
    }

    /// Returns whether a stream must wait, because an earlier circuit with the same ID still has a
    /// stream.
    pub(super) fn waits(&self, stream: StreamId) -> bool {
        let waiting = self.streams.get(&stream).filter(|stream| stream.held.is_some());
        let circuit = waiting.and_then(|stream| stream.reader.circuit());
        circuit.is_some_and(|circuit| self.of(circuit) != Some(stream))
    }

    /// Removes a stream from its circuit. Returns the stream that waited for this circuit, if any.
    pub(super) fn remove(&mut self, stream: StreamId) -> Option<StreamId> {
        let circuit = self.streams.remove(&stream)?.reader.circuit()?;
        if self.successors.get(&circuit) == Some(&stream) {
            self.successors.remove(&circuit);
            return None;
        }
        if self.by_circuit.get(&circuit) != Some(&stream) {
            return None;
        }
        self.by_circuit.remove(&circuit);
        let successor = self.successors.remove(&circuit)?;
        self.by_circuit.insert(circuit, successor);
        Some(successor)
    }

    /// Returns the number of circuits that have an assigned stream.
    pub(super) fn len(&self) -> usize {
        self.by_circuit.len()
    }
}
