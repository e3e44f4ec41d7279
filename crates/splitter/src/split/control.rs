//! External events of a running splitter: the stop signal, a reload of settings, and changes of
//! the machine's network.

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

/// The sources of external events: signals, the function that reads the settings again, and the
/// kernel's network messages.
pub(super) struct Control<'s> {
    /// Socket that becomes readable when the splitter must stop: on a signal, or at the request of
    /// the calling program.
    pub(super) stop: UnixStream,
    pub(super) hangup: Option<Hangup>,
    /// True if SIGINT ends the program at once. The flag is set near the end of the run, when only
    /// work is left that may be interrupted.
    hasty: Arc<AtomicBool>,
    /// Function that reads the settings again on a reload; `None` if reloads are not supported.
    pub(super) reread: Option<Reread<'s>>,
    /// Lookup of the host names in new settings, which take effect when it ends.
    pub(super) lookup: Lookup<Settings>,
    pub(super) monitor: Monitor,
    /// Time at which the splitter's routes and rules are checked again, because the system lacked
    /// resources for the last check; `None` if no check is due.
    pub(super) keep_at: Option<Time>,
    pub(super) stopped: bool,
}

impl<'s> Control<'s> {
    /// Starts to watch for signals that stop the splitter. If `stop` is given, watches instead for
    /// `stop` to become readable.
    ///
    /// # Errors
    /// No file, thread or signal handler is available.
    pub(super) fn start(
        reread: Option<Reread<'s>>,
        stop: Option<UnixStream>,
    ) -> Result<Control<'s>, Failure> {
        let system = |what| move |error: io::Error| Failure::System(what, error);
        let hasty = Arc::new(AtomicBool::new(false));
        let watched =
            stop.map_or_else(|| signals(reread.is_some(), &hasty), |stop| Ok((stop, None)));
        let (stop, hangup) = watched.map_err(system("cannot watch for signals"))?;
        let lookup = Lookup::new().map_err(system("cannot open a pair of sockets"))?;
        let monitor = Monitor::open()
            .map_err(system("cannot watch for changes of this machine's interfaces and routes"))?;
        let (keep_at, stopped) = (None, false);
        Ok(Control { stop, hangup, hasty, reread, lookup, monitor, keep_at, stopped })
    }

    /// Returns whether SIGHUP was received because the program's terminal is gone, so that the
    /// program must end.
    pub(super) fn is_hung_up(&mut self) -> bool {
        self.hangup.as_mut().is_some_and(Hangup::take)
    }

    /// Makes SIGINT end the program at once from now on. Called near the end of the run, when only
    /// work is left that may be interrupted.
    pub(super) fn exit_on_signal(&self) {
        self.hasty.store(true, Ordering::Release);
    }
}
