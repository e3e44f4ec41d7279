//! Loss detection and recovery of a connection. A block is *in flight* if it was sent over the
//! connection, needs an acknowledgement and is not acknowledged yet.
//!
//! A connection (TCP) delivers its bytes in order or not at all. So the count of blocks that the
//! other end received shows which blocks have arrived. If no block is acknowledged for a while,
//! the sender treats all blocks in flight as lost.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_multipath::{SmoothedRtt, Time};

/// Round-trip time that is assumed before one was measured.
pub(crate) const DEFAULT_RTT: Duration = Duration::from_millis(100);
/// Retransmission timeout before a round trip has been measured.
const INITIAL_RTO: Duration = Duration::from_secs(1);
/// Minimum retransmission timeout.
const MIN_RTO: Duration = Duration::from_millis(400);
/// Maximum retransmission timeout.
const MAX_RTO: Duration = Duration::from_secs(15);
/// Factor that lengthens a connection's timeout if the whole network may be slow, not only this
/// connection. It applies to a block in flight if no block that was sent later has arrived over
/// any connection. It also applies to an expected answer.
const ALONE: u32 = 3;
/// Maximum number of times that the timeout of a connection is doubled after spurious timeouts.
const MAX_BACKOFF: u32 = 4;

/// Returns the retransmission timeout of a connection with the round-trip time `rtt` (RFC 6298,
/// section 2), limited to the range from [`MIN_RTO`] to [`MAX_RTO`].
fn rto(rtt: &SmoothedRtt) -> Duration {
    rtt.rto(Duration::ZERO).unwrap_or(INITIAL_RTO).clamp(MIN_RTO, MAX_RTO)
}

/// Loss recovery of a connection: the blocks in flight, and the timers. If the connection's
/// exchanges (requests with answers) are independent, the state is that of one exchange.
#[derive(Debug)]
pub(crate) struct Recovery {
    /// Number of blocks sent over the connection.
    sent: u64,
    /// Number of blocks received over the connection.
    received: u64,
    in_flight: VecDeque<SentBlock>,
    /// Time at which a block was last acknowledged, or at which a block was sent while no other
    /// was in flight.
    progress: Time,
    rtt: SmoothedRtt,
    /// Time at which the connection became silent: it had made no progress for longer than its
    /// timeout. `None` if it is not silent.
    silent_since: Option<Time>,
    /// Number of spurious timeouts, at most [`MAX_BACKOFF`]. A timeout is spurious if the
    /// connection counted as silent although it worked. Each spurious timeout doubles the timeout.
    spurious: u32,
    /// Time at which bytes were last received over the connection, or at which it began.
    last_received: Time,
    /// Latest time at which the other end should send the expected bytes; `None` if none are
    /// expected. After this time, the timeout begins.
    answer_due: Option<Time>,
    /// Time for which the other end may hold a request before it answers.
    max_delay: Duration,
}

/// A block that was sent over the connection and is not acknowledged.
#[derive(Debug)]
struct SentBlock {
    number: u64,
    chunk: Option<u64>,
    sent: Time,
}

impl Recovery {
    /// Creates the state of a new connection. `rtt` is the round-trip time known so far, and
    /// `max_delay` the time for which the other end may delay an answer.
    pub(crate) fn new(now: Time, rtt: SmoothedRtt, max_delay: Duration) -> Recovery {
        Recovery {
            sent: 0,
            received: 0,
            in_flight: VecDeque::new(),
            progress: now,
            rtt,
            silent_since: None,
            spurious: 0,
            last_received: now,
            answer_due: None,
            max_delay,
        }
    }

    /// Records that a block was sent. `chunk` is the sequence number of the chunk in it, if it has
    /// one. `ack_eliciting` is whether the block needs an acknowledgement.
    pub(crate) fn record_sent(&mut self, now: Time, chunk: Option<u64>, ack_eliciting: bool) {
        self.sent += 1;
        if ack_eliciting {
            if self.in_flight.is_empty() {
                self.progress = now;
            }
            self.in_flight.push_back(SentBlock { number: self.sent, chunk, sent: now });
        }
    }

