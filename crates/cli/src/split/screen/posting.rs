//! A screen that keeps its run posted for `anabranch status`.

use std::time::Duration;

use anabranch_comps::{Event, Snapshot};
use anabranch_drive::split::{Listening, Screen};
use anabranch_multipath::Time;
use serde_json::{Map, Value, json};

use super::book::Book;
use super::json;
use crate::status::{Standing, now};

/// What is posted is at most this old.
const FRESH: Duration = Duration::from_secs(1);

/// A screen before which another stands.
pub(in crate::split) struct Posting<'s> {
    inner: &'s mut dyn Screen,
    standing: Standing,
    book: Book,
    /// Datagrams that had come by each path, by name, and when one came last, in seconds since 1970.
    answers: Map<String, Value>,
    counts: Vec<(String, u64)>,
    /// When `inner` wants its next counters.
    next: Time,
}

impl<'s> Posting<'s> {
    /// Posts what happens, and shows it on `inner`.
    pub(in crate::split) fn new(inner: &'s mut dyn Screen, standing: Standing) -> Posting<'s> {
        let (book, answers, counts) = (Book::default(), Map::new(), Vec::new());
        Posting { inner, standing, book, answers, counts, next: Time::ZERO }
    }

    fn begin(&mut self, now: Time, about: &Listening) {
        self.book.begin(about);
        let text = json::about("listening", now, about);
        let about = serde_json::from_str(&text).expect("an object that was just written");
        self.standing.set("listening", about);
    }

    /// Notes by which paths something came since the last counters.
    fn note(&mut self, snapshot: &Snapshot) {
        let paths = snapshot.paths.iter().enumerate();
        let named = paths.map(|(at, path)| {
            (self.book.path(anabranch_multipath::PathId::at(at)), path.down.datagrams)
        });
        let counts: Vec<(String, u64)> = named.collect();
        for (name, count) in &counts {
            let before = self.counts.iter().find(|(known, _)| known == name);
            if *count > before.map_or(0, |(_, count)| *count) {
                self.answers.insert(name.clone(), json!(now()));
            }
        }
        self.counts = counts;
    }
}

impl Screen for Posting<'_> {
    fn listening(&mut self, about: &Listening) {
        self.begin(Time::ZERO, about);
        self.inner.listening(about);
    }

    fn event(&mut self, now: Time, event: &Event) {
        self.inner.event(now, event);
    }

    fn snapshot(&mut self, now: Time, snapshot: &Snapshot) {
        self.note(snapshot);
        self.standing.set("answers", Value::Object(self.answers.clone()));
        self.standing.set("stats", json::stats(&self.book, snapshot));
        if now >= self.next {
            // Half a turn early rather than a turn late.
            self.next = now + self.inner.interval() - self.inner.interval() / 2;
            self.inner.snapshot(now, snapshot);
        }
    }

    fn finish(&mut self, now: Time, snapshot: &Snapshot) {
        self.inner.finish(now, snapshot);
    }

    fn reloaded(&mut self, now: Time, about: &Listening) {
        self.begin(now, about);
        self.inner.reloaded(now, about);
    }

    fn warn(&mut self, text: &str) {
        self.inner.warn(text);
    }

    fn interval(&self) -> Duration {
        self.inner.interval().min(FRESH)
    }
}
