//! Progress of an experiment's plan, and an estimate of the remaining time.

use std::time::Duration;

/// Number of finished units (measurements), and an estimate of the time left. This type reads no
/// clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    done: usize,
    total: usize,
    /// Sum of the expected durations of the remaining units (measurements).
    left: Duration,
    /// Sum of the expected durations of the units (measurements) that were finished since the
    /// experiment was last started.
    due: Duration,
    /// Sum of the real durations of the units (measurements) that were finished since the
    /// experiment was last started.
    elapsed: Duration,
}

impl Progress {
    /// Creates the progress of a plan with `done` finished units (measurements). `left` has the
    /// expected duration of each remaining unit.
    pub fn new(done: usize, left: impl ExactSizeIterator<Item = Duration>) -> Progress {
        let total = done + left.len();
        Progress { done, total, left: left.sum(), due: Duration::ZERO, elapsed: Duration::ZERO }
    }

    /// Counts a finished unit (measurement) with the expected duration `due` and the real duration
    /// `elapsed`.
    pub fn done(&mut self, due: Duration, elapsed: Duration) {
        self.done += 1;
        self.left = self.left.saturating_sub(due);
        self.due += due;
        self.elapsed += elapsed;
    }

    /// Returns the number of finished units (measurements), and the number of all units.
    pub fn counts(&self) -> (usize, usize) {
        (self.done, self.total)
    }

    /// Estimates the remaining time from the speed of the measurements since the experiment was
    /// last started.
    pub fn left(&self) -> Duration {
        if self.due.is_zero() {
            return self.left;
        }
        self.left.mul_f64(self.elapsed.as_secs_f64() / self.due.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_time_left_follows_how_long_units_really_take() {
        let mut progress = Progress::new(3, [10, 10, 20].map(|s| s * SECOND).into_iter());
        assert_eq!((progress.counts(), progress.left()), ((3, 6), 40 * SECOND));
        progress.done(10 * SECOND, 15 * SECOND);
        assert_eq!((progress.counts(), progress.left()), ((4, 6), 45 * SECOND));
        progress.done(10 * SECOND, 5 * SECOND);
        assert_eq!((progress.counts(), progress.left()), ((5, 6), 20 * SECOND));
        progress.done(20 * SECOND, 20 * SECOND);
        assert_eq!((progress.counts(), progress.left()), ((6, 6), Duration::ZERO));
    }
}
