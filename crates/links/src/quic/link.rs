//! One QUIC connection used as a link.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::SocketAddr;

use anabranch_multipath::{LinkView, Time};
use bytes::Bytes;
use quinn_proto::{
    Connection, ConnectionError, Dir, Event, FinishError, StreamEvent, StreamId, VarInt, WriteError,
};
use rustls::pki_types::CertificateDer;

use super::cells::{CellFormat, CellReader, Head, fault};
use super::circuit_streams::CircuitStreams;
use super::lossy::{Lossy, LossyCounts};
use crate::{Fault, Link, Promises, State};

mod reading;

/// Initial maximum number of circuits that the peer may open. The maximum doubles when more than
/// half of it is in use.
pub(super) const STREAMS: u32 = 256;
/// Largest value of the maximum number of circuits that the peer may open. The maximum begins at
/// [`STREAMS`] and doubles.
const MOST_STREAMS: u32 = 1 << 16;
/// Bytes of stream data that the connection buffers beyond its congestion window. With them it can
/// send at once when the next acknowledgements arrive.
const SLACK: u64 = 32 << 10;
/// Size in bytes of the buffer for cells that the connection has not accepted yet
/// ([`QuicLink::room`]).
const MOST_PENDING: usize = 16 << 10;
/// Maximum number of our circuits that wait until the peer allows more streams.
const MOST_UNOPENED: usize = 1_024;
/// Error code for stopping or resetting a stream whose circuit has ended.
pub(super) const ENDED: VarInt = VarInt::from_u32(0);

/// A QUIC link to one neighbouring relay or client.
pub struct QuicLink {
    pub(super) connection: Connection,
    format: CellFormat,
    own: CertificateDer<'static>,
    peers: Option<CertificateDer<'static>>,
    dialled: bool,
    state: State,
    /// True if the owner has closed the link.
    closed: bool,
    fault: Option<Fault>,
    /// The stream of circuit 0, which belongs to the link itself; `None` before it is opened.
    own_stream: Option<StreamId>,
    /// The reader of the cells of circuit 0.
    own_reader: CellReader,
    /// True if we have written to circuit 0.
    has_written: bool,
    /// True if the link reads the streams of circuits, in addition to its own stream (of circuit
    /// 0). The data of a circuit stays in order, and does not wait for other circuits.
    admits: bool,
    streams: CircuitStreams,
    most_streams: u32,
    readable: BTreeSet<StreamId>,
    /// For each stream, bytes that the connection has not accepted yet, and whether to finish the
    /// stream after them.
    pending: BTreeMap<StreamId, Pending>,
    pending_bytes: usize,
    /// Circuits that wait for a stream, at most [`MOST_UNOPENED`]: the number and first cell of
    /// each.
    unopened: VecDeque<(u32, Bytes)>,
    /// Cells that notify the owner that its new circuits were ended at once, because
    /// [`MOST_UNOPENED`] other circuits already waited for a stream.
    refused: Vec<u8>,
    /// Cells that the current call of [`Link::write`] has collected, joined for each circuit. The
    /// list is empty between calls.
    gathered: Vec<(u32, Vec<u8>)>,
    lossy: Lossy,
}

#[derive(Debug, Default)]
struct Pending {
    chunks: VecDeque<Bytes>,
    finish: bool,
}

impl QuicLink {
    pub(super) fn new(
        connection: Connection,
        format: CellFormat,
        own: CertificateDer<'static>,
        dialled: bool,
    ) -> QuicLink {
        QuicLink {
            connection,
            format,
            own,
            peers: None,
            dialled,
            state: State::Handshaking,
            closed: false,
            fault: None,
            own_stream: None,
            own_reader: CellReader::own(),
            has_written: false,
            admits: false,
            streams: CircuitStreams::default(),
            most_streams: STREAMS,
            readable: BTreeSet::new(),
            pending: BTreeMap::new(),
            pending_bytes: 0,
            unopened: VecDeque::new(),
            refused: Vec::new(),
            gathered: Vec::new(),
            lossy: Lossy::new(format.lossy),
        }
    }

    /// Returns the fault with which the link ended. Returns `None` after an orderly close, and
    /// while the link is in use.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Returns whether we opened the link.
    #[must_use]
    pub fn is_dialled(&self) -> bool {
        self.dialled
    }

