//! The receiving end of a stream, which reorders chunks and acknowledges them.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use anabranch_multipath::{Insertion, Merger, PathId, Time};

use crate::budget::{Budget, LEAST_WINDOW};
use crate::frame::{Ack, RANGES, RECEIPTS};
use crate::outbox::{AHEAD, FEW_PIECES, MOST_WINDOW, PIECE};

/// Maximum number of bytes in a block that contains only an acknowledgement, excluding the lists
/// of ranges and receipts in the acknowledgement.
const ACK_FIXED: usize = 48;
/// Maximum time from the arrival of a chunk to its acknowledgement.
const DELAY: Duration = Duration::from_millis(20);
/// Number of unacknowledged received chunks that makes an acknowledgement due at once.
const CHUNKS: u32 = 4;
/// Maximum delay of an acknowledgement if acknowledgements wait for other messages
/// ([`Inbox::delay_acks`]), however many chunks arrive. It is a quarter of the other end's minimum
/// retransmission timeout.
const COALESCED_DELAY: Duration = Duration::from_millis(100);
/// Time in round trips. If the flow-control limit is raised again within this time, the window is
/// too small and is doubled.
const QUICK: u32 = 4;
/// Number of acknowledgements that repeat each receipt (the count of blocks received over a
/// connection), because one of them may be lost.
const RECEIPT_COPIES: u8 = 2;

/// Error: the other end has sent more than flow control permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overrun {
    /// The stream has more bytes than flow control permits.
    Bytes,
    /// The sequence number of a chunk is too far ahead of the next expected chunk.
    Chunks,
}

/// Receiver of one direction's stream. It restores the order of the chunks.
pub(crate) struct Inbox {
    merger: Merger<Chunk>,
    /// Ranges of chunks that have arrived and wait for earlier chunks: the end of each range, by
    /// its first chunk.
    ranges: BTreeMap<u64, u64>,
    /// Number of chunks that have arrived and wait for earlier chunks.
    waiting: usize,
    /// Chunks that are in order but have not been read.
    ready: VecDeque<Vec<u8>>,
    /// Number of bytes of the stream received so far, in order or not.
    received: u64,
    /// Total length of the stream so far, sent or not, as the other end last advertised it.
    length: u64,
    /// Number of bytes of the stream that the program has read.
    read: u64,
    /// Total bytes of the stream that the other end may send, as advertised to it so far (flow
    /// control).
    limit: u64,
    window: usize,
    /// Time at which the stream's flow-control limit was last raised.
    raised: Time,
    ended: bool,
    acknowledged_end: bool,
    due: AckDue,
    /// Whether acknowledgements wait until messages are sent for another reason, because messages
    /// are costly.
    delays_acks: bool,
    /// For each connection, the number of blocks received over it, and how many times this number
    /// was sent.
    receipts: BTreeMap<u64, (u64, u8)>,
}

/// A chunk of the stream's data, or the end of the stream.
enum Chunk {
    Bytes(Vec<u8>),
    End,
}

/// Time at which an acknowledgement is due, and number of chunks received since the last
/// acknowledgement.
#[derive(Default)]
struct AckDue {
    at: Option<Time>,
    chunks: u32,
}

impl Inbox {
    /// Creates the receiver of a stream whose chunks arrive over at most `places` connections at a
    /// time.
    pub(crate) fn new(places: usize) -> Inbox {
        Inbox {
            merger: Merger::new(places, 0, AHEAD, None),
            ranges: BTreeMap::new(),
            waiting: 0,
            ready: VecDeque::new(),
            received: 0,
            length: 0,
            read: 0,
            limit: LEAST_WINDOW as u64,
            window: LEAST_WINDOW,
            raised: Time::ZERO,
            ended: false,
            acknowledged_end: false,
            due: AckDue::default(),
            delays_acks: false,
            receipts: BTreeMap::new(),
        }
    }

    /// Makes acknowledgements wait until messages are sent for another reason, for at most
    /// [`COALESCED_DELAY`].
    pub(crate) fn delay_acks(&mut self) {
        self.delays_acks = true;
    }

    /// Records that the other end's stream has `length` bytes so far, whether sent or not.
    pub(crate) fn advertised(&mut self, length: u64) {
        self.length = self.length.max(length);
    }

