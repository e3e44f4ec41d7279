//! Independent record of the core's inputs and outputs, which checks its promises.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use anabranch_comps::protocol::{quic, wireguard};
use anabranch_comps::{
    Batch, Config, Event, Output, PathCounters, Payload, Protocol, Renumbering, SessionId,
    Snapshot, TupleId,
};
use anabranch_multipath::PathId;

/// Maximum datagrams that a session keeps while it has no path (`comps::waiting`).
const WAITING: usize = 128;
/// Maximum datagrams of a session that are delayed before the split (`multipath::DelayQueue`).
const DELAYED: usize = 4_096;

/// Ends of a session: a client, and the server that it named.
pub(super) type Ends = (SocketAddr, Option<SocketAddr>);

/// Latest input of the core.
pub(super) enum Cause<'a> {
    Client(&'a Batch<'a>),
    Server(SessionId),
    Time,
}

struct Session {
    ends: Ends,
    resolved: bool,
    /// Paths on which the session's server cannot be reached.
    barred: Vec<PathId>,
    protocol: Option<Protocol>,
    tuples: BTreeSet<TupleId>,
}

/// Number of times that a datagram arrived and was sent.
#[derive(Default)]
struct Passages {
    taken: u64,
    sent: u64,
}

/// Numbers of datagrams sent on a path, and of those reported as lost later.
#[derive(Clone, Default)]
struct Outgoing {
    sent: u64,
    lost: u64,
}

pub(super) struct Ledger {
    config: Config,
    pub(super) broken: Vec<bool>,
    sessions: BTreeMap<SessionId, Session>,
    passages: BTreeMap<(Ends, Vec<u8>), Passages>,
    paths: Vec<Outgoing>,
    /// Sums of the paths that were removed.
    removed: Outgoing,
    /// Largest number of paths at any time so far.
    most_paths: usize,
    /// Maximum datagrams of a session that may wait with any settings so far.
    most_waiting: usize,
    /// Largest limit of sessions so far: a lower limit closes no session.
    most_sessions: usize,
    used: Vec<(SessionId, TupleId)>,
    /// All reported events. Tests check with them that a script reaches certain code.
    pub(super) events: Vec<Event>,
}

impl Ledger {
    pub(super) fn new(config: &Config) -> Ledger {
        let paths = config.ports.len();
        Ledger {
            config: config.clone(),
            broken: vec![false; paths],
            sessions: BTreeMap::new(),
            passages: BTreeMap::new(),
            paths: vec![Outgoing::default(); paths],
            removed: Outgoing::default(),
            most_paths: paths,
            most_waiting: most_waiting(config),
            most_sessions: config.sessions,
            used: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Records a batch of a client.
    pub(super) fn takes(&mut self, ends: Ends, batch: &Batch<'_>) {
        for index in 0..batch.count() {
            self.passages.entry((ends, batch.datagram(index).to_vec())).or_default().taken += 1;
        }
    }

    /// Returns one of the tuples that were used for sending.
    pub(super) fn used(&self, number: usize) -> Option<(SessionId, TupleId)> {
        self.used.get(number % self.used.len().max(1)).copied()
    }

    pub(super) fn resolved(&mut self, session: SessionId, found: bool, barred: &[PathId]) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.resolved = found;
            session.barred = barred.to_vec();
        }
    }

    /// Records a new configuration, with its numbers for paths and tuples.
    pub(super) fn reconfigured(
        &mut self,
        config: &Config,
        numbers: &Renumbering,
        before: &[Option<PathId>],
    ) {
        let kept = |path: &Option<PathId>| path.map(PathId::index);
        let broken = before.iter().map(|path| kept(path).is_some_and(|path| self.broken[path]));
        self.broken = broken.collect();
        let gone = (0..self.paths.len()).filter(|path| !before.contains(&Some(PathId::at(*path))));
        for path in gone {
            self.removed.sent += self.paths[path].sent;
            self.removed.lost += self.paths[path].lost;
        }
        let paths = before.iter().map(|path| kept(path).map(|path| self.paths[path].clone()));
        self.paths = paths.map(Option::unwrap_or_default).collect();
        let tuple = |tuple: &TupleId| numbers.tuple(*tuple).map(|(_, tuple)| tuple);
        for session in self.sessions.values_mut() {
            // The tuples of each connection are chosen again, so the earlier ones no longer count.
            session.tuples.clear();
            session.barred = session.barred.iter().filter_map(|path| numbers.path(*path)).collect();
        }
        let used = std::mem::take(&mut self.used).into_iter();
        self.used = used.filter_map(|(id, its)| Some((id, tuple(&its)?))).collect();
        self.most_paths = self.most_paths.max(before.len());
        self.most_sessions = self.most_sessions.max(config.sessions);
        self.most_waiting = self.most_waiting.max(most_waiting(config));
        self.config = config.clone();
    }

