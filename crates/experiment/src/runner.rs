//! Execution of a plan's units (measurements) one after another, until all are done.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Journal, JournalError, Progress};

/// Pause before a failed unit (measurement) is tried again. The cause of the failure may disappear
/// in the meantime.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of attempts at one unit (measurement) of the plan.
const TRIES: u32 = 2;

/// One measurement (unit) of an experiment's plan.
pub trait Unit {
    /// Returns the measurement's name, which is unique in the plan and does not change when the
    /// experiment is resumed.
    fn id(&self) -> String;
    /// Returns the measurement's approximate duration, for the estimate of the remaining time.
    fn lasts(&self) -> Duration;
}

/// Result of one measurement, as the journal (the file of the experiment's results) stores it.
pub trait Record: Serialize + DeserializeOwned {
    /// Returns the name of the measurement: [`Unit::id`].
    fn unit(&self) -> &str;
}

/// An event during the execution of an experiment's plan, for progress reports.
pub enum Event<'a, U, R> {
    /// A measurement starts.
    Begun(&'a U),
    /// A measurement is done, and its result is stored in the journal, the file of the
    /// experiment's results.
    Done(&'a U, &'a R),
    /// A measurement failed for the given reason, and will be repeated.
    Again(&'a U, &'a str),
}

/// Reason why an experiment's plan was not completed.
#[derive(Debug)]
pub enum Incomplete {
    /// A result cannot be stored in the journal, the file of the experiment's results.
    Journal(JournalError),
    /// A measurement failed. The fields are its name and the reason.
    Unit(String, String),
}

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Incomplete::Journal(error) => error.fmt(f),
            Incomplete::Unit(unit, why) => write!(f, "cannot measure {unit}: {why}"),
        }
    }
}

impl std::error::Error for Incomplete {}

/// Executes the units (measurements) that have no record in the journal (the results file), in the
/// plan's order. Calls `notify` for each event, with the progress. Returns true if all units are
/// done. Returns false if `stop` was set before that; only the unit in progress is then lost.
///
/// # Errors
/// [`Incomplete`]: a unit failed twice, or its record could not be stored.
pub fn carry_out<U: Unit, R: Record>(
    units: &[U],
    journal: &mut Journal<R>,
    stop: &AtomicBool,
    mut work: impl FnMut(&U) -> Result<R, String>,
    mut notify: impl FnMut(&Progress, Event<'_, U, R>),
) -> Result<bool, Incomplete> {
    let done: std::collections::BTreeSet<_> =
        journal.records().iter().map(|record| record.unit().to_owned()).collect();
    let left: Vec<&U> = units.iter().filter(|unit| !done.contains(&unit.id())).collect();
    let mut progress = Progress::new(units.len() - left.len(), left.iter().map(|u| u.lasts()));
    for unit in left {
        let begun = Instant::now();
        notify(&progress, Event::Begun(unit));
        let record = match one(unit, stop, &mut work, |why| {
            notify(&progress, Event::Again(unit, why));
        }) {
            Some(record) => record.map_err(|why| Incomplete::Unit(unit.id(), why))?,
            None => return Ok(false),
        };
        journal.append(record).map_err(Incomplete::Journal)?;
        progress.done(unit.lasts(), begun.elapsed());
        if let Some(record) = journal.records().last() {
            notify(&progress, Event::Done(unit, record));
        }
    }
    Ok(true)
}

/// Executes one unit (measurement). Returns its record or the reason why it failed; `None` if the
/// experiment was stopped. Calls `again` with the reason before a second attempt.
fn one<U, R>(
    unit: &U,
    stop: &AtomicBool,
    work: &mut impl FnMut(&U) -> Result<R, String>,
    mut again: impl FnMut(&str),
) -> Option<Result<R, String>> {
    let mut tries = 0;
    loop {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        tries += 1;
        let result = work(unit);
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        match result {
            Err(why) if tries < TRIES => again(&why),
            result => return Some(result),
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;
    use std::path::Path;

    struct Number(u32);

    impl Unit for Number {
        fn id(&self) -> String {
            format!("unit {}", self.0)
        }

        fn lasts(&self) -> Duration {
            Duration::from_secs(10)
        }
    }

    #[derive(Serialize, Deserialize)]
    struct Square {
        unit: String,
        value: u32,
    }

    impl Record for Square {
        fn unit(&self) -> &str {
            &self.unit
        }
    }

    fn plan() -> Vec<Number> {
        (0..5).map(Number).collect()
    }

    fn journal(folder: &Path) -> Journal<Square> {
        Journal::open(&folder.join("units.jsonl"), &json!({"n": 5})).unwrap()
    }

    fn square(unit: &Number) -> Result<Square, String> {
        Ok(Square { unit: unit.id(), value: unit.0 * unit.0 })
    }

    #[test]
    fn a_stopped_run_goes_on_and_loses_at_most_the_unit_under_way() {
        let folder = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        let mut worked = Vec::new();
        let work = |unit: &Number| {
            worked.push(unit.0);
            // The run is stopped during the third unit.
            stop.store(unit.0 == 2, Ordering::Relaxed);
            square(unit)
        };
        let all = carry_out(&plan(), &mut journal(folder.path()), &stop, work, |_, _| {}).unwrap();
        assert!(!all);
        assert_eq!(worked, [0, 1, 2]);

        stop.store(false, Ordering::Relaxed);
        let mut worked = Vec::new();
        let work = |unit: &Number| {
            worked.push(unit.0);
            square(unit)
        };
        let mut journal = journal(folder.path());
        assert!(carry_out(&plan(), &mut journal, &stop, work, |_, _| {}).unwrap());
        assert_eq!(worked, [2, 3, 4]);
        let values: Vec<_> = journal.records().iter().map(|record| record.value).collect();
        assert_eq!(values, [0, 1, 4, 9, 16]);
    }

    #[test]
    fn a_unit_that_fails_once_is_tried_again_and_told() {
        let folder = tempfile::tempdir().unwrap();
        let (stop, mut failed, mut again) = (AtomicBool::new(false), false, Vec::new());
        let work = |unit: &Number| {
            if unit.0 == 1 && !std::mem::replace(&mut failed, true) {
                return Err("the server did not come up".to_owned());
            }
            square(unit)
        };
        let notify = |_: &Progress, event: Event<'_, Number, Square>| {
            if let Event::Again(unit, why) = event {
                again.push((unit.0, why.to_owned()));
            }
        };
        let mut journal = journal(folder.path());
        assert!(carry_out(&plan(), &mut journal, &stop, work, notify).unwrap());
        assert_eq!(again, [(1, "the server did not come up".to_owned())]);
        assert_eq!(journal.records().len(), 5);
    }

    #[test]
    fn a_unit_that_fails_twice_ends_the_run_with_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        let work = |unit: &Number| if unit.0 == 1 { Err("no".to_owned()) } else { square(unit) };
        let mut journal = journal(folder.path());
        let error = carry_out(&plan(), &mut journal, &stop, work, |_, _| {}).unwrap_err();
        assert_eq!(error.to_string(), "cannot measure unit 1: no");
        assert_eq!(journal.records().len(), 1);
    }
}