    /// Returns the number of bytes that have not arrived of the data that the other end has
    /// advertised.
    pub(crate) fn backlog(&self) -> u64 {
        self.length.saturating_sub(self.received)
    }

    /// Returns the approximate bytes of memory used by data that have been received but not read.
    pub(crate) fn memory(&self) -> usize {
        (self.received - self.read) as usize + PIECE * (self.ready.len() + self.waiting)
    }

    /// Processes the chunk with the sequence number `number`, which arrived over the connection
    /// with the index `place`. If `bytes` is `None`, the chunk is the end of the stream.
    ///
    /// # Errors
    /// The chunk exceeds what the other end may send.
    pub(crate) fn chunk(
        &mut self,
        now: Time,
        place: PathId,
        number: u64,
        bytes: Option<&[u8]>,
    ) -> Result<(), Overrun> {
        self.due.chunks += 1;
        let length = bytes.map_or(0, <[u8]>::len) as u64;
        if self.merger.has_seen(number) {
            return Ok(());
        }
        if self.received + length > self.limit {
            return Err(Overrun::Bytes);
        }
        if number >= self.merger.next_number() + AHEAD as u64 {
            return Err(Overrun::Chunks);
        }
        self.received += length;
        let chunk = bytes.map_or(Chunk::End, |bytes| Chunk::Bytes(bytes.to_vec()));
        if self.merger.pass(place, number) {
            self.deliver(chunk);
            return Ok(());
        }
        let taken = self.merger.handle(now, place, number, chunk);
        debug_assert_eq!(
            taken,
            Insertion::Taken,
            "the merger has room for each chunk that is within the limit"
        );
        self.note(number);
        while let Some((number, chunk)) = self.merger.poll(now) {
            self.forget(number);
            self.deliver(chunk);
        }
        Ok(())
    }

    fn deliver(&mut self, chunk: Chunk) {
        match chunk {
            Chunk::Bytes(bytes) if self.ended => self.read += bytes.len() as u64,
            Chunk::Bytes(bytes) => self.ready.push_back(bytes),
            Chunk::End => self.ended = true,
        }
    }

    /// Adds a chunk that waits for earlier chunks to the ranges. Its sequence number is `number`.
    /// The chunk begins a range, extends a range, or joins two ranges.
    fn note(&mut self, number: u64) {
        self.waiting += 1;
        let mut range = number..number + 1;
        if let Some(end) = self.ranges.remove(&range.end) {
            range.end = end;
        }
        let before = self.ranges.range_mut(..number).next_back();
        match before.filter(|(_, end)| **end == number) {
            Some((_, end)) => *end = range.end,
            None => drop(self.ranges.insert(range.start, range.end)),
        }
    }

    /// Removes the first of the waiting chunks, with the sequence number `number`, from the
    /// ranges.
    fn forget(&mut self, number: u64) {
        self.waiting -= 1;
        if let Some(end) = self.ranges.remove(&number)
            && end > number + 1
        {
            self.ranges.insert(number + 1, end);
        }
    }

    /// Returns the next bytes in order; `None` if there are none.
    pub(crate) fn read(&mut self) -> Option<Vec<u8>> {
        let bytes = self.ready.pop_front()?;
        if self.ready.is_empty() && self.ready.capacity() > FEW_PIECES {
            self.ready = VecDeque::new();
        }
        self.read += bytes.len() as u64;
        Some(bytes)
    }

    /// Returns whether the stream has ended and has been read completely.
    pub(crate) fn is_done(&self) -> bool {
        self.ended && self.ready.is_empty()
    }

    /// Returns whether the stream has ended and its end has been acknowledged.
    pub(crate) fn has_acknowledged_end(&self) -> bool {
        self.acknowledged_end
    }

    /// Records that `blocks` blocks in total were received over the connection with the identifier
    /// `number`, and makes an acknowledgement due.
    pub(crate) fn count_blocks(&mut self, now: Time, number: u64, blocks: u64) {
        self.receipts.insert(number, (blocks, 0));
        let delay = if self.delays_acks { COALESCED_DELAY } else { DELAY };
        self.due.at = Some(self.due.at.unwrap_or(now + delay));
    }

