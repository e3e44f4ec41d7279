//! State of one path in one session: whether answers arrive on it, its round-trip time, and how
//! long it has been silent.

use std::time::Duration;

use anabranch_multipath::Time;

use crate::DownReason;
use crate::down::Down;
use crate::rtt::RttFilter;

/// Time in use without an answer after which a path counts as silent.
const SILENCE: Duration = Duration::from_secs(1);
/// Time in use after which a path without any answer is doubted: it may discard everything. Its
/// datagrams are then also sent on another path, on which answers arrive.
const DOUBT: Duration = Duration::from_millis(300);
/// Minimum number of answers on other paths that makes a path's silence significant. A server that
/// sends fewer answers may have had nothing to send while its client used this path. The minimum
/// does not apply if no answer arrived on any path.
const ANSWERS: u64 = 8;
/// Maximum time that the pause between two datagrams adds to the time for which a path was in use
/// without an answer.
const LONGEST_PAUSE: Duration = Duration::from_millis(300);
/// Maximum number of answers on a path for which the server still counts as ignoring the path's
/// data. These few answers may be handshake packets, which a server sends even if it ignores data.
const FEW: u32 = 3;

/// A period in which the session used the path, and no answer arrived on the path.
#[derive(Clone, Copy, Debug)]
struct UnansweredPeriod {
    since: Time,
    used: Duration,
    server_was_active: bool,
    /// Count of the server's answers, on any path, when this period without an answer began.
    answers: u64,
    /// Whether the time since the last datagram on this path counts as time without an answer, and
    /// will be added to `used`. It counts if the server answers such datagrams, and if the server
    /// was active when the datagram was sent.
    counts: bool,
}

/// The server's activity at the time when the session sends a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Activity {
    /// Whether a datagram of the server arrived within the last second, or since the client's last
    /// datagram.
    pub(crate) active: bool,
    /// Number of times that datagrams of the server arrived, on any path.
    pub(crate) answers: u64,
}

/// The health of one path in one session: its round-trip time, its last datagrams in both
/// directions, and whether it is silent or down.
#[derive(Debug, Default)]
pub(crate) struct Health {
    rtt: RttFilter,
    sent: Option<Time>,
    last_arrival: Option<Time>,
    /// Number of answers that have arrived on this path since it was last down.
    answers: u32,
    unanswered: Option<UnansweredPeriod>,
    /// Time since which the path's datagrams are also sent on another path, on which answers
    /// arrive; `None` if only this path carries them.
    doubted: Option<Time>,
    down: Option<Down>,
}

