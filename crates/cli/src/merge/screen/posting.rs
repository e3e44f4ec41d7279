//! A screen that keeps its run posted for `anabranch status`.

use std::time::Duration;

use anabranch_drive::merge::{Listening, News, Screen, Snapshot};
use anabranch_multipath::Time;
use serde_json::Value;

use super::json;
use crate::status::Standing;

/// What is posted is at most this old.
const FRESH: Duration = Duration::from_secs(1);

/// A screen before which another stands.
pub(in crate::merge) struct Posting<'s> {
    inner: &'s mut dyn Screen,
    standing: Option<Standing>,
    /// When `inner` wants its next counters.
    next: Time,
}

impl<'s> Posting<'s> {
    /// Posts what happens, and shows it on `inner`.
    pub(in crate::merge) fn new(inner: &'s mut dyn Screen) -> Posting<'s> {
        Posting { inner, standing: Standing::of("merge"), next: Time::ZERO }
    }

    fn post(&mut self, name: &str, value: Value) {
        if let Some(standing) = &mut self.standing {
            standing.set(name, value);
        }
    }
}

impl Screen for Posting<'_> {
    fn listening(&mut self, about: &Listening) {
        self.post("listening", json::about(about));
        self.inner.listening(about);
    }

    fn reloaded(&mut self, now: Time, about: &Listening) {
        self.post("listening", json::about(about));
        self.inner.reloaded(now, about);
    }

    fn news(&mut self, now: Time, news: &News) {
        self.inner.news(now, news);
    }

    fn snapshot(&mut self, now: Time, snapshot: &Snapshot) {
        self.post("stats", json::counters(snapshot));
        if now >= self.next {
            // Half a turn of ours early rather than a whole one late.
            self.next = now + self.inner.interval() - self.interval() / 2;
            self.inner.snapshot(now, snapshot);
        }
    }

    fn finish(&mut self, now: Time, snapshot: &Snapshot) {
        self.inner.finish(now, snapshot);
    }

    fn warn(&mut self, text: &str) {
        self.inner.warn(text);
    }

    fn interval(&self) -> Duration {
        self.inner.interval().min(FRESH)
    }
}
