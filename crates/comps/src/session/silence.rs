//! Decision about a path on which no answers arrive: either the path discards everything, or the
//! server answers on another path.
//!
//! The packets alone do not distinguish the two cases. Servers of WireGuard and Mosh always answer
//! on the path on which they last received a packet, so for them a silent path discards
//! everything. Any other server evidently follows its client if answers arrive on at least two
//! other paths. Then a silent path discards everything, too. If the server followed its client
//! before but no longer does, its rate decides. The silent path discards everything if this rate
//! falls below a quarter of its usual value while the uplink uses that path.
//!
//! If answers have only ever arrived on one path, the question cannot be decided. For 3 s the
//! datagrams of a silent path are also sent on the answering path, so that nothing is lost. Then
//! the silent path is taken out of use.

use std::time::Duration;

use anabranch_multipath::{PathId, Time};

use super::send::Run;
use super::{Common, Session};
use crate::{DownReason, Event};

/// Time for which the datagrams of a path without any answer are also sent on the answering path,
/// before the path without answers is taken out of use.
const UNDECIDED: Duration = Duration::from_secs(3);

impl Session {
    /// Records, for the path's health and for the test of whether the server follows its client,
    /// that `path` has carried a datagram of the client.
    pub(super) fn note_sent(
        &mut self,
        now: Time,
        path: PathId,
        datagram: &[u8],
        common: &mut Common,
    ) {
        if self.recognition.is_answered(datagram) {
            let server = self.arrivals.activity(now, self.usage.last_sent());
            self.paths.health_of(path).on_sent(now, server);
            self.follow.on_request(now, path);
        } else {
            self.paths.health_of(path).on_sent_unanswerable(now);
        }
        if self.usage.path() == Some(path) {
            return;
        }
        let rtts = self.paths.rtts();
        let Some((stays, percent)) = self.follow.on_sent(now, path, rtts) else { return };
        // A far end splits the downlink by its own schedule, so it never follows the uplink.
        if !common.config.far_end && !self.recognition.always_follows() {
            let followed = self.paths.answered_paths().count() > 1;
            common.event(Event::Skewed { session: self.origin.id, path: stays, percent, followed });
        }
    }

    /// Takes `path` out of use if no answers arrive on it although the server is active.
    ///
    /// If all used paths have become silent, the cause is the server or the whole network, so no
    /// path is taken out of use. Silence never takes the last usable path out of use. If the other
    /// paths were taken out of use because the server answered no data on them
    /// ([`DownReason::DataUnanswered`]), they are used again.
    pub(super) fn check_silence(&mut self, now: Time, path: PathId, common: &mut Common) {
        let index = path.index();
        if common.config.far_end || !self.paths.is_usable(index) {
            return;
        }
        if !self.paths.others(index).any(|other| self.paths.is_usable(other)) {
            return self.recall_paths(now, index, common);
        }
        if let Some(since) = self.doubted_since(now, index, common.config.keep_silent_paths) {
            let is_over = now.since(since) >= UNDECIDED;
            if is_over && self.paths.health[index].silent_since(self.arrivals.answers()).is_some() {
                self.take_down(now, path, DownReason::NeverAnswered, common);
                self.refresh(common);
            }
            return;
        }
        if self.is_dead(now, index) {
            let decides = self.recognition.always_follows();
            let why = if decides {
                DownReason::Silent
            } else {
                self.paths.health[index].silence_reason()
            };
            self.take_down(now, path, why, common);
            self.refresh(common);
        }
    }

    /// Returns whether the path is silent and discards everything.
    fn is_dead(&self, now: Time, index: usize) -> bool {
        let health = &self.paths.health;
        let Some(since) = health[index].silent_since(self.arrivals.answers()) else { return false };
        let is_late = |at: Option<Time>| at.is_some_and(|at| at >= since);
        let others = self.paths.others(index);
        let tried = others.clone().any(|other| is_late(health[other].sent()));
        match others.filter(|other| is_late(health[*other].last_arrival())).count() {
            0 => !tried,
            answering => self.discards_all(now, index, answering),
        }
    }

    /// If the only usable path `index` has become silent, uses the paths again on which the server
    /// answered no data. The server may have moved to one of them.
    fn recall_paths(&mut self, now: Time, index: usize, common: &mut Common) {
        if self.paths.health[index].silent_since(self.arrivals.answers()).is_none() {
            return;
        }
        for other in 0..self.paths.len() {
            if self.paths.health[other].recall() {
                self.report_up(now, PathId::at(other), common);
            }
        }
    }

    /// Returns the time since which the path has been suspected to discard everything (doubted);
    /// `None` if it is not. The datagrams of such a path are also sent on another path. A path is
    /// doubted only if answers have arrived on exactly one path. No path is doubted if the
    /// settings keep silent paths in use (`keeps`), or if servers of the protocol always answer on
    /// the client's newest path.
    fn doubted_since(&mut self, now: Time, index: usize, keeps: bool) -> Option<Time> {
        let decides = self.recognition.always_follows();
        self.paths.only_answering().filter(|_| !decides && !keeps)?;
        self.paths.health[index].doubt(now)
    }

    /// Returns whether a silent path discards everything. `answering` is the number of other paths
    /// on which answers arrive.
    fn discards_all(&self, now: Time, index: usize, answering: usize) -> bool {
        if self.recognition.always_follows() {
            return true;
        }
        if answering > 1 && self.follow.follows(now) {
            return true;
        }
        if self.paths.answered_paths().count() == 1 {
            return false;
        }
        let path = PathId::at(index);
        let is_silent =
            |other: usize| self.paths.health[other].silent_since(self.arrivals.answers()).is_some();
        let alone = (0..self.paths.views().len()).all(|other| other == index || !is_silent(other));
        !self.follow.seems_received(path).unwrap_or(!alone)
    }

    /// Sends the datagrams of a doubted path a second time, on the path on which answers arrive. A
    /// doubted path may discard everything.
    pub(super) fn send_again(
        &mut self,
        now: Time,
        path: PathId,
        run: Run<'_>,
        common: &mut Common,
    ) {
        // A handshake stays on one path, so its datagrams are not sent again.
        let is_doubted =
            self.paths.health[path.index()].is_doubted() && !self.handshakes.uses(path);
        let Some(other) = self.paths.only_answering().filter(|other| is_doubted && *other != path)
        else {
            return;
        };
        self.push(self.paths.current(other), run, common);
        common.counters[other.index()].copies += run.count;
        let asks = self.recognition.is_answered(run.first());
        self.paths.health_of(other).on_copy(now, Duration::ZERO, asks);
    }
}
