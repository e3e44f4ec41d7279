//! The time that a client has waited for an answer of its server. A wrong port, a wrong key, a
//! firewall and a server that is gone all look like this, and WireGuard, Mosh and QUIC report none
//! of them.

use std::time::Duration;

use anabranch_multipath::Time;

/// Wait after which it is first reported, and pause between two reports of all sessions together.
pub(super) const FIRST: Duration = Duration::from_secs(10);
/// Longest pause between two reports of one session. Each pause is twice as long as the one
/// before.
const LONGEST: Duration = Duration::from_secs(640);
/// Silence of a client after which it no longer waits for older answers. Keep-alives of NATs,
/// which nobody answers, are further apart (RFC 3948, section 4: 20 s).
const GAP: Duration = Duration::from_secs(10);

/// A wait for the server's next answer.
#[derive(Debug)]
pub(super) struct Wait {
    /// Time of the client's first datagram after the last answer; `None` if the client has sent
    /// none since.
    began: Option<Time>,
    asked: Time,
    looked: Time,
    pause: Duration,
    reported: bool,
}

impl Wait {
    pub(super) fn new(now: Time) -> Wait {
        Wait { began: None, asked: now, looked: now, pause: FIRST, reported: false }
    }

    /// Records that the client sends a datagram that the server would answer.
    pub(super) fn on_asked(&mut self, now: Time) {
        let quiet = now.since(std::mem::replace(&mut self.asked, now));
        if self.began.is_none() || (quiet > GAP && !self.reported) {
            *self = Wait { began: Some(now), ..Wait::new(now) };
        }
    }

    /// Records that the server is heard. Returns the length of the wait, if it was reported.
    pub(super) fn on_heard(&mut self, now: Time) -> Option<Duration> {
        let began = self.began.take().filter(|_| self.reported);
        self.reported = false;
        began.map(|began| now.since(began))
    }

    /// Returns when to call [`Wait::overdue`].
    pub(super) fn due(&self) -> Option<Time> {
        self.began.map(|_| self.looked + self.pause)
    }

    /// Returns the length of the wait, if a report is due and the client has asked again since the
    /// last check.
    pub(super) fn overdue(&mut self, now: Time) -> Option<Duration> {
        if self.due().is_none_or(|due| now < due) {
            return None;
        }
        let goes_on = self.asked > self.looked;
        self.pause = (self.pause * 2).min(LONGEST);
        self.looked = now;
        self.reported |= goes_on;
        self.began.filter(|_| goes_on).map(|began| now.since(began))
    }

    /// Returns when the client first asked, if the wait was reported.
    pub(super) fn reported(&self) -> Option<Time> {
        self.began.filter(|_| self.reported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When it is reported in half an hour for a client that asks every `pause` seconds until
    /// `end`.
    fn reports(pause: usize, end: u64) -> Vec<u64> {
        let mut wait = Wait::new(Time::ZERO);
        let mut reports = Vec::new();
        let asks: Vec<u64> = (0..=end).step_by(pause).collect();
        for second in 0..1800 {
            if asks.contains(&second) {
                wait.on_asked(Time::from_secs(second));
            }
            reports.extend(wait.overdue(Time::from_secs(second)).map(|waited| waited.as_secs()));
        }
        reports
    }

    #[test]
    fn the_pauses_grow() {
        assert_eq!(reports(1, 1800), [10, 30, 70, 150, 310, 630, 1270]);
        assert_eq!(reports(5, 60), [10, 30, 70]);
    }

    #[test]
    fn a_client_that_has_given_up_is_told_no_more() {
        assert_eq!(reports(1, 0), [0; 0]);
        assert_eq!(reports(1, 40), [10, 30, 70]);
    }

    #[test]
    fn keep_alives_of_nats_wait_for_nothing() {
        assert_eq!(reports(20, 1800), [0; 0]);
    }

    #[test]
    fn an_answer_ends_the_wait_and_tells_how_long_it_was_if_that_was_reported() {
        let mut wait = Wait::new(Time::ZERO);
        wait.on_asked(Time::ZERO);
        assert_eq!(wait.on_heard(Time::from_secs(1)), None);
        assert_eq!(wait.due(), None);
        wait.on_asked(Time::from_secs(2));
        wait.on_asked(Time::from_secs(9));
        assert!(wait.overdue(Time::from_secs(12)).is_some());
        assert_eq!(wait.reported(), Some(Time::from_secs(2)));
        assert_eq!(wait.on_heard(Time::from_secs(15)), Some(Duration::from_secs(13)));
        assert_eq!((wait.reported(), wait.on_heard(Time::from_secs(16))), (None, None));
    }
}