    /// Raises the stream's flow-control limit once at least half of the window is used up. Also
    /// doubles the window if the last raise was at most [`QUICK`] round trips ago and the memory
    /// budget allows it.
    pub(crate) fn raise_limit(&mut self, now: Time, rtt: Duration, budget: &mut Budget) {
        let open = self.limit.saturating_sub(self.read) as usize;
        if open > self.window / 2 {
            return;
        }
        let quick = now.since(self.raised) < rtt * QUICK && self.raised > Time::ZERO;
        if quick && self.window < MOST_WINDOW && budget.take(self.window) {
            self.window *= 2;
        }
        self.raised = now;
        self.limit = self.read + self.window as u64;
        self.due.at = Some(now);
    }

    /// Frees the unused memory of the queue of received data.
    pub(crate) fn shrink(&mut self) {
        self.ready.shrink_to_fit();
    }

    /// Reduces the window to the minimum, and gives the difference back to the memory budget.
    pub(crate) fn release(&mut self, budget: &mut Budget) {
        budget.give(self.window - LEAST_WINDOW);
        self.window = LEAST_WINDOW;
    }

    /// Returns the time at which an acknowledgement is due; `None` if nothing has to be
    /// acknowledged.
    pub(crate) fn ack_due(&self, now: Time) -> Option<Time> {
        // The end of the stream is acknowledged at once, because no later message would carry the
        // acknowledgement.
        let end = self.ended && !self.acknowledged_end;
        let now_due = if self.delays_acks { end } else { self.due.chunks >= CHUNKS };
        self.due.at.map(|due| if now_due { now } else { due })
    }

    /// Makes another acknowledgement due at once, because the last one may be lost. Does nothing
    /// if there was nothing to acknowledge.
    pub(crate) fn repeat_ack(&mut self, now: Time) {
        if self.merger.next_number() > 0 || !self.ranges.is_empty() {
            self.due.at = Some(now);
        }
    }

    /// Builds an acknowledgement with as many ranges and receipts as fit into `room` bytes.
    /// `written` is the length of the stream in the other direction so far.
    pub(crate) fn ack(&mut self, written: u64, room: usize) -> Ack {
        self.due = AckDue::default();
        self.acknowledged_end = self.ended;
        // Each range and each block count consists of two numbers.
        let lists = room.saturating_sub(ACK_FIXED) / 16;
        let receipts = self.receipts.len().min(lists.div_ceil(2));
        let ranges = self.ranges.iter().take(RANGES.min(lists - receipts));
        let ranges = ranges.map(|(&start, &end)| Range { start, end });
        Ack {
            next: self.merger.next_number(),
            ranges: ranges.collect(),
            limit: self.limit,
            written,
            receipts: self.take_receipts(receipts),
        }
    }

