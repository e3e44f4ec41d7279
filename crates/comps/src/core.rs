//! The splitter's state machine, without I/O: all sessions, and the table of their timers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use std::time::Duration;

use anabranch_multipath::schedule::SpecError;
use anabranch_multipath::{DELAYED_BYTES, PathId, PathView, Time, seed};

use crate::io::{Ends, Failure, Input, Output};
use crate::looped::CHAIN;
use crate::session::{Common, Origin, Room, Session};
use crate::tuples::Tuples;
use crate::{
    Batch, CloseReason, Config, DownReason, Event, PathCounters, Renumbering, SessionId, Silent,
    Snapshot, TupleId, Unsplit,
};

/// Minimum time between two searches for an idle session to close when the limit on sessions is
/// reached. A search reads all sessions.
const EVICTION_PAUSE: Duration = Duration::from_millis(100);
/// Minimum idle time of a session before it may be closed in favour of a new one.
const EVICTABLE: Duration = Duration::from_secs(10);
/// Maximum number of new sessions per second, after a burst of at most `Config::sessions`. The
/// limit bounds the rate at which sockets are opened.
const OPENINGS: u64 = 1_000;
/// Minimum pause between two reports of the same problem.
const COMPLAINT_PAUSE: Duration = Duration::from_secs(1);
/// Maximum bytes of datagrams that may wait until a path is usable. The first value is for all
/// sessions together, the second for one session.
const WAITING: (usize, usize) = (64 << 20, 192 << 10);
/// Maximum bytes of one session's datagrams that may be queued until a path's congestion window
/// has room.
const FOR_A_WINDOW: usize = 2 << 20;

/// The splitter without I/O: it assigns the datagrams of all sessions to paths.
///
/// An [`Output`] may refer to a part of the batch just handled. So the driver polls the core until
/// no output is left (`None`), and only then reuses the batch's buffer.
#[derive(Debug)]
pub struct Core {
    /// The settings, and the state that all sessions read and change.
    common: Common,
    sessions: BTreeMap<SessionId, Box<Session>>,
    clients: BTreeMap<Ends, SessionId>,
    timers: BTreeSet<(Time, SessionId)>,
    unanswered: VecDeque<SessionId>,
    next_session: u64,
    /// The time of the driver's latest call, for counters that depend on the time.
    latest: Time,
    next_eviction: Time,
    /// Time at which the next session would open at the rate [`OPENINGS`] (GCRA's theoretical
    /// arrival time). A session may still open if this time is ahead of the present time by no
    /// more than the length of a burst.
    openings_due: Time,
    loop_limit: ReportLimit,
    refusal_limit: ReportLimit,
    /// Totals of closed sessions that were never split.
    unsplit: Unsplit,
    /// The indices of all tuples (paths with one of their source ports), which are the same in all
    /// sessions.
    layout: Tuples,
    own: BTreeSet<SocketAddr>,
    removed: PathCounters,
    /// Number of times that the settings were changed since the core was created.
    changes: u64,
    looped: u64,
    refused: u64,
}

impl Core {
    /// Returns a core without sessions.
    ///
    /// # Errors
    /// The schedule does not fit the number of paths.
    ///
    /// # Panics
    /// There is no path, a path has no ports, or a handshake path outside the schedule is not the
    /// last path.
    pub fn new(config: Config) -> Result<Core, SpecError> {
        check(&config)?;
        let layout = Tuples::new(&config.ports);
        Ok(Core {
            common: Common::new(config),
            sessions: BTreeMap::new(),
            clients: BTreeMap::new(),
            timers: BTreeSet::new(),
            unanswered: VecDeque::new(),
            next_session: 0,
            latest: Time::ZERO,
            next_eviction: Time::ZERO,
            openings_due: Time::ZERO,
            loop_limit: ReportLimit::default(),
            refusal_limit: ReportLimit::default(),
            unsplit: Unsplit::default(),
            layout,
            own: BTreeSet::new(),
            removed: PathCounters::default(),
            changes: 0,
            looped: 0,
            refused: 0,
        })
    }

