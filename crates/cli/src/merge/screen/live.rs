//! The live view of a far end: its clients and their paths. Warnings are printed above the view.

use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_splitter::merge::{ActiveSettings, News, Screen, Snapshot};

use super::model::Model;
use super::plain::{PlainScreen, reloaded as words_of};
use super::{is_warning, words};
use crate::screen::journal::Journal;
use crate::screen::live::{LiveView, PERIOD};

mod draw;

/// A screen (output for the user) that shows a live view while its terminal is available, and
/// prints lines otherwise.
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
        let model = Model { name: self.name.clone(), ..Model::default() };
        self.live.begin(self.plain.flush(), model);
    }

    fn reloaded(&mut self, now: Time, about: &ActiveSettings) {
        let Some(view) = self.live.view() else { return self.plain.reloaded(now, about) };
        view.change(|model| model.recent.keep(now, words_of(about)));
    }

    fn news(&mut self, now: Time, news: &News) {
        let Some(view) = self.live.view() else { return self.plain.news(now, news) };
        let words = words(news);
        if is_warning(news) {
            view.change(|model| model.recent.warn(now, words.clone()));
            view.keep(&format!("{:9.3}  warning: {words}", now.secs_f64()));
        } else {
            view.change(|model| model.recent.keep(now, words));
        }
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

    fn warn(&mut self, text: &str) {
        let Some(view) = self.live.view() else { return self.plain.warn(text) };
        view.keep(&format!("warning: {text}"));
    }

    fn interval(&self) -> Duration {
        if self.live.is_gone() { self.plain.interval() } else { PERIOD }
    }
}
