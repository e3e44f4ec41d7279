//! Name resolution on a separate thread, so that a slow name server does not delay existing
//! sessions.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use anabranch_comps::SessionId;
use anabranch_multipath::Time;

use super::Target;

/// Delay between a failed lookup and the next lookup.
const RETRY: Duration = Duration::from_secs(1);
/// Number of failed lookups after which a waiting session is closed.
const ATTEMPTS: u8 = 3;

/// A resolver of the server's host name, for sessions that wait for the server's addresses.
///
/// The caller polls the resolver's descriptor and then calls [`Resolver::answer`]. At
/// [`Resolver::next_timeout`], the caller calls [`Resolver::on_time`].
#[derive(Debug)]
pub(super) struct Resolver {
    lookups: Lookups,
    questions: Sender<()>,
    answers: Receiver<Vec<SocketAddr>>,
    wake_receiver: UnixStream,
}

impl Resolver {
    /// Starts the thread that resolves `target`. Without a target, every lookup fails. The thread
    /// ends once the resolver is dropped and the last request is answered.
    pub(super) fn start(target: Option<Target>) -> io::Result<Resolver> {
        let (questions, asked) = mpsc::channel();
        let (answered, answers) = mpsc::channel();
        let (wake_receiver, mut wake_sender) = UnixStream::pair()?;
        wake_receiver.set_nonblocking(true)?;
        thread::Builder::new().name("resolver".into()).spawn(move || {
            for () in asked {
                let found =
                    target.as_ref().and_then(|target| target.resolve().ok()).unwrap_or_default();
                if answered.send(found).is_err() || wake_sender.write_all(&[0]).is_err() {
                    return;
                }
            }
        })?;
        Ok(Resolver { lookups: Lookups::default(), questions, answers, wake_receiver })
    }

    /// Requests a lookup for `session`.
    pub(super) fn ask(&mut self, now: Time, session: SessionId) {
        let due = self.lookups.ask(now, session);
        self.look_up(due);
    }

    /// Removes a session that was closed while it waited.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.lookups.waiting.remove(&session);
    }

    /// Returns all addresses of the server once a lookup has ended: an empty list if its name does
    /// not resolve, `None` if no lookup has ended. The caller then reports with
    /// [`Resolver::settle`] whether an address is usable.
    pub(super) fn answer(&mut self) -> Option<Vec<SocketAddr>> {
        let mut wake_ups = [0; 8];
        // Only one lookup is in progress, so there is one byte at most. It only wakes the loop;
        // the result is in the channel.
        let _ = self.wake_receiver.read(&mut wake_ups);
        self.answers.try_recv().ok()
    }

    /// Ends a lookup. If `found`, returns the waiting sessions, which now have a server. Otherwise
    /// returns the sessions to close, because [`ATTEMPTS`] of their lookups have failed.
    pub(super) fn settle(&mut self, now: Time, found: bool) -> Vec<SessionId> {
        self.lookups.settle(now, found)
    }

    /// Returns when the next lookup is due; `None` if none is planned.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.lookups.next_timeout()
    }

    /// Repeats a failed lookup for the waiting sessions, if the pause after the failure is over.
    pub(super) fn on_time(&mut self, now: Time) {
        let due = self.lookups.on_time(now);
        self.look_up(due);
    }

    fn look_up(&self, due: bool) {
        if due {
            // The thread lives as long as this end of the channel. If the thread has panicked, the
            // sessions wait until they expire.
            let _ = self.questions.send(());
        }
    }
}

impl AsFd for Resolver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake_receiver.as_fd()
    }
}

/// The state of the lookups: the sessions that wait for an answer, and the pause after a failed
/// lookup. One lookup at a time serves all waiting sessions.
#[derive(Debug, Default)]
struct Lookups {
    /// The waiting sessions, each with its number of failed lookups.
    waiting: BTreeMap<SessionId, u8>,
    under_way: bool,
    /// End of the pause after a failed lookup, before which no lookup begins; `None` if no pause
    /// is needed.
    paused_until: Option<Time>,
}

