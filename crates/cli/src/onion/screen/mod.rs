//! Output of a client: a live view on a terminal, lines of text elsewhere, or JSON objects with
//! `--json`.

mod draw;
mod json;
mod live;
mod model;
mod plain;

use std::io;

use anabranch_router::onion::client::ClientEvent;

use super::log::Stamp;
use crate::screen::has_terminal;
use crate::screen::lines::Lines;
use crate::status::PublishedStatus;

/// Output of a client for its user, and the status that is published for `anabranch status`.
pub(super) struct Screen {
    kind: Kind,
    run_status: Option<PublishedStatus>,
}

enum Kind {
    Json(Lines, Stamp),
    Plain(plain::PlainScreen),
    Live(Box<live::LiveScreen>),
}

impl Screen {
    /// Returns the screen that suits the options and the type of standard output. `run_status`
    /// publishes the program's status for `anabranch status`; `name` is the name that the user has
    /// given to the running program. Screens never block the program, even if nobody reads
    /// standard output.
    ///
    /// # Errors
    /// The writer threads cannot be started.
    pub(super) fn of(
        (run_status, name): (Option<PublishedStatus>, Option<String>),
        json: bool,
        quiet: bool,
    ) -> io::Result<Screen> {
        if json {
            let kind = Kind::Json(Lines::stdout()?, Stamp::new(name.as_deref()));
            return Ok(Screen { kind, run_status });
        }
        let plain = plain::PlainScreen::new(quiet, name.as_deref())?;
        let kind = match quiet || !has_terminal() {
            true => Kind::Plain(plain),
            false => Kind::Live(Box::new(live::LiveScreen::new(plain, name))),
        };
        Ok(Screen { kind, run_status })
    }

    /// Prints the line `text`, which is not about an event of the client. Prints nothing if the
    /// output is JSON.
    pub(super) fn print(&mut self, text: &str) {
        match &mut self.kind {
            Kind::Json(..) => {}
            Kind::Plain(plain) => plain.print(text),
            Kind::Live(live) => live.print(text),
        }
    }

    /// Prints the warning `text`, which is not about an event of the client. Prints nothing if the
    /// output is JSON.
    pub(super) fn warn(&mut self, text: &str) {
        match &mut self.kind {
            Kind::Json(..) => {}
            Kind::Plain(plain) => plain.warn(text),
            Kind::Live(live) => live.warn(text),
        }
    }

    /// Shows an event of the client, and publishes it for `anabranch status`.
    pub(super) fn report(&mut self, event: ClientEvent) {
        if let Some(run_status) = &mut self.run_status {
            run_status.event(&json::value(&event));
        }
        match &mut self.kind {
            Kind::Json(out, stamp) => json::report(out, stamp, &event),
            Kind::Plain(plain) => plain.report(&event),
            Kind::Live(live) => live.report(&event),
        }
    }
}
