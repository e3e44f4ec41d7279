//! One session: a client address and the server that this client wants. Each session has its own
//! random draw of the schedule and its own view of the paths' health.
//!
//! [`Session`] connects parts, each with its own state:
//!
//! * `recognition` determines the protocol.
//! * `handshakes` chooses the path of handshakes.
//! * `paths` has the session's paths: their health, their source ports, and which are usable.
//! * `queues` has the datagrams that wait.
//! * `arrivals` records when datagrams of both ends arrived.
//! * `usage` records the path of the latest datagrams.
//! * `follow` tests whether the server follows its client.
//! * `order` restores the order of the downlink.
//!
//! `mod.rs` handles the events, and `send` sends the client's datagrams. `silence` and `copies`
//! handle paths without answers.

mod answer_delay;
mod arrivals;
mod common;
mod cookie;
mod copies;
mod follow;
mod handshakes;
mod kept;
mod order;
mod paths;
mod pins;
mod queues;
mod recognition;
mod send;
mod silence;
mod usage;
mod wait;

use std::net::IpAddr;
use std::time::Duration;

use anabranch_multipath::{Every, PathId, Splitter, Time, seed};

use self::arrivals::Arrivals;
pub(crate) use self::common::{Common, Room};
use self::follow::Follow;
use self::handshakes::Handshakes;
use self::order::InOrder;
use self::paths::Paths;
use self::queues::Queues;
use self::recognition::Recognition;
use self::send::Run;
use self::usage::Usage;
use crate::config::Config;
use crate::io::Ends;
use crate::{
    Batch, DownReason, Event, HeldDatagrams, Output, Protocol, Renumbering, SessionId, TupleId,
};

/// The circumstances in which a session was opened; they never change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) id: SessionId,
    pub(crate) ends: Ends,
    /// The destination address of the client's datagrams, which is local; `None` if the listener
    /// has only one address.
    pub(crate) local: Option<IpAddr>,
    /// Position of the session in a chain of sessions; 0 for the first. Each session of a chain
    /// was opened by a copy of a datagram of the previous session. A long chain shows that our
    /// traffic returns to us in a loop.
    pub(crate) chain: u8,
    /// Time of the server's last answer in any other session, at the moment when this session was
    /// opened; `None` if it had not answered. A client may change its port, which opens a new
    /// session: Mosh's client does so every 10 s while no datagram arrives.
    pub(crate) last_answer_before: Option<Time>,
}

/// The state of one session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) origin: Origin,
    /// Time at which the session's timer in the table of all timers is due; `None` if it is not
    /// set.
    pub(crate) armed: Option<Time>,
    /// Whether the server's address is known.
    resolved: bool,
    recognition: Recognition,
    handshakes: Handshakes,
    splitter: Splitter,
    paths: Paths,
    follow: Follow,
    order: InOrder,
    queues: Queues,
    arrivals: Arrivals,
    usage: Usage,
}

impl Session {
    pub(crate) fn new(origin: Origin, now: Time, config: &Config) -> Session {
        let paths = config.ports.len();
        Session {
            origin,
            armed: None,
            resolved: false,
            recognition: Recognition::default(),
            handshakes: Handshakes::new(now),
            splitter: splitter(origin.id, config, false, None),
            paths: Paths::new(config),
            follow: Follow::new(paths),
            order: InOrder::new(paths),
            queues: Queues::new(origin.id, config),
            arrivals: Arrivals::new(now, origin.last_answer_before),
            usage: Usage::default(),
        }
    }

    /// Returns when the client's last datagram arrived.
    pub(crate) fn last_client_datagram(&self) -> Time {
        self.arrivals.client()
    }

    /// Returns whether the server ever answered.
    pub(crate) fn has_answered(&self) -> bool {
        self.arrivals.has_answered()
    }

    /// Returns when the server's last datagram arrived, in this session or in another one before
    /// it was opened. Returns `None` if there was no datagram.
    pub(crate) fn last_heard(&self) -> Option<Time> {
        self.arrivals.last_heard()
    }

    /// Returns when the reported silence of the server began, and when its last datagram arrived.
    /// Returns `None` if no silence was reported.
    pub(crate) fn silent_since(&self) -> Option<(Time, Option<Time>)> {
        self.arrivals.silent_since()
    }

    /// Returns the number of datagrams that wait for a path.
    pub(crate) fn waiting(&self) -> usize {
        self.queues.len()
    }

    /// Returns whether all datagrams of the client used the same path.
    pub(crate) fn is_unsplit(&self) -> bool {
        self.usage.is_unsplit()
    }

    /// Returns the round-trip time of `path`; `None` before it was measured.
    pub(crate) fn rtt(&self, path: usize) -> Option<Duration> {
        self.paths.health[path].rtt()
    }

    /// Returns whether the session does not use `path` because no answers arrived on it.
    pub(crate) fn finds_silent(&self, path: usize) -> bool {
        self.paths.health[path].reason().is_some_and(DownReason::needs_answer)
    }

