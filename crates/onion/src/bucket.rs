//! A token bucket: it gains `rate` bytes a second, and holds at most `burst` unused bytes.

use std::time::Duration;

use anabranch_multipath::Time;

/// Token bucket that counts bytes. A `take` may remove more bytes than the bucket holds. Nothing
/// may pass then until the missing bytes have been added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Number of bytes added per second.
    rate: u64,
    /// Maximum number of bytes held.
    burst: u64,
    left: i64,
    filled: Time,
}

impl Bucket {
    /// Returns a full bucket. A `rate` of 0 is treated as 1 byte a second.
    #[must_use]
    pub fn full(now: Time, rate: u64, burst: u64) -> Bucket {
        let burst = burst.clamp(1, i64::MAX as u64);
        Bucket { rate: rate.max(1), burst, left: burst as i64, filled: now }
    }

    /// Returns the number of bytes that may pass at `now`.
    pub fn left(&mut self, now: Time) -> u64 {
        let span = now.since(self.filled).as_nanos();
        let more = u128::from(self.rate) * span / 1_000_000_000;
        if more > 0 {
            let filled = i128::from(self.left) + more.min(i64::MAX as u128) as i128;
            self.left = filled.min(i128::from(self.burst)) as i64;
            // The time of a fraction of a byte counts at the next call.
            let used = (more * 1_000_000_000 / u128::from(self.rate)).min(span);
            self.filled += Duration::from_nanos(used.min(u128::from(u64::MAX)) as u64);
        }
        self.left.max(0) as u64
    }

    /// Removes `bytes` bytes, which have passed, from the bucket.
    pub fn take(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub_unsigned(bytes);
    }

    /// Returns the time at which the bucket will hold `bytes` bytes if no bytes are taken until
    /// then. Returns `None` if it holds them now. A number above `burst` is treated as `burst`.
    #[must_use]
    pub fn when(&self, bytes: u64) -> Option<Time> {
        let wanted = i128::from(bytes.min(self.burst));
        let missing = u128::try_from(wanted - i128::from(self.left)).ok().filter(|&n| n > 0)?;
        let nanos = (missing * 1_000_000_000).div_ceil(u128::from(self.rate));
        Some(self.filled + Duration::from_nanos(nanos.min(u128::from(u64::MAX)) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_burst_passes_at_once_and_then_the_rate() {
        let mut bucket = Bucket::full(Time::ZERO, 1000, 5000);
        assert_eq!((bucket.left(Time::ZERO), bucket.when(5000)), (5000, None));
        bucket.take(5000);
        assert_eq!((bucket.left(Time::ZERO), bucket.when(500)), (0, Some(at(500))));
        assert_eq!(bucket.left(at(500)), 500);
        assert_eq!(bucket.left(at(100_000)), 5000, "no more than a burst is held");
    }

    #[test]
    fn what_passed_in_excess_is_made_up_for() {
        let mut bucket = Bucket::full(Time::ZERO, 1000, 1000);
        bucket.take(3000);
        assert_eq!((bucket.left(at(2000)), bucket.left(at(2500))), (0, 500));
    }

    #[test]
    fn many_small_looks_lose_nothing() {
        let mut bucket = Bucket::full(Time::ZERO, 3, 100);
        bucket.take(100);
        let left = (1..=10_000).map(|millis| bucket.left(at(millis))).last();
        assert_eq!(left, Some(30));
    }
}
