//! Estimation of the delivery rate (draft-cheng-iccrg-delivery-rate-estimation-02).

use std::time::Duration;

use anabranch_multipath::Time;

use crate::congestion::RateSample;

/// State of the delivery rate estimator when a segment was sent
/// (draft-cheng-iccrg-delivery-rate-estimation-02, section 3.1.2).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Snapshot {
    delivered: u64,
    delivered_at: Time,
    first_sent_at: Time,
    app_limited: bool,
}

/// Estimator of the delivery rate of one path; counts are in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rate {
    delivered: u64,
    delivered_at: Time,
    first_sent_at: Time,
    /// Value of `delivered` until which samples count as limited by the application.
    app_limited_until: u64,
    sample: Option<(Snapshot, Duration)>,
    bytes_per_second: u64,
}

impl Rate {
    /// Records the transmission of a segment, before the segment counts as in flight. `idle`
    /// states that nothing else is in flight.
    pub(crate) fn on_send(&mut self, now: Time, idle: bool) -> Snapshot {
        if idle {
            (self.first_sent_at, self.delivered_at) = (now, now);
        }
        Snapshot {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            app_limited: self.app_limited_until > self.delivered,
        }
    }

    /// Records that the application has nothing to send while `in_flight` bytes are in flight.
    pub(crate) fn on_app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = (self.delivered + in_flight).max(1);
    }

    /// Records that a segment of `length` bytes, sent at the time `sent_at`, has arrived.
    pub(crate) fn on_delivered(&mut self, now: Time, length: u64, sent_at: Time, at: Snapshot) {
        self.delivered += length;
        self.delivered_at = now;
        if self.sample.is_none_or(|(sample, _)| at.delivered >= sample.delivered) {
            self.sample = Some((at, sent_at.since(at.first_sent_at)));
            self.first_sent_at = sent_at;
        }
    }

    /// Returns the rate sample of an acknowledgement; `None` if the acknowledgement gives no
    /// sample.
    pub(crate) fn finish(&mut self, least_rtt: Option<Duration>) -> Option<RateSample> {
        let (prior, sending) = self.sample.take()?;
        let span = sending.max(self.delivered_at.since(prior.delivered_at));
        let sample = RateSample {
            rate: None,
            prior_delivered: prior.delivered,
            delivered: self.delivered,
            app_limited: prior.app_limited,
        };
        if span.is_zero() || least_rtt.is_some_and(|least| span < least) {
            return Some(sample);
        }
        let bytes = u128::from(self.delivered - prior.delivered) * 1_000_000_000;
        let rate = u64::try_from(bytes / span.as_nanos()).unwrap_or(u64::MAX);
        if !prior.app_limited || rate >= self.bytes_per_second {
            self.bytes_per_second = rate;
        }
        Some(RateSample { rate: Some(rate), ..sample })
    }

    /// Returns the recent delivery rate in bytes per second; 0 before the first sample.
    pub(crate) fn bytes_per_second(&self) -> u64 {
        self.bytes_per_second
    }
}
