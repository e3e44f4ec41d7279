//! Tests of the recognition of protocols and its consequences: the number of paths that a session
//! uses, warnings of packet numbers in clear, and the path of WireGuard's handshakes.

use anabranch_testkit::comps_world as world;

use std::time::Duration;

use anabranch_comps::protocol::Confidence;
use anabranch_comps::{Config, Event, Guess, Protocol};
use anabranch_multipath::Time;
use world::{Follower, Mute, SeenAddress, Server, World, client, config, link};

/// Function that returns the datagram with a given number.
type One = fn(u8) -> Vec<u8>;

/// Returns bytes without a pattern, which differ for each `seed`.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(100).collect()
}

/// Returns a datagram of `length` bytes that begins with `head` and continues with noise.
fn filled(head: &[u8], length: usize) -> Vec<u8> {
    let mut bytes = head.to_vec();
    let seed = head.iter().fold(7, |seed: u64, byte| seed.wrapping_mul(31) + u64::from(*byte));
    bytes.extend(noise(seed).iter().cycle().take(length - head.len()));
    bytes
}

fn initiation() -> Vec<u8> {
    filled(&[1, 0, 0, 0, 9, 9, 9, 9], 148)
}

/// Returns a data message of WireGuard without padding.
fn tunnel(counter: u8) -> Vec<u8> {
    filled(&[4, 0, 0, 0, 7, 7, 7, 7, counter, 0, 0, 0, 0, 0, 0, 0], 111)
}

fn mosh(number: u8) -> Vec<u8> {
    filled(&[0, 0, 0, 0, 0, 0, 0, number], 70)
}

fn nebula(number: u8) -> Vec<u8> {
    filled(&[0x11, 0, 0, 0, 0xb5, 0xa9, 0xb8, 0x30, 0, 0, 0, 0, 0, 0, 0, number], 116)
}

fn openvpn(number: u8) -> Vec<u8> {
    filled(&[0x48, 0, 0, 0, 0, 0, 0, number], 108)
}

fn hello() -> Vec<u8> {
    filled(&[22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 41, 1], 54)
}

fn record(kind: u8, number: u8) -> Vec<u8> {
    filled(&[kind, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, number, 0, 30], 43)
}

fn kcp(_: u8) -> Vec<u8> {
    [&[0x59, 0x2b, 0x0a, 0xb9, 81, 0, 32, 0][..], &[0; 12], &[7, 0, 0, 0], b"hello 0"].concat()
}

/// Returns a handshake of an SRT caller, with the type `kind`.
fn srt(kind: [u8; 4]) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    (bytes[0], bytes[19], bytes[43]) = (0x80, 4, 7);
    bytes[36..40].copy_from_slice(&kind);
    bytes
}

fn enet(_: u8) -> Vec<u8> {
    let head = [0x8f, 0xff, 0x3d, 0xea, 0x82, 0xff, 0, 1, 0, 0, 0xff, 0xff, 0, 0, 5, 0x78];
    [&head[..], &[0; 36]].concat()
}

fn stun() -> Vec<u8> {
    [&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], &[7; 12]].concat()
}

/// Returns the number of datagrams that left on each path.
fn by_path<S: Server>(world: &World<S>) -> Vec<u64> {
    world.core.snapshot().paths.iter().map(|path| path.up.datagrams).collect()
}

/// Returns the recognised protocols, in the order of the reports.
fn recognised<S: Server>(world: &World<S>) -> Vec<(Protocol, Confidence)> {
    let found = |(_, event): &(Time, Event)| match event {
        Event::Recognised { protocol, confidence, .. } => Some((*protocol, *confidence)),
        _ => None,
    };
    world.events.iter().filter_map(found).collect()
}

