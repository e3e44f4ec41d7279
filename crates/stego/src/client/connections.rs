//! The connections of a client: which ones are opened, probed and closed.

use std::time::Duration;

use anabranch_multipath::Time;
use rand_core::CryptoRng;

use super::{Client, ClientOutput, Stage};
use crate::cover::{ConnId, Cover};
use crate::handshake::draw;
use crate::link::Link;
use crate::recovery::Recovery;
use crate::slot::{ClientEnd, LoadHint};

/// Timeout for opening a connection. After an outage, a new connection succeeds sooner than TCP's
/// retransmissions, whose intervals grow to a minute and more.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before a client opens another connection, after one has failed. It doubles with each
/// further failure.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Maximum pause before another connection is opened, after failures.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// Time without a received byte after which a client probes a connection with a PING frame, while
/// data are being transferred.
const PROBE_AFTER: Duration = Duration::from_secs(2);
/// Time without a received byte after which a client probes a connection with a PING frame, while
/// no data are being transferred.
const PROBE_AFTER_IDLE: Duration = Duration::from_secs(20);

/// A connection of a client: the cover (ordinary-looking traffic that hides the data), and the
/// other state.
pub(super) struct Conn {
    pub(super) cover: Cover<dyn ClientEnd>,
    pub(super) state: ConnState,
}

/// The state of a connection, without the state of its cover (the ordinary-looking traffic that
/// hides the data).
pub(super) struct ConnState {
    /// Index of the place that the connection occupies. The link has a fixed number of places
    /// (paths), each for one connection at a time.
    pub(super) path: usize,
    dialled: Time,
    pub(super) opened: bool,
    /// Whether anything from the server has arrived over the connection.
    pub(super) has_received: bool,
    /// Index of the token (single-use bytes that identify the link) that began the current
    /// exchange (usually a request and its answer). `None` between exchanges and during the
    /// handshake.
    pub(super) token: Option<u32>,
    pub(super) exchange: bool,
    /// Number of padding bytes of the handshake that are still to arrive and to be skipped.
    pub(super) skip: usize,
    /// Number of hidden bytes (bytes of the link, extracted from the cover) received in the
    /// current exchange (usually a request and its answer).
    pub(super) received: usize,
}

impl ConnState {
    fn new(path: usize, dialled: Time) -> ConnState {
        ConnState {
            path,
            dialled,
            opened: false,
            has_received: false,
            token: None,
            exchange: false,
            skip: 0,
            received: 0,
        }
    }

    /// Returns the deadline for opening the connection; `None` if it is open.
    fn deadline(&self) -> Option<Time> {
        (!self.opened).then_some(self.dialled + CONNECT_TIMEOUT)
    }

    pub(super) fn is_late(&self, now: Time) -> bool {
        self.deadline().is_some_and(|deadline| now >= deadline)
    }

    /// Removes from `bytes` the padding that has to be skipped.
    pub(super) fn skip_padding<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        &bytes[skipped..]
    }
}

/// The pause before a new connection is opened, after connections have failed.
#[derive(Default)]
pub(super) struct Backoff {
    failures: u32,
    /// Time before which no further connection may be opened.
    pub(super) until: Time,
}

impl Backoff {
    /// Resets the back-off: the next connection is opened without a pause.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Delays the opening of further connections after a failure. Several failures during one
    /// pause count once.
    fn failed(&mut self, now: Time, rng: &mut impl CryptoRng) {
        if now >= self.until {
            self.failures += 1;
            self.until = now + self.pause(rng);
        }
    }

    /// Delays the opening of the next connection when a connection is being opened, if earlier
    /// connections have failed.
    fn dialled(&mut self, now: Time, rng: &mut impl CryptoRng) {
        if self.failures > 0 {
            self.until = now + self.pause(rng);
        }
    }

    /// Returns the pause after failures, with up to 50 % of jitter so that clients do not
    /// synchronise.
    fn pause(&self, rng: &mut impl CryptoRng) -> Duration {
        let pause = (FIRST_PAUSE * (1 << (self.failures - 1).min(5))).min(LONGEST_PAUSE);
        pause + pause / 2 * u32::from(draw(rng, 256)) / 256
    }
}

impl<R: CryptoRng> Client<R> {
    /// Returns the number of connections to keep open now. It is larger while data are transferred
    /// than while the link is idle.
    pub(super) fn wanted(&self, now: Time, link: &Link) -> usize {
        let family = self.config.profile.family();
        if link.is_active(now) { family.connections } else { family.idle_connections }
    }

