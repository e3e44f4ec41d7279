//! QUIC links that are parallel to TLS links (`docs/spec/quic-links.md`). The tests check which
//! neighbours open them, which circuits use them, and what happens if UDP is blocked from the
//! start or later.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use anabranch_testkit::onion_world as world;

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_multipath::{Core as _, Time, seed};
use anabranch_onion::channel::Fault;
use anabranch_onion::client::{CircuitKey, Input, Output};
use anabranch_onion::handshake::extension::HopRequest;
use anabranch_onion::wire::cell::{Command, Width, put_fixed, put_variable};
use anabranch_onion::wire::link::{put_counts, put_move, put_pairing};
use anabranch_onion::wire::message::Begin;
use anabranch_onion::{LinkCore, LinkFault, LinkId, StreamKey, Violation};
use rand::RngExt;
use world::{RelayIdentity, Setting, World};

const BYTES: usize = 100_000;

fn setting() -> Setting {
    Setting { quic: true, ..Setting::default() }
}

/// Builds a circuit through all relays, and downloads over it.
fn download(world: &mut World, key: u64) -> CircuitKey {
    let circuit = world.build_through_all(key, HopRequest::CongestionControl);
    let host = format!("source-{BYTES}");
    let begin = Begin { host, port: 80, flags: 0 };
    let stream = world.client.begin(world.now, circuit, &begin).unwrap();
    world.run_for(Duration::from_secs(10));
    let received = &world.received[&stream];
    assert_eq!(received.len(), BYTES);
    assert!(received.iter().enumerate().all(|(at, byte)| *byte == world::Server::byte(at)));
    circuit
}

/// Returns the numbers of open QUIC links at the relays, and of circuits on them. A link between
/// two relays counts twice.
fn quic(world: &World) -> [usize; 2] {
    let stats = world.relays.iter().map(|relay| relay.core.stats());
    stats.fold([0, 0], |[links, circuits], stats| {
        [links + stats.quic_links, circuits + stats.quic_circuits]
    })
}

/// Returns the number of bytes that each link has carried.
fn transferred(world: &World) -> Vec<(LinkId, u64)> {
    world.pipes.iter().map(|(id, pipe)| (*id, pipe.bytes_sent)).collect()
}

/// Returns the number of circuits that moved to TLS, as the sum of the counts of all nodes.
fn moved(world: &World) -> u64 {
    let relays = world.relays.iter().map(|relay| relay.core.stats().moved_circuits);
    relays.sum::<u64>() + world.client.moved_circuits()
}

/// Returns the number of cells that wait at relays, or that relays store until they are
/// acknowledged.
fn cells(world: &World) -> usize {
    world.relays.iter().map(|relay| relay.core.stats().cells).sum()
}

fn begin(world: &mut World, circuit: CircuitKey, host: &str) -> StreamKey {
    let begin = Begin { host: host.into(), port: 80, flags: 0 };
    world.client.begin(world.now, circuit, &begin).unwrap()
}

/// Returns a world with a circuit that uses QUIC links, and a stream on this circuit.
fn by_quic(
    setting: Setting,
    identities: &[RelayIdentity],
    host: &str,
) -> (World, CircuitKey, StreamKey) {
    let mut world = World::of(setting, identities);
    download(&mut world, 1);
    let circuit = world.build_through_all(2, HopRequest::CongestionControl);
    let stream = begin(&mut world, circuit, host);
    (world, circuit, stream)
}

fn identities() -> Vec<RelayIdentity> {
    (0..3).map(|relay| RelayIdentity::new(1, relay)).collect()
}

fn nobody_is_at_fault(world: &World) {
    assert!(world.relays.iter().all(|relay| relay.violations.is_empty()));
}

