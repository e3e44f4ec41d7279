//! Decides when a slow circuit of an onion network should be replaced by another circuit.

use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_tunnel::LONGEST_PATIENCE;

/// Time for which a circuit may be too slow before another circuit replaces it.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum of the time for which a circuit may be too slow. The time doubles with each
/// replacement: if all circuits are slow, further ones do not help, and each costs the onion
/// network work.
const LONGEST: Duration = Duration::from_secs(640);
/// Time for which a circuit must be fast before the limit returns to [`PATIENCE`].
const FAST: Duration = Duration::from_secs(60);

/// Record of when the onion network's circuit of a path was too slow, and when it was fast enough.
#[derive(Debug, Default)]
pub(super) struct DelayRecord {
    /// Time at which the circuit became too slow; `None` if it is not too slow.
    since: Option<Time>,
    /// Time at which the circuit became fast enough; `None` if it is too slow, or if its delay was
    /// not measured yet.
    fast: Option<Time>,
    /// Number of times that the circuit was replaced since a circuit was fast for [`FAST`].
    replaced: u32,
}

impl DelayRecord {
    /// Records `lag`, the additional delay of this path relative to the fastest path; `None` if it
    /// is unknown. Returns `lag` if it has been too large for too long, else `None`. A lag above
    /// [`LONGEST_PATIENCE`] is too large, because the far end does not wait that long for earlier
    /// datagrams and so delivers the circuit's datagrams out of order.
    pub(super) fn note(&mut self, now: Time, lag: Option<Duration>) -> Option<Duration> {
        let lag = lag?;
        if lag <= LONGEST_PATIENCE {
            self.since = None;
            if now.since(*self.fast.get_or_insert(now)) >= FAST {
                self.replaced = 0;
            }
            return None;
        }
        self.fast = None;
        let since = *self.since.get_or_insert(now);
        (now.since(since) >= self.patience()).then_some(lag)
    }

    /// Returns the time after which a slow circuit is replaced.
    pub(super) fn patience(&self) -> Duration {
        (PATIENCE * (1 << self.replaced.min(6))).min(LONGEST)
    }

    /// Counts a replacement of the circuit.
    pub(super) fn replaced(&mut self) {
        self.replaced = self.replaced.saturating_add(1);
        self.forget();
    }

    /// Forgets the circuit's delays, because a new connection follows.
    pub(super) fn forget(&mut self) {
        (self.since, self.fast) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns the number of seconds from `begin` until a circuit with this lag is replaced;
    /// `None` if it is not replaced within 2,000 s.
    fn lasts(slow: &mut DelayRecord, begin: u64, lag: Duration) -> Option<u64> {
        let mut seconds = begin..begin + 2_000;
        let end = seconds.find(|&second| slow.note(Time::from_secs(second), Some(lag)).is_some());
        end.map(|end| end - begin)
    }

    #[test]
    fn a_circuit_is_replaced_after_ten_seconds_and_each_further_one_later() {
        let mut slow = DelayRecord::default();
        let found: Vec<_> = (0..8u64)
            .map(|n| {
                let lasted = lasts(&mut slow, n * 10_000, MS * 251);
                slow.replaced();
                lasted.unwrap()
            })
            .collect();
        assert_eq!(found, [10, 20, 40, 80, 160, 320, 640, 640]);
        assert_eq!(lasts(&mut slow, 100_000, MS * 250), None, "the far end waits for these");
        assert_eq!(lasts(&mut slow, 200_000, MS * 251), Some(10), "it was fast for long");
    }

    #[test]
    fn a_moment_of_speed_begins_the_wait_again_and_what_is_not_known_ends_none() {
        let mut slow = DelayRecord::default();
        let at = Time::from_secs;
        assert_eq!(slow.note(at(0), Some(MS * 400)), None);
        assert_eq!(slow.note(at(9), Some(MS * 20)), None);
        assert_eq!(slow.note(at(11), Some(MS * 400)), None);
        assert_eq!(slow.note(at(20), None), None);
        assert_eq!(slow.note(at(21), Some(MS * 400)), Some(MS * 400));
        slow.forget();
        assert_eq!(slow.note(at(40), Some(MS * 400)), None);
    }
}
