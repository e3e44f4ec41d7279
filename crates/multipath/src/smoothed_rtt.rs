//! The smoothed round-trip time of RFC 6298.

use std::time::Duration;

/// Inverse of `alpha` = 1/8, a sample's weight in `SRTT` (RFC 6298, section 2.3).
const ALPHA: u32 = 8;
/// Inverse of `beta` = 1/4, a sample's weight in `RTTVAR` (RFC 6298, section 2.3).
const BETA: u32 = 4;
/// Factor `K` of `RTTVAR` in the timeout (RFC 6298, section 2.3).
const K: u32 = 4;

/// Estimator of a round-trip time: `SRTT` and `RTTVAR` of RFC 6298.
///
/// ```
/// use std::time::Duration;
///
/// use anabranch_multipath::SmoothedRtt;
///
/// let mut rtt = SmoothedRtt::default();
/// rtt.sample(Duration::from_millis(400));
/// rtt.sample(Duration::from_millis(480));
/// assert_eq!(rtt.srtt(), Some(Duration::from_millis(410)));
/// assert_eq!(rtt.rto(Duration::ZERO), Some(Duration::from_millis(410 + 4 * 170)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SmoothedRtt {
    /// `SRTT` and `RTTVAR`; `None` before the first sample.
    smoothed: Option<(Duration, Duration)>,
}

impl SmoothedRtt {
    /// Returns the state after one sample of `rtt` (RFC 6298, section 2.2).
    #[must_use]
    pub fn first(rtt: Duration) -> SmoothedRtt {
        SmoothedRtt { smoothed: Some((rtt, rtt / 2)) }
    }

    /// Updates `SRTT` and `RTTVAR` with a sample (RFC 6298, sections 2.2 and 2.3).
    pub fn sample(&mut self, rtt: Duration) {
        let Some((srtt, rttvar)) = self.smoothed else {
            *self = SmoothedRtt::first(rtt);
            return;
        };
        self.smoothed = Some((
            srtt - srtt / ALPHA + rtt / ALPHA,
            rttvar - rttvar / BETA + srtt.abs_diff(rtt) / BETA,
        ));
    }

    /// Returns `SRTT`; `None` before the first sample.
    #[must_use]
    pub fn srtt(&self) -> Option<Duration> {
        self.smoothed.map(|(srtt, _)| srtt)
    }

    /// Returns the retransmission timeout, `SRTT + max(G, K * RTTVAR)` with `G` = `least` (RFC
    /// 6298, section 2.3); `None` before the first sample. The caller applies the lower and upper
    /// bounds (sections 2.4 and 2.5).
    #[must_use]
    pub fn rto(&self, least: Duration) -> Option<Duration> {
        self.smoothed.map(|(srtt, rttvar)| srtt + (rttvar * K).max(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_first_sample_is_the_mean_and_half_of_it_the_variation() {
        let mut rtt = SmoothedRtt::default();
        assert_eq!((rtt.srtt(), rtt.rto(MS)), (None, None));
        rtt.sample(800 * MS);
        assert_eq!((rtt.srtt(), rtt.rto(MS)), (Some(800 * MS), Some(2_400 * MS)));
    }

    #[test]
    fn later_samples_weigh_an_eighth_and_a_quarter() {
        let mut rtt = SmoothedRtt::first(800 * MS);
        rtt.sample(1_600 * MS);
        // RTTVAR = 3/4 * 400 + 1/4 * 800, with the SRTT before the sample.
        assert_eq!((rtt.srtt(), rtt.rto(MS)), (Some(900 * MS), Some(2_900 * MS)));
    }

    #[test]
    fn a_steady_path_keeps_the_least_margin() {
        let mut rtt = SmoothedRtt::default();
        (0..200).for_each(|_| rtt.sample(20 * MS));
        assert_eq!(rtt.srtt(), Some(20 * MS));
        assert_eq!(rtt.rto(200 * MS), Some(220 * MS));
    }
}
