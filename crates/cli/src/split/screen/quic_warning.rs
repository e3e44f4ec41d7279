//! A screen that prints one warning if the path changes too often for QUIC.

use std::time::Duration;

use anabranch_comps::protocol::Confidence;
use anabranch_comps::{Event, Protocol, Snapshot};
use anabranch_multipath::{Every, Time};
use anabranch_splitter::split::{ActiveSettings, FarEndNews, Screen};

use super::advice;

/// Minimum interval between path changes with which QUIC stays fast. At this interval, a server
/// reaches 90 % of its speed even if it restarts congestion control on each path
/// (docs/results/overhead.md).
const LONG: Duration = Duration::from_millis(500);

/// A screen (output for the user) that warns once if `--every` makes QUIC much slower, and passes
/// all output on to another screen.
pub(in crate::split) struct QuicWarning<'s> {
    inner: &'s mut dyn Screen,
    /// Whether no warning is needed, because the user has chosen `--in-order`, which keeps QUIC
    /// fast, or the warning was printed.
    settled: bool,
    /// Value of `--every`, if it makes QUIC much slower; `None` otherwise.
    short: Option<String>,
}

impl<'s> QuicWarning<'s> {
    /// Creates a screen that passes all output on to `inner`. `in_order` is true if the user has
    /// chosen `--in-order`, so no warning is needed.
    pub(in crate::split) fn new(inner: &'s mut dyn Screen, in_order: bool) -> QuicWarning<'s> {
        QuicWarning { inner, settled: in_order, short: None }
    }

    fn begin(&mut self, about: &ActiveSettings) {
        let several = about.egresses.len() > 1;
        let slows = several && about.every.parse().is_ok_and(slows_quic);
        self.short = (slows && !self.settled).then(|| about.every.clone());
    }
}

/// Returns whether `every` makes the path change more often than once per [`LONG`] on average.
/// Returns true if `every` is a number of packets.
fn slows_quic(every: Every) -> bool {
    match every {
        Every::Never => false,
        Every::Packets { .. } | Every::PacketRange { .. } => true,
        Every::Time { mean, .. } => mean < LONG,
        Every::TimeRange { least, most } => (least + most) / 2 < LONG,
        Every::Growing { most, .. } => most < LONG,
    }
}

impl Screen for QuicWarning<'_> {
    fn listening(&mut self, about: &ActiveSettings) {
        self.begin(about);
        self.inner.listening(about);
    }

    fn event(&mut self, now: Time, event: &Event) {
        self.inner.event(now, event);
        if let Event::Recognised { protocol: Protocol::Quic, confidence, .. } = event
            && *confidence > Confidence::Likely
            && let Some(every) = self.short.take()
        {
            self.settled = true;
            self.inner.warn(&advice::slow_quic(&every));
        }
    }

    fn snapshot(&mut self, now: Time, snapshot: &Snapshot) {
        self.inner.snapshot(now, snapshot);
    }

    fn finish(&mut self, now: Time, snapshot: &Snapshot) {
        self.inner.finish(now, snapshot);
    }

    fn reloaded(&mut self, now: Time, about: &ActiveSettings) {
        self.begin(about);
        self.inner.reloaded(now, about);
    }

    fn far_end(&mut self, now: Time, news: &FarEndNews) {
        self.inner.far_end(now, news);
    }

    fn warn(&mut self, text: &str) {
        self.inner.warn(text);
    }

    fn interval(&self) -> Duration {
        self.inner.interval()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_runs_ruin_quic_and_long_ones_do_not() {
        let slows = |text: &str| slows_quic(text.parse().unwrap());
        for short in ["100ms", "~100ms", "50p", "50-70p", "80-120ms", "499ms"] {
            assert!(slows(short), "{short}");
        }
        for long in ["never", "1s", "~500ms", "400-600ms"] {
            assert!(!slows(long), "{long}");
        }
    }
}