    /// Opens connections until their number is `wanted`, except during a pause after failures.
    /// `hint` is the expected load of the new connections.
    pub(super) fn dial(&mut self, now: Time, wanted: usize, hint: LoadHint) {
        while self.conns.len() < wanted && now >= self.backoff.until {
            let id = ConnId(self.next_conn);
            let taken = |path: &usize| self.conns.values().any(|conn| conn.state.path == *path);
            let path = (0..self.config.profile.family().connections).find(|path| !taken(path));
            let Some(path) = path else { return };
            self.next_conn += 1;
            let draw = draw(&mut self.rng, u16::MAX);
            let cover = Cover::new(self.config.profile.client_slot(&self.context, hint, draw));
            self.conns.insert(id, Conn { cover, state: ConnState::new(path, now) });
            self.outputs.push_back(ClientOutput::Dial(id));
            self.backoff.dialled(now, &mut self.rng);
        }
    }

    /// Closes a connection that has failed.
    pub(super) fn close(&mut self, now: Time, id: ConnId) {
        self.outputs.push_back(ClientOutput::Close(id));
        self.gone(now, id);
    }

    /// Removes a connection that the driver has reported as closed.
    pub(super) fn gone(&mut self, now: Time, id: ConnId) {
        let Some(conn) = self.conns.remove(&id) else { return };
        if !conn.state.has_received {
            self.backoff.failed(now, &mut self.rng);
        }
        match &mut self.stage {
            Stage::Up(link, _) => link.lost(now, conn.state.path),
            Stage::Handshake(handshake) if handshake.conn == id => self.stage = Stage::Alone,
            _ => {}
        }
    }

    /// Closes connections that did not open in time, have been silent for too long, or can carry
    /// no further data. Probes connections on which nothing was received for a while.
    pub(super) fn check_connections(&mut self, now: Time, link: &mut Link) {
        let mut closed = Vec::new();
        for (&id, conn) in &self.conns {
            let recovery = link.recovery(conn.state.path);
            let silent = recovery.and_then(Recovery::dead_at).is_some_and(|dead| now >= dead);
            let dead = silent || conn.state.is_late(now);
            let busy = recovery.is_some_and(Recovery::has_in_flight);
            if dead || conn.cover.slot.is_spent() && !busy {
                closed.push((id, dead));
            } else if self.probe_at(now, link, conn).is_some_and(|probe| now >= probe) {
                link.ping(now, conn.state.path);
            }
        }
        for (id, dead) in closed {
            let Some(conn) = self.conns.remove(&id) else { continue };
            link.lost(now, conn.state.path);
            self.outputs.push_back(ClientOutput::Close(id));
            if dead && !conn.state.has_received {
                self.backoff.failed(now, &mut self.rng);
            }
        }
    }

    /// Returns the time at which a connection is probed if nothing is received until then; `None`
    /// if it cannot be probed, or if an answer is expected anyway.
    fn probe_at(&self, now: Time, link: &Link, conn: &Conn) -> Option<Time> {
        let recovery = link.recovery(conn.state.path)?;
        let quiet = if link.is_active(now) { PROBE_AFTER } else { PROBE_AFTER_IDLE };
        let probes = self.config.profile.family().streams && !recovery.expects_answer();
        probes.then_some(recovery.last_received() + quiet)
    }

    /// Returns the next deadline of a connection after the handshake: to probe it, to send over it
    /// or to close it. Returns `None` if there is none.
    pub(super) fn next_of_conn(&self, now: Time, link: &Link, conn: &Conn) -> Option<Time> {
        let Some(recovery) = link.recovery(conn.state.path) else { return conn.state.deadline() };
        let probe = self.probe_at(now, link, conn);
        [recovery.dead_at(), probe, conn.cover.due()].into_iter().flatten().min()
    }

    /// Returns the time until which the client waits before the handshake can begin. It is the end
    /// of the pause before the first connection is opened, or the timeout of a connection that is
    /// being opened. Returns `None` if all connections are open.
    pub(super) fn next_attempt(&self, now: Time) -> Option<Time> {
        if self.conns.is_empty() {
            return Some(self.backoff.until.max(now));
        }
        self.conns.values().filter_map(|conn| conn.state.deadline()).min()
    }
}
