//! Pins, which keep a QUIC connection on one path until its handshake is confirmed.
//!
//! A server may refuse, or penalise, a change of address before the handshake is confirmed (RFC
//! 9000, section 9). An observer cannot read the confirmation, but can infer it from visible
//! packets. If the server sends a packet with a short header at least a round-trip time after the
//! client's first such packet, the server has received the client's last flight. A later packet
//! with a long header is a retransmission of the handshake, so the connection is pinned again.
//!
//! Changes of connection IDs do not prevent this inference. Either end may stop using the
//! handshake's IDs at any moment (RFC 9000, section 5.1), and several servers do so within the
//! first round trip. Section 5.1.1 allows new IDs only in the packets that confirm a handshake. So
//! a server that uses a new ID of its client has read a packet with a short header from the
//! client.
//!
//! Whatever the server sends, a pin ends at the latest [`ROUND_TRIPS`] round trips after the
//! client's first short header, unless the client sends another handshake packet.
//!
//! Several connections may share a session (one client address). They are distinguished by
//! connection ID, so that a new connection's handshake does not pin an older one again. An unknown
//! ID belongs to a connection that is still pinned, if there is one. This applies to handshake
//! packets, too, because quic-go's client uses a new ID of the server before its last flight. The
//! first flight of a new connection differs from such packets. It contains no Handshake packet,
//! and the client invents its destination ID, which has at least 8 bytes (RFC 9000, section 7.2).

use std::time::Duration;

use anabranch_multipath::Time;

use crate::protocol::quic::{self, Cid, Kind, Long};

/// Idle time of a handshake after which the client counts as having abandoned it.
const GIVEN_UP: Duration = Duration::from_secs(60);
/// Maximum number of QUIC connections remembered in one session.
const CONNECTIONS: usize = 16;
/// Maximum number of connection IDs remembered for each end of a QUIC connection: twice the usual
/// `active_connection_id_limit`.
const IDS: usize = 8;
/// Length in bytes of the shortest ID that a client invents for a server (RFC 9000, section 7.2).
const INVENTED: usize = 8;
/// Number of round-trip times for which a connection is pinned (bound to one path) after the
/// client's first short header or its last long header, whichever is later. A lost last flight is
/// retransmitted after 3 and 9 round trips, which pins the connection again. These are the probe
/// timeouts of RFC 9002, section 6.2.1, if a single sample has set the variation.
const ROUND_TRIPS: u32 = 8;
/// Minimum time for which a QUIC connection is pinned (bound to one path). It covers the timer
/// delays of busy machines if the round trip is short.
const SHORTEST_PIN: Duration = Duration::from_millis(100);
/// Time for which a QUIC connection is pinned (bound to one path) while the round-trip time is
/// unknown.
const UNMEASURED_PIN: Duration = Duration::from_secs(1);

/// The rule that chooses the path of a client's datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathRule {
    /// The datagram uses the path of handshakes: a QUIC handshake is not confirmed, or the
    /// datagram is a handshake or a DNS query.
    Pinned,
    /// The schedule chooses the path.
    Free,
}

/// The connection IDs in packets to one end of a QUIC connection. The first is the ID used in the
/// handshake.
#[derive(Debug)]
struct Ids(Vec<Cid>);

impl Ids {
    /// Returns the ID used in the handshake.
    fn first(&self) -> Cid {
        self.0[0]
    }

    /// Returns whether a packet with a short header carries one of these connection IDs. Returns
    /// false if the IDs are empty, because every packet would match.
    fn mark(&self, short_packet: &[u8]) -> bool {
        !self.is_empty() && self.0.iter().any(|cid| cid.leads(short_packet))
    }

    fn is_empty(&self) -> bool {
        self.first().bytes().is_empty()
    }

    /// Remembers the ID of a packet with a short header. The ID is assumed to be as long as the
    /// handshake's ID. Short headers state no length, so an end gives all its IDs the same length.
    fn learn(&mut self, short_packet: &[u8]) {
        let length = self.first().bytes().len();
        let id = short_packet.get(1..1 + length).and_then(Cid::new);
        id.into_iter().for_each(|id| self.add(id));
    }

    fn add(&mut self, id: Cid) {
        if self.0.contains(&id) {
            return;
        }
        if self.0.len() == IDS {
            self.0.remove(1);
        }
        self.0.push(id);
    }
}

