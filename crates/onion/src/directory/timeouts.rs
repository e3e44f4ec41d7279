//! Circuit build timeouts (path-spec 2.4). A Pareto distribution models the build times, and the
//! timeout is one of its quantiles.

use std::collections::VecDeque;

use super::params::TimeoutParams;

/// Number of recent build times from which the timeout is learnt.
const KEPT: usize = 1000;
/// Width in milliseconds of a bin in the histogram of build times.
const BIN: u64 = 10;

/// Build times of a client's circuits, in milliseconds, and the timeouts computed from them.
#[derive(Clone, Debug)]
pub struct BuildTimes {
    params: TimeoutParams,
    times: VecDeque<u32>,
    /// For each of the most recent circuits: true if it timed out after its first hop was built.
    recent: VecDeque<bool>,
    timeout: u64,
    close: u64,
}

impl BuildTimes {
    /// Restores the build times `times`, which were stored before the client last stopped.
    #[must_use]
    pub fn new(params: TimeoutParams, times: &[u32]) -> BuildTimes {
        let (timeout, close) = (params.initial, params.initial);
        let times = times.iter().rev().take(KEPT).rev().copied().collect();
        let mut learnt = BuildTimes { params, times, recent: VecDeque::new(), timeout, close };
        learnt.learn();
        learnt
    }

    /// Returns the timeout in milliseconds after which a circuit under construction will carry no
    /// streams. It may still be completed, so that its build time is measured.
    #[must_use]
    pub fn timeout(&self) -> u64 {
        self.timeout
    }

    /// Returns the timeout in milliseconds after which a circuit under construction is closed.
    /// From [`BuildTimes::timeout`] until then, the circuit stays open, so that its build time is
    /// measured.
    #[must_use]
    pub fn close_timeout(&self) -> u64 {
        self.close
    }

    /// Returns the recorded build times, oldest first, for storage.
    pub fn times(&self) -> impl Iterator<Item = u32> {
        self.times.iter().copied()
    }

    /// Records that a circuit was built in `milliseconds`.
    pub fn built(&mut self, milliseconds: u64) {
        if self.times.len() == KEPT {
            self.times.pop_front();
        }
        self.times.push_back(u32::try_from(milliseconds).unwrap_or(u32::MAX));
        self.note(milliseconds > self.timeout);
        self.learn();
    }

    /// Records that a circuit timed out after its first hop was built.
    pub fn timed_out(&mut self) {
        self.note(true);
        let many = self.recent.iter().filter(|&&late| late).count();
        if many >= self.params.most_timeouts && !self.params.disabled {
            self.restart_estimate();
        }
    }

    fn note(&mut self, late: bool) {
        if self.recent.len() == self.params.recent {
            self.recent.pop_front();
        }
        self.recent.push_back(late);
    }

    /// Discards all build times because the network has changed, and increases the timeout.
    fn restart_estimate(&mut self) {
        let learnt = self.times.len() >= self.params.least_circuits;
        let doubled = self.timeout.saturating_mul(2).min(u64::from(u32::MAX));
        self.timeout = if learnt { doubled.max(self.params.initial) } else { doubled };
        self.close = self.close.max(self.timeout);
        self.times.clear();
        self.recent.clear();
    }

    fn learn(&mut self) {
        if self.params.disabled || self.times.len() < self.params.least_circuits {
            return;
        }
        let begin = self.begin();
        let alpha = self.alpha(begin);
        let at = |percent: u32| {
            let left = 1.0 - f64::from(percent) / 100.0;
            (begin / left.powf(1.0 / alpha)).min(f64::from(u32::MAX)) as u64
        };
        self.timeout = at(self.params.quantile).max(self.params.least);
        self.close = at(self.params.close_quantile).max(self.params.initial).max(self.timeout);
    }

    /// Returns the start of the Pareto distribution of build times (Xm): the weighted average of
    /// the centres of the histogram bins with the most build times.
    fn begin(&self) -> f64 {
        let mut bins: Vec<(u64, u64)> = Vec::new();
        let mut sorted: Vec<u64> = self.times.iter().map(|&time| u64::from(time) / BIN).collect();
        sorted.sort_unstable();
        for bin in sorted {
            match bins.last_mut() {
                Some((last, count)) if *last == bin => *count += 1,
                _ => bins.push((bin, 1)),
            }
        }
        bins.sort_by_key(|&(bin, count)| (std::cmp::Reverse(count), bin));
        bins.truncate(self.params.modes);
        let count: u64 = bins.iter().map(|(_, count)| count).sum();
        let sum: f64 =
            bins.iter().map(|&(bin, count)| ((bin * BIN + BIN / 2) * count) as f64).sum();
        (sum / count as f64).max(1.0)
    }

    /// Returns the maximum-likelihood estimate of the shape of the Pareto distribution of build
    /// times. Build times below `begin` count as `begin`.
    fn alpha(&self, begin: f64) -> f64 {
        let above = self.times.iter().map(|&time| (f64::from(time).max(begin) / begin).ln());
        let sum: f64 = above.sum();
        if sum <= 0.0 { f64::MAX } else { self.times.len() as f64 / sum }
    }
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed::stream;
    use rand::RngExt;

    use super::*;
    use crate::directory::params::Params;

    fn fresh() -> BuildTimes {
        BuildTimes::new(Params::default().timeouts, &[])
    }

    /// Draws `count` build times from a Pareto distribution with the start `begin` and the shape
    /// `alpha`.
    fn draw(count: usize, begin: f64, alpha: f64) -> Vec<u32> {
        let mut dice = stream(1, 0, "build times");
        let one = |_| (begin / dice.random::<f64>().max(1e-9).powf(1.0 / alpha)) as u32;
        (0..count).map(one).collect()
    }

    #[test]
    fn nothing_is_learnt_from_too_few() {
        let mut times = fresh();
        (0..99).for_each(|_| times.built(100));
        assert_eq!(times.timeout(), 60_000);
        times.built(100);
        assert!(times.timeout() < 200, "{}", times.timeout());
    }

    #[test]
    fn the_timeout_is_the_quantile_of_the_distribution() {
        let seen = draw(1000, 200.0, 3.0);
        let times = BuildTimes::new(Params::default().timeouts, &seen);
        let late = seen.iter().filter(|&&time| u64::from(time) > times.timeout()).count();
        assert!((100..300).contains(&late), "{late} of 1000 are late, 200 are meant to be");
        assert!(times.close_timeout() >= times.timeout());
        let kept: Vec<u32> = times.times().collect();
        assert_eq!(BuildTimes::new(Params::default().timeouts, &kept).timeout(), times.timeout());
    }

    #[test]
    fn a_network_that_becomes_slow_is_learnt_anew() {
        let mut times = BuildTimes::new(Params::default().timeouts, &draw(200, 50.0, 3.0));
        let before = times.timeout();
        (0..18).for_each(|_| times.timed_out());
        assert!(times.timeout() >= 60_000 && times.timeout() > before);
        assert_eq!(times.times().count(), 0);
        (0..18).for_each(|_| times.timed_out());
        assert!(times.timeout() >= 120_000, "patience doubles");
    }

    #[test]
    fn where_it_is_disabled_the_initial_timeout_stays() {
        let params = TimeoutParams { disabled: true, ..Params::default().timeouts };
        let mut times = BuildTimes::new(params, &draw(500, 50.0, 3.0));
        (0..30).for_each(|_| times.timed_out());
        assert_eq!(times.timeout(), 60_000);
    }
}
