//! Points in time, as numbers that the caller provides.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A point in time, in nanoseconds since the origin of the caller's clock.
///
/// Protocol code never reads a clock. `os::clock` converts the monotonic clock to a `Time`; tests
/// and simulations choose each `Time` themselves.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The origin of the clock.
    pub const ZERO: Time = Time(0);
    /// The latest time, 584 years after the origin: no event is later.
    pub const MAX: Time = Time(u64::MAX);

    /// Returns the time `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Returns the time `micros` microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Time {
        Time(micros * 1_000)
    }

    /// Returns the time `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    /// Returns the time `secs` seconds after the origin.
    pub const fn from_secs(secs: u64) -> Time {
        Time(secs * 1_000_000_000)
    }

    /// Returns the nanoseconds since the origin.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Returns the seconds since the origin.
    pub fn secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns the time from `earlier` to `self`; zero if `earlier` is later than `self`.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Time {
    type Output = Time;
    /// Adds `span`; the sum is at most [`Time::MAX`].
    fn add(self, span: Duration) -> Time {
        Time(self.0.saturating_add(nanos(span)))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    /// Subtracts `span`; the difference is at least [`Time::ZERO`].
    fn sub(self, span: Duration) -> Time {
        Time(self.0.saturating_sub(nanos(span)))
    }
}

impl Sub for Time {
    type Output = Duration;
    /// Returns the time from `earlier` to `self`, like [`Time::since`].
    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}s", self.secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Time::MAX + Duration::from_secs(1), Time::MAX);
        assert_eq!(Time::ZERO - Duration::from_secs(1), Time::ZERO);
        assert_eq!(Time::from_millis(1).since(Time::from_millis(2)), Duration::ZERO);
    }

    #[test]
    fn a_difference_added_back_gives_the_same_point() {
        let (a, b) = (Time::from_micros(17), Time::from_secs(3));
        assert_eq!(a + (b - a), b);
    }
}
