//! Rate limits that the links of all of a relay's threads share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anabranch_multipath::Time;

const SECOND: u128 = 1_000_000_000;

/// A token bucket that threads share without a lock. Only the time at which the bucket will be
/// full is stored; the content is computed from it. The content may become negative; then no bytes
/// may pass until it is positive again.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    /// Rate in bytes per second.
    rate: Arc<AtomicU64>,
    /// Maximum content of the bucket in bytes.
    burst: Arc<AtomicU64>,
    /// Time at which the bucket will be full, in nanoseconds since the start of the clock.
    full_at: Arc<AtomicU64>,
}

impl Meter {
    /// Creates a full bucket with the rate `rate` in bytes per second and the capacity `burst` in
    /// bytes. A value of 0 counts as 1.
    pub(super) fn full(rate: u64, burst: u64) -> Meter {
        let meter = Meter { rate: Arc::default(), burst: Arc::default(), full_at: Arc::default() };
        meter.set(rate, burst);
        meter
    }

    /// Changes `rate` and `burst` for all threads that share the bucket. The bucket is full
    /// afterwards, because earlier traffic was subject to other limits.
    pub(super) fn set(&self, rate: u64, burst: u64) {
        self.rate.store(rate.max(1), Ordering::Relaxed);
        self.burst.store(burst.max(1), Ordering::Relaxed);
        self.full_at.store(0, Ordering::Relaxed);
    }

    fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    fn burst(&self) -> u64 {
        self.burst.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that may pass at the time `now`.
    pub(super) fn left(&self, now: Time) -> u64 {
        let lacks = self.full_at.load(Ordering::Relaxed).saturating_sub(now.nanos());
        let missing = u128::from(lacks) * u128::from(self.rate()) / SECOND;
        self.burst().saturating_sub(u64::try_from(missing).unwrap_or(u64::MAX))
    }

    /// Removes `bytes` bytes from the bucket, because they pass now.
    pub(super) fn take(&self, now: Time, bytes: u64) {
        let nanos = self.nanos(bytes);
        let later = |full_at: u64| Some(full_at.max(now.nanos()).saturating_add(nanos));
        let _ = self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }

    /// Returns the time at which a waiting link should be woken, so that it does not wake for a
    /// few bytes. At this time the bucket contains the bytes that it gains in ten milliseconds, or
    /// 4096 bytes if that is more, but at most `burst` bytes.
    pub(super) fn some_at(&self) -> Time {
        let burst = self.burst();
        let some = (self.rate() / 100).max(4096).min(burst);
        let full_at = self.full_at.load(Ordering::Relaxed);
        let nanos = full_at.saturating_sub(self.nanos(burst - some));
        Time::ZERO + Duration::from_nanos(nanos)
    }

    /// Returns the time in nanoseconds in which `bytes` bytes pass at the bucket's rate, rounded
    /// up.
    fn nanos(&self, bytes: u64) -> u64 {
        let nanos = (u128::from(bytes) * SECOND).div_ceil(u128::from(self.rate()));
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn a_burst_passes_at_once_and_then_the_rate() {
        let meter = Meter::full(1_000_000, 50_000);
        assert_eq!((meter.left(at(0)), meter.some_at()), (50_000, Time::ZERO));
        meter.take(at(0), 50_000);
        assert_eq!((meter.left(at(0)), meter.some_at()), (0, at(10)));
        assert_eq!((meter.left(at(5)), meter.left(at(10))), (5_000, 10_000));
        assert_eq!(meter.left(at(100_000)), 50_000, "no more than a burst is held");
    }

    #[test]
    fn what_passed_in_excess_is_made_up_for_by_all_who_share_it() {
        let (meter, other) = {
            let meter = Meter::full(1000, 1000);
            (meter.clone(), meter)
        };
        meter.take(at(0), 2000);
        other.take(at(0), 1000);
        assert_eq!((meter.left(at(2000)), other.left(at(2500))), (0, 500));
    }

    #[test]
    fn another_rate_holds_for_all_who_share_it_from_now_on() {
        let meter = Meter::full(1000, 1_000_000);
        let other = meter.clone();
        // At the old rate, the bucket would be full again after a thousand seconds.
        meter.take(at(0), 1_000_000);
        meter.set(50_000, 100_000);
        assert_eq!(other.left(at(1)), 100_000);
        other.take(at(1), 100_000);
        assert_eq!((other.left(at(1)), other.left(at(1001))), (0, 50_000));
    }

    #[test]
    fn threads_take_no_more_than_the_rate_together() {
        let meter = Meter::full(1_000_000, 1_000_000);
        let taken: u64 = std::thread::scope(|scope| {
            let work = |meter: Meter| {
                let mut taken = 0;
                while meter.left(at(0)) > 0 {
                    meter.take(at(0), 100);
                    taken += 100;
                }
                taken
            };
            let threads =
                [meter.clone(), meter.clone()].map(|meter| scope.spawn(move || work(meter)));
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        // Each thread may exceed the limit by its last piece, because it checks the bucket before
        // it takes bytes.
        assert!((1_000_000..=1_000_100).contains(&taken), "{taken}");
    }
}