/// Returns the protocols that were reported because they number their packets in clear.
fn numbers_of<S: Server>(world: &World<S>) -> Vec<Protocol> {
    let protocol_of = |(_, event): &(Time, Event)| match event {
        Event::NumbersInClear { protocol, .. } => Some(*protocol),
        _ => None,
    };
    world.events.iter().filter_map(protocol_of).collect()
}

/// Returns a world with `paths` paths, in which each datagram is a run.
fn world_of(paths: usize, protocol: Guess) -> World<Mute> {
    World::new(Config { protocol, ..config(paths, "round-robin", "1p") }, Mute)
}

/// Sends `datagrams` from one client over three paths.
fn sent(protocol: Guess, datagrams: &[Vec<u8>]) -> World<Mute> {
    let mut world = world_of(3, protocol);
    datagrams.iter().for_each(|datagram| world.client(client(0), datagram));
    world
}

fn counted(one: One) -> Vec<Vec<u8>> {
    (0..21).map(one).collect()
}

#[test]
fn numbers_in_clear_are_reported_once_for_each_protocol() {
    let mut world = world_of(2, Guess::Look);
    for number in 0..3 {
        for datagram in [initiation(), tunnel(0), tunnel(1)] {
            world.client(client(number), &datagram);
        }
        (0..3).for_each(|n| world.client(client(10 + number), &mosh(n)));
        (0..9).for_each(|n| world.client(client(20 + number), &noise(n)));
    }
    assert_eq!(numbers_of(&world), [Protocol::WireGuard, Protocol::Mosh]);
}

#[test]
fn numbers_in_clear_are_reported_of_every_tunnel_that_has_them() {
    let known: [(One, Protocol); 3] =
        [(tunnel, Protocol::WireGuard), (nebula, Protocol::Nebula), (openvpn, Protocol::OpenVpn)];
    for guess in [Guess::Look, Guess::Is(Protocol::Other)] {
        for (one, protocol) in known {
            let world = sent(guess, &counted(one));
            assert_eq!(numbers_of(&world), [protocol], "{guess:?}");
            assert_eq!(by_path(&world), [7, 7, 7]);
        }
        let unknown = sent(guess, &counted(|n| filled(&[0xd1, 0x77, n, 0, 0, 0], 80)));
        assert_eq!(numbers_of(&unknown), [Protocol::Other], "{guess:?}");
    }
}

#[test]
fn dtls_that_the_user_splits_is_warned_of_and_dtls_on_one_path_is_not() {
    let session = [vec![hello()], (0..20).map(|n| record(23, n)).collect()].concat();
    let split = sent(Guess::Is(Protocol::Other), &session);
    assert_eq!((numbers_of(&split), by_path(&split)), (vec![Protocol::Dtls], vec![7, 7, 7]));
    let kept = sent(Guess::Look, &session);
    assert_eq!((numbers_of(&kept), by_path(&kept)), (vec![], vec![21, 0, 0]));
}

#[test]
fn where_there_is_one_path_nobody_is_told_of_numbers() {
    let mut world = world_of(1, Guess::Look);
    counted(tunnel).iter().for_each(|datagram| world.client(client(0), datagram));
    assert_eq!(numbers_of(&world), []);
}

#[test]
fn a_protocol_that_the_user_names_needs_no_proof() {
    let world = sent(Guess::Is(Protocol::WireGuard), &[noise(1)]);
    assert_eq!(recognised(&world), [(Protocol::WireGuard, Confidence::Configured)]);
    assert_eq!(numbers_of(&world), [Protocol::WireGuard]);
}

#[test]
fn what_a_server_knows_by_its_address_keeps_to_one_path() {
    let rest = |one: One| (0..20).map(one).collect::<Vec<_>>();
    let sessions = [
        (hello(), rest(|n| record(23, n))),
        (stun(), rest(|n| filled(&[0x80, 96, 0, n], 90))),
        (kcp(0), rest(kcp)),
        (enet(0), [rest(enet)[..1].to_vec(), (1..20).map(noise).collect()].concat()),
        (srt([0, 0, 0, 1]), [vec![srt([255; 4])], (1..20).map(noise).collect()].concat()),
    ];
    for (first, rest) in sessions {
        let world = sent(Guess::Look, &[vec![first], rest].concat());
        assert_eq!(by_path(&world), [21, 0, 0], "{:?}", recognised(&world));
    }
}

