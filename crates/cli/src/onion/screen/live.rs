//! The live view on a terminal: the state of the whole, guards, circuits, the last events.

use anabranch_drive::onion::client::ClientEvent;

use super::draw;
use super::model::Model;
use super::plain::{Plain, warning};
use crate::screen::hush::Hush;
use crate::screen::view::View;

/// A screen that redraws itself. On a terminal that does not say where its cursor is, or that is
/// gone, the lines of [`Plain`] remain.
pub(super) struct Live {
    plain: Plain,
    view: Option<View<Model>>,
    /// Dropped after the view.
    _hush: Option<Hush>,
}

impl Live {
    pub(super) fn new(plain: Plain) -> Live {
        Live { plain, view: None, _hush: None }
    }

    pub(super) fn tell(&mut self, event: &ClientEvent) {
        if let ClientEvent::Listening(_) = event {
            self.begin(event);
        }
        self.view = self.view.take().filter(View::runs);
        let Some(view) = &self.view else { return self.plain.tell(event) };
        view.change(|model| model.take(event));
        if let Some(text) = warning(event) {
            view.keep(format!("warning: {text}"));
        }
        if let ClientEvent::Status(_) = event {
            view.redraw();
        }
    }

    /// Where programs may come stays above the view.
    fn begin(&mut self, event: &ClientEvent) {
        self.plain.tell(event);
        // A terminal that takes no lines would take no view either.
        if self.plain.flush() {
            self.view = View::open(draw::HEIGHT, Model::default(), draw::draw);
        }
        self._hush = self.view.as_ref().and_then(|view| {
            let hush = Hush::begin(draw::HEIGHT)?;
            view.follow_keys();
            Some(hush)
        });
    }
}
