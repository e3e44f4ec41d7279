//! Where a client shows what happens: a live view on a terminal, lines elsewhere, JSON for machines.

mod draw;
mod json;
mod live;
mod model;
mod plain;

use std::io;

use anabranch_drive::clock::Clock;
use anabranch_drive::onion::client::Happening;

use crate::screen::has_terminal;
use crate::screen::lines::Lines;

/// What the user sees.
pub(super) struct Screen(Kind);

enum Kind {
    Json(Lines, Clock),
    Plain(plain::Plain),
    Live(Box<live::Live>),
}

impl Screen {
    /// The one that suits the options and the place that stdout leads to. None makes the run wait for who reads it.
    ///
    /// # Errors
    /// The threads that write cannot be had.
    pub(super) fn of(json: bool, quiet: bool) -> io::Result<Screen> {
        if json {
            return Ok(Screen(Kind::Json(Lines::stdout()?, Clock::start())));
        }
        let plain = plain::Plain::new(quiet)?;
        Ok(Screen(match quiet || !has_terminal() {
            true => Kind::Plain(plain),
            false => Kind::Live(Box::new(live::Live::new(plain))),
        }))
    }

    /// Something has happened.
    pub(super) fn tell(&mut self, happening: Happening) {
        match &mut self.0 {
            Kind::Json(out, clock) => json::tell(out, clock, &happening),
            Kind::Plain(plain) => plain.tell(&happening),
            Kind::Live(live) => live.tell(&happening),
        }
    }
}
