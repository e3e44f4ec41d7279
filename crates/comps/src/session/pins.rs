//! QUIC connections whose handshake is not confirmed keep to one path.
//!
//! A server may refuse, or charge for, a change of address before the handshake is confirmed (RFC
//! 9000, section 9). Nothing that confirms it is readable from outside, but this is: the client has
//! sent a packet with a short header, and the server sent one at least a round-trip time later, so
//! it had the client's last flight. A packet with a long header that comes after that is a
//! retransmission of the handshake: the connection is pinned again.
//!
//! Several connections may share a session (one client address). They are told apart by connection
//! ID, so that a new connection's handshake does not pull an older one back.

use std::time::Duration;

use anabranch_multipath::Time;

use crate::protocol::quic::{self, Cid, Long};

/// A handshake that its client has not gone on with for so long was given up.
const GIVEN_UP: Duration = Duration::from_secs(60);
/// Connections remembered in one session.
const CONNECTIONS: usize = 16;

/// Where a client's datagram belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// To the path that handshakes take.
    Pinned,
    /// To the schedule.
    Free,
}

#[derive(Debug)]
struct Connection {
    /// The client's own ID; empty for many clients, which then use a port for each connection.
    client: Cid,
    /// The ID by which the client calls the server: at first one of its own invention.
    server: Cid,
    /// When its first datagram left; taken when the server answers.
    asked: Option<Time>,
    /// When the first short header of the client was seen since it was last pinned.
    short_sent: Option<Time>,
    /// When the client was last heard of it.
    seen: Time,
    pinned: bool,
}

/// The QUIC connections of one session.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    connections: Vec<Connection>,
    rtt: Option<Duration>,
}

impl Pins {
    /// Whether any connection is pinned.
    pub(crate) fn any(&self) -> bool {
        self.connections.iter().any(|connection| connection.pinned)
    }

    /// The shortest round-trip time of a handshake's first flight.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// Says where a client's datagram belongs.
    pub(crate) fn on_client(&mut self, now: Time, datagram: &[u8]) -> Lane {
        if quic::has_long_header(datagram) {
            for packet in quic::packets(datagram) {
                self.pin(now, &packet);
            }
            self.note_short_tail(now, datagram);
            return Lane::Pinned;
        }
        let Some(connection) = self.pinned().find(|connection| connection.server.leads(datagram))
        else {
            return Lane::Free;
        };
        connection.short_sent.get_or_insert(now);
        connection.seen = now;
        Lane::Pinned
    }

    /// What was pinned did not leave: a short header that still waits confirms nothing.
    pub(crate) fn has_not_left(&mut self) {
        self.pinned().for_each(|connection| connection.short_sent = None);
    }

    /// Learns from a server's datagram. True if it confirmed the last pinned connection.
    pub(crate) fn on_server(&mut self, now: Time, datagram: &[u8]) -> bool {
        if !self.any() {
            return false;
        }
        if quic::has_long_header(datagram) {
            quic::packets(datagram).for_each(|packet| self.answer(now, &packet));
            return false;
        }
        self.connections
            .retain(|connection| !connection.pinned || now.since(connection.seen) < GIVEN_UP);
        self.measure(now, |connection| connection.client.leads(datagram));
        let rtt = self.rtt;
        for connection in self.pinned().filter(|connection| connection.client.leads(datagram)) {
            let waited = connection.short_sent.map(|sent| now.since(sent));
            connection.pinned =
                !matches!((waited, rtt), (Some(waited), Some(rtt)) if waited >= rtt);
        }
        !self.any()
    }

    fn pinned(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.connections.iter_mut().filter(|connection| connection.pinned)
    }

