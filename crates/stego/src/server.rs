//! A camouflage server: the links of many clients, and the connections of each link.
//!
//! `connections` recognises clients by the first bytes of their connections, and passes received
//! bytes to links.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anabranch_multipath::schedule::Spec;
use anabranch_multipath::{Core, Time};
use rand_core::CryptoRng;

use crate::budget::Budget;
use crate::client::{Ending, SURVIVES};
use crate::cover::{ConnId, Input};
use crate::handshake::ReplayCache;
use crate::keys::ServerKey;
use crate::link::Link;
use crate::slot::{Covers, Profile, SharedContext};
use crate::token::{LinkTokens, TokenTable};
use connections::{Conn, ConnOwner};

mod connections;
#[cfg(test)]
mod tests;

/// Maximum number of simultaneous connections of a link (the session of one client).
pub(crate) const PATHS: usize = 64;
/// Time after which a server answers a request although it has no data, if it also holds another
/// request of the same client.
const ENOUGH: Duration = Duration::from_millis(50);
/// Time for which a link is remembered after its streams have ended. If the last acknowledgement
/// was lost, its client connects again.
const LINGERS: Duration = Duration::from_secs(20);
/// Maximum number of finished links that are remembered. Beyond this number, the oldest link is
/// forgotten. At 500 new links a second, links are remembered for 4 s; a client waits for 5 s at
/// most.
const FINISHED: usize = 2_000;
/// Number of tokens before and after the last received token that stay valid for a finished link.
/// With a token, a new connection identifies its link.
const LATE_TOKENS: u32 = 32;

/// Identifier of a link (the session of one client). Identifiers are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// An action that a server requests from its driver, the code that owns the sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerOutput {
    /// Write these bytes to the connection.
    Send(ConnId, Vec<u8>),
    /// Close the connection after writing what is queued.
    Close(ConnId),
    /// The connection is not from a client of this server. The bytes are everything received so
    /// far; the server ignores later bytes.
    Stranger(ConnId, Vec<u8>),
    /// A client has opened a link (a session with a byte stream in each direction).
    Opened(LinkId),
    /// Data of a link may be waiting for [`Server::read`], or [`Server::write`] may accept bytes
    /// again.
    Ready(LinkId),
    /// A link (client's session) has ended, for this reason.
    Over(LinkId, Ending),
}

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The server's key pair.
    pub key: ServerKey,
    /// The profile (kind of cover traffic) that the bridge line names.
    pub profile: Profile,
    /// The scheduler that chooses the connection for each chunk of a stream.
    pub schedule: Spec,
    /// Wall-clock time at the start of the program (time zero), in seconds since 1970.
    /// [`Server::set_wall`] corrects it.
    pub wall: u64,
    /// Whether this machine has hardware support for AES, so that AES-GCM is faster than ChaCha20.
    pub aes: bool,
    /// Maximum bytes that all links together may store, in both directions. Half of it is a common
    /// budget, for windows beyond 1 MiB and for data to be sent. A quarter is divided evenly among
    /// the links, as their free shares for data to be sent. If the links store more than the
    /// maximum, the server closes the link that exceeds its allowance most. The allowance is the
    /// free share and the bytes taken from the budget, and covers only data to be sent.
    pub memory: usize,
    /// Maximum number of simultaneous links. Finished links that are remembered do not count.
    pub links: usize,
    /// Pictures, objects of a web site and shapes, from which the covers are made. A cover is
    /// ordinary-looking traffic that hides the links' data.
    pub covers: Covers,
}

/// The server's end of the links (byte streams in ordinary-looking traffic) of many clients.
pub struct Server<R> {
    config: ServerConfig,
    context: Arc<SharedContext>,
    rng: R,
    replay_cache: ReplayCache,
    awaited: TokenTable,
    links: BTreeMap<LinkId, LinkEntry>,
    /// Links whose streams have ended in both directions, each with the time of that end, oldest
    /// first.
    finished: BTreeSet<(Time, LinkId)>,
    next_link: u64,
    conns: BTreeMap<ConnId, Conn>,
    outputs: VecDeque<ServerOutput>,
    budget: Budget,
    /// Approximate bytes of memory that all links use together.
    memory: usize,
    /// Links that had an event since [`Server::work`] last processed them.
    touched: BTreeSet<LinkId>,
    /// Time at which [`Server::work`] has to process each link, unless an event occurs before.
    timers: BTreeSet<(Time, LinkId)>,
}