impl Health {
    /// Returns the round-trip time; `None` before it was measured.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.rtt.rtt()
    }

    /// Returns the lowest sample of the round-trip time, and whether enough samples confirm it
    /// ([`RttFilter::upper_bound`]). The lowest sample is an upper bound of the round-trip time.
    pub(crate) fn rtt_bound(&self) -> Option<(Duration, bool)> {
        self.rtt.upper_bound()
    }

    /// Returns when the session last sent a datagram on this path.
    pub(crate) fn sent(&self) -> Option<Time> {
        self.sent
    }

    /// Returns when a datagram of the server last arrived on this path.
    pub(crate) fn last_arrival(&self) -> Option<Time> {
        self.last_arrival
    }

    /// Returns whether the path is down, so that the session does not use it.
    pub(crate) fn is_down(&self) -> bool {
        self.down.is_some()
    }

    /// Returns why the path is down; `None` if it is up.
    pub(crate) fn reason(&self) -> Option<DownReason> {
        self.down.map(|down| down.reason())
    }

    /// Records that the session sends a datagram on this path, of a kind that the server answers.
    pub(crate) fn on_sent(&mut self, now: Time, server: Activity) {
        self.on_sent_unanswerable(now);
        self.rtt.on_sent(now);
        let Activity { active, answers } = server;
        let fresh = UnansweredPeriod {
            since: now,
            used: Duration::ZERO,
            server_was_active: active,
            answers,
            counts: active,
        };
        match &mut self.unanswered {
            // A period that began while the server was quiet proves nothing, so the new period
            // replaces it.
            Some(unanswered) if unanswered.server_was_active || !active => {
                unanswered.counts = active
            }
            _ => self.unanswered = Some(fresh),
        }
    }

    /// Records that the session sends a datagram on this path, of a kind that the server does not
    /// answer.
    pub(crate) fn on_sent_unanswerable(&mut self, now: Time) {
        self.unanswered.iter_mut().for_each(|unanswered| unanswered.counts = false);
        self.sent = Some(now);
    }

    /// Records that the session used only this path for `pause`, the time between two consecutive
    /// datagrams. Adds at most [`LONGEST_PAUSE`] to the time in use without an answer, and only if
    /// the server was active and answers datagrams like the first of the two.
    pub(crate) fn on_used(&mut self, pause: Duration) {
        if let Some(unanswered) = self.unanswered.as_mut().filter(|unanswered| unanswered.counts) {
            unanswered.used += pause.min(LONGEST_PAUSE);
        }
    }

    /// Records that a datagram of the server arrived on this path. Returns true if the path was
    /// down and is now up again.
    pub(crate) fn on_answer(&mut self, now: Time) -> bool {
        self.rtt.on_answer(now);
        self.last_arrival = Some(now);
        self.unanswered = None;
        self.doubted = None;
        self.answers = self.answers.saturating_add(1);
        let is_back = self.down.as_mut().is_some_and(|down| down.on_answer(now));
        if is_back {
            (self.down, self.answers) = (None, 1);
        }
        is_back
    }

    /// Returns which kind of silence takes the path out of use, by the number of answers that have
    /// arrived on it.
    pub(crate) fn silence_reason(&self) -> DownReason {
        match self.answers {
            1..=FEW => DownReason::DataUnanswered,
            _ => DownReason::Silent,
        }
    }

    /// Delays the next round of attempts (copies of datagrams) on this path, if the path is down
    /// because the server answered no data on it ([`Down::postpone`]).
    pub(crate) fn postpone(&mut self, now: Time) {
        self.down.iter_mut().for_each(|down| down.postpone(now));
    }

    /// Marks the path as up again if it is down because the server answered no data on it. Returns
    /// whether this was the case.
    pub(crate) fn recall(&mut self) -> bool {
        let recalled = self.down.take_if(|down| down.reason() == DownReason::DataUnanswered);
        if recalled.is_some() {
            self.unanswered = None;
        }
        recalled.is_some()
    }

    /// Returns when the path's present silence began (use without an answer), if it is
    /// significant. `answers` counts the arrivals of the server's datagrams on any path.
    ///
    /// Returns `None` if the path was used for less than [`SILENCE`] in that period, or if the
    /// server was not active when the period began. Also returns `None` if some answers arrived on
    /// other paths in that period, but fewer than [`ANSWERS`].
    pub(crate) fn silent_since(&self, answers: u64) -> Option<Time> {
        let unanswered = self.unanswered.filter(|unanswered| {
            let spoke = answers - unanswered.answers >= ANSWERS || answers == unanswered.answers;
            unanswered.used >= SILENCE && unanswered.server_was_active && spoke
        })?;
        Some(unanswered.since)
    }

    /// Returns the time since which the path is suspected to discard everything; `None` if it is
    /// not suspected. A path is suspected once it was in use for the time [`DOUBT`] while the
    /// server was active, and no answer has ever arrived on it. A new suspicion begins at `now`.
    pub(crate) fn doubt(&mut self, now: Time) -> Option<Time> {
        let used = self.unanswered.filter(|unanswered| unanswered.server_was_active)?.used;
        (used >= DOUBT && self.last_arrival.is_none()).then(|| *self.doubted.get_or_insert(now))
    }

    /// Returns whether the path may discard everything. If so, its datagrams are also sent on
    /// another path, on which answers arrive.
    pub(crate) fn is_doubted(&self) -> bool {
        self.doubted.is_some() && self.down.is_none()
    }

    /// Marks the path as down. Returns true if it was up.
    ///
    /// A path that is down already keeps its reason. So a silent path is up again only after an
    /// answer, even if errors of this machine follow.
    pub(crate) fn take_down(&mut self, now: Time, reason: DownReason) -> bool {
        if let Some(down) = &mut self.down {
            down.on_failure(now);
            return false;
        }
        self.down = Some(Down::new(now, reason));
        true
    }

    /// Returns the number of completed rounds of copies (of datagrams), and whether the next copy
    /// is the first of its round. Returns `None` unless the path is down and due to be tested with
    /// a copy.
    pub(crate) fn due_try(&self, now: Time) -> Option<(u32, bool)> {
        self.down?.due_try(now)
    }

    /// Records that a copy of a live datagram is sent on this path, to preserve the path's NAT
    /// mappings or to test the path. `asks` is true if the server answers such a datagram. The
    /// next round of attempts begins after `pause` at the earliest ([`Down::on_copy`]).
    pub(crate) fn on_copy(&mut self, now: Time, pause: Duration, asks: bool) {
        if asks {
            self.rtt.on_sent(now);
        }
        self.sent = Some(now);
        self.down.iter_mut().for_each(|down| down.on_copy(now, pause));
    }

    /// Marks the path as up again if an error of this machine took it down, a copy of a datagram
    /// was sent on it since, and no error followed. Returns whether this was the case.
    pub(crate) fn recover_if_quiet(&mut self, now: Time) -> bool {
        let recovers = self.recovers_at().is_some_and(|at| now >= at);
        if recovers {
            self.down = None;
            self.unanswered = None;
        }
        recovers
    }

    /// Returns when [`Health::recover_if_quiet`] will return true, if no error occurs before.
    pub(crate) fn recovers_at(&self) -> Option<Time> {
        self.down?.recovers_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn server(active: bool, answers: u64) -> Activity {
        Activity { active, answers }
    }

    /// Returns the health of a path that is used every 100 ms, for `millis` ms.
    fn used_for(millis: u64, active: bool) -> Health {
        let mut health = Health::default();
        health.on_sent(ms(0), server(active, 0));
        for at in (100..=millis).step_by(100) {
            health.on_used(Duration::from_millis(100));
            health.on_sent(ms(at), server(active, at / 50));
        }
        health
    }

    #[test]
    fn what_nobody_answers_times_nothing() {
        let mut health = Health::default();
        health.on_sent(ms(0), server(true, 0));
        health.on_answer(ms(1));
        for at in (3000..60_000).step_by(3000) {
            health.on_sent_unanswerable(ms(at));
            health.on_sent(ms(at + 500), server(true, at));
            health.on_answer(ms(at + 501));
            assert_eq!(health.rtt(), Some(Duration::from_millis(1)), "at {at} ms");
        }
    }

    #[test]
    fn a_second_of_use_without_an_answer_is_silence() {
        assert_eq!(used_for(900, true).silent_since(18), None);
        assert_eq!(used_for(1000, true).silent_since(20), Some(ms(0)));
    }

    #[test]
    fn a_silence_that_began_while_the_server_was_quiet_begins_anew_when_it_speaks() {
        let mut health = used_for(500, false);
        for at in (600..=1600).step_by(100) {
            health.on_used(Duration::from_millis(100));
            health.on_sent(ms(at), server(true, at));
        }
        assert_eq!(health.silent_since(1600), Some(ms(600)));
    }

    #[test]
    fn a_server_that_was_heard_a_few_times_may_have_had_nothing_to_say() {
        let health = used_for(1000, true);
        assert_eq!(health.silent_since(0), Some(ms(0)), "a server that says nothing any more");
        assert_eq!(health.silent_since(ANSWERS - 1), None);
        assert_eq!(health.silent_since(ANSWERS), Some(ms(0)));
    }

    #[test]
    fn what_nobody_answers_is_no_use() {
        let mut health = Health::default();
        for at in 0..20 {
            health.on_sent_unanswerable(Time::from_secs(25 * at));
            health.on_used(Duration::from_secs(25));
        }
        assert_eq!(health.silent_since(100), None);
    }

    #[test]
    fn a_path_without_any_answer_is_doubtful_after_some_use_until_it_answers() {
        assert_eq!(used_for(200, true).doubt(ms(200)), None);
        let mut health = used_for(300, true);
        assert_eq!(health.doubt(ms(300)), Some(ms(300)));
        assert_eq!(health.doubt(ms(400)), Some(ms(300)));
        assert!(health.is_doubted());
        health.on_answer(ms(500));
        assert!(!health.is_doubted());
    }

    #[test]
    fn an_error_on_top_of_silence_does_not_bring_the_path_back_without_an_answer() {
        let mut health = Health::default();
        assert!(health.take_down(ms(0), DownReason::Silent));
        assert!(!health.take_down(ms(10), DownReason::Unreachable));
        health.on_copy(ms(1010), Duration::ZERO, true);
        assert!(!health.recover_if_quiet(ms(9000)));
        assert_eq!(health.reason(), Some(DownReason::Silent));
    }

    #[test]
    fn where_the_server_says_nothing_anyway_no_path_is_silent() {
        assert_eq!(used_for(5000, false).silent_since(100), None);
    }

    #[test]
    fn long_pauses_are_not_use() {
        let mut health = Health::default();
        health.on_sent(ms(0), server(true, 0));
        for second in 1..4 {
            health.on_used(Duration::from_secs(1));
            health.on_sent(Time::from_secs(second), server(true, 100));
        }
        assert_eq!(health.silent_since(100), None, "three pauses count as 0.9 s");
    }

    #[test]
    fn a_path_that_is_down_comes_back_with_an_answer() {
        let mut health = Health::default();
        assert!(health.take_down(ms(0), DownReason::Silent));
        assert_eq!(health.due_try(ms(999)), None);
        assert_eq!(health.due_try(ms(1000)), Some((0, true)));
        for copy in 1..=4 {
            health.on_copy(ms(1000), Duration::ZERO, true);
            assert_eq!(health.due_try(ms(1001)).is_some(), copy < 4, "copy {copy}");
        }
        assert_eq!(health.due_try(ms(2000)), Some((1, true)));
        assert!(health.on_answer(ms(2020)));
        assert!(!health.is_down());
    }

    #[test]
    fn after_a_local_error_no_news_is_good_news_but_silence_needs_an_answer() {
        for (reason, recovers) in [(DownReason::Unreachable, true), (DownReason::Silent, false)] {
            let mut health = Health::default();
            health.take_down(ms(0), reason);
            assert!(!health.recover_if_quiet(ms(5000)), "not tried yet");
            health.on_copy(ms(5000), Duration::ZERO, true);
            assert_eq!(health.recover_if_quiet(ms(6000)), recovers, "{reason:?}");
        }
    }
}