#[test]
fn circuits_that_are_made_later_go_by_quic_and_those_that_are_there_stay() {
    let mut world = World::new(setting());
    let first = download(&mut world, 1);
    assert_eq!(quic(&world), [5, 0], "the client's at the guard, two between relays, both ends");
    let before = transferred(&world);
    let second = download(&mut world, 2);
    assert_eq!(quic(&world), [5, 5]);
    for (link, before) in before {
        let grown = world.pipes[&link].bytes_sent - before;
        assert_eq!(grown > BYTES as u64, world.quic.contains(&link), "{link:?}: {grown}");
    }
    // Links of both kinds are closed after a while without circuits.
    for circuit in [first, second] {
        world.client.handle(world.now, Input::Destroy { circuit });
    }
    world.run_for(Duration::from_secs(5_000));
    assert_eq!((quic(&world), world.pipes.len()), ([0, 0], 0));
    download(&mut world, 3);
    nobody_is_at_fault(&world);
}

#[test]
fn a_neighbour_that_knows_none_is_told_nothing() {
    for stock in 1..=3 {
        let mut world = World::new(Setting { stock: vec![stock], ..setting() });
        download(&mut world, 1);
        download(&mut world, 2);
        for link in &world.quic {
            assert!(!world.pipes[link].nodes.contains(&stock));
        }
        assert_eq!(world.quic.len(), [1, 1, 2][stock - 1]);
        nobody_is_at_fault(&world);
    }
}

#[test]
fn where_udp_is_blocked_circuits_stay_on_tls_and_it_is_tried_ever_less_often() {
    let mut world = World::new(Setting { blocked: true, ..setting() });
    download(&mut world, 1);
    assert_eq!((quic(&world), world.failed_quic), ([0, 0], 3));
    download(&mut world, 2);
    world.run_for(Duration::from_secs(300));
    // Each of the three links was tried at once, after 60 s and after 180 s.
    assert_eq!(world.failed_quic, 9);
    world.run_for(Duration::from_secs(24 * 3600));
    assert!((60..100).contains(&world.failed_quic), "{}", world.failed_quic);
    // When UDP is no longer blocked, it is used.
    world.setting.blocked = false;
    world.run_for(Duration::from_secs(3_700));
    // An unused QUIC link is closed, and opened again a minute later.
    for _ in 0..10 {
        if quic(&world)[0] < 5 {
            world.run_for(Duration::from_secs(10));
        }
    }
    download(&mut world, 3);
    assert_eq!(quic(&world), [5, 5]);
    nobody_is_at_fault(&world);
}

/// Checks QUIC links that break after the connection is open, before the neighbour has identified
/// itself.
#[test]
fn a_quic_link_that_breaks_before_who_it_is_is_known_is_tried_again() {
    let mut world = World::new(setting());
    let mut met = BTreeMap::new();
    download(&mut world, 1);
    met.extend(world.quic.iter().map(|link| (*link, world.now)));
    met.keys().for_each(|link| world.cut(*link));
    while met.len() < 12 {
        world.run_for(Duration::from_millis(1));
        for link in world.quic.clone() {
            let seen = *met.entry(link).or_insert(world.now);
            if world.now == seen + Duration::from_millis(12) {
                world.cut(link);
                assert_eq!(quic(&world), [0, 0], "none opened");
            }
        }
        assert!(world.now < Time::from_secs(900), "tried {} times", met.len());
    }
    world.run_for(Duration::from_secs(1_000));
    download(&mut world, 2);
    download(&mut world, 3);
    assert_eq!(quic(&world)[0], 5);
    nobody_is_at_fault(&world);
}

#[test]
fn a_quic_link_that_breaks_takes_its_circuits_alone_and_is_opened_again() {
    let mut world = World::new(setting());
    let on_tls = download(&mut world, 1);
    download(&mut world, 2);
    let broken: Vec<LinkId> = world.quic.iter().copied().collect();
    broken.into_iter().for_each(|link| world.cut(link));
    world.run_for(Duration::from_secs(1));
    assert_eq!(quic(&world), [0, 0]);
    let begin = Begin { host: "source-1000".into(), port: 80, flags: 0 };
    let stream = world.client.begin(world.now, on_tls, &begin).unwrap();
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.received[&stream].len(), 1_000, "the other circuit goes on");
    world.run_for(Duration::from_secs(70));
    download(&mut world, 3);
    assert_eq!(quic(&world), [5, 5]);
    nobody_is_at_fault(&world);
}

