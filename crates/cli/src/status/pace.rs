//! Limiters of how often something is done, such as publishing the status. A periodic tick drives
//! them.

use std::time::Duration;

use anabranch_multipath::Time;

/// Maximum age of the published status.
pub(crate) const FRESH: Duration = Duration::from_secs(1);

/// Limiter of how often an action is done. Its owner asks at each tick of a clock whether the
/// action is due. The field is the earliest time of the next action.
pub(crate) struct IntervalLimiter(Time);

impl IntervalLimiter {
    /// Creates a limiter whose action is due at the first tick.
    pub(crate) const fn new() -> IntervalLimiter {
        IntervalLimiter(Time::ZERO)
    }

    /// Returns whether the action is due at `now`, and if so, starts the next interval of length
    /// `every`. `tick` is the interval between calls. The action may be half a tick early, because
    /// otherwise a slightly early tick would delay it by a whole tick.
    pub(crate) fn is_due(&mut self, now: Time, every: Duration, tick: Duration) -> bool {
        let is_due = now >= self.0;
        if is_due {
            self.0 = now + every - tick / 2;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_keep_their_pace_though_ticks_come_a_little_early() {
        let (every, tick) = (FRESH, Duration::from_millis(100));
        let mut limiter = IntervalLimiter::new();
        // Each tick is a millisecond early.
        let due = (0..100).filter(|n| limiter.is_due(Time::from_millis(n * 99), every, tick));
        assert_eq!(due.collect::<Vec<_>>(), [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]);
    }
}
