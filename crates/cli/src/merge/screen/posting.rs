//! A screen that publishes the status of a running program for `anabranch status`.

use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_splitter::merge::{ActiveSettings, News, Screen, Snapshot};
use serde_json::Value;

use super::json;
use crate::screen::waiting::LookingUp;
use crate::status::PublishedStatus;
use crate::status::pace::{FRESH, IntervalLimiter};

/// A screen (output for the user) that publishes the status for `anabranch status`, and passes all
/// output on to another screen.
pub(in crate::merge) struct PublishingScreen<'s> {
    inner: &'s mut dyn Screen,
    run_status: Option<PublishedStatus>,
    /// Timer after which a notice reports that looking up host names takes long. Once the names
    /// are resolved, the timer is dropped.
    looking_up: Option<LookingUp>,
    /// Limiter of how often the status is published.
    publish_limiter: IntervalLimiter,
    /// Limiter of how often counters are passed to the screen `inner`.
    display_limiter: IntervalLimiter,
}

impl<'s> PublishingScreen<'s> {
    /// Creates a screen that publishes each event in `run_status` (if it is given), and shows the
    /// event on the screen `inner`.
    pub(in crate::merge) fn new(
        inner: &'s mut dyn Screen,
        run_status: Option<PublishedStatus>,
        looking_up: Option<LookingUp>,
    ) -> PublishingScreen<'s> {
        let (publish_limiter, display_limiter) = (IntervalLimiter::new(), IntervalLimiter::new());
        PublishingScreen { inner, run_status, looking_up, publish_limiter, display_limiter }
    }

    fn post(&mut self, name: &str, value: Value) {
        if let Some(run_status) = &mut self.run_status {
            run_status.set(name, value);
        }
    }
}

impl Screen for PublishingScreen<'_> {
    fn listening(&mut self, about: &ActiveSettings) {
        self.looking_up = None;
        self.post("listening", json::about(about));
        self.inner.listening(about);
    }

    fn reloaded(&mut self, now: Time, about: &ActiveSettings) {
        self.post("listening", json::about(about));
        self.inner.reloaded(now, about);
    }

    fn news(&mut self, now: Time, news: &News) {
        self.inner.news(now, news);
    }

    fn snapshot(&mut self, now: Time, snapshot: &Snapshot) {
        let tick = self.interval();
        // A live view needs counters ten times as often as the status is published.
        if self.publish_limiter.is_due(now, FRESH, tick) {
            self.post("stats", json::counters(snapshot));
        }
        if self.display_limiter.is_due(now, self.inner.interval(), tick) {
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
