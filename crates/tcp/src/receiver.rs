//! The receiving half of a connection: reassembly, the receive window, and acknowledgements.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use anabranch_multipath::Time;

use crate::config::{Config, MAX_LEGS};
use crate::constants::{
    ACK_EVERY, DELAYED_ACK, MAX_QUICKACKS, RTO_MIN, SPARSE_ACK_EVERY, SPARSE_ACKS, SPARSE_BLOCKS,
};
use crate::ranges::Ranges;
use crate::stats::Stats;
use crate::timers::{Timer, Timers};

/// Maximum number of out-of-order ranges whose order of arrival is stored, for SACK options (RFC
/// 2018, section 4).
const RECENT: usize = 8;

/// Data received from the peer. `start` is the offset of the first byte in the stream.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) fin: bool,
}

/// State of sparse acknowledgements (TACK).
#[derive(Clone, Copy, Debug, Default)]
struct SparseAcks {
    /// Expected round-trip time; `None` if it is unknown. Acknowledgements are sparse only if it
    /// is known.
    rtt: Option<Duration>,
    /// Time at which the last acknowledgement was sent.
    last: Time,
    /// Latest timestamp of the peer that has arrived on each path (leg); `None` before the first.
    stamps: [Option<u32>; MAX_LEGS],
}

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// Stream offset of the next expected byte.
    nxt: u64,
    /// Bytes that are in order and were not read yet.
    buffer: VecDeque<u8>,
    /// Bytes that arrived out of order, by stream offset. The pieces do not overlap.
    pieces: BTreeMap<u64, Vec<u8>>,
    /// Total number of bytes that arrived out of order.
    apart: usize,
    ranges: Ranges,
    /// One offset inside each out-of-order range that grew recently, the latest first. SACK blocks
    /// are sent in this order.
    recent: VecDeque<u64>,
    /// Range of data that arrived twice, to be reported (RFC 2883); `None` if there is none.
    duplicate: Option<(u64, u64)>,
    /// Stream offset of the peer's FIN; `None` before it is known.
    fin: Option<u64>,
    limit: usize,
    /// Stream offset after the last byte that the peer may send, as we last advertised.
    advertised: u64,
    scale: u8,
    /// Length in bytes of the longest segment from the peer so far.
    segment: usize,
    /// Number of bytes that arrived since the last acknowledgement. Bytes out of order count only
    /// with sparse acknowledgements.
    unacknowledged: usize,
    quick: u32,
    /// State of sparse acknowledgements; `None` if acknowledgements are never sparse.
    sparse: Option<SparseAcks>,
    last_data: Time,
    pub(crate) ack_now: bool,
    out_of_order: Option<VecDeque<(u64, Vec<u8>)>>,
}

impl Receiver {
    pub(crate) fn new(config: &Config) -> Receiver {
        Receiver {
            nxt: 0,
            buffer: VecDeque::new(),
            pieces: BTreeMap::new(),
            apart: 0,
            ranges: Ranges::default(),
            recent: VecDeque::new(),
            duplicate: None,
            fin: None,
            limit: config.receive_buffer.max(1),
            advertised: 0,
            scale: 0,
            segment: 0,
            unacknowledged: 0,
            quick: MAX_QUICKACKS,
            sparse: config.sparse_acks.then(SparseAcks::default),
            last_data: Time::ZERO,
            ack_now: false,
            out_of_order: config.out_of_order.then(VecDeque::new),
        }
    }

    /// Prepares to receive data after the peer's SYN. `scale` is our window scale, in bits. `sack`
    /// states whether the peer takes SACK blocks, which sparse acknowledgements need.
    pub(crate) fn open(&mut self, scale: u8, sack: bool) {
        self.sparse = self.sparse.filter(|_| sack);
        self.nxt = 1;
        self.scale = scale;
        self.advertised = self.advertised.max(1 + self.limit.min(0xffff) as u64);
    }

    pub(crate) fn nxt(&self) -> u64 {
        self.nxt
    }

