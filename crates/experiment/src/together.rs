//! Execution of a plan's units (measurements) by several workers. A worker keeps state from one
//! unit to the next, such as an emulated network.
//!
//! Unlike [`carry_out`](super::carry_out), this module also stores failed attempts. A failed unit
//! is tried again at the end of the plan, a limited number of times. If a unit is given up, the
//! reason is in the journal, the file of the experiment's results.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::{Event, Incomplete, Journal, Progress, Record, Unit};

/// Interval at which a waiting worker checks whether the experiment is to stop.
const GLANCE: Duration = Duration::from_millis(100);

/// Record of an attempt to execute a unit (measurement) of the plan, whether successful or failed.
pub trait Attempt: Record {
    /// Returns the reason why the attempt failed; `None` if it succeeded.
    fn failed(&self) -> Option<&str>;
}

/// Callback that receives the events of all units (measurements), with the progress.
type EventFn<'a, U, R> = Box<dyn FnMut(&Progress, Event<'_, U, R>) + Send + 'a>;

/// Work queue of an experiment: the remaining units (measurements), which workers take one after
/// another, and the journal, the file for their results.
pub struct Turns<'a, U, R> {
    shared: Mutex<Shared<'a, U, R>>,
    changed: Condvar,
    stop: &'a AtomicBool,
    workers: u32,
    tries: u32,
}

struct Shared<'a, U, R> {
    waiting: VecDeque<&'a U>,
    under_way: usize,
    /// Number of failed attempts for each unit (measurement), by the unit's name.
    failed: BTreeMap<String, u32>,
    journal: &'a mut Journal<R>,
    progress: Progress,
    on_event: EventFn<'a, U, R>,
    gone: Option<Incomplete>,
}