#[test]
fn shards_share_a_neighbours_quic_link() {
    for shards in [2, 3] {
        let mut world = World::new(Setting { shards, ..setting() });
        for key in 1..=4 {
            download(&mut world, key);
        }
        let [links, circuits] = quic(&world);
        assert!(links >= 4 && circuits > 0, "{shards} shards: {links} links, {circuits} circuits");
        nobody_is_at_fault(&world);
    }
}

/// Downloads on several circuits while UDP is blocked. Returns the number of circuits that moved
/// to TLS, and the number of complete downloads.
fn moves_with_shards(
    shards: usize,
    steered: bool,
    identities: &[RelayIdentity],
    seed: u64,
) -> (u64, usize) {
    let mut world = World::of(Setting { shards, steered, seed, ..setting() }, identities);
    download(&mut world, 1);
    let bytes = 300_000;
    let mut streams = Vec::new();
    for key in 2..6 {
        let circuit = world.build_through_all(key, HopRequest::CongestionControl);
        streams.push(begin(&mut world, circuit, &format!("source-{bytes}")));
    }
    let mut rng = seed::stream(seed, 3, "blocks");
    world.run_for(Duration::from_millis(rng.random_range(0..200)));
    let links: Vec<LinkId> = world.quic.iter().copied().collect();
    block(&mut world, &links, &mut rng);
    world.run_for(Duration::from_secs(30));
    nobody_is_at_fault(&world);
    assert_eq!(cells(&world), 0);
    let received = streams.iter().filter_map(|stream| world.received.get(stream));
    let whole = received.filter(|received| {
        let mut bytes = received.iter().enumerate();
        assert!(bytes.all(|(at, byte)| *byte == world::Server::byte(at)));
        received.len() == 300_000
    });
    (moved(&world), whole.count())
}

/// Checks relays with several shards (cores). A QUIC link reaches the shard that has the TLS link
/// to the same neighbour. So circuits can move there.
#[test]
fn circuits_move_at_relays_with_several_shards_too() {
    let identities = identities();
    for shards in [2, 3] {
        for run in 0..6 {
            let (moved, whole) = moves_with_shards(shards, true, &identities, 120 + run);
            assert!(moved > 0 && whole == 4, "{shards} shards, {run}: {moved}, {whole} whole");
        }
    }
    // If QUIC links reach any shard, a circuit ends if its QUIC link reached another shard than
    // the TLS link.
    let whole: usize =
        (0..4).map(|run| moves_with_shards(2, false, &identities, 120 + run).1).sum();
    assert!(whole < 16, "QUIC links came to the right shards by chance");
}

