//! How long a client has waited for the first answer of its server: a wrong port, a wrong key and a
//! firewall all look like this, and WireGuard, Mosh and QUIC say nothing of them themselves.

use std::time::Duration;

use anabranch_multipath::Time;

/// Until it is told for the first time; between two tellings of all sessions together.
pub(super) const FIRST: Duration = Duration::from_secs(10);
/// The longest pause between two tellings of one session; each is twice as long as the one before.
const LONGEST: Duration = Duration::from_secs(640);

/// A wait that has not ended yet.
#[derive(Debug)]
pub(super) struct Wait {
    began: Time,
    looked: Time,
    pause: Duration,
}

impl Wait {
    pub(super) fn new(now: Time) -> Wait {
        Wait { began: now, looked: now, pause: FIRST }
    }

    /// When [`Wait::overdue`] is to be asked.
    pub(super) fn due(&self) -> Time {
        self.looked + self.pause
    }

    /// How long the wait has lasted, if that is to be told now: it is time to, and the client,
    /// heard last at `client_heard`, has spoken again since it was last looked at.
    pub(super) fn overdue(&mut self, now: Time, client_heard: Time) -> Option<Duration> {
        if now < self.due() {
            return None;
        }
        let goes_on = client_heard > self.looked;
        self.pause = (self.pause * 2).min(LONGEST);
        self.looked = now;
        goes_on.then(|| now.since(self.began))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When it is told in half an hour to a client that speaks each second until `end`.
    fn told(end: u64) -> Vec<u64> {
        let mut wait = Wait::new(Time::ZERO);
        let seconds = (0..1800).filter_map(|second| {
            let overdue = wait.overdue(Time::from_secs(second), Time::from_secs(second.min(end)));
            overdue.map(|waited| waited.as_secs())
        });
        seconds.collect()
    }

    #[test]
    fn the_pauses_grow() {
        assert_eq!(told(1800), [10, 30, 70, 150, 310, 630, 1270]);
    }

    #[test]
    fn a_client_that_has_given_up_is_told_no_more() {
        assert_eq!(told(0), [0; 0]);
        assert_eq!(told(40), [10, 30, 70]);
    }
}
