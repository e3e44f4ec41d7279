//! Loss detection of a connection. A *debt* is a block that was sent over the connection, needs an
//! acknowledgement and is not acknowledged yet.
//!
//! A connection delivers its bytes in order or not at all, so a count of received blocks identifies
//! them. If none are acknowledged for a while, the sender treats all debts as lost.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_multipath::{SmoothedRtt, Time};

/// Patience with a connection before a round trip has been measured. The patience is the time
/// without progress after which a connection counts as silent.
const UNKNOWN: Duration = Duration::from_secs(1);
/// Minimum patience with a connection.
const LEAST: Duration = Duration::from_millis(400);
/// Multiplier of the patience while no later block has arrived over any connection: the whole path
/// may be slow then.
const ALONE: u32 = 3;
/// Maximum patience with a connection.
const MOST: Duration = Duration::from_secs(15);

/// Returns the patience with a connection whose round-trip time is `trip`: its retransmission
/// timeout (RFC 6298, section 2), limited to the range from [`LEAST`] to [`MOST`].
pub(crate) fn patience(trip: &SmoothedRtt) -> Duration {
    trip.rto(Duration::ZERO).unwrap_or(UNKNOWN).clamp(LEAST, MOST)
}

/// The debts and timers of a connection, or of one exchange if the connection's exchanges are
/// independent.
#[derive(Debug)]
pub(crate) struct Carrier {
    /// The connection's index in the link's `places`; `None` once the connection is over and only
    /// its debts are left.
    pub(crate) place: Option<usize>,
    /// Number of blocks sent over the connection.
    sent: u64,
    /// Number of blocks received over the connection.
    pub(crate) came: u64,
    owed: VecDeque<Debt>,
    /// Time at which a debt was last acknowledged, or at which a debt was added while there were
    /// none.
    progress: Time,
    trip: SmoothedRtt,
    /// Time since which the connection counts as silent; `None` if it does not.
    silent: Option<Time>,
    /// Number of times that the connection counted as silent although it worked, at most 4. Each
    /// doubles the patience.
    mistakes: u32,
    /// Time at which bytes were last received over the connection, or at which it began.
    heard: Time,
    /// Latest time at which the other end sends the expected bytes; `None` if none are expected.
    awaited: Option<Time>,
    /// Time for which the other end may delay an answer.
    hold: Duration,
}

#[derive(Debug)]
struct Debt {
    block: u64,
    chunk: Option<u64>,
    sent: Time,
}

impl Carrier {
    /// Creates the carrier of the connection at `place`. `trip` is the round-trip time known so
    /// far, and `hold` the time for which the other end may delay an answer.
    pub(crate) fn new(now: Time, place: usize, trip: SmoothedRtt, hold: Duration) -> Carrier {
        Carrier {
            place: Some(place),
            sent: 0,
            came: 0,
            owed: VecDeque::new(),
            progress: now,
            trip,
            silent: None,
            mistakes: 0,
            heard: now,
            awaited: None,
            hold,
        }
    }

    /// Records that a block was sent. `chunk` is its chunk, if it has one, and `asks` is whether
    /// it needs an acknowledgement.
    pub(crate) fn sent(&mut self, now: Time, chunk: Option<u64>, asks: bool) {
        self.sent += 1;
        if asks {
            if self.owed.is_empty() {
                self.progress = now;
            }
            self.owed.push_back(Debt { block: self.sent, chunk, sent: now });
        }
    }

    /// Records that the other end has received the first `blocks` blocks of this connection.
    /// Returns the time at which the last newly acknowledged one was sent.
    pub(crate) fn receipt(&mut self, now: Time, blocks: u64) -> Option<Time> {
        let mut last = None;
        while let Some(owed) = self.owed.pop_front_if(|owed| owed.block <= blocks.min(self.sent)) {
            last = Some(owed.sent);
        }
        let sent = last?;
        self.progress = now;
        self.trip.sample(now.since(sent));
        if self.silent.take().is_some() {
            self.mistakes = (self.mistakes + 1).min(4);
        }
        Some(sent)
    }

    /// Records that bytes were received. If `more` is given, further bytes must arrive within this
    /// time.
    pub(crate) fn note_activity(&mut self, now: Time, more: Option<Duration>) {
        self.heard = now;
        self.awaited = more.map(|pause| now + pause);
    }

    /// Records that the connection is over, so that only its debts are left.
    pub(crate) fn over(&mut self) {
        (self.place, self.awaited) = (None, None);
    }

    /// Records that a request was sent which the other end has to answer over this connection.
    pub(crate) fn asked(&mut self, now: Time) {
        self.awaited = Some(self.awaited.unwrap_or(now + self.hold));
    }

    /// Returns the time at which bytes were last received over the connection, or at which it
    /// began.
    pub(crate) fn heard(&self) -> Time {
        self.heard
    }

    /// Returns whether an answer over the connection is expected.
    pub(crate) fn is_asked(&self) -> bool {
        self.awaited.is_some()
    }

    /// Returns the time since which the connection counts as silent; `None` if it does not.
    pub(crate) fn silent(&self) -> Option<Time> {
        self.silent
    }

    /// Returns the connection's round-trip time.
    pub(crate) fn trip(&self) -> &SmoothedRtt {
        &self.trip
    }

