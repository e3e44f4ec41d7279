//! Decides about a path without answers: does the path discard everything, or does the server
//! answer by another path?
//!
//! The packets alone do not distinguish the two cases. Servers of WireGuard and Mosh always answer
//! on the path on which they last received a packet, so for them a silent path discards everything.
//! Any other server is seen to follow its client if answers arrive on at least two other paths;
//! then a silent path discards everything, too. A server may have followed before and have stopped
//! doing so. Then its rate while the uplink is on the silent path decides.
//!
//! If answers have only ever arrived on one path, the question cannot be decided. For 3 s the
//! datagrams of a silent path are also sent on the answering path, so that nothing is lost. Then
//! the silent path is taken out.

use std::time::Duration;

use anabranch_multipath::{PathId, Time};

use super::follow::Rtts;
use super::{Common, Session};
use crate::health::{Activity, Health};
use crate::protocol::wireguard;
use crate::{Batch, DownReason, Event, Protocol};

/// Time for which the server counts as active after it was heard.
const ACTIVE: Duration = Duration::from_secs(1);
/// Time for which the datagrams of a path without any answer are also sent on the answering path,
/// before the path is taken out.
const UNDECIDED: Duration = Duration::from_secs(3);
/// Time after which a handshake without an answer continues on another path: the first probe
/// timeout of QUIC, 333 + 4 x 166.5 ms (RFC 9002, section 6.2.2).
const FIRST_PTO: Duration = Duration::from_millis(999);

impl Session {
    /// Records that a path has carried a datagram of the client, for the health of the path and for
    /// the test of whether the server follows.
    pub(super) fn note_sent(
        &mut self,
        now: Time,
        path: PathId,
        datagram: &[u8],
        common: &mut Common<'_>,
    ) {
        if self.is_answered(datagram) {
            let server = self.activity(now);
            self.health[path.index()].on_sent(now, server);
            self.follow.on_asked(now, path);
        } else {
            self.health[path.index()].on_sent_unanswerable(now);
        }
        if self.last.is_some_and(|(_, before, _)| before == path) {
            return;
        }
        let rtts = Rtts::of(self.health.iter().filter_map(Health::rtt_bound));
        let Some((stays, percent)) = self.follow.on_sent(now, path, rtts) else { return };
        // A far end splits the downlink by its own schedule, so it never follows the uplink.
        if !common.config.far_end && !self.protocol.is_some_and(Protocol::always_follows) {
            let followed = self.heard_by().count() > 1;
            common.event(Event::Skewed { session: self.id, path: stays, percent, followed });
        }
    }

    /// Returns whether a server answers such a datagram. A keepalive of WireGuard gets no answer.
    pub(super) fn is_answered(&self, datagram: &[u8]) -> bool {
        let is_keepalive =
            || wireguard::Message::of(datagram) == Some(wireguard::Message::Keepalive);
        self.protocol != Some(Protocol::WireGuard) || !is_keepalive()
    }

    /// Returns the server's activity: it was heard recently, or since the last datagram of the
    /// client.
    fn activity(&self, now: Time) -> Activity {
        let since = self.last.map(|(at, ..)| at);
        let is_recent =
            |heard: Time| now.since(heard) <= ACTIVE || since.is_some_and(|sent| heard >= sent);
        Activity { active: self.server_heard.is_some_and(is_recent), answers: self.answers }
    }

