//! Detection of wrong clocks, ours or a relay's, from the times in NETINFO cells, which both ends
//! exchange when a link opens (tor-spec, "NETINFO cells").
//!
//! Our clock is wrong if the authorities disagree with it. If no authority has sent a time, it is
//! wrong if several relays agree on another time. A relay other than an authority counts only if
//! we opened the link, because anybody may open links to us and send any time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anabranch_multipath::Time;

/// Maximum error in seconds of a clock that counts as correct. Cells need time to arrive, and the
/// protocol tolerates an error of this size.
const LIMIT: i64 = 300;
/// Maximum difference in seconds between two clocks that count as agreeing.
const SAME: i64 = 60;
/// Number of relays that must agree on a time if no authority has sent one.
const WITNESSES: usize = 3;
/// Maximum number of relays whose times are stored. If there are more, the oldest time is dropped.
const KEPT: usize = 64;
/// Interval after which a verdict that is still true is reported again.
const AGAIN: Duration = Duration::from_secs(3600);
/// Maximum number of relays that are reported for wrong clocks within [`AGAIN`].
const MOST: usize = 8;

/// Verdict on whether our clock or a relay's clock is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Our clock is wrong. The number is its error in seconds, positive if it is ahead.
    Ours(i64, ClockEvidence),
    /// Our clock was wrong, and is correct again.
    Right,
    /// A relay's clock is wrong. The values are the relay's RSA identity, and the error in seconds
    /// (positive if the clock is ahead).
    Theirs([u8; 20], i64),
}

/// The source of the evidence that our clock is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockEvidence {
    /// The authority with this RSA identity.
    Authority([u8; 20]),
    /// This many relays, whose clocks agree with each other.
    Relays(usize),
}

/// The time that a relay sent when a link to it opened.
#[derive(Clone, Copy, Debug)]
pub struct PeerTime {
    /// The relay's RSA identity.
    pub relay: [u8; 20],
    /// The relay's clock minus ours, in seconds.
    pub skew: i64,
    /// True if we opened the link, false if the relay did.
    pub dialled: bool,
}

/// Times that relays sent, and the state of reports about them.
#[derive(Debug, Default)]
pub struct Clocks {
    authorities: BTreeSet<[u8; 20]>,
    /// For each relay: the time at which its NETINFO arrived, and the time on its clock when this
    /// process started, in seconds since 1970.
    observed: BTreeMap<[u8; 20], (Time, i64)>,
    /// Time of the last report that our clock is wrong, and the reported error in seconds. `None`
    /// while our clock counts as correct.
    reported: Option<(Time, i64)>,
    /// Relays whose clocks were reported to be wrong, each with the time of that report.
    blamed: BTreeMap<[u8; 20], Time>,
}

impl Clocks {
    /// Returns a state without times of relays. `authorities` are the RSA identities of the
    /// authorities.
    #[must_use]
    pub fn new(authorities: impl IntoIterator<Item = [u8; 20]>) -> Clocks {
        Clocks { authorities: authorities.into_iter().collect(), ..Clocks::default() }
    }

    /// Replaces the authorities, whose clocks our clock is compared with.
    pub fn trust(&mut self, authorities: impl IntoIterator<Item = [u8; 20]>) {
        self.authorities = authorities.into_iter().collect();
    }

    /// Records the time that a relay sent. `unix` is our time in seconds since 1970. Returns the
    /// verdict to report; `None` if there is none. The same verdict is returned at most once an
    /// hour.
    pub fn note(&mut self, now: Time, unix: u64, observed: PeerTime) -> Option<Verdict> {
        let PeerTime { relay, skew, dialled } = observed;
        let ours = i64::try_from(unix).ok()?;
        let passed = i64::try_from(now.since(Time::ZERO).as_secs()).ok()?;
        let start = ours.saturating_sub(passed);
        if dialled || self.authorities.contains(&relay) {
            self.keep(now, relay, start.saturating_add(skew));
        }
        match self.ours(start) {
            Some((ahead, witness)) if ahead.abs() > LIMIT => self.accuse_us(now, ahead, witness),
            Some(_) if self.reported.take().is_some() => Some(Verdict::Right),
            Some(_) => self.blame(now, relay, skew),
            None => None,
        }
    }

