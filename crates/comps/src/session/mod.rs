//! One session: a client address and the server that this client wants, with its own draw of the
//! schedule and its own view of the paths' health.

mod answer_delay;
mod cookie;
mod copies;
mod follow;
mod kept;
mod order;
mod pins;
mod recognition;
mod silence;
mod wait;

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use anabranch_multipath::{
    Assignment, Backlog, DelayQueue, Every, Jitter, PathId, PathView, Splitter, Time, seed,
};

use self::cookie::Cookie;
use self::copies::Held;
use self::follow::Follow;
use self::kept::PathStay;
use self::order::InOrder;
use self::pins::{Lane, Pins};
use self::wait::Wait;
use crate::config::Config;
use crate::health::Health;
use crate::io::Ends;
use crate::looped::Fingerprints;
use crate::protocol::{Recogniser, wireguard};
use crate::tuples::Tuples;
use crate::waiting::{QueuedDatagram, WaitQueue};
use crate::{
    Batch, DownReason, Event, Held as HeldInOrder, Output, PathCounters, Payload, Protocol,
    Renumbering, SessionId, TupleId,
};

/// Number of datagrams that a session sends in its turn after waiting for a window.
const TURN: u64 = 16;

/// The state that all sessions of a core share, which one session borrows for a call.
pub(crate) struct Common<'a> {
    pub(crate) config: &'a Config,
    pub(crate) outputs: &'a mut VecDeque<Output>,
    pub(crate) counters: &'a mut [PathCounters],
    pub(crate) no_path: &'a mut u64,
    pub(crate) hurried: &'a mut u64,
    pub(crate) fingerprints: &'a mut Fingerprints,
    /// Protocols already reported to number their packets in clear.
    pub(crate) numbered: &'a mut BTreeSet<Protocol>,
    /// The time before which no session reports that its server does not answer.
    pub(crate) next_unanswered: &'a mut Time,
    /// The local error of each path, if any.
    pub(crate) broken: &'a [Option<DownReason>],
    /// The state of each path's window, if the schedule uses windows.
    pub(crate) windows: Option<&'a mut [PathView]>,
    /// Queue of the sessions that wait for a window.
    pub(crate) held: &'a mut VecDeque<SessionId>,
    /// Arrival time of the batch at hand, if it comes from one of our queues: outputs must then
    /// contain its bytes. `None` for a batch of the driver.
    pub(crate) kept: Option<Time>,
    pub(crate) room: Room,
}

/// Maximum bytes of a session's datagrams that may wait.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    /// Maximum bytes that wait for a path or for a window.
    pub(crate) patience: usize,
    /// Maximum bytes that are delayed before the split.
    pub(crate) delayed: usize,
}

impl Common<'_> {
    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// Returns the path of handshakes, if the user named one.
    fn handshake(&self) -> Option<PathId> {
        self.config.handshake.map(PathId::at)
    }

    fn is_scheduled(&self, path: PathId) -> bool {
        path.index() < self.config.scheduled()
    }
}

