//! Timestamps (RFC 7323, sections 3 to 5).

use std::time::Duration;

use anabranch_multipath::Time;

use crate::constants::PAWS_IDLE;
use crate::options::Timestamps;

/// A connection's timestamp clock, and the latest timestamp received from the peer.
#[derive(Clone, Debug)]
pub(super) struct Stamps {
    /// Whether timestamps are offered; after the handshake, whether both sides use them.
    pub(super) enabled: bool,
    offset: u32,
    /// `TS.Recent` of RFC 7323, and the time at which it was received; `None` before the first
    /// timestamp.
    recent: Option<(u32, Time)>,
    /// `Last.ACK.sent` of RFC 7323, as an offset in the peer's stream.
    pub(super) last_ack: u64,
}

impl Stamps {
    pub(super) fn new(enabled: bool, offset: u32) -> Stamps {
        Stamps { enabled, offset, recent: None, last_ack: 0 }
    }

    /// Returns the current value of the timestamp clock, in milliseconds modulo 2^32.
    fn clock(&self, now: Time) -> u32 {
        ((now.nanos() / 1_000_000) as u32).wrapping_add(self.offset)
    }

    /// Returns the timestamps option for a segment that is sent now; `None` without timestamps.
    pub(super) fn option(&self, now: Time) -> Option<Timestamps> {
        let echo = self.recent.map_or(0, |(value, _)| value);
        self.enabled.then(|| Timestamps { value: self.clock(now), echo })
    }

    /// Returns the time since the timestamp that `stamps` echoes was sent; `None` if the echo is
    /// not valid.
    pub(super) fn age(&self, now: Time, stamps: Timestamps) -> Option<Duration> {
        let age = self.clock(now).wrapping_sub(stamps.echo);
        // The clock counts milliseconds, so a timestamp of the current millisecond may be up to 1
        // ms old.
        let age = Duration::from_millis(age.into()) + Duration::from_nanos(now.nanos() % 1_000_000);
        (self.enabled && stamps.echo != 0 && age < PAWS_IDLE).then_some(age)
    }

    /// Returns whether the timestamp of a segment is older than `TS.Recent`. Returns false if
    /// `TS.Recent` is outdated (PAWS, RFC 7323, section 5.3), or if one of the two timestamps is
    /// missing.
    pub(super) fn is_old(&self, now: Time, stamps: Option<Timestamps>) -> bool {
        let Some((stamps, (recent, at))) = stamps.filter(|_| self.enabled).zip(self.recent) else {
            return false;
        };
        let difference = stamps.value.wrapping_sub(recent) as i32;
        difference < 0 && now.since(at) < PAWS_IDLE
    }

    /// Stores the timestamp of a segment that begins at the offset `start`. Ignores the timestamp
    /// if it is old, or if `start` is after `Last.ACK.sent` (RFC 7323, section 4.3).
    pub(super) fn take(&mut self, now: Time, start: u64, stamps: Option<Timestamps>) {
        let Some(stamps) = stamps.filter(|_| self.enabled && start <= self.last_ack) else {
            return;
        };
        if !self.is_old(now, Some(stamps)) {
            self.recent = Some((stamps.value, now));
        }
    }

    /// Stores the timestamp of the peer's SYN. If `stamps` is `None`, the peer does not use
    /// timestamps.
    pub(super) fn begin(&mut self, now: Time, stamps: Option<Timestamps>) {
        self.enabled &= stamps.is_some();
        self.recent = stamps.map(|stamps| (stamps.value, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(value: u32) -> Option<Timestamps> {
        Some(Timestamps { value, echo: 1 })
    }

    #[test]
    fn old_timestamps_are_told_from_wrapped_ones() {
        let mut stamps = Stamps::new(true, 0);
        stamps.begin(Time::ZERO, stamp(u32::MAX - 5));
        assert!(stamps.is_old(Time::ZERO, stamp(u32::MAX - 6)));
        assert!(!stamps.is_old(Time::ZERO, stamp(3)), "the clock has wrapped");
        stamps.take(Time::ZERO, 0, stamp(3));
        assert!(stamps.is_old(Time::ZERO, stamp(u32::MAX - 5)));
        assert!(!stamps.is_old(Time::ZERO + PAWS_IDLE, stamp(u32::MAX - 5)), "outdated itself");
    }

    #[test]
    fn the_age_of_an_echo_is_right_where_the_clock_wraps() {
        let stamps = Stamps::new(true, u32::MAX - 9);
        let sent = stamps.option(Time::from_millis(5)).unwrap().value;
        assert_eq!(sent, u32::MAX - 4);
        let echoed = Timestamps { value: 0, echo: sent };
        assert_eq!(stamps.age(Time::from_millis(35), echoed), Some(Duration::from_millis(30)));
    }
}