    /// Returns the sessions whose server is known, each with the paths on which the server cannot
    /// be reached.
    pub(super) fn resolved_sessions(&self) -> Vec<(SessionId, Vec<PathId>)> {
        let resolved = self.sessions.iter().filter(|(_, session)| session.resolved);
        resolved.map(|(id, session)| (*id, session.barred.clone())).collect()
    }

    /// Records that a datagram of one byte sent on `tuple` was lost. Returns the numbers of
    /// datagrams and bytes; zeros if all datagrams were lost before.
    pub(super) fn loses(&mut self, session: SessionId, tuple: TupleId) -> (u64, u64) {
        let path = self.path_of(tuple);
        let outgoing = &mut self.paths[path];
        if !self.sessions.contains_key(&session) || outgoing.lost == outgoing.sent {
            return (0, 0);
        }
        outgoing.lost += 1;
        (1, 1)
    }

    /// Checks one output.
    pub(super) fn sees(&mut self, output: Output, cause: &Cause<'_>) {
        match output {
            Output::Send { session, tuple, path, payload } => {
                self.leaves(session, tuple, path, &payload, cause);
            }
            Output::SendToClient { client, server, held: None, .. } => {
                self.returns((client, server), cause);
            }
            Output::SendToClient { client, server, held: Some(held), .. } => {
                let ends = (client, server);
                assert!(self.sessions.values().any(|session| session.ends == ends), "{ends:?}");
                assert!(held.bytes.len() <= held.stride.max(1) * 64, "{held:?}");
            }
            Output::Close { session } => {
                assert!(self.sessions.remove(&session).is_some(), "{session:?} was not open");
                self.used.retain(|(its, _)| *its != session);
            }
            Output::Event(event) => self.happens(event),
            Output::Resolve { .. } => {}
        }
    }

    /// Checks that sessions and memory stay within their limits.
    pub(super) fn is_bounded(&self, snapshot: &Snapshot) {
        assert!(snapshot.sessions <= self.most_sessions, "{snapshot:?}");
        assert_eq!(snapshot.sessions, self.sessions.len());
        assert!(snapshot.waiting <= self.most_waiting * snapshot.sessions, "{snapshot:?}");
        let removed = (&snapshot.removed, &self.removed);
        for (counters, outgoing) in snapshot.paths.iter().zip(&self.paths).chain([removed]) {
            assert_eq!(counters.up.datagrams, outgoing.sent - outgoing.lost, "{snapshot:?}");
            assert_eq!(dropped(counters), outgoing.lost, "{snapshot:?}");
        }
    }

    /// Checks that nothing is left at the end, and that no datagram was sent that did not arrive.
    pub(super) fn is_settled(&self, snapshot: &Snapshot) {
        assert!(self.sessions.is_empty(), "sessions outlive the program");
        self.is_bounded(snapshot);
        let taken: u64 = self.passages.values().map(|passages| passages.taken).sum();
        let sent: u64 = self.paths.iter().chain([&self.removed]).map(|path| path.sent).sum();
        let counters = snapshot.paths.iter().chain([&snapshot.removed]);
        let copies: u64 = counters.map(|counters| counters.copies).sum();
        let accounted = sent - copies + snapshot.no_path + snapshot.looped;
        assert!(accounted <= taken, "{accounted} of {taken} datagrams: {snapshot:?}");
    }

    fn happens(&mut self, event: Event) {
        self.events.push(event.clone());
        match event {
            Event::Opened { session, client, server } => {
                let ends = (client, server);
                let (barred, tuples) = (Vec::new(), BTreeSet::new());
                let fresh = Session { ends, resolved: false, barred, protocol: None, tuples };
                assert!(self.sessions.insert(session, fresh).is_none(), "{session:?} twice");
            }
            Event::Recognised { session, protocol, .. } => {
                let session = self.session(session);
                // The core could not count datagrams that were sent earlier as another protocol.
                if session.protocol.replace(protocol) != Some(protocol) {
                    session.tuples.clear();
                }
            }
            Event::Down { path, .. } | Event::Up { path, .. } | Event::Pinned { path, .. } => {
                assert!(path.index() < self.paths.len(), "{event:?}");
            }
            _ => {}
        }
    }