/// Returns whether `packet` is of a type that a client sends only after its server has answered.
fn is_after_an_answer(packet: Long) -> bool {
    packet.kind == Kind::Handshake || packet.destination.bytes().len() < INVENTED
}

#[derive(Debug)]
struct Connection {
    /// The connection IDs that the client has chosen, in packets from the server. Many clients
    /// have an empty ID, and use one port per connection.
    client: Ids,
    /// The connection IDs of the server, in packets from the client. The client invented the first
    /// of them.
    server: Ids,
    /// The connection ID that the client invented for the server. After the server's answer,
    /// packets in flight still carry this ID.
    invented: Cid,
    /// Time at which the client's first datagram was sent; `None` once the server has answered.
    unanswered_since: Option<Time>,
    /// Whether the server has answered, so that the client may have the handshake's keys.
    answered: bool,
    /// Whether the client sent early data (0-RTT). The server may then use new connection IDs
    /// before the handshake ends, so a new ID proves nothing.
    early: bool,
    /// Time of the client's first packet with a short header since the connection was last pinned
    /// (bound to one path); `None` if there was no such packet.
    short_sent: Option<Time>,
    /// Time at which the client last sent a long header.
    long_sent: Time,
    /// Time at which the client last sent a packet of this connection.
    seen: Time,
    pinned: bool,
}

impl Connection {
    /// Returns whether a packet with a short header and an unknown ID may be from this
    /// connection's client.
    fn may_send_short(&self) -> bool {
        self.pinned && self.answered
    }

    /// Returns whether the server has answered, and at least `longest` has passed since the
    /// client's first short header and since its last long header.
    fn is_overdue(&self, now: Time, longest: Duration) -> bool {
        let since = self.short_sent.map(|sent| sent.max(self.long_sent));
        self.answered && since.is_some_and(|since| now.since(since) >= longest)
    }

    /// Returns whether a server's packet with a short header proves that the server has received
    /// the client's last flight. It does if the client sent a short header at least `rtt` ago. It
    /// also does if the packet has a new connection ID (`has_new_id`), unless the client sent
    /// early data.
    fn is_confirmed_by(&self, now: Time, has_new_id: bool, rtt: Option<Duration>) -> bool {
        let Some(sent) = self.short_sent else { return false };
        let by_time = rtt.is_some_and(|rtt| now.since(sent) >= rtt);
        by_time || (has_new_id && !self.early)
    }
}

/// The QUIC connections of one session.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    connections: Vec<Connection>,
    rtt: Option<Duration>,
    /// Whether any connection was pinned (bound to one path) at the last call of
    /// [`Pins::take_release`].
    held: bool,
}

impl Pins {
    /// Returns whether any connection is pinned (bound to one path until its handshake is
    /// confirmed).
    pub(crate) fn any(&self) -> bool {
        self.connections.iter().any(|connection| connection.pinned)
    }

    /// Returns whether the number of pinned connections (bound to one path until their handshakes
    /// are confirmed) has fallen to zero since the previous call.
    pub(crate) fn take_release(&mut self) -> bool {
        let any = self.any();
        std::mem::replace(&mut self.held, any) && !any
    }

    /// Returns the shortest time from a client's first flight to its answer; `None` before it was
    /// measured.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// Returns how the path of a client's datagram is chosen: as the path of handshakes, or by the
    /// schedule.
    pub(crate) fn on_client(&mut self, now: Time, datagram: &[u8]) -> PathRule {
        if quic::has_long_header(datagram) {
            let is_last_flight = quic::packets(datagram).any(is_after_an_answer);
            for packet in quic::packets(datagram) {
                self.pin(now, &packet, is_last_flight);
            }
            self.note_short_tail(now, datagram);
            return PathRule::Pinned;
        }
        let longest = self.longest_pin();
        let Some(connection) = self.sender(datagram) else { return PathRule::Free };
        connection.server.learn(datagram);
        connection.seen = now;
        connection.answered = true;
        if !connection.pinned {
            return PathRule::Free;
        }
        connection.short_sent.get_or_insert(now);
        connection.pinned = !connection.is_overdue(now, longest);
        if connection.pinned { PathRule::Pinned } else { PathRule::Free }
    }

    /// Records that the datagram just passed to [`Pins::on_client`] was queued, not sent. The
    /// server has not received that datagram's packet with a short header, so no answer can
    /// confirm the handshake yet.
    pub(crate) fn has_not_left(&mut self) {
        self.pinned().for_each(|connection| connection.short_sent = None);
    }

