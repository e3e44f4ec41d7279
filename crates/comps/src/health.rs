//! What one session knows of one path: does it answer, how fast, and since when not.

use std::time::Duration;

use anabranch_multipath::Time;

use crate::DownReason;
use crate::rtt::RttFilter;

/// Use without an answer that makes a path silent.
const SILENCE: Duration = Duration::from_secs(1);
/// The server was active if it was heard within this time.
const ACTIVE: Duration = Duration::from_secs(1);
/// A pause between two datagrams counts as use up to this length.
const LONGEST_PAUSE: Duration = Duration::from_millis(300);
/// Datagrams in a row that are copied to try a path that is down.
const ROUND: u8 = 4;
/// Between two rounds of attempts on a path that is down.
const RETRY: Duration = Duration::from_secs(1);
/// A path that a local error took away is believed again if no error follows an attempt for so
/// long.
const NO_NEWS: Duration = Duration::from_secs(1);

/// A stretch of use without an answer.
#[derive(Clone, Copy, Debug)]
struct Silence {
    since: Time,
    used: Duration,
    server_was_active: bool,
}

#[derive(Clone, Copy, Debug)]
struct Down {
    reason: DownReason,
    next_try: Time,
    /// Rounds of copies so far.
    tries: u32,
    /// Copies so far in this round.
    copies: u8,
    tried: Option<Time>,
}

/// One path in the eyes of one session.
#[derive(Debug, Default)]
pub(crate) struct Health {
    rtt: RttFilter,
    sent: Option<Time>,
    heard: Option<Time>,
    followed: bool,
    silence: Option<Silence>,
    down: Option<Down>,
}