    /// Returns the peer's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.connection.remote_address()
    }

    /// Starts to read the streams of circuits, in addition to that of circuit 0, which belongs to
    /// the link itself. The owner calls this once it has verified the peer's identity. Until then
    /// the data of these streams stays unread.
    pub fn admit_circuits(&mut self) {
        self.admits = true;
    }

    /// Returns the state of the connection: congestion window, segment size and round-trip time.
    #[must_use]
    pub fn view(&self) -> LinkView {
        let path = self.connection.stats().path;
        let mss = u32::from(path.current_mtu).max(1);
        let window = u32::try_from(path.cwnd).unwrap_or(u32::MAX);
        LinkView { snd_cwnd: window / mss, mss, rtt: path.rtt, ..LinkView::default() }
    }

    /// Returns the number of datagrams declared lost so far.
    #[must_use]
    pub fn lost_datagrams(&self) -> u64 {
        self.connection.stats().path.lost_packets
    }

    /// Returns the number of circuits that are open.
    #[must_use]
    pub fn circuits(&self) -> usize {
        self.streams.len()
    }

    /// Returns the number of free bytes in the buffer for cells that the connection has not
    /// accepted yet; 0 if the link is not open. The connection accepts little more than its
    /// congestion window. Other cells stay with the caller, which can still reorder them.
    #[must_use]
    pub fn room(&self) -> usize {
        match self.state {
            State::Open => MOST_PENDING.saturating_sub(self.pending_bytes),
            _ => 0,
        }
    }

    /// Returns true if lossy cells (cells in DATAGRAM frames) may be written: the link is open,
    /// and the peer accepts them.
    #[must_use]
    pub fn takes_lossy(&mut self) -> bool {
        self.state == State::Open && !self.closed && self.lossy.is_granted(&mut self.connection)
    }

    /// Queues complete lossy cells (cells in DATAGRAM frames), and sends as many as congestion
    /// control permits. Circuits take turns. Cells are dropped and counted if they wait too long,
    /// or if more than 256 are queued.
    ///
    /// # Errors
    /// [`Fault::Misuse`] if [`QuicLink::takes_lossy`] is false, or if the last cell in `cells` is
    /// incomplete.
    pub fn write_lossy(&mut self, now: Time, cells: &[u8]) -> Result<(), Fault> {
        if !self.takes_lossy() {
            return Err(Fault::Misuse(
                "cells cannot be sent in datagrams: the link is not open, or the next relay does \
                 not accept datagrams",
            ));
        }
        self.lossy.write(now, &mut self.connection, cells)
    }

    /// Appends the received lossy cells (cells in DATAGRAM frames) to `into`, and returns their
    /// total length in bytes. Drops cells that arrived before [`QuicLink::admit_circuits`] was
    /// called.
    ///
    /// # Errors
    /// [`Fault::Peer`] for a datagram that does not consist of one or two complete cells. The
    /// caller must then close the link.
    pub fn read_lossy(&mut self, into: &mut Vec<u8>) -> Result<usize, Fault> {
        self.lossy.read(&mut self.connection, self.admits, into)
    }

    /// Returns the numbers of lossy cells (cells in DATAGRAM frames) that were sent, received and
    /// dropped.
    #[must_use]
    pub fn lossy_counts(&self) -> LossyCounts {
        self.lossy.counts(&self.connection)
    }

    /// Returns whether the connection must be closed because the owner has closed the link.
    pub(super) fn is_to_close(&self) -> bool {
        self.closed && !self.connection.is_closed()
    }

    /// Collects a cell with other cells of its circuit, which [`QuicLink::write_gathered`] writes
    /// as one piece. `most` is the number of bytes of all circuits that the caller still has to
    /// write after this cell.
    ///
    /// A piece should have several cells, because the connection searches all unacknowledged pieces
    /// of a stream for each packet that it sends.
    fn gather(&mut self, circuit: u32, cell: &[u8], most: usize) {
        let at = self.gathered.iter().rposition(|(other, _)| *other == circuit);
        let at = at.unwrap_or_else(|| {
            // Reserve a share only, because other circuits are likely to use the rest.
            let length = cell.len() + most / (self.gathered.len() + 1);
            self.gathered.push((circuit, Vec::with_capacity(length)));
            self.gathered.len() - 1
        });
        self.gathered[at].1.extend_from_slice(cell);
    }

    /// Writes the gathered cells, one piece for each circuit.
    fn write_gathered(&mut self) {
        let mut gathered = std::mem::take(&mut self.gathered);
        for (circuit, mut cells) in gathered.drain(..) {
            cells.shrink_to_fit();
            let head = Head { circuit, length: cells.len(), creates: false, ends: false };
            self.write_cells(head, cells.into());
        }
        self.gathered = gathered;
    }

    /// Writes `cell`, which contains one or several cells of the circuit in `head`. If there are
    /// several cells, none of them opens or ends the circuit. If the circuit has no stream, `cell`
    /// must open the circuit; otherwise it is dropped. A dropped cell that ends the circuit also
    /// removes the circuit from the queue for streams.
    fn write_cells(&mut self, head: Head, cell: Bytes) {
        if head.circuit == 0 {
            return self.own_stream.into_iter().for_each(|own| self.send(own, cell.clone()));
        }
        match self.streams.of(head.circuit) {
            Some(stream) => {
                self.send(stream, cell);
                if head.ends {
                    self.finish(stream);
                    self.leave(stream);
                }
            }
            None if head.creates => self.make(head.circuit, cell),
            None => self.unopened.retain(|(circuit, _)| *circuit != head.circuit || !head.ends),
        }
    }

    /// Opens a circuit with its first cell. If the peer allows no further stream yet, queues the
    /// cell. If [`MOST_UNOPENED`] cells are queued already, ends the circuit at once.
    fn make(&mut self, circuit: u32, cell: Bytes) {
        if let Some(stream) = self.connection.streams().open(Dir::Bi) {
            self.streams.add_ours(circuit, stream);
            self.send(stream, cell);
        } else if self.unopened.len() < MOST_UNOPENED {
            self.unopened.push_back((circuit, cell));
        } else {
            self.refused.extend((self.format.end)(circuit));
        }
    }

    /// Writes bytes to a stream, after the bytes that are already queued for it.
    fn send(&mut self, stream: StreamId, cell: Bytes) {
        if self.pending.contains_key(&stream) {
            self.pending_bytes += cell.len();
            let pending = self.pending.entry(stream).or_default();
            return pending.chunks.push_back(cell);
        }
        let mut chunks = [cell];
        match self.connection.send_stream(stream).write_chunks(&mut chunks) {
            // The peer no longer reads the stream, which is being closed.
            Err(WriteError::Stopped(_) | WriteError::ClosedStream) => {}
            Err(WriteError::Blocked) | Ok(_) => {
                let [rest] = chunks;
                if !rest.is_empty() {
                    self.pending_bytes += rest.len();
                    self.pending.entry(stream).or_default().chunks.push_back(rest);
                }
            }
        }
    }

    /// Finishes a stream after its queued bytes: nothing else follows on it.
    fn finish(&mut self, stream: StreamId) {
        match self.pending.get_mut(&stream) {
            Some(pending) => pending.finish = true,
            None => {
                let mut sending = self.connection.send_stream(stream);
                if let Err(FinishError::Stopped(_)) = sending.finish() {
                    // If the peer stopped the stream before we finished it, the library does not
                    // free the sending part.
                    let _ = sending.reset(ENDED);
                }
            }
        }
    }

    /// Stops reading a stream whose circuit has ended. If another stream waits for the circuit's
    /// number, marks that stream as readable.
    fn leave(&mut self, stream: StreamId) {
        self.readable.remove(&stream);
        let next = self.leave_for(stream);
        self.readable.extend(next);
    }

    /// Passes queued data to the connection, as far as the connection accepts it, and opens waiting
    /// circuits if the peer allows more streams.
    pub(super) fn flush(&mut self, now: Time) {
        self.lossy.flush(now, &mut self.connection);
        self.connection.set_send_window(self.connection.congestion_state().window() + SLACK);
        for (stream, mut waiting) in std::mem::take(&mut self.pending) {
            for chunk in &waiting.chunks {
                self.pending_bytes -= chunk.len();
            }
            let finish = waiting.finish;
            waiting.chunks.drain(..).for_each(|chunk| self.send(stream, chunk));
            if finish {
                self.finish(stream);
            }
        }
        while !self.unopened.is_empty() {
            let Some(stream) = self.connection.streams().open(Dir::Bi) else { return };
            if let Some((circuit, cell)) = self.unopened.pop_front() {
                self.streams.add_ours(circuit, stream);
                self.send(stream, cell);
            }
        }
    }

    /// Handles the events that the QUIC connection reports.
    pub(super) fn work(&mut self) {
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Connected => self.connected(),
                Event::ConnectionLost { reason } => self.broke(&reason),
                Event::Stream(StreamEvent::Opened { .. }) => self.accept(),
                Event::Stream(StreamEvent::Readable { id }) => drop(self.readable.insert(id)),
                Event::Stream(StreamEvent::Stopped { id, .. }) => self.stopped(id),
                _ => {}
            }
        }
    }

    /// Drops queued data of a stream that the peer no longer reads.
    fn stopped(&mut self, stream: StreamId) {
        if let Some(dropped) = self.pending.remove(&stream) {
            let bytes = dropped.chunks.iter().map(Bytes::len).sum::<usize>();
            self.pending_bytes -= bytes;
        }
        // Otherwise the sending part would count against the peer's stream limit forever.
        let _ = self.connection.send_stream(stream).reset(ENDED);
    }

    fn connected(&mut self) {
        self.state = State::Open;
        if self.dialled {
            self.own_stream = self.connection.streams().open(Dir::Bi);
            let shown = self.connection.crypto_session().peer_identity();
            let shown = shown.and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
            self.peers = shown.and_then(|chain| chain.into_iter().next());
            if self.own_stream.is_none() {
                self.end(fault("the neighbour allows no QUIC stream"));
            }
        }
    }

    fn broke(&mut self, reason: &ConnectionError) {
        match reason {
            ConnectionError::ApplicationClosed(_) | ConnectionError::LocallyClosed => {}
            other => self.fault = Some(fault(&other.to_string())),
        }
        self.state = State::Ended;
    }

    fn end(&mut self, fault: Fault) {
        (self.state, self.fault) = (State::Ended, Some(fault));
    }

    fn accept(&mut self) {
        while let Some(stream) = self.connection.streams().accept(Dir::Bi) {
            if !self.dialled && self.own_stream.is_none() {
                self.own_stream = Some(stream);
            } else {
                self.streams.add_opened(stream);
            }
            self.readable.insert(stream);
        }
    }

    /// Doubles the maximum number of circuits that the peer may open if more than half of it is in
    /// use. Called only after [`QuicLink::admit_circuits`].
    fn grant(&mut self) {
        if self.streams.len() > self.most_streams as usize / 2 && self.most_streams < MOST_STREAMS {
            self.most_streams *= 2;
            self.connection.set_max_concurrent_streams(Dir::Bi, self.most_streams.into());
        }
    }
}

