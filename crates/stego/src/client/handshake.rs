//! The handshake of a client, over its first connection.

use std::time::Duration;

use anabranch_multipath::Time;
use rand_core::CryptoRng;

use super::connections::ConnState;
use super::{Client, ClientConfig, ClientOutput, Ending, Stage};
use crate::cover::ConnId;
use crate::handshake::{ANSWER, ClientHandshake, HELLO, draw};
use crate::link::{Link, LinkViolation, Opening, Side};
use crate::secrets::LinkSecrets;
use crate::slot::LoadHint;
use crate::token::TokenAllocator;

/// Timeout of a handshake, after which the client tries another connection. After an outage, a new
/// connection succeeds sooner than TCP's retransmissions, whose intervals grow to a minute and
/// more.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The client's state of a handshake in progress: its connection, its start, and the received part
/// of the answer.
pub(super) struct Handshake {
    pub(super) conn: ConnId,
    client_handshake: ClientHandshake,
    since: Time,
    /// Hidden bytes received so far: the ANSWER of the handshake, and the bytes after it.
    answer: Vec<u8>,
}

impl Handshake {
    pub(super) fn deadline(&self) -> Time {
        self.since + HANDSHAKE_TIMEOUT
    }
}

impl<R: CryptoRng> Client<R> {
    /// Starts the handshake over the first open connection. Closes connections that fail to open
    /// or to answer in time.
    pub(super) fn greet(&mut self, now: Time) {
        if let Stage::Handshake(handshake) = &self.stage
            && now >= handshake.deadline()
        {
            let conn = handshake.conn;
            self.close(now, conn);
        }
        if !matches!(self.stage, Stage::Alone) {
            return;
        }
        if now >= self.lost_at(now) {
            return self.end(Ending::Lost);
        }
        let late = self.conns.iter().filter(|(_, conn)| conn.state.is_late(now));
        for id in late.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.close(now, id);
        }
        match self.conns.iter().find(|(_, conn)| conn.state.opened) {
            Some((&id, _)) => self.send_hello(now, id),
            None => self.dial(now, 1, LoadHint::Quiet),
        }
    }

    fn send_hello(&mut self, now: Time, id: ConnId) {
        let minute = self.minute(now);
        let drawn = usize::from(draw(&mut self.rng, self.config.profile.family().padding));
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let padding = conn.cover.slot.fit(HELLO + drawn) - HELLO;
        let own = (self.config.aes, u16::try_from(padding).unwrap_or(u16::MAX));
        let mut hello = Vec::new();
        let client_handshake =
            ClientHandshake::begin(&self.config.key, minute, own, &mut self.rng, &mut hello);
        // The handshake is `None` only if the bridge line's key is a point of low order.
        let Some(client_handshake) = client_handshake else { return self.end(Ending::Lost) };
        let out = conn.cover.send(now, &hello);
        (conn.state.exchange, conn.state.token) = (true, None);
        self.outputs.push_back(ClientOutput::Send(id, out));
        let handshake = Handshake { conn: id, client_handshake, since: now, answer: Vec::new() };
        self.stage = Stage::Handshake(Box::new(handshake));
    }

    fn minute(&self, now: Time) -> u32 {
        let seconds = self.config.wall + now.since(Time::ZERO).as_secs();
        u32::try_from(seconds / 60).unwrap_or(u32::MAX)
    }

    /// Processes hidden bytes that arrive before the handshake is complete. Once the answer to the
    /// handshake is complete, opens the link.
    pub(super) fn receive_answer(
        &mut self,
        now: Time,
        state: &mut ConnState,
        bytes: &[u8],
    ) -> Result<(), LinkViolation> {
        let Stage::Handshake(handshake) = &mut self.stage else { return Ok(()) };
        handshake.answer.extend_from_slice(bytes);
        let Some((answer, rest)) = handshake.answer.split_first_chunk::<ANSWER>() else {
            return Ok(());
        };
        let finished = handshake.client_handshake.finish(answer);
        let (secrets, padding) = finished.ok_or(LinkViolation::Answer)?;
        let (rest, rtt) = (rest.to_vec(), now.since(handshake.since));
        let mut link = self.link(&secrets);
        link.measured(rtt);
        link.open(now, state.path, 0, Opening::Asks(Duration::ZERO), &[]);
        link.write(&self.early.bytes, &mut self.budget);
        if self.early.ended {
            link.finish();
        }
        self.early.bytes = Vec::new();
        state.skip = padding.into();
        self.on_server_data(now, state);
        let received = link.receive(now, state.path, state.skip_padding(&rest));
        let allocator = TokenAllocator::new(&secrets.tokens);
        self.stage = Stage::Up(Box::new(link), Box::new(allocator));
        self.outputs.push_back(ClientOutput::Up);
        received.map(drop)
    }

    /// Records that authentic bytes of the server arrived over a connection. Resets the pauses
    /// between attempts to connect.
    pub(super) fn on_server_data(&mut self, now: Time, state: &mut ConnState) {
        (self.last_arrival, state.has_received) = (Some(now), true);
        self.backoff.reset();
    }

    fn link(&mut self, secrets: &LinkSecrets) -> Link {
        let ClientConfig { profile, schedule, covers, .. } = &self.config;
        let paths = profile.family().connections;
        let rng = &mut self.rng;
        let mut link = Link::new(secrets, Side::Client, paths, *profile, schedule, rng);
        link.allow_pauses((profile.family().pauses)(covers));
        link
    }
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::Core;
    use anabranch_multipath::schedule::Spec;
    use anabranch_multipath::seed::stream;

    use super::*;
    use crate::cover::Input;
    use crate::keys::ServerKey;
    use crate::slot::{Covers, Hidden};

    #[test]
    fn an_answer_that_is_not_the_servers_is_refused_with_its_cause() {
        let now = Time::from_secs(1);
        let config = ClientConfig {
            key: ServerKey::of([5; 32]).public(),
            profile: "nosteg".parse().unwrap(),
            host: "media.example.net".to_owned(),
            schedule: Spec::over_windows("pull").unwrap(),
            wall: 1_800_000_000,
            aes: true,
            covers: Covers::default(),
        };
        let mut client = Client::new(config, stream(1, 3, "client"));
        let Some(ClientOutput::Dial(id)) = client.poll(now) else { panic!("it dials") };
        client.handle(now, Input::Opened(id));
        client.handle(now, Input::Room(id, 9_000));
        assert!(matches!(client.poll(now), Some(ClientOutput::Send(..))), "a HELLO");
        let mut state = client.conns.remove(&id).unwrap().state;
        let answer = Hidden::Bytes(&[7; ANSWER]);
        let received = client.receive_hidden(now, id, &mut state, answer);
        assert_eq!(received, Err(LinkViolation::Answer));
    }
}
