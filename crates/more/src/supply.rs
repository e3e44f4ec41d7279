//! The reply blocks of a stream, with which an exit replies to its client: how the client sends
//! new blocks, and the exit's stock.
//!
//! Each reply reports how many blocks the exit lacks, and the highest sequence number of the
//! forward packets that have arrived. The client assumes that blocks in later packets are still in
//! flight.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_multipath::{LinkView, Time};

use crate::sphinx::ReplyBlock;
use crate::tags::LIFETIME;
use crate::wire::ReplyContent;

/// Number of reply blocks that an exit keeps in reserve when it has no data to send, for TCP's
/// initial window (RFC 6928) and two acknowledgements.
const RESERVE: i64 = 12;
/// Maximum number of reply blocks that an exit stores for a stream.
const MAX_STOCK: usize = 256;
/// Maximum number of reply blocks that a client makes for each reply that has arrived. More than
/// one is necessary because packets get lost, and an exit without blocks cannot request more. Four
/// suffice if half of the packets are lost on the six links of both directions.
const PER_REPLY: u64 = 4;
/// Number of reply blocks that a client makes before the first reply, in addition to the reserve.
const FIRST: u64 = 36;
/// Maximum number of packets in flight for which a client remembers how many reply blocks they
/// contain.
const MAX_IN_FLIGHT: usize = 256;
/// Time without a reply after which a client sends unrequested reply blocks. The time doubles
/// after each packet with such blocks.
const PROBE: Duration = Duration::from_millis(250);
/// Maximum time between two packets with unrequested reply blocks.
const PROBE_MAX: Duration = Duration::from_secs(16);
/// Maximum number of unrequested reply blocks in a packet.
const PROBE_BLOCKS: i64 = 2;

/// A client's account of the reply blocks that the exit of a stream has and needs.
#[derive(Debug)]
pub(crate) struct Supply {
    /// Sequence number of the next forward packet (a packet from client to exit).
    number: u32,
    /// Number of reply blocks that the exit lacks, according to its last report.
    lacking: i64,
    /// Packets that the exit had not received at its last report. Each entry is a packet's
    /// sequence number, and the count of reply blocks in the packet.
    in_flight: VecDeque<(u32, usize)>,
    serial: Option<u32>,
    /// Number of reply blocks that the client may still make; see [`PER_REPLY`].
    allowance: u64,
    probe_at: Time,
    interval: Duration,
}

impl Supply {
    /// Creates the account for a new stream, whose exit has no reply blocks yet.
    pub(crate) fn new(now: Time) -> Supply {
        Supply {
            number: 0,
            lacking: RESERVE,
            in_flight: VecDeque::new(),
            serial: None,
            allowance: RESERVE as u64 + FIRST,
            probe_at: now + PROBE,
            interval: PROBE,
        }
    }

    /// Returns the number of reply blocks to send now. The exit needs the blocks that it lacked at
    /// its last report, and one to acknowledge each of the `unacked` segments in flight. Blocks
    /// that are in flight already are subtracted.
    pub(crate) fn deficit(&self, unacked: u32) -> usize {
        let on_their_way: usize = self.in_flight.iter().map(|(_, blocks)| blocks).sum();
        let lacking = (self.lacking + i64::from(unacked)).clamp(0, MAX_STOCK as i64) as u64;
        lacking.saturating_sub(on_their_way as u64).min(self.allowance) as usize
    }

    /// Records a forward packet with `blocks` reply blocks. Returns the packet's sequence number.
    pub(crate) fn sent(&mut self, blocks: usize) -> u32 {
        let number = self.number;
        self.number = number.wrapping_add(1);
        self.allowance = self.allowance.saturating_sub(blocks as u64);
        if blocks > 0 {
            self.in_flight.push_back((number, blocks));
            let excess = self.in_flight.len().saturating_sub(MAX_IN_FLIGHT);
            self.in_flight.drain(..excess);
        }
        number
    }