/// Executes the units (measurements) that have no successful record in the journal (the results
/// file), on `workers` threads. Each unit has at most `tries` attempts in total, even if the
/// experiment is stopped and resumed. Each thread runs `work`, which takes units from
/// [`Turns::next`] until none is left.
///
/// Returns true if nothing is left to do. Returns false if `stop` was set earlier; only the units
/// in progress are then lost.
///
/// # Errors
/// [`Incomplete`]: a worker gave up, or a record could not be stored.
pub fn carry_out_together<U: Unit + Sync, R: Attempt + Send>(
    units: &[U],
    journal: &mut Journal<R>,
    stop: &AtomicBool,
    (workers, tries): (u32, u32),
    work: impl Fn(&Turns<'_, U, R>) + Sync,
    on_event: impl FnMut(&Progress, Event<'_, U, R>) + Send,
) -> Result<bool, Incomplete> {
    let turns =
        Turns::new(units, journal, stop, (workers.max(1), tries.max(1)), Box::new(on_event));
    thread::scope(|scope| {
        for _ in 0..turns.workers {
            scope.spawn(|| work(&turns));
        }
    });
    let shared = turns.shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    match shared.gone {
        Some(gone) => Err(gone),
        None => Ok(shared.waiting.is_empty() && shared.under_way == 0),
    }
}

impl<'a, U: Unit, R: Attempt> Turns<'a, U, R> {
    fn new(
        units: &'a [U],
        journal: &'a mut Journal<R>,
        stop: &'a AtomicBool,
        (workers, tries): (u32, u32),
        on_event: EventFn<'a, U, R>,
    ) -> Turns<'a, U, R> {
        let mut failed = BTreeMap::<String, u32>::new();
        let mut settled = std::collections::BTreeSet::new();
        for record in journal.records() {
            match record.failed() {
                None => drop(settled.insert(record.unit().to_owned())),
                Some(_) => *failed.entry(record.unit().to_owned()).or_default() += 1,
            }
        }
        let open = |unit: &&U| {
            let id = unit.id();
            !settled.contains(&id) && failed.get(&id).is_none_or(|&count| count < tries)
        };
        let waiting: VecDeque<&U> = units.iter().filter(open).collect();
        let due = waiting.iter().map(|unit| unit.lasts() / workers);
        let progress = Progress::new(units.len() - waiting.len(), due);
        let shared =
            Shared { waiting, under_way: 0, failed, journal, progress, on_event, gone: None };
        Turns { shared: Mutex::new(shared), changed: Condvar::new(), stop, workers, tries }
    }

    /// Returns the next unit (measurement), and the number of the attempt, from 1. If other
    /// workers have all remaining units, waits for them, because a failed unit is tried again.
    /// Returns `None` if nothing is left to do or the experiment was stopped.
    pub fn next(&self) -> Option<(&'a U, u32)> {
        let mut shared = self.lock();
        loop {
            if self.stopped() || shared.gone.is_some() {
                return None;
            }
            if let Some(unit) = shared.waiting.pop_front() {
                shared.under_way += 1;
                let Shared { progress, on_event, failed, .. } = &mut *shared;
                on_event(progress, Event::Begun(unit));
                return Some((unit, 1 + failed.get(&unit.id()).copied().unwrap_or(0)));
            }
            if shared.under_way == 0 {
                return None;
            }
            let waited = self.changed.wait_timeout(shared, GLANCE);
            shared = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns whether the experiment is to stop. If so, the results of units (measurements) in
    /// progress are useless.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Stores the result of an attempt to execute `unit` (a measurement), which took the time
    /// `elapsed`. A failed unit is tried again after all others, if it has attempts left.
    pub fn done(&self, unit: &'a U, record: R, elapsed: Duration) {
        let mut shared = self.lock();
        shared.under_way -= 1;
        let why = record.failed().map(str::to_owned);
        if let Err(error) = shared.journal.append(record) {
            shared.gone = Some(Incomplete::Journal(error));
        }
        let again = why.filter(|_| {
            let count = shared.failed.entry(unit.id()).or_default();
            *count += 1;
            *count < self.tries
        });
        let Shared { progress, on_event, journal, waiting, .. } = &mut *shared;
        if let Some(why) = again {
            waiting.push_back(unit);
            on_event(progress, Event::Again(unit, &why));
        } else {
            progress.done(unit.lasts() / self.workers, elapsed / self.workers);
            if let Some(record) = journal.records().last() {
                on_event(progress, Event::Done(unit, record));
            }
        }
        self.changed.notify_all();
    }

    /// Ends the experiment with an error: the operation `what` failed for the reason `why`.
    pub fn give_up(&self, what: &str, why: String) {
        self.lock().gone = Some(Incomplete::Unit(what.to_owned(), why));
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Shared<'a, U, R>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, Serialize};
    use serde_json::json;
    use std::path::Path;

    struct Number(u32);

    impl Unit for Number {
        fn id(&self) -> String {
            self.0.to_string()
        }

        fn lasts(&self) -> Duration {
            Duration::from_secs(10)
        }
    }

    #[derive(Serialize, Deserialize)]
    struct UnitAttempt {
        unit: String,
        error: String,
    }

    impl Record for UnitAttempt {
        fn unit(&self) -> &str {
            &self.unit
        }
    }

    impl Attempt for UnitAttempt {
        fn failed(&self) -> Option<&str> {
            (!self.error.is_empty()).then_some(self.error.as_str())
        }
    }

    fn journal(folder: &Path) -> Journal<UnitAttempt> {
        Journal::open(&folder.join("units.jsonl"), &json!({"n": 4})).unwrap()
    }

    fn plan() -> Vec<Number> {
        (0..4).map(Number).collect()
    }

    /// Executes units until none is left. Lets unit number 1 fail at its first attempt, and unit
    /// number 2 at each attempt.
    fn work(turns: &Turns<'_, Number, UnitAttempt>) {
        while let Some((unit, attempt)) = turns.next() {
            let fails = unit.0 == 2 || (unit.0 == 1 && attempt == 1);
            let error = if fails { format!("no {attempt}") } else { String::new() };
            turns.done(unit, UnitAttempt { unit: unit.id(), error }, Duration::from_secs(1));
        }
    }

    fn described(records: &[UnitAttempt]) -> Vec<String> {
        records.iter().map(|r| format!("{} {}", r.unit, r.error).trim().to_owned()).collect()
    }

    #[test]
    fn what_failed_is_stored_tried_again_at_the_end_and_given_up_at_last() {
        let (folder, stop) = (tempfile::tempdir().unwrap(), AtomicBool::new(false));
        let mut journal = journal(folder.path());
        let (mut again, mut last) = (Vec::new(), (0, 0));
        let on_event = |progress: &Progress, event: Event<'_, Number, UnitAttempt>| {
            last = progress.counts();
            if let Event::Again(unit, why) = event {
                again.push(format!("{}: {why}", unit.0));
            }
        };
        let all = carry_out_together(&plan(), &mut journal, &stop, (1, 3), work, on_event).unwrap();
        assert!(all);
        let expected = ["0", "1 no 1", "2 no 1", "3", "1", "2 no 2", "2 no 3"];
        assert_eq!(described(journal.records()), expected);
        assert_eq!(again, ["1: no 1", "2: no 1", "2: no 2"]);
        assert_eq!(last, (4, 4), "given up is settled too");
        // A resumed run has nothing left to do.
        let all = carry_out_together(&plan(), &mut journal, &stop, (1, 3), work, |_, _| {});
        assert!(all.unwrap());
        assert_eq!(journal.records().len(), 7);
    }

    #[test]
    fn workers_share_and_each_unit_is_done_once() {
        let (folder, stop) = (tempfile::tempdir().unwrap(), AtomicBool::new(false));
        let mut journal = journal(folder.path());
        carry_out_together(&plan(), &mut journal, &stop, (3, 3), work, |_, _| {}).unwrap();
        let mut good: Vec<_> =
            journal.records().iter().filter(|r| r.error.is_empty()).map(|r| &r.unit).collect();
        good.sort();
        assert_eq!(good, ["0", "1", "3"]);
        assert_eq!(journal.records().len(), 7);
    }

    #[test]
    fn a_stop_loses_what_is_under_way_and_attempts_are_counted_over_all_runs() {
        let (folder, stop) = (tempfile::tempdir().unwrap(), AtomicBool::new(false));
        let stopped = |turns: &Turns<'_, Number, UnitAttempt>| {
            while let Some((unit, attempt)) = turns.next() {
                stop.store(unit.0 == 3, Ordering::Relaxed);
                if turns.stopped() {
                    return;
                }
                let error = if unit.0 == 2 { format!("no {attempt}") } else { String::new() };
                turns.done(unit, UnitAttempt { unit: unit.id(), error }, Duration::ZERO);
            }
        };
        let mut first = journal(folder.path());
        let all = carry_out_together(&plan(), &mut first, &stop, (1, 3), stopped, |_, _| {});
        assert!(!all.unwrap());
        drop(first);
        stop.store(false, Ordering::Relaxed);
        let mut journal = journal(folder.path());
        assert!(carry_out_together(&plan(), &mut journal, &stop, (1, 3), work, |_, _| {}).unwrap());
        assert_eq!(described(journal.records()), ["0", "1", "2 no 1", "2 no 2", "3", "2 no 3"]);
    }

    #[test]
    fn a_worker_that_gives_up_ends_the_run_with_its_reason() {
        let (folder, stop) = (tempfile::tempdir().unwrap(), AtomicBool::new(false));
        let work =
            |turns: &Turns<'_, Number, UnitAttempt>| turns.give_up("the network", "no".to_owned());
        let mut journal = journal(folder.path());
        let error = carry_out_together(&plan(), &mut journal, &stop, (2, 3), work, |_, _| {});
        assert_eq!(error.unwrap_err().to_string(), "cannot measure the network: no");
    }
}