    /// Returns the indices of the paths that have ever brought an answer of the server.
    fn heard_by(&self) -> impl Iterator<Item = usize> + '_ {
        let paths = self.health.iter().enumerate();
        paths.filter(|(_, health)| health.heard().is_some()).map(|(index, _)| index)
    }

    /// Returns the only path on which an answer has ever arrived, if the schedule may use it.
    /// Returns `None` if answers arrived on several paths, or on none.
    fn only_answering(&self) -> Option<PathId> {
        let mut all = self.heard_by();
        let only = all.next().filter(|_| all.next().is_none())?;
        self.is_usable(only).then(|| PathId::at(only))
    }

    fn is_usable(&self, index: usize) -> bool {
        self.views.get(index).is_some_and(|view| view.usable)
    }

    /// Takes `path` out if no answers arrive by it although the server is active.
    ///
    /// If all used paths have become silent, the cause is the server or the whole network, so no
    /// path is taken out. The last usable path is never taken out because of silence. It may be the
    /// only one because the server seemed to accept data from its address only
    /// ([`DownReason::DataUnanswered`]); then the others are used again.
    pub(super) fn check_silence(&mut self, now: Time, path: PathId, common: &mut Common<'_>) {
        let index = path.index();
        if common.config.far_end || !self.is_usable(index) {
            return;
        }
        if !self.others(index).any(|other| self.is_usable(other)) {
            return self.recall_paths(now, index, common);
        }
        if let Some(since) = self.doubted_since(now, index, common.config.keep_silent_paths) {
            let is_over = now.since(since) >= UNDECIDED;
            if is_over && self.health[index].silent_since(self.answers).is_some() {
                self.take_down(now, path, DownReason::NeverAnswered, common);
                self.refresh(common);
            }
            return;
        }
        if self.is_dead(now, index) {
            let decides = self.protocol.is_some_and(Protocol::always_follows);
            let why = if decides { DownReason::Silent } else { self.health[index].why_silent() };
            self.take_down(now, path, why, common);
            self.refresh(common);
        }
    }

    /// Returns the indices of the paths other than `index`.
    pub(super) fn others(&self, index: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        (0..self.health.len()).filter(move |other| *other != index)
    }

    /// Returns whether the path is silent and discards everything.
    fn is_dead(&self, now: Time, index: usize) -> bool {
        let Some(since) = self.health[index].silent_since(self.answers) else { return false };
        let is_late = |at: Option<Time>| at.is_some_and(|at| at >= since);
        let tried = self.others(index).any(|other| is_late(self.health[other].sent()));
        match self.others(index).filter(|other| is_late(self.health[*other].heard())).count() {
            0 => !tried,
            answering => self.discards_all(now, index, answering),
        }
    }

    /// Uses the paths again whose data was unanswered, if the only usable path `index` has become
    /// silent: the server may have moved to one of them.
    fn recall_paths(&mut self, now: Time, index: usize, common: &mut Common<'_>) {
        if self.health[index].silent_since(self.answers).is_none() {
            return;
        }
        for other in 0..self.health.len() {
            if self.health[other].recall() {
                self.report_up(now, PathId::at(other), common);
            }
        }
    }

    /// Returns the time since which the path has been doubted; `None` if it is not. A path is
    /// doubted only if exactly one other path has received answers, the protocol does not decide
    /// the question, and `keeps` is false.
    fn doubted_since(&mut self, now: Time, index: usize, keeps: bool) -> Option<Time> {
        let decides = self.protocol.is_some_and(Protocol::always_follows);
        self.only_answering().filter(|_| !decides && !keeps)?;
        self.health[index].doubt(now)
    }

    /// Returns whether a silent path discards everything. `answering` is the number of other paths
    /// that bring answers.
    fn discards_all(&self, now: Time, index: usize, answering: usize) -> bool {
        if self.protocol.is_some_and(Protocol::always_follows) {
            return true;
        }
        if answering > 1 && self.follow.follows(now) {
            return true;
        }
        if self.heard_by().count() == 1 {
            return false;
        }
        let path = PathId::at(index);
        let is_silent = |other: usize| self.health[other].silent_since(self.answers).is_some();
        let alone = (0..self.views.len()).all(|other| other == index || !is_silent(other));
        !self.follow.is_heard(path).unwrap_or(!alone)
    }

    /// Returns another path for a pinned handshake if no answer has arrived on its path: one on
    /// which an answer has arrived meanwhile, or the next usable one after [`FIRST_PTO`].
    pub(super) fn beyond_silence(&self, now: Time) -> Option<PathId> {
        let (PathId(pinned), _) = self.pinned_to?;
        let pinned = usize::from(pinned);
        let heard =
            |index: usize| self.health[index].heard().is_some_and(|at| at >= self.pinned_at);
        if heard(pinned) {
            return None;
        }
        let usable = || (1..self.views.len()).map(|step| (pinned + step) % self.views.len());
        let answers = usable().find(|index| self.is_usable(*index) && heard(*index));
        let is_over = now.since(self.pinned_at) >= FIRST_PTO;
        let next = usable().find(|index| self.is_usable(*index)).filter(|_| is_over);
        answers.or(next).map(PathId::at)
    }

    /// Sends the datagrams of a doubted path again, by the path that brings answers.
    pub(super) fn send_again(
        &mut self,
        now: Time,
        path: PathId,
        (batch, at, count): (&Batch<'_>, u64, u64),
        common: &mut Common<'_>,
    ) {
        // A handshake stays on one path.
        let is_pin = self.pins.any() && self.pinned_to.is_some_and(|(pin, _)| pin == path);
        let is_doubted = self.health[path.index()].is_doubted() && !is_pin;
        let Some(other) = self.only_answering().filter(|other| is_doubted && *other != path) else {
            return;
        };
        self.push(self.tuples.current(other), other, batch, at, count, common);
        common.counters[other.index()].copies += count;
        let asks = self.is_answered(batch.datagram(at));
        self.health[other.index()].on_copy(now, Duration::ZERO, asks);
    }
}