    /// Handles the exit's report on reply blocks, which each reply contains. Late reports are
    /// ignored.
    pub(crate) fn report(&mut self, now: Time, reply: &ReplyContent) {
        self.allowance += PER_REPLY;
        self.interval = PROBE;
        self.probe_at = now + PROBE;
        let is_late = |serial: u32| reply.serial.wrapping_sub(serial) as i32 <= 0;
        if self.serial.is_some_and(is_late) {
            return;
        }
        self.serial = Some(reply.serial);
        self.lacking = i64::from(reply.wanted);
        self.in_flight.retain(|(number, _)| number.wrapping_sub(reply.seen) as i32 > 0);
    }

    /// Returns true if it is time to send unrequested reply blocks, because no reply has arrived
    /// for the probe interval. The blocks in flight then count as lost, and the next interval
    /// begins.
    pub(crate) fn probe(&mut self, now: Time) -> bool {
        if now < self.probe_at {
            return false;
        }
        self.in_flight.clear();
        self.lacking = self.lacking.max(PROBE_BLOCKS);
        self.allowance = self.allowance.max(PROBE_BLOCKS as u64);
        self.interval = (2 * self.interval).min(PROBE_MAX);
        self.probe_at = now + self.interval;
        true
    }

    /// Returns the time at which the client sends unrequested reply blocks, unless a reply arrives
    /// earlier.
    pub(crate) fn next_timeout(&self) -> Time {
        self.probe_at
    }
}

/// An exit's reply blocks for a stream, in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    /// The reply blocks, each with the last tick (30 s) in which it may be used.
    blocks: VecDeque<(u64, ReplyBlock)>,
    seen: Option<u32>,
    serial: u32,
}

impl Stock {
    /// Adds the reply blocks of the forward packet with the sequence number `number`, which
    /// arrived in the tick `now`. Beyond [`MAX_STOCK`] blocks, drops the oldest.
    pub(crate) fn add(&mut self, now: u64, number: u32, blocks: Vec<ReplyBlock>) {
        let is_higher = |seen: u32| number.wrapping_sub(seen) as i32 > 0;
        if self.seen.is_none_or(is_higher) {
            self.seen = Some(number);
        }
        // A client makes a block in the tick of the block's arrival, or in the tick before.
        self.blocks.extend(blocks.into_iter().map(|block| (now + LIFETIME - 2, block)));
        let excess = self.blocks.len().saturating_sub(MAX_STOCK);
        self.blocks.drain(..excess);
    }

    /// Removes expired reply blocks from the front. Returns true if no block can be used at the
    /// tick `now`.
    pub(crate) fn is_empty(&mut self, now: u64) -> bool {
        while self.blocks.front().is_some_and(|(last, _)| *last < now) {
            self.blocks.pop_front();
        }
        self.blocks.is_empty()
    }