    /// Records that the server's address is known, and that the `barred` paths do not reach it.
    /// Sends the datagrams that waited for the address.
    pub(crate) fn on_resolved(&mut self, now: Time, barred: &[PathId], common: &mut Common) {
        self.resolved = true;
        self.paths.tuples.bar(barred);
        if self.recognition.is(Protocol::Quic) {
            self.cut_tuples(common);
        }
        self.refresh(common);
        self.flush(now, common);
    }

    /// Adopts changed settings. If the schedule's random choices are to be drawn again, `draw` is
    /// the count of changes of the settings so far; otherwise it is `None`.
    ///
    /// Sends nothing, because only a later event reports which of the new paths lead to the
    /// session's server.
    pub(crate) fn reconfigure(
        &mut self,
        numbers: &Renumbering,
        draw: Option<u64>,
        common: &mut Common,
    ) {
        if draw.is_some() {
            let keeps = self.recognition.keeps_to_one_path(&common.config);
            self.splitter = splitter(self.origin.id, &common.config, keeps, draw);
        }
        self.queues.delay_as(self.origin.id, &common.config);
        self.paths.renumber(numbers, &common.config);
        self.follow = Follow::new(self.paths.len());
        for held in self.order.release_all() {
            self.return_to_client(Some(held), common);
        }
        self.order = InOrder::new(self.paths.len());
        self.handshakes.renumber(numbers);
        self.usage.renumber(numbers);
        if common.windows.is_none() {
            common.no_path += self.queues.drop_backlog();
        }
        if self.recognition.is(Protocol::Quic) {
            self.cut_tuples(common);
        }
        self.refresh(common);
    }

    /// Processes datagrams of the client.
    pub(crate) fn on_client(&mut self, now: Time, batch: &Batch<'_>, common: &mut Common) {
        self.arrivals.on_client(now);
        if self.queues.delays(now, batch, common.room.delayed) {
            self.take_delayed(now, common);
        } else {
            self.take(now, batch, common);
        }
    }

    /// Passes the datagrams whose delay is over to [`Session::take`], which assigns them to paths.
    fn take_delayed(&mut self, now: Time, common: &mut Common) {
        let outer = common.queued_at.replace(now);
        while let Some(queued) = self.queues.pop_delayed(now) {
            self.take(now, &Batch::single(&queued.bytes, queued.ecn), common);
        }
        common.queued_at = outer;
        common.hurried += self.queues.take_hurried(&common.config);
    }

    /// Assigns datagrams of the client to paths.
    fn take(&mut self, now: Time, batch: &Batch<'_>, common: &mut Common) {
        let quiet = self.arrivals.on_taken(now);
        if self.recognition.is_answered(batch.datagram(0)) {
            self.arrivals.wait.on_request(now);
        }
        self.recognise(batch, common);
        if !self.resolved {
            return self.keep(now, Run { batch, at: 0, count: batch.count() }, common);
        }
        self.try_down_paths(now, batch, common);
        if !self.hold_back(now, batch) {
            self.route(now, batch, common);
        }
        self.keep_paths_open(now, quiet, batch, common);
    }

    /// Processes datagrams of the server that arrived at the socket of `tuple` (a path's source
    /// port).
    pub(crate) fn on_server(
        &mut self,
        now: Time,
        (path, tuple): (PathId, TupleId),
        batch: &Batch<'_>,
        common: &mut Common,
    ) {
        let bytes = batch.bytes.len() as u64;
        common.counters[path.index()].down.add(batch.count(), bytes);
        self.record_arrival(now, common);
        self.arrivals.count_answer();
        self.pass_in_order(now, path, batch, common);
        if self.paths.on_answer(now, path, common.windows.is_some()) {
            self.report_up(now, path, common);
        }
        self.recognise_answers(batch, common);
        if self.recognition.is(Protocol::WireGuard) {
            self.handshakes.learn_cookie(now, (path, tuple), batch);
        }
        self.confirm(now, batch, common);
        self.follow.on_answer(now, path, bytes);
    }

    /// Processes datagrams of the server that arrived on a removed path.
    pub(crate) fn on_late(&mut self, now: Time, batch: &Batch<'_>, common: &mut Common) {
        self.record_arrival(now, common);
        self.return_to_client(None, common);
        self.confirm(now, batch, common);
    }

    /// Sends datagrams to the client, or holds them until earlier datagrams have arrived.
    fn pass_in_order(&mut self, now: Time, path: PathId, batch: &Batch<'_>, common: &mut Common) {
        self.release_in_order(now, common);
        if common.config.in_order.is_none() || self.order.passes(now, path, batch) {
            self.return_to_client(None, common);
        }
        // Held datagrams may be next in order after the datagrams just sent.
        self.release_in_order(now, common);
    }

    /// Sends the client the datagrams that were held long enough.
    fn release_in_order(&mut self, now: Time, common: &mut Common) {
        let Some(longest) = common.config.in_order else { return };
        for held in self.order.release(now, longest) {
            self.return_to_client(Some(held), common);
        }
    }

