//! Passive measurement of a round-trip time, from the answers of a server that follows the client
//! (answers on the path that the client used last).

use std::time::Duration;

use anabranch_multipath::Time;

/// Length of the time windows of the minimum filter: the estimate is the smallest sample of the
/// present and the previous window, if these have enough samples.
const WINDOW: Duration = Duration::from_secs(10);
/// Assumed round-trip time before the first sample. Until then, a sample is taken only if the path
/// was idle in both directions for this time before.
const UNKNOWN: Duration = Duration::from_millis(100);
/// Minimum idle time of a path, in each direction, before a sample of the round-trip time is
/// taken. It applies even if the round-trip time is shorter. Radio links and busy machines deliver
/// queued datagrams in bursts, with shorter pauses between them.
const LEAST: Duration = Duration::from_millis(20);
/// Maximum plausible round-trip time. A later answer is taken to belong to another datagram, so it
/// is no sample.
const LATEST: Duration = Duration::from_secs(3);
/// Time after which a round-trip sample whose datagram has no answer is abandoned: the datagram is
/// taken to be lost, or of a kind that the server does not answer.
const UNANSWERED: Duration = Duration::from_secs(1);
/// Minimum number of samples in a window before the window's minimum replaces an older minimum.
/// Fewer samples may all be late answers of a server with little to send.
const SAMPLES: u32 = 3;
/// Number of samples in one window that are needed before an estimate above [`UNKNOWN`] is used. A
/// single long sample may contain a delay of the server.
const AGREE: u32 = 2;

/// Measurement of the time from the first datagram of a visit (a stay of the session on one path)
/// to the first answer on that path.
///
/// Every sample is an upper bound, because the server may have had nothing to send at once. So the
/// estimate is the minimum over the last 10-20 s. A sample is valid only if no answer to an
/// earlier visit is still in flight when the visit begins. A download can fill the queue of a
/// path, and the queue still drains long after the session has left the path. A datagram from that
/// queue would look like an immediate answer. See [`RttFilter::has_settled`].
#[derive(Debug, Default)]
pub(crate) struct RttFilter {
    sent: Option<Time>,
    last_arrival: Option<Time>,
    request_sent: Option<Time>,
    window_began: Time,
    now: Option<Duration>,
    before: Option<Duration>,
    /// Number of samples in the present window (of length [`WINDOW`]).
    samples: u32,
    /// Whether any window (of length [`WINDOW`]) had [`AGREE`] samples, so that an estimate above
    /// [`UNKNOWN`] may be used.
    agreed: bool,
    /// Whether any window (of length [`WINDOW`]) had [`SAMPLES`] samples, so that they are not all
    /// late answers.
    confirmed: bool,
}

impl RttFilter {
    /// Records a datagram sent on this path, of a kind that the server answers.
    pub(crate) fn on_sent(&mut self, now: Time) {
        if self.has_settled(now) {
            self.request_sent = Some(now);
        } else if self.sent.is_some_and(|sent| now.since(sent) > UNANSWERED) {
            self.request_sent = None;
        }
        self.sent = Some(now);
    }

    /// Records a datagram of the server that arrived on this path.
    pub(crate) fn on_answer(&mut self, now: Time) {
        self.last_arrival = Some(now);
        let Some(sent) = self.request_sent.take() else { return };
        let sample = now.since(sent);
        if sample <= LATEST {
            self.add(now, sample);
        }
    }

