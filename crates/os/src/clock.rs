//! A monotonic clock that starts at zero.

use std::time::{Instant, SystemTime};

use anabranch_multipath::Time;

/// A monotonic clock (`CLOCK_MONOTONIC`). The clock reports the [`Time`] since its own start, and
/// converts a [`Time`] that it has reported to the time of day.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    wall: SystemTime,
}

impl Clock {
    /// Starts a clock whose zero is now.
    #[must_use]
    pub fn start() -> Self {
        Self { start: Instant::now(), wall: SystemTime::now() }
    }

    /// Starts a clock with `wall` as the present time of day, to simulate a machine whose clock is
    /// wrong.
    #[must_use]
    pub fn start_at(wall: SystemTime) -> Self {
        Self { start: Instant::now(), wall }
    }

    /// Returns the time since the start of the clock.
    pub fn now(&self) -> Time {
        Time::ZERO + self.start.elapsed()
    }

    /// Returns the time of day at which the clock started.
    pub fn wall_start(&self) -> SystemTime {
        self.wall
    }

    /// Returns the time of day at `time`: the time of day at the start plus the time elapsed.
    /// Later adjustments of the system clock do not change the result, so the order of events is
    /// preserved.
    pub fn wall(&self, time: Time) -> SystemTime {
        self.wall + time.since(Time::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn time_goes_on_from_zero() {
        let clock = Clock::start();
        let first = clock.now();
        std::thread::sleep(Duration::from_millis(2));
        let passed = clock.now() - first;
        assert!(first < Time::from_secs(5) && passed >= Duration::from_millis(2), "{passed:?}");
    }

    #[test]
    fn wall_time_follows_the_start() {
        let clock = Clock::start();
        let later = clock.wall(Time::from_secs(3));
        assert_eq!(later.duration_since(clock.wall_start()).unwrap(), Duration::from_secs(3));
    }
}
