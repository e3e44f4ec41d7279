//! The times at which datagrams of a session's client and server arrived.

use std::time::Duration;

use anabranch_multipath::Time;

use super::wait::Wait;
use crate::health::Activity;

/// Time for which the server counts as active after one of its datagrams arrived.
const ACTIVE: Duration = Duration::from_secs(1);

/// The times at which datagrams of the client and of the server arrived, and the client's wait for
/// an answer.
#[derive(Debug)]
pub(super) struct Arrivals {
    client: Time,
    /// Time at which a datagram of the client was last assigned to a path.
    taken: Time,
    server: Option<Time>,
    /// Time of the server's last answer in any other session, at the moment when this session was
    /// opened; `None` if it had not answered.
    before: Option<Time>,
    /// Number of answers of the server that arrived in this session.
    answers: u64,
    pub(super) wait: Wait,
}

impl Arrivals {
    /// Returns the state of a session that is opened at `now`. In other sessions, the server's
    /// last datagram arrived at `before`.
    pub(super) fn new(now: Time, before: Option<Time>) -> Arrivals {
        Arrivals { client: now, taken: now, server: None, before, answers: 0, wait: Wait::new(now) }
    }

    /// Records the time at which datagrams of the client arrived.
    pub(super) fn on_client(&mut self, now: Time) {
        self.client = now;
    }

    /// Returns when the client's last datagram arrived.
    pub(super) fn client(&self) -> Time {
        self.client
    }

    /// Records that a datagram of the client is assigned to a path. Returns the time since the
    /// previous datagram was assigned.
    pub(super) fn on_taken(&mut self, now: Time) -> Duration {
        now.since(std::mem::replace(&mut self.taken, now))
    }

    /// Records that a datagram of the server arrived. Returns how long the client had waited, if
    /// the wait was reported.
    pub(super) fn on_server(&mut self, now: Time) -> Option<Duration> {
        self.server = Some(now);
        self.wait.on_answer(now)
    }

    /// Counts an answer of the server that arrived on a path in use (not on a removed path).
    pub(super) fn count_answer(&mut self) {
        self.answers += 1;
    }

    /// Returns the number of answers of the server that arrived on paths of this session.
    pub(super) fn answers(&self) -> u64 {
        self.answers
    }

    /// Returns whether an answer of the server has arrived in this session.
    pub(super) fn has_answered(&self) -> bool {
        self.server.is_some()
    }

    /// Returns when the server's last datagram arrived, in this session or in another one before
    /// it was opened. Returns `None` if there was no datagram.
    pub(super) fn last_heard(&self) -> Option<Time> {
        self.server.or(self.before)
    }

    /// Returns when the reported silence of the server began, and when its last datagram arrived.
    /// Returns `None` if no silence was reported.
    pub(super) fn silent_since(&self) -> Option<(Time, Option<Time>)> {
        self.wait.reported().map(|since| (since, self.last_heard()))
    }

    /// Returns the number of the server's answers, and whether the server is active. It is active
    /// if a datagram from it arrived recently, or since the client's last datagram, which was sent
    /// at `sent`.
    pub(super) fn activity(&self, now: Time, sent: Option<Time>) -> Activity {
        let is_recent = |received: Time| {
            now.since(received) <= ACTIVE || sent.is_some_and(|sent| received >= sent)
        };
        Activity { active: self.server.is_some_and(is_recent), answers: self.answers }
    }
}