    /// Returns all counters.
    pub fn snapshot(&self) -> Snapshot {
        let mut paths = self.common.counters.clone();
        for (index, counters) in paths.iter_mut().enumerate() {
            counters.works = self.common.broken[index].is_none();
            counters.rtt = self.sessions.values().filter_map(|session| session.rtt(index)).min();
            counters.silent_sessions =
                self.sessions.values().filter(|session| session.finds_silent(index)).count();
        }
        let mut unsplit = self.unsplit.clone();
        let alive = self.sessions.values().filter(|session| session.is_unsplit());
        let far_end = self.common.config.far_end;
        alive.for_each(|session| unsplit.add(session.origin.id, session.stay_reason(far_end)));
        Snapshot {
            paths,
            removed: self.removed,
            sessions: self.sessions.len(),
            silent: self.silent(),
            opened: self.next_session,
            unsplit,
            pinned: Vec::new(),
            no_path: self.common.no_path,
            waiting: self.sessions.values().map(|session| session.waiting()).sum(),
            hurried: self.common.hurried,
            looped: self.looped,
            refused: self.refused,
            missed: 0,
            not_returned: 0,
            foreign: 0,
            housekeeping: 0,
            far_end: None,
        }
    }

    /// Returns a summary of the sessions whose server is reported as silent; `None` if there are
    /// none.
    fn silent(&self) -> Option<Silent> {
        let all = self.sessions.values().filter_map(|session| session.silent_since());
        all.fold(None, |sum, (since, last)| {
            let Silent { sessions, waited, last: latest } =
                sum.unwrap_or(Silent { sessions: 0, waited: Duration::ZERO, last: None });
            let waited = waited.max(self.latest.since(since));
            Some(Silent { sessions: sessions + 1, waited, last: latest.max(last) })
        })
    }

    /// Replaces the settings while sessions are live. `before[i]` is the old index of the path
    /// with the new index `i`, or `None` if that path is new. Returns the map from old to new
    /// indices of paths and tuples (paths with one of their source ports), for the driver's
    /// sockets.
    ///
    /// A path that remains keeps its counters, its health and its sockets. A session whose path is
    /// removed takes another path at its next datagram. If the schedule, its paths or the seed
    /// changed, each session draws its schedule again. The protocol and the limit on sessions
    /// apply to later sessions only. A session sends nothing until [`Input::Resolved`] reports
    /// again which paths do not lead to its server.
    ///
    /// # Errors
    /// The schedule does not fit the number of paths. The old settings then stay in force.
    ///
    /// # Panics
    /// The conditions of [`Core::new`], or `before` names a path twice or has a wrong length.
    pub fn reconfigure(
        &mut self,
        now: Time,
        config: Config,
        before: &[Option<PathId>],
    ) -> Result<Renumbering, SpecError> {
        check(&config)?;
        let numbers = Renumbering::new(&self.common.config, &config, before);
        let old = self.common.reconfigure(config);
        self.changes += 1;
        self.layout = Tuples::new(&self.common.config.ports);
        self.common.broken = numbers.carry(self.common.broken.drain(..)).0;
        let (counters, gone) = numbers.carry(self.common.counters.drain(..));
        self.common.counters = counters;
        gone.iter().for_each(|counters| self.removed.absorb(counters));
        let draw = (!draws_alike(&old, &self.common.config, &numbers)).then_some(self.changes);
        let all: Vec<SessionId> = self.sessions.keys().copied().collect();
        for id in all {
            self.with(now, id, |session, common| session.reconfigure(&numbers, draw, common));
        }
        Ok(numbers)
    }

    fn on_client(&mut self, now: Time, ends: Ends, local: Option<IpAddr>, batch: &Batch<'_>) {
        let known = self.clients.get(&ends).copied();
        let Some(id) = known.or_else(|| self.open(now, ends, local, batch)) else { return };
        self.with(now, id, |session, common| session.on_client(now, batch, common));
    }

