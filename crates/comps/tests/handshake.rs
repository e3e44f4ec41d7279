//! Tests that a QUIC connection stays on one path until the server has confirmed its handshake,
//! even if packets are lost.

use anabranch_testkit::comps_world as world;

use std::time::Duration;

use anabranch_comps::{Config, Event, Protocol};
use anabranch_multipath::{PathId, Time};
use world::{Follower, SeenAddress, Server, World, client, config, link, lossy, numbered};

const MS: Duration = Duration::from_millis(1);
const CLIENT: &[u8] = b"client__";
const SERVER: &[u8] = b"server__";
const INITIAL: u8 = 0;
const HANDSHAKE: u8 = 2;

/// Returns a packet of QUIC version 1 with a long header, padded to 1,200 bytes.
fn long(bits: u8, destination: &[u8], source: &[u8]) -> Vec<u8> {
    let mut packet = vec![0xc0 | bits << 4, 0, 0, 0, 1, destination.len() as u8];
    packet.extend(destination);
    packet.push(source.len() as u8);
    packet.extend(source);
    packet.extend((bits == INITIAL).then_some(0));
    packet.extend((0x4000 | 1200u16).to_be_bytes());
    packet.resize(packet.len() + 1200, 0);
    packet
}

fn short(destination: &[u8], mark: u8) -> Vec<u8> {
    [&[0x40], destination, &[mark; 30]].concat()
}

fn is_long(datagram: &[u8]) -> bool {
    datagram[0] & 0x80 != 0
}

/// A server of one connection. It sends short headers as early as a server may, which is the most
/// difficult case. It reports the confirmation of the handshake, and then answers to the newest
/// address.
struct QuicServer {
    confirmed: Option<Time>,
    /// Connection ID of the client in the server's packets with a short header.
    calls: &'static [u8],
}

impl Default for QuicServer {
    fn default() -> QuicServer {
        QuicServer { confirmed: None, calls: CLIENT }
    }
}

const CONFIRMED: u8 = 1;

impl Server for QuicServer {
    fn receive(
        &mut self,
        now: Time,
        from: SeenAddress,
        datagram: &[u8],
    ) -> Vec<(SeenAddress, Vec<u8>)> {
        let kind = is_long(datagram).then(|| datagram[0] >> 4 & 3);
        match kind {
            Some(INITIAL) => vec![
                (from, long(INITIAL, CLIENT, SERVER)),
                (from, long(HANDSHAKE, CLIENT, SERVER)),
                (from, short(CLIENT, 0)),
            ],
            Some(_) => {
                self.confirmed.get_or_insert(now);
                vec![(from, short(self.calls, CONFIRMED))]
            }
            None if self.confirmed.is_some() => vec![(from, short(self.calls, CONFIRMED))],
            None => Vec::new(),
        }
    }
}

/// Runs a client until `end`. It sends its first flight and its last flight every 60 ms until each
/// is answered, and data every 4 ms in between.
fn connect(world: &mut World<QuicServer>, end: Time) {
    connect_by(world, SERVER, end);
}

/// Runs a client as `connect` does. Once the client has its keys, it sends packets to the server's
/// connection ID `id`.
fn connect_by(world: &mut World<QuicServer>, id: &[u8], end: Time) {
    let mut tick = 0u64;
    while world.now < end {
        let received = world.returned.get(&client(0));
        let has = |wanted: &dyn Fn(&[u8]) -> bool| {
            received.is_some_and(|all| all.iter().any(|(_, d)| wanted(d)))
        };
        let has_flight = has(&|datagram| is_long(datagram));
        let is_confirmed = has(&|d| !is_long(d) && d.ends_with(&[CONFIRMED; 30]));
        if !has_flight && tick.is_multiple_of(15) {
            world.client(client(0), &long(INITIAL, b"invented", CLIENT));
        } else if has_flight && !is_confirmed && tick.is_multiple_of(15) {
            world.client(client(0), &long(HANDSHAKE, SERVER, CLIENT));
        } else if has_flight {
            world.client(client(0), &short(id, 7));
        }
        tick += 1;
        let next = world.now + 4 * MS;
        world.run_until(next);
    }
}

/// Returns settings with three direct paths, followed by a path that only handshakes use.
fn with_handshake_path() -> Config {
    Config { handshake: Some(3), handshake_scheduled: false, ..config(4, "round-robin", "50ms") }
}

#[test]
fn the_direct_paths_see_no_long_header_with_and_without_loss() {
    for loss in [0.0, 0.02, 0.2] {
        for seed in 0..40 {
            let config = Config { seed, ..with_handshake_path() };
            let mut world = World::with_links(config, QuicServer::default(), &vec![lossy(loss); 4]);
            connect(&mut world, Time::from_secs(3));
            let leaked = world.sent.iter().find(|sent| sent.path.0 < 3 && is_long(&sent.datagram));
            assert!(leaked.is_none(), "loss {loss}, seed {seed}: {leaked:?}");
            let shares = world.counts(Time::from_secs(2), Time::from_secs(3));
            assert!(
                shares[..3].iter().all(|&count| count > 50),
                "loss {loss}, seed {seed}: {shares:?}"
            );
            assert_eq!(shares[3], 0, "the handshake path carries nothing afterwards");
        }
    }
}

