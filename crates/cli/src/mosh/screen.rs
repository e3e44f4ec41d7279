//! The splitter's screen while `mosh-client` uses the terminal. It prints nothing until
//! `mosh-client` has ended.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use anabranch_comps::{Event, Snapshot};
use anabranch_multipath::Time;
use anabranch_splitter::split::{ActiveSettings, FarEndNews, Screen};

use crate::split::advice;

/// Maximum number of warnings that are stored while `mosh-client` uses the terminal.
const KEPT: usize = 10;

/// Callback that is called once the splitter listens.
type Begin<'s> = Box<dyn FnOnce(&ActiveSettings) + 's>;

/// A screen (output for the user) that passes events on to a log, if there is one, and stores
/// warnings until `mosh-client` has ended.
pub(super) struct DeferredScreen<'s> {
    log: Option<Box<dyn Screen>>,
    /// Callback that starts the client once the splitter listens; `None` after that.
    begin: Option<Begin<'s>>,
    names: Vec<String>,
    warnings: BTreeSet<String>,
    server: Option<SocketAddr>,
    /// The current warning that the server does not answer; `None` while the server answers.
    unanswered: Option<String>,
    summary: Option<String>,
}

impl<'s> DeferredScreen<'s> {
    pub(super) fn new(
        log: Option<Box<dyn Screen>>,
        begin: impl FnOnce(&ActiveSettings) + 's,
    ) -> DeferredScreen<'s> {
        let begin: Begin<'s> = Box::new(begin);
        DeferredScreen {
            log,
            begin: Some(begin),
            names: Vec::new(),
            warnings: BTreeSet::new(),
            server: None,
            unanswered: None,
            summary: None,
        }
    }

    /// Returns the stored warnings and the summary, to be printed after `mosh-client` has ended.
    pub(super) fn into_lines(self) -> Vec<String> {
        let warnings =
            self.warnings.into_iter().chain(self.unanswered).map(|text| format!("warning: {text}"));
        warnings.chain(self.summary).collect()
    }
}

impl Screen for DeferredScreen<'_> {
    fn listening(&mut self, about: &ActiveSettings) {
        self.names = about.egresses.iter().map(|egress| egress.name.clone()).collect();
        self.server = about.server;
        if let Some(log) = &mut self.log {
            log.listening(about);
        }
        if let Some(begin) = self.begin.take() {
            begin(about);
        }
    }

    fn event(&mut self, now: Time, event: &Event) {
        match *event {
            Event::Unanswered { waited, last, .. } => {
                self.unanswered = Some(advice::unanswered(self.server, waited, last));
            }
            Event::Answered { .. } => self.unanswered = None,
            _ => {}
        }
        if let Some(log) = &mut self.log {
            log.event(now, event);
        }
    }

    fn snapshot(&mut self, now: Time, snapshot: &Snapshot) {
        if let Some(log) = &mut self.log {
            log.snapshot(now, snapshot);
        }
    }

    fn finish(&mut self, now: Time, snapshot: &Snapshot) {
        let paths = self.names.iter().zip(&snapshot.paths).map(|(name, path)| {
            format!("{name} {} up, {} down", path.up.datagrams, path.down.datagrams)
        });
        self.summary = Some(format!("datagrams: {}", paths.collect::<Vec<_>>().join("; ")));
        if let Some(log) = &mut self.log {
            log.finish(now, snapshot);
        }
    }

    fn reloaded(&mut self, now: Time, about: &ActiveSettings) {
        self.names = about.egresses.iter().map(|egress| egress.name.clone()).collect();
        if let Some(log) = &mut self.log {
            log.reloaded(now, about);
        }
    }

    fn far_end(&mut self, now: Time, news: &FarEndNews) {
        if let Some(log) = &mut self.log {
            log.far_end(now, news);
        }
    }

    fn warn(&mut self, text: &str) {
        if self.warnings.len() < KEPT {
            self.warnings.insert(text.to_owned());
        }
        if let Some(log) = &mut self.log {
            log.warn(text);
        }
    }

    fn interval(&self) -> Duration {
        self.log.as_ref().map_or(Duration::from_secs(1), |log| log.interval())
    }
}
