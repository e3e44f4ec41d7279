//! Reading of a QUIC link's streams. Each stream carries the cells of one circuit.

use quinn_proto::{Connection, ReadError, StreamId};

use super::super::cells::CellFormat;
use super::super::circuit_streams::{CircuitStreams, WaitingCell};
use super::{ENDED, QuicLink};
use crate::{Fault, State};

impl QuicLink {
    pub(super) fn read_own(&mut self, stream: StreamId, into: &mut Vec<u8>) -> Result<(), Fault> {
        let QuicLink { connection, own_reader, format, .. } = self;
        let ended = read_all(connection, stream, |mut received| {
            while own_reader.next(format, &mut received, into)?.is_some() {}
            Ok(true)
        })?;
        if ended {
            self.state = State::Ended;
        }
        Ok(())
    }

    /// Reads the circuit that `stream` carries. If the circuit has ended and another stream waited
    /// for the circuit's ID, returns that stream, which the caller can read next. Otherwise
    /// returns `None`.
    pub(super) fn read_circuit(
        &mut self,
        stream: StreamId,
        into: &mut Vec<u8>,
    ) -> Result<Option<StreamId>, Fault> {
        let QuicLink { connection, streams, format, .. } = self;
        if streams.waits(stream) {
            return Ok(None);
        }
        let mut fed = FeedOutcome::All;
        if let Some(held) = streams.get_mut(stream).and_then(|stream| stream.held.take()) {
            into.extend_from_slice(&held.cell);
            fed = feed(streams, format, stream, &held.rest, into)?;
        }
        let ended = fed == FeedOutcome::All
            && read_all(connection, stream, |received| {
                fed = feed(streams, format, stream, received, into)?;
                Ok(fed == FeedOutcome::All)
            })?;
        match (fed, ended) {
            (FeedOutcome::Over, _) => {
                self.finish(stream);
                Ok(self.leave_for(stream))
            }
            (FeedOutcome::All, true) => self.broke_off(stream, into),
            _ => {
                self.grant();
                Ok(None)
            }
        }
    }

    /// Handles a stream that ended although its circuit was not ended by a cell: appends such a
    /// cell to `into`. Returns the stream that waited for the circuit's ID, if any.
    fn broke_off(
        &mut self,
        stream: StreamId,
        into: &mut Vec<u8>,
    ) -> Result<Option<StreamId>, Fault> {
        let number = self.streams.get_mut(stream).and_then(|stream| stream.reader.circuit());
        if let Some(number) = number.filter(|number| self.streams.of(*number) == Some(stream)) {
            into.extend((self.format.end)(number));
        }
        self.finish(stream);
        Ok(self.leave_for(stream))
    }

    /// Stops reading a stream whose circuit has ended. Returns the stream that waited for the
    /// circuit's ID, if any.
    pub(super) fn leave_for(&mut self, stream: StreamId) -> Option<StreamId> {
        // This call fails if the stream was read to its end, because it is then closed already.
        let _ = self.connection.recv_stream(stream).stop(ENDED);
        self.streams.remove(stream)
    }
}

/// Outcome of passing the bytes received on a stream to the circuit of this stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FeedOutcome {
    /// The circuit has consumed all bytes.
    All,
    /// The bytes must wait, because the previous circuit with the same ID has not ended.
    Held,
    /// The bytes contain the last cell of the circuit.
    Over,
}

/// Passes `received`, bytes received on a stream, to the stream's circuit.
///
/// # Errors
/// [`Fault::Peer`]: the bytes break the rules of circuits.
fn feed(
    streams: &mut CircuitStreams,
    format: &CellFormat,
    stream: StreamId,
    mut received: &[u8],
    into: &mut Vec<u8>,
) -> Result<FeedOutcome, Fault> {
    loop {
        let Some(circuit_stream) = streams.get_mut(stream) else { return Ok(FeedOutcome::Held) };
        circuit_stream.reader.next_run(format, &mut received, into);
        let is_named = circuit_stream.reader.circuit().is_some();
        let start = into.len();
        let Some(head) = circuit_stream.reader.next(format, &mut received, into)? else {
            return Ok(FeedOutcome::All);
        };
        if !is_named && !streams.assign(head.circuit, stream)? {
            let held = WaitingCell { cell: into.split_off(start), rest: received.to_vec() };
            streams.hold(stream, held);
            return Ok(FeedOutcome::Held);
        }
        if head.ends {
            return Ok(FeedOutcome::Over);
        }
    }
}

/// Passes the received bytes of a stream to `take`, in order, until `take` returns false or no
/// bytes are left. Returns true if the stream has ended.
///
/// # Errors
/// The error of `take`.
fn read_all(
    connection: &mut Connection,
    stream: StreamId,
    mut take: impl FnMut(&[u8]) -> Result<bool, Fault>,
) -> Result<bool, Fault> {
    // This call fails if the stream was stopped, or read to its end.
    let mut receiving = connection.recv_stream(stream);
    let Ok(mut chunks) = receiving.read(true) else { return Ok(false) };
    let outcome = loop {
        match chunks.next(usize::MAX) {
            Ok(Some(chunk)) => match take(&chunk.bytes) {
                Ok(true) => {}
                Ok(false) => break Ok(false),
                Err(fault) => break Err(fault),
            },
            Ok(None) | Err(ReadError::Reset(_)) => break Ok(true),
            Err(ReadError::Blocked) => break Ok(false),
        }
    };
    // The connection sends flow control credit with its next packet.
    let _ = chunks.finalize();
    outcome
}
