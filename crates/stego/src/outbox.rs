//! The sending end of a stream, which stores waiting bytes and unacknowledged chunks.

use std::collections::{BTreeSet, VecDeque};

use crate::budget::{Budget, LEAST_WINDOW};
use crate::frame::{Ack, DATA_OVERHEAD, Frame};

/// Maximum number of chunks (parts of the stream) from the first unacknowledged chunk to the last
/// sent chunk.
pub(crate) const AHEAD: usize = 8_192;
/// Maximum flow-control window of a stream in bytes.
pub(crate) const MOST_WINDOW: usize = 16 << 20;
/// Approximate overhead in bytes of memory of a chunk (a part of the stream) that is stored.
pub(crate) const PIECE: usize = 64;
/// Minimum length in bytes of a chunk that is shortened because a message has little room.
const MIN_CHUNK: usize = 256;
/// Maximum number of chunks of the retransmission queue that are searched for a chunk that fits
/// into a message.
const RETRANSMIT_SEARCH: usize = 16;
/// Capacity in bytes below which the buffer of written bytes (which are not in chunks yet) is not
/// shrunk while it contains bytes.
const KEPT_CAPACITY: usize = 16 << 10;
/// Capacity, in chunks, that an empty queue keeps for reuse. A larger queue frees its memory.
pub(crate) const FEW_PIECES: usize = 64;

/// The sender of one direction's stream, which stores the stream until it is acknowledged.
pub(crate) struct Outbox {
    /// Maximum length in bytes of a chunk (a part of the stream), the unit of retransmission.
    chunk: usize,
    /// Bytes that were written but are not divided into chunks yet.
    fresh: VecDeque<u8>,
    /// The chunks in flight, in order. The first has the sequence number `base`. A chunk that has
    /// arrived is replaced by `None`.
    flight: VecDeque<Option<Flight>>,
    base: u64,
    /// Sequence numbers of the chunks that have to be sent again.
    retransmit: BTreeSet<u64>,
    /// Number of bytes divided into chunks so far.
    cut: u64,
    /// Total bytes of the stream that the other end permits to send so far (flow control).
    limit: u64,
    /// Number of bytes that have not arrived at the other end, whether divided into chunks or not.
    unacknowledged: usize,
    /// Number of bytes that have arrived at the other end.
    arrived: u64,
    window: usize,
    /// Number of bytes that this sender has reserved of the memory budget of all links.
    borrowed: usize,
    ending: Ending,
}

/// A chunk that was formed from written bytes and is not acknowledged.
struct Flight {
    bytes: Vec<u8>,
    /// Whether the chunk is the end of the stream; it is then empty.
    fin: bool,
    /// Identifier of the connection over which the chunk was last sent.
    connection: u64,
}

/// The state of the end of the stream: not reached, to be sent, or sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Open,
    /// Nothing more will be written, but the end has not been sent.
    Closing,
    /// The end was sent, as the chunk with this sequence number.
    Sent(u64),
}

impl Outbox {
    /// Creates a sender whose chunks have at most `chunk` bytes.
    pub(crate) fn new(chunk: usize) -> Outbox {
        Outbox {
            chunk,
            fresh: VecDeque::new(),
            flight: VecDeque::new(),
            base: 0,
            retransmit: BTreeSet::new(),
            cut: 0,
            limit: LEAST_WINDOW as u64,
            unacknowledged: 0,
            arrived: 0,
            window: LEAST_WINDOW,
            borrowed: 0,
            ending: Ending::Open,
        }
    }

    /// Accepts bytes to send, up to the room in the window and in the memory budget. Returns how
    /// many were accepted.
    pub(crate) fn write(&mut self, bytes: &[u8], budget: &mut Budget) -> usize {
        let open = self.ending == Ending::Open;
        let taken = if open { bytes.len().min(self.room(budget)) } else { 0 };
        if taken == 0 {
            return 0;
        }
        self.fresh.extend(&bytes[..taken]);
        self.unacknowledged += taken;
        let lacks = self.beyond(budget).saturating_sub(self.borrowed);
        let lent = budget.take(lacks);
        debug_assert!(lent, "the memory budget has room for these bytes");
        self.borrowed += lacks;
        taken
    }

    /// Returns the number of bytes that [`Outbox::write`] accepts now, by the limits of the window
    /// and the memory budget.
    pub(crate) fn room(&self, budget: &Budget) -> usize {
        let memory = budget.share().saturating_add(self.borrowed).saturating_add(budget.left());
        self.window.min(memory).saturating_sub(self.unacknowledged)
    }

