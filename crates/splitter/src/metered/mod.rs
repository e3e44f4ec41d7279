//! Export of a splitter's counters to Prometheus (`docs/formats.md`).
//!
//! [`Metered`] wraps a [`Screen`] and stores the latest counters. A separate thread answers
//! Prometheus, so that slow or frequent requests do not delay datagrams.

mod run;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anabranch_comps::{Event, Snapshot};
use anabranch_multipath::Time;
use anabranch_os::metrics::{Page, Server};

use self::run::{LatestCounters, Run};
use crate::split::{ActiveSettings, FarEndNews, Screen};

/// Maximum age of the exported counters.
const FRESH: Duration = Duration::from_secs(1);

/// A [`Screen`] (display) that forwards events and counters to another screen, and exports the
/// counters to Prometheus.
pub struct Metered<'s> {
    inner: &'s mut dyn Screen,
    numbers: Arc<Mutex<LatestCounters>>,
    /// Earliest time at which the counters are forwarded to the wrapped screen (`inner`) again.
    next: Time,
    server: Server,
}

impl<'s> Metered<'s> {
    /// Serves the counters at `address` until the returned value is dropped. `version` is the
    /// program's version.
    ///
    /// # Errors
    /// The address is not available, or no thread can be started.
    pub fn new(
        inner: &'s mut dyn Screen,
        address: SocketAddr,
        version: &'static str,
    ) -> io::Result<Metered<'s>> {
        let numbers = Arc::new(Mutex::new(LatestCounters::default()));
        let page = Page::new(Box::new(Run(Arc::clone(&numbers))), version);
        let server = Server::start(address, move || page.text())?;
        Ok(Metered { inner, numbers, next: Time::ZERO, server })
    }

    /// Returns the address at which the counters are served. If port 0 was requested, the kernel
    /// has chosen the port.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    fn change(&self, change: impl FnOnce(&mut LatestCounters)) {
        // The lock may be used after a panic of its holder, because the numbers are never left
        // partly changed.
        change(&mut self.numbers.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn name_paths(&self, about: &ActiveSettings) {
        let names = about.egresses.iter().map(|egress| egress.name.clone()).collect();
        self.change(|numbers| numbers.name_paths(names));
    }
}

impl Screen for Metered<'_> {
    fn listening(&mut self, about: &ActiveSettings) {
        self.name_paths(about);
        self.inner.listening(about);
        if let Some(text) = self.server.exposure("how much you send") {
            self.inner.warn(&text);
        }
    }

    fn event(&mut self, now: Time, event: &Event) {
        if let Event::Opened { .. } = event {
            self.change(|numbers| numbers.opened += 1);
        }
        self.inner.event(now, event);
    }

    fn snapshot(&mut self, now: Time, snapshot: &Snapshot) {
        self.change(|numbers| numbers.snapshot.clone_from(snapshot));
        if now >= self.next {
            // The inner screen may show the counters half an interval early, but not an interval
            // late.
            self.next = now + self.inner.interval() - self.interval() / 2;
            self.inner.snapshot(now, snapshot);
        }
    }

    fn finish(&mut self, now: Time, snapshot: &Snapshot) {
        self.change(|numbers| numbers.snapshot.clone_from(snapshot));
        self.inner.finish(now, snapshot);
    }

    fn reloaded(&mut self, now: Time, about: &ActiveSettings) {
        self.name_paths(about);
        self.change(|numbers| numbers.reloads += 1);
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
