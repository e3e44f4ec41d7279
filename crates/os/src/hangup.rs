//! The signal SIGHUP as a request to reload the settings.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::SIGHUP;
use signal_hook::low_level::pipe;

/// A receiver of the signal SIGHUP. The signal requests a reload of the settings, and also arrives
/// when the terminal closes.
#[derive(Debug)]
pub struct Hangup {
    signalled: UnixStream,
    /// True if the process had a controlling terminal when it started. If so, the process has to
    /// exit when that terminal closes.
    on_terminal: bool,
}

impl Hangup {
    /// Starts to receive SIGHUP, which would otherwise end the process.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn watch() -> io::Result<Hangup> {
        let on_terminal = !is_ignored(SIGHUP) && terminal().is_ok();
        let (signalled, handler) = UnixStream::pair()?;
        signalled.set_nonblocking(true)?;
        pipe::register(SIGHUP, handler)?;
        Ok(Hangup { signalled, on_terminal })
    }

    /// Clears all pending SIGHUP signals. Returns true if the controlling terminal has closed. In
    /// this case, the process has to exit instead of reloading its settings.
    pub fn take(&mut self) -> bool {
        let mut taken = [0; 64];
        while self.signalled.read(&mut taken).is_ok_and(|count| count > 0) {}
        self.on_terminal && terminal().is_err_and(|error| error.raw_os_error() == Some(libc::ENXIO))
    }
}

impl AsFd for Hangup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signalled.as_fd()
    }
}

/// Opens the controlling terminal of this process. The error is `ENXIO` if there is none (tty(4)).
fn terminal() -> io::Result<File> {
    File::open("/dev/tty")
}

/// Returns whether this process ignores `signal` now. Until the program handles the signal, this
/// is the setting with which the program was started.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| ignored_signals(&status) >> (signal - 1) & 1 == 1)
}

/// Returns the mask of ignored signals from `status`, the content of `/proc/self/status`. The
/// lowest bit is signal 1. The mask is 0 if `status` contains none.
fn ignored_signals(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        assert_eq!(ignored_signals("Name:\tx\nSigBlk:\t01\nSigIgn:\t0000000000001001\n"), 0x1001);
        assert_eq!(ignored_signals(""), 0);
    }
}
