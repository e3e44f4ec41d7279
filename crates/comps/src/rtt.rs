//! A round-trip time that nobody tells us: read off the answers of a server that follows the client.

use std::time::Duration;

use anabranch_multipath::Time;

/// A minimum is forgotten after at most two of these.
const WINDOW: Duration = Duration::from_secs(10);
/// How long a path must have carried nothing before a first datagram on it can be timed, while nothing is measured.
const QUIET: Duration = Duration::from_millis(100);
/// An answer later than this answers something else.
const LATEST: Duration = Duration::from_secs(3);

/// Times the first datagram of a visit to a path against the first answer that comes by that path.
///
/// Every sample is an upper bound (the server may have had nothing to say at once), so the estimate is the minimum over the
/// last 10-20 s. A visit is timed only if the path was quiet for two round-trip times, so that no answer to an earlier
/// visit is taken for one to this.
#[derive(Debug, Default)]
pub(crate) struct RttFilter {
    asked: Option<Time>,
    window_began: Time,
    now: Option<Duration>,
    before: Option<Duration>,
}

impl RttFilter {
    /// A datagram leaves; `last_sent` is when the one before left by this path.
    pub(crate) fn on_sent(&mut self, now: Time, last_sent: Option<Time>) {
        let quiet = self.rtt().map_or(QUIET, |rtt| rtt * 2);
        if last_sent.is_none_or(|last| now.since(last) >= quiet) {
            self.asked = Some(now);
        }
    }

    /// A datagram of the server came by this path.
    pub(crate) fn on_heard(&mut self, now: Time) {
        let Some(asked) = self.asked.take() else { return };
        let sample = now.since(asked);
        if sample <= LATEST {
            self.add(now, sample);
        }
    }

    /// The estimate.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        match (self.now, self.before) {
            (Some(now), Some(before)) => Some(now.min(before)),
            (now, before) => now.or(before),
        }
    }

    fn add(&mut self, now: Time, sample: Duration) {
        if now.since(self.window_began) >= WINDOW {
            self.before = self.now.take();
            self.window_began = now;
        }
        self.now = Some(self.now.map_or(sample, |lowest| lowest.min(sample)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_answer_to_a_visit_is_timed() {
        let mut filter = RttFilter::default();
        filter.on_sent(Time::from_millis(5), None);
        filter.on_sent(Time::from_millis(6), Some(Time::from_millis(5)));
        filter.on_heard(Time::from_millis(25));
        filter.on_heard(Time::from_millis(26));
        assert_eq!(filter.rtt(), Some(Duration::from_millis(20)));
    }

    #[test]
    fn a_return_within_two_round_trips_is_not_timed() {
        let mut filter = RttFilter::default();
        filter.on_sent(Time::from_millis(0), None);
        filter.on_heard(Time::from_millis(20));
        filter.on_sent(Time::from_millis(39), Some(Time::from_millis(0)));
        filter.on_heard(Time::from_millis(40));
        assert_eq!(
            filter.rtt(),
            Some(Duration::from_millis(20)),
            "1 ms would be an answer to the first visit"
        );
    }

    #[test]
    fn a_path_that_grew_slower_is_believed_after_the_window() {
        let mut filter = RttFilter::default();
        let mut last = None;
        for second in 0..40 {
            let sent = Time::from_secs(second);
            filter.on_sent(sent, last);
            last = Some(sent);
            filter.on_heard(sent + Duration::from_millis(if second < 10 { 20 } else { 60 }));
        }
        assert_eq!(filter.rtt(), Some(Duration::from_millis(60)));
    }
}