/// The state of one session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) ends: Ends,
    /// The local address that the client sent to.
    pub(crate) local: Option<IpAddr>,
    /// The session's depth in a chain of sessions that open each other.
    pub(crate) chain: u8,
    /// Whether the server ever answered.
    pub(crate) answered: bool,
    /// Time at which the session's timer in the core's table is due.
    pub(crate) armed: Option<Time>,
    resolved: bool,
    recogniser: Recogniser,
    /// The protocol that the session is treated as carrying; `None` if it is unknown.
    protocol: Option<Protocol>,
    pins: Pins,
    /// The path and tuple of a WireGuard server's last cookie.
    cookie: Option<Cookie>,
    /// The path and tuple of handshakes. This tuple does not rotate with the schedule's tuples.
    pinned_to: Option<(PathId, TupleId)>,
    /// Time at which the path in `pinned_to` was chosen.
    pinned_at: Time,

    splitter: Splitter,
    views: Box<[PathView]>,
    health: Box<[Health]>,
    tuples: Tuples,
    follow: Follow,
    order: InOrder,
    /// The queue of datagrams delayed before the split.
    delay: Option<Box<DelayQueue<QueuedDatagram>>>,
    waiting: WaitQueue,
    /// The queue of datagrams that wait for a window.
    backlog: Backlog<QueuedDatagram>,
    /// Datagrams held back so that a copy on a path that is down arrives first; `None` if no copy
    /// requires it.
    held: Option<Held>,
    wait: Wait,
    client_heard: Time,
    /// Time at which a datagram of the client was last split.
    taken: Time,
    server_heard: Option<Time>,
    /// Time of the server's last answer in any other session, when this one was opened. A client
    /// may change its port, which opens a new session: Mosh's client does so every 10 s while no
    /// datagram arrives.
    pub(crate) heard_before: Option<Time>,
    /// Number of times that the server was heard in this session.
    answers: u64,
    last: Option<(Time, PathId, TupleId)>,
    /// Whether more than one path has carried the client's datagrams.
    split: bool,
    /// The traffic since the session last changed its path.
    stay: PathStay,
}

impl Session {
    pub(crate) fn new(id: SessionId, ends: Ends, now: Time, config: &Config) -> Session {
        let paths = config.ports.len();
        Session {
            id,
            ends,
            local: None,
            chain: 0,
            answered: false,
            armed: None,
            resolved: false,
            recogniser: Recogniser::default(),
            protocol: None,
            pins: Pins::default(),
            cookie: None,
            pinned_to: None,
            pinned_at: now,
            splitter: splitter(id, config, false, None),
            views: vec![PathView::open(); config.scheduled()].into(),
            health: (0..paths).map(|_| Health::default()).collect(),
            tuples: Tuples::new(&config.ports),
            follow: Follow::new(paths),
            order: InOrder::new(paths),
            delay: delay(id, config),
            waiting: WaitQueue::default(),
            backlog: Backlog::default(),
            held: None,
            wait: Wait::new(now),
            client_heard: now,
            taken: now,
            server_heard: None,
            heard_before: None,
            answers: 0,
            last: None,
            split: false,
            stay: PathStay::default(),
        }
    }

    /// Returns when the client was last heard.
    pub(crate) fn client_heard(&self) -> Time {
        self.client_heard
    }

    /// Returns the number of datagrams that wait for a path.
    pub(crate) fn waiting(&self) -> usize {
        let delayed = self.delay.as_ref().map_or(0, |delay| delay.len());
        delayed + self.waiting.len() + self.backlog.len()
    }

    /// Returns whether a single path carried all datagrams of the client.
    pub(crate) fn is_unsplit(&self) -> bool {
        self.last.is_some() && !self.split
    }

    /// Returns the round-trip time of `path`; `None` before it was measured.
    pub(crate) fn rtt(&self, path: usize) -> Option<Duration> {
        self.health[path].rtt()
    }

    /// Returns whether the session has found that `path` is silent.
    pub(crate) fn finds_silent(&self, path: usize) -> bool {
        self.health[path].reason().is_some_and(DownReason::needs_answer)
    }

    /// Records that the server's address is known, and that the `barred` paths do not lead to it.
    /// Sends the datagrams that waited for the address.
    pub(crate) fn on_resolved(&mut self, now: Time, barred: &[PathId], common: &mut Common<'_>) {
        self.resolved = true;
        self.tuples.bar(barred);
        if self.protocol == Some(Protocol::Quic) {
            self.cut_tuples(common);
        }
        self.refresh(common);
        self.flush(now, common);
    }