    /// Returns the estimated round-trip time; `None` if there is none. An estimate above
    /// [`UNKNOWN`] needs [`AGREE`] samples.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.lowest().filter(|rtt| self.agreed || *rtt < UNKNOWN)
    }

    /// Returns the lowest sample, and whether some window had at least [`SAMPLES`] samples.
    /// Returns `None` without a sample.
    pub(crate) fn upper_bound(&self) -> Option<(Duration, bool)> {
        self.lowest().map(|rtt| (rtt, self.confirmed))
    }

    fn lowest(&self) -> Option<Duration> {
        match (self.now, self.before) {
            (Some(now), Some(before)) => Some(now.min(before)),
            (now, before) => now.or(before),
        }
    }

    /// Returns whether no answer to earlier datagrams of this path can be in flight.
    ///
    /// If an answer has arrived since our last datagram, two conditions must hold. First, two
    /// round-trip times have passed since that datagram, which suffices if the path has no queue.
    /// Second, no answer has arrived for one round-trip time, because a queue drains without a
    /// pause. If no answer has arrived since our last datagram, because the server answered on
    /// another path, [`LATEST`] must have passed.
    fn has_settled(&self, now: Time) -> bool {
        let Some(sent) = self.sent else { return true };
        let left = now.since(sent);
        if left > LATEST {
            return self.last_arrival.is_none_or(|last_arrival| now.since(last_arrival) >= LEAST);
        }
        let rtt = self.lowest();
        let last_arrival = self.last_arrival.filter(|last_arrival| *last_arrival >= sent);
        last_arrival.is_some_and(|last_arrival| {
            left >= rtt.map_or(UNKNOWN, |rtt| rtt * 2).max(LEAST)
                && now.since(last_arrival) >= rtt.unwrap_or(UNKNOWN).max(LEAST)
        })
    }

    fn add(&mut self, now: Time, sample: Duration) {
        if now.since(self.window_began) >= WINDOW && self.samples >= SAMPLES {
            self.before = self.now.take();
            (self.window_began, self.samples) = (now, 0);
        }
        self.samples += 1;
        self.agreed |= self.samples >= AGREE;
        self.confirmed |= self.samples >= SAMPLES;
        self.now = Some(self.now.map_or(sample, |lowest| lowest.min(sample)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn the_first_answer_to_a_visit_is_timed() {
        let mut filter = RttFilter::default();
        filter.on_sent(ms(5));
        filter.on_sent(ms(6));
        filter.on_answer(ms(25));
        filter.on_answer(ms(26));
        assert_eq!(filter.rtt(), Some(Duration::from_millis(20)));
    }

    #[test]
    fn a_return_within_two_round_trips_is_not_timed() {
        let mut filter = RttFilter::default();
        filter.on_sent(ms(0));
        filter.on_answer(ms(20));
        filter.on_sent(ms(39));
        filter.on_answer(ms(40));
        let message = "1 ms would be an answer to the first visit";
        assert_eq!(filter.rtt(), Some(Duration::from_millis(20)), "{message}");
    }

    #[test]
    fn a_path_that_still_drains_is_not_timed() {
        let mut filter = RttFilter::default();
        filter.on_sent(ms(0));
        (20..=400).for_each(|at| filter.on_answer(ms(at)));
        filter.on_sent(ms(401));
        filter.on_answer(ms(402));
        assert_eq!(filter.rtt(), Some(Duration::from_millis(20)), "a queue, not an answer");
        filter.on_sent(ms(500));
        filter.on_answer(ms(515));
        assert_eq!(filter.rtt(), Some(Duration::from_millis(15)), "it had rested for 98 ms");
    }

    #[test]
    fn a_visit_without_an_answer_leaves_the_next_one_untimed_for_a_while() {
        let mut filter = RttFilter::default();
        filter.on_sent(ms(0));
        filter.on_answer(ms(20));
        filter.on_sent(ms(200));
        filter.on_answer(ms(230));
        filter.on_sent(ms(400));
        // The answer to this datagram arrives late, after the next visit has begun.
        filter.on_sent(ms(700));
        filter.on_answer(ms(701));
        assert_eq!(filter.rtt(), Some(Duration::from_millis(20)));
        filter.on_sent(ms(3800));
        filter.on_answer(ms(3815));
        assert_eq!(filter.rtt(), Some(Duration::from_millis(15)));
    }

    #[test]
    fn however_short_the_round_trip_a_path_has_to_rest() {
        let mut filter = RttFilter::default();
        filter.on_sent(ms(0));
        filter.on_answer(ms(1));
        filter.on_sent(ms(10));
        filter.on_answer(ms(10));
        assert_eq!(filter.rtt(), Some(Duration::from_millis(1)));
        filter.on_sent(ms(30));
        filter.on_answer(ms(30));
        assert_eq!(filter.rtt(), Some(Duration::ZERO), "20 ms after the last of both");
    }

    #[test]
    fn a_late_answer_of_an_idle_moment_replaces_no_minimum() {
        let mut filter = RttFilter::default();
        filter.on_sent(ms(0));
        filter.on_answer(ms(1));
        for (second, answer) in [(15, 205), (40, 340), (65, 210)] {
            let sent = Time::from_secs(second);
            filter.on_sent(sent);
            filter.on_answer(sent + Duration::from_millis(answer));
            assert_eq!(filter.rtt(), Some(Duration::from_millis(1)), "after {second} s");
        }
    }

    #[test]
    fn what_nobody_answered_does_not_time_the_answer_to_the_next() {
        let mut filter = RttFilter::default();
        filter.on_sent(ms(0));
        filter.on_answer(ms(1));
        for at in (5000..60_000).step_by(5000) {
            filter.on_sent(ms(at));
            filter.on_sent(ms(at + 2200));
            filter.on_answer(ms(at + 2201));
            assert_eq!(filter.rtt(), Some(Duration::from_millis(1)), "at {at} ms");
        }
    }

    #[test]
    fn a_long_first_sample_is_believed_when_others_agree() {
        let mut filter = RttFilter::default();
        for (second, answer, known) in [(0, 610, None), (2, 600, Some(600)), (4, 620, Some(600))] {
            let sent = Time::from_secs(second);
            filter.on_sent(sent);
            filter.on_answer(sent + Duration::from_millis(answer));
            assert_eq!(filter.rtt(), known.map(Duration::from_millis));
        }
    }

    #[test]
    fn a_path_that_grew_slower_is_believed_after_the_window() {
        let mut filter = RttFilter::default();
        for second in 0..40 {
            let sent = Time::from_secs(second);
            filter.on_sent(sent);
            filter.on_answer(sent + Duration::from_millis(if second < 10 { 20 } else { 60 }));
        }
        assert_eq!(filter.rtt(), Some(Duration::from_millis(60)));
    }
}
