//! Decoy runs: dummy traffic that makes idle paths look busy.
//!
//! The times at which a path carries nothing can identify a web page. A decoy run fills such a
//! gap, on a path that the schedule is not using. A decoy run copies the packet sizes and
//! intervals of a run that the session has really sent. The other end must be this project's far
//! end (our program at the server's side), because it drops the decoys. The bytes of decoys never
//! exceed a budget, which is a share of the real traffic's bytes.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rand::RngExt;

use crate::seed::Stream;
use crate::{PathId, Silence, Time};

/// Maximum number of units (packets) recorded for each run (group of packets on one path).
const LONGEST_RUN: usize = 1_024;
/// Maximum time from the beginning of a run (group of packets on one path) during which its
/// packets are recorded.
const LONGEST_TIME: Duration = Duration::from_secs(1);
/// Number of recent runs (groups of packets on one path) that are recorded. A decoy run copies one
/// of them.
const KEPT: usize = 16;
/// Maximum bytes of decoy budget that accumulate while no decoy is sent, and maximum bytes
/// recorded per run (group of packets on one path). So the budget suffices to copy any recorded
/// run.
const SAVED: u64 = 2 << 20;
/// A share of 100 %, in thousandths.
const WHOLE: u32 = 1_000;

/// Number of bytes of decoys (dummy packets) for each byte of real traffic, as a percentage such
/// as `10%`: above 0, at most 100 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoyBudget {
    /// Bytes of decoys for each 1,000 bytes of real traffic, from 1 to 1,000.
    share: u32,
}

/// Error of parsing a [`DecoyBudget`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecoyBudgetError {
    /// The text does not have the form `10%` or `2.5%`.
    Form(String),
    /// The percentage is zero or negative.
    Nothing(String),
    /// The percentage is above 100 %.
    Much(String),
}

impl DecoyBudget {
    /// Returns the number of decoy bytes for each byte of real traffic, above 0 and at most 1.
    #[must_use]
    pub fn share(self) -> f64 {
        f64::from(self.share) / f64::from(WHOLE)
    }
}

impl FromStr for DecoyBudget {
    type Err = DecoyBudgetError;

    /// Parses a percentage with at most one digit after the point.
    fn from_str(text: &str) -> Result<DecoyBudget, DecoyBudgetError> {
        let form = || DecoyBudgetError::Form(text.into());
        let number = text.strip_suffix('%').ok_or_else(form)?;
        let (negative, number) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number),
        };
        let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
        let digits =
            |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(tenth) || tenth.len() != 1 {
            return Err(form());
        }
        let tenth: u32 = tenth.parse().map_err(|_| form())?;
        // A number with too many digits for the integer type counts as more than 100 %.
        let share = whole.parse::<u32>().ok().and_then(|whole| whole.checked_mul(10));
        let share = share.map_or(u32::MAX, |tenths| tenths.saturating_add(tenth));
        match share {
            _ if negative => Err(DecoyBudgetError::Nothing(text.into())),
            0 => Err(DecoyBudgetError::Nothing(text.into())),
            1..=WHOLE => Ok(DecoyBudget { share }),
            _ => Err(DecoyBudgetError::Much(text.into())),
        }
    }
}

impl fmt::Display for DecoyBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.share / 10, self.share % 10) {
            (whole, 0) => write!(f, "{whole}%"),
            (whole, tenth) => write!(f, "{whole}.{tenth}%"),
        }
    }
}

impl fmt::Display for DecoyBudgetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecoyBudgetError::Form(text) => write!(
                f,
                "'{text}' is not a limit for decoy traffic: write a percentage of the bytes \
                 carried, such as 10% or 2.5%"
            ),
            DecoyBudgetError::Nothing(text) => {
                write!(
                    f,
                    "'{text}' allows no decoys (dummy packets): write more than 0%, or leave the \
                     option out"
                )
            }
            DecoyBudgetError::Much(text) => {
                write!(f, "'{text}' is too much decoy traffic: write 100% at most")
            }
        }
    }
}

impl std::error::Error for DecoyBudgetError {}

/// A unit (packet) of a run (group of packets on one path): its time since the beginning of the
/// run, and its size in bytes.
type Unit = (Duration, usize);