/// Checks two TLS links to one relay, which may reach different shards. The QUIC link belongs to
/// the TLS link that caused it, and reaches the same shard.
#[test]
fn a_quic_link_beside_one_of_two_tls_links_to_a_relay_can_give_its_circuits_back() {
    let identities = identities();
    for run in 0..8 {
        let setting = Setting { shards: 2, steered: true, seed: 140 + run, ..setting() };
        let mut world = World::of(setting, &identities);
        // The client opens one TLS link to the relay named by both keys, and another one to the
        // relay named by its RSA key alone.
        for (key, named) in [(1, true), (2, false)] {
            let mut hops: Vec<_> =
                (0..3).map(|relay| world.hop(relay, HopRequest::Plain)).collect();
            hops[0].target.ed25519.take_if(|_| !named);
            let circuit = CircuitKey(key);
            world.client.handle(world.now, Input::Build { circuit, hops });
        }
        world.run_for(Duration::from_secs(10));
        let to_guard = |world: &World, is_quic: bool| {
            let of_client = world.pipes.iter().filter(|(_, pipe)| pipe.nodes[0] == 0);
            of_client.filter(|(id, _)| world.quic.contains(id) == is_quic).count()
        };
        assert_eq!(to_guard(&world, false), 2, "run {run}");
        assert_eq!(to_guard(&world, true), 1, "run {run}: one QUIC link to a relay");
        let circuit = world.build_through_all(3, HopRequest::CongestionControl);
        let stream = begin(&mut world, circuit, "source-300000");
        world.run_for(Duration::from_millis(40));
        let links: Vec<LinkId> = world.quic.iter().copied().collect();
        block(&mut world, &links, &mut seed::stream(run, 4, "blocks"));
        world.run_for(Duration::from_secs(30));
        assert_eq!(world.received[&stream].len(), 300_000, "run {run}");
        nobody_is_at_fault(&world);
    }
}

/// Blocks `links`, first in one direction and then in both. Then the driver at one end reports the
/// loss, and soon after it the driver at the other end. A message from the first end may reach the
/// other end earlier.
fn block(world: &mut World, links: &[LinkId], rng: &mut seed::Stream) {
    let mut wait = |world: &mut World, most: u64| {
        world.run_for(Duration::from_millis(rng.random_range(0..most)));
    };
    for &link in links {
        world.pipes.get_mut(&link).unwrap().swallow_to(usize::from(link.number() % 3 == 0));
        wait(world, 60);
    }
    for &link in links {
        // The link may be closed already, because its circuits have moved.
        world.pipes.get_mut(&link).into_iter().for_each(|pipe| pipe.swallow());
        wait(world, 3_000);
    }
    for &link in links {
        let first = usize::from(link.number() % 2 == 0);
        world.lose(link, first);
        wait(world, 20);
        world.lose(link, 1 - first);
    }
}

#[test]
fn where_udp_is_blocked_later_circuits_move_to_tls_and_every_byte_arrives_once() {
    let identities = identities();
    for run in 0..24u64 {
        let mut rng = seed::stream(run, 0, "blocks");
        let setting = Setting { seed: 1 + run, ..setting() };
        let bytes = 1_500_000;
        let host = format!("source-{bytes}");
        let (mut world, circuit, stream) = by_quic(setting, &identities, &host);
        world.run_for(Duration::from_millis(rng.random_range(0..400)));
        let quic_links: Vec<LinkId> = world.quic.iter().copied().collect();
        let some: Vec<LinkId> = match run % 4 {
            0 => quic_links,
            nth => vec![quic_links[nth as usize - 1]],
        };
        block(&mut world, &some, &mut rng);
        world.run_for(Duration::from_secs(30));
        let received = &world.received[&stream];
        assert_eq!(received.len(), bytes, "run {run}");
        assert!(received.iter().enumerate().all(|(at, byte)| *byte == world::Server::byte(at)));
        assert!(moved(&world) > 0, "run {run}");
        nobody_is_at_fault(&world);
        assert_eq!(cells(&world), 0, "run {run}: copies are kept until it is said that they came");
        // The circuit continues. When it is closed, its state is dropped.
        let more = begin(&mut world, circuit, "source-20000");
        world.run_for(Duration::from_secs(5));
        assert_eq!(world.received[&more].len(), 20_000, "run {run}");
        world.client.handle(world.now, Input::Destroy { circuit });
        world.run_for(Duration::from_secs(5));
        let circuits: usize =
            world.relays.iter().map(|relay| relay.core.stats().link_circuits).sum();
        assert_eq!(circuits, 5, "run {run}: those of the first circuit");
        for _ in 0..30 {
            if quic(&world)[0] < 5 {
                world.run_for(Duration::from_secs(10));
            }
        }
        assert_eq!(quic(&world), [5, 0], "run {run}: QUIC links are opened again");
        nobody_is_at_fault(&world);
    }
}