    fn keep(&mut self, now: Time, relay: [u8; 20], at_start: i64) {
        self.observed.insert(relay, (now, at_start));
        if self.observed.len() > KEPT {
            let oldest = self.observed.iter().min_by_key(|(_, (time, _))| *time).map(|(id, _)| *id);
            oldest.map(|id| self.observed.remove(&id));
        }
    }

    /// Returns our clock's error in seconds (positive if it is ahead), and the evidence for it.
    /// `start` is the time on our clock when this process started. Returns `None` if the evidence
    /// is not sufficient.
    fn ours(&self, start: i64) -> Option<(i64, ClockEvidence)> {
        let ahead = |(relay, (_, observed)): (&[u8; 20], &(Time, i64))| {
            (start.saturating_sub(*observed), *relay)
        };
        let trusted = self.observed.iter().filter(|(id, _)| self.authorities.contains(*id));
        let mut trusted: Vec<(i64, [u8; 20])> = trusted.map(ahead).collect();
        trusted.sort_unstable();
        if let Some(&(ahead, relay)) = trusted.get(trusted.len() / 2) {
            return Some((ahead, ClockEvidence::Authority(relay)));
        }
        let mut all: Vec<(i64, [u8; 20])> = self.observed.iter().map(ahead).collect();
        all.sort_unstable();
        let (middle, _) = *all.get(all.len() / 2)?;
        let agree = all.iter().filter(|(other, _)| other.abs_diff(middle) <= SAME as u64).count();
        let enough = agree >= WITNESSES && 2 * agree > all.len();
        enough.then_some((middle, ClockEvidence::Relays(agree)))
    }

    fn accuse_us(&mut self, now: Time, ahead: i64, witness: ClockEvidence) -> Option<Verdict> {
        let is_known = |(time, before): (Time, i64)| {
            now.since(time) < AGAIN && before.abs_diff(ahead) <= LIMIT as u64
        };
        if self.reported.is_some_and(is_known) {
            return None;
        }
        self.reported = Some((now, ahead));
        Some(Verdict::Ours(ahead, witness))
    }

    fn blame(&mut self, now: Time, relay: [u8; 20], skew: i64) -> Option<Verdict> {
        if skew.unsigned_abs() <= LIMIT as u64 {
            return None;
        }
        self.blamed.retain(|_, time| now.since(*time) < AGAIN);
        if self.blamed.len() >= MOST || self.blamed.contains_key(&relay) {
            return None;
        }
        self.blamed.insert(relay, now);
        Some(Verdict::Theirs(relay, skew))
    }
}