/// The plan of decoys (dummy packets): the time, the path and the size of each decoy.
///
/// The plan records each real unit. At a change of path, a decoy run is planned with probability
/// one half, if the saved budget covers the whole run. Its path is drawn uniformly from the other
/// usable paths, and its start is delayed by a random time of at most its own length.
///
/// A decoy run copies one of the last 16 real runs. The run to copy is drawn first, and then waits
/// until the saved budget suffices. As a result, long runs are as frequent among decoys as among
/// real runs. A decoy run ends early if the schedule chooses its path. At most one decoy run is in
/// progress, and none begins while nothing is carried.
///
/// The budget for a decoy comes from the real bytes sent before it.
#[derive(Debug)]
pub struct Decoys {
    budget: DecoyBudget,
    stream: Stream,
    /// Remaining budget for decoys, in thousandths of bytes.
    saved: u64,
    present: Run,
    known: VecDeque<Box<[Unit]>>,
    /// The recorded run (group of packets on one path) that the next decoy run will copy; `None`
    /// until one is drawn.
    next: Option<Box<[Unit]>>,
    running: Option<DecoyRun>,
}

/// The present run (group of packets on one path) of the real traffic.
#[derive(Debug)]
struct Run {
    path: Option<PathId>,
    began: Time,
    last: Time,
    units: Vec<Unit>,
    bytes: u64,
}

impl Run {
    fn begin(path: Option<PathId>, now: Time) -> Run {
        Run { path, began: now, last: now, units: Vec::new(), bytes: 0 }
    }

    fn note(&mut self, now: Time, bytes: usize) {
        let (after, sum) = (now.since(self.began), self.bytes + bytes as u64);
        if self.units.len() < LONGEST_RUN && after <= LONGEST_TIME && sum <= SAVED {
            self.units.push((after, bytes));
            self.bytes = sum;
        }
        self.last = now;
    }
}

/// The decoy run in progress: dummy packets on one path that copy the times and sizes of a real
/// run.
#[derive(Debug)]
struct DecoyRun {
    path: PathId,
    begins: Time,
    units: Box<[Unit]>,
    done: usize,
}

impl DecoyRun {
    fn next(&self) -> Option<(Time, usize)> {
        self.units.get(self.done).map(|&(after, bytes)| (self.begins + after, bytes))
    }
}

impl Decoys {
    /// Returns a plan without decoys so far. Random choices use `stream`.
    #[must_use]
    pub fn new(budget: DecoyBudget, stream: Stream) -> Decoys {
        let present = Run::begin(None, Time::ZERO);
        let (known, next, running) = (VecDeque::new(), None, None);
        Decoys { budget, stream, saved: 0, present, known, next, running }
    }

    /// Records a unit (packet) of `bytes` bytes that is sent on `path` at `now`. `paths` is the
    /// number of paths, and `usable` returns whether a path may carry decoys.
    pub fn on_sent(
        &mut self,
        now: Time,
        (path, bytes): (PathId, usize),
        paths: usize,
        usable: impl Fn(PathId) -> bool,
    ) {
        self.save(u64::from(self.budget.share) * bytes as u64);
        self.running.take_if(|running| running.path == path).into_iter().for_each(|running| {
            self.give_back(&running);
        });
        let before = self.present.path;
        if before != Some(path) || now.since(self.present.last) >= Silence::USUAL.least() {
            self.end_run(now, path);
        }
        if before.is_some_and(|before| before != path) {
            self.begin_decoys(now, paths, |other| other != path && usable(other));
        }
        self.present.note(now, bytes);
    }

    fn save(&mut self, thousandths: u64) {
        self.saved = (self.saved + thousandths).min(SAVED * u64::from(WHOLE));
    }

    /// Credits the cost of the decoy run's unsent units (packets) to the remaining budget.
    fn give_back(&mut self, running: &DecoyRun) {
        self.save(price(&running.units[running.done..]));
    }

    /// Ends the present real run (group of packets on one path), and begins another real run on
    /// `path`.
    fn end_run(&mut self, now: Time, path: PathId) {
        let units = std::mem::take(&mut self.present.units);
        if !units.is_empty() {
            if self.known.len() == KEPT {
                self.known.pop_front();
            }
            self.known.push_back(units.into());
        }
        self.present = Run::begin(Some(path), now);
    }