#[test]
fn an_upload_goes_on_by_tls_byte_for_byte() {
    let identities = identities();
    for run in 0..12u64 {
        let mut rng = seed::stream(run, 1, "blocks");
        let setting = Setting { seed: 50 + run, ..setting() };
        let (mut world, _, stream) = by_quic(setting, &identities, "sink");
        let at = rng.random_range(0..60);
        let (mut sent, bytes) = (0, 1_500_000);
        for step in 0..2_000 {
            if step == at {
                let links: Vec<LinkId> = world.quic.iter().copied().collect();
                block(&mut world, &links[..1 + run as usize % 3], &mut rng);
            }
            let piece: Vec<u8> = (sent..bytes).take(20_000).map(world::Server::byte).collect();
            sent += world.client.write(world.now, stream, &piece);
            world.run_for(Duration::from_millis(5));
        }
        assert_eq!(sent, bytes, "run {run}");
        world.run_for(Duration::from_secs(10));
        // The server has checked each byte.
        let received: usize = world.relays[2].servers.values().map(|server| server.received).sum();
        assert_eq!(received, bytes, "run {run}");
        assert!(moved(&world) > 0);
        assert_eq!(cells(&world), 0, "run {run}");
        nobody_is_at_fault(&world);
    }
}

/// Opens and closes circuits while links break. Checks that neither end keeps a circuit that the
/// other end has dropped.
#[test]
fn circuits_that_come_and_go_while_links_break_leave_nothing_behind() {
    let identities = identities();
    for run in 0..12u64 {
        let mut rng = seed::stream(run, 2, "blocks");
        let mut world = World::of(Setting { seed: 80 + run, ..setting() }, &identities);
        download(&mut world, 1);
        let links: Vec<LinkId> = world.quic.iter().copied().collect();
        for key in 10..40 {
            let hops = (0..3).map(|relay| world.hop(relay, HopRequest::Plain)).collect();
            let circuit = CircuitKey(key);
            world.client.handle(world.now, Input::Build { circuit, hops });
            world.run_for(Duration::from_millis(rng.random_range(0..8)));
            if key % 2 == 0 {
                world.client.handle(world.now, Input::Destroy { circuit: CircuitKey(key - 4) });
            }
            if key == 20 {
                for &link in &links {
                    world.pipes.get_mut(&link).unwrap().swallow();
                }
            }
            if key == 28 {
                for &link in &links {
                    let first = rng.random_range(0..2);
                    world.lose(link, first);
                    world.run_for(Duration::from_millis(rng.random_range(0..20)));
                    world.lose(link, 1 - first);
                }
            }
        }
        world.run_for(Duration::from_secs(20));
        for key in 1..40 {
            world.client.handle(world.now, Input::Destroy { circuit: CircuitKey(key) });
        }
        world.run_for(Duration::from_secs(20));
        for relay in &world.relays {
            let stats = relay.core.stats();
            assert_eq!((stats.link_circuits, stats.circuits, stats.cells), (0, 0, 0), "run {run}");
        }
        assert!(moved(&world) > 0, "run {run}");
        nobody_is_at_fault(&world);
        download(&mut world, 90);
    }
}

