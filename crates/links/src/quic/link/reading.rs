//! Reading of a QUIC link's streams, one lane (circuit) after another.

use quinn_proto::{Connection, ReadError, StreamId};

use super::super::lanes::{Lanes, WaitingUnit};
use super::super::units::Units;
use super::{ENDED, QuicLink};
use crate::{Fault, State};

impl QuicLink {
    pub(super) fn read_own(&mut self, stream: StreamId, into: &mut Vec<u8>) -> Result<(), Fault> {
        let QuicLink { connection, own_reader, units, .. } = self;
        let ended = read_all(connection, stream, |mut received| {
            while own_reader.next(units, &mut received, into)?.is_some() {}
            Ok(true)
        })?;
        if ended {
            self.state = State::Ended;
        }
        Ok(())
    }

    /// Reads the lane that `stream` carries. If the lane has ended and another stream waited for
    /// its number, returns that stream, which the caller can read next. Otherwise returns `None`.
    pub(super) fn read_lane(
        &mut self,
        stream: StreamId,
        into: &mut Vec<u8>,
    ) -> Result<Option<StreamId>, Fault> {
        let QuicLink { connection, lanes, units, .. } = self;
        if lanes.waits(stream) {
            return Ok(None);
        }
        let mut fed = FeedOutcome::All;
        if let Some(held) = lanes.get_mut(stream).and_then(|lane| lane.held.take()) {
            into.extend_from_slice(&held.unit);
            fed = feed(lanes, units, stream, &held.rest, into)?;
        }
        let ended = fed == FeedOutcome::All
            && read_all(connection, stream, |received| {
                fed = feed(lanes, units, stream, received, into)?;
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

    /// Handles a stream that ended without the last unit (cell) of its lane: appends such a unit
    /// to `into`. Returns the stream that waited for the lane's number, if any.
    fn broke_off(
        &mut self,
        stream: StreamId,
        into: &mut Vec<u8>,
    ) -> Result<Option<StreamId>, Fault> {
        let lane = self.lanes.get_mut(stream);
        let number = lane.and_then(|lane| lane.reader.lane());
        if let Some(number) = number.filter(|number| self.lanes.of(*number) == Some(stream)) {
            into.extend((self.units.end)(number));
        }
        self.finish(stream);
        Ok(self.leave_for(stream))
    }

    /// Stops reading a stream whose lane has ended. Returns the stream that waited for the lane's
    /// number, if any.
    pub(super) fn leave_for(&mut self, stream: StreamId) -> Option<StreamId> {
        // This call fails if the stream was read to its end, because it is then closed already.
        let _ = self.connection.recv_stream(stream).stop(ENDED);
        self.lanes.gone(stream)
    }
}

/// Result of passing received bytes to a lane (the order domain of one circuit).
#[derive(Clone, Copy, PartialEq, Eq)]
enum FeedOutcome {
    /// The lane has consumed all bytes.
    All,
    /// The bytes must wait, because the previous lane with the same number has not ended.
    Held,
    /// The bytes contain the last unit (cell) of the lane.
    Over,
}

/// Passes `received`, bytes received on a stream, to the stream's lane.
///
/// # Errors
/// [`Fault::Peer`]: the bytes break the rules of lanes.
fn feed(
    lanes: &mut Lanes,
    units: &Units,
    stream: StreamId,
    mut received: &[u8],
    into: &mut Vec<u8>,
) -> Result<FeedOutcome, Fault> {
    loop {
        let Some(lane) = lanes.get_mut(stream) else { return Ok(FeedOutcome::Held) };
        lane.reader.next_run(units, &mut received, into);
        let is_named = lane.reader.lane().is_some();
        let start = into.len();
        let Some(head) = lane.reader.next(units, &mut received, into)? else {
            return Ok(FeedOutcome::All);
        };
        if !is_named && !lanes.name(head.lane, stream)? {
            let held = WaitingUnit { unit: into.split_off(start), rest: received.to_vec() };
            lanes.hold(stream, held);
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
