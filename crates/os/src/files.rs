//! The limit on the process's open files (each socket is one), and the handling of new connections
//! once the limit is reached.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use anabranch_multipath::Time;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Minimum interval between two messages to the operator about rejected connections.
const PAUSE: Duration = Duration::from_secs(60);

/// Raises the process's soft limit on open files, usually 1,024, to its hard limit.
pub fn raise_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // If the kernel refuses, later errors of opening sockets will report the limit.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Returns the maximum number of files that the process may have open.
#[must_use]
pub fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns true if `error` means that the process or the system has too many open files.
#[must_use]
pub fn ran_out(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].iter().any(|no| error.raw_os_error() == Some(no.raw_os_error()))
}

/// A spare file descriptor, for use when the process has no other descriptor left. Closing the
/// spare makes a descriptor available to accept a waiting connection, which is then closed at
/// once. Otherwise that connection would keep the listener readable, and the event loop would
/// spin.
pub struct SpareDescriptor {
    file: Option<OwnedFd>,
    turned_away: u64,
}

impl SpareDescriptor {
    /// Opens the spare file descriptor.
    #[must_use]
    pub fn new() -> SpareDescriptor {
        SpareDescriptor { file: SpareDescriptor::file(), turned_away: 0 }
    }

    fn file() -> Option<OwnedFd> {
        eventfd(0, EventfdFlags::CLOEXEC).ok()
    }

    /// Returns the number of connections that were accepted and closed at once, because no file
    /// descriptor was left for them.
    #[must_use]
    pub fn turned_away(&self) -> u64 {
        self.turned_away
    }

    /// Accepts the next connection of a non-blocking listener. Returns `None` if no connection
    /// waits or `accept` fails. If no file descriptor is left, rejects all waiting connections.
    pub fn accept(&mut self, listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
        loop {
            match listener.accept() {
                Ok(newcomer) => return Some(newcomer),
                Err(error) if ran_out(&error) => {
                    if !self.turn_away(listener) {
                        return None;
                    }
                }
                Err(error) if is_newcomers(&error) => {}
                Err(_) => return None,
            }
        }
    }

    /// Rejects a waiting connection. Returns whether a connection was waiting.
    fn turn_away(&mut self, listener: &TcpListener) -> bool {
        drop(self.file.take());
        let turned = listener.accept().is_ok();
        self.turned_away += u64::from(turned);
        self.file = SpareDescriptor::file();
        turned
    }
}

impl Default for SpareDescriptor {
    fn default() -> SpareDescriptor {
        SpareDescriptor::new()
    }
}

/// Rate limiter of the messages about rejected connections. It returns at most one message per
/// minute.
#[derive(Debug, Default)]
pub struct RejectionReporter {
    reported: u64,
    at: Option<Time>,
}

impl RejectionReporter {
    /// Compares `turned_away`, the number of connections rejected so far, with the number at the
    /// last message. Returns a message for the operator if there are new rejections and the last
    /// message is at least a minute old; `None` otherwise. `have` is the number of open
    /// connections.
    pub fn report(&mut self, now: Time, turned_away: u64, have: usize) -> Option<String> {
        let is_early = self.at.is_some_and(|at| now.since(at) < PAUSE);
        if turned_away == self.reported || is_early {
            return None;
        }
        let count = turned_away - self.reported;
        (self.reported, self.at) = (turned_away, Some(now));
        let limit = limit();
        Some(format!(
            "out of file descriptors: {count} new connections were closed immediately. {have} \
             connections are open already, and this process may have {limit} open files: raise the \
             limit (ulimit -n, LimitNOFILE)"
        ))
    }
}

/// Returns true if `accept` can be called again at once after `error`, because the error concerns
/// only one connection, or a signal interrupted the call.
fn is_newcomers(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::Command;

    use super::*;

    /// Maximum number of open files of the test's process.
    const FEW: u64 = 64;

    /// Checks eight connections that arrive when three file descriptors are left: three are
    /// accepted, and five are rejected. A ninth is accepted once descriptors are free again.
    fn come_when_no_file_is_left() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let at = listener.local_addr().unwrap();
        let mut spare = SpareDescriptor::new();
        let mut newcomers: Vec<TcpStream> =
            (0..8).map(|_| TcpStream::connect(at).unwrap()).collect();
        let limit = Rlimit { current: Some(FEW), maximum: getrlimit(Resource::Nofile).maximum };
        setrlimit(Resource::Nofile, limit).unwrap();
        let mut fill = Vec::new();
        while let Ok(file) = eventfd(0, EventfdFlags::empty()) {
            fill.push(file);
        }
        fill.truncate(fill.len() - 3);
        let taken: Vec<_> = std::iter::from_fn(|| spare.accept(&listener)).collect();
        assert_eq!((taken.len(), spare.turned_away()), (3, 5));
        fill.truncate(fill.len() - 1);
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "nobody waits");
        for away in &mut newcomers[3..] {
            assert!(matches!(away.read(&mut [0]), Ok(0) | Err(_)), "its connection is closed");
        }
        drop(fill);
        let late = TcpStream::connect(at).unwrap();
        let (_, from) = spare.accept(&listener).unwrap();
        assert_eq!(from, late.local_addr().unwrap(), "with files there are places again");
    }

    #[test]
    fn who_comes_when_no_file_is_left_is_turned_away() {
        // The limit applies to the whole process, so the test runs itself in a separate process.
        const ALONE: &str = "ANABRANCH_TEST_FILES_ALONE";
        const NAME: &str = "who_comes_when_no_file_is_left_is_turned_away";
        if std::env::var_os(ALONE).is_some() {
            return come_when_no_file_is_left();
        }
        let mut alone = Command::new(std::env::current_exe().unwrap());
        let done = alone.args([NAME, "--nocapture"]).env(ALONE, "1").output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        assert!(String::from_utf8_lossy(&done.stdout).contains("1 passed"));
    }

    #[test]
    fn a_want_of_files_is_told_with_its_numbers_and_not_each_second() {
        let (mut reporter, at) =
            (RejectionReporter::default(), |s| Time::ZERO + Duration::from_secs(s));
        assert_eq!(reporter.report(at(1), 0, 9), None);
        let reported = reporter.report(at(2), 5, 9).unwrap();
        assert!(
            reported.contains("5 new connections") && reported.contains("9 connections are open"),
            "{reported}"
        );
        assert_eq!(reporter.report(at(30), 8, 9), None);
        assert!(reporter.report(at(62), 8, 9).unwrap().contains(": 3 new connections"));
        assert_eq!(reporter.report(at(200), 8, 9), None);
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        raise_limit();
        assert_eq!(Some(limit()), getrlimit(Resource::Nofile).maximum.or(Some(u64::MAX)));
    }

    #[test]
    fn a_want_of_files_is_no_fault_of_the_path() {
        assert!(ran_out(&io::Error::from_raw_os_error(libc::EMFILE)));
        assert!(ran_out(&io::Error::from_raw_os_error(libc::ENFILE)));
        assert!(!ran_out(&io::Error::from_raw_os_error(libc::ENOBUFS)));
    }
}
