//! Conversion between the caller's time and the time types of the QUIC library `quinn-proto`.

#![allow(clippy::disallowed_types, reason = "the QUIC library requires an `Instant`")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anabranch_multipath::Time;
use quinn_proto::TimeSource;

/// The `Instant` that stands for [`Time::ZERO`] in calls of the QUIC library. Any value works,
/// because only differences are used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epoch(Instant);

impl Epoch {
    #[allow(
        clippy::disallowed_methods,
        reason = "this is the only place that creates an `Instant`"
    )]
    pub(super) fn new() -> Epoch {
        Epoch(Instant::now())
    }

    pub(super) fn instant(self, time: Time) -> Instant {
        self.0 + time.since(Time::ZERO)
    }

    pub(super) fn time(self, instant: Instant) -> Time {
        Time::ZERO + instant.saturating_duration_since(self.0)
    }
}

/// A clock that shows the time that the caller last set. From this clock, and not from the
/// system's clock, the QUIC library computes the age of Retry tokens.
#[derive(Debug, Default)]
pub(super) struct TokenClock(AtomicU64);

impl TokenClock {
    pub(super) fn set(&self, now: Time) {
        self.0.store(now.nanos(), Ordering::Relaxed);
    }
}

impl TimeSource for TokenClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}
