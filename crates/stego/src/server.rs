//! A server: the links of many clients, and the connections that join these links.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_multipath::schedule::Spec;
use rand_core::CryptoRng;

use crate::budget::Budget;
use crate::client::{Ending, SURVIVES, draw};
use crate::cover::{ConnId, Cover, Input};
use crate::handshake::{ANSWER, HELLO, ReplayCache};
use crate::keys::ServerKey;
use crate::link::{Link, LinkViolation, Opening, Side};
use crate::slot::{Covers, Hidden, Profile, SharedContext};
use crate::token::{LinkTokens, TOKEN, TokenTable};

#[cfg(test)]
mod tests;

/// Maximum number of simultaneous connections of a link.
pub(crate) const PATHS: usize = 64;
/// Time after which a held request is answered if another one is held too, even without data.
const ENOUGH: Duration = Duration::from_millis(50);
/// Time for which a finished link is remembered. Its client may return because the last
/// acknowledgement was lost.
const LINGERS: Duration = Duration::from_secs(20);
/// Maximum number of finished links that are remembered. Beyond it the oldest is forgotten: at 500
/// links a second it is 4 s old, and its client gives up after 5 s.
const FINISHED: usize = 2_000;
/// Number of tokens of a finished link that are awaited before and after the greatest received one.
const LATE_TOKENS: u32 = 32;

/// Identifier of a link; it is not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// An action that a server requests from its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerOutput {
    /// Write these bytes to the connection.
    Send(ConnId, Vec<u8>),
    /// Close the connection after writing what is queued.
    Close(ConnId),
    /// The connection is not from a client of this server. The bytes are all that it has sent so
    /// far, and the server ignores later ones.
    Stranger(ConnId, Vec<u8>),
    /// A client opened a link.
    Opened(LinkId),
    /// A link may have data to read, or room to write.
    Ready(LinkId),
    /// A link is over.
    Over(LinkId, Ending),
}

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The server's key pair.
    pub key: ServerKey,
    /// The profile that the bridge line names.
    pub profile: Profile,
    /// The scheduler that chooses the connection of the next chunk.
    pub schedule: Spec,
    /// Time at the start of the run, in seconds since 1970. [`Server::set_wall`] corrects it.
    pub wall: u64,
    /// Whether AES is fast on this machine.
    pub aes: bool,
    /// Maximum bytes that all links together may store, in both directions. Half of it is for
    /// windows beyond 1 MiB. A quarter is divided among the links, for data that wait for clients.
    /// If the links store more, the server closes the link that most exceeds its allowance: its
    /// share, and what it has taken from the budget.
    pub memory: usize,
    /// Maximum number of simultaneous links. Finished links that are remembered do not count.
    pub links: usize,
    /// Data from which the covers are made, and in which answers hide bytes.
    pub covers: Covers,
}

/// The server's end of the links of many clients.
pub struct Server<R> {
    config: ServerConfig,
    context: Arc<SharedContext>,
    rng: R,
    replay_cache: ReplayCache,
    awaited: TokenTable,
    links: BTreeMap<LinkId, LinkEntry>,
    /// Finished links, with the times at which both streams had ended.
    finished: BTreeSet<(Time, LinkId)>,
    next_link: u64,
    conns: BTreeMap<ConnId, Conn>,
    outputs: VecDeque<ServerOutput>,
    budget: Budget,
    /// Approximate bytes of memory of all links together.
    memory: usize,
    /// Links that had an event since they were last processed.
    touched: BTreeSet<LinkId>,
    /// Time at which each link has to be processed next, unless an event occurs before.
    timers: BTreeSet<(Time, LinkId)>,
}

/// A link, with its tokens and its connections.
struct LinkEntry {
    link: Link,
    tokens: LinkTokens,
    paths: Vec<Option<ConnId>>,
    /// Time at which the link's client was last heard.
    heard: Time,
    /// Time at which both streams had ended; `None` before.
    done: Option<Time>,
    timer: Time,
    /// Approximate bytes of memory that the link used when it was last processed.
    memory: usize,
}

struct Conn {
    cover: Cover,
    owner: ConnOwner,
    /// Bytes of the current exchange as received, while the connection's client is unknown.
    raw: Vec<u8>,
}

/// The link that a connection belongs to.
enum ConnOwner {
    /// The link is not known yet. The bytes are the hidden ones received so far.
    Unknown(Vec<u8>),
    Joined {
        link: LinkId,
        path: usize,
        skip: usize,
    },
    Stranger,
}

