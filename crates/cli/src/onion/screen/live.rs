//! The live view of a client on a terminal: its state, guards, circuits and latest events.

use anabranch_router::onion::client::ClientEvent;

use super::model::Model;
use super::plain::{PlainScreen, warning};
use crate::screen::journal::Journal;
use crate::screen::live::LiveView;

/// A screen (output for the user) with a live view. If the terminal is gone, or does not report
/// the position of its cursor, the screen prints the lines of [`PlainScreen`] instead.
pub(super) struct LiveScreen {
    plain: PlainScreen,
    live: LiveView<Model>,
    /// Name that the user has given to this running program (`--name`); `None` if there is none.
    name: Option<String>,
}

impl LiveScreen {
    pub(super) fn new(plain: PlainScreen, name: Option<String>) -> LiveScreen {
        LiveScreen { plain, live: LiveView::new(Journal::NONE.of_run(name.as_deref())), name }
    }

    pub(super) fn report(&mut self, event: &ClientEvent) {
        if let ClientEvent::Listening(_) = event {
            // The line with the addresses for programs is printed above the view, where it
            // remains.
            self.plain.report(event);
            let model = Model { name: self.name.clone(), ..Model::default() };
            self.live.begin(self.plain.flush(), model);
        }
        let Some(view) = self.live.view() else { return self.plain.report(event) };
        view.change(|model| model.take(event));
        if let Some(text) = warning(event) {
            view.keep(&format!("warning: {text}"));
        }
        if let ClientEvent::Status(_) = event {
            view.redraw();
        }
    }

    /// Prints a line that is not an event of the client. If there is a view, the line is above it.
    pub(super) fn print(&mut self, text: &str) {
        match self.live.view() {
            Some(view) => view.keep(text),
            None => self.plain.print(text),
        }
    }

    /// Prints a warning. If there is a view, the warning is above it.
    pub(super) fn warn(&mut self, text: &str) {
        match self.live.view() {
            Some(view) => view.keep(&format!("warning: {text}")),
            None => self.plain.warn(text),
        }
    }
}