#[test]
fn where_the_tls_link_breaks_too_or_cannot_take_them_circuits_end() {
    let identities = identities();
    let ended = |world: &World, circuit| {
        let is_it = |output: &Output| matches!(output, Output::CircuitClosed { circuit: closed, .. } if *closed == circuit);
        world.outputs.iter().any(is_it)
    };
    for (unordered, with_tls) in [(false, true), (false, false), (true, false)] {
        let setting = Setting { unordered, ..setting() };
        let (mut world, circuit, stream) = by_quic(setting, &identities, "source-100000");
        let tls = world.link_between([None, Some(0)]).unwrap();
        let quic = *world.quic.iter().find(|id| world.pipes[id].nodes[0] == 0).unwrap();
        world.pipes.get_mut(&quic).unwrap().swallow();
        [0, 1].into_iter().for_each(|side| world.lose(quic, side));
        if with_tls {
            world.run_for(Duration::from_millis(8));
            world.cut(tls);
        }
        world.run_for(Duration::from_secs(20));
        let lives = !with_tls && !unordered;
        assert_eq!(ended(&world, circuit), !lives, "{unordered} {with_tls}");
        let received = world.received.get(&stream).map_or(0, Vec::len);
        assert_eq!(received == 100_000, lives);
        assert_eq!(cells(&world), 0);
        nobody_is_at_fault(&world);
    }
}

/// Checks a neighbour that does not answer the message that circuits move.
#[test]
fn a_neighbour_that_does_not_say_what_came_loses_the_circuits() {
    let (mut world, ..) = by_quic(setting(), &identities(), "source-100000");
    world.run_for(Duration::from_millis(60));
    let tls = world.link_between([None, Some(0)]).unwrap();
    let quic_link = *world.quic.iter().find(|id| world.pipes[id].nodes[0] == 0).unwrap();
    world.pipes.get_mut(&tls).unwrap().swallow();
    world.pipes.get_mut(&quic_link).unwrap().swallow();
    world.lose(quic_link, 1);
    world.run_for(Duration::from_secs(50));
    assert!(world.relays[0].core.stats().cells > 0, "they wait");
    world.run_for(Duration::from_secs(20));
    let stats = world.relays[0].core.stats();
    assert_eq!((stats.link_circuits, stats.cells), (2, 0), "those of the first circuit");
    nobody_is_at_fault(&world);
}

/// Returns a variable-length cell of the link.
fn long(command: Command, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_variable(&mut bytes, Width::Four, command, body);
    bytes
}

/// Returns a DETOUR cell. It carries a cell of a circuit that moved from the QUIC link `number`.
fn wrapped(number: u32, circuit: u32, command: Command) -> Vec<u8> {
    let mut body = number.to_be_bytes().to_vec();
    put_fixed(&mut body, circuit, command, &[]);
    long(Command::DETOUR, &body)
}

fn own(command: Command, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_fixed(&mut bytes, 0, command, body);
    bytes
}