    fn begin_decoys(&mut self, now: Time, paths: usize, rests: impl Fn(PathId) -> bool) {
        if self.running.is_some() || self.known.is_empty() || !self.stream.random_bool(0.5) {
            return;
        }
        let next = match self.next.take() {
            Some(next) => next,
            None => self.known[self.stream.random_range(0..self.known.len())].clone(),
        };
        let resting: Vec<PathId> = (0..paths).map(PathId::at).filter(|path| rests(*path)).collect();
        let price = price(&next);
        if resting.is_empty() || price > self.saved {
            self.next = Some(next);
            return;
        }
        let path = resting[self.stream.random_range(0..resting.len())];
        let length = next.last().map_or(Duration::ZERO, |(after, _)| *after);
        let begins = now + self.stream.random_range(Duration::ZERO..=length);
        self.saved -= price;
        self.running = Some(DecoyRun { path, begins, units: next, done: 0 });
    }

    /// Returns the path and the size in bytes of the next decoy due by `now`; `None` if none is
    /// due.
    pub fn poll(&mut self, now: Time) -> Option<(PathId, usize)> {
        let running = self.running.as_mut()?;
        let Some((due, bytes)) = running.next() else {
            self.running = None;
            return None;
        };
        let path = running.path;
        (due <= now).then(|| {
            running.done += 1;
            (path, bytes)
        })
    }

    /// Returns the time at which [`Decoys::poll`] will return a decoy, unless a real unit (packet)
    /// is sent earlier. Returns `None` if no decoy run is in progress.
    #[must_use]
    pub fn next_due(&self) -> Option<Time> {
        Some(self.running.as_ref()?.next()?.0)
    }
}

