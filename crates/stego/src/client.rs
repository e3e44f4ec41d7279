//! A client: one end of a link (a byte stream in each direction, hidden in ordinary-looking
//! traffic), its handshake, and the link's connections.
//!
//! `handshake` opens the link over the first connection. `connections` opens further ones, probes
//! them, and closes dead ones. `exchanges` begins the exchanges of connections, and passes bytes
//! between their covers (the ordinary-looking traffic) and the link.

mod connections;
mod exchanges;
mod handshake;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anabranch_multipath::schedule::Spec;
use anabranch_multipath::{Core, Time};
use rand_core::CryptoRng;

use crate::budget::Budget;
use crate::cover::{ConnId, Input};
use crate::keys::BridgeKey;
use crate::link::Link;
use crate::slot::{Covers, Profile, SharedContext};
use crate::token::TokenAllocator;
use connections::{Backoff, Conn};
use exchanges::{AnswerSizes, hint};
use handshake::Handshake;

/// Time for which a client keeps its link after the streams of both directions have ended, because
/// its last acknowledgement may not have reached the server.
const LINGERS: Duration = Duration::from_secs(5);
/// Time without bytes from the other end after which a link (a byte stream over several
/// connections) is given up.
pub(crate) const SURVIVES: Duration = Duration::from_secs(300);
/// Maximum bytes of memory that a client's link (its byte streams to and from the server) may use
/// beyond the first MiB in each direction. With this memory, the windows of both directions can
/// reach their maximum.
const MEMORY: usize = 30 << 20;
/// Maximum bytes that are buffered of the data that the program writes before the handshake is
/// complete.
const EARLY: usize = 64 << 10;

/// An action that a client requests from its driver, the code that owns the sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientOutput {
    /// Open a connection to the server. This identifier names the connection in later inputs and
    /// outputs.
    Dial(ConnId),
    /// Write these bytes to the connection.
    Send(ConnId, Vec<u8>),
    /// Close the connection after writing its queued bytes.
    Close(ConnId),
    /// The server has answered the handshake, so bytes can flow in both directions.
    Up,
    /// The link (the client's byte streams to and from the server) has ended, for this reason.
    Over(Ending),
}

/// The reason why a link (a client's byte streams to and from the server) ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The streams of both directions ended, and both ends know this.
    Done,
    /// The client or the server has aborted the link.
    Reset,
    /// The other end was unreachable for 5 minutes.
    Lost,
    /// The server had exceeded its memory limit, and closed this link because it used the most
    /// memory beyond its allowance.
    Crowded,
}

/// Configuration of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The server's public key, from the bridge line.
    pub key: BridgeKey,
    /// The profile (kind of cover traffic) that the bridge line names.
    pub profile: Profile,
    /// The server's name in requests, for covers (ordinary-looking traffic that hides the data)
    /// that contain a name: a host name or an address, with a port unless it is the default. It
    /// must contain no spaces and no line breaks.
    pub host: String,
    /// The scheduler that chooses the connection for each chunk of the stream.
    pub schedule: Spec,
    /// Wall-clock time at the start of the program (time zero), in seconds since 1970.
    pub wall: u64,
    /// Whether this machine has hardware support for AES, so that AES-GCM is faster than ChaCha20.
    pub aes: bool,
    /// Data from which the covers (ordinary-looking traffic that hides the link's data) are made.
    /// A client needs no pictures, because only a server's answers hide bytes in them.
    pub covers: Covers,
}

/// The client's end of a link: a byte stream in each direction over several connections, hidden in
/// ordinary-looking traffic.
pub struct Client<R> {
    config: ClientConfig,
    context: Arc<SharedContext>,
    rng: R,
    stage: Stage,
    conns: BTreeMap<ConnId, Conn>,
    next_conn: u64,
    backoff: Backoff,
    outputs: VecDeque<ClientOutput>,
    budget: Budget,
    early: EarlyData,
    /// The URL path that the server last suggested for the next request; `None` without a
    /// suggestion. In some covers a server never suggests a path.
    next_path: Option<String>,
    answers: AnswerSizes,
    /// Time at which a block from the server last arrived. Until the first block, the time of the
    /// first [`Core::poll`]; `None` before that call.
    last_arrival: Option<Time>,
    /// Time at which the streams of both directions had ended; `None` while one of them goes on.
    done: Option<Time>,
    /// Whether an event or a call requires [`Client::work`] to be called again.
    changed: bool,
    /// Time of the next call of [`Client::work`]; `None` if none is needed.
    timer: Option<Time>,
}

enum Stage {
    Alone,
    Handshake(Box<Handshake>),
    Up(Box<Link>, Box<TokenAllocator>),
    Over,
}

/// Data that the program wrote before the handshake was complete.
#[derive(Default)]
struct EarlyData {
    bytes: Vec<u8>,
    /// Whether the stream ends after `bytes`.
    ended: bool,
}

impl<R: CryptoRng> Core for Client<R> {
    type In<'a> = Input<'a>;
    type Out = ClientOutput;