    /// Adopts changed settings. `draw` is the number of this change of the settings if the
    /// schedule is to be redrawn, else `None`.
    ///
    /// Nothing is sent here: a later event reports which of the new paths lead to the session's
    /// server.
    pub(crate) fn reconfigure(
        &mut self,
        numbers: &Renumbering,
        draw: Option<u64>,
        common: &mut Common<'_>,
    ) {
        if draw.is_some() {
            let keeps = self.keeps_to_one_path(common.config);
            self.splitter = splitter(self.id, common.config, keeps, draw);
        }
        self.delay_as(common.config);
        let health = std::mem::take(&mut self.health);
        self.health = numbers.carry(health).0.into();
        self.tuples = self.tuples.renumbered(common.config, numbers);
        self.follow = Follow::new(self.health.len());
        self.stay = self.stay.anew();
        for held in self.order.release_all() {
            self.return_to_client(Some(held), common);
        }
        self.order = InOrder::new(self.health.len());
        let pinned = self.pinned_to.and_then(|(_, tuple)| numbers.tuple(tuple));
        self.pinned_to = pinned;
        self.cookie = self.cookie.and_then(|cookie| cookie.renumbered(numbers));
        self.last = self
            .last
            .and_then(|(at, _, tuple)| numbers.tuple(tuple).map(|(path, tuple)| (at, path, tuple)));
        if common.windows.is_none() {
            *common.no_path += self.backlog.len() as u64;
            self.backlog = Backlog::default();
        }
        let rtts = self.health.iter().take(common.config.scheduled()).map(Health::rtt);
        self.views = rtts.map(|rtt| PathView { rtt, ..PathView::open() }).collect();
        if self.protocol == Some(Protocol::Quic) {
            self.cut_tuples(common);
        }
        self.refresh(common);
    }

    /// Applies the delay in the present settings to later datagrams. Queued datagrams keep their
    /// times.
    fn delay_as(&mut self, config: &Config) {
        match (&mut self.delay, config.jitter) {
            (Some(delay), jitter) => delay.set(jitter.unwrap_or(Jitter::NONE)),
            (None, _) => self.delay = delay(self.id, config),
        }
    }

    /// Processes datagrams of the client.
    pub(crate) fn on_client(&mut self, now: Time, batch: &Batch<'_>, common: &mut Common<'_>) {
        self.client_heard = now;
        let Some(delay) = &mut self.delay else { return self.take(now, batch, common) };
        for index in 0..batch.count() {
            let bytes: Box<[u8]> = batch.datagram(index).into();
            let length = bytes.len();
            let queued = QueuedDatagram { since: now, bytes, ecn: batch.ecn };
            delay.push(now, (queued, length), common.room.delayed);
        }
        self.take_delayed(now, common);
    }

    /// Splits the datagrams whose delay is over.
    fn take_delayed(&mut self, now: Time, common: &mut Common<'_>) {
        let outer = common.kept.replace(now);
        while let Some(queued) = self.delay.as_mut().and_then(|delay| delay.pop(now)) {
            self.take(now, &Batch::single(&queued.bytes, queued.ecn), common);
        }
        common.kept = outer;
        *common.hurried += self.delay.as_mut().map_or(0, |delay| delay.take_hurried());
        self.delay.take_if(|delay| common.config.jitter.is_none() && delay.is_empty());
    }

    /// Splits datagrams of the client.
    fn take(&mut self, now: Time, batch: &Batch<'_>, common: &mut Common<'_>) {
        let quiet = now.since(std::mem::replace(&mut self.taken, now));
        if self.is_answered(batch.datagram(0)) {
            self.wait.on_asked(now);
        }
        self.recognise(batch, common);
        if !self.resolved {
            self.keep(now, batch, 0, batch.count(), common);
            return;
        }
        self.try_down_paths(now, batch, common);
        if !self.hold_back(now, batch) {
            self.route(now, batch, common);
        }
        self.keep_paths_open(now, quiet, batch, common);
    }