impl<R: CryptoRng> Server<R> {
    /// Creates a server without links.
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

    /// Corrects the time at the start of the run, after the machine's clock was set. `wall` is in
    /// seconds since 1970. Existing connections keep their earlier value.
    pub fn set_wall(&mut self, wall: u64) {
        // A difference of one second may be due to rounding.
        if wall.abs_diff(self.config.wall) > 1 {
            self.config.wall = wall;
            self.context = Arc::new(SharedContext { wall, ..SharedContext::clone(&self.context) });
        }
    }

    /// Processes an event of a connection.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Opened(id) => {
                let cover = Cover::new(self.config.profile.server_slot(&self.context));
                let connection =
                    Conn { cover, owner: ConnOwner::Unknown(Vec::new()), raw: Vec::new() };
                self.conns.insert(id, connection);
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

    /// Accepts bytes for a client. Returns how many were accepted.
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

    /// Returns the next bytes from a client; `None` if there are none.
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

    /// Ends the stream to a client, after the data written so far.
    pub fn finish(&mut self, link: LinkId) {
        self.touched.insert(link);
        if let Some(entry) = self.links.get_mut(&link) {
            entry.link.finish();
        }
    }

    /// Resets a link at once.
    pub fn reset(&mut self, link: LinkId) {
        self.touched.insert(link);
        if let Some(entry) = self.links.get_mut(&link) {
            entry.link.reset();
        }
    }

    /// Returns the number of links.
    #[must_use]
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// Returns the next action for the driver; `None` if there is none.
    pub fn poll(&mut self, now: Time) -> Option<ServerOutput> {
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

    /// Returns the time by which [`Server::poll`] has to be called next.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        self.timers.first().map(|(due, _)| *due)
    }

    fn minute(&self, now: Time) -> u32 {
        let seconds = self.config.wall + now.since(Time::ZERO).as_secs();
        u32::try_from(seconds / 60).unwrap_or(u32::MAX)
    }

    /// Does all work of a link that is due at `now`.
    fn work(&mut self, now: Time, id: LinkId) {
        let mut entry = self.links.remove(&id).expect("it was found");
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
                // The client may return over any of its connections, but only because of a lost
                // acknowledgement.
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
            _ => (now >= entry.heard + SURVIVES).then_some(Ending::Lost),
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
        let slots = slots.chain(self.overdue(entry).into_iter().map(|(due, _)| due));
        let done = entry.done.map(|since| since + LINGERS);
        let waits = entry.link.next_timeout(now).into_iter().chain(done).chain(slots);
        waits.chain([entry.heard + SURVIVES]).min().unwrap_or(Time::MAX)
    }

    /// Closes the link that exceeds its allowance most: its share, and what it has taken from the
    /// budget.
    fn evict_largest(&mut self, now: Time) {
        let budget = self.budget;
        let largest = self.links.iter().max_by_key(|(_, entry)| entry.link.excess(&budget));
        let id = *largest.expect("the memory is that of links").0;
        let mut entry = self.links.remove(&id).expect("it was found");
        self.timers.remove(&(entry.timer, id));
        entry.link.reset();
        self.flush(now, &mut entry);
        self.end(id, entry, Ending::Crowded);
    }