impl Lookups {
    /// Adds a session that waits for the server's addresses. Returns whether a lookup must begin
    /// now.
    fn ask(&mut self, now: Time, session: SessionId) -> bool {
        self.waiting.insert(session, 0);
        self.on_time(now)
    }

    /// Returns whether a lookup must begin at `now`: sessions wait, no lookup is in progress, and
    /// the pause after a failure is over.
    fn on_time(&mut self, now: Time) -> bool {
        let resting = self.paused_until.is_some_and(|paused_until| paused_until > now);
        let begin = !self.under_way && !self.waiting.is_empty() && !resting;
        self.under_way |= begin;
        begin
    }

    fn settle(&mut self, now: Time, found: bool) -> Vec<SessionId> {
        self.under_way = false;
        if found {
            self.paused_until = None;
            return std::mem::take(&mut self.waiting).into_keys().collect();
        }
        self.paused_until = Some(now + RETRY);
        self.waiting.values_mut().for_each(|failures| *failures += 1);
        self.waiting.extract_if(.., |_, failures| *failures >= ATTEMPTS).map(|(id, _)| id).collect()
    }

    fn next_timeout(&self) -> Option<Time> {
        self.paused_until.filter(|_| !self.under_way && !self.waiting.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionId = SessionId(1);
    const TWO: SessionId = SessionId(2);

    #[test]
    fn those_who_ask_meanwhile_share_the_lookup_under_way() {
        let mut lookups = Lookups::default();
        assert!(lookups.ask(Time::ZERO, ONE));
        assert!(!lookups.ask(Time::ZERO, TWO), "one is under way");
        assert_eq!(lookups.settle(Time::from_millis(5), true), [ONE, TWO]);
        assert_eq!(lookups.next_timeout(), None);
        assert!(lookups.ask(Time::from_millis(6), ONE), "an answer is used once");
    }

    #[test]
    fn a_session_is_given_up_after_three_failures_a_second_apart() {
        let mut lookups = Lookups::default();
        let mut now = Time::ZERO;
        assert!(lookups.ask(now, ONE));
        for _ in 1..ATTEMPTS {
            assert_eq!(lookups.settle(now, false), []);
            assert_eq!(lookups.next_timeout(), Some(now + RETRY));
            assert!(!lookups.on_time(now + RETRY / 2));
            now += RETRY;
            assert!(lookups.on_time(now));
            assert_eq!(lookups.next_timeout(), None, "under way");
        }
        assert_eq!(lookups.settle(now, false), [ONE]);
        assert_eq!(lookups.next_timeout(), None, "nobody waits");
    }

    #[test]
    fn a_failure_is_remembered_for_sessions_that_come_after_it() {
        let mut lookups = Lookups::default();
        lookups.ask(Time::ZERO, ONE);
        lookups.settle(Time::ZERO, false);
        lookups.waiting.remove(&ONE);
        let soon = Time::from_millis(10);
        assert!(!lookups.ask(soon, TWO), "no lookup for each datagram of a client");
        assert_eq!(lookups.next_timeout(), Some(Time::ZERO + RETRY));
        assert!(lookups.on_time(Time::ZERO + RETRY));
        assert_eq!(lookups.settle(Time::from_secs(2), true), [TWO]);
    }

    #[test]
    fn an_answer_rings() {
        let mut resolver = Resolver::start("localhost:9".parse().ok()).unwrap();
        resolver.ask(Time::ZERO, ONE);
        let mut poller = anabranch_os::poller::Poller::new(1).unwrap();
        poller.add(&resolver, 0).unwrap();
        let patience = Some(Duration::from_secs(20));
        assert_eq!(poller.wait(patience).unwrap().count(), 1);
        let found = resolver.answer().unwrap();
        assert!(found.iter().all(|server| server.ip().is_loopback()) && !found.is_empty());
        assert_eq!(poller.wait(Some(Duration::ZERO)).unwrap().count(), 0, "no wake-up is pending");
        assert_eq!(resolver.settle(Time::ZERO, true), [ONE]);
    }
}
