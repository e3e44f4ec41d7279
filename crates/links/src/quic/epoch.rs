//! Conversion between the caller's time and the time type of the QUIC library.

#![allow(clippy::disallowed_types, reason = "the library counts in `Instant`; ours is its offset")]

use std::time::Instant;

use anabranch_multipath::Time;

/// The library's `Instant` that corresponds to [`Time::ZERO`]. Any value is correct, because only
/// differences are used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epoch(Instant);

impl Epoch {
    #[allow(clippy::disallowed_methods, reason = "nothing else makes an `Instant`")]
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