    /// Ends the link that has been finished for the longest time.
    fn forget_oldest(&mut self) {
        let Some(&(_, id)) = self.finished.first() else { return };
        let entry = self.links.remove(&id).expect("a finished link is a link");
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

    /// Sets the share of each link: the bytes that it may store without taking from the budget.
    fn divide(&mut self) {
        let live = self.links.len() - self.finished.len();
        if self.budget.divide(self.config.memory / 4, live) {
            self.links.values_mut().for_each(|entry| entry.link.update_budget(&mut self.budget));
        }
    }

    /// Closes a link's connections after their queued bytes have been written.
    fn hang_up(&mut self, entry: &mut LinkEntry) {
        for (path, conn) in entry.paths.iter_mut().enumerate() {
            let Some(conn) = conn.take() else { continue };
            entry.link.close(path);
            self.conns.remove(&conn);
            self.outputs.push_back(ServerOutput::Close(conn));
        }
    }

    /// Seals data that waits for a client, and sends it.
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
            let (out, over) = connection.cover.send(now, &hidden);
            self.outputs.push_back(ServerOutput::Send(conn, out));
            if !over {
                continue;
            }
            entry.paths[path] = None;
            entry.link.close(path);
            // The next exchange may belong to another client, because a proxy may combine several
            // clients.
            connection.owner = ConnOwner::Unknown(Vec::new());
            // The client closes streaming connections, because it knows when everything has
            // arrived.
            if connection.cover.slot.is_spent() {
                self.conns.remove(&conn);
                self.outputs.push_back(ServerOutput::Close(conn));
            }
        }
    }

    /// Returns the time by which each held request of a link has to be answered, even without data,
    /// and the request's path. Excludes the oldest request, which is held for future data, unless
    /// the link is done. Answers to the other requests let the client send again.
    fn overdue(&self, entry: &LinkEntry) -> Vec<(Time, usize)> {
        let done = entry.link.is_done() && entry.link.has_ended();
        let (held, enough) = if done { (0, Duration::ZERO) } else { (1, ENOUGH) };
        let since = |(path, conn): (usize, &Option<ConnId>)| {
            Some((self.conns.get(&(*conn)?)?.cover.slot.since()?, path))
        };
        let mut waiting: Vec<_> = entry.paths.iter().enumerate().filter_map(since).collect();
        waiting.sort_unstable();
        waiting.drain(..held.min(waiting.len()));
        waiting.iter_mut().for_each(|(since, _)| *since += enough);
        waiting
    }

    fn gone(&mut self, now: Time, id: ConnId) {
        let Some(connection) = self.conns.remove(&id) else { return };
        self.leave(now, &connection.owner);
    }

    /// Removes a connection from its link.
    fn leave(&mut self, now: Time, owner: &ConnOwner) {
        let ConnOwner::Joined { link, path, .. } = owner else { return };
        let Some(entry) = self.links.get_mut(link) else { return };
        entry.paths[*path] = None;
        entry.link.lost(now, *path);
        self.touched.insert(*link);
    }

    fn receive(&mut self, now: Time, id: ConnId, bytes: &[u8]) {
        let Some(Conn { mut cover, mut owner, mut raw }) = self.conns.remove(&id) else { return };
        match owner {
            ConnOwner::Stranger => {
                self.conns.insert(id, Conn { cover, owner, raw });
                return;
            }
            ConnOwner::Unknown(_) => raw.extend_from_slice(bytes),
            ConnOwner::Joined { .. } => {}
        }
        let mut broken = false;
        let mut each = |hidden: Hidden<'_>| {
            broken = broken || self.hidden(now, id, &mut owner, hidden).is_err();
        };
        broken |= cover.slot.receive(now, bytes, &mut each).is_err();
        if broken {
            self.leave(now, &owner);
            let raw = match owner {
                ConnOwner::Unknown(_) => std::mem::take(&mut raw),
                _ => Vec::new(),
            };
            self.outputs.push_back(ServerOutput::Stranger(id, raw));
            owner = ConnOwner::Stranger;
        }
        if !matches!(owner, ConnOwner::Unknown(_)) {
            raw = Vec::new();
        }
        self.conns.insert(id, Conn { cover, owner, raw });
    }

    /// Returns the bytes received over a connection whose client is not known yet; `None` if the
    /// client is known.
    #[must_use]
    pub fn said(&self, id: ConnId) -> Option<&[u8]> {
        let connection = self.conns.get(&id)?;
        matches!(connection.owner, ConnOwner::Unknown(_)).then_some(&connection.raw)
    }

    /// Returns whether a client of this server has identified itself over the connection.
    #[must_use]
    pub fn is_ours(&self, id: ConnId) -> bool {
        self.conns
            .get(&id)
            .is_some_and(|connection| matches!(connection.owner, ConnOwner::Joined { .. }))
    }

    /// Treats a connection whose client is not known yet as that of a stranger. Returns the bytes
    /// received; `None` if the client is known.
    pub fn give_up(&mut self, id: ConnId) -> Option<Vec<u8>> {
        let connection = self.conns.get_mut(&id)?;
        matches!(connection.owner, ConnOwner::Unknown(_)).then(|| {
            connection.owner = ConnOwner::Stranger;
            std::mem::take(&mut connection.raw)
        })
    }

    fn hidden(
        &mut self,
        now: Time,
        id: ConnId,
        owner: &mut ConnOwner,
        hidden: Hidden<'_>,
    ) -> Result<(), LinkViolation> {
        match (hidden, &mut *owner) {
            // The client's half of the exchange is complete, so no token or HELLO will follow.
            (Hidden::End, ConnOwner::Unknown(_)) => Err(LinkViolation),
            (Hidden::End, _) => Ok(()),
            (Hidden::Bytes(bytes), ConnOwner::Unknown(came)) => {
                came.extend_from_slice(bytes);
                self.recognise(now, id, owner)
            }
            (Hidden::Bytes(bytes), ConnOwner::Joined { .. }) => {
                self.receive_joined(now, owner, bytes)
            }
            (Hidden::Bytes(_), ConnOwner::Stranger) => Ok(()),
        }
    }

    /// Passes bytes from a connection to the link that it belongs to.
    fn receive_joined(
        &mut self,
        now: Time,
        owner: &mut ConnOwner,
        bytes: &[u8],
    ) -> Result<(), LinkViolation> {
        let ConnOwner::Joined { link, path, skip } = owner else { return Ok(()) };
        let Some(entry) = self.links.get_mut(link) else { return Err(LinkViolation) };
        let skipped = (*skip).min(bytes.len());
        *skip -= skipped;
        self.touched.insert(*link);
        if entry.link.receive(now, *path, &bytes[skipped..])? > 0 {
            entry.heard = now;
        }
        Ok(())
    }

    /// Checks whether the first bytes of a connection are a token or a handshake.
    fn recognise(
        &mut self,
        now: Time,
        id: ConnId,
        owner: &mut ConnOwner,
    ) -> Result<(), LinkViolation> {
        let ConnOwner::Unknown(came) = &*owner else { return Ok(()) };
        let Some((token, rest)) = came.split_first_chunk::<TOKEN>() else { return Ok(()) };
        if let Some((link, number)) = self.awaited.take(token) {
            let rest = rest.to_vec();
            self.join(now, id, (LinkId(link), number), owner)?;
            return self.receive_joined(now, owner, &rest);
        }
        let Some((hello, rest)) = came.split_first_chunk::<HELLO>() else { return Ok(()) };
        let rest = rest.to_vec();
        let minute = self.minute(now);
        let accepted_hello =
            self.replay_cache.read(&self.config.key, minute, hello).ok_or(LinkViolation)?;
        let skip = usize::from(accepted_hello.padding);
        let padding = draw(&mut self.rng, self.config.profile.family().padding);
        let mut answer = Vec::with_capacity(ANSWER + usize::from(padding));
        let full = self.links.len() - self.finished.len() >= self.config.links;
        (!full).then_some(()).ok_or(LinkViolation)?;
        let own = (self.config.aes, padding);
        let secrets =
            accepted_hello.answer(own, &mut self.rng, &mut answer).ok_or(LinkViolation)?;
        let (profile, schedule) = (self.config.profile, &self.config.schedule);
        let rng = &mut self.rng;
        let mut link = Link::new(&secrets, Side::Server, PATHS, profile, schedule, rng);
        link.allow_pauses((profile.family().pauses)(&self.config.covers));
        link.open(now, 0, 0, Opening::Waits, &answer);
        let number = self.next_link;
        self.next_link += 1;
        let mut paths = vec![None; PATHS];
        paths[0] = Some(id);
        let tokens = self.awaited.add(number, &secrets.tokens);
        let timer = Time::MAX;
        let entry = LinkEntry { link, tokens, paths, heard: now, done: None, timer, memory: 0 };
        self.links.insert(LinkId(number), entry);
        self.divide();
        self.outputs.push_back(ServerOutput::Opened(LinkId(number)));
        *owner = ConnOwner::Joined { link: LinkId(number), path: 0, skip };
        self.receive_joined(now, owner, &rest)
    }

    /// Adds a connection to the link whose token it has sent.
    fn join(
        &mut self,
        now: Time,
        id: ConnId,
        (link, number): (LinkId, u32),
        owner: &mut ConnOwner,
    ) -> Result<(), LinkViolation> {
        let streams = self.config.profile.family().streams;
        let entry = self.links.get_mut(&link).ok_or(LinkViolation)?;
        self.awaited.mark_received(&mut entry.tokens, number);
        let free = entry.paths.iter().position(Option::is_none);
        // The client has fewer connections than a link has paths, so some have failed unnoticed.
        let path = free.or_else(|| entry.link.longest_silent()).ok_or(LinkViolation)?;
        if let Some(stale) = entry.paths[path].replace(id) {
            self.conns.remove(&stale);
            self.outputs.push_back(ServerOutput::Close(stale));
        }
        entry.heard = now;
        let opening = if streams { Opening::Answers } else { Opening::Waits };
        entry.link.open(now, path, u64::from(number) + 1, opening, &[]);
        *owner = ConnOwner::Joined { link, path, skip: 0 };
        self.touched.insert(link);
        Ok(())
    }
}
