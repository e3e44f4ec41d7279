//! A connection as what it owes: blocks that went by it and of which nothing has been heard.
//!
//! A connection brings its bytes in order or not at all. So a count of the blocks that came by it
//! tells which ones, and one that brings none of them for a while has lost them all, as far as its
//! sender can know.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_multipath::Time;

/// Before a round trip was measured.
const UNKNOWN: Duration = Duration::from_secs(1);
/// The least and the greatest patience with a connection.
const LEAST: Duration = Duration::from_millis(400);
/// Patience is so many times as long while nothing that was sent later has come by another
/// connection either: then it may be the line that is slow.
const ALONE: u32 = 3;
const MOST: Duration = Duration::from_secs(15);

/// Round-trip times, smoothed (RFC 6298).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrip {
    smooth: Option<Duration>,
    varies: Duration,
}

impl RoundTrip {
    pub(crate) fn measured(&mut self, sample: Duration) {
        let Some(smooth) = self.smooth else {
            (self.smooth, self.varies) = (Some(sample), sample / 2);
            return;
        };
        self.varies = (self.varies * 3 + smooth.abs_diff(sample)) / 4;
        self.smooth = Some((smooth * 7 + sample) / 8);
    }

    pub(crate) fn smooth(&self) -> Option<Duration> {
        self.smooth
    }

    /// How long to wait for an answer.
    pub(crate) fn patience(&self) -> Duration {
        let patience = self.smooth.map_or(UNKNOWN, |smooth| smooth + 4 * self.varies);
        patience.clamp(LEAST, MOST)
    }
}

/// One connection, or one exchange of a connection whose exchanges stand alone.
#[derive(Debug)]
pub(crate) struct Carrier {
    /// Where it stands; `None` once it is over and only its debts are left.
    pub(crate) place: Option<usize>,
    /// Blocks that went by it, and those that came.
    sent: u64,
    pub(crate) came: u64,
    owed: VecDeque<Debt>,
    /// When it last brought anything that it owed.
    progress: Time,
    trip: RoundTrip,
    /// Since when it is silent.
    silent: Option<Time>,
    /// How often it was held for silent and was not.
    mistakes: u32,
    /// When bytes came by it, and since when some are awaited that are late.
    heard: Time,
    awaited: Option<Time>,
    /// How long the other end may keep an answer back.
    hold: Duration,
}

#[derive(Debug)]
struct Debt {
    block: u64,
    chunk: Option<u64>,
    sent: Time,
}

impl Carrier {
    /// A new one, with what is known of round trips, and how long the other end may keep an answer
    /// back.
    pub(crate) fn new(now: Time, place: usize, trip: RoundTrip, hold: Duration) -> Carrier {
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

    /// A block went by it, with this chunk; `asks` is whether it is to be acknowledged.
    pub(crate) fn sent(&mut self, now: Time, chunk: Option<u64>, asks: bool) {
        self.sent += 1;
        if asks {
            if self.owed.is_empty() {
                self.progress = now;
            }
            self.owed.push_back(Debt { block: self.sent, chunk, sent: now });
        }
    }

    /// So many of its blocks have come: when the last of them was sent, if any is new.
    pub(crate) fn receipt(&mut self, now: Time, blocks: u64) -> Option<Time> {
        let mut last = None;
        while let Some(owed) = self.owed.pop_front_if(|owed| owed.block <= blocks.min(self.sent)) {
            last = Some(owed.sent);
        }
        let sent = last?;
        self.progress = now;
        self.trip.measured(now.since(sent));
        if self.silent.take().is_some() {
            self.mistakes = (self.mistakes + 1).min(4);
        }
        Some(sent)
    }

    /// Bytes came by it; others have to follow after this pause at most, if that is said.
    pub(crate) fn hears(&mut self, now: Time, more: Option<Duration>) {
        self.heard = now;
        self.awaited = more.map(|pause| now + pause);
    }

    /// It stands nowhere any more: only its debts are left.
    pub(crate) fn over(&mut self) {
        (self.place, self.awaited) = (None, None);
    }

    /// Something was asked that is to be answered by it.
    pub(crate) fn asked(&mut self, now: Time) {
        self.awaited = Some(self.awaited.unwrap_or(now + self.hold));
    }

    /// When bytes came by it last, or it began.
    pub(crate) fn heard(&self) -> Time {
        self.heard
    }

    /// Whether an answer by it is awaited.
    pub(crate) fn is_asked(&self) -> bool {
        self.awaited.is_some()
    }

    /// Since when it is silent.
    pub(crate) fn silent(&self) -> Option<Time> {
        self.silent
    }

    /// Its round trips.
    pub(crate) fn trip(&self) -> &RoundTrip {
        &self.trip
    }

    /// Whether it owes nothing.
    pub(crate) fn is_even(&self) -> bool {
        self.owed.is_empty()
    }

    /// Forgets debts whose chunks have come, by it or by others: when the last was sent.
    pub(crate) fn settle(&mut self, now: Time, has_come: impl Fn(u64) -> bool) -> Option<Time> {
        let mut last = None;
        let paid = |owed: &mut Debt| owed.chunk.is_some_and(&has_come);
        while let Some(owed) = self.owed.pop_front_if(paid) {
            (self.progress, last) = (now, Some(owed.sent));
        }
        last
    }

    /// How long it may be silent before it counts as that.
    pub(crate) fn patience(&self) -> Duration {
        (self.trip.patience() * (1 << self.mistakes)).min(MOST)
    }

    /// When it will count as silent. `later` is when the youngest block was sent that has come by
    /// any connection: one that was sent before and has not come is late (RFC 8985 has the idea).
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

    /// Whether it has become silent: then what it owes is to be had by [`Carrier::debts`].
    pub(crate) fn falls_silent(&mut self, now: Time, later: Time) -> bool {
        let silent = self.deadline(later).is_some_and(|due| now >= due);
        if silent {
            self.silent = Some(now);
        }
        silent
    }

    /// Chunks that went by it and have not been heard of.
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
        let mut carrier = Carrier::new(at(0), 0, RoundTrip::default(), Duration::ZERO);
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
        let mut carrier = Carrier::new(at(0), 0, RoundTrip::default(), Duration::ZERO);
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
        let mut carrier = Carrier::new(at(0), 0, RoundTrip::default(), Duration::ZERO);
        carrier.sent(at(0), Some(0), true);
        carrier.sent(at(0), Some(1), true);
        carrier.settle(at(900), |chunk| chunk == 0);
        assert_eq!(carrier.deadline(at(1)), Some(at(900) + UNKNOWN));
        carrier.settle(at(900), |_| true);
        assert!(carrier.is_even());
    }

    #[test]
    fn an_answer_that_does_not_come_is_silence_too() {
        let mut carrier = Carrier::new(at(0), 0, RoundTrip::default(), Duration::ZERO);
        carrier.asked(at(100));
        carrier.asked(at(900));
        assert_eq!(carrier.deadline(at(0)), Some(at(100) + UNKNOWN * ALONE));
        carrier.hears(at(950), None);
        assert_eq!((carrier.deadline(at(0)), carrier.heard()), (None, at(950)));
        carrier.hears(at(960), Some(Duration::ZERO));
        assert_eq!(carrier.deadline(at(0)), Some(at(960) + UNKNOWN * ALONE));
        carrier.over();
        assert_eq!(carrier.deadline(at(0)), None);
    }
}