    fn on_resolved(&mut self, now: Time, id: SessionId, barred: &[PathId]) {
        if (0..self.common.config.ports.len()).all(|index| barred.contains(&PathId::at(index))) {
            return self.close(id, CloseReason::Unreachable);
        }
        self.with(now, id, |session, common| session.on_resolved(now, barred, common));
    }

    fn on_server(&mut self, now: Time, id: SessionId, tuple: TupleId, batch: &Batch<'_>) {
        let Some(path) = self.layout.path(tuple) else { return };
        self.with(now, id, |session, common| session.on_server(now, (path, tuple), batch, common));
    }

    fn on_late(&mut self, now: Time, id: SessionId, batch: &Batch<'_>) {
        if self.sessions.contains_key(&id) {
            self.removed.down.add(batch.count(), batch.bytes.len() as u64);
        }
        self.with(now, id, |session, common| session.on_late(now, batch, common));
    }

    /// Calls `act` with the session `id` and the state that all sessions share. Afterwards sets
    /// the session's timer again if the session's next deadline is earlier than before.
    fn with(&mut self, now: Time, id: SessionId, act: impl FnOnce(&mut Session, &mut Common)) {
        let most = if self.common.windows.is_some() { FOR_A_WINDOW } else { WAITING.1 };
        let share = WAITING.0 / self.sessions.len().max(1);
        self.common.room = Room { patience: share.min(most), delayed: share.min(DELAYED_BYTES) };
        let Some(session) = self.sessions.get_mut(&id) else { return };
        act(session, &mut self.common);
        let due = session.next_timeout(&self.common.config).max(now);
        // A timer that fires too early costs one check. Setting it again at each datagram would
        // cost more.
        if session.armed.is_none_or(|armed| due < armed) {
            if let Some(armed) = session.armed.replace(due) {
                self.timers.remove(&(armed, id));
            }
            self.timers.insert((due, id));
        }
    }

    /// Opens a session for a client. Returns `None` if the datagram is our own and was looped
    /// back, if sessions open too fast, or if their limit is reached and none may be closed.
    fn open(
        &mut self,
        now: Time,
        ends: Ends,
        local: Option<IpAddr>,
        batch: &Batch<'_>,
    ) -> Option<SessionId> {
        let (client, server) = ends;
        let chain = self.common.fingerprints.chain(now, batch.datagram(0));
        if self.own.contains(&client) || chain >= CHAIN {
            self.looped += batch.count();
            if self.loop_limit.due(now, batch.count()).is_some() {
                self.common.outputs.push_back(Output::Event(Event::Loop { client }));
            }
            return None;
        }
        if !self.may_open(now) || self.make_room(now).is_none() {
            self.refuse(now, client, batch.count());
            return None;
        }
        let id = SessionId(self.next_session);
        self.next_session += 1;
        let others = self.sessions.values().filter(|other| other.origin.ends.1 == server);
        let last_answer_before = others.filter_map(|other| other.last_heard()).max();
        let origin = Origin { id, ends, local, chain, last_answer_before };
        self.sessions.insert(id, Box::new(Session::new(origin, now, &self.common.config)));
        self.clients.insert(ends, id);
        self.unanswered.push_back(id);
        self.common.outputs.push_back(Output::Event(Event::Opened { session: id, client, server }));
        self.common.outputs.push_back(Output::Resolve { session: id, server });
        Some(id)
    }

    /// Returns whether the limit [`OPENINGS`] allows a new session now. If so, counts the session
    /// towards this limit.
    ///
    /// Without this limit, a program that sends each datagram from a new port would make us open
    /// sockets all the time.
    fn may_open(&mut self, now: Time) -> bool {
        let each = Duration::from_secs(1) / OPENINGS as u32;
        let burst = each * u32::try_from(self.common.config.sessions).unwrap_or(u32::MAX);
        if self.openings_due > now + burst {
            return false;
        }
        self.openings_due = self.openings_due.max(now) + each;
        true
    }