#[test]
fn it_is_split_if_the_user_says_so_and_behind_a_far_end() {
    let all = counted(|n| if n == 0 { hello() } else { record(23, n) });
    assert_eq!(by_path(&sent(Guess::Is(Protocol::Other), &all)), [7, 7, 7]);
    let settings = Config { far_end: true, ..config(3, "round-robin", "1p") };
    let mut world = World::new(settings, Mute);
    all.iter().for_each(|datagram| world.client(client(0), datagram));
    assert_eq!((by_path(&world), numbers_of(&world)), (vec![7, 7, 7], vec![]));
}

#[test]
fn dtls_is_split_from_the_first_record_that_bears_a_connection_id() {
    let handshake = vec![hello(), record(22, 1), record(22, 2)];
    let world = sent(Guess::Look, &[handshake, (0..21).map(|n| record(25, n)).collect()].concat());
    let last = recognised(&world).last().copied();
    assert_eq!(last, Some((Protocol::DtlsCid, Confidence::Certain)));
    let by = by_path(&world);
    assert!(by.iter().all(|&count| (7..=10).contains(&count)), "{by:?}");
    assert_eq!(numbers_of(&world), [Protocol::DtlsCid]);
}

#[test]
fn a_mark_that_is_contradicted_lets_the_session_go() {
    let noise: Vec<_> = (1..60).map(noise).collect();
    for first in [hello(), stun(), kcp(0), enet(0), srt([0, 0, 0, 1])] {
        let world = sent(Guess::Look, &[vec![first], noise.clone()].concat());
        let found = recognised(&world);
        assert_eq!(found.last(), Some(&(Protocol::Other, Confidence::Likely)), "{found:?}");
        assert!(by_path(&world).iter().all(|&count| count >= 18), "{:?}", by_path(&world));
    }
}

#[test]
fn srt_is_not_pinned_as_quic() {
    let world = sent(Guess::Look, &[srt([0, 0, 0, 1]), srt([255; 4])]);
    let found = [(Protocol::Srt, Confidence::Likely), (Protocol::Srt, Confidence::Certain)];
    assert_eq!(recognised(&world), found);
    assert!(!world.has_event(|event| matches!(event, Event::Pinned { .. })));
}

/// Returns the first Initial packet of a QUIC client. AmneziaWG can be configured to send such a
/// packet before its own handshake.
fn initial() -> Vec<u8> {
    let mut bytes = vec![0xc0, 0, 0, 0, 1, 8];
    bytes.extend(b"invented");
    bytes.extend([0, 0, 0x44, 0xb0]);
    bytes.resize(bytes.len() + 1200, 0);
    bytes
}

#[test]
fn what_only_begins_as_quic_is_let_go_with_all_its_four_tuples() {
    let settings = Config { ports: vec![4, 4], ..config(2, "round-robin", "1p") };
    let mut world = World::new(settings, Mute);
    world.client(client(0), &initial());
    (0..4).for_each(|n| world.client(client(0), &filled(&[0x12, n], 90)));
    let fallen = [(Protocol::Quic, Confidence::Likely), (Protocol::Other, Confidence::Likely)];
    assert_eq!(recognised(&world), fallen);
    (0..40).for_each(|n| world.client(client(0), &noise(n)));
    let tuples: std::collections::BTreeSet<_> =
        world.sent.iter().skip(2).map(|sent| sent.tuple).collect();
    assert_eq!(tuples.len(), 8);
}

