//! The live view on a terminal: the state of the whole, guards, circuits, the last events.

use anabranch_router::onion::client::ClientEvent;

use super::model::Model;
use super::plain::{Plain, warning};
use crate::screen::live::LiveView;

/// A screen that redraws itself. On a terminal that does not say where its cursor is, or that is
/// gone, the lines of [`Plain`] remain.
pub(super) struct Live {
    plain: Plain,
    live: LiveView<Model>,
    /// The run's name.
    name: Option<String>,
}

impl Live {
    pub(super) fn new(plain: Plain, name: Option<String>) -> Live {
        Live { plain, live: LiveView::new(), name }
    }

    pub(super) fn tell(&mut self, event: &ClientEvent) {
        if let ClientEvent::Listening(_) = event {
            // The addresses for programs stay above the view.
            self.plain.tell(event);
            let model = Model { name: self.name.clone(), ..Model::default() };
            self.live.begin(self.plain.flush(), model);
        }
        let Some(view) = self.live.view() else { return self.plain.tell(event) };
        view.change(|model| model.take(event));
        if let Some(text) = warning(event) {
            view.keep(format!("warning: {text}"));
        }
        if let ClientEvent::Status(_) = event {
            view.redraw();
        }
    }

    /// A line that is not a client's: above the view, or where lines go.
    pub(super) fn say(&mut self, text: &str) {
        match self.live.view() {
            Some(view) => view.keep(text.to_owned()),
            None => self.plain.say(text),
        }
    }

    /// The same of what is not as it should be.
    pub(super) fn warn(&mut self, text: &str) {
        match self.live.view() {
            Some(view) => view.keep(format!("warning: {text}")),
            None => self.plain.warn(text),
        }
    }
}