    fn refuse(&mut self, now: Time, client: SocketAddr, datagrams: u64) {
        self.refused += datagrams;
        if let Some(datagrams) = self.refusal_limit.due(now, datagrams) {
            self.common.outputs.push_back(Output::Event(Event::Refused { client, datagrams }));
        }
    }

    /// Makes room for a new session: if the limit on sessions is reached, closes one. This is the
    /// oldest session without an answer from its server or, if there is none, the session that has
    /// been idle longest. Returns `None` if no session may be closed, because all are in use.
    fn make_room(&mut self, now: Time) -> Option<()> {
        if self.sessions.len() < self.common.config.sessions {
            return Some(());
        }
        while let Some(id) = self.unanswered.pop_front() {
            if self.sessions.get(&id).is_some_and(|session| !session.has_answered()) {
                self.close(id, CloseReason::Evicted);
                return Some(());
            }
        }
        if now < self.next_eviction {
            return None;
        }
        self.next_eviction = now + EVICTION_PAUSE;
        let (&id, idlest) =
            self.sessions.iter().min_by_key(|(_, session)| session.last_client_datagram())?;
        if now.since(idlest.last_client_datagram()) < EVICTABLE {
            return None;
        }
        self.close(id, CloseReason::Evicted);
        Some(())
    }

    fn close(&mut self, id: SessionId, reason: CloseReason) {
        let Some(session) = self.sessions.remove(&id) else { return };
        self.clients.remove(&session.origin.ends);
        if let Some(armed) = session.armed {
            self.timers.remove(&(armed, id));
        }
        if self.unanswered.len() > 2 * self.common.config.sessions {
            let sessions = &self.sessions;
            self.unanswered
                .retain(|id| sessions.get(id).is_some_and(|session| !session.has_answered()));
        }
        self.common.no_path += session.waiting() as u64;
        if session.is_unsplit() {
            self.unsplit.add(id, session.stay_reason(self.common.config.far_end));
        }
        self.common.outputs.push_back(Output::Close { session: id });
        self.common.outputs.push_back(Output::Event(Event::Closed { session: id, reason }));
    }

    fn close_all(&mut self) {
        let all: Vec<SessionId> = self.sessions.keys().copied().collect();
        all.into_iter().for_each(|id| self.close(id, CloseReason::Shutdown));
    }

    /// Stores the congestion windows of the paths, and sends datagrams that waited for room in a
    /// window. Sessions take turns, and each sends a few datagrams per turn.
    fn on_windows(&mut self, now: Time, views: &[PathView]) {
        let Some(windows) = &mut self.common.windows else { return };
        windows.iter_mut().zip(views).for_each(|(window, view)| *window = *view);
        let mut goes_on = true;
        while goes_on {
            goes_on = false;
            for _ in 0..self.common.held.len() {
                let Some(id) = self.common.held.pop_front() else { break };
                self.with(now, id, |session, common| goes_on |= session.use_windows(now, common));
            }
        }
    }

    fn on_timeout(&mut self, now: Time, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.armed = None;
        if now.since(session.last_client_datagram()) >= self.common.config.idle {
            self.close(id, CloseReason::Idle);
            return;
        }
        self.with(now, id, |session, common| session.on_timeout(now, common));
    }

    fn on_failure(
        &mut self,
        now: Time,
        id: SessionId,
        tuple: TupleId,
        failure: Failure,
        datagrams: u64,
        bytes: u64,
    ) {
        let Some(path) = self.layout.path(tuple) else { return };
        let counters = &mut self.common.counters[path.index()];
        counters.up.take_back(datagrams, bytes);
        let reason = match failure {
            Failure::Full => return counters.drops.full += datagrams,
            Failure::TooBig => return counters.drops.too_big += datagrams,
            Failure::Refused => {
                counters.drops.unreachable += datagrams;
                return counters.refused += 1;
            }
            Failure::Unreachable => DownReason::Unreachable,
            Failure::Interface => DownReason::Interface,
            Failure::Proxy => DownReason::Proxy,
            Failure::NoSocket => DownReason::NoSocket,
        };
        counters.drops.unreachable += datagrams;
        self.with(now, id, |session, common| session.on_error(now, path, reason, common));
    }