/// A link (client's session), with its tokens and its connections.
struct LinkEntry {
    link: Link,
    tokens: LinkTokens,
    paths: Vec<Option<ConnId>>,
    /// Time at which bytes from the link's client last arrived.
    last_arrival: Time,
    /// Time since which the streams of both directions have ended; `None` before.
    done: Option<Time>,
    timer: Time,
    /// Approximate bytes of memory that the link used when it was last processed.
    memory: usize,
}

impl<R: CryptoRng> Core for Server<R> {
    type In<'a> = Input<'a>;
    type Out = ServerOutput;

    fn handle(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Opened(id) => {
                let slot = self.config.profile.server_slot(&self.context);
                self.conns.insert(id, Conn::new(slot));
            }
            Input::Bytes(id, bytes) => self.receive(now, id, bytes),
            Input::Room(id, room) => {
                let Some(connection) = self.conns.get_mut(&id) else { return };
                connection.cover.socket = room;
                if let ConnOwner::Joined { link, .. } = connection.owner {
                    self.touched.insert(link);
                }
            }
            Input::Closed(id) => self.gone(now, id),
        }
    }

    fn poll(&mut self, now: Time) -> Option<ServerOutput> {
        if self.outputs.is_empty() {
            while let Some(&(due, link)) = self.timers.first().filter(|(due, _)| now >= *due) {
                self.timers.remove(&(due, link));
                self.touched.insert(link);
            }
            while let Some(link) = self.touched.pop_first() {
                self.work(now, link);
            }
            while self.finished.len() > FINISHED {
                self.forget_oldest();
            }
            while self.memory > self.config.memory {
                self.evict_largest(now);
            }
        }
        self.outputs.pop_front()
    }

    fn next_timeout(&self) -> Option<Time> {
        self.timers.first().map(|(due, _)| *due)
    }
}

impl<R: CryptoRng> Server<R> {
    /// Creates a server, which has no links (sessions of clients) yet.
    #[must_use]
    pub fn new(config: ServerConfig, rng: R) -> Server<R> {
        Server {
            budget: Budget::new(config.memory / 2),
            memory: 0,
            context: Arc::new(SharedContext::new(
                &config.key.public(),
                String::new(),
                config.wall,
                config.covers.clone(),
            )),
            config,
            rng,
            replay_cache: ReplayCache::default(),
            awaited: TokenTable::default(),
            links: BTreeMap::new(),
            finished: BTreeSet::new(),
            next_link: 0,
            conns: BTreeMap::new(),
            outputs: VecDeque::new(),
            touched: BTreeSet::new(),
            timers: BTreeSet::new(),
        }
    }

    /// Sets the wall-clock time at the start of the program to `wall`, in seconds since 1970. It
    /// is called after the machine's clock was set. Existing connections keep the earlier time. A
    /// difference of one second is ignored.
    pub fn set_wall(&mut self, wall: u64) {
        // A difference of one second may be due to rounding.
        if wall.abs_diff(self.config.wall) > 1 {
            self.config.wall = wall;
            self.context = Arc::new(SharedContext { wall, ..SharedContext::clone(&self.context) });
        }
    }

    /// Accepts bytes to send to the client of `link`. Returns how many were accepted.
    pub fn write(&mut self, link: LinkId, bytes: &[u8]) -> usize {
        let entry = self.links.get_mut(&link);
        let taken = entry.map_or(0, |entry| entry.link.write(bytes, &mut self.budget));
        if taken > 0 {
            self.touched.insert(link);
        }
        taken
    }

    /// Returns the number of bytes that [`Server::write`] accepts now.
    #[must_use]
    pub fn room(&self, link: LinkId) -> usize {
        self.links.get(&link).map_or(0, |entry| entry.link.room(&self.budget))
    }