#[test]
fn nothing_leaves_by_a_direct_path_before_the_server_is_confirmed() {
    for seed in 0..40 {
        let config = Config { seed, ..with_handshake_path() };
        let mut world = World::with_links(config, QuicServer::default(), &vec![link(); 4]);
        connect(&mut world, Time::from_secs(1));
        let confirmed = world.server.confirmed.expect("no packet is lost");
        let first =
            world.sent.iter().find(|sent| sent.path.0 < 3).expect("the schedule takes over");
        assert!(first.time >= confirmed + world::DELAY, "{:?} before {confirmed:?}", first.time);
    }
}

/// Servers of quinn, quic-go and Caddy stop using the IDs of the handshake within its first round
/// trip. quic-go's client does so too.
#[test]
fn a_connection_is_split_though_both_ends_leave_the_handshakes_ids() {
    for (calls, id) in
        [(&b"newer_id"[..], SERVER), (CLIENT, b"another_"), (b"newer_id", b"another_")]
    {
        for settings in [with_handshake_path(), config(3, "round-robin", "50ms")] {
            let server = QuicServer { calls, ..QuicServer::default() };
            let mut world = World::new(settings, server);
            connect_by(&mut world, id, Time::from_secs(1));
            let confirmed = world.server.confirmed.unwrap();
            let split = world.sent.iter().find(|sent| sent.path != world.sent[0].path).unwrap();
            assert!(split.time >= confirmed + world::DELAY, "{:?}", split.time);
            let is_release = |(_, event): &&(Time, Event)| matches!(event, Event::Released { .. });
            let released = world.events.iter().find(is_release).expect("it is told").0;
            assert!(released <= Time::from_millis(100), "{released:?}");
            let shares = world.counts(Time::from_millis(200), Time::from_secs(1));
            assert!(shares[..3].iter().all(|&count| count > 50), "{calls:?} {id:?}: {shares:?}");
        }
    }
}

#[test]
fn a_late_retransmission_of_the_handshake_pins_the_connection_again() {
    let mut world = World::new(with_handshake_path(), QuicServer::default());
    connect(&mut world, Time::from_secs(1));
    world.client(client(0), &long(HANDSHAKE, SERVER, CLIENT));
    world.client(client(0), &short(SERVER, 7));
    let last: Vec<u16> = world.sent.iter().rev().take(2).map(|sent| sent.path.0).collect();
    assert_eq!(last, [3, 3]);
    let pins =
        world.events.iter().filter(|(_, event)| matches!(event, Event::Pinned { .. })).count();
    assert_eq!(pins, 2);
}

#[test]
fn without_a_handshake_path_the_connection_keeps_to_the_one_it_began_on() {
    let mut world = World::new(config(3, "uniform", "1p"), QuicServer::default());
    connect(&mut world, Time::from_secs(1));
    let released =
        world.events.iter().find(|(_, event)| matches!(event, Event::Released { .. })).unwrap().0;
    let before: Vec<PathId> =
        world.sent.iter().filter(|s| s.time < released).map(|s| s.path).collect();
    assert!(before.iter().all(|path| *path == before[0]) && before.len() > 5, "{before:?}");
    assert!(world.counts(released, Time::MAX).iter().all(|&count| count > 30));
}

/// A server whose first flight is lost, and which has given its client a new connection ID.
struct LateServer;

impl Server for LateServer {
    fn receive(&mut self, _: Time, from: SeenAddress, _: &[u8]) -> Vec<(SeenAddress, Vec<u8>)> {
        vec![(from, short(b"newer_id", CONFIRMED))]
    }
}

#[test]
fn a_round_trip_that_was_not_measured_is_absent() {
    let released = |events: &[(Time, Event)]| {
        let rtt = |(_, event): &(Time, Event)| match event {
            Event::Released { rtt, .. } => Some(*rtt),
            _ => None,
        };
        events.iter().find_map(rtt).expect("the connection is confirmed")
    };
    let mut world = World::new(with_handshake_path(), LateServer);
    world.client(client(0), &long(INITIAL, b"invented", CLIENT));
    world.client(client(0), &short(b"invented", 7));
    world.run_until(Time::from_secs(1));
    assert_eq!(released(&world.events), None);
    let mut world = World::new(with_handshake_path(), QuicServer::default());
    connect(&mut world, Time::from_secs(1));
    // Sending the datagrams takes some of the time.
    let rtt = released(&world.events).expect("the handshake was measured");
    assert!((2 * world::DELAY..2 * world::DELAY + MS).contains(&rtt), "{rtt:?}");
}