    /// Processes datagrams of the server that arrived by `tuple`.
    pub(crate) fn on_server(
        &mut self,
        now: Time,
        (path, tuple): (PathId, TupleId),
        batch: &Batch<'_>,
        common: &mut Common<'_>,
    ) {
        let datagrams = batch.count();
        common.counters[path.index()].down.add(datagrams, batch.bytes.len() as u64);
        self.hear(now, common);
        self.answers += 1;
        self.pass_in_order(now, path, batch, common);
        if self.health[path.index()].reason() == Some(DownReason::DataUnanswered) {
            self.others(path.index()).for_each(|other| self.health[other].postpone(now));
        }
        let is_back = self.health[path.index()].on_heard(now);
        if let Some(view) = self.views.get_mut(path.index()).filter(|_| common.windows.is_none()) {
            view.rtt = self.health[path.index()].rtt();
        }
        if is_back {
            self.report_up(now, path, common);
        }
        self.recognise_answers(batch, common);
        if self.protocol == Some(Protocol::WireGuard) {
            cookie::learn(&mut self.cookie, now, (path, tuple), batch);
        }
        self.confirm(now, batch, common);
        self.follow.on_heard(now, path, batch.bytes.len() as u64);
    }

    /// Processes datagrams of the server that arrive by a removed path.
    pub(crate) fn on_late(&mut self, now: Time, batch: &Batch<'_>, common: &mut Common<'_>) {
        self.hear(now, common);
        self.return_to_client(None, common);
        self.confirm(now, batch, common);
    }

    /// Sends datagrams to the client, or holds them until earlier ones have arrived.
    fn pass_in_order(
        &mut self,
        now: Time,
        path: PathId,
        batch: &Batch<'_>,
        common: &mut Common<'_>,
    ) {
        self.release_in_order(now, common);
        if common.config.in_order.is_none() || self.order.passes(now, path, batch) {
            self.return_to_client(None, common);
        }
        // Held datagrams may follow the ones just sent.
        self.release_in_order(now, common);
    }

    /// Sends the client the datagrams that were held long enough.
    fn release_in_order(&mut self, now: Time, common: &mut Common<'_>) {
        let Some(longest) = common.config.in_order else { return };
        for held in self.order.release(now, longest) {
            self.return_to_client(Some(held), common);
        }
    }

    fn return_to_client(&mut self, held: Option<HeldInOrder>, common: &mut Common<'_>) {
        let (client, server) = self.ends;
        common.outputs.push_back(Output::Return { client, server, local: self.local, held });
        self.answered = true;
    }

    /// Records an error on this path that concerns this session alone.
    pub(crate) fn on_error(
        &mut self,
        now: Time,
        path: PathId,
        reason: DownReason,
        common: &mut Common<'_>,
    ) {
        self.take_down(now, path, reason, common);
        self.refresh(common);
    }

    /// Adapts to a path that broke or works again for all sessions.
    pub(crate) fn on_path_change(&mut self, now: Time, common: &mut Common<'_>) {
        self.refresh(common);
        self.flush(now, common);
    }

    /// Executes all actions that are due at `now`.
    pub(crate) fn on_timeout(&mut self, now: Time, common: &mut Common<'_>) {
        *common.no_path += self.waiting.expire(now);
        for index in 0..self.health.len() {
            if self.health[index].recover_if_quiet(now) {
                self.report_up(now, PathId::at(index), common);
            }
        }
        self.take_delayed(now, common);
        self.release_held(now, common);
        self.release_in_order(now, common);
        self.report_unanswered(now, common);
    }

    /// Records that a datagram of the server arrived. If a silence of the server was reported,
    /// reports its end.
    fn hear(&mut self, now: Time, common: &mut Common<'_>) {
        self.server_heard = Some(now);
        if let Some(waited) = self.wait.on_heard(now) {
            common.event(Event::Answered { session: self.id, server: self.ends.1, waited });
        }
    }