    /// Updates the QUIC connections from a server's datagram, which may answer or confirm a
    /// handshake.
    pub(crate) fn on_server(&mut self, now: Time, datagram: &[u8]) {
        if !self.any() {
            return;
        }
        if quic::has_long_header(datagram) {
            return quic::packets(datagram).for_each(|packet| self.answer(now, &packet));
        }
        self.connections
            .retain(|connection| !connection.pinned || now.since(connection.seen) < GIVEN_UP);
        self.measure(now, |connection| connection.client.first().leads(datagram));
        let (rtt, longest) = (self.rtt, self.longest_pin());
        if let Some(connection) = self.receiver(datagram) {
            let has_new_id =
                !connection.client.is_empty() && !connection.client.first().leads(datagram);
            connection.client.learn(datagram);
            connection.pinned &= !connection.is_confirmed_by(now, has_new_id, rtt);
        }
        for connection in self.pinned() {
            connection.pinned = !connection.is_overdue(now, longest);
        }
    }

    /// Returns the maximum time for which a connection stays pinned (bound to one path) without
    /// handshake packets.
    fn longest_pin(&self) -> Duration {
        self.rtt.map_or(UNMEASURED_PIN, |rtt| SHORTEST_PIN.max(rtt * ROUND_TRIPS))
    }

    fn pinned(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.connections.iter_mut().filter(|connection| connection.pinned)
    }

    /// Returns the connection of a client's packet with a short header. The first choice is the
    /// connection with the packet's ID. If the ID is unknown, the server may have issued it in an
    /// encrypted packet. So the next choices are the newest pinned connection (bound to one path)
    /// that has sent no short header yet, and the newest pinned connection. The last choice is the
    /// session's only connection, if it is not pinned. Returns `None` if there is no such
    /// connection.
    fn sender(&mut self, datagram: &[u8]) -> Option<&mut Connection> {
        let all = &self.connections;
        let newest = |fits: &dyn Fn(&Connection) -> bool| all.iter().rposition(fits);
        let place = newest(&|connection| connection.server.mark(datagram))
            .or_else(|| newest(&|one| one.may_send_short() && one.short_sent.is_none()))
            .or_else(|| newest(&Connection::may_send_short))
            .or_else(|| (all.len() == 1 && !all[0].pinned).then_some(0))?;
        self.connections.get_mut(place)
    }

    /// Returns the connection of a server's packet with a short header. The first choice is the
    /// connection with the packet's ID. Other choices are pinned connections (bound to one path)
    /// that the server has answered and whose client has sent a short header. Of these, it returns
    /// the oldest connection whose client has an empty ID or, if all connections are pinned, the
    /// oldest one. Returns `None` if there is none.
    fn receiver(&mut self, datagram: &[u8]) -> Option<&mut Connection> {
        let all = &self.connections;
        let oldest = |fits: &dyn Fn(&Connection) -> bool| all.iter().position(fits);
        let waits = |one: &Connection| one.pinned && one.answered && one.short_sent.is_some();
        let is_alone = all.iter().all(|one| one.pinned);
        let place = oldest(&|connection| connection.client.mark(datagram))
            .or_else(|| oldest(&|one| waits(one) && one.client.is_empty()))
            .or_else(|| oldest(&|one| is_alone && waits(one)))?;
        self.connections.get_mut(place)
    }

    /// Processes a client's packet with a long header, which begins a connection or continues the
    /// handshake of a known one. If `is_last_flight`, it always continues a handshake, regardless
    /// of its ID.
    fn pin(&mut self, now: Time, packet: &Long, is_last_flight: bool) {
        self.held = true;
        let early = packet.kind == Kind::ZeroRtt;
        if is_last_flight {
            self.learn_from_last_flight(packet);
        }
        let same = |connection: &&mut Connection| {
            connection.client.first() == packet.source
                && (connection.server.0.contains(&packet.destination)
                    || connection.invented == packet.destination
                    || !packet.source.bytes().is_empty())
        };
        if let Some(connection) = self.connections.iter_mut().find(same) {
            if !connection.pinned {
                connection.short_sent = None;
            }
            connection.pinned = true;
            connection.early |= early;
            (connection.seen, connection.long_sent) = (now, now);
            return;
        }
        self.forget_one();
        if packet.source.bytes().is_empty() {
            // A client with an empty ID cannot distinguish two connections, so it must have
            // abandoned the pinned one.
            self.connections.retain(|one| !one.pinned || !one.client.is_empty());
        }
        self.connections.push(Connection {
            client: Ids(vec![packet.source]),
            server: Ids(vec![packet.destination]),
            invented: packet.destination,
            unanswered_since: Some(now),
            answered: packet.kind == Kind::Handshake,
            early,
            short_sent: None,
            long_sent: now,
            seen: now,
            pinned: true,
        });
    }

