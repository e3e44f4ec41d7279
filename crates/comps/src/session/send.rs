//! Sending of a client's datagrams: the choice of each datagram's path, and the outputs that send
//! it.

use anabranch_multipath::{Assignment, PathId, Time};

use super::pins::PathRule;
use super::{Common, Session};
use crate::protocol::wireguard::Message;
use crate::{Batch, Event, Output, Payload, Protocol, TupleId};

/// Maximum number of datagrams that a session sends per turn when congestion windows have room
/// again.
const TURN: u64 = 16;

/// Part of a batch: `count` consecutive datagrams, from the datagram at index `at` on.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) batch: &'a Batch<'a>,
    pub(super) at: u64,
    pub(super) count: u64,
}

impl<'a> Run<'a> {
    /// Returns the only datagram of `batch` as a part of a batch.
    fn single(batch: &'a Batch<'a>) -> Run<'a> {
        Run { batch, at: 0, count: 1 }
    }

    /// Returns the first datagram.
    pub(super) fn first(&self) -> &'a [u8] {
        self.batch.datagram(self.at)
    }
}

impl Session {
    /// Sends a batch. Consecutive datagrams whose path is chosen in the same way ([`PathRule`]) are
    /// sent together.
    pub(super) fn route(&mut self, now: Time, batch: &Batch<'_>, common: &mut Common) {
        let (mut at, count) = (0, batch.count());
        while at < count {
            let rule = self.path_rule(now, batch.datagram(at), common);
            let end = at + self.length_of_run(rule, now, batch, at, common);
            while at < end {
                let run = Run { batch, at, count: end - at };
                at += match rule {
                    PathRule::Free => self.send_scheduled(now, run, common),
                    PathRule::Pinned => self.send_pinned(now, run, common),
                };
            }
        }
    }

    /// Returns how the path of a datagram is chosen: as the path of handshakes, or by the
    /// schedule.
    pub(super) fn path_rule(
        &mut self,
        now: Time,
        datagram: &[u8],
        common: &mut Common,
    ) -> PathRule {
        let is_named = common.handshake().is_some();
        let is_pinned = match self.recognition.protocol() {
            Some(Protocol::Quic) => {
                let rule = self.handshakes.pins.on_client(now, datagram);
                self.release(now, common);
                return rule;
            }
            Some(Protocol::Dns) => is_named,
            Some(Protocol::WireGuard) => {
                (is_named || self.cookie_route(now, common).is_some())
                    && Message::of(datagram).is_some_and(Message::is_handshake)
            }
            _ => false,
        };
        if is_pinned { PathRule::Pinned } else { PathRule::Free }
    }

    /// Returns the number of consecutive datagrams, from index `at` on, whose path is chosen as
    /// `rule` states.
    fn length_of_run(
        &mut self,
        rule: PathRule,
        now: Time,
        batch: &Batch<'_>,
        at: u64,
        common: &mut Common,
    ) -> u64 {
        let looks_at_each = match self.recognition.protocol() {
            Some(Protocol::Quic) => true,
            Some(Protocol::WireGuard) => {
                common.handshake().is_some() || self.handshakes.has_cookie()
            }
            _ => false,
        };
        let left = batch.count() - at;
        if !looks_at_each {
            return left;
        }
        (1..left)
            .find(|&index| self.path_rule(now, batch.datagram(at + index), common) != rule)
            .unwrap_or(left)
    }

    /// Sends datagrams on the path that the schedule chooses. Returns the number of datagrams that
    /// were sent or queued.
    fn send_scheduled(&mut self, now: Time, run: Run<'_>, common: &mut Common) -> u64 {
        // No datagram may overtake datagrams that wait for a window.
        let next = match self.queues.backlog.is_empty() {
            true => {
                self.look(common);
                self.splitter.assign(now, self.paths.views(), run.count)
            }
            false => Assignment::Hold,
        };
        match next {
            Assignment::Send { path, units, fresh } => {
                self.emit_run(now, (path, fresh), Run { count: units, ..run }, common);
                units
            }
            Assignment::Nowhere | Assignment::Hold if common.windows.is_some() => {
                self.await_window(now, run, common);
                run.count
            }
            Assignment::Nowhere | Assignment::Hold => {
                self.keep(now, run, common);
                run.count
            }
        }
    }

    /// Sends consecutive datagrams on `path`, which the schedule has chosen. If `fresh` is true, a
    /// new run begins.
    fn emit_run(
        &mut self,
        now: Time,
        (path, fresh): (PathId, bool),
        run: Run<'_>,
        common: &mut Common,
    ) {
        if fresh {
            self.paths.tuples.rotate(path);
            self.usage.stay.runs += 1;
        }
        if let Some(windows) = &mut common.windows {
            windows[path.index()].sent(run.count);
        }
        self.emit(now, self.paths.current(path), run, common);
    }

    /// Copies the present state of the congestion windows into the scheduler's views of the paths.
    fn look(&mut self, common: &Common) {
        if let Some(windows) = &common.windows {
            self.paths.look(windows, &common.broken);
        }
    }

    /// Queues consecutive datagrams until a congestion window has room.
    fn await_window(&mut self, now: Time, run: Run<'_>, common: &mut Common) {
        if self.queues.backlog.is_empty() {
            common.held.push_back(self.origin.id);
        }
        common.no_path += self.queues.await_window(now, run, common.room.patience);
    }