    /// Reports that the server does not answer, if such a report is due. The report blames no
    /// path.
    fn report_unanswered(&mut self, now: Time, common: &mut Common<'_>) {
        if self.last.is_none() {
            return;
        }
        let Some(waited) = self.wait.overdue(now) else { return };
        if now >= *common.next_unanswered {
            *common.next_unanswered = now + wait::FIRST;
            let (server, last) = (self.ends.1, self.last_heard());
            common.event(Event::Unanswered { session: self.id, server, waited, last });
        }
    }

    /// Returns when the reported silence of the server began, and when the server was last heard.
    /// Returns `None` if no silence was reported.
    pub(crate) fn silent_since(&self) -> Option<(Time, Option<Time>)> {
        self.wait.reported().map(|since| (since, self.last_heard()))
    }

    /// Returns when the server was last heard in this session or an earlier one.
    pub(crate) fn last_heard(&self) -> Option<Time> {
        self.server_heard.or(self.heard_before)
    }

    /// Returns when [`Session::on_timeout`] is due, including the end of the session for being
    /// idle.
    pub(crate) fn next_timeout(&self, config: &Config) -> Time {
        let health = self.health.iter().filter_map(Health::recovers_at);
        let others =
            self.waiting.next_timeout().into_iter().chain(self.held.as_ref().map(Held::due));
        let in_order = config.in_order.and_then(|longest| self.order.next_timeout(longest));
        let unanswered = self.wait.due().filter(|_| self.last.is_some());
        let delayed = self.delay.as_ref().and_then(|delay| delay.next_due());
        let all = health.chain(others).chain(in_order).chain(unanswered).chain(delayed);
        all.fold(self.client_heard + config.idle, Time::min)
    }

    /// Limits the session's four-tuples to the number that a QUIC connection may have.
    fn cut_tuples(&mut self, common: &Common<'_>) {
        self.tuples.cut(
            common.config.quic_tuples,
            common.handshake(),
            common.config.handshake_scheduled,
        );
    }

    /// Sends a batch. Consecutive datagrams of the same lane are sent together.
    fn route(&mut self, now: Time, batch: &Batch<'_>, common: &mut Common<'_>) {
        let (mut at, count) = (0, batch.count());
        while at < count {
            let lane = self.lane(now, batch.datagram(at), common);
            let end = at + self.run_of(lane, now, batch, at, common);
            while at < end {
                at += match lane {
                    Lane::Free => self.send_scheduled(now, batch, at, end - at, common),
                    Lane::Pinned => self.send_pinned(now, batch, at, end - at, common),
                };
            }
        }
    }

    /// Returns the lane of a datagram.
    fn lane(&mut self, now: Time, datagram: &[u8], common: &mut Common<'_>) -> Lane {
        let is_named = common.handshake().is_some();
        let is_pinned = match self.protocol {
            Some(Protocol::Quic) => {
                let lane = self.pins.on_client(now, datagram);
                self.release(now, common);
                return lane;
            }
            Some(Protocol::Dns) => is_named,
            Some(Protocol::WireGuard) => {
                (is_named || self.cookie_route(now, common).is_some())
                    && wireguard::Message::of(datagram)
                        .is_some_and(wireguard::Message::is_handshake)
            }
            _ => false,
        };
        if is_pinned { Lane::Pinned } else { Lane::Free }
    }

    /// Returns how many consecutive datagrams, from number `at` on, belong to `lane`.
    fn run_of(
        &mut self,
        lane: Lane,
        now: Time,
        batch: &Batch<'_>,
        at: u64,
        common: &mut Common<'_>,
    ) -> u64 {
        let looks_at_each = match self.protocol {
            Some(Protocol::Quic) => true,
            Some(Protocol::WireGuard) => common.handshake().is_some() || self.cookie.is_some(),
            _ => false,
        };
        let left = batch.count() - at;
        if !looks_at_each {
            return left;
        }
        (1..left)
            .find(|&index| self.lane(now, batch.datagram(at + index), common) != lane)
            .unwrap_or(left)
    }

