//! A test of whether the server follows its client, that is, answers on the path that the uplink
//! uses. The test compares arrival times and bytes over several changes of the uplink's path.
//!
//! A *visit* is the time that the uplink stays on one path. A visit is answered if part of the
//! downlink arrives on its path before the next visit to the same path. A visit is unanswered if
//! the downlink arrives only on other paths. Each visit counts once, regardless of its bytes, so a
//! download weighs no more than a ping. Datagrams that may answer the previous visit are ignored.
//!
//! If the server or this machine is slow, a visit may end before the server can follow. So only
//! the part of a visit that exceeds the longest recent delay of an answer counts
//! ([`AnswerDelay`]).
//!
//! If the server stays on one path, all visits to other paths are unanswered
//! ([`Follow::on_sent`]). Visits to a path that discards everything are unanswered, too, because
//! the server does not receive the uplink. The server's rate distinguishes the two cases
//! ([`Follow::seems_received`]). If the server sends much less in these visits than in answered
//! ones, and has changed its path before, the visits do not count.
//!
//! The rate of a visit is measured in the period in which only answers to that visit can arrive.
//! If the visit is shorter than three round trips, most of that period is after the visit.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_multipath::{PathId, Time};

use super::answer_delay::AnswerDelay;

/// Minimum number of unanswered visits before a server counts as staying on one path. An
/// unanswered visit is a stay of the uplink on a path during which almost all answers arrived on
/// other paths.
const VISITS: u32 = 4;
/// Number of unanswered visits (stays of the uplink on one path) that are forgotten each time the
/// server changes its path. A server that follows its client changes its path often, so few
/// unanswered visits accumulate.
const FORGIVEN: u32 = 2;
/// Minimum total time of the unanswered visits (stays of the uplink on one path) before a server
/// is reported as staying on one path.
const AWAY: Duration = Duration::from_millis(800);
/// Minimum total time of the unanswered visits (stays of the uplink on one path), in round-trip
/// times of the fastest path, before a server is reported as staying on one path.
const ROUND_TRIPS: u32 = 10;
/// Maximum time that one visit (a stay of the uplink on one path) adds to the total time of
/// unanswered visits.
const LONGEST: Duration = Duration::from_secs(1);
/// Maximum ratio of the downlink bytes on other paths to the downlink bytes on the visited path. A
/// visit (a stay of the uplink on one path) that exceeds this ratio counts as unanswered.
const PART: u64 = 10;
/// Margin for the network's jitter. After the uplink changes its path, answers to datagrams on the
/// previous path count as possible for one and a half round trips plus this time.
const MARGIN: Duration = Duration::from_millis(10);
/// Minimum pause between two reports that the server of a session stays on one path.
const PAUSE: Duration = Duration::from_secs(600);
/// Time during which a server does not count as following its client, after it was seen to stay on
/// one path. To follow means to answer on the path that the uplink uses.
const MEMORY: Duration = Duration::from_secs(5);
/// Maximum total time of the answered visits (stays of the uplink on one path) in a [`Rate`].
/// Above this limit, time and bytes are halved before a visit is added, so that recent visits
/// count more.
const RECENT: Duration = Duration::from_millis(500);
/// Maximum total time of the unanswered visits (stays of the uplink) in an [`UnansweredTraffic`].
/// Above this limit, time and bytes are halved before a visit is added, so that recent visits
/// count more.
const FORGOTTEN: Duration = Duration::from_secs(2);
/// Longest pause between the client's datagrams that counts into the duration of a visit (a stay
/// of the uplink on one path), when the server's rate is measured.
const REST: Duration = Duration::from_millis(300);
/// Maximum number of completed visits (stays of the uplink on one path) whose answers are awaited.
/// The rates of further visits are not measured.
const MOST_AWAITED: usize = 16;

/// The shortest and the longest round-trip time of a session's paths.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rtts {
    shortest: Duration,
    longest: Duration,
}

impl Rtts {
    /// Returns the shortest and the longest round-trip time of the paths. For each path, `bounds`
    /// has an upper bound of the round-trip time, and whether enough samples confirm it. The
    /// longest time is taken from the confirmed bounds, since the others may include a delay of
    /// the server. If none is confirmed, the longest time is set to the shortest.
    pub(super) fn of(bounds: impl Iterator<Item = (Duration, bool)> + Clone) -> Rtts {
        let shortest = bounds.clone().map(|(rtt, _)| rtt).min().unwrap_or_default();
        let near = bounds.filter(|(_, is_near)| *is_near).map(|(rtt, _)| rtt);
        Rtts { shortest, longest: near.max().unwrap_or(shortest) }
    }

