//! Detection of steps of the machine's clock, which may be set while the authority runs. A step
//! forward must not count as downtime of relays. A consensus with a wrong date in the future is
//! worse than no consensus, because clients that have it accept no other consensus until that
//! date.

use anabranch_multipath::Time;
use rustix::time::{ClockId, clock_gettime};

/// Smallest change of the clock that counts as a step, in seconds. Smaller changes are taken for
/// corrections by a time service such as NTP.
const STEP: i64 = 5;
/// Time in seconds after the clock was set during which the authority makes no consensus. If the
/// interval between consensuses is shorter, that interval is used instead.
const SETTLING: u64 = 300;

/// A sudden change of the machine's clock, or a sleep of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Advance of the clock since the last check, minus the time during which the machine was
    /// awake, in seconds. Negative if the clock advanced less than that time.
    pub(super) by: i64,
    /// Change of the clock in seconds when it was set, negative if it was set back; 0 if the
    /// machine only slept.
    pub(super) set: i64,
}

/// State of the machine's clock when it was last checked. All fields are in seconds.
pub(super) struct WallClock {
    /// The clock's time minus the time for which the machine was awake since the program's start.
    /// It changes if the clock is set or the machine sleeps.
    awake: i64,
    /// The clock's time minus the time since boot. It changes if the clock is set.
    started: i64,
    settling: u64,
    /// Sum of the clock's changes since it was last trusted, in seconds. If the sum is almost 0,
    /// the clock was set back to its old value.
    set: i64,
    /// Time at which the clock is trusted again, in seconds since boot ([`steady`]).
    trusted: u64,
}

impl WallClock {
    /// Records the state of the clock. `interval` is the interval between consensuses, in seconds.
    pub(super) fn new(now: Time, steady: u64, unix: u64, interval: u64) -> WallClock {
        let (awake, started) = ahead(now, steady, unix);
        WallClock { awake, started, settling: SETTLING.min(interval), set: 0, trusted: 0 }
    }

    /// Returns the step if the clock was set or the machine slept since the last call; `None` if
    /// the change was less than [`STEP`]. `steady` is the time in seconds since boot, and `unix`
    /// the clock's time in seconds since 1970.
    pub(super) fn look(&mut self, now: Time, steady: u64, unix: u64) -> Option<Step> {
        let (awake, started) = ahead(now, steady, unix);
        let by = awake - self.awake;
        if by.abs() < STEP {
            return None;
        }
        let set = started - self.started;
        let set = if set.abs() < STEP { 0 } else { set };
        (self.awake, self.started) = (awake, started);
        self.note(set, steady);
        Some(Step { by, set })
    }

    /// Returns whether the clock can be trusted at the time `steady`, in seconds since boot: it
    /// was not set recently, or was set back to its old value afterwards.
    pub(super) fn is_trusted(&self, steady: u64) -> bool {
        steady >= self.trusted
    }

    /// Returns the number of seconds after a step during which the clock is not trusted and no
    /// consensus is made.
    pub(super) fn settling(&self) -> u64 {
        self.settling
    }

    fn note(&mut self, set: i64, steady: u64) {
        if set == 0 {
            return;
        }
        self.set = if self.is_trusted(steady) { set } else { self.set + set };
        let back = self.set.abs() < STEP;
        self.trusted = if back { 0 } else { steady + self.settling };
    }
}

/// Returns the seconds since boot, including sleep. Unlike the machine's clock, this value cannot
/// be set.
pub(super) fn steady() -> u64 {
    u64::try_from(clock_gettime(ClockId::Boottime).tv_sec).unwrap_or(0)
}

fn ahead(now: Time, steady: u64, unix: u64) -> (i64, i64) {
    (unix as i64 - now.since(Time::ZERO).as_secs() as i64, unix as i64 - steady as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIX: u64 = 1_800_000_000;

    /// Checks the wall clock after `after` seconds. The machine slept for `slept` of these
    /// seconds, and the clock was set forward by `set` seconds.
    fn look(wall: &mut WallClock, after: u64, slept: u64, set: i64) -> Option<Step> {
        let unix = (UNIX + after).saturating_add_signed(set);
        wall.look(Time::from_secs(after - slept), 50 + after, unix)
    }

    #[test]
    fn a_step_is_told_once_and_drift_and_corrections_are_not() {
        let mut wall = WallClock::new(Time::ZERO, 50, UNIX, 3600);
        assert_eq!(look(&mut wall, 60, 0, 0), None);
        assert_eq!(look(&mut wall, 120, 0, 3), None, "it was corrected");
        assert_eq!(look(&mut wall, 180, 0, 3600), Some(Step { by: 3600, set: 3600 }));
        assert_eq!(look(&mut wall, 240, 0, 3600), None);
        assert_eq!(look(&mut wall, 300, 0, 0), Some(Step { by: -3600, set: -3600 }));
    }

    #[test]
    fn a_machine_that_slept_is_trusted_and_a_clock_that_was_set_is_not_until_it_settles() {
        let mut wall = WallClock::new(Time::ZERO, 50, UNIX, 3600);
        assert_eq!(look(&mut wall, 9_000, 8_000, 0), Some(Step { by: 8_000, set: 0 }));
        assert!(wall.is_trusted(9_050));
        look(&mut wall, 9_060, 8_000, 86_400);
        assert!(!wall.is_trusted(9_110) && wall.is_trusted(9_110 + SETTLING));
        look(&mut wall, 9_100, 8_000, 0);
        assert!(wall.is_trusted(9_150), "it is what it was");
        look(&mut wall, 9_200, 8_000, -86_400);
        look(&mut wall, 9_600, 8_000, 0);
        assert!(!wall.is_trusted(9_650), "it had been trusted meanwhile");
    }

    #[test]
    fn short_intervals_settle_soon() {
        let mut wall = WallClock::new(Time::ZERO, 50, UNIX, 10);
        look(&mut wall, 100, 0, 86_400);
        assert!(!wall.is_trusted(159) && wall.is_trusted(160));
    }

    #[test]
    fn the_steady_clock_goes_on() {
        assert!(steady() > 0);
    }
}