    /// Counts a received block. Returns the number of blocks received so far.
    pub(crate) fn count_received(&mut self) -> u64 {
        self.received += 1;
        self.received
    }

    /// Records that the other end has received the first `blocks` blocks of this connection.
    /// Returns the time at which the last newly acknowledged block was sent; `None` if none is
    /// newly acknowledged.
    pub(crate) fn acknowledge(&mut self, now: Time, blocks: u64) -> Option<Time> {
        let (mut last, blocks) = (None, blocks.min(self.sent));
        while let Some(block) = self.in_flight.pop_front_if(|block| block.number <= blocks) {
            last = Some(block.sent);
        }
        let sent = last?;
        self.progress = now;
        self.rtt.sample(now.since(sent));
        if self.silent_since.take().is_some() {
            self.spurious = (self.spurious + 1).min(MAX_BACKOFF);
        }
        Some(sent)
    }

    /// Records that bytes were received. `more` is the time within which the other end sends
    /// further bytes; `None` if no further bytes are expected.
    pub(crate) fn note_activity(&mut self, now: Time, more: Option<Duration>) {
        self.last_received = now;
        self.answer_due = more.map(|pause| now + pause);
    }

    /// Records that the connection was closed: no answer is expected any more, but blocks in
    /// flight may still be acknowledged.
    pub(crate) fn close(&mut self) {
        self.answer_due = None;
    }

    /// Records that the other end has to answer a message that was sent over this connection.
    pub(crate) fn expect_answer(&mut self, now: Time) {
        self.answer_due = Some(self.answer_due.unwrap_or(now + self.max_delay));
    }

    /// Returns whether the other end still has to answer a request that was sent over this
    /// connection.
    pub(crate) fn expects_answer(&self) -> bool {
        self.answer_due.is_some()
    }

    /// Returns the time at which bytes were last received over the connection, or at which it
    /// began.
    pub(crate) fn last_received(&self) -> Time {
        self.last_received
    }

    /// Returns the time since which the connection counts as silent; `None` if it does not.
    pub(crate) fn silent_since(&self) -> Option<Time> {
        self.silent_since
    }

    /// Returns the time at which a silent connection counts as dead; `None` if it is not silent.
    pub(crate) fn dead_at(&self) -> Option<Time> {
        Some(self.silent_since? + self.timeout())
    }

