//! Progress reports of a running experiment, and the signals that stop it.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anabranch_experiment::{Event, Progress, Record, Unit};
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::bar::Bar;
use super::view::Model;
use crate::failure::Failure;
use crate::screen::has_terminal;
use crate::screen::journal::Journal;
use crate::screen::live::LiveView;

/// A reporter of the progress of an experiment. Its output is a live view, a progress bar or, with
/// `--json`, JSON lines.
pub(crate) struct Reporter<R> {
    interface: Interface,
    outcome: fn(&R) -> String,
}

enum Interface {
    Json,
    /// A progress bar on standard error, if standard output is redirected.
    Bar(Bar),
    View(Box<LiveView<Model>>),
}

impl<R: Record> Reporter<R> {
    /// Creates a reporter for the experiment `name`; `outcome` describes a record.
    pub(crate) fn new(name: &'static str, json: bool, outcome: fn(&R) -> String) -> Reporter<R> {
        let interface = match json {
            true => Interface::Json,
            false if has_terminal() && io::stderr().is_terminal() => Interface::view(name),
            false => Interface::Bar(Bar::new()),
        };
        Reporter { interface, outcome }
    }

    /// Reports an event.
    pub(crate) fn report<U: Unit>(&mut self, progress: &Progress, event: Event<'_, U, R>) {
        if let Interface::View(live) = &mut self.interface
            && live.view().is_none()
        {
            // The terminal is gone, or does not accept a view any more.
            self.interface = Interface::Bar(Bar::new());
        }
        match &mut self.interface {
            Interface::Json => print_line(&object(progress, event)),
            Interface::Bar(bar) => match event {
                Event::Begun(unit) => bar.begun(progress, &unit.id()),
                Event::Done(unit, record) => {
                    bar.done(progress, &format!("{} {}", unit.id(), (self.outcome)(record)));
                }
                Event::Again(unit, why) => {
                    bar.note(&format!("{} will be repeated: {why}", unit.id()));
                }
            },
            Interface::View(live) => {
                let Some(view) = live.view() else { return };
                view.change(|model| match event {
                    Event::Begun(unit) => model.begin(progress, unit.id()),
                    Event::Done(unit, record) => {
                        model.done(progress, unit.id(), (self.outcome)(record));
                    }
                    Event::Again(unit, why) => model.again(&unit.id(), why),
                });
                view.redraw();
            }
        }
    }

    /// Ends the output: closes the view, or ends the line of the bar.
    pub(crate) fn end(self) {
        match self.interface {
            Interface::Json => {}
            Interface::Bar(bar) => bar.end(),
            Interface::View(mut live) => live.end(),
        }
    }
}

impl Interface {
    /// Creates a live view, or a progress bar if the terminal does not support a view.
    fn view(name: &'static str) -> Interface {
        let mut live = LiveView::new(Journal::NONE);
        live.begin(true, Model::new(name));
        match live.is_gone() {
            true => Interface::Bar(Bar::new()),
            false => Interface::View(Box::new(live)),
        }
    }
}

/// Returns a flag that SIGINT, SIGTERM and SIGHUP set.
///
/// # Errors
/// Trouble (exit code 1): the handlers cannot be installed.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(Failure::trouble)?;
    }
    Ok(stop)
}

/// Returns an event as JSON (`docs/formats.md`).
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

/// Prints `object` as a line. A closed output is ignored, because the measurements are stored
/// anyway.
fn print_line(object: &Value) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{object}").and_then(|()| out.flush());
}