    /// Adds a new connection ID of the server to its connection. Clients with an empty ID may
    /// begin to use such an ID during their handshake.
    fn learn_from_last_flight(&mut self, packet: &Long) {
        let is_known =
            |one: &Connection| one.server.0.contains(&packet.destination) && one.client.is_empty();
        if self.connections.iter().any(is_known) || !packet.source.bytes().is_empty() {
            return;
        }
        let waits = |one: &Connection| one.pinned && one.answered && one.client.is_empty();
        if let Some(place) = self.connections.iter().rposition(waits) {
            self.connections[place].server.add(packet.destination);
        }
    }

    /// Records the packet with a short header at the end of a datagram that begins with long
    /// headers.
    fn note_short_tail(&mut self, now: Time, datagram: &[u8]) {
        if !quic::ends_short(datagram) {
            return;
        }
        let Some(first) = quic::packets(datagram).next() else { return };
        for connection in self.pinned().filter(|one| one.client.first() == first.source) {
            connection.short_sent.get_or_insert(now);
        }
    }

    /// Processes a server's packet with a long header: learns the server's ID, and measures the
    /// round-trip time at the first such packet.
    fn answer(&mut self, now: Time, packet: &Long) {
        let is_receiver = |connection: &Connection| connection.client.first() == packet.destination;
        for connection in self.pinned().filter(|connection| is_receiver(connection)) {
            if connection.server.first() != packet.source {
                connection.server = Ids(vec![packet.source]);
            }
            connection.answered |= matches!(packet.kind, Kind::Initial | Kind::Handshake);
        }
        self.measure(now, is_receiver);
    }

    /// Measures the time from a connection's first datagram to its first answer, which has just
    /// arrived. `is_answered` returns true for the connection that the answer belongs to.
    fn measure(&mut self, now: Time, is_answered: impl Fn(&Connection) -> bool) {
        let mut sample = None;
        for connection in self.pinned().filter(|connection| is_answered(connection)) {
            sample = connection.unanswered_since.take().map(|sent| now.since(sent)).or(sample);
        }

        // If the first datagram is lost, the sample is too long, never too short. The pin then
        // lasts longer than necessary.
        if let Some(sample) = sample {
            self.rtt = Some(self.rtt.map_or(sample, |rtt| rtt.min(sample)));
        }
    }

    /// Makes room for a further connection: forgets the oldest confirmed connection or, if none is
    /// confirmed, the oldest.
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

    /// Returns whether a datagram of the server ends the last pin.
    fn hears(pins: &mut Pins, now: Time, datagram: &[u8]) -> bool {
        pins.on_server(now, datagram);
        pins.take_release()
    }

    fn long(bits: u8, destination: &[u8], source: &[u8]) -> Vec<u8> {
        long_packet(bits, VERSION_1, destination, source, 1200)
    }

    fn short(destination: &[u8]) -> Vec<u8> {
        [&[0x40], destination, &[9; 40]].concat()
    }

    /// Returns a connection 21 ms after its start: the client has received the server's first
    /// flight, and sends its last flight.
    fn after_first_flight(client: &[u8]) -> Pins {
        let mut pins = Pins::default();
        assert_eq!(pins.on_client(ms(0), &long(INITIAL, b"invented", client)), PathRule::Pinned);
        assert!(!hears(&mut pins, ms(20), &long(INITIAL, client, b"server__")));
        assert_eq!(pins.on_client(ms(21), &long(HANDSHAKE, b"server__", client)), PathRule::Pinned);
        pins
    }

    #[test]
    fn a_connection_is_free_once_a_server_short_header_follows_a_client_one_by_a_round_trip() {
        let mut pins = after_first_flight(b"client__");
        assert_eq!(pins.rtt(), Some(Duration::from_millis(20)));
        assert_eq!(pins.on_client(ms(22), &short(b"server__")), PathRule::Pinned);
        assert!(
            !hears(&mut pins, ms(41), &short(b"client__")),
            "sent before the client's last flight arrived"
        );
        assert_eq!(pins.on_client(ms(41), &short(b"server__")), PathRule::Pinned);
        assert!(hears(&mut pins, ms(42), &short(b"client__")));
        assert_eq!(pins.on_client(ms(43), &short(b"server__")), PathRule::Free);
    }

