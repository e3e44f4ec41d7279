//! Rates of a counter: the current rate, and the rate in each of the last seconds.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anabranch_multipath::Time;

/// Minimum period over which the current rate is computed. Over a shorter period, such as the
/// interval between two samples, the displayed rate would change too fast to be read.
const WINDOW: Duration = Duration::from_secs(1);

/// The rates of one counter.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Meter {
    /// Samples of the last second, and the last sample before them, the oldest first. A sample is
    /// a time and the counter's value.
    window: VecDeque<(Time, u64)>,
    /// Start of the current second, and the counter's value at that time.
    second: Option<(Time, u64)>,
    /// Rates of the counter in each whole second, in units per second, the newest last.
    past: VecDeque<f64>,
}

impl Meter {
    /// Number of seconds in the history of rates.
    pub(crate) const SECONDS: u16 = 60;

    /// Creates a meter of a counter that was 0 at `begin`.
    pub(crate) fn from(begin: Time) -> Meter {
        let mut meter = Meter::default();
        meter.follow(begin, 0);
        meter
    }

    /// Adds a sample: the counter is `sum` at `now`.
    pub(crate) fn follow(&mut self, now: Time, sum: u64) {
        self.window.push_back((now, sum));
        while self.window.get(1).is_some_and(|(time, _)| now.since(*time) >= WINDOW) {
            self.window.pop_front();
        }
        let (began, before) = *self.second.get_or_insert((now, sum));
        if now.since(began) >= WINDOW {
            self.past.push_back(rate((began, before), (now, sum)));
            if self.past.len() > usize::from(Meter::SECONDS) {
                self.past.pop_front();
            }
            self.second = Some((now, sum));
        }
    }

    /// Returns the current rate in units per second. The period is the last second, or the time
    /// since the previous sample if that is longer ago.
    pub(crate) fn rate(&self) -> f64 {
        match (self.window.front(), self.window.back()) {
            (Some(&first), Some(&last)) => rate(first, last),
            _ => 0.0,
        }
    }

    /// Returns the rates in units per second in each of the last seconds. The newest is the last.
    pub(crate) fn past(&self) -> impl DoubleEndedIterator<Item = f64> + ExactSizeIterator {
        self.past.iter().copied()
    }
}

/// The maximum rate of several meters over the last n seconds, for each n. Graphs of different
/// widths use it as a common scale.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Peaks(Arc<[f64]>);

impl Peaks {
    /// Computes the maxima of `pasts`, the histories of the meters. In each history, the newest
    /// rate is the last.
    pub(crate) fn of<P: DoubleEndedIterator<Item = f64>>(pasts: impl Iterator<Item = P>) -> Peaks {
        let mut peaks = vec![0.0_f64; usize::from(Meter::SECONDS)];
        for past in pasts {
            for (peak, rate) in peaks.iter_mut().zip(past.rev()) {
                *peak = peak.max(rate);
            }
        }
        let mut most = 0.0_f64;
        for peak in &mut peaks {
            most = most.max(*peak);
            *peak = most;
        }
        Peaks(peaks.into())
    }

    /// Returns the maximum rate of all meters over the last `seconds`.
    pub(crate) fn over(&self, seconds: usize) -> f64 {
        let last = seconds.min(self.0.len()).checked_sub(1);
        last.map_or(0.0, |last| self.0[last])
    }
}

fn rate((began, before): (Time, u64), (now, sum): (Time, u64)) -> f64 {
    let seconds = now.since(began).as_secs_f64();
    if seconds > 0.0 { sum.saturating_sub(before) as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_second_however_often_it_is_looked_at() {
        let mut meter = Meter::from(Time::ZERO);
        // 1,000 units per second for two seconds, then none.
        for tenth in 1..=20 {
            meter.follow(Time::from_millis(tenth * 100), tenth * 100);
        }
        assert!((meter.rate() - 1000.0).abs() < 1e-9, "{}", meter.rate());
        (21..=25).for_each(|tenth| meter.follow(Time::from_millis(tenth * 100), 2000));
        assert!((meter.rate() - 500.0).abs() < 1e-9, "{}", meter.rate());
        assert_eq!(meter.past().collect::<Vec<_>>(), [1000.0, 1000.0]);
        meter.follow(Time::from_secs(7), 6500);
        assert_eq!(meter.rate(), 1000.0, "over what lies between, where that is longer");
    }

    #[test]
    fn seconds_are_kept_for_a_minute() {
        let mut meter = Meter::default();
        (0..200).for_each(|second| meter.follow(Time::from_secs(second), second * second));
        let past: Vec<_> = meter.past().collect();
        assert_eq!((past.len(), past[59]), (60, 397.0));
    }

    #[test]
    fn a_sum_that_begins_anew_has_no_negative_rate() {
        let mut meter = Meter::default();
        meter.follow(Time::ZERO, 100);
        meter.follow(Time::ZERO, 300);
        assert_eq!(meter.rate(), 0.0);
        meter.follow(Time::from_secs(1), 5);
        assert_eq!(meter.rate(), 0.0);
    }

    #[test]
    fn a_scale_is_that_of_the_seconds_that_are_shown() {
        let pasts = [[9.0, 1.0, 2.0], [0.0, 4.0, 0.0]];
        let peaks = Peaks::of(pasts.iter().map(|past| past.iter().copied()));
        let over = [0, 1, 2, 3, 60, 99].map(|seconds| peaks.over(seconds));
        assert_eq!(over, [0.0, 2.0, 4.0, 9.0, 9.0, 9.0]);
        assert_eq!(Peaks::default().over(8), 0.0);
    }
}