    /// Checks that an answer goes to the client of its session.
    fn returns(&self, ends: Ends, cause: &Cause<'_>) {
        let Cause::Server(session) = cause else { panic!("an answer of nobody to {ends:?}") };
        let its = self.sessions.get(session).map(|session| session.ends);
        assert_eq!(its, Some(ends), "an answer for another client");
    }

    fn leaves(
        &mut self,
        id: SessionId,
        tuple: TupleId,
        path: PathId,
        payload: &Payload,
        cause: &Cause<'_>,
    ) {
        assert_eq!(self.path_of(tuple), path.index(), "{tuple:?} belongs to another path");
        assert!(!self.broken[path.index()], "{path:?} is broken");
        let session = self.session(id);
        assert!(session.resolved, "{id:?} has no server yet");
        session.tuples.insert(tuple);
        assert!(!session.barred.contains(&path), "{path:?} does not lead there");
        let (ends, protocol) = (session.ends, session.protocol);
        let is_cut = protocol == Some(Protocol::Quic);
        let tuples = session.tuples.len();
        let apart = self.config.handshake.is_some() && !self.config.handshake_scheduled;
        let most = self.config.quic_tuples.max(1 + usize::from(apart));
        assert!(!is_cut || tuples <= most, "{tuples} four-tuples");
        for datagram in datagrams(payload, cause) {
            self.belongs(&datagram, path, protocol);
            self.passes(ends, datagram);
            self.paths[path.index()].sent += 1;
        }
        if !self.used.contains(&(id, tuple)) {
            self.used.push((id, tuple));
        }
    }

    /// Checks that a datagram is sent at most once, plus one copy for each path, for each time that
    /// it arrived.
    fn passes(&mut self, ends: Ends, datagram: Vec<u8>) {
        let most = 1 + self.most_paths as u64;
        let passages = self.passages.entry((ends, datagram)).or_default();
        passages.sent += 1;
        assert!(
            passages.sent <= passages.taken * most,
            "came {} times, left {} times",
            passages.taken,
            passages.sent
        );
    }

    /// Checks that handshakes use the handshake path, and that other datagrams do not if it is
    /// separate.
    fn belongs(&self, datagram: &[u8], path: PathId, protocol: Option<Protocol>) {
        let Some(handshake) = self.config.handshake else { return };
        let is_there = path.index() == handshake;
        let is_apart = !self.config.handshake_scheduled;
        let must_be_there = match protocol {
            Some(Protocol::Quic) => quic::has_long_header(datagram),
            Some(Protocol::Dns) => true,
            Some(Protocol::WireGuard) => {
                wireguard::Message::of(datagram).is_some_and(wireguard::Message::is_handshake)
            }
            _ => false,
        };
        assert!(is_there || !must_be_there, "a handshake of {protocol:?} leaves by {path:?}");
        // A QUIC packet with a short header may belong to a handshake that is not confirmed yet.
        let may_be_there = must_be_there || !is_apart || protocol == Some(Protocol::Quic);
        assert!(may_be_there || !is_there, "{protocol:?} leaves by the path kept for handshakes");
    }

    fn session(&mut self, id: SessionId) -> &mut Session {
        self.sessions.get_mut(&id).unwrap_or_else(|| panic!("{id:?} is not open"))
    }

    fn path_of(&self, tuple: TupleId) -> usize {
        let mut after = 0;
        let found = self.config.ports.iter().position(|&ports| {
            after += ports;
            tuple.0 < after
        });
        found.unwrap_or_else(|| panic!("{tuple:?} belongs to no path"))
    }
}

fn most_waiting(config: &Config) -> usize {
    WAITING + config.jitter.map_or(0, |_| DELAYED)
}

fn dropped(counters: &PathCounters) -> u64 {
    let drops = counters.drops;
    drops.full + drops.too_big + drops.unreachable
}

/// Returns the datagrams of a payload, which must be whole datagrams of the current batch.
fn datagrams(payload: &Payload, cause: &Cause<'_>) -> Vec<Vec<u8>> {
    let part = match payload {
        Payload::Kept { bytes, .. } => return vec![bytes.to_vec()],
        Payload::Live(part) => part.clone(),
    };
    let Cause::Client(batch) = cause else { panic!("a part of a batch that is gone") };
    assert!(part.start.is_multiple_of(batch.stride), "{part:?} begins within a datagram");
    let ends_well = part.end.is_multiple_of(batch.stride) || part.end == batch.bytes.len();
    assert!(ends_well, "{part:?} ends within a datagram");
    if part.is_empty() {
        return vec![Vec::new()];
    }
    batch.bytes[part].chunks(batch.stride).map(<[u8]>::to_vec).collect()
}