    /// Returns the number of stored bytes that count towards the memory limit: those beyond the
    /// link's free share.
    fn beyond(&self, budget: &Budget) -> usize {
        self.unacknowledged.saturating_sub(budget.share())
    }

    /// Gives back to the memory budget the bytes that the sender no longer needs. If the sender's
    /// free share has shrunk, reserves the missing bytes, as far as the budget has them left.
    pub(crate) fn update_budget(&mut self, budget: &mut Budget) {
        budget.give(std::mem::take(&mut self.borrowed));
        let needed = self.beyond(budget).min(budget.left());
        budget.take(needed);
        self.borrowed = needed;
    }

    /// Frees the unused memory of the queues of chunks and of written bytes.
    pub(crate) fn shrink(&mut self) {
        self.fresh.shrink_to_fit();
        self.flight.shrink_to_fit();
    }

    /// Gives back to the memory budget all bytes that the sender has reserved. The sender must not
    /// be used afterwards.
    pub(crate) fn release(&mut self, budget: &mut Budget) {
        budget.give(std::mem::take(&mut self.borrowed));
    }

    /// Ends the stream after the bytes written so far.
    pub(crate) fn finish(&mut self) {
        if self.ending == Ending::Open {
            self.ending = Ending::Closing;
        }
    }

    /// Returns whether the whole stream, including its end, has arrived at the other end.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.ending, Ending::Sent(number) if self.base > number)
    }

    /// Returns whether there is nothing to send, and everything sent has arrived at the other end.
    pub(crate) fn is_empty(&self) -> bool {
        self.unacknowledged == 0 && self.flight.is_empty() && self.ending != Ending::Closing
    }

    /// Returns the total length of the stream so far in bytes, sent or not.
    pub(crate) fn written(&self) -> u64 {
        self.cut + self.fresh.len() as u64
    }

    /// Returns the approximate number of bytes to be sent now or later. The number is approximate
    /// because a chunk may be shorter when it is retransmitted.
    pub(crate) fn unsent(&self) -> usize {
        self.fresh.len() + self.retransmit.len() * self.chunk
    }

    /// Returns the approximate number of bytes that could be sent now.
    pub(crate) fn sendable(&self) -> usize {
        self.fresh_allowed() + self.retransmit.len() * self.chunk
    }

    /// Returns whether a retransmission or the end of the stream waits to be sent.
    pub(crate) fn is_urgent(&self) -> bool {
        !self.retransmit.is_empty() || self.fin_waits()
    }

    /// Returns the number of bytes that have not arrived at the other end.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.unacknowledged
    }

    /// Returns the approximate bytes of memory that the sender uses.
    pub(crate) fn memory(&self) -> usize {
        let spare = self.fresh.capacity() - self.fresh.len();
        self.unacknowledged + spare + PIECE * self.flight.len()
    }

    /// Returns the number of bytes that the sender may store: the free share of each link, plus
    /// the bytes that it has reserved of the memory budget.
    pub(crate) fn allowed(&self, budget: &Budget) -> usize {
        budget.share() + self.borrowed
    }

    /// Returns the approximate number of chunks that could be sent now.
    pub(crate) fn waiting(&self) -> u64 {
        let fresh = self.fresh_allowed().div_ceil(self.chunk) + usize::from(self.fin_waits());
        (self.retransmit.len() + fresh) as u64
    }

    /// Returns the minimum number of bytes that a message must be able to hide to carry the next
    /// chunk. Returns `None` if no chunk can be sent.
    pub(crate) fn least_room(&self) -> Option<usize> {
        let retransmit = self
            .retransmit
            .iter()
            .take(RETRANSMIT_SEARCH)
            .filter_map(|chunk| self.length(*chunk))
            .min();
        let allowed = self.fresh_allowed();
        let fresh = (allowed > 0).then(|| allowed.min(MIN_CHUNK));
        let fin = self.fin_waits().then_some(0);
        [retransmit, fresh, fin].into_iter().flatten().min().map(|bytes| bytes + DATA_OVERHEAD)
    }

    /// Selects a chunk whose frame fits into `room` bytes, and assigns it to `connection`.
    /// Retransmissions take precedence. Appends the frame to `out`, and returns the chunk's
    /// sequence number; `None` if no chunk fits or none waits.
    pub(crate) fn next(&mut self, connection: u64, room: usize, out: &mut Vec<u8>) -> Option<u64> {
        let room = room.checked_sub(DATA_OVERHEAD)?;
        let fits = |chunk: &u64| self.length(*chunk).is_some_and(|length| length <= room);
        let retransmit = self.retransmit.iter().take(RETRANSMIT_SEARCH).copied().find(fits);
        let number = match retransmit {
            Some(number) => number,
            None => self.cut(room)?,
        };
        self.retransmit.remove(&number);
        let flight = self.flight.get_mut((number - self.base) as usize)?.as_mut()?;
        flight.connection = connection;
        let data = Frame::Data { chunk: number, bytes: &flight.bytes };
        let frame = if flight.fin { Frame::Fin { chunk: number } } else { data };
        frame.write(out);
        Some(number)
    }

    /// Marks a chunk to be sent again, because `connection` did not deliver it. Does nothing if
    /// another connection has carried the chunk since.
    pub(crate) fn lost(&mut self, connection: u64, chunk: u64) {
        let flight = chunk.checked_sub(self.base).and_then(|at| self.flight.get(at as usize));
        if let Some(Some(flight)) = flight
            && flight.connection == connection
        {
            self.retransmit.insert(chunk);
        }
    }

    /// Returns whether a chunk has arrived at the other end.
    pub(crate) fn has_arrived(&self, chunk: u64) -> bool {
        let at = chunk.checked_sub(self.base);
        at.is_none_or(|at| matches!(self.flight.get(at as usize), Some(None)))
    }

    /// Processes an acknowledgement. Returns false if it acknowledges chunks that were never sent.
    pub(crate) fn acknowledged(&mut self, ack: &Ack) -> bool {
        let end = self.base + self.flight.len() as u64;
        let greatest = ack.ranges.last().map_or(ack.next, |range| range.end);
        if ack.next > end || greatest > end {
            return false;
        }
        (self.base..ack.next).for_each(|chunk| self.mark_arrived(chunk));
        for range in &ack.ranges {
            (range.start.max(self.base)..range.end).for_each(|chunk| self.mark_arrived(chunk));
        }
        while matches!(self.flight.front(), Some(None)) {
            self.flight.pop_front();
            self.base += 1;
        }
        if self.flight.is_empty() && self.flight.capacity() > FEW_PIECES {
            self.flight = VecDeque::new();
        }
        self.limit = self.limit.max(ack.limit);
        let allowed = self.limit.saturating_sub(self.cut).min(self.earned());
        let window = usize::try_from(allowed).unwrap_or(MOST_WINDOW);
        self.window = self.window.max(window.clamp(LEAST_WINDOW, MOST_WINDOW));
        true
    }

    /// Returns the maximum window in bytes, which grows with the number of acknowledged bytes. A
    /// peer that advertises a large window and acknowledges nothing gets [`LEAST_WINDOW`]. A peer
    /// that reads its data is not slowed down: the result grows faster than such a peer raises its
    /// window.
    fn earned(&self) -> u64 {
        LEAST_WINDOW as u64 + 2 * self.arrived
    }

    fn mark_arrived(&mut self, chunk: u64) {
        let Some(place) = self.flight.get_mut((chunk - self.base) as usize) else { return };
        if let Some(flight) = place.take() {
            self.unacknowledged -= flight.bytes.len();
            self.arrived += flight.bytes.len() as u64;
            self.retransmit.remove(&chunk);
        }
    }

    fn length(&self, chunk: u64) -> Option<usize> {
        let flight = self.flight.get(chunk.checked_sub(self.base)? as usize)?.as_ref()?;
        Some(flight.bytes.len())
    }

    /// Returns how many of the written bytes may be sent now, as new chunks, by the limits of flow
    /// control and of chunks in flight.
    fn fresh_allowed(&self) -> usize {
        if self.flight.len() >= AHEAD {
            return 0;
        }
        let allowed = usize::try_from(self.limit - self.cut).unwrap_or(usize::MAX);
        self.fresh.len().min(allowed)
    }

    fn fin_waits(&self) -> bool {
        self.ending == Ending::Closing && self.fresh.is_empty() && self.flight.len() < AHEAD
    }

    /// Forms a chunk of at most `room` bytes from written bytes. Returns the chunk's sequence
    /// number; `None` if no chunk may be formed.
    fn cut(&mut self, room: usize) -> Option<u64> {
        let number = self.base + self.flight.len() as u64;
        if self.fin_waits() {
            self.ending = Ending::Sent(number);
            self.flight.push_back(Some(Flight { bytes: Vec::new(), fin: true, connection: 0 }));
            return Some(number);
        }
        let allowed = self.fresh_allowed();
        let length = allowed.min(self.chunk).min(room);
        if length == 0 || length < MIN_CHUNK.min(allowed) {
            return None;
        }
        let bytes = self.take_fresh(length);
        self.cut += length as u64;
        self.flight.push_back(Some(Flight { bytes, fin: false, connection: 0 }));
        Some(number)
    }

    /// Removes and returns the first `length` written bytes that are not in a chunk yet. If few
    /// bytes remain, frees most of a large buffer: the memory budget counts bytes, not the
    /// capacity of the buffer.
    fn take_fresh(&mut self, length: usize) -> Vec<u8> {
        let (first, second) = self.fresh.as_slices();
        let split = length.min(first.len());
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(&first[..split]);
        bytes.extend_from_slice(&second[..length - split]);
        self.fresh.drain(..length);
        if self.fresh.is_empty() {
            self.fresh = VecDeque::new();
        } else if self.fresh.capacity() > KEPT_CAPACITY
            && self.fresh.len() < self.fresh.capacity() / 4
        {
            self.fresh.shrink_to(self.fresh.len() * 2);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plenty() -> Budget {
        Budget::new(64 << 20)
    }

    fn ack(next: u64, ranges: &[std::ops::Range<u64>]) -> Ack {
        Ack { next, ranges: ranges.to_vec(), ..Ack::default() }
    }

    fn send(outbox: &mut Outbox, connection: u64, count: usize) -> Vec<u64> {
        (0..count).map_while(|_| outbox.next(connection, 16_400, &mut Vec::new())).collect()
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "one range is what is told")]
    fn what_failed_goes_again_first_and_what_came_does_not() {
        let mut outbox = Outbox::new(1_000);
        assert_eq!(outbox.write(&[7; 10_000], &mut plenty()), 10_000);
        assert_eq!(send(&mut outbox, 1, 5), [0, 1, 2, 3, 4]);
        assert!(outbox.acknowledged(&ack(1, &[2..4])));
        (0..5).for_each(|chunk| outbox.lost(1, chunk));
        assert_eq!(send(&mut outbox, 2, 3), [1, 4, 5]);
        outbox.lost(1, 1);
        assert_eq!(send(&mut outbox, 3, 1), [6], "another has taken it");
        assert!(outbox.has_arrived(0) && outbox.has_arrived(3) && !outbox.has_arrived(1));
        assert_eq!(outbox.unacknowledged(), 10_000 - 3_000);
    }

    #[test]
    fn the_end_comes_behind_all_and_is_acknowledged_too() {
        let mut outbox = Outbox::new(1_000);
        outbox.write(&[7; 1_500], &mut plenty());
        outbox.finish();
        assert_eq!(outbox.write(b"more", &mut plenty()), 0);
        assert_eq!(send(&mut outbox, 1, 9), [0, 1, 2]);
        assert!(outbox.acknowledged(&ack(2, &[])) && !outbox.is_done());
        outbox.lost(1, 2);
        let mut frame = Vec::new();
        assert_eq!(outbox.next(2, 100, &mut frame), Some(2));
        assert_eq!(Frame::read(&mut &frame[..]), Ok(Some(Frame::Fin { chunk: 2 })));
        assert!(outbox.acknowledged(&ack(3, &[])) && outbox.is_done() && outbox.is_empty());
    }

    #[test]
    fn no_more_is_taken_or_cut_than_windows_allow() {
        let (mut outbox, mut budget) = (Outbox::new(16_000), plenty());
        assert_eq!(outbox.write(&vec![0; 3 << 20], &mut budget), LEAST_WINDOW);
        let sent = send(&mut outbox, 1, 1_000).len() as u64;
        assert_eq!(outbox.cut, LEAST_WINDOW as u64);
        assert_eq!(outbox.least_room(), None);
        let limit = 4 << 20;
        assert!(outbox.acknowledged(&Ack { next: sent, limit, ..Ack::default() }));
        assert_eq!(outbox.write(&vec![0; 9 << 20], &mut budget), 3 << 20);
        assert!(!outbox.acknowledged(&ack(sent + 1, &[])), "never sent");
    }

    #[test]
    fn who_acknowledges_nothing_gets_no_more_whatever_he_allows() {
        let (mut outbox, mut budget) = (Outbox::new(16_000), plenty());
        let greedy = |next| Ack { next, limit: u64::MAX, ..Ack::default() };
        assert!(outbox.acknowledged(&greedy(0)));
        assert_eq!(outbox.write(&vec![0; 20 << 20], &mut budget), LEAST_WINDOW);
        let sent = send(&mut outbox, 1, 1_000).len() as u64;
        assert!(outbox.acknowledged(&greedy(sent)));
        assert_eq!(outbox.write(&vec![0; 20 << 20], &mut budget), 3 * LEAST_WINDOW);
    }

    #[test]
    fn what_waits_beyond_the_least_window_is_taken_from_the_budget_and_given_back() {
        let (whole, limit) = (5 << 20, 64 << 20);
        let (mut budget, some) = (Budget::new(whole), vec![0; LEAST_WINDOW / 2]);
        let mut outboxes = [Outbox::new(16_000), Outbox::new(16_000)];
        // Both senders have already sent much data, so their windows have grown.
        for outbox in &mut outboxes {
            for _ in 0..16 {
                assert_eq!(outbox.write(&some, &mut budget), some.len());
                send(outbox, 1, 1_000);
                let next = outbox.base + outbox.flight.len() as u64;
                assert!(outbox.acknowledged(&Ack { next, limit, ..Ack::default() }));
            }
        }
        assert_eq!(budget.left(), whole, "nothing waits");
        let [one, two] = &mut outboxes;
        let all = vec![0; 20 << 20];
        assert_eq!(one.write(&all[..4 << 20], &mut budget), 4 << 20);
        assert_eq!((two.room(&budget), budget.left()), (3 << 20, 2 << 20));
        assert_eq!(two.write(&all, &mut budget), 3 << 20);
        assert_eq!((one.room(&budget), two.room(&budget), budget.left()), (0, 0, 0));
        // The bytes of the first sender that arrive return to the budget, and the second sender
        // may take them.
        send(one, 1, 10_000);
        let next = one.base + one.flight.len() as u64 / 2;
        assert!(one.acknowledged(&Ack { next, limit, ..Ack::default() }));
        one.update_budget(&mut budget);
        let (freed, kept) = (budget.left(), one.unacknowledged());
        assert_eq!(freed, (4 << 20) - kept);
        assert!(freed > 1 << 20 && two.room(&budget) == freed, "{freed}");
        two.release(&mut budget);
        one.release(&mut budget);
        assert_eq!(budget.left(), whole);
    }

    #[test]
    fn memory_for_bytes_that_are_cut_is_given_back() {
        let mut outbox = Outbox::new(16_000);
        outbox.write(&vec![0; LEAST_WINDOW], &mut plenty());
        assert!(outbox.fresh.capacity() >= LEAST_WINDOW);
        send(&mut outbox, 1, 1_000);
        assert!(outbox.fresh.capacity() <= KEPT_CAPACITY, "{}", outbox.fresh.capacity());
    }

    #[test]
    fn small_chunks_are_bounded_in_number() {
        let mut outbox = Outbox::new(16_000);
        let mut sent = 0;
        for _ in 0..AHEAD + 9 {
            outbox.write(b"x", &mut plenty());
            sent += send(&mut outbox, 1, 1).len();
        }
        assert_eq!(sent, AHEAD);
        assert_eq!(outbox.waiting(), 0);
    }

    #[test]
    fn a_chunk_is_cut_to_the_room_that_is_there_and_never_too_short() {
        let mut outbox = Outbox::new(16_000);
        outbox.write(&[1; 2_000], &mut plenty());
        assert_eq!(outbox.next(1, MIN_CHUNK + DATA_OVERHEAD - 1, &mut Vec::new()), None);
        assert_eq!(outbox.least_room(), Some(MIN_CHUNK + DATA_OVERHEAD));
        let mut out = Vec::new();
        assert_eq!(outbox.next(1, 500, &mut out), Some(0));
        assert!(out.len() <= 500 && out.len() > 480);
        outbox.lost(1, 0);
        out.clear();
        assert_eq!(outbox.next(2, 300, &mut out), Some(1), "one that fits");
        assert_eq!(outbox.next(2, 500, &mut out), Some(0));
    }
}
