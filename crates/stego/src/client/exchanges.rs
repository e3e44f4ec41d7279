//! The exchanges (usually requests with their answers) of a client's connections: when they begin,
//! and the hidden bytes that they carry.

use anabranch_multipath::Time;
use rand_core::CryptoRng;

use super::connections::{Conn, ConnState};
use super::{Client, ClientOutput, Stage};
use crate::cover::ConnId;
use crate::link::{Demand, Link, LinkViolation, Opening};
use crate::slot::{Hidden, LoadHint, Profile};
use crate::token::{TOKEN, TokenAllocator};

/// Number of unacknowledged bytes from which new connections are expected to carry mainly uploads
/// ([`LoadHint::Up`]).
const MUCH: u64 = 16 << 10;

/// An estimate of the number of bytes that one answer hides. From it follows how many requests are
/// needed to fetch the server's data.
pub(super) struct AnswerSizes {
    /// Moving average of the number of hidden bytes in an answer, counting only answers after
    /// which the server still had data. `None` for covers (kinds of traffic) that need no
    /// estimate.
    average: Option<usize>,
}

impl AnswerSizes {
    pub(super) fn new(profile: Profile) -> AnswerSizes {
        AnswerSizes { average: profile.family().answer }
    }

    /// Records an answer with `bytes` hidden bytes. Before the answer, the server had `backlog`
    /// bytes to send.
    fn record(&mut self, bytes: usize, backlog: u64) {
        // An answer that emptied the backlog does not show how much an answer can hold.
        if backlog > bytes as u64
            && let Some(average) = &mut self.average
        {
            *average = (*average * 3 + bytes) / 4;
        }
    }

    /// Returns the number of answers that are needed to carry `backlog` bytes; `None` if the size
    /// of answers is not estimated.
    fn needed(&self, backlog: u64) -> Option<usize> {
        let needed = backlog.div_ceil(self.average?.max(1) as u64);
        Some(usize::try_from(needed).unwrap_or(usize::MAX))
    }
}

impl<R: CryptoRng> Client<R> {
    /// Begins exchanges (usually requests with their answers) on open connections. A streaming
    /// connection begins its only exchange at once. On other connections, begins as many exchanges
    /// as the waiting data of both ends need.
    pub(super) fn begin_exchanges(
        &mut self,
        now: Time,
        link: &mut Link,
        allocator: &mut TokenAllocator,
    ) {
        let open = self.conns.values().filter(|conn| conn.state.exchange).count();
        let requests = if self.done.is_some() { 0 } else { self.requests(link) };
        let mut missing = requests.saturating_sub(open);
        let Demand { mut bytes, least_room } = link.demand(now);
        let family = self.config.profile.family();
        // Connections that have waited longest go first, because a browser leaves no connection
        // unused.
        let free = |conn: &&mut Conn| {
            conn.state.opened && !conn.state.exchange && conn.cover.slot.begins()
        };
        let mut conns: Vec<&mut Conn> = self.conns.values_mut().filter(free).collect();
        conns.sort_by_key(|conn| conn.state.token);
        for Conn { cover, state } in conns {
            if !family.streams && missing == 0 && bytes == 0 {
                continue;
            }
            // If this connection has no room for the data, other connections carry the data.
            let room = cover.room(now).bytes.saturating_sub(TOKEN);
            missing -= usize::from(missing > 0 && (room >= least_room || bytes == 0));
            if room >= least_room {
                bytes = bytes.saturating_sub(if family.coalesces { room } else { family.chunk });
            }
            let (number, token) = allocator.allocate();
            let opening = Opening::Asks(cover.slot.hold());
            link.open(now, state.path, u64::from(number) + 1, opening, &token);
            (state.exchange, state.token) = (true, Some(number));
        }
    }

