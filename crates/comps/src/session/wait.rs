//! The time that a client has waited for an answer from its server. A wrong port, a wrong key, a
//! firewall or a stopped server all cause such a wait, and WireGuard, Mosh and QUIC do not report
//! it.

use std::time::Duration;

use anabranch_multipath::Time;

/// Time without an answer before a session first reports that its server does not answer. Also the
/// minimum pause between two such reports of all sessions together.
pub(super) const FIRST: Duration = Duration::from_secs(10);
/// Longest pause between two reports of one session that its server does not answer. Each pause is
/// twice as long as the pause before.
const LONGEST: Duration = Duration::from_secs(640);
/// Silence of a client after which it no longer waits for answers to older datagrams. NAT
/// keep-alives, which get no answer, are further apart (RFC 3948, section 4: 20 s).
const GAP: Duration = Duration::from_secs(10);
/// Minimum number of rounds of datagrams without an answer before a wait is reported. A round is
/// the datagrams that a client sends within [`ROUND`]. A program that ends sends at most two
/// rounds: an acknowledgement of the last answer, and later the close of the connection (QUIC's
/// CONNECTION_CLOSE). Servers answer neither.
const ROUNDS: u32 = 3;
/// Duration of a round. The datagrams that a client sends within this time count as one attempt to
/// get an answer.
const ROUND: Duration = Duration::from_secs(1);
/// Minimum time from the start of a wait to the client's latest datagram. A shorter wait is not
/// reported, because the client may have stopped waiting. A client that still waits after
/// [`FIRST`] has sent later than this. QUIC's probe timeouts double each time (RFC 9002, section
/// 6.2.1), so its client has sent in the second half of [`FIRST`]. WireGuard's handshakes are 5 s
/// apart.
const STILL: Duration = Duration::from_secs(4);

/// A wait for the server's next answer.
#[derive(Debug)]
pub(super) struct Wait {
    /// Time of the client's first datagram after the last answer; `None` if the client has sent no
    /// datagram since.
    began: Option<Time>,
    /// Time of the client's latest datagram.
    last_sent: Time,
    /// Number of rounds of datagrams that the client has sent since `began`. Datagrams less than
    /// [`ROUND`] after the first of a round belong to that round.
    rounds: u32,
    /// Time of the first datagram of the latest round. Datagrams within [`ROUND`] form a round.
    round: Time,
    last_check: Time,
    pause: Duration,
    reported: bool,
}

impl Wait {
    pub(super) fn new(now: Time) -> Wait {
        Wait {
            began: None,
            last_sent: now,
            rounds: 1,
            round: now,
            last_check: now,
            pause: FIRST,
            reported: false,
        }
    }

    /// Records that the client sends a datagram that the server would answer.
    pub(super) fn on_request(&mut self, now: Time) {
        let quiet = now.since(std::mem::replace(&mut self.last_sent, now));
        if self.began.is_none() || (quiet > GAP && !self.reported) {
            *self = Wait { began: Some(now), ..Wait::new(now) };
        } else if now.since(self.round) >= ROUND {
            self.round = now;
            self.rounds = self.rounds.saturating_add(1);
        }
    }

    /// Records that a datagram of the server arrived. Returns the length of the wait; `None` if
    /// the wait was not reported.
    pub(super) fn on_answer(&mut self, now: Time) -> Option<Duration> {
        let began = self.began.take().filter(|_| self.reported);
        self.reported = false;
        began.map(|began| now.since(began))
    }

    /// Returns when to call [`Wait::overdue`]; `None` if the client has not sent enough to count
    /// as waiting for an answer.
    pub(super) fn due(&self) -> Option<Time> {
        let waits = |began: &Time| self.reported || self.is_waiting(*began);
        self.began.filter(waits).map(|_| self.last_check + self.pause)
    }

    /// Returns how long the client has waited, for a report that the server does not answer.
    /// Returns `None` if no report is due, or if the client has not sent again since the previous
    /// check.
    pub(super) fn overdue(&mut self, now: Time) -> Option<Duration> {
        if self.due().is_none_or(|due| now < due) {
            return None;
        }
        let goes_on = self.last_sent > self.last_check;
        self.pause = (self.pause * 2).min(LONGEST);
        self.last_check = now;
        self.reported |= goes_on;
        self.began.filter(|_| goes_on).map(|began| now.since(began))
    }

