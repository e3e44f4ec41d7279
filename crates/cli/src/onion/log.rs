//! The log of a relay or an authority for its operator: lines of text, or one JSON object per
//! line. Separate threads write the output, so that circuits do not wait for a slow reader.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use anabranch_multipath::Time;
use anabranch_os::clock::Clock;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::screen::journal::{Journal, Priority};
use crate::screen::lines::Lines;
use crate::status::PublishedStatus;

/// Source of two members of each JSON object: `name`, which the user has given to the running
/// program, if any, and `time`, the time since its start.
#[derive(Debug)]
pub(super) struct Stamp {
    name: Option<String>,
    clock: Clock,
}

impl Stamp {
    /// Creates the stamp of a program that starts now.
    pub(super) fn new(name: Option<&str>) -> Stamp {
        Stamp { name: name.map(str::to_owned), clock: Clock::start() }
    }

    /// Returns `event` as a line of JSON, with the members `name` and `time` added.
    pub(super) fn on(&self, mut event: Value) -> String {
        if let Some(name) = &self.name {
            event["name"] = json!(name);
        }
        event["time"] = json!(self.clock.now().secs_f64());
        event.to_string()
    }
}

/// Output of a relay or authority. Events go to standard output as JSON objects or lines, and
/// warnings to standard error.
pub(super) struct Log {
    pub(super) json: bool,
    quiet: bool,
    stamp: Stamp,
    out: Lines,
    warnings: Lines,
    journal: Journal,
    run_status: Mutex<Option<PublishedStatus>>,
}

impl Log {
    /// Creates the log of the running program called `name`. Events are also published in
    /// `run_status`. The program continues if the log's reader is gone.
    ///
    /// # Errors
    /// The writer threads cannot be started.
    pub(super) fn new(
        (run_status, name): (Option<PublishedStatus>, Option<&str>),
        json: bool,
        quiet: bool,
    ) -> Result<Log, Failure> {
        let stdout = || Lines::file(File::from(io::stdout().as_fd().try_clone_to_owned()?));
        let (out, warnings) =
            (stdout().map_err(Failure::trouble)?, Lines::stderr().map_err(Failure::trouble)?);
        let run_status = Mutex::new(run_status);
        let (stamp, journal) = (Stamp::new(name), Journal::of_stdout().of_run(name));
        Ok(Log { json, quiet, stamp, out, warnings, journal, run_status })
    }

    /// Logs an event: the object `event` in JSON output (`--json`), or the line `text` in text
    /// output. Also publishes `event` for `anabranch status`.
    pub(super) fn print(&self, event: &Value, text: &str) {
        self.log_json(event);
        self.line(text);
    }

    /// Returns whether lines of text are printed. Returns false if the output is JSON (`--json`),
    /// or if only warnings are wanted (`--quiet`).
    pub(super) fn prints_text(&self) -> bool {
        !self.json && !self.quiet
    }

    /// Prints the line `text`. Prints nothing if the output is JSON, or if only warnings are
    /// wanted.
    pub(super) fn line(&self, text: &str) {
        if self.prints_text() {
            self.out.print(&self.journal.line(Priority::Information, text), lost);
        }
    }

    /// Waits for a limited time until all lines are written. Returns whether all lines are
    /// written.
    pub(super) fn flush(&self) -> bool {
        self.out.flush()
    }

    /// Returns the prefix of lines of text: their priority for systemd's journal, and the name of
    /// the running program.
    pub(super) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Returns the time since the start of the program.
    pub(super) fn now(&self) -> Time {
        self.stamp.clock.now()
    }

    /// Logs `event`, which is written only in machine-readable JSON output (`--json`). Also
    /// publishes `event` for `anabranch status`.
    pub(super) fn log_json(&self, event: &Value) {
        if let Some(run_status) =
            &mut *self.run_status.lock().unwrap_or_else(PoisonError::into_inner)
        {
            run_status.event(event);
        }
        if self.json {
            let lost = |lines| self.stamp.on(json!({"event": "lost", "lines": lines}));
            self.out.print(&self.stamp.on(event.clone()), lost);
        }
    }

    /// Logs a warning, also with `--quiet`: the object `event` in JSON output, or the line `text`
    /// on standard error. Also publishes `event` for `anabranch status`.
    pub(super) fn warn(&self, event: &Value, text: &str) {
        self.log_json(event);
        if !self.json {
            let text = format!("anabranch: {text}");
            self.warnings.print(&self.journal.line(Priority::Warning, &text), lost);
        }
    }
}

fn lost(lines: u64) -> String {
    format!("{lines} lines dropped: output was blocked")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_the_seconds_since_the_start_and_the_name_of_the_run() {
        let stamped = |name| -> Value {
            let text = Stamp::new(name).on(json!({"event": "ready", "relays": 3}));
            serde_json::from_str(&text).unwrap()
        };
        let read = stamped(Some("home"));
        assert_eq!((&read["event"], &read["relays"]), (&json!("ready"), &json!(3)));
        assert!((0.0..5.0).contains(&read["time"].as_f64().unwrap()), "{read}");
        assert_eq!(read["name"], "home");
        assert!(stamped(None).get("name").is_none());
    }
}
