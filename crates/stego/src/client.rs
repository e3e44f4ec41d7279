//! A client: one end of a link, its handshake, and the connections that it needs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_multipath::schedule::Spec;
use rand_core::CryptoRng;

use crate::budget::Budget;
use crate::cover::{ConnId, Cover, Input};
use crate::handshake::{ANSWER, ClientHandshake, HELLO};
use crate::keys::BridgeKey;
use crate::link::{Demand, Link, LinkViolation, Opening, Side};
use crate::recovery::Recovery;
use crate::secrets::LinkSecrets;
use crate::slot::{Covers, Family, Hidden, LoadHint, Profile, SharedContext};
use crate::token::{TOKEN, TokenAllocator};

/// Timeout of a handshake. After an outage, a new connection after this time succeeds sooner than
/// TCP's retransmission, whose intervals grow to a minute and more.
const GREETING: Duration = Duration::from_secs(10);
/// Timeout for opening a connection, for the same reason as [`GREETING`].
const DIALLING: Duration = Duration::from_secs(10);
/// Pause after the first failed connection.
const PAUSE: Duration = Duration::from_millis(250);
/// Maximum pause after failed connections.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// Time without a byte after which a connection is probed with a PING, while the link is active.
const QUIET: Duration = Duration::from_secs(2);
/// Time without a byte after which a connection is probed with a PING, on an idle link.
const IDLE: Duration = Duration::from_secs(20);
/// Time for which a client waits for its server after both streams have ended: the last
/// acknowledgement may not have reached the server.
const LINGERS: Duration = Duration::from_secs(5);
/// Time for which a link survives without bytes from the other end.
pub(crate) const SURVIVES: Duration = Duration::from_secs(300);
/// Maximum memory of a link beyond the first MiB in each direction. With this, the windows of both
/// directions may reach their maximum.
const MEMORY: usize = 30 << 20;
/// Minimum number of unacknowledged bytes at which new connections are chosen for their upload
/// capacity.
const MUCH: u64 = 16 << 10;

/// An action that a client requests from its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientOutput {
    /// Open a connection to the server, and identify it by this number.
    Dial(ConnId),
    /// Write these bytes to the connection.
    Send(ConnId, Vec<u8>),
    /// Close the connection after writing what is queued.
    Close(ConnId),
    /// The server has answered: the link is up.
    Up,
    /// The link is over.
    Over(Ending),
}

/// The reason why a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Both streams ended, and both ends know this.
    Done,
    /// One of the ends reset the link.
    Reset,
    /// The other end was unreachable for 5 minutes.
    Lost,
    /// The server's memory limit was exceeded, and this link exceeded its allowance most.
    Crowded,
}

/// Configuration of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The server's key.
    pub key: BridgeKey,
    /// The profile that the bridge line names.
    pub profile: Profile,
    /// The server's name in requests, for covers that contain one: a host name or an address, with
    /// a port unless it is the default. It must contain no spaces and no line breaks.
    pub host: String,
    /// The scheduler that chooses the connection of the next chunk.
    pub schedule: Spec,
    /// Time at the start of the run, in seconds since 1970.
    pub wall: u64,
    /// Whether AES is fast on this machine.
    pub aes: bool,
    /// Data from which the covers are made. A client needs no pictures.
    pub covers: Covers,
}

/// The client's end of a link.
pub struct Client<R> {
    config: ClientConfig,
    context: Arc<SharedContext>,
    rng: R,
    stage: Stage,
    conns: BTreeMap<ConnId, Conn>,
    next_conn: u64,
    outputs: VecDeque<ClientOutput>,
    budget: Budget,
    /// Whether anything has changed since `work` was last run.
    changed: bool,
    /// Time at which `work` has to run again.
    timer: Time,
    failures: u32,
    /// Time before which no further connection may be opened.
    dial: Time,
    /// Time at which a block from the server last arrived, before that the time of the first
    /// [`Client::poll`]; `None` before the first poll.
    heard: Option<Time>,
    /// Time at which both streams had ended; `None` before.
    done: Option<Time>,
    /// Data written before the link was up, and whether the stream ends after these.
    early: (Vec<u8>, bool),
    /// The server's latest hint for the path of the next request; `None` if there is none, or if
    /// the cover has no such hints.
    lead: Option<String>,
    /// Moving average of the number of hidden bytes in an answer, over answers that left more to
    /// fetch.
    answers: Option<usize>,
}