    /// Returns whether the client has sent often and long enough since `began` to be waiting for an
    /// answer. A program that ends sends less.
    fn is_waiting(&self, began: Time) -> bool {
        self.rounds >= ROUNDS && self.last_sent.since(began) >= STILL
    }

    /// Returns when the wait began; `None` if the wait was not reported.
    pub(super) fn reported(&self) -> Option<Time> {
        self.began.filter(|_| self.reported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lengths of the waits that are reported within half an hour, in seconds. The
    /// client asks every `pause` seconds until the second `end`.
    fn reports(pause: usize, end: u64) -> Vec<u64> {
        let mut wait = Wait::new(Time::ZERO);
        let mut reports = Vec::new();
        let asks: Vec<u64> = (0..=end).step_by(pause).collect();
        for second in 0..1800 {
            if asks.contains(&second) {
                wait.on_request(Time::from_secs(second));
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
        assert_eq!(reports(1, 3), [0; 0]);
        assert_eq!(reports(1, 40), [10, 30, 70]);
    }

    /// Returns the time of the first report in milliseconds, for a client that asks at the times
    /// `asks`.
    fn reported(asks: &[u64]) -> Option<u64> {
        let mut wait = Wait::new(Time::ZERO);
        (0..60_000).find(|&millis| {
            let now = Time::from_millis(millis);
            asks.iter().filter(|ask| **ask == millis).for_each(|_| wait.on_request(now));
            wait.overdue(now).is_some()
        })
    }

    /// Returns the times of probes within a minute, in milliseconds. The first timeout is `first`,
    /// and each timeout is twice as long as the one before.
    fn probes(first: u64) -> Vec<u64> {
        let times = (0..).map(|number| first * ((1 << number) - 1));
        times.take_while(|time| *time < 60_000).collect()
    }

    #[test]
    fn a_program_that_ends_waits_for_nothing() {
        for close in [0, 10, 500, 2_000, 5_000, 9_000, 9_999] {
            assert_eq!(reported(&[0, close]), None, "closed at {close} ms");
            assert_eq!(reported(&[0, 25, 80, close]), None, "closed at {close} ms");
        }
    }

    #[test]
    fn a_program_that_goes_on_is_reported_after_ten_seconds_however_rarely_it_asks() {
        for first in [40, 60, 100, 250, 400, 999, 1_500, 2_000, 3_000] {
            assert_eq!(reported(&probes(first)), Some(10_000), "probes from {first} ms on");
        }
        for jitter in [0, 150, 333] {
            let handshakes: Vec<u64> = (0..12).map(|number| number * (5_000 + jitter)).collect();
            let third = handshakes[2];
            assert_eq!(reported(&handshakes), Some(third), "WireGuard's handshakes");
        }
        assert_eq!(reported(&[0, 3_000, 6_000, 9_000, 12_000]), Some(10_000), "Mosh");
        assert_eq!(reported(&[0, 5_500, 9_500]), Some(10_000));
    }

    #[test]
    fn keep_alives_of_nats_wait_for_nothing() {
        assert_eq!(reports(20, 1800), [0; 0]);
    }

    #[test]
    fn an_answer_ends_the_wait_and_tells_how_long_it_was_if_that_was_reported() {
        let mut wait = Wait::new(Time::ZERO);
        wait.on_request(Time::ZERO);
        assert_eq!(wait.on_answer(Time::from_secs(1)), None);
        assert_eq!(wait.due(), None);
        [2, 5, 9].into_iter().for_each(|second| wait.on_request(Time::from_secs(second)));
        assert!(wait.overdue(Time::from_secs(12)).is_some());
        assert_eq!(wait.reported(), Some(Time::from_secs(2)));
        assert_eq!(wait.on_answer(Time::from_secs(15)), Some(Duration::from_secs(13)));
        assert_eq!((wait.reported(), wait.on_answer(Time::from_secs(16))), (None, None));
    }
}