    fn on_path_change(&mut self, now: Time, path: PathId, broken: Option<DownReason>) {
        if self.common.broken[path.index()] == broken {
            return;
        }
        self.common.broken[path.index()] = broken;
        let event = match broken {
            Some(reason) => Event::Down { path, session: None, reason },
            None => Event::Up { path, session: None },
        };
        self.common.outputs.push_back(Output::Event(event));
        let all: Vec<SessionId> = self.sessions.keys().copied().collect();
        for id in all {
            self.with(now, id, |session, common| session.on_path_change(now, common));
        }
    }
}

impl anabranch_multipath::Core for Core {
    type In<'a> = Input<'a>;
    type Out = Output;

    fn handle(&mut self, now: Time, input: Input<'_>) {
        self.latest = now;
        match input {
            Input::Client { client, server, local, batch } => {
                self.on_client(now, (client, server), local, &batch);
            }
            Input::Server { session, tuple, batch } => self.on_server(now, session, tuple, &batch),
            Input::Late { session, batch } => self.on_late(now, session, &batch),
            Input::Resolved { session, found: true, barred } => {
                self.on_resolved(now, session, barred);
            }
            Input::Resolved { session, found: false, .. } => {
                self.close(session, CloseReason::Unresolved);
            }
            Input::Opened { local } => drop(self.own.insert(local)),
            Input::Shut { local } => drop(self.own.remove(&local)),
            Input::Failed { session, tuple, failure, datagrams, bytes } => {
                self.on_failure(now, session, tuple, failure, datagrams, bytes);
            }
            Input::Path { path, broken } => self.on_path_change(now, path, broken),
            Input::Windows(views) => self.on_windows(now, views),
            Input::Shutdown => self.close_all(),
        }
    }

    fn poll(&mut self, now: Time) -> Option<Output> {
        self.latest = now;
        while self.common.outputs.is_empty() {
            let &(due, session) = self.timers.first()?;
            if due > now {
                return None;
            }
            self.timers.pop_first();
            self.on_timeout(now, session);
        }
        self.common.outputs.pop_front()
    }

    fn next_timeout(&self) -> Option<Time> {
        self.timers.first().map(|timer| timer.0)
    }
}

/// Checks that the settings are consistent.
///
/// # Errors
/// The schedule does not fit the number of paths.
fn check(config: &Config) -> Result<(), SpecError> {
    assert!(
        !config.ports.is_empty() && !config.ports.contains(&0),
        "there must be at least one path, and each path must have ports"
    );
    let apart = config.handshake.filter(|_| !config.handshake_scheduled);
    assert!(
        apart.is_none_or(|path| path == config.scheduled()),
        "a handshake path outside the schedule must be the last path"
    );
    config.schedule.build(config.scheduled(), seed::stream(config.seed, 0, "trial")).map(drop)
}

/// Returns whether `old` and `new` agree in all settings that affect the schedule's random
/// choices. If so, sessions keep the choices that they have already drawn.
fn draws_alike(old: &Config, new: &Config, numbers: &Renumbering) -> bool {
    let drawn = |config: &Config| {
        (config.schedule.to_string(), config.every, config.redraw, config.seed, config.scheduled())
    };
    drawn(old) == drawn(new) && numbers.keeps_first(new.scheduled())
}

/// Rate limit for reports of a problem that may recur with every datagram: at most one report per
/// [`COMPLAINT_PAUSE`].
#[derive(Debug, Default)]
struct ReportLimit {
    next: Time,
    unreported: u64,
}

impl ReportLimit {
    /// Adds `datagrams` to the count of datagrams since the last report. Returns this count if a
    /// report is due, else `None`.
    fn due(&mut self, now: Time, datagrams: u64) -> Option<u64> {
        self.unreported += datagrams;
        if now < self.next {
            return None;
        }
        self.next = now + COMPLAINT_PAUSE;
        Some(std::mem::take(&mut self.unreported))
    }
}