    /// Returns the next bytes of the stream from the client of `link`; `None` if there are none.
    pub fn read(&mut self, now: Time, link: LinkId) -> Option<Vec<u8>> {
        let entry = self.links.get_mut(&link)?;
        let bytes = entry.link.read(now, &mut self.budget);
        if bytes.is_some() {
            self.touched.insert(link);
        }
        bytes
    }

    /// Returns whether the client's stream has ended and has been read completely.
    #[must_use]
    pub fn has_ended(&self, link: LinkId) -> bool {
        self.links.get(&link).is_none_or(|entry| entry.link.has_ended())
    }

    /// Ends the stream to the client of `link`, after the data written so far.
    pub fn finish(&mut self, link: LinkId) {
        self.touched.insert(link);
        if let Some(entry) = self.links.get_mut(&link) {
            entry.link.finish();
        }
    }

    /// Aborts the byte streams of `link` in both directions at once.
    pub fn reset(&mut self, link: LinkId) {
        self.touched.insert(link);
        if let Some(entry) = self.links.get_mut(&link) {
            entry.link.reset();
        }
    }

    /// Returns the number of links (sessions of clients), including finished links that are
    /// remembered.
    #[must_use]
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// Does all work of a link that is due at `now`.
    fn work(&mut self, now: Time, id: LinkId) {
        let Some(mut entry) = self.links.remove(&id) else { return };
        self.timers.remove(&(entry.timer, id));
        for path in entry.link.evicted() {
            let Some(stale) = entry.paths[path].take() else { continue };
            self.conns.remove(&stale);
            self.outputs.push_back(ServerOutput::Close(stale));
        }
        entry.link.tick(now);
        entry.link.update_budget(&mut self.budget);
        self.flush(now, &mut entry);
        if entry.link.is_done() && entry.link.has_ended() {
            if self.config.profile.family().streams {
                self.hang_up(&mut entry);
            }
            if entry.done.is_none() {
                // The client may return over any of its connections, but only if its last
                // acknowledgement was lost.
                entry.link.shrink();
                self.awaited.trim(&mut entry.tokens, LATE_TOKENS);
                self.finished.insert((now, id));
            }
            entry.done = Some(entry.done.unwrap_or(now));
        }
        let done = entry.done.is_some_and(|since| now >= since + LINGERS);
        let ending = match (done, entry.link.is_reset()) {
            (true, _) => Some(Ending::Done),
            (_, true) => Some(Ending::Reset),
            _ => (now >= entry.last_arrival + SURVIVES).then_some(Ending::Lost),
        };
        if let Some(ending) = ending {
            return self.end(id, entry, ending);
        }
        let (received, unsent) = entry.link.memory();
        self.memory = self.memory - entry.memory + received + unsent;
        entry.memory = received + unsent;
        entry.timer = self.timer(now, &entry);
        self.timers.insert((entry.timer, id));
        self.links.insert(id, entry);
        self.outputs.push_back(ServerOutput::Ready(id));
    }

    fn timer(&self, now: Time, entry: &LinkEntry) -> Time {
        let connections = entry.paths.iter().flatten().filter_map(|conn| self.conns.get(conn));
        let slots = connections.filter_map(|connection| connection.cover.due());
        let has_room = |path: usize| {
            let connection = entry.paths[path].and_then(|conn| self.conns.get(&conn));
            connection.is_some_and(|connection| connection.cover.has_room())
        };
        let overdue = self.overdue(entry).into_iter().filter(|&(_, path)| has_room(path));
        let slots = slots.chain(overdue.map(|(due, _)| due));
        let done = entry.done.map(|since| since + LINGERS);
        let waits = entry.link.next_timeout(now).into_iter().chain(done).chain(slots);
        waits.chain([entry.last_arrival + SURVIVES]).min().unwrap_or(Time::MAX)
    }

    /// Closes the link that exceeds its allowance most. Received data count fully, data to be sent
    /// only beyond the allowance: the free share and the bytes reserved of the memory budget.
    fn evict_largest(&mut self, now: Time) {
        let budget = self.budget;
        let largest = self.links.iter().max_by_key(|(_, entry)| entry.link.excess(&budget));
        let id = *largest.expect("only links use the memory, so there is a link").0;
        let mut entry = self.links.remove(&id).expect("the link was found above");
        self.timers.remove(&(entry.timer, id));
        entry.link.reset();
        self.flush(now, &mut entry);
        self.end(id, entry, Ending::Crowded);
    }