/// Returns the decoy budget that sending `units` (packets) as decoys costs, in thousandths of
/// bytes.
fn price(units: &[Unit]) -> u64 {
    units.iter().map(|(_, bytes)| *bytes as u64).sum::<u64>() * u64::from(WHOLE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::stream;

    fn decoys(budget: &str, seed: u64) -> Decoys {
        Decoys::new(budget.parse().unwrap(), stream(seed, 0, "decoys"))
    }

    /// Records `packets` real packets, one per millisecond, in runs of 20 packets over three paths
    /// in turn. Returns the resulting decoys: the time, the path and the bytes of each.
    fn load(
        decoys: &mut Decoys,
        packets: u64,
        usable: impl Fn(PathId) -> bool,
    ) -> Vec<(Time, PathId, usize)> {
        let mut sent = Vec::new();
        for packet in 0..packets {
            let now = Time::from_millis(packet);
            due(decoys, now, &mut sent);
            let path = PathId((packet / 20 % 3) as u16);
            decoys.on_sent(now, (path, 100 + packet as usize % 20), 3, &usable);
        }
        due(decoys, Time::MAX, &mut sent);
        sent
    }

    fn due(decoys: &mut Decoys, until: Time, sent: &mut Vec<(Time, PathId, usize)>) {
        while let Some(at) = decoys.next_due().filter(|at| *at <= until) {
            let (path, bytes) = decoys.poll(at).unwrap();
            sent.push((at, path, bytes));
        }
    }

    #[test]
    fn no_more_bytes_are_decoys_than_the_budget_has_and_nearly_all_of_it_is_used() {
        for (budget, share) in [("1%", 0.01), ("10%", 0.1), ("20%", 0.2), ("100%", 1.0)] {
            let mut decoys = decoys(budget, 1);
            let (mut carried, mut spent, mut sent) = (0, 0, Vec::new());
            for packet in 0..200_000_u64 {
                let now = Time::from_millis(packet);
                due(&mut decoys, now, &mut sent);
                spent += sent.drain(..).map(|(_, _, bytes)| bytes).sum::<usize>();
                assert!(spent as f64 <= share * carried as f64, "{spent} of {carried}");
                let path = PathId((packet / 20 % 3) as u16);
                decoys.on_sent(now, (path, 1_000), 3, |_| true);
                carried += 1_000;
            }
            // There is at most one decoy run at a time, and only half of the path changes begin
            // one. So decoys cannot exceed about a fifth of the real bytes.
            let most = share.min(0.2);
            assert!(spent as f64 >= 0.8 * most * carried as f64, "{budget}: {spent} of {carried}");
        }
    }

    #[test]
    fn decoys_go_where_nothing_is_carried_and_look_like_a_run_that_was_sent() {
        let mut decoys = decoys("20%", 2);
        let sent = load(&mut decoys, 20_000, |_| true);
        assert!(sent.len() > 1_000, "{}", sent.len());
        for (at, path, bytes) in &sent {
            let real = PathId((at.nanos() / 1_000_000 / 20 % 3) as u16);
            let is_over = at.nanos() >= 20_000_000_000;
            assert!(is_over || real != *path, "{at:?}");
            assert!((100..120).contains(bytes));
        }
        // Within a decoy run, the lengths follow each other as in a real run.
        let follow = sent.windows(2).filter(|two| two[1].2 == two[0].2 + 1).count();
        assert!(follow > sent.len() * 8 / 10, "{follow} of {}", sent.len());
    }

    #[test]
    fn a_path_that_may_not_be_used_gets_none() {
        let mut decoys = decoys("20%", 3);
        let sent = load(&mut decoys, 20_000, |path| path != PathId(1));
        assert!(sent.len() > 500);
        assert!(sent.iter().all(|(_, path, _)| *path != PathId(1)));
        // With a single path, no other path is idle, so there are no decoys.
        let mut alone = self::decoys("20%", 3);
        (0..9_000).map(Time::from_millis).for_each(|now| {
            alone.on_sent(now, (PathId(0), 100), 1, |_| true);
            assert_eq!(alone.next_due(), None);
        });
    }

    #[test]
    fn while_nothing_is_carried_none_is_sent() {
        let mut decoys = decoys("20%", 4);
        let sent = load(&mut decoys, 5_000, |_| true);
        let last = sent.last().unwrap().0;
        assert!(last <= Time::from_millis(5_000) + LONGEST_TIME, "{last:?}");
        assert_eq!((decoys.next_due(), decoys.poll(Time::MAX)), (None, None));
    }

    #[test]
    fn a_run_too_long_to_be_paid_for_is_kept_as_far_as_it_can_be() {
        let mut decoys = decoys("100%", 6);
        let (mut spent, mut sent) = (0, Vec::new());
        for packet in 0..8_000_u64 {
            let now = Time::from_millis(packet);
            due(&mut decoys, now, &mut sent);
            spent += sent.drain(..).map(|(_, _, bytes)| bytes).sum::<usize>();
            decoys.on_sent(now, (PathId((packet / 400 % 2) as u16), 65_507), 2, |_| true);
        }
        assert!(spent > 4 << 20, "{spent}");
    }

    #[test]
    fn one_seed_gives_one_sequence_and_another_gives_another() {
        let sent = |seed| load(&mut decoys("10%", seed), 5_000, |_| true);
        assert_eq!(sent(7), sent(7));
        assert_ne!(sent(7), sent(8));
    }

    #[test]
    fn a_decoy_run_ends_where_the_schedule_comes_and_what_is_left_of_it_is_kept() {
        let mut decoys = decoys("100%", 5);
        let mut now = Time::ZERO;
        let mut path = 0;
        while decoys.next_due().is_none() {
            for _ in 0..20 {
                decoys.on_sent(now, (PathId(path), 1_000), 2, |_| true);
                now += Duration::from_millis(1);
            }
            path = 1 - path;
        }
        let saved = decoys.saved;
        let Some(running) = &decoys.running else { panic!("a run is under way") };
        let (other, left) = (running.path, price(&running.units[running.done..]));
        decoys.on_sent(now, (other, 1_000), 2, |_| false);
        assert!(decoys.running.is_none());
        assert_eq!(decoys.saved, saved + left + 1_000 * u64::from(WHOLE));
    }

    #[test]
    fn what_is_written_reads_back_and_each_mistake_has_its_own_error() {
        for text in ["10%", "2.5%", "0.1%", "100%"] {
            assert_eq!(text.parse::<DecoyBudget>().unwrap().to_string(), text);
        }
        assert_eq!("2.5%".parse::<DecoyBudget>().unwrap().share(), 0.025);
        for text in ["", "10", "%", "10 %", "+10%", "1.%", ".5%", "1.25%", "ten%", "--1%", "1e1%"] {
            let error = text.parse::<DecoyBudget>();
            assert_eq!(error, Err(DecoyBudgetError::Form(text.into())), "{text}");
        }
        for text in ["0%", "0.0%", "-1%", "-0.5%", "-10%"] {
            let error = text.parse::<DecoyBudget>();
            assert_eq!(error, Err(DecoyBudgetError::Nothing(text.into())), "{text}");
        }
        for text in ["100.1%", "101%", "4294967295%", "99999999999999999999%"] {
            let error = text.parse::<DecoyBudget>();
            assert_eq!(error, Err(DecoyBudgetError::Much(text.into())), "{text}");
        }
    }
}