    /// Returns the time after a change of path during which answers to datagrams on the previous
    /// path may still arrive.
    fn lag(self) -> Duration {
        self.longest * 3 / 2 + MARGIN
    }
}

/// The present visit of the uplink: its stay on one path.
#[derive(Clone, Copy, Debug)]
struct Visit {
    path: PathId,
    began: Time,
    /// Time of the client's latest datagram of a kind that the server answers.
    last_request: Time,
    /// Time from which on arrivals count as answers to this visit. Before it, late answers to the
    /// previous visit (the stay on another path) may arrive. If none are expected, it is the
    /// earliest time at which an answer to this visit can arrive.
    counts_from: Time,
    /// Bytes of the downlink that arrived on the uplink's path.
    own: u64,
    /// Bytes of the downlink that arrived on other paths.
    others: u64,
    /// Bytes of `own` that arrived since `counts_from`.
    late_own: u64,
    /// Bytes of `others` that arrived since `counts_from`.
    late_others: u64,
    answers: Answers,
}

/// Bytes that arrived in the period in which only answers to one visit (a stay of the uplink on
/// one path) could arrive.
#[derive(Clone, Copy, Debug)]
struct Answers {
    path: PathId,
    from: Time,
    until: Time,
    /// Bytes that arrived on the visited path.
    own: u64,
    all: u64,
}

impl Answers {
    fn on_answer(&mut self, now: Time, path: PathId, bytes: u64) {
        if now >= self.from && now < self.until {
            self.own += if path == self.path { bytes } else { 0 };
            self.all += bytes;
        }
    }
}

/// Measurements of the last completed visit to one path. A visit is a stay of the uplink on a
/// path.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    /// Bytes that arrived on other paths during the visit (the stay of the uplink on one path).
    /// Answers to the previous visit are excluded if this visit was long enough to separate
    /// them.
    others: u64,
    lasted: Duration,
    /// Longest recent delay of an answer at the end of the visit (the stay of the uplink on one
    /// path).
    delay: Duration,
    /// Bytes that arrived on this path since the uplink moved to it.
    own: u64,
    /// Time at which the first bytes arrived on this path after the uplink had moved to it.
    answered: Time,
}

/// Recent unanswered visits (stays of the uplink on a path). [`FORGIVEN`] of them stop counting
/// when the server changes its path.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    visits: u32,
    /// Number of visits (stays of the uplink on a path) that were longer than the delay of the
    /// server's answers. Such visits show that the server does not follow its client.
    evident: u32,
    /// Total time that the `evident` visits lasted longer than the delay of the server's answers.
    /// A visit adds at most [`LONGEST`].
    away: Duration,
    /// Bytes that arrived on the server's present path since the first of the counted visits
    /// (stays of the uplink on a path) began.
    own: u64,
    /// Bytes that arrived on all paths since the first of the counted visits (stays of the uplink
    /// on a path) began.
    all: u64,
}

impl Run {
    /// Removes up to [`FORGIVEN`] unanswered visits (stays of the uplink on a path), because the
    /// server has changed its path.
    fn forgive(&mut self) {
        let visits = self.visits.saturating_sub(FORGIVEN);
        let evident = self.evident.saturating_sub(FORGIVEN);
        *self = match visits {
            0 => Run::default(),
            _ => {
                let left = |bytes: u64| bytes * u64::from(visits) / u64::from(self.visits);
                let away = self.away / self.evident.max(1) * evident;
                Run { visits, evident, away, own: left(self.own), all: left(self.all) }
            }
        };
    }
}

/// The server's recent rate during answered visits (stays of the uplink on one path).
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    time: Duration,
    bytes: u64,
}

impl Rate {
    fn add(&mut self, time: Duration, bytes: u64) {
        if self.time > RECENT {
            *self = Rate { time: self.time / 2, bytes: self.bytes / 2 };
        }
        self.time += time;
        self.bytes += bytes;
    }

    fn per_second(self) -> Option<f64> {
        (!self.time.is_zero()).then(|| self.bytes as f64 / self.time.as_secs_f64())
    }
}

/// Bytes that the server sent during unanswered visits (stays of the uplink) to one path, and the
/// bytes to expect at its usual rate. The usual rate is measured in the answered visits before
/// each unanswered visit, because a download may grow or end meanwhile.
#[derive(Clone, Copy, Debug, Default)]
struct UnansweredTraffic {
    time: Duration,
    bytes: f64,
    /// Bytes that would have arrived at the rate of answered visits (stays of the uplink on one
    /// path).
    usual: f64,
}

