//! Waiting for files and deadlines: a thin layer over `epoll`, level-triggered.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::Timespec;

/// The readiness of a file, as one call of [`Poller::wait`] reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token that identifies the file, as passed to [`Poller::add`].
    pub token: u64,
    /// True if there is something to read, or the other side has closed.
    pub read: bool,
    /// True if there is room to write, an error is pending, or the connection is closed in both
    /// directions. Room to write is reported only if [`Interest::write`] requests it.
    pub write: bool,
    /// True if an error is pending. For a UDP socket, the error queue has to be read.
    pub error: bool,
}

/// The events for which a file is watched. Errors and hang-ups are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// True if the file is watched for data to read.
    pub read: bool,
    /// True if the file is watched for room to write.
    pub write: bool,
}

impl Interest {
    /// Interest only in data to read.
    pub const READ: Interest = Interest { read: true, write: false };

    fn flags(self) -> EventFlags {
        let read = if self.read { EventFlags::IN } else { EventFlags::empty() };
        read | if self.write { EventFlags::OUT } else { EventFlags::empty() }
    }
}

/// A set of files that are watched with epoll.
pub struct Poller {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl Poller {
    /// Creates an empty set. Each call of [`Poller::wait`] reports at most `events` files.
    ///
    /// # Errors
    /// An error of the kernel, for example because no file descriptor is left.
    pub fn new(events: usize) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, events: Vec::with_capacity(events.max(1)) })
    }

    /// Watches `file`, which `token` identifies, for data to read. Errors and hang-ups are
    /// reported, too. A closed file leaves the set automatically.
    ///
    /// # Errors
    /// `AlreadyExists` if the file is already watched, or another error of the kernel.
    pub fn add(&self, file: impl AsFd, token: u64) -> io::Result<()> {
        self.add_for(file, token, Interest::READ)
    }

    /// Watches `file` like [`Poller::add`], for the events in `interest`.
    ///
    /// # Errors
    /// The errors of [`Poller::add`].
    pub fn add_for(&self, file: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, file, EventData::new_u64(token), interest.flags())?)
    }

    /// Changes the events for which `file` is watched to `interest`, and its token to `token`.
    ///
    /// # Errors
    /// `NotFound` if the file is not watched, or another error of the kernel.
    pub fn change(&self, file: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, file, EventData::new_u64(token), interest.flags())?)
    }

    /// Stops watching `file`.
    ///
    /// # Errors
    /// `NotFound` if the file is not watched, or another error of the kernel.
    pub fn remove(&self, file: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, file)?)
    }

    /// Waits until a file is ready or `timeout` has passed; `None` means no timeout. Returns the
    /// ready files, or none after the timeout or a signal. The timeout has a resolution of 1 ns
    /// (`epoll_pwait2`).
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
    ) -> io::Result<impl Iterator<Item = Ready> + use<'_>> {
        // A duration beyond the kernel's range is treated like no timeout.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(self.events.iter().map(ready)),
            Err(error) => Err(error.into()),
        }
    }
}

fn ready(event: &Event) -> Ready {
    let flags = event.flags;
    Ready {
        token: event.data.u64(),
        read: flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::RDHUP),
        write: flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP),
        error: flags.contains(EventFlags::ERR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    #[test]
    fn tells_who_is_ready() {
        let (mut a, b) = UnixStream::pair().unwrap();
        let mut poller = Poller::new(8).unwrap();
        poller.add(&b, 7).unwrap();
        assert_eq!(poller.wait(Some(Duration::ZERO)).unwrap().count(), 0);
        a.write_all(b"x").unwrap();
        let spoken = Ready { token: 7, read: true, write: false, error: false };
        assert_eq!(poller.wait(None).unwrap().collect::<Vec<_>>(), [spoken]);
        poller.remove(&b).unwrap();
        assert_eq!(poller.wait(Some(Duration::ZERO)).unwrap().count(), 0);
    }

    #[test]
    fn tells_of_room_only_where_that_was_asked_for() {
        let (a, _b) = UnixStream::pair().unwrap();
        let mut poller = Poller::new(8).unwrap();
        poller.add(&a, 7).unwrap();
        assert_eq!(poller.wait(Some(Duration::ZERO)).unwrap().count(), 0);
        poller.change(&a, 7, Interest { read: true, write: true }).unwrap();
        assert!(poller.wait(None).unwrap().all(|ready| ready.write && !ready.read));
    }

    #[test]
    fn a_timeout_is_not_rounded_to_milliseconds() {
        let mut poller = Poller::new(1).unwrap();
        let mut wait = || {
            let start = Instant::now();
            assert_eq!(poller.wait(Some(Duration::from_micros(100))).unwrap().count(), 0);
            start.elapsed()
        };
        // The test measures the shortest of many waits, because a busy machine lengthens some of
        // them.
        let (begun, mut shortest) = (Instant::now(), Duration::MAX);
        while shortest >= Duration::from_micros(900) && begun.elapsed() < Duration::from_secs(20) {
            shortest = (0..50).map(|_| wait()).min().unwrap();
            assert!(shortest >= Duration::from_micros(100), "{shortest:?}");
        }
        assert!(shortest < Duration::from_micros(900), "{shortest:?}");
    }
}
