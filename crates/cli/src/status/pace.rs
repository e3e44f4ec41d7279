//! Interval timers for publishing the status and for showing the running program, driven by one
//! clock.

use std::time::Duration;

use anabranch_multipath::Time;

/// Maximum age of the published status.
pub(crate) const FRESH: Duration = Duration::from_secs(1);

/// An interval timer, driven by a clock that ticks at least as often as events are due. The field
/// is the earliest time of the next event.
pub(crate) struct Pace(Time);

impl Pace {
    /// Creates a timer that is due at the first tick.
    pub(crate) const fn new() -> Pace {
        Pace(Time::ZERO)
    }

    /// Returns whether an event is due at `now`, and if so, starts the next interval. Events are
    /// `every` apart, and `tick` is the interval of the clock. An event may be half a tick early.
    /// Otherwise, if the clock ticked slightly early, the event would be a whole tick late.
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
        let mut pace = Pace::new();
        // Each tick is a millisecond early.
        let due = (0..100).filter(|n| pace.is_due(Time::from_millis(n * 99), every, tick));
        assert_eq!(due.collect::<Vec<_>>(), [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]);
    }
}