    /// Returns whether the connection has no debts.
    pub(crate) fn is_even(&self) -> bool {
        self.owed.is_empty()
    }

    /// Removes debts whose chunks have arrived, over this connection or another one. Returns the
    /// time at which the last of these was sent.
    pub(crate) fn settle(&mut self, now: Time, has_arrived: impl Fn(u64) -> bool) -> Option<Time> {
        let mut last = None;
        let paid = |owed: &mut Debt| owed.chunk.is_some_and(&has_arrived);
        while let Some(owed) = self.owed.pop_front_if(paid) {
            (self.progress, last) = (now, Some(owed.sent));
        }
        last
    }

    /// Returns the time without progress after which the connection counts as silent.
    pub(crate) fn patience(&self) -> Duration {
        (patience(&self.trip) * (1 << self.mistakes)).min(MOST)
    }

    /// Returns the time at which the connection will count as silent; `None` if it already does, or
    /// if neither an acknowledgement nor an answer is expected. `later` is the send time of the
    /// most recently sent block that has arrived over any connection. As in RFC 8985, a block sent
    /// before it is late.
    pub(crate) fn deadline(&self, later: Time) -> Option<Time> {
        if self.silent.is_some() {
            return None;
        }
        let owes = self.owed.front().map(|owed| {
            let times = if owed.sent < later { 1 } else { ALONE };
            self.progress + self.hold + self.patience() * times
        });
        let answers = self.awaited.map(|since| since + self.patience() * ALONE);
        [owes, answers].into_iter().flatten().min()
    }

    /// Returns whether the connection has become silent since the last call. If so, the chunks in
    /// [`Carrier::debts`] have to be sent again.
    pub(crate) fn falls_silent(&mut self, now: Time, later: Time) -> bool {
        let silent = self.deadline(later).is_some_and(|due| now >= due);
        if silent {
            self.silent = Some(now);
        }
        silent
    }

    /// Returns the chunks that were sent over the connection and are not acknowledged.
    pub(crate) fn debts(&self) -> impl Iterator<Item = u64> + '_ {
        self.owed.iter().filter_map(|owed| owed.chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn a_count_tells_which_blocks_came_and_how_long_they_took() {
        let mut carrier = Carrier::new(at(0), 0, SmoothedRtt::default(), Duration::ZERO);
        carrier.sent(at(10), Some(4), true);
        carrier.sent(at(20), None, false);
        carrier.sent(at(30), Some(7), true);
        assert_eq!(carrier.receipt(at(110), 2), Some(at(10)));
        assert_eq!(carrier.debts().collect::<Vec<_>>(), [7]);
        assert_eq!(carrier.receipt(at(111), 2), None);
        assert_eq!(carrier.receipt(at(120), 99), Some(at(30)));
        assert!(carrier.is_even() && carrier.deadline(Time::ZERO).is_none());
    }

    #[test]
    fn silence_is_counted_from_the_last_progress() {
        let mut carrier = Carrier::new(at(0), 0, SmoothedRtt::default(), Duration::ZERO);
        carrier.sent(at(1_000), Some(0), true);
        carrier.sent(at(1_100), Some(1), true);
        carrier.receipt(at(2_400), 1);
        // The round trip is 1.4 s, and varies by .7 s.
        let (alone, due) = (carrier.deadline(at(1_100)).unwrap(), at(2_400 + 1_400 + 2_800));
        assert_eq!(carrier.deadline(at(1_101)), Some(due));
        assert_eq!(alone, at(2_400) + carrier.patience() * ALONE);
        assert!(!carrier.falls_silent(due, at(1_100)));
        assert!(carrier.falls_silent(due, at(1_101)) && !carrier.falls_silent(alone, at(1_101)));
        assert_eq!(carrier.debts().collect::<Vec<_>>(), [1]);
        let patience = carrier.patience();
        carrier.receipt(due + Duration::from_secs(9), 2);
        assert!(carrier.silent().is_none() && carrier.patience() > patience, "it was a mistake");
    }

    #[test]
    fn what_others_brought_is_no_debt() {
        let mut carrier = Carrier::new(at(0), 0, SmoothedRtt::default(), Duration::ZERO);
        carrier.sent(at(0), Some(0), true);
        carrier.sent(at(0), Some(1), true);
        carrier.settle(at(900), |chunk| chunk == 0);
        assert_eq!(carrier.deadline(at(1)), Some(at(900) + UNKNOWN));
        carrier.settle(at(900), |_| true);
        assert!(carrier.is_even());
    }

    #[test]
    fn an_answer_that_does_not_come_is_silence_too() {
        let mut carrier = Carrier::new(at(0), 0, SmoothedRtt::default(), Duration::ZERO);
        carrier.asked(at(100));
        carrier.asked(at(900));
        assert_eq!(carrier.deadline(at(0)), Some(at(100) + UNKNOWN * ALONE));
        carrier.note_activity(at(950), None);
        assert_eq!((carrier.deadline(at(0)), carrier.heard()), (None, at(950)));
        carrier.note_activity(at(960), Some(Duration::ZERO));
        assert_eq!(carrier.deadline(at(0)), Some(at(960) + UNKNOWN * ALONE));
        carrier.over();
        assert_eq!(carrier.deadline(at(0)), None);
    }
}