    /// Returns whether all data and the peer's FIN have been received.
    pub(crate) fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.nxt > fin)
    }

    /// Returns the number of bytes that are in order and have not been read.
    pub(crate) fn readable(&self) -> usize {
        self.buffer.len()
    }

    /// Returns the number of bytes in memory: readable bytes, and bytes out of order.
    pub(crate) fn held(&self) -> usize {
        self.buffer.len() + self.apart
    }

    /// Returns the size in bytes of the receive window that the peer knows.
    pub(crate) fn window(&self) -> u64 {
        self.advertised.saturating_sub(self.nxt)
    }

    /// Returns whether a segment is inside the receive window (RFC 9293, section 3.10.7.4). The
    /// segment begins at the offset `start` and takes `length` sequence numbers.
    pub(crate) fn accepts(&self, start: u64, length: u64) -> bool {
        let (window, end) = (self.window(), start.saturating_add(length));
        if length == 0 {
            return start == self.nxt || (self.nxt..self.nxt + window).contains(&start);
        }
        window > 0 && start < self.advertised && end > self.nxt
    }

    /// Processes received data that lies inside the receive window.
    pub(crate) fn take(
        &mut self,
        now: Time,
        arrival: Arrival,
        timers: &mut Timers,
        stats: &mut Stats,
    ) {
        let Arrival { start, mut bytes, fin } = arrival;
        let end = start + bytes.len() as u64;
        if fin && (self.nxt..=self.advertised).contains(&end) {
            self.fin.get_or_insert(end);
        }
        let last = self.fin.unwrap_or(u64::MAX).min(self.advertised);
        bytes.truncate(last.saturating_sub(start) as usize);
        self.segment = self.segment.max(bytes.len());
        self.restart_quick(now);
        if start <= self.nxt {
            self.extend(now, (start, bytes), timers);
        } else {
            stats.out_of_order += 1;
            self.keep(start, bytes);
            self.ack_now |= self.duplicate.is_some() || !self.defer_ack(now, timers);
        }
        // No later segment would make a deferred acknowledgement due.
        self.ack_now |= fin && self.sparse.is_some();
        if self.fin == Some(self.nxt) {
            self.nxt += 1;
            self.ack_now = true;
        }
    }

    /// Records that the bytes `start..end` have arrived twice. The next acknowledgement reports
    /// this (RFC 2883).
    pub(crate) fn report(&mut self, start: u64, end: u64) {
        self.duplicate = Some((start, end));
        self.ack_now = true;
    }

    /// Makes acknowledgements immediate again after a pause, because the peer's congestion window
    /// is then small.
    fn restart_quick(&mut self, now: Time) {
        if now.since(self.last_data) > RTO_MIN {
            self.quick = MAX_QUICKACKS;
        }
        self.last_data = now;
    }

    /// Appends received data that is next in order.
    fn extend(&mut self, now: Time, (start, bytes): (u64, Vec<u8>), timers: &mut Timers) {
        let known = (self.nxt - start) as usize;
        let fresh = bytes.get(known..).unwrap_or_default();
        if fresh.is_empty() {
            return;
        }
        self.unacknowledged += fresh.len();
        self.append(fresh);
        let filled = !self.ranges.is_empty();
        if filled {
            self.join_pieces();
        }
        if self.defer_ack(now, timers) {
            return;
        }
        let enough = self.unacknowledged >= ACK_EVERY * self.segment.max(1);
        if filled || enough || self.quick > 0 {
            self.ack_now = true;
        } else {
            timers.start(Timer::Ack, now + DELAYED_ACK);
        }
    }

    /// Sets the expected round-trip time, which determines the interval between sparse
    /// acknowledgements. With `None`, the previous value stays.
    pub(crate) fn expect_rtt(&mut self, rtt: Option<Duration>) {
        if let Some(sparse) = &mut self.sparse {
            sparse.rtt = rtt.or(sparse.rtt);
        }
    }

    /// Records the timestamp `value` of a segment that arrived on the path `leg`. If a later
    /// segment of the path has overtaken this segment, the next acknowledgements are not sparse:
    /// the peer measures jitter by the times at which acknowledgements report its segments.
    pub(crate) fn note_stamp(&mut self, leg: usize, value: u32) {
        let stamps = self.sparse.as_mut().map(|sparse| &mut sparse.stamps);
        let Some(latest) = stamps.and_then(|stamps| stamps.get_mut(leg)) else { return };
        if latest.is_some_and(|latest| (value.wrapping_sub(latest) as i32) < 0) {
            self.quick = MAX_QUICKACKS;
        } else {
            *latest = Some(value);
        }
    }

    /// Delays the acknowledgement of data that has arrived, so that it covers several segments (a
    /// *sparse* acknowledgement). Returns false if the usual rules for acknowledgements apply.
    fn defer_ack(&mut self, now: Time, timers: &mut Timers) -> bool {
        let Some(SparseAcks { rtt: Some(rtt), last, .. }) = self.sparse else { return false };
        if self.quick > 0 {
            return false;
        }
        let (interval, segment) = (rtt / SPARSE_ACKS, self.segment.max(1));
        // A small window must not stop the sender for the interval.
        let most = (SPARSE_ACK_EVERY * segment).min(self.limit / SPARSE_ACKS as usize);
        let due = match self.unacknowledged / segment {
            _ if self.unacknowledged >= most => now,
            ACK_EVERY.. => last + interval,
            _ => now + interval.min(DELAYED_ACK),
        };
        if due <= now {
            self.ack_now = true;
        } else if timers.get(Timer::Ack).is_none_or(|at| due < at) {
            timers.set(Timer::Ack, due);
        }
        true
    }

    fn append(&mut self, bytes: &[u8]) {
        self.nxt += bytes.len() as u64;
        self.buffer.extend(bytes);
    }

    /// Appends the out-of-order pieces that are now in order to the buffer.
    fn join_pieces(&mut self) {
        while let Some(entry) = self.pieces.first_entry().filter(|entry| *entry.key() <= self.nxt) {
            let (start, bytes) = entry.remove_entry();
            self.apart -= bytes.len();
            let known = (self.nxt - start) as usize;
            if let Some(fresh) = bytes.get(known..) {
                self.append(fresh);
            }
        }
        self.ranges.trim(self.nxt);
    }

    /// Stores received data that is out of order.
    fn keep(&mut self, start: u64, bytes: Vec<u8>) {
        let end = start + bytes.len() as u64;
        let gaps = self.ranges.insert(start, end);
        if gaps.is_empty() && start < end {
            self.duplicate = Some((start, end));
        }
        for (from, until) in gaps {
            let piece = bytes[(from - start) as usize..(until - start) as usize].to_vec();
            if let Some(early) = &mut self.out_of_order {
                early.push_back((from, piece.clone()));
            }
            self.apart += piece.len();
            self.unacknowledged += if self.sparse.is_some() { piece.len() } else { 0 };
            self.pieces.insert(from, piece);
        }
        if start < end {
            self.recent.push_front(start);
            self.recent.truncate(RECENT);
        }
    }

    /// Returns the blocks for a SACK option: first a range that arrived twice, then the latest
    /// out-of-order ranges (RFC 2018, section 4; RFC 2883, section 4). In a sparse
    /// acknowledgement, all other ranges follow, the highest first.
    pub(crate) fn take_blocks(&mut self) -> Vec<(u64, u64)> {
        let mut blocks: Vec<(u64, u64)> = self.duplicate.take().into_iter().collect();
        let reported = blocks.len();
        self.recent.retain(|&offset| self.ranges.around(offset).is_some());
        let ranges = self.recent.iter().filter_map(|&offset| self.ranges.around(offset));
        let others = self.ranges.descending().take(SPARSE_BLOCKS);
        let others = others.filter(|_| self.sparse.is_some());
        for range in ranges.chain(others).chain(self.ranges.first()) {
            if !blocks[reported..].contains(&range) {
                blocks.push(range);
            }
        }
        blocks.truncate(SPARSE_BLOCKS);
        blocks
    }

    /// Returns whether acknowledgements are sparse. Sparse acknowledgements may have more SACK
    /// blocks than fit into the options.
    pub(crate) fn is_sparse(&self) -> bool {
        self.sparse.is_some()
    }

    /// Returns whether an acknowledgement would contain SACK blocks.
    pub(crate) fn has_blocks(&self) -> bool {
        self.duplicate.is_some() || !self.ranges.is_empty()
    }

    pub(crate) fn read(&mut self, into: &mut [u8]) -> usize {
        let length = into.len().min(self.buffer.len());
        let (front, back) = self.peek();
        let split = front.len().min(length);
        into[..split].copy_from_slice(&front[..split]);
        into[split..length].copy_from_slice(&back[..length - split]);
        self.consume(length);
        length
    }

    /// Moves all bytes that are in order to the end of `into`.
    pub(crate) fn read_all(&mut self, into: &mut Vec<u8>) {
        let (front, back) = self.buffer.as_slices();
        into.extend_from_slice(front);
        into.extend_from_slice(back);
        self.buffer.clear();
        self.note_room();
    }

    pub(crate) fn peek(&self) -> (&[u8], &[u8]) {
        self.buffer.as_slices()
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        self.buffer.drain(..bytes.min(self.buffer.len()));
        self.note_room();
    }

    /// Requests an immediate acknowledgement if reading has at least doubled the window (RFC 9293,
    /// section 3.8.6.2.2; the factor is from Linux).
    fn note_room(&mut self) {
        let fresh = self.right_edge().saturating_sub(self.nxt);
        let least = self.segment.min(self.limit / 2) as u64;
        if self.nxt > 0
            && !self.is_finished()
            && fresh >= 2 * self.window()
            && fresh >= least.max(1)
        {
            self.ack_now |= fresh > self.window();
        }
    }

    pub(crate) fn read_out_of_order(&mut self) -> Option<(u64, Vec<u8>)> {
        self.out_of_order.as_mut()?.pop_front()
    }

    /// Returns the stream offset at which the receive window would end if it covered all free
    /// space of the receive buffer.
    fn right_edge(&self) -> u64 {
        self.nxt + (self.limit - self.buffer.len().min(self.limit)) as u64
    }

    /// Returns the receive window for a segment that is sent now. Its end never moves back; it
    /// stays, or moves by at least a segment (RFC 9293, section 3.8.6.2.2).
    pub(crate) fn advertise(&mut self) -> u16 {
        let edge = self.right_edge();
        let least = self.segment.min(self.limit / 2) as u64;
        if edge >= self.advertised + least.max(1) {
            self.advertised = edge;
        }
        let shifted = self.window() >> self.scale;
        u16::try_from(shifted).unwrap_or(u16::MAX)
    }

    /// Returns the receive window for a SYN, in which windows are not scaled.
    pub(crate) fn advertise_unscaled(&mut self) -> u16 {
        let window = u16::try_from(self.limit).unwrap_or(u16::MAX);
        self.advertised = self.nxt.max(1) + u64::from(window);
        window
    }

    /// Records that a segment with an acknowledgement is sent at `now`. `has_blocks` states whether
    /// it reports data that arrived out of order.
    pub(crate) fn acknowledged(&mut self, now: Time, has_blocks: bool, timers: &mut Timers) {
        if let Some(sparse) = &mut self.sparse {
            if !has_blocks && (self.duplicate.is_some() || !self.ranges.is_empty()) {
                // The deferred report of these data is still due.
                return;
            }
            sparse.last = now;
        }
        self.ack_now = false;
        self.unacknowledged = 0;
        self.quick = self.quick.saturating_sub(1);
        timers.stop(Timer::Ack);
    }
}
