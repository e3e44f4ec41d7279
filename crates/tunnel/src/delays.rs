//! Differences in delay between paths, from timestamps of the sender's clock. The unknown offset
//! between the clocks is the same for all paths, so it cancels out in a difference.

use std::time::Duration;

use anabranch_multipath::{PathId, Time};

/// Length of the periods in which a path's minimum delay is measured. The minimum of the previous
/// period is used, too, so a measured minimum remains in use for one to two periods.
const MIN_DELAY_FILTER_LENGTH: Duration = Duration::from_secs(10);
/// Minimum time for which a datagram is held back to wait for a missing earlier datagram.
const LEAST: Duration = Duration::from_millis(2);
/// Maximum time for which a datagram is held back to wait for a missing earlier datagram. If a
/// path is slower than the fastest path by more than this time, its datagrams are delivered out of
/// order.
pub const LONGEST: Duration = Duration::from_millis(250);

/// The delays of all paths.
#[derive(Default)]
pub(crate) struct Delays {
    /// Arrival time of the first packet minus its timestamp, in microseconds (32 bits). All delays
    /// are relative to this difference. `None` before the first packet.
    base: Option<u32>,
    paths: Vec<Delay>,
}

#[derive(Clone, Default)]
struct Delay {
    /// Minimum delays in the current [`MIN_DELAY_FILTER_LENGTH`] and in the previous one, in
    /// microseconds; `None` for a period without packets.
    least: [Option<i64>; 2],
    until: Time,
    /// Average delay in microseconds, times 8 (to keep precision); `None` before the first packet.
    mean: Option<i64>,
    /// Mean deviation from the average in microseconds, times 4.
    deviation: i64,
}

impl Delays {
    /// Records a packet with the sender's timestamp `stamp` that arrived on `path` at `now`.
    /// Returns the time at which the packet would have arrived on the fastest path.
    pub(crate) fn note(&mut self, now: Time, path: PathId, stamp: u32) -> Time {
        let difference = micros(now).wrapping_sub(stamp);
        let base = *self.base.get_or_insert(difference);
        let delay = i64::from(difference.wrapping_sub(base).cast_signed());
        if self.paths.len() <= path.index() {
            self.paths.resize_with(path.index() + 1, Delay::default);
        }
        self.paths[path.index()].note(now, delay);
        let longer = (delay - self.least()).clamp(0, LONGEST.as_micros() as i64).unsigned_abs();
        Time::from_nanos(now.nanos().saturating_sub(longer * 1000))
    }

    /// Returns the time for which a datagram waits for missing earlier datagrams: the difference
    /// between the delays of the slowest and the fastest path. The wait counts from the time at
    /// which the datagram would have arrived on the fastest path.
    pub(crate) fn patience(&self) -> Duration {
        let most = self.paths.iter().filter_map(Delay::usual).max();
        let spread = most.map_or(0, |most| (most - self.least()).max(0).unsigned_abs());
        Duration::from_micros(spread).clamp(LEAST, LONGEST)
    }

    /// Returns the minimum delay of the slowest path minus the minimum delay of `path`, at most
    /// [`LONGEST`].
    pub(crate) fn shorter(&self, path: PathId) -> Duration {
        let most = self.paths.iter().filter_map(Delay::least).max();
        let own = self.paths.get(path.index()).and_then(Delay::least);
        let shorter = most.zip(own).map_or(0, |(most, own)| (most - own).unsigned_abs());
        Duration::from_micros(shorter).min(LONGEST)
    }

    fn least(&self) -> i64 {
        self.paths.iter().filter_map(Delay::least).min().unwrap_or_default()
    }
}

impl Delay {
    fn note(&mut self, now: Time, delay: i64) {
        if now >= self.until {
            self.least = [None, self.least[0]];
            self.until = now + MIN_DELAY_FILTER_LENGTH;
        }
        self.least[0] = Some(self.least[0].map_or(delay, |least| least.min(delay)));
        let Some(mean) = &mut self.mean else {
            (self.mean, self.deviation) = (Some(delay * 8), 0);
            return;
        };
        let error = delay - *mean / 8;
        *mean += error;
        // The deviation is rounded up, so that it becomes 0 if the delay does not vary.
        self.deviation += error.abs() - (self.deviation + 3) / 4;
    }

    /// Returns a delay that few packets exceed, in microseconds: the average plus four mean
    /// deviations, as in the timeout of RFC 6298. Returns `None` before the first packet.
    fn usual(&self) -> Option<i64> {
        Some(self.mean? / 8 + self.deviation)
    }

    fn least(&self) -> Option<i64> {
        self.least.iter().flatten().min().copied()
    }
}

/// Returns the timestamp for `now`: the time in microseconds, as its lowest 32 bits.
pub(crate) fn micros(now: Time) -> u32 {
    (now.nanos() / 1000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the measured delays after packets of three paths with `delays` in milliseconds. The
    /// sender's clock is ahead by `off` microseconds.
    fn of(delays: [u64; 3], off: u32) -> Delays {
        let mut known = Delays::default();
        for round in 0..200u64 {
            for (path, delay) in delays.iter().enumerate() {
                let sent = Time::from_millis(10 * round);
                let stamp = micros(sent).wrapping_add(off);
                known.note(sent + Duration::from_millis(*delay), PathId::at(path), stamp);
            }
        }
        known
    }

    #[test]
    fn patience_is_what_the_slowest_path_takes_longer_whatever_the_clocks_say() {
        for off in [0, 12_345, u32::MAX - 3, 1 << 31] {
            assert_eq!(of([20, 35, 60], off).patience(), Duration::from_millis(40), "{off}");
        }
        assert_eq!(of([20, 20, 20], 5).patience(), LEAST);
        assert_eq!(of([20, 35, 900], 5).patience(), LONGEST);
        assert_eq!(Delays::default().patience(), LEAST);
    }

    #[test]
    fn a_path_that_became_fast_is_known_as_such_and_one_that_became_slow_after_a_while() {
        let mut known = of([20, 20, 60], 0);
        let later = Time::from_secs(60);
        for round in 0..3000u64 {
            for (path, delay) in [100u64, 20, 20].iter().enumerate() {
                let sent = later + Duration::from_millis(10 * round);
                known.note(sent + Duration::from_millis(*delay), PathId::at(path), micros(sent));
            }
        }
        assert_eq!(known.patience(), Duration::from_millis(80));
    }
}
