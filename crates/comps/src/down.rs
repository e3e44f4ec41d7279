//! A path that is down in one session: the reason, and the attempts to use it again.

use std::time::Duration;

use anabranch_multipath::Time;

use crate::DownReason;

/// Number of consecutive datagrams that are copied to a path that is down, in one round of
/// attempts to find out whether the path works again.
const ROUND: u8 = 4;
/// Pause between two rounds of probes (copies of datagrams) on a path that is down. On a path on
/// which the server answered no data, it applies only after an answer.
const RETRY: Duration = Duration::from_secs(1);
/// First pause between two rounds of probes (copies of datagrams) on a path on which the server
/// answered no data. Each unanswered round doubles the pause.
const CAUTIOUS_RETRY: Duration = Duration::from_secs(5);
/// Longest pause between two rounds of probes (copies of datagrams) on a path on which the server
/// answered no data.
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// Number of consecutive answered rounds of probes (copies of datagrams) before a path on which the
/// server answered no data is used again. A server may send handshakes to an unknown address, but
/// too rarely to answer two consecutive rounds: fastd 22 sends a handshake every 15 s.
const ANSWERED_ROUNDS: u8 = 2;
/// Time from the last datagram copied to a path until the path is used again, if it is down
/// because of an error on this machine and no further error occurs.
const NO_NEWS: Duration = Duration::from_secs(1);

/// The state of a path that one session does not use because it is down: the reason, and the
/// attempts to use it again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Down {
    reason: DownReason,
    next_try: Time,
    /// Number of completed rounds of attempts (copies of datagrams sent over this path).
    tries: u32,
    /// Number of datagrams copied to this path in the present round of attempts.
    copies: u8,
    tried: Option<Time>,
    /// Number of consecutive rounds of attempts (copies of datagrams) that the server answered,
    /// the present round included.
    answered: u8,
    /// Whether the latest round of attempts (copies of datagrams) has had no answer so far.
    awaits: bool,
    /// Pause from the end of one round of attempts (copies of datagrams) to the next.
    pause: Duration,
}

impl Down {
    pub(crate) fn new(now: Time, reason: DownReason) -> Down {
        let pause = if reason == DownReason::DataUnanswered { CAUTIOUS_RETRY } else { RETRY };
        Down {
            reason,
            next_try: now + pause,
            tries: 0,
            copies: 0,
            tried: None,
            answered: 0,
            awaits: false,
            pause,
        }
    }

    pub(crate) fn reason(&self) -> DownReason {
        self.reason
    }

    /// Records a further error of a path that is down already, and ends the present round of
    /// attempts (copies of datagrams).
    pub(crate) fn on_failure(&mut self, now: Time) {
        let tries = self.tries + u32::from(self.copies > 0);
        *self = Down { next_try: now + self.pause, tries, copies: 0, tried: None, ..*self };
    }

    /// Returns the number of completed rounds of copies and whether the next copy is the first of a
    /// round. Returns `None` unless an attempt is due.
    pub(crate) fn due_try(&self, now: Time) -> Option<(u32, bool)> {
        (now >= self.next_try).then_some((self.tries, self.copies == 0))
    }

    /// Records that a copy of a live datagram is sent over this path. Attempts are made in rounds
    /// of [`ROUND`] consecutive datagrams. The next round begins after `pause`, or after the pause
    /// for this path's failure if that is longer.
    ///
    /// One copy per round would not suffice: it might always be a datagram that the server never
    /// answers, such as an acknowledgement of Mosh.
    pub(crate) fn on_copy(&mut self, now: Time, pause: Duration) {
        if self.copies == 0 {
            self.begin_round();
        }
        self.tried = Some(now);
        self.copies += 1;
        if self.copies == ROUND {
            self.end_round(now + pause.max(self.pause));
        }
    }

    fn begin_round(&mut self) {
        if self.awaits && self.reason == DownReason::DataUnanswered {
            self.answered = 0;
            self.pause = (self.pause * 2).min(LONGEST_RETRY);
        }
        self.awaits = true;
    }

