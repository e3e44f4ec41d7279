//! Runs (consecutive packets on one path) that are short after a pause in the traffic, and become
//! longer while the traffic continues.
//!
//! If runs last 100 ms, a page loaded in half a second leaves 73-75 % of its bytes on one path. If
//! all runs last 10-20 ms, long downloads are slow. So a run's length depends on the time since
//! the pause: its mean is a quarter of that time, within the user's bounds.
//!
//! The mean length of a run is proportional to the elapsed time. So the lengths are spread evenly
//! on a logarithmic scale. For example, a load (a burst of traffic) has as many runs with a mean
//! of 50 to 100 ms as with a mean of 100 to 200 ms. If the user's maximum is 100 ms, the mean
//! reaches it 400 ms after the pause.

use std::time::Duration;

use rand::RngExt;

use crate::seed::Stream;

/// Ratio of the time since the pause in the traffic to the mean length of a run (consecutive
/// packets on one path).
const PART: u32 = 4;

/// Draws the duration of a run (consecutive packets on one path). `since` is the time from the
/// first run after a pause in the traffic to the beginning of this run.
///
/// The duration is uniform from half to one and a half times its mean. Without this random factor,
/// an observer could compute from the lengths when the pause ended.
pub(crate) fn length(
    least: Duration,
    most: Duration,
    since: Duration,
    stream: &mut Stream,
) -> Duration {
    let mean = (since / PART).clamp(least, most);
    times(mean, stream.random_range(0.5..=1.5)).max(Duration::from_nanos(1))
}

/// Returns `span` times `factor`, which must not be negative. The result is at most
/// [`Duration::MAX`].
pub(crate) fn times(span: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(span.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::stream;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Returns the mean length, in seconds, of runs that begin `since` after a pause in the
    /// traffic.
    fn mean(since: Duration) -> f64 {
        let mut stream = stream(1, 0, "growth");
        let lengths = (0..10_000).map(|_| length(millis(10), millis(100), since, &mut stream));
        lengths.map(|length| length.as_secs_f64()).sum::<f64>() / 1e4
    }

    #[test]
    fn runs_grow_with_the_load_between_their_bounds() {
        let close = |since, expected: f64| {
            let mean = mean(millis(since));
            // The bound is five standard errors: the standard deviation is 29 % of the mean.
            assert!((mean / expected - 1.0).abs() < 0.015, "after {since} ms: {mean}");
        };
        close(0, 0.010);
        close(40, 0.010);
        close(200, 0.050);
        close(400, 0.100);
        close(90_000, 0.100);
    }

    #[test]
    fn no_two_loads_have_the_same_boundaries() {
        let mut stream = stream(1, 0, "growth");
        let lengths: std::collections::BTreeSet<_> = (0..100)
            .map(|_| length(millis(10), millis(100), Duration::ZERO, &mut stream))
            .collect();
        assert_eq!(lengths.len(), 100);
        assert!(lengths.iter().all(|length| (millis(5)..=millis(15)).contains(length)));
    }

    #[test]
    fn bounds_at_the_ends_of_what_can_be_written_are_lengths() {
        let mut stream = stream(1, 0, "growth");
        let short = Duration::from_micros(1);
        assert!(length(short, short, Duration::ZERO, &mut stream) > Duration::ZERO);
        let long = Duration::from_secs(u64::MAX);
        assert!(length(long, long, Duration::ZERO, &mut stream) > millis(1));
    }
}