/// A link that transfers whole cells. They arrive in order within each circuit only.
impl Link for QuicLink {
    fn promises(&self) -> Promises {
        let record = usize::from(self.connection.stats().path.current_mtu);
        Promises { in_order: true, stream_per_circuit: true, record }
    }

    fn state(&self) -> State {
        self.state
    }

    /// Appends the cells that have arrived to `into`, in order within each circuit. Returns their
    /// total length in bytes.
    ///
    /// # Errors
    /// [`Fault::Peer`]: the peer broke the protocol, and the caller must close the link.
    fn read(&mut self, into: &mut Vec<u8>) -> Result<usize, Fault> {
        let before = into.len();
        into.append(&mut self.refused);
        let mut readable = std::mem::take(&mut self.readable);
        if let Some(own) = self.own_stream.filter(|own| readable.remove(own)) {
            self.read_own(own, into)?;
        }
        if !self.admits {
            self.readable = readable;
            return Ok(into.len() - before);
        }
        while let Some(stream) = readable.pop_first() {
            readable.extend(self.read_circuit(stream, into)?);
        }
        Ok(into.len() - before)
    }

    /// Accepts complete cells for the peer. Drops cells of a circuit that was never opened or that
    /// has ended.
    ///
    /// # Errors
    /// [`Fault::Misuse`] if the link is not open, or if the last cell is incomplete.
    fn write(&mut self, plain: &[u8]) -> Result<(), Fault> {
        if self.state != State::Open || self.closed {
            return Err(Fault::Misuse("data can be sent only on an open link"));
        }
        let mut rest = plain;
        while !rest.is_empty() {
            let head = (self.format.head)(rest, !self.has_written);
            let Some(head) = head.filter(|head| head.length <= rest.len()) else {
                self.write_gathered();
                return Err(Fault::Misuse(
                    "only whole cells (messages of the Tor protocol) can be sent on a link",
                ));
            };
            self.has_written = true;
            let (cell, rest_of_input) = rest.split_at(head.length);
            rest = rest_of_input;
            if head.circuit != 0 && !head.creates && !head.ends {
                self.gather(head.circuit, cell, rest.len());
            } else {
                self.write_gathered();
                self.write_cells(head, Bytes::copy_from_slice(cell));
            }
        }
        self.write_gathered();
        Ok(())
    }

    fn peer_certificate(&self) -> Option<&[u8]> {
        self.peers.as_deref()
    }

    fn own_certificate(&self) -> &[u8] {
        &self.own
    }

    fn export(&self, label: &[u8], context: &[u8]) -> Result<[u8; 32], Fault> {
        let mut secret = [0; 32];
        let session = self.connection.crypto_session();
        let exported = session.export_keying_material(&mut secret, label, context);
        let early = Fault::Misuse("a link's keys cannot be exported before its handshake is done");
        exported.map(|()| secret).map_err(|_| early)
    }

    /// Shrinks the buffer `refused`, and returns the number of bytes released. The connection's
    /// buffers shrink by themselves.
    fn shrink_buffers(&mut self) -> usize {
        let before = self.refused.capacity();
        self.refused.shrink_to_fit();
        before - self.refused.capacity()
    }

    /// Marks the link as closed. [`Endpoint::transmit`](super::Endpoint::transmit) then sends the
    /// closing packet without waiting for queued cells.
    fn close(&mut self) {
        self.closed = true;
    }
}

impl fmt::Debug for QuicLink {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys and payload must not appear in logs.
        out.debug_struct("QuicLink").field("state", &self.state).finish_non_exhaustive()
    }
}
