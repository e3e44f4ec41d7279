//! Name resolution on a separate thread, for settings that take effect only when their names are
//! resolved. `W` is the type of the settings, or of another value that waits for the results.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use anabranch_os::target::Target;

/// The lookup results, one for each name.
pub(super) type LookupResults = Vec<(Target, io::Result<Vec<SocketAddr>>)>;

/// A lookup of names, and the value `W` that waits for the results, for example new settings. A
/// new value replaces the waiting value.
#[derive(Debug)]
pub(super) struct Lookup<W> {
    waiting: Option<W>,
    /// Sequence number of the present lookup. Results of earlier lookups are ignored.
    round: u64,
    answered: Sender<(u64, LookupResults)>,
    answers: Receiver<(u64, LookupResults)>,
    wake_receiver: UnixStream,
    wake_sender: UnixStream,
}

impl<W> Lookup<W> {
    /// Returns a lookup without a waiting value.
    ///
    /// # Errors
    /// No file descriptor is available.
    pub(super) fn new() -> io::Result<Lookup<W>> {
        let (answered, answers) = mpsc::channel();
        let (wake_receiver, wake_sender) = UnixStream::pair()?;
        wake_receiver.set_nonblocking(true)?;
        Ok(Lookup { waiting: None, round: 0, answered, answers, wake_receiver, wake_sender })
    }

    /// Starts to resolve `names`. The value `who`, which replaces the waiting value, waits for the
    /// results.
    ///
    /// # Errors
    /// No thread or file descriptor is available. Then no value waits.
    pub(super) fn begin(&mut self, who: W, names: Vec<Target>) -> io::Result<()> {
        self.dismiss();
        let (round, answered, mut wake_sender) =
            (self.round, self.answered.clone(), self.wake_sender.try_clone()?);
        let work = move || {
            let found = names.into_iter().map(|name| {
                let addresses = name.resolve();
                (name, addresses)
            });
            // A failed send is ignored, because the splitter may have stopped meanwhile.
            let _ = answered.send((round, found.collect()));
            let _ = wake_sender.write(&[0]);
        };
        thread::Builder::new().name("names".into()).spawn(work)?;
        self.waiting = Some(who);
        Ok(())
    }

    /// Drops the waiting value.
    pub(super) fn dismiss(&mut self) {
        self.round += 1;
        self.waiting = None;
    }

    /// Returns the waiting value and its results; `None` if there are no results, or only results
    /// for an earlier value.
    pub(super) fn answer(&mut self) -> Option<(W, LookupResults)> {
        // If this byte is left unread, the loop wakes again.
        let _ = self.wake_receiver.read(&mut [0]);
        let (round, found) = self.answers.try_recv().ok()?;
        let who = if round == self.round { self.waiting.take() } else { None };
        who.map(|who| (who, found))
    }
}

impl<W> AsFd for Lookup<W> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake_receiver.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use anabranch_os::poller::Poller;

    #[test]
    fn only_the_latest_is_answered() {
        let mut lookup = Lookup::new().unwrap();
        let mut poller = Poller::new(1).unwrap();
        poller.add(&lookup, 0).unwrap();
        let names: Vec<Target> = vec!["localhost:9".parse().unwrap()];
        for who in ["first", "second"] {
            lookup.begin(who, names.clone()).unwrap();
        }
        let mut answered = Vec::new();
        for _ in 0..2 {
            assert_eq!(poller.wait(Some(Duration::from_secs(20))).unwrap().count(), 1);
            answered.extend(lookup.answer());
        }
        assert_eq!(poller.wait(Some(Duration::ZERO)).unwrap().count(), 0, "no wake-up is pending");
        let (who, found) = answered.pop().unwrap();
        assert!(answered.is_empty() && who == "second" && found[0].0 == names[0]);
        assert!(found[0].1.as_ref().unwrap().iter().all(|at| at.ip().is_loopback()));
    }
}