impl UnansweredTraffic {
    /// Adds a visit (a stay of the uplink on one path) in which `bytes` arrived in `time`. The
    /// usual rate is `rate` bytes per second.
    fn add(&mut self, time: Duration, bytes: u64, rate: f64) {
        if self.time > FORGOTTEN {
            let UnansweredTraffic { time, bytes, usual } = *self;
            *self = UnansweredTraffic { time: time / 2, bytes: bytes / 2.0, usual: usual / 2.0 };
        }
        self.time += time;
        self.bytes += bytes as f64;
        self.usual += rate * time.as_secs_f64();
    }
}

/// The test whether one session's server follows its client, that is, answers on the path that the
/// uplink uses.
#[derive(Debug)]
pub(super) struct Follow {
    visit: Option<Visit>,
    last: Box<[Last]>,
    /// The path on which the server answered last. A server that does not follow its client stays
    /// on this path. `None` before the first answer.
    answering_path: Option<PathId>,
    /// Time at which the server first answered on `answering_path`, its present path; zero until
    /// the server changes its path.
    moved: Time,
    run: Run,
    /// Completed visits (stays of the uplink on one path) whose answers may still arrive, oldest
    /// first.
    awaited: VecDeque<Answers>,
    answered: Rate,
    /// Traffic during the unanswered visits (stays of the uplink) to each path, since an answer
    /// last arrived on that path.
    alone: Box<[UnansweredTraffic]>,
    delay: AnswerDelay,
    answered_at: Option<Time>,
    /// Latest time at which at least [`VISITS`] visits (stays of the uplink) to other paths were
    /// unanswered; `None` if there was no such time.
    stayed: Option<Time>,
    next_report: Time,
}

impl Follow {
    pub(super) fn new(paths: usize) -> Follow {
        Follow {
            visit: None,
            last: vec![Last::default(); paths].into(),
            answering_path: None,
            moved: Time::ZERO,
            run: Run::default(),
            awaited: VecDeque::new(),
            answered: Rate::default(),
            alone: vec![UnansweredTraffic::default(); paths].into(),
            delay: AnswerDelay::default(),
            answered_at: None,
            stayed: None,
            next_report: Time::ZERO,
        }
    }

    /// Records that the client sends a datagram on `path`, of a kind that the server answers.
    pub(super) fn on_request(&mut self, now: Time, path: PathId) {
        self.delay.on_sent(now);
        if let Some(visit) = self.visit.as_mut().filter(|visit| visit.path == path) {
            visit.last_request = now;
        }
    }

    /// Records that the uplink uses `path`. If the server stays on one path and a report is due,
    /// returns the server's path and that path's share of the downlink bytes in percent. Otherwise
    /// returns `None`.
    pub(super) fn on_sent(&mut self, now: Time, path: PathId, rtts: Rtts) -> Option<(PathId, u8)> {
        if self.visit.is_some_and(|visit| visit.path == path) {
            return None;
        }
        self.close(now, rtts);
        self.judge(now, path);
        // After a silence of the server, no answer to the previous visit is in flight. Then only
        // the time until the first answer can arrive is excluded.
        let is_quiet =
            self.answered_at.is_none_or(|answered_at| now.since(answered_at) >= rtts.lag());
        let lag = if is_quiet { rtts.shortest * 4 / 5 } else { rtts.lag() };
        self.visit = Some(Visit {
            path,
            began: now,
            last_request: now,
            counts_from: now + lag,
            own: 0,
            others: 0,
            late_own: 0,
            late_others: 0,
            answers: Answers {
                path,
                from: now + rtts.longest + MARGIN,
                until: Time::MAX,
                own: 0,
                all: 0,
            },
        });
        let long = AWAY.max(rtts.shortest * ROUND_TRIPS);
        if self.run.evident < VISITS || self.run.away < long || now < self.next_report {
            return None;
        }
        self.next_report = now + PAUSE;
        let percent = self.run.own * 100 / self.run.all.max(1);
        self.answering_path.map(|answering_path| (answering_path, percent as u8))
    }

    /// Records that `bytes` bytes from the server arrived on `path`.
    pub(super) fn on_answer(&mut self, now: Time, path: PathId, bytes: u64) {
        self.answered_at = Some(now);
        self.delay.on_answer(now);
        self.count_awaited(now);
        self.awaited.iter_mut().for_each(|answers| answers.on_answer(now, path, bytes));
        self.alone[path.index()] = UnansweredTraffic::default();
        let last = &mut self.last[path.index()];
        last.answered = if last.own == 0 { now } else { last.answered };
        last.own += bytes;
        let answering_path = *self.answering_path.get_or_insert(path);
        self.run.own += if answering_path == path { bytes } else { 0 };
        self.run.all += bytes;
        let Some(visit) = &mut self.visit else { return };
        visit.answers.on_answer(now, path, bytes);
        let late = if now >= visit.counts_from { bytes } else { 0 };
        if visit.path == path {
            visit.own += bytes;
            visit.late_own += late;
        } else {
            visit.others += bytes;
            visit.late_others += late;
        }
    }