    /// Sends up to `count` datagrams by the schedule. Returns how many were sent or queued.
    fn send_scheduled(
        &mut self,
        now: Time,
        batch: &Batch<'_>,
        at: u64,
        count: u64,
        common: &mut Common<'_>,
    ) -> u64 {
        // No datagram may overtake datagrams that wait for a window.
        let next = match self.backlog.is_empty() {
            true => {
                self.look(common);
                self.splitter.assign(now, &self.views, count)
            }
            false => Assignment::Hold,
        };
        match next {
            Assignment::Send { path, units, fresh } => {
                self.emit_run(now, (path, fresh), (batch, at, units), common);
                units
            }
            Assignment::Nowhere | Assignment::Hold if common.windows.is_some() => {
                self.await_window(now, (batch, at, count), common);
                count
            }
            Assignment::Nowhere | Assignment::Hold => {
                self.keep(now, batch, at, count, common);
                count
            }
        }
    }

    /// Sends `units` datagrams by the path that the splitter has assigned.
    fn emit_run(
        &mut self,
        now: Time,
        (path, fresh): (PathId, bool),
        (batch, at, units): (&Batch<'_>, u64, u64),
        common: &mut Common<'_>,
    ) {
        if fresh {
            self.tuples.rotate(path);
            self.stay.runs += 1;
        }
        if let Some(windows) = &mut common.windows {
            windows[path.index()].sent(units);
        }
        let tuple = self.tuples.current(path);
        self.emit(now, (path, tuple), batch, at, units, common);
    }

    /// Copies the present state of the windows into the scheduler's views.
    fn look(&mut self, common: &Common<'_>) {
        let Some(windows) = &common.windows else { return };
        for index in 0..self.views.len() {
            let usable = windows[index].usable && self.is_open(PathId::at(index), common);
            self.views[index] = PathView { usable, ..windows[index] };
        }
    }

    /// Queues `count` datagrams until a window has room.
    fn await_window(
        &mut self,
        now: Time,
        (batch, at, count): (&Batch<'_>, u64, u64),
        common: &mut Common<'_>,
    ) {
        if self.backlog.is_empty() {
            common.held.push_back(self.id);
        }
        for index in at..at + count {
            let bytes: Box<[u8]> = batch.datagram(index).into();
            let length = bytes.len();
            let queued = QueuedDatagram { since: now, bytes, ecn: batch.ecn };
            self.backlog.push(now, (queued, length), common.room.patience);
        }
        *common.no_path += self.backlog.take_dropped();
    }

    /// Sends some of the datagrams that wait for a window. The others wait for the session's next
    /// turn. Returns whether any were sent.
    pub(crate) fn use_windows(&mut self, now: Time, common: &mut Common<'_>) -> bool {
        let (mut went, outer) = (0, common.kept);
        while went < TURN {
            self.look(common);
            let next = self.backlog.assign(now, &mut self.splitter, &self.views);
            let Some((path, units, mut fresh)) = next else { break };
            for _ in 0..units {
                let Some(queued) = self.backlog.pop() else { break };
                common.kept = Some(queued.since);
                let batch = Batch::single(&queued.bytes, queued.ecn);
                self.emit_run(now, (path, std::mem::take(&mut fresh)), (&batch, 0, 1), common);
            }
            went += units;
        }
        common.kept = outer;
        *common.no_path += self.backlog.take_dropped();
        if !self.backlog.is_empty() {
            common.held.push_back(self.id);
        }
        went > 0
    }

    /// Sends datagrams by the path of handshakes. Returns how many were sent or queued, which is
    /// all of them.
    fn send_pinned(
        &mut self,
        now: Time,
        batch: &Batch<'_>,
        at: u64,
        count: u64,
        common: &mut Common<'_>,
    ) -> u64 {
        let cookie = self.cookie_route(now, common);
        if let (Some(_), Some(cookie)) = (cookie, &mut self.cookie) {
            cookie.use_up();
        }
        match cookie.or_else(|| self.handshake_path(now, common)) {
            Some(pin) => self.emit(now, pin, batch, at, count, common),
            None => {
                self.pins.has_not_left();
                self.keep(now, batch, at, count, common);
            }
        }
        count
    }

    /// Returns the path and tuple for a handshake that answers a cookie. Returns `None` if there
    /// is no cookie, or if the path is closed or may carry no handshakes.
    fn cookie_route(&self, now: Time, common: &Common<'_>) -> Option<(PathId, TupleId)> {
        let way = self.cookie.as_ref()?.way(now)?;
        let is_free = common.handshake().is_none_or(|named| named == way.0);
        (is_free && self.is_open(way.0, common)).then_some(way)
    }

    /// Queues `count` datagrams until a path is usable.
    fn keep(&mut self, now: Time, batch: &Batch<'_>, at: u64, count: u64, common: &mut Common<'_>) {
        let since = common.kept.unwrap_or(now);
        *common.no_path += self.waiting.keep(since, batch, at, count, common.room.patience);
    }

    /// Returns the path and tuple of handshakes. If the user named a handshake path, returns that
    /// path, or `None` if it is not usable: the observers of the other paths must not see
    /// handshakes. Otherwise the schedule chooses a path, which is used until the handshake is
    /// confirmed.
    fn handshake_path(&mut self, now: Time, common: &mut Common<'_>) -> Option<(PathId, TupleId)> {
        let before = self.pinned_to;
        let still_good = |path: &PathId| self.is_open(*path, common);
        let path = match common.handshake() {
            Some(path) => Some(path).filter(still_good),
            None => {
                self.beyond_silence(now).or(before.map(|pin| pin.0)).filter(still_good).or_else(
                    || match self.splitter.assign(now, &self.views, 1) {
                        Assignment::Send { path, .. } => Some(path),
                        Assignment::Hold | Assignment::Nowhere => None,
                    },
                )
            }
        };
        let kept = before.filter(|pin| Some(pin.0) == path);
        self.pinned_to = kept.or(path.map(|path| (path, self.tuples.current(path))));
        if let Some((path, _)) = self.pinned_to.filter(|_| kept.is_none() && self.pins.any()) {
            self.pinned_at = now;
            common.event(Event::Pinned { session: self.id, path });
        }
        self.pinned_to
    }

    /// Sends `count` datagrams of a batch by `path`.
    fn emit(
        &mut self,
        now: Time,
        (path, tuple): (PathId, TupleId),
        batch: &Batch<'_>,
        at: u64,
        count: u64,
        common: &mut Common<'_>,
    ) {
        self.push(tuple, path, batch, at, count, common);
        common.fingerprints.remember(now, batch.datagram(at), self.chain);
        self.note_sent(now, path, batch.datagram(at), common);
        self.send_again(now, path, (batch, at, count), common);
        let last = self.last.replace((now, path, tuple));
        let moves = last.is_none_or(|(_, before, _)| before != path);
        if moves {
            self.order.visit(now, path);
            self.split |= last.is_some();
        }
        let pause = last.map_or(Duration::ZERO, |(since, ..)| now.since(since));
        self.stay.on_sent(path, count, pause);
        self.report_stay(common);
        let Some((_, before, its_tuple)) = last else { return };
        if its_tuple != tuple {
            common.counters[path.index()].switches += 1;
        }
        self.health[before.index()].on_used(pause);
        // After a change of path all paths are judged: the path that was left may turn out to be
        // silent while others are used.
        let all = if moves { 0..self.health.len() } else { before.index()..before.index() + 1 };
        all.for_each(|index| self.check_silence(now, PathId::at(index), common));
    }

    fn push(
        &mut self,
        tuple: TupleId,
        path: PathId,
        batch: &Batch<'_>,
        at: u64,
        count: u64,
        common: &mut Common<'_>,
    ) {
        let part = batch.part(at, count);
        let bytes = part.len() as u64;
        common.counters[path.index()].up.add(count, bytes);
        let payload = match common.kept {
            Some(_) => Payload::Kept { bytes: batch.bytes[part].into(), ecn: batch.ecn },
            None => Payload::Live(part),
        };
        common.outputs.push_back(Output::Send { session: self.id, tuple, path, payload });
    }

    fn take_down(&mut self, now: Time, path: PathId, reason: DownReason, common: &mut Common<'_>) {
        if self.health[path.index()].take_down(now, reason) {
            common.event(Event::Down { path, session: Some(self.id), reason });
        }
    }

    fn report_up(&mut self, now: Time, path: PathId, common: &mut Common<'_>) {
        common.event(Event::Up { path, session: Some(self.id) });
        self.refresh(common);
        self.flush(now, common);
    }

    /// Returns whether a path can carry datagrams of this session now.
    fn is_open(&self, path: PathId, common: &Common<'_>) -> bool {
        let index = path.index();
        common.broken[index].is_none() && !self.health[index].is_down() && self.tuples.allows(path)
    }

    /// Updates which paths the scheduler may use.
    fn refresh(&mut self, common: &Common<'_>) {
        for index in 0..self.views.len() {
            self.views[index].usable = self.is_open(PathId::at(index), common);
        }
    }

    /// Sends the datagrams that wait for a path, as far as a path is open for them.
    fn flush(&mut self, now: Time, common: &mut Common<'_>) {
        if !self.resolved
            || !(0..self.health.len()).any(|index| self.is_open(PathId::at(index), common))
        {
            return;
        }
        let mut waited = std::mem::take(&mut self.waiting);
        let outer = common.kept;
        while let Some(kept) = waited.take() {
            // A datagram that again finds no path has waited since its arrival, not since now.
            common.kept = Some(kept.since);
            self.route(now, &Batch::single(&kept.bytes, kept.ecn), common);
        }
        common.kept = outer;
    }

    /// Passes the server's datagrams to the pins, which may confirm handshakes.
    fn confirm(&mut self, now: Time, batch: &Batch<'_>, common: &mut Common<'_>) {
        if self.pins.any() {
            (0..batch.count()).for_each(|index| self.pins.on_server(now, batch.datagram(index)));
            self.release(now, common);
        }
    }

    /// Lets the schedule choose the session's path once no connection is pinned any more.
    fn release(&mut self, now: Time, common: &mut Common<'_>) {
        if self.pins.take_release() {
            self.pinned_to = None;
            self.splitter.begin_run(now);
            let rtt = self.pins.rtt().unwrap_or_default();
            common.event(Event::Released { session: self.id, rtt });
        }
    }
}

/// Returns the queue that delays the session's datagrams; `None` if the settings demand no delay.
fn delay(id: SessionId, config: &Config) -> Option<Box<DelayQueue<QueuedDatagram>>> {
    let stream = seed::stream(config.seed, id.0, "jitter");
    config.jitter.map(|jitter| Box::new(DelayQueue::new(jitter, stream)))
}

/// Returns the session's own splitter, with its draw of the schedule. `change` is the number of the
/// change of settings that caused this draw; `None` for the first draw. If `keeps` is true, the
/// session stays on one path: its runs never end, and its schedule is never redrawn.
fn splitter(id: SessionId, config: &Config, keeps: bool, change: Option<u64>) -> Splitter {
    let suffix = change.map_or_else(String::new, |change| format!(" {change}"));
    let seed = config.seed;
    let dice = move |purpose: &str| seed::stream(seed, id.0, &format!("{purpose}{suffix}"));
    let (every, redraw) = if keeps { (Every::Never, None) } else { (config.every, config.redraw) };
    let drawn = Splitter::drawn(&config.schedule, config.scheduled(), every, redraw, dice);
    drawn.expect("the core has built this schedule for this number of paths")
}
