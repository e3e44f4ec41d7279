//! What an experiment hears, and what it tells people and programs.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anabranch_experiment::{Event, Progress, Record, Unit};
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::bar::Bar;
use crate::failure::Failure;

/// Tells how far an experiment is: people by a bar, programs by JSON lines.
pub(super) struct Teller<R> {
    bar: Bar,
    json: bool,
    outcome: fn(&R) -> String,
}

impl<R: Record> Teller<R> {
    /// One that says of a record what `outcome` makes of it.
    pub(super) fn new(json: bool, outcome: fn(&R) -> String) -> Teller<R> {
        Teller { bar: Bar::new(), json, outcome }
    }

    /// Tells of an event.
    pub(super) fn hear<U: Unit>(&mut self, progress: &Progress, event: Event<'_, U, R>) {
        match event {
            _ if self.json => say(&object(progress, event)),
            Event::Begun(unit) => self.bar.begun(progress, &unit.id()),
            Event::Done(unit, record) => {
                self.bar.done(progress, &format!("{} {}", unit.id(), (self.outcome)(record)));
            }
            Event::Again(unit, why) => {
                self.bar.note(&format!("{}: to be tried again, as {why}", unit.id()));
            }
        }
    }

    /// Leaves the terminal at the start of a line.
    pub(super) fn end(self) {
        self.bar.end();
    }
}

/// Set by SIGINT, SIGTERM and SIGHUP.
///
/// # Errors
/// Trouble: the system allows no handlers.
pub(super) fn told_to_stop() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(Failure::trouble)?;
    }
    Ok(stop)
}

/// An event as JSON (`docs/formats.md`).
fn object<U: Unit, R: Record>(progress: &Progress, event: Event<'_, U, R>) -> Value {
    let (done, total) = progress.counts();
    let left = progress.left().as_secs_f64().round();
    let (name, unit) = match &event {
        Event::Begun(unit) => ("begun", unit),
        Event::Done(unit, _) => ("done", unit),
        Event::Again(unit, _) => ("again", unit),
    };
    let mut object =
        json!({"event": name, "unit": unit.id(), "done": done, "total": total, "left": left});
    match event {
        Event::Done(_, record) => object["record"] = json!(record),
        Event::Again(_, why) => object["message"] = why.into(),
        Event::Begun(_) => {}
    }
    object
}

/// Nobody may be there to read it: what is measured is stored all the same.
fn say(object: &Value) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{object}").and_then(|()| out.flush());
}