    /// A client's packet with a long header: a new connection, or one whose handshake goes on.
    fn pin(&mut self, now: Time, packet: &Long) {
        let same = |connection: &&mut Connection| {
            connection.client == packet.source
                && (connection.server == packet.destination || !packet.source.bytes().is_empty())
        };
        if let Some(connection) = self.connections.iter_mut().find(same) {
            if !connection.pinned {
                connection.short_sent = None;
            }
            connection.pinned = true;
            connection.seen = now;
            return;
        }
        self.forget_one();
        self.connections.push(Connection {
            client: packet.source,
            server: packet.destination,
            asked: Some(now),
            short_sent: None,
            seen: now,
            pinned: true,
        });
    }

    /// A packet with a short header may end a datagram that begins with long ones.
    fn note_short_tail(&mut self, now: Time, datagram: &[u8]) {
        if !quic::ends_short(datagram) {
            return;
        }
        let Some(first) = quic::packets(datagram).next() else { return };
        for connection in self.pinned().filter(|connection| connection.client == first.source) {
            connection.short_sent.get_or_insert(now);
        }
    }

    /// A server's packet with a long header: tells its ID, and the first one the round-trip time.
    fn answer(&mut self, now: Time, packet: &Long) {
        let is_asked = |connection: &Connection| connection.client == packet.destination;
        for connection in self.pinned().filter(|connection| is_asked(connection)) {
            connection.server = packet.source;
        }
        self.measure(now, is_asked);
    }

    /// Times a connection's first datagram against the first answer to it.
    fn measure(&mut self, now: Time, is_answered: impl Fn(&Connection) -> bool) {
        let mut sample = None;
        for connection in self.pinned().filter(|connection| is_answered(connection)) {
            sample = connection.asked.take().map(|asked| now.since(asked)).or(sample);
        }

        // A lost first datagram makes a sample too long, never too short: then we wait longer than
        // need be.
        if let Some(sample) = sample {
            self.rtt = Some(self.rtt.map_or(sample, |rtt| rtt.min(sample)));
        }
    }