#[test]
fn a_connection_uses_no_more_four_tuples_than_allowed_and_says_so() {
    let limits = Config { ports: vec![1, 1, 8], ..config(3, "uniform", "1p") };
    let mut world = World::new(limits, QuicServer::default());
    connect(&mut world, Time::from_secs(2));
    let mut tuples: Vec<u16> = world.sent.iter().map(|sent| sent.tuple.0).collect();
    tuples.sort_unstable();
    tuples.dedup();
    assert_eq!(tuples.len(), 4);
    assert!(world.has_event(|event| matches!(event, Event::TuplesCut { wanted: 10, used: 4, .. })));
}

#[test]
fn where_the_handshake_path_is_broken_the_handshake_waits_and_leaves_by_no_other() {
    let mut world = World::new(with_handshake_path(), QuicServer::default());
    let broken = Some(anabranch_comps::DownReason::Interface);
    world.feed(anabranch_comps::Input::Path { path: PathId(3), broken });
    connect(&mut world, Time::from_millis(500));
    assert!(world.sent.is_empty());
    world.feed(anabranch_comps::Input::Path { path: PathId(3), broken: None });
    assert!(!world.sent.is_empty() && world.sent.iter().all(|sent| sent.path == PathId(3)));
}

#[test]
fn dns_and_wireguard_handshakes_take_the_handshake_path_and_nothing_else_does() {
    let query = [
        &[0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..],
        b"\x07example\x03org\x00\x00\x01\x00\x01",
    ]
    .concat();
    let mut initiation = vec![1, 0, 0, 0];
    initiation.resize(148, 9);
    let mut data = vec![4, 0, 0, 0];
    data.resize(96, 9);
    let mut world = World::new(with_handshake_path(), Follower::default());
    world.client(client(0), &query);
    world.client(client(1), &initiation);
    world.client(client(1), &data);
    world.client(client(2), &numbered(1));
    let on_it: Vec<bool> = world.sent.iter().map(|sent| sent.path.0 == 3).collect();
    assert_eq!(on_it, [true, true, false, false]);
    let of = |wanted| move |event: &Event| matches!(event, Event::Recognised { protocol, .. } if *protocol == wanted);
    assert!(world.has_event(of(Protocol::Dns)) && world.has_event(of(Protocol::WireGuard)));
}

#[test]
fn a_session_that_does_not_begin_with_quic_is_recognised_when_a_handshake_comes() {
    let mut world = World::new(with_handshake_path(), Follower::default());
    world.client(client(0), &short(SERVER, 7));
    world.client(client(0), &long(INITIAL, b"invented", CLIENT));
    world.client(client(0), &long(HANDSHAKE, SERVER, CLIENT));
    let paths: Vec<u16> = world.sent.iter().map(|sent| sent.path.0).collect();
    assert_eq!(paths[1..], [3, 3]);
    let quic = |event: &Event| matches!(event, Event::Recognised { protocol: Protocol::Quic, .. });
    assert!(world.has_event(quic));
}

#[test]
fn a_single_tuple_beside_a_handshake_path_still_carries_the_session() {
    let mut world =
        World::new(Config { quic_tuples: 1, ..with_handshake_path() }, QuicServer::default());
    connect(&mut world, Time::from_secs(1));
    let counts = world.counts(Time::from_millis(500), Time::from_secs(1));
    assert!(counts[0] > 50 && counts[1..] == [0, 0, 0], "{counts:?}");
}

#[test]
fn a_pinned_connection_keeps_its_port_while_another_rotates() {
    let mut world =
        World::new(Config { ports: vec![4], ..config(1, "round-robin", "1p") }, world::Mute);
    world.client(client(0), &long(INITIAL, b"invented", CLIENT));
    for mark in 0..4 {
        world.client(client(0), &short(b"another_", mark));
        world.client(client(0), &long(HANDSHAKE, b"invented", CLIENT));
    }
    let tuples = |long: bool| {
        let of_kind = world.sent.iter().filter(|sent| is_long(&sent.datagram) == long);
        of_kind.map(|sent| sent.tuple.0).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!((tuples(true), tuples(false)), (1, 4));
}

#[test]
fn a_last_flight_that_still_waits_confirms_nothing() {
    let mut world = World::new(with_handshake_path(), world::Mute);
    let (session, tuple) = (anabranch_comps::SessionId(0), anabranch_comps::TupleId(3));
    world.client(client(0), &long(INITIAL, b"invented", CLIENT));
    world.run_until(Time::from_millis(20));
    world.answer((session, tuple), long(INITIAL, CLIENT, SERVER));
    world.run_until(Time::from_millis(40));
    world.feed(anabranch_comps::Input::Path {
        path: PathId(3),
        broken: Some(anabranch_comps::DownReason::Interface),
    });
    world.client(client(0), &short(SERVER, 1));
    world.run_until(Time::from_millis(100));
    world.answer((session, tuple), short(CLIENT, 0));
    world.run_until(Time::from_millis(200));
    world.client(client(0), &short(SERVER, 2));
    assert!(world.sent.iter().all(|sent| sent.path == PathId(3)), "it is not confirmed");
}