    /// Removes the finished link that has been remembered for the longest time.
    fn forget_oldest(&mut self) {
        let Some(&(_, id)) = self.finished.first() else { return };
        let entry = self.links.remove(&id).expect("a finished link is still in the list of links");
        self.timers.remove(&(entry.timer, id));
        self.end(id, entry, Ending::Done);
    }

    fn end(&mut self, id: LinkId, mut entry: LinkEntry, ending: Ending) {
        if let Some(done) = entry.done {
            self.finished.remove(&(done, id));
        }
        self.memory -= entry.memory;
        entry.link.release(&mut self.budget);
        self.divide();
        self.awaited.remove(&entry.tokens);
        self.hang_up(&mut entry);
        self.outputs.push_back(ServerOutput::Over(id, ending));
    }

    /// Sets the free share of each link: the bytes that it may store without taking from the
    /// memory budget.
    fn divide(&mut self) {
        let live = self.links.len() - self.finished.len();
        if self.budget.divide(self.config.memory / 4, live) {
            self.links.values_mut().for_each(|entry| entry.link.update_budget(&mut self.budget));
        }
    }

    /// Closes all connections of a link, each after its queued bytes have been written.
    fn hang_up(&mut self, entry: &mut LinkEntry) {
        for (path, conn) in entry.paths.iter_mut().enumerate() {
            let Some(conn) = conn.take() else { continue };
            entry.link.close(path);
            self.conns.remove(&conn);
            self.outputs.push_back(ServerOutput::Close(conn));
        }
    }

    /// Encrypts the data that waits for a client, and sends it.
    fn flush(&mut self, now: Time, entry: &mut LinkEntry) {
        let rooms = entry.paths.iter().enumerate().filter_map(|(path, conn)| {
            let connection = self.conns.get_mut(conn.as_ref()?)?;
            Some((path, connection.cover.room(now)))
        });
        entry.link.deal(now, rooms);
        let overdue = self.overdue(entry);
        for path in 0..PATHS {
            let Some(conn) = entry.paths[path] else { continue };
            let Some(connection) = self.conns.get_mut(&conn) else { continue };
            let forced = overdue.iter().any(|&(due, late)| late == path && now >= due);
            let length = connection.cover.fit(now, entry.link.sealed(path), forced);
            let Some(length) = length else { continue };
            let hidden = entry.link.take(now, path, length);
            let out = connection.cover.send(now, &hidden);
            self.outputs.push_back(ServerOutput::Send(conn, out));
            if !connection.cover.slot.has_answered() {
                continue;
            }
            entry.paths[path] = None;
            entry.link.close(path);
            // The next exchange may belong to another client, because a proxy may combine several
            // clients.
            connection.owner = ConnOwner::Unknown(Vec::new());
            // The client closes streaming connections, because only the client knows when
            // everything has arrived.
            if connection.cover.slot.is_spent() {
                self.conns.remove(&conn);
                self.outputs.push_back(ServerOutput::Close(conn));
            }
        }
    }

    /// Returns the held requests of a link that have to be answered even without data. Each pair
    /// has the deadline of the answer, and the index of the request's connection in the link.
    /// Excludes the oldest request, which is held for future data, unless the link is done.
    /// Answers to the other requests let the client send again.
    fn overdue(&self, entry: &LinkEntry) -> Vec<(Time, usize)> {
        let done = entry.link.is_done() && entry.link.has_ended();
        let (held, enough) = if done { (0, Duration::ZERO) } else { (1, ENOUGH) };
        let since = |(path, conn): (usize, &Option<ConnId>)| {
            Some((self.conns.get(&(*conn)?)?.cover.slot.holds_since()?, path))
        };
        let mut waiting: Vec<_> = entry.paths.iter().enumerate().filter_map(since).collect();
        waiting.sort_unstable();
        waiting.drain(..held.min(waiting.len()));
        waiting.iter_mut().for_each(|(since, _)| *since += enough);
        waiting
    }
}