/// Maximum bytes that are accepted before the link is up.
const EARLY: usize = 64 << 10;

enum Stage {
    Alone,
    Handshake(Box<Handshake>),
    Up(Box<Link>, Box<TokenAllocator>),
    Over,
}

/// The state of a handshake in progress.
struct Handshake {
    conn: ConnId,
    client_handshake: ClientHandshake,
    since: Time,
    answer: Vec<u8>,
}

struct Conn {
    cover: Cover,
    state: ConnState,
}

/// The state of a connection, except its cover.
struct ConnState {
    path: usize,
    dialled: Time,
    opened: bool,
    /// Whether anything from the server has arrived over the connection.
    heard: bool,
    /// The token of the current exchange; `None` between exchanges, and in the exchange of the
    /// handshake.
    token: Option<u32>,
    exchange: bool,
    /// Number of padding bytes that still have to be skipped.
    skip: usize,
    /// Hidden bytes received in the current exchange.
    brought: usize,
}

impl ConnState {
    fn of(path: usize, dialled: Time) -> ConnState {
        let (opened, heard, token, exchange) = (false, false, None, false);
        ConnState { path, dialled, opened, heard, token, exchange, skip: 0, brought: 0 }
    }

    /// Returns the deadline for opening the connection; `None` if it is open.
    fn late(&self) -> Option<Time> {
        (!self.opened).then_some(self.dialled + DIALLING)
    }

    fn is_late(&self, now: Time) -> bool {
        self.late().is_some_and(|late| now >= late)
    }
}

impl<R: CryptoRng> Client<R> {
    /// Creates a client, which opens its link at once.
    #[must_use]
    pub fn new(config: ClientConfig, rng: R) -> Client<R> {
        let (host, covers) = (config.host.clone(), config.covers.clone());
        let context = Arc::new(SharedContext::new(&config.key, host, config.wall, covers));
        let answers = config.profile.family().answer;
        Client {
            config,
            context,
            rng,
            stage: Stage::Alone,
            conns: BTreeMap::new(),
            next_conn: 0,
            outputs: VecDeque::new(),
            budget: Budget::new(MEMORY),
            changed: true,
            timer: Time::ZERO,
            failures: 0,
            dial: Time::ZERO,
            heard: None,
            done: None,
            early: (Vec::new(), false),
            lead: None,
            answers,
        }
    }

