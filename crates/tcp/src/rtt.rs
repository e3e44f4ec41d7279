//! Round-trip times, and the retransmission timeout computed from them (RFC 6298).

use std::time::Duration;

use anabranch_multipath::{SmoothedRtt, Time};

use crate::constants::{INITIAL_RTO, MIN_RTT_WINDOW, RTO_MAX, RTO_MIN};

/// Round-trip time estimates of one path (leg).
#[derive(Clone, Debug, Default)]
pub(crate) struct Rtt {
    smoothed: SmoothedRtt,
    /// Round-trip time that is expected until the first sample, from another connection on the
    /// same path (RFC 9040); `None` if unknown.
    expected: Option<Duration>,
    least: Option<(Duration, Time)>,
    /// Number of times that the retransmission timeout has been doubled since the last sample.
    backoff: u32,
}

impl Rtt {
    /// Adds a round-trip time sample, from a segment that was sent only once or from a timestamp.
    pub(crate) fn sample(&mut self, now: Time, rtt: Duration) {
        self.backoff = 0;
        self.smoothed.sample(rtt);
        self.take_least(now, rtt);
    }

    /// Sets the round-trip time that is expected until the first sample.
    pub(crate) fn expect(&mut self, rtt: Duration) {
        self.expected = Some(rtt);
    }

    /// Returns `SRTT`; before the first sample, the expected round-trip time or, if that is
    /// unknown, `None`.
    pub(crate) fn expected(&self) -> Option<Duration> {
        self.srtt().or(self.expected)
    }

    /// Stores the sample `rtt` if it is the minimum within [`MIN_RTT_WINDOW`].
    fn take_least(&mut self, now: Time, rtt: Duration) {
        let outdated = |at: Time| now.since(at) > MIN_RTT_WINDOW;
        if self.least.is_none_or(|(least, at)| rtt <= least || outdated(at)) {
            self.least = Some((rtt, now));
        }
    }

    /// Returns `SRTT`; `None` before the first sample.
    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.smoothed.srtt()
    }

    /// Returns the minimum round-trip time within [`MIN_RTT_WINDOW`]; `None` before the first
    /// sample.
    pub(crate) fn least(&self) -> Option<Duration> {
        self.least.map(|(least, _)| least)
    }

    /// Returns the retransmission timeout before any doubling.
    pub(crate) fn base_rto(&self) -> Duration {
        let of_another = || SmoothedRtt::first(self.expected?).rto(RTO_MIN);
        self.smoothed.rto(RTO_MIN).or_else(of_another).unwrap_or(INITIAL_RTO).min(RTO_MAX)
    }

    /// Returns the current retransmission timeout, including doublings.
    pub(crate) fn rto(&self) -> Duration {
        self.doubled(self.backoff)
    }

    /// Returns the retransmission timeout, doubled `times` times.
    pub(crate) fn doubled(&self, times: u32) -> Duration {
        let factor = 1u32.checked_shl(times.min(31)).unwrap_or(u32::MAX);
        self.base_rto().saturating_mul(factor).min(RTO_MAX)
    }

    /// Doubles the retransmission timeout (RFC 6298, section 5.5).
    pub(crate) fn back_off(&mut self) {
        self.backoff += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_timeout_follows_rfc_6298() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.rto(), INITIAL_RTO);
        rtt.sample(Time::ZERO, 400 * MS);
        assert_eq!(rtt.rto(), 1200 * MS);
        rtt.sample(Time::ZERO, 480 * MS);
        // SRTT = 7/8 * 400 + 480/8, RTTVAR = 3/4 * 200 + 80/4.
        assert_eq!((rtt.srtt(), rtt.rto()), (Some(410 * MS), 1090 * MS));
    }

    #[test]
    fn before_a_sample_the_timeout_is_that_of_another_connection() {
        let mut rtt = Rtt::default();
        rtt.expect(100 * MS);
        assert_eq!((rtt.rto(), rtt.expected(), rtt.srtt()), (300 * MS, Some(100 * MS), None));
        rtt.sample(Time::ZERO, 400 * MS);
        assert_eq!((rtt.rto(), rtt.expected()), (1200 * MS, Some(400 * MS)));
    }

    #[test]
    fn the_timeout_doubles_up_to_its_limit_until_a_sample() {
        let mut rtt = Rtt::default();
        rtt.sample(Time::ZERO, 100 * MS);
        assert_eq!(rtt.rto(), 300 * MS);
        rtt.back_off();
        rtt.back_off();
        assert_eq!(rtt.rto(), 1200 * MS);
        (0..40).for_each(|_| rtt.back_off());
        assert_eq!(rtt.rto(), RTO_MAX);
        rtt.sample(Time::ZERO, 100 * MS);
        assert!(rtt.rto() < 320 * MS);
    }

    #[test]
    fn the_least_round_trip_time_is_forgotten_after_minutes() {
        let mut rtt = Rtt::default();
        rtt.sample(Time::ZERO, 10 * MS);
        rtt.sample(Time::from_secs(10), 20 * MS);
        assert_eq!(rtt.least(), Some(10 * MS));
        rtt.sample(Time::from_secs(400), 30 * MS);
        assert_eq!(rtt.least(), Some(30 * MS));
    }
}