/// Formats a difference between clocks for display, such as "13 min ahead of". `ahead` is the
/// difference in seconds.
#[must_use]
pub fn in_words(ahead: i64) -> String {
    let (size, way) = (ahead.unsigned_abs(), if ahead < 0 { "behind" } else { "ahead of" });
    let span = match size {
        0..120 => format!("{size} s"),
        120..7200 => format!("{} min", size / 60),
        7200..172_800 => format!("{} h", size / 3600),
        _ => format!("{} days", size / 86_400),
    };
    format!("{span} {way}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIX: u64 = 1_800_000_000;
    const DAM: [u8; 20] = [0xda; 20];

    fn clocks() -> Clocks {
        Clocks::new([DAM])
    }

    fn at(seconds: u64) -> Time {
        Time::from_secs(seconds)
    }

    /// Passes a relay's time to `clocks`, `after` seconds after the start. Our clock has run
    /// without a change since the start, and the relay's clock is `skew` seconds ahead of it.
    fn note_time(
        clocks: &mut Clocks,
        after: u64,
        relay: u8,
        skew: i64,
        dialled: bool,
    ) -> Option<Verdict> {
        let observed = PeerTime { relay: [relay; 20], skew, dialled };
        clocks.note(at(after), UNIX + after, observed)
    }

    #[test]
    fn an_authority_says_that_our_clock_is_wrong_once_an_hour_and_when_it_is_right_again() {
        let mut clocks = clocks();
        let wrong = Some(Verdict::Ours(-780, ClockEvidence::Authority(DAM)));
        assert_eq!(note_time(&mut clocks, 1, 0xda, 780, true), wrong);
        assert_eq!(note_time(&mut clocks, 2, 0xda, 781, true), None, "that is known");
        assert_eq!(note_time(&mut clocks, 3, 1, 780, true), None, "and the relay is not to blame");
        assert_eq!(
            note_time(&mut clocks, 3601, 0xda, 780, true),
            wrong,
            "an hour later it still holds"
        );
        let other = Some(Verdict::Ours(4000, ClockEvidence::Authority(DAM)));
        assert_eq!(note_time(&mut clocks, 3602, 0xda, -4000, true), other, "this is news");
        assert_eq!(note_time(&mut clocks, 3603, 0xda, 10, true), Some(Verdict::Right));
        assert_eq!(note_time(&mut clocks, 3604, 0xda, 10, true), None);
    }

    #[test]
    fn one_relay_is_no_witness_three_that_agree_are_and_strangers_never() {
        let mut clocks = clocks();
        for relay in 10..40 {
            assert_eq!(note_time(&mut clocks, 1, relay, 9000, false), None, "who came by itself");
        }
        assert_eq!(note_time(&mut clocks, 1, 1, 9000, true), None);
        assert_eq!(note_time(&mut clocks, 1, 2, 9010, true), None);
        let wrong = Some(Verdict::Ours(-9005, ClockEvidence::Relays(3)));
        assert_eq!(note_time(&mut clocks, 1, 3, 9005, true), wrong);
        let mut clocks = self::clocks();
        for (relay, skew) in [(1, 0), (2, 1), (3, 0), (4, 9000), (5, 9000), (6, 9000)] {
            let verdict = note_time(&mut clocks, 1, relay, skew, true);
            assert!(!matches!(verdict, Some(Verdict::Ours(..))), "no more than half agree");
        }
    }

    #[test]
    fn a_relay_is_blamed_where_ours_is_known_to_be_right_and_none_floods_the_log() {
        let mut clocks = clocks();
        assert_eq!(
            note_time(&mut clocks, 1, 1, 7200, false),
            None,
            "nobody says that ours is right"
        );
        note_time(&mut clocks, 1, 0xda, 0, true);
        let theirs = |relay: u8| Some(Verdict::Theirs([relay; 20], 7200));
        assert_eq!(note_time(&mut clocks, 2, 1, 7200, false), theirs(1));
        assert_eq!(note_time(&mut clocks, 3, 1, 7200, false), None);
        let reported =
            (2..40).filter(|&relay| note_time(&mut clocks, 4, relay, 7200, false).is_some());
        assert_eq!(reported.count(), MOST - 1);
        assert_eq!(note_time(&mut clocks, 4000, 1, 7200, false), theirs(1));
    }

    #[test]
    fn a_clock_that_is_set_makes_what_was_said_before_count_anew() {
        let mut clocks = clocks();
        note_time(&mut clocks, 1, 0xda, 7200, true);
        // Our clock is set forward by two hours. The time that a relay sends now agrees with the
        // time that the authority sent.
        let observed = PeerTime { relay: [1; 20], skew: 0, dialled: true };
        assert_eq!(clocks.note(at(10), UNIX + 10 + 7200, observed), Some(Verdict::Right));
    }

    #[test]
    fn what_is_kept_is_bounded_and_a_difference_is_told_in_words() {
        let mut clocks = clocks();
        for relay in 0..200 {
            note_time(&mut clocks, u64::from(relay), relay, 0, true);
        }
        assert_eq!(clocks.observed.len(), KEPT);
        let words = [-30, 780, -7200, 3 * 86_400, i64::MIN].map(in_words);
        assert_eq!(words[..4], ["30 s behind", "13 min ahead of", "2 h behind", "3 days ahead of"]);
    }
}
