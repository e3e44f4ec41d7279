//! Where a client shows what happens: a live view on a terminal, lines elsewhere, JSON for
//! machines.

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
use crate::status::Standing;

/// What the user sees, and what is posted for `anabranch status`.
pub(super) struct Screen {
    kind: Kind,
    standing: Option<Standing>,
}

enum Kind {
    Json(Lines, Stamp),
    Plain(plain::Plain),
    Live(Box<live::Live>),
}

impl Screen {
    /// The one that suits the options and the place that stdout leads to, for a run that is posted
    /// as `standing` and shows its `name`. None makes the run wait for who reads it.
    ///
    /// # Errors
    /// The threads that write cannot be had.
    pub(super) fn of(
        (standing, name): (Option<Standing>, Option<String>),
        json: bool,
        quiet: bool,
    ) -> io::Result<Screen> {
        if json {
            let kind = Kind::Json(Lines::stdout()?, Stamp::new(name.as_deref()));
            return Ok(Screen { kind, standing });
        }
        let plain = plain::Plain::new(quiet, name.as_deref())?;
        let kind = match quiet || !has_terminal() {
            true => Kind::Plain(plain),
            false => Kind::Live(Box::new(live::Live::new(plain, name))),
        };
        Ok(Screen { kind, standing })
    }

    /// A line for people that is no event of the client's.
    pub(super) fn say(&mut self, text: &str) {
        match &mut self.kind {
            Kind::Json(..) => {}
            Kind::Plain(plain) => plain.say(text),
            Kind::Live(live) => live.say(text),
        }
    }

    /// The same of what is not as it should be.
    pub(super) fn warn(&mut self, text: &str) {
        match &mut self.kind {
            Kind::Json(..) => {}
            Kind::Plain(plain) => plain.warn(text),
            Kind::Live(live) => live.warn(text),
        }
    }

    /// Something has happened.
    pub(super) fn tell(&mut self, event: ClientEvent) {
        if let Some(standing) = &mut self.standing {
            standing.event(&json::value(&event));
        }
        match &mut self.kind {
            Kind::Json(out, stamp) => json::tell(out, stamp, &event),
            Kind::Plain(plain) => plain.tell(&event),
            Kind::Live(live) => live.tell(&event),
        }
    }
}
