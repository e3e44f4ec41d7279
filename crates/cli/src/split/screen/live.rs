//! The live view of a splitter on a terminal: a table of paths, sessions, and the latest events.
//! The view is below the lines that are already on the terminal.

use std::time::Duration;

use anabranch_comps::{Event, Snapshot};
use anabranch_multipath::Time;
use anabranch_splitter::split::{ActiveSettings, FarEndNews, Screen};

use super::model::{Model, settings};
use super::plain::PlainScreen;
use super::session_table::is_warning;
use crate::screen::journal::Journal;
use crate::screen::live::{LiveView, PERIOD};

mod draw;

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
}

impl Screen for LiveScreen {
    fn listening(&mut self, about: &ActiveSettings) {
        self.plain.listening(about);
        let mut model = Model { name: self.name.clone(), ..Model::default() };
        model.begin(about);
        self.live.begin(self.plain.flush(), model);
    }

    fn event(&mut self, now: Time, event: &Event) {
        let Some(view) = self.live.view() else { return self.plain.event(now, event) };
        let words = view.change(|model| model.event(now, event));
        if let (true, Some(words)) = (is_warning(event), words) {
            view.keep(&format!("{:9.3}  warning: {words}", now.secs_f64()));
        }
    }

    /// Updates the model after the settings were read again. The height of the view stays the
    /// same, because changing it may take a terminal seconds.
    fn reloaded(&mut self, now: Time, about: &ActiveSettings) {
        let Some(view) = self.live.view() else { return self.plain.reloaded(now, about) };
        view.change(|model| model.reloaded(now, about));
        view.keep(&format!("{:9.3}  {}", now.secs_f64(), settings(about)));
    }

    fn snapshot(&mut self, now: Time, snapshot: &Snapshot) {
        let Some(view) = self.live.view() else { return self.plain.snapshot(now, snapshot) };
        view.change(|model| model.snapshot(now, snapshot));
        view.redraw();
    }

    fn finish(&mut self, now: Time, snapshot: &Snapshot) {
        self.live.end();
        self.plain.finish(now, snapshot);
    }

    fn far_end(&mut self, now: Time, news: &FarEndNews) {
        let Some(view) = self.live.view() else { return self.plain.far_end(now, news) };
        let words = view.change(|model| model.far_end(now, news));
        if *news != FarEndNews::Up {
            view.keep(&format!("{:9.3}  warning: {words}", now.secs_f64()));
        }
    }

    fn warn(&mut self, text: &str) {
        let Some(view) = self.live.view() else { return self.plain.warn(text) };
        view.keep(&format!("warning: {text}"));
    }

    fn interval(&self) -> Duration {
        if self.live.is_gone() { self.plain.interval() } else { PERIOD }
    }
}
