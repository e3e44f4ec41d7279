//! The longest recent time from a datagram of the client to the next datagram of the server.
//!
//! A slow server, machine or network increases this time. If the uplink stays on a path for no
//! longer than this time, the stay does not show whether the server answers on the path that the
//! uplink uses.

use std::time::Duration;

use anabranch_multipath::Time;

/// Length of the time windows of the maximum filter. A long delay of an answer counts in the
/// present window and in the next.
const WINDOW: Duration = Duration::from_secs(2);
/// Silence of the client after which it no longer waits for answers to earlier datagrams. The last
/// datagram before a silence is often an acknowledgement, which gets no answer.
const GAP: Duration = Duration::from_secs(1);

/// The longest delay of an answer in the present window, and in the window before.
#[derive(Debug, Default)]
pub(super) struct AnswerDelay {
    /// Time of the client's first datagram since the last answer; `None` if no datagram waits for
    /// an answer.
    unanswered_since: Option<Time>,
    /// Time of the client's latest datagram.
    sent: Time,
    window_began: Time,
    now: Duration,
    before: Duration,
}

impl AnswerDelay {
    /// Records a datagram of the client, of a kind that the server answers.
    pub(super) fn on_sent(&mut self, now: Time) {
        let quiet = now.since(std::mem::replace(&mut self.sent, now));
        if quiet > GAP {
            self.unanswered_since = None;
        }
        self.unanswered_since.get_or_insert(now);
    }

    /// Records a datagram of the server.
    pub(super) fn on_answer(&mut self, now: Time) {
        self.turn(now);
        let delay = self.unanswered_since.take().map_or(Duration::ZERO, |since| now.since(since));
        self.now = self.now.max(delay);
    }

    /// Returns the longest recent delay, or the client's present wait if that is longer.
    pub(super) fn longest(&mut self, now: Time) -> Duration {
        self.turn(now);
        let waits = self.unanswered_since.map_or(Duration::ZERO, |since| now.since(since));
        self.now.max(self.before).max(waits)
    }

    /// Begins a new window if the present window is over.
    fn turn(&mut self, now: Time) {
        let age = now.since(self.window_began);
        if age < WINDOW {
            return;
        }
        let last = std::mem::take(&mut self.now);
        self.before = if age < WINDOW * 2 { last } else { Duration::ZERO };
        self.window_began = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn the_longest_of_some_seconds_counts_and_is_then_forgotten() {
        let mut delay = AnswerDelay::default();
        for (sent, received) in [(0, 20), (100, 700), (800, 830)] {
            delay.on_sent(ms(sent));
            delay.on_answer(ms(received));
        }
        assert_eq!(delay.longest(ms(831)), 600 * MS);
        assert_eq!(delay.longest(ms(2_100)), 600 * MS);
        for at in (2_200..4_200).step_by(100) {
            delay.on_sent(ms(at));
            delay.on_answer(ms(at + 30));
        }
        assert_eq!(delay.longest(ms(4_200)), 30 * MS);
    }

    #[test]
    fn the_first_datagram_without_an_answer_is_timed() {
        let mut delay = AnswerDelay::default();
        (0..50).for_each(|number| delay.on_sent(ms(10 * number)));
        assert_eq!(delay.longest(ms(500)), 500 * MS, "it still waits");
        delay.on_answer(ms(510));
        delay.on_answer(ms(520));
        assert_eq!(delay.longest(ms(520)), 510 * MS);
    }

    #[test]
    fn what_ended_the_last_exchange_waits_for_no_answer() {
        let mut delay = AnswerDelay::default();
        delay.on_sent(ms(0));
        delay.on_sent(ms(5_000));
        delay.on_answer(ms(5_020));
        assert_eq!(delay.longest(ms(5_020)), 20 * MS);
    }
}
