//! What an experiment hears, and what it tells programs.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anabranch_drive::experiment::{Event, Progress, Record, Unit};
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::failure::Failure;

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
pub(super) fn object<U: Unit, R: Record>(progress: &Progress, event: Event<'_, U, R>) -> Value {
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
pub(super) fn say(object: &Value) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{object}").and_then(|()| out.flush());
}