    /// Sends some of the datagrams that wait for room in a congestion window. The others wait for
    /// the session's next turn. Returns whether any were sent.
    pub(crate) fn use_windows(&mut self, now: Time, common: &mut Common) -> bool {
        let (mut went, outer) = (0, common.queued_at);
        while went < TURN {
            self.look(common);
            let next = self.queues.backlog.assign(now, &mut self.splitter, self.paths.views());
            let Some((path, units, mut fresh)) = next else { break };
            for _ in 0..units {
                let Some(queued) = self.queues.backlog.pop() else { break };
                common.queued_at = Some(queued.since);
                let batch = Batch::single(&queued.bytes, queued.ecn);
                let is_fresh = std::mem::take(&mut fresh);
                self.emit_run(now, (path, is_fresh), Run::single(&batch), common);
            }
            went += units;
        }
        common.queued_at = outer;
        common.no_path += self.queues.backlog.take_dropped();
        if !self.queues.backlog.is_empty() {
            common.held.push_back(self.origin.id);
        }
        went > 0
    }

    /// Sends datagrams on the path of handshakes, or queues them if no such path is usable.
    /// Returns the number of datagrams in `run`.
    fn send_pinned(&mut self, now: Time, run: Run<'_>, common: &mut Common) -> u64 {
        let cookie = self.cookie_route(now, common);
        if cookie.is_some() {
            self.handshakes.use_up_cookie();
        }
        match cookie.or_else(|| self.handshake_path(now, common)) {
            Some(pin) => self.emit(now, pin, run, common),
            None => {
                self.handshakes.pins.has_not_left();
                self.keep(now, run, common);
            }
        }
        run.count
    }

    /// Returns the path and source port (tuple) for a handshake that answers a cookie. Returns
    /// `None` if there is no cookie, or if the path is closed or may carry no handshakes.
    fn cookie_route(&self, now: Time, common: &Common) -> Option<(PathId, TupleId)> {
        let route = self.handshakes.cookie_route(now, common.handshake())?;
        self.paths.is_open(route.0, &common.broken).then_some(route)
    }

    /// Queues consecutive datagrams until a path is usable.
    pub(super) fn keep(&mut self, now: Time, run: Run<'_>, common: &mut Common) {
        let since = common.queued_at.unwrap_or(now);
        let Run { batch, at, count } = run;
        let limit = common.room.patience;
        common.no_path += self.queues.waiting.keep(since, batch, at, count, limit);
    }

    /// Returns the path and source port (tuple) of handshakes. If the user named a handshake path,
    /// returns that path, or `None` if it is not usable: the observers of the other paths must not
    /// see handshakes. Otherwise the schedule chooses a path, which is used until the handshake is
    /// confirmed.
    fn handshake_path(&mut self, now: Time, common: &mut Common) -> Option<(PathId, TupleId)> {
        let is_open = |path: &PathId| self.paths.is_open(*path, &common.broken);
        let path = match common.handshake() {
            Some(named) => Some(named).filter(is_open),
            None => {
                let known = self.handshakes.next_path(now, &self.paths).filter(is_open);
                known.or_else(|| match self.splitter.assign(now, self.paths.views(), 1) {
                    Assignment::Send { path, .. } => Some(path),
                    Assignment::Hold | Assignment::Nowhere => None,
                })
            }
        };
        let to = path.map(|path| self.paths.current(path));
        if let Some(path) = self.handshakes.pin_to(now, to) {
            common.event(Event::Pinned { session: self.origin.id, path });
        }
        self.handshakes.pinned_to()
    }

    /// Sends consecutive datagrams on a path, from one of its source ports (`tuple`).
    fn emit(
        &mut self,
        now: Time,
        (path, tuple): (PathId, TupleId),
        run: Run<'_>,
        common: &mut Common,
    ) {
        self.push((path, tuple), run, common);
        common.fingerprints.remember(now, run.first(), self.origin.chain);
        self.note_sent(now, path, run.first(), common);
        self.send_again(now, path, run, common);
        let step = self.usage.on_sent(now, (path, tuple), run.count);
        if step.moves {
            self.order.visit(now, path);
        }
        self.report_stay(common);
        let Some((before, its_tuple)) = step.before else { return };
        if its_tuple != tuple {
            common.counters[path.index()].switches += 1;
        }
        self.paths.health_of(before).on_used(step.pause);
        // After a change of path, all paths are checked: the path that the session left may turn
        // out to be silent while others are used.
        let before = before.index();
        let all = if step.moves { 0..self.paths.len() } else { before..before + 1 };
        all.for_each(|index| self.check_silence(now, PathId::at(index), common));
    }

    /// Appends the output that sends consecutive datagrams on a path, from its source port
    /// `tuple`.
    pub(super) fn push(&self, (path, tuple): (PathId, TupleId), run: Run<'_>, common: &mut Common) {
        let Run { batch, at, count } = run;
        let part = batch.part(at, count);
        common.counters[path.index()].up.add(count, part.len() as u64);
        let payload = match common.queued_at {
            Some(_) => Payload::Kept { bytes: batch.bytes[part].into(), ecn: batch.ecn },
            None => Payload::Live(part),
        };
        common.outputs.push_back(Output::Send { session: self.origin.id, tuple, path, payload });
    }

    /// Sends those waiting datagrams for which a path is now open.
    pub(super) fn flush(&mut self, now: Time, common: &mut Common) {
        if !self.resolved || !self.paths.is_any_open(&common.broken) {
            return;
        }
        let mut waited = std::mem::take(&mut self.queues.waiting);
        let outer = common.queued_at;
        while let Some(kept) = waited.take() {
            // If the datagram again finds no path, its wait still counts from its arrival.
            common.queued_at = Some(kept.since);
            self.route(now, &Batch::single(&kept.bytes, kept.ecn), common);
        }
        common.queued_at = outer;
    }
}
