//! What a run is told from outside while it goes on: to end, to read its settings again, and that
//! the machine's network changed.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anabranch_multipath::Time;
use anabranch_os::hangup::Hangup;
use anabranch_os::netlink::Monitor;

use super::lookup::Lookup;
use super::signals::signals;
use super::{Failure, Reread, Settings};

/// Signals, the reader of settings, and the kernel's news.
pub(super) struct Control<'s> {
    /// Readable when the run is to end.
    pub(super) stop: UnixStream,
    pub(super) hangup: Option<Hangup>,
    /// Whether SIGINT ends the program at once.
    hasty: Arc<AtomicBool>,
    /// Reads the settings again.
    pub(super) reread: Option<Reread<'s>>,
    /// New settings that wait for names.
    pub(super) lookup: Lookup<Settings>,
    pub(super) monitor: Monitor,
    /// When to look at what was set up on the machine, where a look could not be had.
    pub(super) keep_at: Option<Time>,
    pub(super) stopped: bool,
}

impl<'s> Control<'s> {
    /// Watches for signals, or in their place for `stop`.
    ///
    /// # Errors
    /// No file, thread or handler is left.
    pub(super) fn start(
        reread: Option<Reread<'s>>,
        stop: Option<UnixStream>,
    ) -> Result<Control<'s>, Failure> {
        let system = |what| move |error: io::Error| Failure::System(what, error);
        let hasty = Arc::new(AtomicBool::new(false));
        let watched =
            stop.map_or_else(|| signals(reread.is_some(), &hasty), |stop| Ok((stop, None)));
        let (stop, hangup) = watched.map_err(system("watching for signals"))?;
        let lookup = Lookup::new().map_err(system("opening a pair of sockets"))?;
        let monitor = Monitor::open().map_err(system("watching the machine's network"))?;
        let (keep_at, stopped) = (None, false);
        Ok(Control { stop, hangup, hasty, reread, lookup, monitor, keep_at, stopped })
    }

    /// Whether a SIGHUP that came ends the run: the terminal that it began on has gone.
    pub(super) fn is_hung_up(&mut self) -> bool {
        self.hangup.as_mut().is_some_and(Hangup::take)
    }

    /// From now on SIGINT ends the program at once: nothing is left but what may be cut short.
    pub(super) fn be_hasty(&self) {
        self.hasty.store(true, Ordering::Release);
    }
}