    /// Returns true if there is no reply block at all, valid or expired.
    pub(crate) fn is_spent(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Removes the oldest reply block, and returns it with the content of the reply that uses it.
    /// This content has no segment yet. Returns `None` if there is no block. `tcp` is the state of
    /// the stream's connection.
    pub(crate) fn take(&mut self, tcp: &LinkView) -> Option<(ReplyBlock, ReplyContent)> {
        let (_, block) = self.blocks.pop_front()?;
        let serial = self.serial;
        self.serial = serial.wrapping_add(1);
        let (seen, wanted) = (self.seen.unwrap_or_default(), self.wanted(tcp));
        Some((block, ReplyContent { serial, seen, wanted, segment: None }))
    }

    /// Returns the number of reply blocks that the exit lacks; negative if it has more than it
    /// needs. It needs blocks for three purposes: for the unsent segments that twice the
    /// congestion window allows, for retransmissions (an eighth of the segments in flight), and
    /// for the reserve.
    fn wanted(&self, tcp: &LinkView) -> i16 {
        let waiting = i64::from(tcp.notsent.div_ceil(tcp.mss.max(1)));
        let window = 2 * i64::from(tcp.snd_cwnd);
        let needed = waiting.min(window) + i64::from(tcp.unacked / 8) + RESERVE;
        let lacking = needed.min(MAX_STOCK as i64) - self.blocks.len() as i64;
        lacking as i16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::from_secs(1);

    fn report(serial: u32, seen: u32, wanted: i16) -> ReplyContent {
        ReplyContent { serial, seen, wanted, segment: None }
    }

    fn blocks(count: usize) -> Vec<ReplyBlock> {
        vec![ReplyBlock(Box::default()); count]
    }

    #[test]
    fn a_client_sends_what_the_exit_lacks_less_what_is_on_its_way() {
        let mut supply = Supply::new(START);
        assert_eq!(supply.deficit(0), 12);
        for number in 0..6 {
            assert_eq!(supply.sent(2), number);
        }
        assert_eq!(supply.deficit(0), 0);
        supply.report(START, &report(0, 3, 10));
        assert_eq!(supply.deficit(0), 10 - 4, "packets 4 and 5 are on their way");
        supply.report(START, &report(2, 5, -3));
        assert_eq!(supply.deficit(0), 0);
        supply.report(START, &report(1, 4, 200));
        assert_eq!(supply.deficit(0), 0, "an old report changes nothing");
    }

    #[test]
    fn an_exit_cannot_request_more_blocks_than_its_replies_allow() {
        let mut supply = Supply::new(START);
        supply.sent(12);
        let mut made = 12;
        for serial in 0..100 {
            supply.report(START, &report(serial, serial, i16::MAX));
            let deficit = supply.deficit(0);
            made += deficit;
            supply.sent(deficit);
        }
        assert_eq!(made as u64, RESERVE as u64 + FIRST + 100 * PER_REPLY);
    }

    #[test]
    fn segments_in_flight_need_a_block_each_for_their_acknowledgements() {
        let mut supply = Supply::new(START);
        supply.report(START, &report(0, 0, -2));
        assert_eq!(supply.deficit(2), 0);
        assert_eq!(supply.deficit(5), 3);
        supply.sent(2);
        assert_eq!(supply.deficit(5), 1);
    }

    #[test]
    fn silence_is_answered_with_blocks_and_less_often_each_time() {
        let mut supply = Supply::new(START);
        supply.sent(12);
        let mut at = Vec::new();
        let mut now = START;
        for _ in 0..9 {
            assert!(!supply.probe(now));
            now = supply.next_timeout();
            assert!(supply.probe(now));
            assert!(supply.deficit(0) >= 2, "what is on its way counts as lost");
            supply.sent(supply.deficit(0));
            at.push(now.since(START).as_millis());
        }
        assert_eq!(at, [250, 750, 1_750, 3_750, 7_750, 15_750, 31_750, 47_750, 63_750]);
        supply.report(now, &report(0, 0, 0));
        assert_eq!(supply.next_timeout(), now + PROBE);
    }

    #[test]
    fn a_stock_is_bounded_and_expires() {
        let mut stock = Stock::default();
        stock.add(7, 0, blocks(MAX_STOCK + 5));
        assert_eq!(stock.blocks.len(), MAX_STOCK);
        assert!(!stock.is_empty(7 + LIFETIME - 2));
        assert!(stock.is_empty(7 + LIFETIME - 1));
    }

    #[test]
    fn an_exit_wants_blocks_for_what_waits_and_fits_its_window() {
        let mut stock = Stock::default();
        stock.add(1, 4, blocks(3));
        stock.add(1, 2, blocks(3));
        let idle = LinkView { mss: 100, snd_cwnd: 10, ..LinkView::default() };
        let (_, head) = stock.take(&idle).unwrap();
        assert_eq!((head.serial, head.seen, head.wanted), (0, 4, 12 - 5));
        let (_, head) = stock.take(&LinkView { notsent: 501, ..idle }).unwrap();
        assert_eq!((head.serial, head.wanted), (1, 12 + 6 - 4));
        let (_, head) = stock.take(&LinkView { notsent: 50_000, ..idle }).unwrap();
        assert_eq!(head.wanted, 12 + 20 - 3);
    }
}
