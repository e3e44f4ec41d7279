//! The live view on a terminal: a table of paths, sessions and the last events, drawn below what
//! was there before.

use std::io::{self, Stdout};
use std::time::Duration;

use anabranch_comps::{Event, Snapshot};
use anabranch_drive::split::{Listening, Screen};
use anabranch_multipath::Time;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{MoveTo, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{Clear, ClearType};
use ratatui::text::Line;
use ratatui::widgets::Widget;
use ratatui::{Terminal, TerminalOptions, Viewport};

use super::book::is_warning;
use super::model::Model;
use super::plain::Plain;
use hush::Hush;

mod draw;
mod hush;

/// Between two drawings; the eye follows no faster changes of numbers.
const PERIOD: Duration = Duration::from_millis(250);

/// A screen that redraws itself. On a terminal that does not say where its cursor is, the lines of
/// [`Plain`] remain.
pub(super) struct Live {
    plain: Plain<Stdout>,
    model: Model,
    terminal: Option<Terminal<CrosstermBackend<Stdout>>>,
    /// The terminal could not be opened.
    refused: bool,
    /// Dropped after the terminal.
    _hush: Option<Hush>,
}

impl Live {
    pub(super) fn new(plain: Plain<Stdout>) -> Live {
        Live { plain, model: Model::default(), terminal: None, refused: false, _hush: None }
    }

    fn redraw(&mut self) {
        let model = &self.model;
        if let Some(terminal) = &mut self.terminal
            && terminal.draw(|frame| draw::draw(frame, model)).is_err()
        {
            // The terminal is gone: what SIGHUP does not end goes on without a view.
            self.terminal = None;
        }
    }

    /// A line that stays above the view.
    fn keep(&mut self, text: &str) {
        let Some(terminal) = &mut self.terminal else { return self.plain.warn(text) };
        let _ = terminal.insert_before(1, |buffer| Line::raw(text).render(buffer.area, buffer));
    }
}

impl Screen for Live {
    fn listening(&mut self, about: &Listening) {
        self.plain.listening(about);
        self.model.begin(about);
        let height = draw::height(about.egresses.len());
        self.terminal = open(height).ok();
        self.refused = self.terminal.is_none();
        if self.terminal.is_some() {
            self._hush = Hush::begin(height);
        }
    }

    fn event(&mut self, now: Time, event: &Event) {
        if self.terminal.is_none() {
            return self.plain.event(now, event);
        }
        self.model.event(now, event);
        if let (true, Some((_, words))) = (is_warning(event), self.model.recent.back()) {
            let text = format!("{:9.3}  warning: {words}", now.secs_f64());
            self.keep(&text);
        }
    }

    fn snapshot(&mut self, now: Time, snapshot: &Snapshot) {
        if self.terminal.is_none() {
            return self.plain.snapshot(now, snapshot);
        }
        self.model.snapshot(now, snapshot);
        self.redraw();
    }

    fn finish(&mut self, now: Time, snapshot: &Snapshot) {
        if let Some(mut terminal) = self.terminal.take() {
            // `Terminal::clear` would ask the terminal where its cursor is; we know where the view begins.
            let top = terminal.get_frame().area().top();
            drop(terminal);
            let _ = execute!(io::stdout(), MoveTo(0, top), Clear(ClearType::FromCursorDown), Show);
        }
        self._hush = None;
        self.plain.finish(now, snapshot);
    }

    fn warn(&mut self, text: &str) {
        self.keep(&format!("warning: {text}"));
    }

    fn interval(&self) -> Duration {
        if self.refused { self.plain.interval() } else { PERIOD }
    }
}

fn open(height: u16) -> io::Result<Terminal<CrosstermBackend<Stdout>>> {
    let viewport = Viewport::Inline(height);
    Terminal::with_options(CrosstermBackend::new(io::stdout()), TerminalOptions { viewport })
}
