//! A screen that publishes the status of its program for `anabranch status`.

use std::time::Duration;

use anabranch_comps::{Event, Snapshot};
use anabranch_multipath::Time;
use anabranch_splitter::split::{ActiveSettings, FarEndNews, Screen};
use serde_json::{Map, Value, json};

use super::json;
use super::session_table::SessionTable;
use crate::screen::waiting::LookingUp;
use crate::status::pace::{FRESH, IntervalLimiter};
use crate::status::{PublishedStatus, now};

/// A screen (output for the user) that publishes the status for `anabranch status`, and passes all
/// output on to another screen.
pub(in crate::split) struct PublishingScreen<'s> {
    inner: &'s mut dyn Screen,
    run_status: Option<PublishedStatus>,
    /// Timer after which a notice reports that looking up host names takes long. Once the names
    /// are resolved, the timer is dropped.
    looking_up: Option<LookingUp>,
    session_table: SessionTable,
    /// Wall-clock time of the latest datagram from each path, in seconds since 1970, by the path's
    /// name.
    answers: Map<String, Value>,
    /// Number of received datagrams for each path name, when `answers` was last updated. A higher
    /// number in the next snapshot shows that the path has received datagrams.
    counts: Vec<(String, u64)>,
    /// Limiter of how often the status is published.
    publish_limiter: IntervalLimiter,
    /// Limiter of how often counters are passed to the screen `inner`.
    display_limiter: IntervalLimiter,
}

impl<'s> PublishingScreen<'s> {
    /// Creates a screen that publishes each event in `run_status` (if it is given), and shows the
    /// event on the screen `inner`.
    pub(in crate::split) fn new(
        inner: &'s mut dyn Screen,
        run_status: Option<PublishedStatus>,
        looking_up: Option<LookingUp>,
    ) -> PublishingScreen<'s> {
        let (session_table, answers, counts) = (SessionTable::default(), Map::new(), Vec::new());
        let (publish_limiter, display_limiter) = (IntervalLimiter::new(), IntervalLimiter::new());
        PublishingScreen {
            inner,
            run_status,
            looking_up,
            session_table,
            answers,
            counts,
            publish_limiter,
            display_limiter,
        }
    }

    fn begin(&mut self, now: Time, about: &ActiveSettings) {
        self.session_table.begin(about);
        let text = json::about("listening", None, now, about);
        let about =
            serde_json::from_str(&text).expect("the text is a JSON object that was just written");
        self.post("listening", about);
    }

    fn post(&mut self, name: &str, value: Value) {
        if let Some(run_status) = &mut self.run_status {
            run_status.set(name, value);
        }
    }

    /// Sets the time of the latest datagram of each path that has received datagrams since the
    /// previous snapshot.
    fn note(&mut self, snapshot: &Snapshot) {
        let paths = snapshot.paths.iter().enumerate();
        let named = paths.map(|(at, path)| {
            (self.session_table.path(anabranch_multipath::PathId::at(at)), path.down.datagrams)
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

impl Screen for PublishingScreen<'_> {
    fn listening(&mut self, about: &ActiveSettings) {
        self.looking_up = None;
        self.begin(Time::ZERO, about);
        self.inner.listening(about);
    }

    fn event(&mut self, now: Time, event: &Event) {
        self.inner.event(now, event);
    }

    fn snapshot(&mut self, now: Time, snapshot: &Snapshot) {
        let tick = self.interval();
        // A live view needs counters ten times as often as the status is published.
        if self.publish_limiter.is_due(now, FRESH, tick) {
            self.note(snapshot);
            self.post("answers", Value::Object(self.answers.clone()));
            self.post("stats", json::stats(&self.session_table, snapshot));
        }
        if self.display_limiter.is_due(now, self.inner.interval(), tick) {
            self.inner.snapshot(now, snapshot);
        }
    }

    fn finish(&mut self, now: Time, snapshot: &Snapshot) {
        self.inner.finish(now, snapshot);
    }

    fn reloaded(&mut self, now: Time, about: &ActiveSettings) {
        self.begin(now, about);
        self.inner.reloaded(now, about);
    }

    fn far_end(&mut self, now: Time, news: &FarEndNews) {
        self.inner.far_end(now, news);
    }

    fn warn(&mut self, text: &str) {
        self.inner.warn(text);
    }

    fn interval(&self) -> Duration {
        self.inner.interval().min(FRESH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A screen that requests counters every five seconds, and records when they arrive.
    struct Slow(Vec<u64>);

    impl Screen for Slow {
        fn listening(&mut self, _: &ActiveSettings) {}
        fn event(&mut self, _: Time, _: &Event) {}
        fn snapshot(&mut self, now: Time, _: &Snapshot) {
            self.0.push(now.secs_f64().round() as u64);
        }
        fn finish(&mut self, _: Time, _: &Snapshot) {}
        fn reloaded(&mut self, _: Time, _: &ActiveSettings) {}
        fn far_end(&mut self, _: Time, _: &FarEndNews) {}
        fn warn(&mut self, _: &str) {}
        fn interval(&self) -> Duration {
            Duration::from_secs(5)
        }
    }

    #[test]
    fn who_wants_counters_every_five_seconds_gets_them_so() {
        let mut slow = Slow(Vec::new());
        let mut posting = PublishingScreen::new(&mut slow, None, None);
        assert_eq!(posting.interval(), FRESH);
        for second in 0..=20 {
            let late = Time::from_secs(second) + Duration::from_millis(second % 3);
            posting.snapshot(late, &Snapshot::default());
        }
        assert_eq!(slow.0, [0, 5, 10, 15, 20]);
    }
}