    fn end_round(&mut self, next_try: Time) {
        self.copies = 0;
        self.tries = self.tries.saturating_add(1);
        self.next_try = next_try;
    }

    /// Records an answer on this path. Returns whether the path is up again.
    ///
    /// If the path is down because the server answered no data on it, an answer ends the present
    /// round of attempts (copies of datagrams). The answer may be the server's handshake. If the
    /// client's reply were copied to this path, the server would move here.
    pub(crate) fn on_answer(&mut self, now: Time) -> bool {
        if self.reason != DownReason::DataUnanswered {
            return true;
        }
        if std::mem::take(&mut self.awaits) {
            self.answered += 1;
            self.end_round(now + RETRY);
        }
        self.answered >= ANSWERED_ROUNDS
    }

    /// Ends the present round of attempts (copies of datagrams) on a path on which the server
    /// answered no data, and delays the next round. The caller does this when an answer arrives on
    /// another such path, because the client's reply must not be copied to this path.
    pub(crate) fn postpone(&mut self, now: Time) {
        if self.reason == DownReason::DataUnanswered {
            if std::mem::take(&mut self.awaits) {
                self.answered = 0;
            }
            self.copies = 0;
            self.next_try = self.next_try.max(now + RETRY);
        }
    }

    /// Returns when the path is up again if no further error occurs. Returns `None` if only an
    /// answer brings the path up, or if no copy was sent on it yet.
    pub(crate) fn recovers_at(&self) -> Option<Time> {
        (!self.reason.needs_answer()).then_some(self.tried? + NO_NEWS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    /// Simulates 150 s on a path whose data was unanswered. The server answers the first copy of
    /// each round for which `answers` returns true. Returns the start of each round in whole
    /// seconds, and the time at which the path is up again.
    fn rounds(answers: impl Fn(Time, Option<Time>) -> bool) -> (Vec<u64>, Option<Time>) {
        let (mut down, mut last) = (Down::new(ms(0), DownReason::DataUnanswered), None);
        let mut begun = Vec::new();
        for now in (0..150_000).step_by(100).map(ms) {
            let Some((_, opens)) = down.due_try(now) else { continue };
            if opens {
                begun.push(now.nanos() / 1_000_000_000);
            }
            down.on_copy(now, Duration::ZERO);
            if answers(now, last) {
                last = Some(now);
                if down.on_answer(now) {
                    return (begun, Some(now));
                }
            }
        }
        (begun, None)
    }

    #[test]
    fn a_path_whose_data_is_answered_again_is_up_after_two_rounds() {
        assert_eq!(rounds(|_, _| true), (vec![5, 6], Some(ms(6000))));
        assert_eq!(rounds(|now, _| now >= ms(20_000)), (vec![5, 10, 20, 21], Some(ms(21_600))));
    }

    #[test]
    fn a_handshake_now_and_then_brings_no_path_back() {
        let pause = Duration::from_secs(15);
        let is_due =
            |now: Time, last: Option<Time>| last.is_none_or(|last| now.since(last) >= pause);
        let (begun, up) = rounds(is_due);
        assert_eq!(up, None, "{begun:?}");
        assert!(begun.len() <= 16, "{begun:?}");
    }

    #[test]
    fn a_round_that_another_path_ends_does_not_count_as_answered() {
        let mut down = Down::new(ms(0), DownReason::DataUnanswered);
        down.on_copy(ms(5000), Duration::ZERO);
        assert!(!down.on_answer(ms(5001)));
        down.on_copy(ms(6001), Duration::ZERO);
        down.postpone(ms(6002));
        assert_eq!(down.due_try(ms(7001)), None);
        down.on_copy(ms(20_000), Duration::ZERO);
        assert!(!down.on_answer(ms(20_001)));
    }

    #[test]
    fn rounds_without_any_answer_become_rare() {
        assert_eq!(rounds(|_, _| false).0, [5, 10, 20, 40, 81, 141]);
    }
}