#[test]
fn what_cannot_be_said_of_links_that_move_ends_the_link() {
    let identities = identities();
    let (malformed, misplaced) = (Fault::Malformed, Fault::OutOfPlace);
    let (circuit, unknown) = (0x8000_0001, 0x8765_4321);
    let list = |ends, counts: &[(u32, u32)]| long(Command::MOVE, &put_move(1, ends, counts));
    let many = |from: u32| (from..from + 1_000).map(|circuit| (circuit, 1)).collect::<Vec<_>>();
    let flood: Vec<u8> =
        (0..70).flat_map(|part| list(false, &many(0x9000_0000 + 1_000 * part))).collect();
    let counts = |circuit, count| {
        let mut body = Vec::new();
        put_counts(&mut body, [(circuit, count)].into_iter());
        own(Command::ARRIVED, &body)
    };
    // Each case has three parts: whether the message is sent on the TLS link (or on the QUIC
    // link), the message, and the expected fault.
    let cases: Vec<(bool, Vec<u8>, Option<Fault>)> = vec![
        (true, long(Command::MOVE, &put_move(99, true, &[(circuit, 1)])), None),
        (true, wrapped(99, circuit, Command::RELAY), None),
        (true, long(Command::MOVE_OVER, &[0, 0, 0, 99]), None),
        (true, long(Command::MOVE, &[0, 0, 0]), Some(malformed(Command::MOVE))),
        (true, long(Command::MOVE, &[0, 0, 0, 1, 2]), Some(malformed(Command::MOVE))),
        (true, long(Command::MOVE, &[0, 0, 0, 1, 1, 9]), Some(malformed(Command::MOVE))),
        (true, long(Command::MOVE_OVER, &[0, 0, 1]), Some(malformed(Command::MOVE_OVER))),
        (true, long(Command::MOVE_OVER, &[0, 0, 0, 1]), Some(misplaced(Command::MOVE_OVER))),
        (true, wrapped(1, circuit, Command::RELAY), Some(misplaced(Command::DETOUR))),
        (true, long(Command::DETOUR, &[0, 0, 0]), Some(malformed(Command::DETOUR))),
        // A circuit that the other end does not know is closed.
        (true, list(true, &[(unknown, 7)]), None),
        (
            true,
            [list(false, &[]), wrapped(1, circuit, Command::RELAY)].concat(),
            Some(misplaced(Command::DETOUR)),
        ),
        (true, [list(true, &[]), wrapped(1, unknown, Command::RELAY)].concat(), None),
        (true, [list(true, &[]), list(true, &[])].concat(), None),
        (true, list(false, &[(unknown, 7), (unknown, 7)]), Some(malformed(Command::MOVE))),
        (
            true,
            [list(false, &[(unknown, 7)]), list(true, &[(unknown, 7)])].concat(),
            Some(malformed(Command::MOVE)),
        ),
        (true, flood, Some(malformed(Command::MOVE))),
        (false, own(Command::BESIDE, &put_pairing(2, &[1; 16])), Some(misplaced(Command::BESIDE))),
        (false, counts(unknown, 7), None),
        (false, (0..500).flat_map(|_| counts(unknown, 7)).collect(), None),
    ];
    for (nth, (by_tls, message, fault)) in cases.into_iter().enumerate() {
        let mut world = World::of(setting(), &identities);
        download(&mut world, 1);
        let tls = world.link_between([None, Some(0)]).unwrap();
        let quic_link = *world.quic.iter().find(|id| world.pipes[id].nodes[0] == 0).unwrap();
        world.forge(1, if by_tls { tls } else { quic_link }, &message);
        world.run_for(Duration::from_secs(1));
        let expected = fault.map(|fault| Violation::Link(LinkFault::Handshake(fault)));
        let violation = world.relays[0].violations.first().copied();
        assert_eq!(violation, expected, "case {nth}");
        assert_eq!(world.pipes.contains_key(&tls), !(by_tls && fault.is_some()), "case {nth}");
        assert!(cells(&world) < 10);
    }
}

#[test]
fn counts_of_cells_that_were_not_sent_end_the_link() {
    let identities = identities();
    // The circuit IDs on the QUIC link are random. So the test uses the ID of the last circuit on
    // the link.
    for by_tls in [false, true] {
        let (mut world, _, stream) = by_quic(setting(), &identities, "source-50000");
        world.run_for(Duration::from_secs(5));
        assert_eq!(world.received[&stream].len(), 50_000);
        let tls = world.link_between([None, Some(0)]).unwrap();
        let quic_link = *world.quic.iter().find(|id| world.pipes[id].nodes[0] == 0).unwrap();
        let circuit = world.pipes[&quic_link].last_circuit.unwrap();
        let (link, message, command) = match by_tls {
            true => {
                let message = long(Command::MOVE, &put_move(1, true, &[(circuit, 100_000)]));
                (tls, message, Command::MOVE)
            }
            false => {
                let mut body = Vec::new();
                put_counts(&mut body, [(circuit, 100_000)].into_iter());
                (quic_link, own(Command::ARRIVED, &body), Command::ARRIVED)
            }
        };
        world.forge(1, link, &message);
        world.run_for(Duration::from_secs(1));
        let fault = LinkFault::Handshake(Fault::Malformed(command));
        assert_eq!(world.relays[0].violations, [Violation::Link(fault)]);
        assert!(!world.pipes.contains_key(&link));
        assert_eq!(cells(&world), 0);
    }
}