    fn return_to_client(&mut self, held: Option<HeldDatagrams>, common: &mut Common) {
        let (client, server) = self.origin.ends;
        common.outputs.push_back(Output::SendToClient {
            client,
            server,
            local: self.origin.local,
            held,
        });
    }

    /// Records an error of `path` that concerns only this session.
    pub(crate) fn on_error(
        &mut self,
        now: Time,
        path: PathId,
        reason: DownReason,
        common: &mut Common,
    ) {
        self.take_down(now, path, reason, common);
        self.refresh(common);
    }

    /// Adapts to a path that broke, or works again, for all sessions: sends waiting datagrams if a
    /// path is usable again.
    pub(crate) fn on_path_change(&mut self, now: Time, common: &mut Common) {
        self.refresh(common);
        self.flush(now, common);
    }

    /// Executes all actions of this session that are due at `now`.
    pub(crate) fn on_timeout(&mut self, now: Time, common: &mut Common) {
        common.no_path += self.queues.waiting.expire(now);
        for index in 0..self.paths.len() {
            if self.paths.health[index].recover_if_quiet(now) {
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
    fn record_arrival(&mut self, now: Time, common: &mut Common) {
        if let Some(waited) = self.arrivals.on_server(now) {
            common.event(Event::Answered {
                session: self.origin.id,
                server: self.origin.ends.1,
                waited,
            });
        }
    }

    /// Reports that the server answers on no path, if such a report is due.
    fn report_unanswered(&mut self, now: Time, common: &mut Common) {
        if !self.usage.has_sent() {
            return;
        }
        let Some(waited) = self.arrivals.wait.overdue(now) else { return };
        if now >= common.next_unanswered {
            common.next_unanswered = now + wait::FIRST;
            let (server, last) = (self.origin.ends.1, self.last_heard());
            common.event(Event::Unanswered { session: self.origin.id, server, waited, last });
        }
    }

    /// Returns when [`Session::on_timeout`] is due. The idle timeout of the session is included.
    pub(crate) fn next_timeout(&self, config: &Config) -> Time {
        let in_order = config.in_order.and_then(|longest| self.order.next_timeout(longest));
        let unanswered = self.arrivals.wait.due().filter(|_| self.usage.has_sent());
        let all = [self.paths.next_timeout(), self.queues.next_timeout(), in_order, unanswered];
        all.into_iter().flatten().fold(self.arrivals.client() + config.idle, Time::min)
    }

    /// Limits the session's four-tuples to the number that a QUIC connection may have.
    fn cut_tuples(&mut self, common: &Common) {
        self.paths.tuples.cut(
            common.config.quic_tuples,
            common.handshake(),
            common.config.handshake_scheduled,
        );
    }

    fn take_down(&mut self, now: Time, path: PathId, reason: DownReason, common: &mut Common) {
        if self.paths.health_of(path).take_down(now, reason) {
            common.event(Event::Down { path, session: Some(self.origin.id), reason });
        }
    }

    fn report_up(&mut self, now: Time, path: PathId, common: &mut Common) {
        common.event(Event::Up { path, session: Some(self.origin.id) });
        self.refresh(common);
        self.flush(now, common);
    }

    /// Updates which paths the scheduler may use.
    fn refresh(&mut self, common: &Common) {
        self.paths.refresh(&common.broken);
    }

    /// Passes the server's datagrams to the state of pinned QUIC connections (bound to one path).
    /// The datagrams may confirm handshakes.
    fn confirm(&mut self, now: Time, batch: &Batch<'_>, common: &mut Common) {
        let pins = &mut self.handshakes.pins;
        if pins.any() {
            (0..batch.count()).for_each(|index| pins.on_server(now, batch.datagram(index)));
            self.release(now, common);
        }
    }

    /// Ends the restriction to one path once no QUIC connection of the session is pinned (bound to
    /// one path) any more. From then on, the schedule chooses the path.
    fn release(&mut self, now: Time, common: &mut Common) {
        if self.handshakes.release() {
            let rtt = self.handshakes.pins.rtt();
            self.splitter.begin_run(now);
            common.event(Event::Released { session: self.origin.id, rtt });
        }
    }
}

/// Returns the [`Splitter`] that chooses the paths of one session, with the random parameters of
/// the schedule drawn for this session. `change` is the count of changes of the settings so far,
/// so that each draw differs; `None` for the first draw. If `keeps` is true, the session stays on
/// one path: the schedule never chooses a path again, and its random choices are never drawn
/// again.
fn splitter(id: SessionId, config: &Config, keeps: bool, change: Option<u64>) -> Splitter {
    let suffix = change.map_or_else(String::new, |change| format!(" {change}"));
    let seed = config.seed;
    let dice = move |purpose: &str| seed::stream(seed, id.0, &format!("{purpose}{suffix}"));
    let (every, redraw) = if keeps { (Every::Never, None) } else { (config.every, config.redraw) };
    let drawn = Splitter::drawn(&config.schedule, config.scheduled(), every, redraw, dice);
    drawn.expect("the core has already built this schedule for this number of paths")
}