    /// Makes room: an old confirmed connection goes first, then the oldest.
    fn forget_one(&mut self) {
        if self.connections.len() < CONNECTIONS {
            return;
        }
        let confirmed = self.connections.iter().position(|connection| !connection.pinned);
        self.connections.remove(confirmed.unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::quic::VERSION_1;
    use crate::protocol::quic::tests::long_packet;

    const INITIAL: u8 = 0;
    const HANDSHAKE: u8 = 2;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn long(bits: u8, destination: &[u8], source: &[u8]) -> Vec<u8> {
        long_packet(bits, VERSION_1, destination, source, 1200)
    }

    fn short(destination: &[u8]) -> Vec<u8> {
        [&[0x40], destination, &[9; 40]].concat()
    }

    /// A connection after 20 ms: the client has the server's first flight and sends its last.
    fn after_first_flight(client: &[u8]) -> Pins {
        let mut pins = Pins::default();
        assert_eq!(pins.on_client(ms(0), &long(INITIAL, b"invented", client)), Lane::Pinned);
        assert!(!pins.on_server(ms(20), &long(INITIAL, client, b"server__")));
        assert_eq!(pins.on_client(ms(21), &long(HANDSHAKE, b"server__", client)), Lane::Pinned);
        pins
    }

    #[test]
    fn a_connection_is_free_once_a_server_short_header_follows_a_client_one_by_a_round_trip() {
        let mut pins = after_first_flight(b"client__");
        assert_eq!(pins.rtt(), Some(Duration::from_millis(20)));
        assert_eq!(pins.on_client(ms(22), &short(b"server__")), Lane::Pinned);
        assert!(
            !pins.on_server(ms(41), &short(b"client__")),
            "sent before the client's last flight arrived"
        );
        assert_eq!(pins.on_client(ms(41), &short(b"server__")), Lane::Pinned);
        assert!(pins.on_server(ms(42), &short(b"client__")));
        assert_eq!(pins.on_client(ms(43), &short(b"server__")), Lane::Free);
    }

    #[test]
    fn a_server_short_header_alone_confirms_nothing() {
        let mut pins = after_first_flight(b"");
        assert!(!pins.on_server(ms(500), &short(b"")));
        assert!(pins.any());
    }

    #[test]
    fn a_retransmitted_handshake_pins_again_and_needs_a_new_confirmation() {
        let mut pins = after_first_flight(b"client__");
        pins.on_client(ms(22), &short(b"server__"));
        assert!(pins.on_server(ms(60), &short(b"client__")));
        assert_eq!(
            pins.on_client(ms(61), &long(HANDSHAKE, b"server__", b"client__")),
            Lane::Pinned
        );
        assert_eq!(pins.on_client(ms(62), &short(b"server__")), Lane::Pinned);
        assert!(!pins.on_server(ms(63), &short(b"client__")));
        assert!(pins.on_server(ms(82), &short(b"client__")));
    }

    #[test]
    fn a_second_connection_does_not_pull_the_first_back() {
        let mut pins = after_first_flight(b"client_1");
        pins.on_client(ms(22), &short(b"server__"));
        pins.on_server(ms(60), &short(b"client_1"));
        assert_eq!(pins.on_client(ms(70), &long(INITIAL, b"other_id", b"client_2")), Lane::Pinned);
        assert_eq!(pins.on_client(ms(71), &short(b"server__")), Lane::Free);
        assert_eq!(
            pins.on_client(ms(72), &short(b"renewed_")),
            Lane::Free,
            "an ID given later, under encryption"
        );
    }

    #[test]
    fn a_short_header_coalesced_behind_the_last_flight_counts() {
        let mut pins = after_first_flight(b"client__");
        let datagram = [long(HANDSHAKE, b"server__", b"client__"), short(b"server__")].concat();
        assert_eq!(pins.on_client(ms(22), &datagram), Lane::Pinned);
        assert!(pins.on_server(ms(42), &short(b"client__")));
    }

    #[test]
    fn what_waits_for_a_path_confirms_nothing() {
        let mut pins = after_first_flight(b"client__");
        pins.on_client(ms(22), &short(b"server__"));
        pins.has_not_left();
        assert!(!pins.on_server(ms(60), &short(b"client__")));
        pins.on_client(ms(61), &short(b"server__"));
        assert!(pins.on_server(ms(81), &short(b"client__")));
    }

    #[test]
    fn a_connection_seen_late_in_its_handshake_is_confirmed_too() {
        let mut pins = Pins::default();
        pins.on_client(ms(0), &long(HANDSHAKE, b"server__", b"client__"));
        assert_eq!(pins.on_client(ms(1), &short(b"server__")), Lane::Pinned);
        assert!(!pins.on_server(ms(20), &short(b"client__")) || pins.rtt().is_some());
        pins.on_server(ms(41), &short(b"client__"));
        assert!(!pins.any());
    }

    #[test]
    fn a_handshake_that_its_client_gave_up_is_forgotten() {
        let mut pins = after_first_flight(b"client_1");
        pins.on_client(ms(30), &long(INITIAL, b"invented", b"client_2"));
        pins.on_client(ms(31), &short(b"server__"));
        pins.on_server(ms(100), &short(b"client_1"));
        assert!(pins.any(), "the second is still under way");
        pins.on_server(ms(61_000), &short(b"client_1"));
        assert!(!pins.any());
    }

    #[test]
    fn memory_is_bounded_and_confirmed_connections_go_first() {
        let mut pins = after_first_flight(b"client__");
        pins.on_client(ms(22), &short(b"server__"));
        pins.on_server(ms(60), &short(b"client__"));
        for number in 0..40u8 {
            pins.on_client(ms(70), &long(INITIAL, &[number; 8], &[number; 8]));
        }
        assert_eq!(pins.connections.len(), CONNECTIONS);
        assert!(pins.connections.iter().all(|connection| connection.pinned));
    }
}