    fn handle(&mut self, now: Time, input: Input<'_>) {
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

    fn poll(&mut self, now: Time) -> Option<ClientOutput> {
        if self.outputs.is_empty() && (self.changed || self.timer.is_some_and(|due| now >= due)) {
            self.last_arrival.get_or_insert(now);
            self.changed = false;
            self.work(now);
            self.timer = self.next_work(now);
        }
        self.outputs.pop_front()
    }

    fn next_timeout(&self) -> Option<Time> {
        if self.changed { Some(Time::ZERO) } else { self.timer }
    }
}

impl<R: CryptoRng> Client<R> {
    /// Creates a client. It opens its first connection and begins the handshake at the first
    /// [`Core::poll`].
    #[must_use]
    pub fn new(config: ClientConfig, rng: R) -> Client<R> {
        let (host, covers) = (config.host.clone(), config.covers.clone());
        let context = Arc::new(SharedContext::new(&config.key, host, config.wall, covers));
        let answers = AnswerSizes::new(config.profile);
        Client {
            config,
            context,
            rng,
            stage: Stage::Alone,
            conns: BTreeMap::new(),
            next_conn: 0,
            backoff: Backoff::default(),
            outputs: VecDeque::new(),
            budget: Budget::new(MEMORY),
            early: EarlyData::default(),
            next_path: None,
            answers,
            last_arrival: None,
            done: None,
            changed: true,
            timer: None,
        }
    }

    /// Accepts bytes to send to the server. Returns how many were accepted.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let taken = match &mut self.stage {
            Stage::Up(link, _) => link.write(bytes, &mut self.budget),
            Stage::Over => 0,
            Stage::Alone | Stage::Handshake(_) => {
                let taken = bytes.len().min(self.room());
                self.early.bytes.extend_from_slice(&bytes[..taken]);
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
            Stage::Alone | Stage::Handshake(_) if self.early.ended => 0,
            Stage::Alone | Stage::Handshake(_) => EARLY - self.early.bytes.len(),
        }
    }

    /// Ends the client's stream, after the data written so far.
    pub fn finish(&mut self) {
        self.changed = true;
        match &mut self.stage {
            Stage::Up(link, _) => link.finish(),
            _ => self.early.ended = true,
        }
    }

    /// Aborts the streams of both directions at once. Data in flight are lost.
    pub fn reset(&mut self) {
        self.changed = true;
        match &mut self.stage {
            Stage::Up(link, _) => link.reset(),
            _ => self.end(Ending::Reset),
        }
    }

    /// Returns the next bytes from the server; `None` if there are none.
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
        self.check_connections(now, &mut link);
        self.begin_exchanges(now, &mut link, &mut allocator);
        self.flush(now, &mut link);
        if self.done.is_none() {
            self.dial(now, self.wanted(now, &link), hint(now, &link));
        }
        let ending = self.ending(now, &link);
        self.stage = Stage::Up(link, allocator);
        if let Some(ending) = ending {
            self.end(ending);
        }
    }

    /// Returns the deadline of the next [`Client::work`], if no event occurs before; `None` if the
    /// link has ended.
    fn next_work(&self, now: Time) -> Option<Time> {
        match &self.stage {
            Stage::Over => None,
            Stage::Alone => self.next_attempt(now),
            Stage::Handshake(handshake) => Some(handshake.deadline()),
            Stage::Up(link, _) => self.next_of_link(now, link),
        }
    }

    fn next_of_link(&self, now: Time, link: &Link) -> Option<Time> {
        let conns = self.conns.values().filter_map(|conn| self.next_of_conn(now, link, conn));
        let dials = self.done.is_none() && self.conns.len() < self.wanted(now, link);
        let dial = dials.then_some(self.backoff.until);
        let lost = self.done.map_or(self.lost_at(now), |since| since + LINGERS);
        conns.chain(link.next_timeout(now)).chain(dial).chain([lost]).min()
    }

    /// Returns the time at which the client gives up the link, if nothing arrives from the server
    /// before.
    fn lost_at(&self, now: Time) -> Time {
        self.last_arrival.unwrap_or(now) + SURVIVES
    }

    /// Returns the reason why the link has ended; `None` if it has not.
    fn ending(&mut self, now: Time, link: &Link) -> Option<Ending> {
        if link.is_done() && link.has_ended() {
            let since = *self.done.get_or_insert(now);
            let streams = self.config.profile.family().streams;
            let left = self.conns.values().all(|conn| !conn.state.exchange && !streams);
            let over = left || now >= since + LINGERS;
            return over.then_some(Ending::Done);
        }
        if link.is_reset() {
            return Some(Ending::Reset);
        }
        (now >= self.lost_at(now)).then_some(Ending::Lost)
    }

    fn end(&mut self, ending: Ending) {
        self.stage = Stage::Over;
        for (id, _) in std::mem::take(&mut self.conns) {
            self.outputs.push_back(ClientOutput::Close(id));
        }
        self.outputs.push_back(ClientOutput::Over(ending));
    }
}