    /// Returns the connection's smoothed round-trip time; `None` if none was measured.
    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.rtt.srtt()
    }

    /// Returns whether blocks that need an acknowledgement were sent and are not acknowledged yet.
    pub(crate) fn has_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Removes blocks in flight whose chunks have arrived, over this connection or another one.
    /// Returns the time at which the last removed block was sent; `None` if none was removed.
    pub(crate) fn remove_arrived(
        &mut self,
        now: Time,
        has_arrived: impl Fn(u64) -> bool,
    ) -> Option<Time> {
        let mut last = None;
        let arrived = |block: &mut SentBlock| block.chunk.is_some_and(&has_arrived);
        while let Some(block) = self.in_flight.pop_front_if(arrived) {
            (self.progress, last) = (now, Some(block.sent));
        }
        last
    }

    /// Returns the time without progress after which the connection counts as silent.
    fn timeout(&self) -> Duration {
        (rto(&self.rtt) * (1 << self.spurious)).min(MAX_RTO)
    }

    /// Returns the time at which the connection will count as silent. Returns `None` if the
    /// connection already counts as silent, or if neither an acknowledgement nor an answer is
    /// expected. `latest_arrival` is the send time of the most recently sent block that has
    /// arrived over any connection. As in RFC 8985, a block is late if it was sent before
    /// `latest_arrival`.
    pub(crate) fn deadline(&self, latest_arrival: Time) -> Option<Time> {
        if self.silent_since.is_some() {
            return None;
        }
        let ack = self.in_flight.front().map(|block| {
            let times = if block.sent < latest_arrival { 1 } else { ALONE };
            self.progress + self.max_delay + self.timeout() * times
        });
        let answer = self.answer_due.map(|since| since + self.timeout() * ALONE);
        [ack, answer].into_iter().flatten().min()
    }

    /// Returns whether the connection has become silent since the last call. If so, the chunks in
    /// [`Recovery::chunks`] have to be sent again.
    pub(crate) fn detect_silence(&mut self, now: Time, latest_arrival: Time) -> bool {
        let silent = self.deadline(latest_arrival).is_some_and(|due| now >= due);
        if silent {
            self.silent_since = Some(now);
        }
        silent
    }

    /// Returns the sequence numbers of the chunks (parts of the stream) in the blocks in flight.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = u64> + '_ {
        self.in_flight.iter().filter_map(|block| block.chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn a_count_identifies_the_acknowledged_blocks_and_their_round_trips() {
        let mut recovery = Recovery::new(at(0), SmoothedRtt::default(), Duration::ZERO);
        recovery.record_sent(at(10), Some(4), true);
        recovery.record_sent(at(20), None, false);
        recovery.record_sent(at(30), Some(7), true);
        assert_eq!(recovery.acknowledge(at(110), 2), Some(at(10)));
        assert_eq!(recovery.chunks().collect::<Vec<_>>(), [7]);
        assert_eq!(recovery.acknowledge(at(111), 2), None);
        assert_eq!(recovery.acknowledge(at(120), 99), Some(at(30)));
        assert!(!recovery.has_in_flight() && recovery.deadline(Time::ZERO).is_none());
    }

    #[test]
    fn silence_is_counted_from_the_last_progress() {
        let mut recovery = Recovery::new(at(0), SmoothedRtt::default(), Duration::ZERO);
        recovery.record_sent(at(1_000), Some(0), true);
        recovery.record_sent(at(1_100), Some(1), true);
        recovery.acknowledge(at(2_400), 1);
        // The round trip is 1.4 s, and varies by .7 s.
        let (alone, due) = (recovery.deadline(at(1_100)).unwrap(), at(2_400 + 1_400 + 2_800));
        assert_eq!(recovery.deadline(at(1_101)), Some(due));
        assert_eq!(alone, at(2_400) + recovery.timeout() * ALONE);
        assert!(!recovery.detect_silence(due, at(1_100)));
        assert!(
            recovery.detect_silence(due, at(1_101)) && !recovery.detect_silence(alone, at(1_101))
        );
        assert_eq!(recovery.chunks().collect::<Vec<_>>(), [1]);
        let timeout = recovery.timeout();
        recovery.acknowledge(due + Duration::from_secs(9), 2);
        assert!(
            recovery.silent_since().is_none() && recovery.timeout() > timeout,
            "it was spurious"
        );
    }

    #[test]
    fn a_chunk_that_arrived_over_another_connection_is_not_in_flight() {
        let mut recovery = Recovery::new(at(0), SmoothedRtt::default(), Duration::ZERO);
        recovery.record_sent(at(0), Some(0), true);
        recovery.record_sent(at(0), Some(1), true);
        recovery.remove_arrived(at(900), |chunk| chunk == 0);
        assert_eq!(recovery.deadline(at(1)), Some(at(900) + INITIAL_RTO));
        recovery.remove_arrived(at(900), |_| true);
        assert!(!recovery.has_in_flight());
    }

    #[test]
    fn a_missing_answer_is_silence_too() {
        let mut recovery = Recovery::new(at(0), SmoothedRtt::default(), Duration::ZERO);
        recovery.expect_answer(at(100));
        recovery.expect_answer(at(900));
        assert_eq!(recovery.deadline(at(0)), Some(at(100) + INITIAL_RTO * ALONE));
        recovery.note_activity(at(950), None);
        assert_eq!((recovery.deadline(at(0)), recovery.last_received()), (None, at(950)));
        recovery.note_activity(at(960), Some(Duration::ZERO));
        assert_eq!(recovery.deadline(at(0)), Some(at(960) + INITIAL_RTO * ALONE));
        recovery.close();
        assert_eq!(recovery.deadline(at(0)), None);
    }
}