    /// Returns whether the server follows its client, that is, answers on the path that the uplink
    /// uses. Returns true if that is unknown.
    pub(super) fn follows(&self, now: Time) -> bool {
        self.stayed.is_none_or(|stayed| now.since(stayed) > MEMORY)
    }

    /// Returns whether the server seems to receive the datagrams of `path`, although no answer
    /// arrives on it. The criterion is that its rate during visits (stays of the uplink) to `path`
    /// is at least a quarter of its rate during answered visits. Returns `None` if one of these
    /// two rates was not measured, because the visits were too short or too few.
    pub(super) fn seems_received(&self, path: PathId) -> Option<bool> {
        let alone = self.alone[path.index()];
        (alone.usual > 0.0).then_some(alone.bytes * 4.0 >= alone.usual)
    }

    /// Ends the present visit (the stay of the uplink on its path), and records the downlink bytes
    /// that arrived in it.
    fn close(&mut self, now: Time, rtts: Rtts) {
        let Some(visit) = self.visit.take() else { return };
        let lasted = now.since(visit.began);
        let early = visit.counts_from.since(visit.began);
        let is_long = lasted >= early * 2;
        let others = if is_long { visit.late_others } else { visit.others };
        let last = &mut self.last[visit.path.index()];
        (last.others, last.lasted, last.delay) = (others, lasted, self.delay.longest(now));
        if rtts.longest.is_zero() {
            return;
        }
        let end = now.min(visit.last_request + REST);
        if is_long {
            let bytes = visit.late_own + visit.late_others;
            self.count(visit.path, visit.own > 0, end.since(visit.counts_from), bytes);
        } else {
            let answers = Answers { until: end + rtts.shortest, ..visit.answers };
            let is_enough = answers.until.since(answers.from) * 2 >= lasted;
            if is_enough && self.awaited.len() < MOST_AWAITED {
                self.awaited.push_back(answers);
            }
        }
        self.count_awaited(now);
    }

    /// Adds completed visits (stays of the uplink on one path) to the measured rates, once their
    /// answers can no longer arrive.
    fn count_awaited(&mut self, now: Time) {
        while let Some(over) = self.awaited.pop_front_if(|answers| now >= answers.until) {
            let time = over.until.since(over.from);
            self.count(over.path, over.own > 0, time, over.all);
        }
    }

    /// Adds a visit to `path` (a stay of the uplink on it) to the measured rates: `bytes` bytes
    /// arrived in `time`.
    fn count(&mut self, path: PathId, is_answered: bool, time: Duration, bytes: u64) {
        if is_answered {
            self.answered.add(time, bytes);
        } else if let Some(usual) = self.answered.per_second() {
            self.alone[path.index()].add(time, bytes, usual);
        }
    }

    /// Decides whether the last visit (stay of the uplink) to `path` was answered, and counts it.
    /// This is known when the next visit to `path` begins.
    fn judge(&mut self, now: Time, path: PathId) {
        let last = std::mem::take(&mut self.last[path.index()]);
        let is_answered = last.own > 0 && last.own.saturating_mul(PART) >= last.others;
        let away = last.lasted.saturating_sub(last.delay.max(self.delay.longest(now)));
        // Datagrams on an unheard path do not reach the server, so the server cannot follow them.
        let is_unheard = self.moved > Time::ZERO && self.seems_received(path) == Some(false);
        if is_answered && self.answering_path != Some(path) && last.answered >= self.moved {
            (self.answering_path, self.moved) = (Some(path), last.answered);
            self.run.forgive();
        } else if !is_answered && last.others > 0 {
            self.run.visits += 1;
            if away > Duration::ZERO && !is_unheard {
                self.run.evident += 1;
                self.run.away += away.min(LONGEST);
            }
        }
        if self.run.visits >= VISITS {
            self.stayed = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgiven_visits_take_their_bytes_with_them() {
        let visits = FORGIVEN + 2;
        let (away, each) = (Duration::from_secs(u64::from(visits - 1)), u64::from(visits));
        let mut run = Run { visits, evident: visits - 1, away, own: 30 * each, all: 100 * each };
        run.forgive();
        assert_eq!((run.visits, run.evident, run.away), (2, 1, Duration::from_secs(1)));
        assert_eq!((run.own, run.all), (60, 200));
        run.forgive();
        assert_eq!((run.visits, run.own, run.all), (0, 0, 0));
    }
}
