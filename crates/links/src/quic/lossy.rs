//! Lossy units: cells in DATAGRAM frames (RFC 9221). Each unit arrives at most once, in any order,
//! and is never retransmitted.
//!
//! The connection's congestion control limits the rate of units (RFC 8085, section 3.1, requires a
//! limit). Further units wait in a queue. CoDel (RFC 8289) drops units from this queue so that
//! their sender slows down.

use anabranch_multipath::Time;
use bytes::{Bytes, BytesMut};
use quinn_proto::Connection;

use super::fair_queue::FairQueue;
use super::units::fault;
use crate::Fault;

/// Maximum number of units (cells) in a datagram. Two cells of 518 bytes fit at every MTU of at
/// least 1,280; three do not fit below 1,583.
const TOGETHER: usize = 2;
/// Maximum number of unsent bytes in the connection's own queue, which CoDel does not control:
/// three datagrams of two cells.
pub(super) const SENDING: usize = 4 << 10;
/// Maximum number of bytes of received datagrams that the connection buffers. Above this limit it
/// drops the oldest datagrams.
pub(super) const RECEIVING: usize = 256 << 10;

/// Counters of lossy units (cells that may be lost).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossyCounts {
    /// Number of units (cells) passed to the connection.
    pub sent: u64,
    /// Number of units (cells) received.
    pub received: u64,
    /// Number of units dropped because they waited too long for the congestion window, or because
    /// too many units waited.
    pub dropped: u64,
    /// Number of received datagrams that were not read: the connection dropped them, or they wait
    /// for the next [`QuicLink::read_lossy`](super::QuicLink::read_lossy).
    pub unread: u64,
    /// Number of datagrams dropped because they arrived before lanes were admitted, that is,
    /// before the peer's identity was known.
    pub early: u64,
}

/// The lossy units (cells that may be lost) of one link.
#[derive(Debug)]
pub(super) struct Lossy {
    /// Length of a unit (a cell that may be lost) in bytes; 0 if the link has no lossy units.
    length: usize,
    waiting: FairQueue,
    counts: LossyCounts,
    /// Number of datagrams that were read.
    taken: u64,
}

impl Lossy {
    pub(super) fn new(length: usize) -> Lossy {
        let (waiting, counts) = Default::default();
        Lossy { length, waiting, counts, taken: 0 }
    }

    /// Returns true if the peer accepts datagrams that are long enough for one lossy unit (cell).
    pub(super) fn is_granted(&self, connection: &mut Connection) -> bool {
        self.length > 0 && self.together(connection) > 0
    }

    /// Returns the number of units (cells) that fit into a datagram at present.
    fn together(&self, connection: &mut Connection) -> usize {
        let room = connection.datagrams().max_size().unwrap_or(0);
        (room / self.length.max(1)).min(TOGETHER)
    }

    pub(super) fn counts(&self, connection: &Connection) -> LossyCounts {
        let unread = connection.stats().frame_rx.datagram.saturating_sub(self.taken);
        let dropped = self.counts.dropped + self.waiting.dropped;
        LossyCounts { unread, dropped, ..self.counts }
    }

    /// Queues lossy units (cells) for the peer, each of the length configured for the link.
    ///
    /// # Errors
    /// [`Fault::Misuse`] if the last unit in `units` is incomplete.
    pub(super) fn write(&mut self, now: Time, units: &[u8]) -> Result<(), Fault> {
        if units.is_empty() || !units.len().is_multiple_of(self.length) {
            return Err(Fault::Misuse("only whole cells can be sent in a link's QUIC datagrams"));
        }
        for unit in units.chunks(self.length) {
            self.waiting.push(now, Bytes::copy_from_slice(unit));
        }
        Ok(())
    }

    /// Passes as many queued units (cells) to the connection as it has room for.
    pub(super) fn flush(&mut self, now: Time, connection: &mut Connection) {
        while !self.waiting.is_empty() {
            let together = self.together(connection);
            if together == 0 {
                // The path's MTU has become too small for a unit.
                return self.waiting.clear();
            }
            let bytes = together * self.length;
            if connection.datagrams().send_buffer_space() < bytes {
                return;
            }
            let mut datagram = BytesMut::with_capacity(bytes);
            while datagram.len() < bytes
                && let Some(unit) = self.waiting.pop(now, together)
            {
                datagram.extend_from_slice(&unit);
            }
            let count = datagram.len() / self.length;
            match connection.datagrams().send(datagram.freeze(), false) {
                Ok(()) => self.counts.sent += count as u64,
                // There was room for the datagram, so an error means that the connection has
                // ended.
                Err(_) => self.counts.dropped += count as u64,
            }
        }
    }

    /// Appends the received units (cells) to `into` if `admits` is true, and returns their total
    /// length in bytes.
    ///
    /// # Errors
    /// [`Fault::Peer`] for a datagram that does not consist of one or two complete units.
    pub(super) fn read(
        &mut self,
        connection: &mut Connection,
        admits: bool,
        into: &mut Vec<u8>,
    ) -> Result<usize, Fault> {
        let before = into.len();
        while let Some(datagram) = connection.datagrams().recv() {
            self.taken += 1;
            if !admits {
                self.counts.early += 1;
                continue;
            }
            let units = datagram.len() / self.length.max(1);
            if !(1..=TOGETHER).contains(&units) || units * self.length != datagram.len() {
                return Err(fault(
                    "a received QUIC datagram does not hold exactly one or two cells",
                ));
            }
            self.counts.received += units as u64;
            into.extend_from_slice(&datagram);
        }
        Ok(into.len() - before)
    }
}