    /// Returns the number of requests to keep outstanding: enough to fetch the server's backlog,
    /// and a few in advance. Without an estimate of the size of answers, returns the maximum
    /// number of connections. Returns 1 if no data are expected, so that the server can answer as
    /// soon as it has data.
    fn requests(&self, link: &Link) -> usize {
        let family = self.config.profile.family();
        let backlog = link.backlog();
        // The answer to a large request is expected to be large.
        let large = family.coalesces && link.unacknowledged() > family.chunk;
        if backlog == 0 && !large {
            return 1;
        }
        let needed = self.answers.needed(backlog);
        let wanted = needed.map(|needed| needed.saturating_add(family.ahead()));
        wanted.unwrap_or(usize::MAX).min(family.connections)
    }

    /// Encrypts waiting data and sends it. Each connection's cover (the traffic that hides the
    /// data) states how many bytes its next message can hide. The link encrypts blocks of these
    /// sizes, and the covers send them.
    pub(super) fn flush(&mut self, now: Time, link: &mut Link) {
        let conns = self.conns.values_mut().filter(|conn| conn.state.exchange);
        link.deal(now, conns.map(|conn| (conn.state.path, conn.cover.room(now))));
        for (&id, conn) in self.conns.iter_mut().filter(|(_, conn)| conn.state.exchange) {
            conn.cover.slot.share_hint(&mut self.next_path);
            let path = conn.state.path;
            let Some(length) = conn.cover.fit(now, link.sealed(path), false) else { continue };
            let out = conn.cover.send(now, &link.take(now, path, length));
            self.outputs.push_back(ClientOutput::Send(id, out));
        }
    }

    /// Processes bytes received over a connection: extracts the hidden bytes, and passes them to
    /// the link or the handshake.
    pub(super) fn receive(&mut self, now: Time, id: ConnId, bytes: &[u8]) {
        let Some(Conn { mut cover, mut state }) = self.conns.remove(&id) else { return };
        if let Stage::Up(link, _) = &mut self.stage
            && state.exchange
        {
            link.note_activity(now, state.path);
        }
        let mut broken = false;
        let mut each = |hidden: Hidden<'_>| {
            broken = broken || self.receive_hidden(now, id, &mut state, hidden).is_err();
        };
        broken |= cover.slot.receive(now, bytes, &mut each).is_err();
        cover.slot.share_hint(&mut self.next_path);
        self.conns.insert(id, Conn { cover, state });
        if broken {
            self.close(now, id);
        }
    }

    pub(super) fn receive_hidden(
        &mut self,
        now: Time,
        id: ConnId,
        state: &mut ConnState,
        hidden: Hidden<'_>,
    ) -> Result<(), LinkViolation> {
        match (hidden, &mut self.stage) {
            (Hidden::End, stage) => {
                state.exchange = false;
                let received = std::mem::take(&mut state.received);
                if let Stage::Up(link, _) = stage {
                    link.close(state.path);
                    self.answers.record(received, link.backlog());
                }
                Ok(())
            }
            (Hidden::Bytes(bytes), Stage::Up(link, allocator)) => {
                state.received += bytes.len();
                if link.receive(now, state.path, state.skip_padding(bytes))? > 0 {
                    state.token.into_iter().for_each(|token| allocator.mark_accepted(token));
                    self.on_server_data(now, state);
                }
                Ok(())
            }
            (Hidden::Bytes(bytes), Stage::Handshake(handshake)) if handshake.conn == id => {
                state.received += bytes.len();
                self.receive_answer(now, state, bytes)
            }
            (Hidden::Bytes(_), _) => Ok(()),
        }
    }
}

/// Returns the load expected of new connections: mainly uploads, mainly downloads, or little.
pub(super) fn hint(now: Time, link: &Link) -> LoadHint {
    match link.unacknowledged() as u64 {
        up if up >= MUCH && up > link.backlog() => LoadHint::Up,
        _ if link.is_active(now) => LoadHint::Down,
        _ => LoadHint::Quiet,
    }
}
