//! Lossy cells: cells in DATAGRAM frames (RFC 9221). Each cell arrives at most once, in any order,
//! and is never retransmitted.
//!
//! The connection's congestion control limits the rate of lossy cells, as RFC 8085 (section 3.1)
//! requires. Cells above this rate wait in a queue. CoDel (RFC 8289) drops cells from the queue,
//! so that the application that sends them slows down.

use std::time::Duration;

use anabranch_multipath::Time;
use bytes::{Bytes, BytesMut};
use quinn_proto::Connection;

use super::cells::fault;
use super::fair_queue::FairQueue;
use crate::Fault;

/// Maximum number of cells in a datagram. Two cells of 518 bytes fit at every MTU of at least
/// 1,280; three do not fit below 1,583.
pub const TOGETHER: usize = 2;
/// Maximum number of unsent bytes in the QUIC connection's own queue, where CoDel cannot drop
/// cells. It is 32 datagrams of two cells, as many as one segmented send (UDP segmentation
/// offload) takes.
pub(super) const SENDING: usize = 36 << 10;
/// Maximum number of unsent bytes in the QUIC connection's own queue if the connection is slow:
/// three datagrams of two cells.
const LEAST: usize = 4 << 10;
/// Maximum duration of the data in the QUIC connection's own queue, at the connection's present
/// rate. On slow connections the queue may contain [`LEAST`] bytes even if they take longer.
/// `quinn-proto` paces in bursts of the same duration.
const BURST: Duration = Duration::from_millis(2);
/// Maximum number of bytes of received datagrams that the connection buffers. Above this limit it
/// drops the oldest datagrams.
pub const RECEIVING: usize = 256 << 10;

/// Counters of lossy cells, which are sent in DATAGRAM frames and never retransmitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossyCounts {
    /// Number of cells passed to the QUIC connection for sending.
    pub sent: u64,
    /// Number of cells received.
    pub received: u64,
    /// Number of cells dropped from this link's queue before they were sent: they waited too long
    /// for the congestion window, or too many cells waited.
    pub dropped: u64,
    /// Number of received datagrams that were not read: the connection dropped them, or they wait
    /// for the next [`QuicLink::read_lossy`](super::QuicLink::read_lossy).
    pub unread: u64,
    /// Number of received datagrams that were dropped because the link did not yet accept cells of
    /// circuits. It accepts them once the peer's identity is verified.
    pub early: u64,
}

/// State of one link's lossy cells: the send queue and the counters.
#[derive(Debug)]
pub(super) struct Lossy {
    /// Length of a lossy cell in bytes; 0 if the link has no lossy cells (cells in DATAGRAM
    /// frames).
    length: usize,
    waiting: FairQueue,
    counts: LossyCounts,
    /// Number of received datagrams that were read from the QUIC connection.
    taken: u64,
}

impl Lossy {
    pub(super) fn new(length: usize) -> Lossy {
        let (waiting, counts) = Default::default();
        Lossy { length, waiting, counts, taken: 0 }
    }

    /// Returns true if the peer accepts datagrams that are long enough for one lossy cell.
    pub(super) fn is_granted(&self, connection: &mut Connection) -> bool {
        self.length > 0 && self.together(connection) > 0
    }

    /// Returns the number of lossy cells that fit into one datagram at the present MTU.
    fn together(&self, connection: &mut Connection) -> usize {
        let room = connection.datagrams().max_size().unwrap_or(0);
        (room / self.length.max(1)).min(TOGETHER)
    }

    pub(super) fn counts(&self, connection: &Connection) -> LossyCounts {
        let unread = connection.stats().frame_rx.datagram.saturating_sub(self.taken);
        let dropped = self.counts.dropped + self.waiting.dropped;
        LossyCounts { unread, dropped, ..self.counts }
    }

