//! Output of the tools: one JSON object each.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Result of `udp-blast`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Blast {
    /// Datagrams that the kernel accepted.
    pub sent: u64,
    /// Datagrams that the kernel refused.
    pub refused: u64,
    /// Seconds from the first to the last.
    pub seconds: f64,
    /// CPU time of the process in seconds.
    pub cpu: f64,
}

/// Result of `udp-sink`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sink {
    /// Datagrams that arrived with a stamp.
    pub received: u64,
    /// Their payload in bytes.
    pub bytes: u64,
    /// Datagrams without a stamp.
    pub foreign: u64,
    /// Datagrams that did not arrive: numbers below the highest of their session.
    pub lost: u64,
    /// Datagrams with a lower number than one that arrived before.
    pub reordered: u64,
    /// Number of sessions from which a datagram arrived.
    pub sessions: u64,
    /// Seconds from the first to the last.
    pub seconds: f64,
    /// Runs of datagrams that receive calls returned. `received / runs` is the mean number of
    /// datagrams that the kernel joined (GRO).
    pub runs: u64,
    /// CPU time of the process in seconds.
    pub cpu: f64,
    /// One-way delay of the first datagram of each run.
    pub delay: Delay,
    /// Datagrams from each source address.
    pub sources: BTreeMap<IpAddr, u64>,
}

impl Sink {
    /// Returns the payload rate in Gbit/s.
    pub fn gbits(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 * 8e-9 / self.seconds } else { 0.0 }
    }
}

/// Percentiles of a delay, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delay {
    /// Minimum.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

impl Delay {
    /// Computes the percentiles of `nanos`, in any order; zeros if there are none.
    pub fn of(nanos: &mut [u64]) -> Delay {
        nanos.sort_unstable();
        let Some(last) = nanos.len().checked_sub(1) else { return Delay::default() };
        let at = |part: f64| nanos[(last as f64 * part).round() as usize] as f64 / 1e3;
        Delay { min: at(0.0), p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1.0) }
    }
}

/// Repeated measurements of one quantity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series(Vec<f64>);

impl Series {
    /// Adds a measurement.
    pub fn push(&mut self, value: f64) {
        let at = self.0.partition_point(|&other| other < value);
        self.0.insert(at, value);
    }

    /// Returns the median, or the mean of the two values in the middle; NaN if there are none.
    pub fn median(&self) -> f64 {
        let count = self.0.len();
        match count {
            0 => f64::NAN,
            _ => (self.0[(count - 1) / 2] + self.0[count / 2]) / 2.0,
        }
    }

    /// Returns the minimum; NaN if there are none.
    pub fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or(f64::NAN)
    }

    /// Returns the maximum; NaN if there are none.
    pub fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or(f64::NAN)
    }

    /// Returns the number of measurements.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no measurements.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle() {
        let mut series = Series::default();
        assert!(series.median().is_nan());
        for value in [3.0, 1.0, 2.0] {
            series.push(value);
        }
        assert_eq!((series.min(), series.median(), series.max()), (1.0, 2.0, 3.0));
        series.push(10.0);
        assert_eq!(series.median(), 2.5);
    }

    #[test]
    fn percentiles_of_a_ramp_lie_on_it() {
        let mut ramp: Vec<u64> = (0..=1000).rev().map(|i| i * 1000).collect();
        let delay = Delay::of(&mut ramp);
        assert_eq!((delay.min, delay.p50, delay.p99, delay.max), (0.0, 500.0, 990.0, 1000.0));
        assert_eq!(Delay::of(&mut []), Delay::default());
    }
}
