//! Times at which a relay's descriptor is published to an authority, in seconds since 1970.

/// Age in seconds at which a descriptor is published again (dir-spec: 18 hours).
pub(in crate::onion) const REPUBLISH_S: u64 = 18 * 3600;
/// First pause after a failed attempt to publish, in seconds. The pause doubles with each failure,
/// up to `LAST_RETRY_S`.
const FIRST_RETRY_S: u64 = 1;
/// Maximum pause after a failed attempt to publish, in seconds.
const LAST_RETRY_S: u64 = 300;

/// Schedule for publishing the descriptor to one authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PublishSchedule {
    at: u64,
    /// Pause that will follow the next failure, in seconds.
    pause: u64,
    /// Time at which the authority last accepted the descriptor, in seconds since 1970; 0 if it
    /// never has.
    taken: u64,
}

impl PublishSchedule {
    /// Creates a schedule on which publishing is due at once.
    pub(super) fn now() -> PublishSchedule {
        PublishSchedule { at: 0, pause: FIRST_RETRY_S, taken: 0 }
    }

    /// Returns whether publishing is due at `unix`, in seconds since 1970. Publishing is also due
    /// if the scheduled time is more than `REPUBLISH_S` ahead, because then the clock was set
    /// back.
    pub(super) fn is_due(&self, unix: u64) -> bool {
        self.at <= unix || self.at > unix + REPUBLISH_S
    }

    /// Returns the seconds until publishing is due. `unix` is the current time in seconds since
    /// 1970.
    pub(super) fn wait(&self, unix: u64) -> u64 {
        if self.is_due(unix) { 0 } else { self.at - unix }
    }

    /// Records that the authority accepted the descriptor at `unix`, in seconds since 1970.
    pub(super) fn taken(&mut self, unix: u64) {
        *self = PublishSchedule { at: unix + REPUBLISH_S, taken: unix, ..PublishSchedule::now() };
    }

    /// Records that publishing failed. Returns whether to report the failure. The first failures
    /// are not reported, because the authority may just be starting.
    pub(super) fn refused(&mut self, unix: u64) -> bool {
        let pause = self.pause;
        (self.at, self.pause) = (unix + pause, (pause * 2).min(LAST_RETRY_S));
        pause > FIRST_RETRY_S * 4
    }

    /// Records that the relay's descriptor could not be made. The next attempt is made after
    /// `LAST_RETRY_S`.
    pub(super) fn put_off(&mut self, unix: u64) {
        (self.at, self.pause) = (unix + LAST_RETRY_S, LAST_RETRY_S);
    }

    /// Processes a consensus that does not list our relay. Publishing is due at once if the
    /// authority may have lost our descriptor, which is assumed on two conditions. The consensus
    /// was made after the authority accepted the descriptor. In addition, one and a half intervals
    /// between consensuses have passed since the authority accepted it (C tor: 90 minutes, with an
    /// interval of one hour). All parameters are in seconds.
    pub(super) fn missed(&mut self, unix: u64, valid_after: u64, interval: u64) {
        let ahead = self.taken > unix;
        let long_ago = unix >= self.taken + interval + interval / 2 && valid_after > self.taken;
        if self.taken > 0 && (ahead || long_ago) {
            *self = PublishSchedule::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn refusals_are_tried_again_after_longer_and_longer_pauses() {
        let mut due = PublishSchedule::now();
        assert!(due.is_due(NOW));
        let waits: Vec<(bool, u64)> = (0..11).map(|_| (due.refused(NOW), due.wait(NOW))).collect();
        assert_eq!(waits[..4], [(false, 1), (false, 2), (false, 4), (true, 8)]);
        assert_eq!(waits[10], (true, 300));
        due.taken(NOW);
        assert_eq!((due.wait(NOW), due.is_due(NOW + REPUBLISH_S)), (REPUBLISH_S, true));
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_keep_us_silent() {
        let mut due = PublishSchedule::now();
        due.taken(NOW);
        assert!(!due.is_due(NOW) && due.is_due(NOW - 1) && due.wait(NOW - 86_400) == 0);
    }

    #[test]
    fn who_is_not_listed_publishes_again_after_an_interval_and_a_half() {
        let mut due = PublishSchedule::now();
        due.missed(NOW, NOW, 3600);
        assert_eq!(due, PublishSchedule::now());
        due.taken(NOW);
        let missed = |unix: u64, valid_after: u64| {
            let mut due = due.clone();
            due.missed(unix, valid_after, 3600);
            due.is_due(unix)
        };
        assert!(!missed(NOW + 5_399, NOW + 3_600) && missed(NOW + 5_400, NOW + 3_600));
        assert!(!missed(NOW + 9_000, NOW - 60), "the consensus was made before");
        assert!(missed(NOW - 60, NOW - 100), "the clock was set back");
    }
}