    #[test]
    fn a_server_short_header_alone_confirms_nothing() {
        let mut pins = after_first_flight(b"");
        assert!(!hears(&mut pins, ms(500), &short(b"")));
        assert!(pins.any());
    }

    #[test]
    fn a_retransmitted_handshake_pins_again_and_needs_a_new_confirmation() {
        let mut pins = after_first_flight(b"client__");
        pins.on_client(ms(22), &short(b"server__"));
        assert!(hears(&mut pins, ms(60), &short(b"client__")));
        assert_eq!(
            pins.on_client(ms(61), &long(HANDSHAKE, b"server__", b"client__")),
            PathRule::Pinned
        );
        assert_eq!(pins.on_client(ms(62), &short(b"server__")), PathRule::Pinned);
        assert!(!hears(&mut pins, ms(63), &short(b"client__")));
        assert!(hears(&mut pins, ms(82), &short(b"client__")));
    }

    #[test]
    fn a_second_connection_does_not_pull_the_first_back() {
        let mut pins = after_first_flight(b"client_1");
        pins.on_client(ms(22), &short(b"server__"));
        hears(&mut pins, ms(60), &short(b"client_1"));
        assert_eq!(
            pins.on_client(ms(70), &long(INITIAL, b"other_id", b"client_2")),
            PathRule::Pinned
        );
        assert_eq!(pins.on_client(ms(71), &short(b"server__")), PathRule::Free);
        assert_eq!(
            pins.on_client(ms(72), &short(b"renewed_")),
            PathRule::Free,
            "an ID given later, under encryption"
        );
    }

    #[test]
    fn a_short_header_coalesced_behind_the_last_flight_counts() {
        let mut pins = after_first_flight(b"client__");
        let datagram = [long(HANDSHAKE, b"server__", b"client__"), short(b"server__")].concat();
        assert_eq!(pins.on_client(ms(22), &datagram), PathRule::Pinned);
        assert!(hears(&mut pins, ms(42), &short(b"client__")));
    }

    #[test]
    fn what_waits_for_a_path_confirms_nothing() {
        let mut pins = after_first_flight(b"client__");
        pins.on_client(ms(22), &short(b"server__"));
        pins.has_not_left();
        assert!(!hears(&mut pins, ms(60), &short(b"client__")));
        pins.on_client(ms(61), &short(b"server__"));
        assert!(hears(&mut pins, ms(81), &short(b"client__")));
    }

    #[test]
    fn a_connection_seen_late_in_its_handshake_is_confirmed_too() {
        let mut pins = Pins::default();
        pins.on_client(ms(0), &long(HANDSHAKE, b"server__", b"client__"));
        assert_eq!(pins.on_client(ms(1), &short(b"server__")), PathRule::Pinned);
        assert!(!hears(&mut pins, ms(20), &short(b"client__")) || pins.rtt().is_some());
        hears(&mut pins, ms(41), &short(b"client__"));
        assert!(!pins.any());
    }

    #[test]
    fn a_handshake_that_its_client_gave_up_is_forgotten() {
        let mut pins = after_first_flight(b"client_1");
        pins.on_client(ms(30), &long(INITIAL, b"invented", b"client_2"));
        pins.on_client(ms(31), &short(b"server__"));
        hears(&mut pins, ms(100), &short(b"client_1"));
        assert!(pins.any(), "the second is still under way");
        hears(&mut pins, ms(61_000), &short(b"client_1"));
        assert!(!pins.any());
    }

    #[test]
    fn memory_is_bounded_and_confirmed_connections_go_first() {
        let mut pins = after_first_flight(b"client__");
        pins.on_client(ms(22), &short(b"server__"));
        hears(&mut pins, ms(60), &short(b"client__"));
        for number in 0..40u8 {
            pins.on_client(ms(70), &long(INITIAL, &[number; 8], &[number; 8]));
        }
        assert_eq!(pins.connections.len(), CONNECTIONS);
        assert!(pins.connections.iter().all(|connection| connection.pinned));
    }