impl Health {
    /// The round-trip time, once measured.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.rtt.rtt()
    }

    /// When the session last sent here.
    pub(crate) fn sent(&self) -> Option<Time> {
        self.sent
    }

    /// When the server was last heard here.
    pub(crate) fn heard(&self) -> Option<Time> {
        self.heard
    }

    /// Whether the session does without this path.
    pub(crate) fn is_down(&self) -> bool {
        self.down.is_some()
    }

    /// Why the path is down.
    pub(crate) fn reason(&self) -> Option<DownReason> {
        self.down.map(|down| down.reason)
    }

    /// The session sends by this path; `server_heard` is when the server was last heard on any
    /// path.
    pub(crate) fn on_sent(&mut self, now: Time, server_heard: Option<Time>) {
        self.rtt.on_sent(now);
        self.sent = Some(now);
        let active = server_heard.is_some_and(|heard| now.since(heard) <= ACTIVE);
        let fresh = Silence { since: now, used: Duration::ZERO, server_was_active: active };
        match &self.silence {
            // What began while the server was quiet proves nothing, and must not hide what begins
            // now.
            Some(silence) if silence.server_was_active || !active => {}
            _ => self.silence = Some(fresh),
        }
    }

    /// The session used this path, and no other, for the time between one datagram and the next.
    pub(crate) fn on_used(&mut self, pause: Duration) {
        if let Some(silence) = &mut self.silence {
            silence.used += pause.min(LONGEST_PAUSE);
        }
    }

    /// The server is heard by this path. True if the path was down and is back.
    pub(crate) fn on_heard(&mut self, now: Time) -> bool {
        self.rtt.on_heard(now);
        self.heard = Some(now);
        self.followed = true;
        self.silence = None;
        self.down.take().is_some()
    }

    /// Since when the path, which the server had followed us to while both directions were active,
    /// has not answered, if it has been used long enough for that to mean something.
    pub(crate) fn silent_since(&self) -> Option<Time> {
        let silence =
            self.silence.filter(|silence| silence.used >= SILENCE && silence.server_was_active)?;
        self.followed.then_some(silence.since)
    }

    /// Takes the path out. True if it was in.
    ///
    /// A path that is out keeps its first reason: what was silent needs an answer, whatever errors
    /// come on top.
    pub(crate) fn take_down(&mut self, now: Time, reason: DownReason) -> bool {
        let next_try = now + RETRY;
        if let Some(down) = &mut self.down {
            let tries = down.tries + u32::from(down.copies > 0);
            *down = Down { next_try, tries, copies: 0, tried: None, ..*down };
            return false;
        }
        self.down = Some(Down { reason, next_try, tries: 0, copies: 0, tried: None });
        true
    }

    /// If an attempt on a path that is down is due: which round it belongs to, and whether it opens
    /// it.
    pub(crate) fn due_try(&self, now: Time) -> Option<(u32, bool)> {
        let down = self.down.filter(|down| now >= down.next_try)?;
        Some((down.tries, down.copies == 0))
    }

    /// A copy of a live datagram is on its way by this path, to keep it open or to try it. Attempts
    /// come in rounds of a few datagrams in a row; the next round comes after `pause`, or after the
    /// usual time if that is longer.
    ///
    /// A single one might be of a kind that the server never answers (Mosh's acknowledgements), and
    /// again the next time.
    pub(crate) fn on_copy(&mut self, now: Time, pause: Duration) {
        self.rtt.on_sent(now);
        self.sent = Some(now);
        let Some(down) = &mut self.down else { return };
        down.tried = Some(now);
        down.copies += 1;
        if down.copies == ROUND {
            down.copies = 0;
            down.tries = down.tries.saturating_add(1);
            down.next_try = now + pause.max(RETRY);
        }
    }

    /// Believes in a path again if a local error took it away, it was tried since, and no error
    /// followed. True if so.
    pub(crate) fn no_news_is_good_news(&mut self, now: Time) -> bool {
        let recovers = self.recovers_at().is_some_and(|at| now >= at);
        if recovers {
            self.down = None;
            self.silence = None;
        }
        recovers
    }

    /// When [`Health::no_news_is_good_news`] will say yes, if nothing happens before.
    pub(crate) fn recovers_at(&self) -> Option<Time> {
        let down = self.down.filter(|down| down.reason != DownReason::Silent)?;
        Some(down.tried? + NO_NEWS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    /// A path that answered at 0 ms and is used every 100 ms from then on.
    fn used_for(millis: u64, server_heard: Option<Time>, followed: bool) -> Health {
        let mut health = Health::default();
        if followed {
            health.on_heard(ms(0));
        }
        health.on_sent(ms(0), server_heard);
        for at in (100..=millis).step_by(100) {
            health.on_used(Duration::from_millis(100));
            health.on_sent(ms(at), server_heard);
        }
        health
    }

    #[test]
    fn a_second_of_use_without_an_answer_is_silence() {
        assert_eq!(used_for(900, Some(ms(0)), true).silent_since(), None);
        assert_eq!(used_for(1000, Some(ms(0)), true).silent_since(), Some(ms(0)));
    }

    #[test]
    fn a_silence_that_began_while_the_server_was_quiet_begins_anew_when_it_speaks() {
        let mut health = used_for(500, None, true);
        for at in (600..=1600).step_by(100) {
            health.on_used(Duration::from_millis(100));
            health.on_sent(ms(at), Some(ms(at - 10)));
        }
        assert_eq!(health.silent_since(), Some(ms(600)));
    }

    #[test]
    fn an_error_on_top_of_silence_does_not_bring_the_path_back_without_an_answer() {
        let mut health = Health::default();
        assert!(health.take_down(ms(0), DownReason::Silent));
        assert!(!health.take_down(ms(10), DownReason::Unreachable));
        health.on_copy(ms(1010), Duration::ZERO);
        assert!(!health.no_news_is_good_news(ms(9000)));
        assert_eq!(health.reason(), Some(DownReason::Silent));
    }

    #[test]
    fn a_path_that_the_server_never_followed_is_not_silent() {
        assert_eq!(used_for(5000, Some(ms(0)), false).silent_since(), None);
    }

    #[test]
    fn where_the_server_says_nothing_anyway_no_path_is_silent() {
        assert_eq!(used_for(5000, None, true).silent_since(), None);
    }

    #[test]
    fn long_pauses_are_not_use() {
        let mut health = Health::default();
        health.on_heard(ms(0));
        health.on_sent(ms(0), Some(ms(0)));
        for second in 1..4 {
            health.on_used(Duration::from_secs(1));
            health.on_sent(Time::from_secs(second), Some(ms(0)));
        }
        assert_eq!(health.silent_since(), None, "three pauses count as 0.9 s");
    }

    #[test]
    fn a_path_that_is_down_comes_back_with_an_answer() {
        let mut health = Health::default();
        assert!(health.take_down(ms(0), DownReason::Silent));
        assert_eq!(health.due_try(ms(999)), None);
        assert_eq!(health.due_try(ms(1000)), Some((0, true)));
        for copy in 1..=ROUND {
            health.on_copy(ms(1000), Duration::ZERO);
            assert_eq!(health.due_try(ms(1001)).is_some(), copy < ROUND, "copy {copy}");
        }
        assert_eq!(health.due_try(ms(2000)), Some((1, true)));
        assert!(health.on_heard(ms(2020)));
        assert!(!health.is_down());
    }

    #[test]
    fn after_a_local_error_no_news_is_good_news_but_silence_needs_an_answer() {
        for (reason, recovers) in [(DownReason::Unreachable, true), (DownReason::Silent, false)] {
            let mut health = Health::default();
            health.take_down(ms(0), reason);
            assert!(!health.no_news_is_good_news(ms(5000)), "not tried yet");
            health.on_copy(ms(5000), Duration::ZERO);
            assert_eq!(health.no_news_is_good_news(ms(6000)), recovers, "{reason:?}");
        }
    }
}