    /// Processes an event of a connection.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        self.changed = true;
        match input {
            Input::Opened(id) => {
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.state.opened = true;
                }
            }
            Input::Bytes(id, bytes) => self.receive(now, id, bytes),
            Input::Room(id, room) => {
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.cover.socket = room;
                }
            }
            Input::Closed(id) => self.gone(now, id),
        }
    }

    /// Accepts bytes for the server. Returns how many were accepted.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let taken = match &mut self.stage {
            Stage::Up(link, _) => link.write(bytes, &mut self.budget),
            Stage::Over => 0,
            Stage::Alone | Stage::Handshake(_) => {
                let taken = bytes.len().min(self.room());
                self.early.0.extend_from_slice(&bytes[..taken]);
                taken
            }
        };
        self.changed |= taken > 0;
        taken
    }

    /// Returns the number of bytes that [`Client::write`] accepts now.
    #[must_use]
    pub fn room(&self) -> usize {
        match &self.stage {
            Stage::Up(link, _) => link.room(&self.budget),
            Stage::Over => 0,
            Stage::Alone | Stage::Handshake(_) if self.early.1 => 0,
            Stage::Alone | Stage::Handshake(_) => EARLY - self.early.0.len(),
        }
    }

    /// Ends the client's stream, after the data written so far.
    pub fn finish(&mut self) {
        self.changed = true;
        match &mut self.stage {
            Stage::Up(link, _) => link.finish(),
            _ => self.early.1 = true,
        }
    }

    /// Resets the link at once.
    pub fn reset(&mut self) {
        self.changed = true;
        match &mut self.stage {
            Stage::Up(link, _) => link.reset(),
            _ => self.end(Ending::Reset),
        }
    }

    /// Returns the next bytes from the server.
    pub fn read(&mut self, now: Time) -> Option<Vec<u8>> {
        let Stage::Up(link, _) = &mut self.stage else { return None };
        let bytes = link.read(now, &mut self.budget);
        self.changed |= bytes.is_some();
        bytes
    }

    /// Returns whether the server's stream has ended and has been read completely.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        match &self.stage {
            Stage::Up(link, _) => link.has_ended(),
            Stage::Over => true,
            Stage::Alone | Stage::Handshake(_) => false,
        }
    }

    /// Returns the next action for the driver; `None` if there is none.
    pub fn poll(&mut self, now: Time) -> Option<ClientOutput> {
        if self.outputs.is_empty() && (self.changed || now >= self.timer) {
            self.heard.get_or_insert(now);
            self.changed = false;
            self.work(now);
            self.timer = self.next_of_all(now);
        }
        self.outputs.pop_front()
    }

    /// Returns the time by which [`Client::poll`] has to be called next.
    #[must_use]
    pub fn next_timeout(&self) -> Time {
        if self.changed { Time::ZERO } else { self.timer }
    }

    fn next_of_all(&self, now: Time) -> Time {
        let dial = self.dial.max(now);
        match &self.stage {
            Stage::Over => Time::MAX,
            Stage::Alone if self.conns.is_empty() => dial,
            Stage::Alone => {
                let late = self.conns.values().filter_map(|conn| conn.state.late());
                late.min().unwrap_or(Time::MAX)
            }
            Stage::Handshake(greeted) => greeted.since + GREETING,
            Stage::Up(link, _) => self.next_of(now, link),
        }
    }

    fn next_of(&self, now: Time, link: &Link) -> Time {
        let conns = self.conns.values().filter_map(|conn| {
            let Some(recovery) = link.recovery(conn.state.path) else { return conn.state.late() };
            let quiet = recovery.last_received() + self.quiet(now, link);
            let asks = conn.cover.slot.streams() && !recovery.expects_answer();
            let probe = asks.then_some(quiet);
            [recovery.dead_at(), probe, conn.cover.due()].into_iter().flatten().min()
        });
        let dials = self.done.is_none() && self.conns.len() < self.wanted(now, link);
        let dial = dials.then_some(self.dial);
        let lost = self.done.map_or(self.lost(now), |since| since + LINGERS);
        let all = conns.chain(link.next_timeout(now)).chain(dial).chain([lost]);
        all.min().unwrap_or(lost)
    }

    /// Returns the time at which the link is given up if the server stays silent.
    fn lost(&self, now: Time) -> Time {
        self.heard.unwrap_or(now) + SURVIVES
    }

    fn quiet(&self, now: Time, link: &Link) -> Duration {
        if link.is_active(now) { QUIET } else { IDLE }
    }

    fn wanted(&self, now: Time, link: &Link) -> usize {
        let profile = self.config.profile;
        let busy = link.is_active(now);
        if busy { profile.family().connections } else { profile.family().idle_connections }
    }

    fn minute(&self, now: Time) -> u32 {
        let seconds = self.config.wall + now.since(Time::ZERO).as_secs();
        u32::try_from(seconds / 60).unwrap_or(u32::MAX)
    }

    /// Does all work that is due at `now`.
    fn work(&mut self, now: Time) {
        self.greet(now);
        let (mut link, mut allocator) = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Up(link, allocator) => (link, allocator),
            other => {
                self.stage = other;
                return;
            }
        };
        link.tick(now);
        link.update_budget(&mut self.budget);
        self.judge(now, &mut link);
        self.begin(now, &mut link, &mut allocator);
        self.flush(now, &mut link);
        if self.done.is_none() {
            self.dial(now, (self.wanted(now, &link), hint(now, &link)));
        }
        let ending = self.ending(now, &link);
        self.stage = Stage::Up(link, allocator);
        if let Some(ending) = ending {
            self.end(ending);
        }
    }

    /// Returns the reason why the link has ended; `None` if it has not.
    fn ending(&mut self, now: Time, link: &Link) -> Option<Ending> {
        if link.is_done() && link.has_ended() {
            let since = *self.done.get_or_insert(now);
            let mut conns = self.conns.values();
            let left = conns.all(|conn| !conn.state.exchange && !conn.cover.slot.streams());
            let over = left || now >= since + LINGERS;
            return over.then_some(Ending::Done);
        }
        if link.is_reset() {
            return Some(Ending::Reset);
        }
        (now >= self.lost(now)).then_some(Ending::Lost)
    }

    fn end(&mut self, ending: Ending) {
        self.stage = Stage::Over;
        for (id, _) in std::mem::take(&mut self.conns) {
            self.outputs.push_back(ClientOutput::Close(id));
        }
        self.outputs.push_back(ClientOutput::Over(ending));
    }

    /// Starts the handshake over the first open connection. Closes connections that fail to open
    /// or to answer in time.
    fn greet(&mut self, now: Time) {
        if let Stage::Handshake(greeted) = &self.stage
            && now >= greeted.since + GREETING
        {
            let id = greeted.conn;
            self.outputs.push_back(ClientOutput::Close(id));
            self.gone(now, id);
        }
        if !matches!(self.stage, Stage::Alone) {
            return;
        }
        if now >= self.lost(now) {
            return self.end(Ending::Lost);
        }
        let late = self.conns.iter().filter(|(_, conn)| conn.state.is_late(now));
        for id in late.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.outputs.push_back(ClientOutput::Close(id));
            self.gone(now, id);
        }
        let open = self.conns.iter_mut().find(|(_, conn)| conn.state.opened);
        let Some((&id, _)) = open else { return self.dial(now, (1, LoadHint::Quiet)) };
        self.send_hello(now, id);
    }

    fn send_hello(&mut self, now: Time, id: ConnId) {
        let minute = self.minute(now);
        let drawn = usize::from(draw(&mut self.rng, self.config.profile.family().padding));
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let padding = conn.cover.slot.fit(HELLO + drawn) - HELLO;
        let padding = u16::try_from(padding).unwrap_or(u16::MAX);
        let mut hello = Vec::new();
        let own = (self.config.aes, padding);
        let client_handshake =
            ClientHandshake::begin(&self.config.key, minute, own, &mut self.rng, &mut hello);
        // This is `None` only if the bridge line's key is a point of low order.
        let Some(client_handshake) = client_handshake else { return self.end(Ending::Lost) };
        let (out, _) = conn.cover.send(now, &hello);
        (conn.state.exchange, conn.state.token) = (true, None);
        self.outputs.push_back(ClientOutput::Send(id, out));
        let greeted = Handshake { conn: id, client_handshake, since: now, answer: Vec::new() };
        self.stage = Stage::Handshake(Box::new(greeted));
    }

    /// Opens connections until there are `wanted` of them. `hint` is the load that they are
    /// expected to have.
    fn dial(&mut self, now: Time, (wanted, hint): (usize, LoadHint)) {
        while self.conns.len() < wanted && now >= self.dial {
            let id = ConnId(self.next_conn);
            let taken = |path: &usize| self.conns.values().any(|conn| conn.state.path == *path);
            let path = (0..self.config.profile.family().connections).find(|path| !taken(path));
            let Some(path) = path else { return };
            self.next_conn += 1;
            let draw = draw(&mut self.rng, u16::MAX);
            let cover = Cover::new(self.config.profile.client_slot(&self.context, hint, draw));
            self.conns.insert(id, Conn { cover, state: ConnState::of(path, now) });
            self.outputs.push_back(ClientOutput::Dial(id));
            if self.failures > 0 {
                self.dial = now + self.pause();
            }
        }
    }

    /// Returns the pause after failures, with up to 50 % of jitter so that clients do not
    /// synchronise.
    fn pause(&mut self) -> Duration {
        let pause = (PAUSE * (1 << (self.failures - 1).min(5))).min(LONGEST_PAUSE);
        pause + pause / 2 * u32::from(draw(&mut self.rng, 256)) / 256
    }

    /// Delays further connections after a failed one. Several failures during a pause count once.
    fn failed(&mut self, now: Time) {
        if now >= self.dial {
            self.failures += 1;
            self.dial = now + self.pause();
        }
    }

    /// Removes a closed connection.
    fn gone(&mut self, now: Time, id: ConnId) {
        let Some(conn) = self.conns.remove(&id) else { return };
        if !conn.state.heard {
            self.failed(now);
        }
        match &mut self.stage {
            Stage::Up(link, _) => link.lost(now, conn.state.path),
            Stage::Handshake(greeted) if greeted.conn == id => self.stage = Stage::Alone,
            _ => {}
        }
    }

    /// Closes connections that fail to open, have been silent for too long, or are spent. Probes
    /// connections that are quiet.
    fn judge(&mut self, now: Time, link: &mut Link) {
        let quiet = self.quiet(now, link);
        let mut gone = Vec::new();
        for (&id, conn) in &self.conns {
            let recovery = link.recovery(conn.state.path);
            let silent = recovery.and_then(Recovery::dead_at).is_some_and(|dead| now >= dead);
            let dead = silent || conn.state.is_late(now);
            let busy = recovery.is_some_and(Recovery::has_in_flight);
            if dead || conn.cover.slot.is_spent() && !busy {
                gone.push((id, dead));
                continue;
            }
            let asks = recovery.is_some_and(|recovery| {
                !recovery.expects_answer() && now >= recovery.last_received() + quiet
            });
            if asks && conn.cover.slot.streams() {
                link.ping(now, conn.state.path);
            }
        }
        for (id, dead) in gone {
            let Some(conn) = self.conns.remove(&id) else { continue };
            link.lost(now, conn.state.path);
            self.outputs.push_back(ClientOutput::Close(id));
            if dead && !conn.state.heard {
                self.failed(now);
            }
        }
    }

    /// Begins exchanges on open connections. A streaming connection begins its only exchange at
    /// once. Other connections begin as many as the waiting data of both ends need.
    fn begin(&mut self, now: Time, link: &mut Link, allocator: &mut TokenAllocator) {
        let open = self.conns.values().filter(|conn| conn.state.exchange).count();
        let asks = if self.done.is_some() { 0 } else { self.requests(link) };
        let Demand { mut bytes, least_room } = link.demand(now);
        let mut missing = asks.saturating_sub(open);
        let Family { coalesces, chunk, .. } = *self.config.profile.family();
        // A browser leaves no connection unused, so those that have waited longest are first.
        let mut conns: Vec<&mut Conn> = self.conns.values_mut().collect();
        conns.sort_by_key(|conn| conn.state.token);
        for Conn { cover, state } in conns {
            if !state.opened || state.exchange || !(cover.slot.streams() || cover.slot.begins()) {
                continue;
            }
            if !cover.slot.streams() && missing == 0 && bytes == 0 {
                continue;
            }
            // If a connection has no room for the data, other connections carry them.
            let room = cover.room(now).bytes.saturating_sub(TOKEN);
            missing -= usize::from(missing > 0 && (room >= least_room || bytes == 0));
            if room >= least_room {
                bytes = bytes.saturating_sub(if coalesces { room } else { chunk });
            }
            let (number, token) = allocator.allocate();
            let id = u64::from(number) + 1;
            let hold = cover.slot.hold();
            link.open(now, state.path, id, Opening::Asks(hold), &token);
            (state.exchange, state.token) = (true, Some(number));
        }
    }

    /// Returns the number of requests to keep outstanding: enough to fetch the server's backlog,
    /// and a few in advance. Returns 1 if no data are expected.
    fn requests(&self, link: &Link) -> usize {
        let (waits, profile) = (link.backlog(), self.config.profile);
        let most = profile.family().connections;
        // The answer to a large request is expected to be large.
        let said = profile.family().coalesces && link.unacknowledged() > profile.family().chunk;
        if waits == 0 && !said {
            return 1;
        }
        self.answers.map_or(most, |each| {
            let enough = usize::try_from(waits.div_ceil(each.max(1) as u64)).unwrap_or(most);
            enough.saturating_add(profile.family().ahead()).min(most)
        })
    }

    /// Seals waiting data and sends it.
    fn flush(&mut self, now: Time, link: &mut Link) {
        let conns = self.conns.values_mut().filter(|conn| conn.state.exchange);
        link.deal(now, conns.map(|conn| (conn.state.path, conn.cover.room(now))));
        for (&id, conn) in self.conns.iter_mut().filter(|(_, conn)| conn.state.exchange) {
            conn.cover.slot.lead(&mut self.lead);
            let path = conn.state.path;
            let Some(length) = conn.cover.fit(now, link.sealed(path), false) else { continue };
            let (out, _) = conn.cover.send(now, &link.take(now, path, length));
            self.outputs.push_back(ClientOutput::Send(id, out));
        }
    }

    fn receive(&mut self, now: Time, id: ConnId, bytes: &[u8]) {
        let Some(Conn { mut cover, mut state }) = self.conns.remove(&id) else { return };
        if let Stage::Up(link, _) = &mut self.stage
            && state.exchange
        {
            link.note_activity(now, state.path);
        }
        let mut broken = false;
        let mut each = |hidden: Hidden<'_>| {
            broken = broken || self.hidden(now, id, &mut state, hidden).is_err();
        };
        let taken = cover.slot.receive(now, bytes, &mut each);
        cover.slot.lead(&mut self.lead);
        if taken.is_err() || broken {
            self.outputs.push_back(ClientOutput::Close(id));
            self.conns.insert(id, Conn { cover, state });
            self.gone(now, id);
        } else {
            self.conns.insert(id, Conn { cover, state });
        }
    }

    fn hidden(
        &mut self,
        now: Time,
        id: ConnId,
        state: &mut ConnState,
        hidden: Hidden<'_>,
    ) -> Result<(), LinkViolation> {
        match hidden {
            Hidden::End => {
                state.exchange = false;
                let brought = std::mem::take(&mut state.brought);
                if let Stage::Up(link, _) = &mut self.stage {
                    link.close(state.path);
                    // An answer that emptied the backlog does not show how much an answer can hold.
                    if link.backlog() > brought as u64
                        && let Some(answers) = &mut self.answers
                    {
                        *answers = (*answers * 3 + brought) / 4;
                    }
                }
                Ok(())
            }
            Hidden::Bytes(bytes) => {
                state.brought += bytes.len();
                self.hidden_bytes(now, id, state, bytes)
            }
        }
    }

    fn hidden_bytes(
        &mut self,
        now: Time,
        id: ConnId,
        state: &mut ConnState,
        bytes: &[u8],
    ) -> Result<(), LinkViolation> {
        let skipped = state.skip.min(bytes.len());
        state.skip -= skipped;
        let bytes = &bytes[skipped..];
        match &mut self.stage {
            Stage::Up(link, allocator) => {
                if link.receive(now, state.path, bytes)? > 0 {
                    (self.heard, self.failures, state.heard) = (Some(now), 0, true);
                    state.token.into_iter().for_each(|token| allocator.mark_accepted(token));
                }
                Ok(())
            }
            Stage::Handshake(greeted) if greeted.conn == id => {
                greeted.answer.extend_from_slice(bytes);
                self.answered(now, state)
            }
            _ => Ok(()),
        }
    }

    /// Processes the answer to the handshake once it is complete.
    fn answered(&mut self, now: Time, state: &mut ConnState) -> Result<(), LinkViolation> {
        let Stage::Handshake(greeted) = &self.stage else { return Ok(()) };
        let Some((answer, rest)) = greeted.answer.split_first_chunk::<ANSWER>() else {
            return Ok(());
        };
        let (secrets, padding) = greeted.client_handshake.finish(answer).ok_or(LinkViolation)?;
        let (rest, trip) = (rest.to_vec(), now.since(greeted.since));
        let mut link = self.link(&secrets);
        link.measured(trip);
        link.open(now, state.path, 0, Opening::Asks(Duration::ZERO), &[]);
        link.write(&self.early.0, &mut self.budget);
        if self.early.1 {
            link.finish();
        }
        self.early.0 = Vec::new();
        self.stage = Stage::Up(Box::new(link), Box::new(TokenAllocator::new(&secrets.tokens)));
        self.outputs.push_back(ClientOutput::Up);
        (self.heard, self.failures, state.heard) = (Some(now), 0, true);
        state.skip = padding.into();
        let skipped = state.skip.min(rest.len());
        state.skip -= skipped;
        let Stage::Up(link, _) = &mut self.stage else { return Ok(()) };
        link.receive(now, state.path, &rest[skipped..]).map(drop)
    }

    fn link(&mut self, secrets: &LinkSecrets) -> Link {
        let paths = self.config.profile.family().connections;
        let ClientConfig { profile, schedule, covers, .. } = &self.config;
        let rng = &mut self.rng;
        let mut link = Link::new(secrets, Side::Client, paths, *profile, schedule, rng);
        link.allow_pauses((profile.family().pauses)(covers));
        link
    }
}

/// Chooses the load that new connections are expected to have.
fn hint(now: Time, link: &Link) -> LoadHint {
    match link.unacknowledged() as u64 {
        up if up >= MUCH && up > link.backlog() => LoadHint::Up,
        _ if link.is_active(now) => LoadHint::Down,
        _ => LoadHint::Quiet,
    }
}

/// Draws a uniform random number below `end`.
pub(crate) fn draw(rng: &mut impl CryptoRng, end: u16) -> u16 {
    ((u64::from(rng.next_u32()) * u64::from(end)) >> 32) as u16
}