    #[test]
    fn a_client_that_leaves_the_servers_first_id_at_once_is_pinned_and_released() {
        let mut pins = after_first_flight(b"cli_");
        assert_eq!(pins.on_client(ms(22), &short(b"another_")), PathRule::Pinned);
        assert!(!hears(&mut pins, ms(41), &short(b"cli_")), "too early");
        assert!(hears(&mut pins, ms(42), &short(b"cli_")));
        assert_eq!(pins.on_client(ms(43), &short(b"another_")), PathRule::Free);
    }

    #[test]
    fn a_server_that_leaves_the_clients_first_id_has_read_a_packet_of_the_client() {
        let mut pins = after_first_flight(b"client__");
        assert!(!hears(&mut pins, ms(21), &short(b"newer_id")), "before any short header");
        pins.on_client(ms(22), &short(b"server__"));
        assert!(hears(&mut pins, ms(30), &short(b"newer_id")));
    }

    #[test]
    fn a_new_id_confirms_nothing_after_early_data() {
        let mut pins = after_first_flight(b"client__");
        pins.on_client(ms(21), &long(1, b"server__", b"client__"));
        pins.on_client(ms(22), &short(b"server__"));
        assert!(!hears(&mut pins, ms(30), &short(b"newer_id")));
        assert!(hears(&mut pins, ms(42), &short(b"newer_id")), "a round trip later");
    }

    #[test]
    fn a_first_flight_that_crosses_its_answer_is_no_second_connection() {
        let mut pins = after_first_flight(b"");
        pins.on_client(ms(21), &long(INITIAL, b"invented", b""));
        pins.on_client(ms(22), &short(b"server__"));
        assert!(hears(&mut pins, ms(42), &short(b"")));
    }

    #[test]
    fn a_client_without_ids_may_take_a_new_id_of_the_server_before_its_last_flight() {
        for (renewed, length) in [(&b"rene"[..], 4), (b"renewed_", 8)] {
            let mut pins = Pins::default();
            pins.on_client(ms(0), &long(INITIAL, b"invented", b""));
            assert!(!hears(&mut pins, ms(20), &long(INITIAL, b"", &b"server__"[..length])));
            let last_flight =
                [long(INITIAL, renewed, b""), long(HANDSHAKE, renewed, b""), short(renewed)];
            assert_eq!(pins.on_client(ms(21), &last_flight.concat()), PathRule::Pinned);
            assert_eq!(pins.connections.len(), 1, "no second connection");
            assert_eq!(pins.on_client(ms(40), &short(renewed)), PathRule::Pinned);
            assert!(hears(&mut pins, ms(41), &short(b"")));
            assert_eq!(pins.on_client(ms(42), &short(renewed)), PathRule::Free);
        }
    }

    #[test]
    fn a_client_without_ids_has_one_handshake_at_a_time() {
        let mut pins = after_first_flight(b"");
        pins.on_client(ms(22), &long(INITIAL, b"renewed_", b""));
        pins.on_client(ms(23), &short(b"renewed_"));
        assert!(hears(&mut pins, ms(43), &short(b"")), "the IDs say no more");
    }

    #[test]
    fn no_pin_outlasts_some_round_trips_without_a_handshake_packet() {
        let mut pins = after_first_flight(b"client__");
        pins.on_client(ms(22), &short(b"server__"));
        assert_eq!(pins.on_client(ms(150), &short(b"server__")), PathRule::Pinned);
        pins.on_client(ms(160), &long(HANDSHAKE, b"server__", b"client__"));
        assert_eq!(pins.on_client(ms(319), &short(b"server__")), PathRule::Pinned);
        assert_eq!(pins.on_client(ms(320), &short(b"server__")), PathRule::Free);
        assert!(pins.take_release());
    }

    #[test]
    fn a_free_connection_keeps_its_known_ids_while_another_shakes_hands() {
        let mut pins = after_first_flight(b"client_1");
        pins.on_client(ms(22), &short(b"server__"));
        hears(&mut pins, ms(60), &short(b"client_1"));
        pins.on_client(ms(61), &short(b"renewed_"));
        pins.on_client(ms(70), &long(INITIAL, b"invented", b"client_2"));
        hears(&mut pins, ms(90), &long(INITIAL, b"client_2", b"second__"));
        assert_eq!(pins.on_client(ms(91), &short(b"renewed_")), PathRule::Free);
        assert_eq!(pins.on_client(ms(92), &short(b"second_b")), PathRule::Pinned);
        assert!(!hears(&mut pins, ms(200), &short(b"unknown_")), "of either connection");
        assert!(hears(&mut pins, ms(201), &short(b"client_2")));
    }
}