    /// Returns up to `most` receipts to send. Each is the identifier of a connection, and the
    /// number of blocks received over it. Each receipt is sent [`RECEIPT_COPIES`] times, because
    /// one may be lost with its connection.
    fn take_receipts(&mut self, most: usize) -> Vec<(u64, u64)> {
        let sent = self.receipts.iter_mut().take(RECEIPTS.min(most));
        let sent = sent.map(|(&number, (blocks, copies))| {
            *copies += 1;
            (number, *blocks)
        });
        let sent = sent.collect();
        self.receipts.retain(|_, (_, copies)| *copies < RECEIPT_COPIES);
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: PathId = PathId(0);

    fn inbox() -> Inbox {
        Inbox::new(1)
    }

    fn take(inbox: &mut Inbox, number: u64, bytes: &[u8]) -> Result<(), Overrun> {
        inbox.chunk(Time::ZERO, PLACE, number, Some(bytes))
    }

    #[test]
    fn chunks_come_out_in_order_and_ranges_tell_of_those_that_wait() {
        let mut inbox = inbox();
        for number in [0, 2, 3, 7, 5, 2] {
            take(&mut inbox, number, &[number as u8]).unwrap();
        }
        let ack = inbox.ack(0, 2_000);
        assert_eq!((ack.next, ack.ranges), (1, vec![2..4, 5..6, 7..8]));
        assert_eq!(inbox.memory(), 5 + PIECE * 5);
        take(&mut inbox, 6, &[6]).unwrap();
        assert_eq!(inbox.ack(0, 2_000).ranges, vec![2..4, 5..8]);
        take(&mut inbox, 1, &[1]).unwrap();
        take(&mut inbox, 4, &[4]).unwrap();
        inbox.chunk(Time::ZERO, PLACE, 8, None).unwrap();
        let read: Vec<u8> = std::iter::from_fn(|| inbox.read()).flatten().collect();
        assert_eq!(read, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(inbox.is_done() && inbox.ranges.is_empty() && inbox.memory() == 0);
        assert_eq!(inbox.ack(0, 2_000).next, 9);
    }

    #[test]
    fn more_than_was_allowed_is_an_overrun() {
        let mut inbox = inbox();
        assert_eq!(take(&mut inbox, AHEAD as u64, b"x"), Err(Overrun::Chunks));
        assert_eq!(take(&mut inbox, 3, &vec![0; LEAST_WINDOW]), Ok(()));
        assert_eq!(take(&mut inbox, 4, b"x"), Err(Overrun::Bytes));
        assert_eq!(take(&mut inbox, 3, b"x"), Ok(()), "again");
        assert!(inbox.read().is_none());
    }

    #[test]
    fn windows_grow_for_who_uses_them_up_and_only_within_the_budget() {
        let mut budget = Budget::new(5 << 20);
        let mut inboxes = [inbox(), inbox()];
        let (rtt, mut now) = (Duration::from_millis(100), Time::from_secs(1));
        for number in 0..200 {
            now += Duration::from_millis(100);
            for inbox in &mut inboxes {
                take(inbox, number, &vec![0; 600 << 10]).unwrap();
                inbox.read().unwrap();
                inbox.raise_limit(now, rtt, &mut budget);
            }
        }
        let windows: Vec<usize> = inboxes.iter().map(|inbox| inbox.window >> 20).collect();
        assert_eq!((windows, budget.left()), (vec![4, 2], 1 << 20));
        inboxes.iter_mut().for_each(|inbox| inbox.release(&mut budget));
        assert_eq!(budget.left(), 5 << 20);
    }

    #[test]
    fn who_does_not_read_gets_no_more() {
        let mut inbox = inbox();
        for number in 0..1024 {
            take(&mut inbox, number, &[0; 1024]).unwrap();
        }
        inbox.raise_limit(Time::ZERO, Duration::ZERO, &mut Budget::new(0));
        assert_eq!(inbox.limit, LEAST_WINDOW as u64);
        assert_eq!(take(&mut inbox, 1024, &[0]), Err(Overrun::Bytes));
    }

    #[test]
    fn acknowledgements_wait_a_little_and_tell_of_connections() {
        let (mut inbox, now) = (inbox(), Time::from_secs(1));
        assert_eq!(inbox.ack_due(now), None);
        for number in 0..CHUNKS {
            assert!(inbox.ack_due(now) != Some(now));
            inbox.count_blocks(now, 5, u64::from(number) + 1);
            take(&mut inbox, number.into(), b"x").unwrap();
        }
        assert_eq!(inbox.ack_due(now), Some(now));
        assert_eq!(inbox.ack(9, 2_000).receipts, [(5, u64::from(CHUNKS))]);
        assert_eq!(inbox.ack_due(now), None);
        assert_eq!(inbox.ack(9, 2_000).receipts, [(5, u64::from(CHUNKS))], "one may be lost");
        assert_eq!(inbox.ack(9, 2_000).receipts, []);
    }

    #[test]
    fn a_patient_end_waits_for_what_goes_anyway_but_not_with_the_end() {
        let (mut inbox, now) = (inbox(), Time::from_secs(1));
        inbox.delay_acks();
        for number in 0..2 * u64::from(CHUNKS) {
            inbox.count_blocks(now, 5, number + 1);
            take(&mut inbox, number, b"x").unwrap();
        }
        assert_eq!(inbox.ack_due(now), Some(now + COALESCED_DELAY));
        inbox.count_blocks(now, 5, 9);
        inbox.chunk(now, PLACE, 8, None).unwrap();
        assert_eq!(inbox.ack_due(now), Some(now));
    }
}