    /// Queues lossy cells for the peer, each of the length configured for the link. If no cell
    /// waits, full datagrams are passed to the connection at once, as far as it has room.
    ///
    /// # Errors
    /// [`Fault::Misuse`] if the last cell in `cells` is incomplete.
    pub(super) fn write(
        &mut self,
        now: Time,
        connection: &mut Connection,
        mut cells: &[u8],
    ) -> Result<(), Fault> {
        if cells.is_empty() || !cells.len().is_multiple_of(self.length) {
            return Err(Fault::Misuse("only whole cells can be sent in a link's QUIC datagrams"));
        }
        while self.waiting.is_empty()
            && let together @ 1.. = self.together(connection)
            && self.has_room(connection, together)
            && let Some((datagram, rest)) = cells.split_at_checked(together * self.length)
        {
            self.send(connection, Bytes::copy_from_slice(datagram));
            cells = rest;
        }
        for cell in cells.chunks(self.length) {
            self.waiting.push(now, Bytes::copy_from_slice(cell));
        }
        Ok(())
    }

    /// Passes queued lossy cells to the QUIC connection until its own queue is full.
    pub(super) fn flush(&mut self, now: Time, connection: &mut Connection) {
        while !self.waiting.is_empty() {
            let together = self.together(connection);
            if together == 0 {
                // The path's MTU has become too small for a cell.
                return self.waiting.clear();
            }
            if !self.has_room(connection, together) {
                return;
            }
            let bytes = together * self.length;
            let mut datagram = BytesMut::with_capacity(bytes);
            while datagram.len() < bytes
                && let Some(cell) = self.waiting.pop(now, together)
            {
                datagram.extend_from_slice(&cell);
            }
            self.send(connection, datagram.freeze());
        }
    }

    /// Returns true if the QUIC connection's own queue has room for a datagram of `together`
    /// cells.
    fn has_room(&self, connection: &mut Connection, together: usize) -> bool {
        let most = burst(connection.congestion_state().window(), connection.rtt());
        let space = connection.datagrams().send_buffer_space();
        space >= together * self.length + SENDING - most
    }

    /// Passes a datagram to the connection, which has room for it.
    fn send(&mut self, connection: &mut Connection, datagram: Bytes) {
        let count = (datagram.len() / self.length) as u64;
        match connection.datagrams().send(datagram, false) {
            Ok(()) => self.counts.sent += count,
            // There was room for the datagram, so an error means that the connection has ended.
            Err(_) => self.counts.dropped += count,
        }
    }

    /// Appends the received cells to `into` if `admits` is true, and returns their total length in
    /// bytes.
    ///
    /// # Errors
    /// [`Fault::Peer`] for a datagram that does not consist of one or two complete cells.
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
            let cells = datagram.len() / self.length.max(1);
            if !(1..=TOGETHER).contains(&cells) || cells * self.length != datagram.len() {
                return Err(fault(
                    "a received QUIC datagram does not hold exactly one or two cells",
                ));
            }
            self.counts.received += cells as u64;
            into.extend_from_slice(&datagram);
        }
        Ok(into.len() - before)
    }
}

/// Returns how many unsent bytes may wait in the QUIC connection's own queue. The connection sends
/// `window` bytes in each round-trip time `rtt`.
fn burst(window: u64, rtt: Duration) -> usize {
    let bytes = u128::from(window) * BURST.as_nanos() / rtt.as_nanos().max(1);
    usize::try_from(bytes).unwrap_or(SENDING).clamp(LEAST, SENDING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connections_own_queue_is_short_at_low_rates_and_a_segmented_send_at_high_rates() {
        let at = |megabits: u64| {
            let rtt = Duration::from_millis(20);
            burst(megabits * 1_000_000 / 8 / 50, rtt)
        };
        assert_eq!([1, 16].map(at), [LEAST; 2]);
        assert_eq!(at(100), 25_000);
        assert_eq!([150, 10_000].map(at), [SENDING; 2]);
        assert_eq!(burst(u64::MAX, Duration::ZERO), SENDING);
    }
}