#[test]
fn an_answer_that_is_none_of_quic_lets_the_session_go() {
    let mut world = world_of(2, Guess::Look);
    world.client(client(0), &initial());
    let way = (world.sent[0].session, world.sent[0].tuple);
    world.answer(way, filled(&[0x2d, 0x26], 110));
    world.run_until(Time::from_millis(50));
    assert_eq!(recognised(&world).last(), Some(&(Protocol::Other, Confidence::Likely)));
}

/// A WireGuard server under load. It remembers the address and port that last received a cookie,
/// and accepts a handshake from there. It answers all other handshakes with a cookie. If
/// `by_address`, it ignores the port, as boringtun does.
#[derive(Default)]
struct LoadedServer {
    cookie: Option<SeenAddress>,
    by_address: bool,
    cookies: usize,
    taken: usize,
}

impl Server for LoadedServer {
    fn receive(
        &mut self,
        _now: Time,
        from: SeenAddress,
        datagram: &[u8],
    ) -> Vec<(SeenAddress, Vec<u8>)> {
        if datagram[0] != 1 {
            return vec![(from, tunnel(datagram[8]))];
        }
        let place = |seen: SeenAddress| {
            if self.by_address { (seen.0, seen.1.0 / 8) } else { (seen.0, seen.1.0) }
        };
        if self.cookie.map(place) == Some(place(from)) {
            self.taken += 1;
            return vec![(from, filled(&[2, 0, 0, 0, 5, 5, 5, 5, 9, 9, 9, 9], 92))];
        }
        (self.cookie, self.cookies) = (Some(from), self.cookies + 1);
        vec![(from, filled(&[3, 0, 0, 0, 9, 9, 9, 9], 64))]
    }
}

#[test]
fn a_handshake_after_a_cookie_leaves_by_the_four_tuple_of_the_cookie() {
    for by_address in [false, true] {
        for seed in 0..30 {
            let server = LoadedServer { by_address, ..LoadedServer::default() };
            let settings = Config { ports: vec![8; 3], seed, ..config(3, "uniform", "1p") };
            let mut world = World::new(settings, server);
            for second in [5, 10] {
                world.client(client(0), &initiation());
                world.run_until(Time::from_secs(second));
            }
            assert_eq!((world.server.cookies, world.server.taken), (1, 1), "seed {seed}");
        }
    }
}

#[test]
fn a_handshake_that_a_cookie_did_not_help_goes_another_way() {
    let settings = Config { seed: 3, ..config(3, "round-robin", "1p") };
    let mut world = World::with_links(settings, LoadedServer::default(), &vec![link(); 3]);
    world.client(client(0), &initiation());
    world.run_until(Time::from_secs(5));
    let first = world.sent[0].path;
    world.cut(first.index(), true);
    for second in 2..6 {
        world.client(client(0), &initiation());
        world.run_until(Time::from_secs(5 * second));
    }
    let paths: Vec<_> = world.sent.iter().map(|sent| sent.path).collect();
    assert_eq!(paths[1], first, "by the way of the cookie");
    assert_ne!(paths[2], first, "it brought no answer");
    assert!(world.server.taken > 0);
}

#[test]
fn data_keep_to_the_schedule_while_a_cookie_stands() {
    let mut world = World::new(config(3, "round-robin", "1p"), LoadedServer::default());
    world.client(client(0), &initiation());
    world.run_until(Time::from_millis(100));
    (0..21).for_each(|n| world.client(client(0), &tunnel(n)));
    let by = by_path(&world);
    assert!(by.iter().all(|&count| count >= 7), "{by:?}");
    assert!(world.has_event(|event| matches!(event, Event::Recognised { .. })));
}

#[test]
fn confirmed_by_an_answer_a_session_stays_what_it_is() {
    let mut world = World::new(config(2, "uniform", "1p"), Follower::default());
    world.stream(client(0), Duration::from_millis(10), Time::from_millis(200));
    assert_eq!(recognised(&world), [(Protocol::Other, Confidence::Likely)]);
}
