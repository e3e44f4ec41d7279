//! A path's round-trip time, and the timeout for its answers (RFC 6298).

use std::time::Duration;

use anabranch_multipath::SmoothedRtt;

/// Maximum timeout for an answer on a path.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Minimum number of samples for which the smoothed round-trip time is used. With fewer samples,
/// the first sample has too much weight in it.
const FEW: u8 = 5;

/// Round-trip time of one path, from samples.
#[derive(Clone, Copy, Default)]
pub(crate) struct RoundTrip {
    last: Option<Duration>,
    samples: u8,
    smoothed: SmoothedRtt,
}

impl RoundTrip {
    /// Adds a round-trip time sample.
    pub(crate) fn note(&mut self, sample: Duration) {
        self.last = Some(sample);
        self.samples = self.samples.saturating_add(1);
        self.smoothed.sample(sample);
    }

    /// Returns the last round-trip time sample; `None` if there is none.
    pub(crate) fn last(self) -> Option<Duration> {
        self.last
    }

    /// Returns `SRTT`; `None` before [`FEW`] samples.
    pub(crate) fn smoothed(self) -> Option<Duration> {
        self.smoothed.srtt().filter(|_| self.samples >= FEW)
    }

    /// Returns the timeout: `SRTT` + 4 `RTTVAR`, at most [`LONGEST_TIMEOUT`]; zero before the
    /// first sample.
    pub(crate) fn timeout(self) -> Duration {
        self.smoothed.rto(Duration::ZERO).unwrap_or_default().min(LONGEST_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_timeout_is_that_of_rfc_6298() {
        let mut trip = RoundTrip::default();
        assert_eq!((trip.last(), trip.smoothed(), trip.timeout()), (None, None, Duration::ZERO));
        trip.note(MS * 800);
        assert_eq!((trip.smoothed(), trip.timeout()), (None, MS * 2_400));
        trip.note(MS * 1_600);
        // RTTVAR = 3/4 · 400 + 1/4 · 800, with the SRTT before the sample; SRTT = 900.
        assert_eq!(trip.timeout(), MS * 2_900);
        (0..100).for_each(|_| trip.note(MS * 20));
        assert!(trip.smoothed().is_some_and(|srtt| srtt < MS * 21), "{:?}", trip.smoothed());
        assert!(trip.timeout() < MS * 25, "{:?}", trip.timeout());
        trip.note(MS * 60_000);
        assert_eq!((trip.last(), trip.timeout()), (Some(MS * 60_000), LONGEST_TIMEOUT));
    }
}
