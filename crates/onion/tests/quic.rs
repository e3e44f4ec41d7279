//! QUIC links beside others (`docs/spec/quic-links.md`): who may have one, which circuits go by it,
//! and what happens where UDP is blocked.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_onion::LinkId;
use anabranch_onion::client::{CircuitKey, Input};
use anabranch_onion::handshake::extension::Wish;
use anabranch_onion::wire::message::Begin;
use world::{Setting, World};

const BYTES: usize = 100_000;

fn setting() -> Setting {
    Setting { quic: true, ..Setting::default() }
}

/// A circuit by all relays downloads.
fn download(world: &mut World, key: u64) -> CircuitKey {
    let circuit = world.build_through_all(key, Wish::CongestionControl);
    let host = format!("source-{BYTES}");
    let begin = Begin { host, port: 80, flags: 0 };
    let stream = world.client.begin(world.now, circuit, &begin).unwrap();
    world.run_for(Duration::from_secs(10));
    let received = &world.received[&stream];
    assert_eq!(received.len(), BYTES);
    assert!(received.iter().enumerate().all(|(at, byte)| *byte == world::Server::byte(at)));
    circuit
}

/// QUIC links that the relays have open, and circuits on them.
fn quic(world: &World) -> [usize; 2] {
    let stats = world.relays.iter().map(|relay| relay.core.stats());
    stats.fold([0, 0], |[links, circuits], stats| {
        [links + stats.quic_links, circuits + stats.quic_circuits]
    })
}

/// Bytes that each pipe has carried.
fn carried(world: &World) -> Vec<(LinkId, u64)> {
    world.pipes.iter().map(|(id, pipe)| (*id, pipe.carried)).collect()
}

fn nobody_is_at_fault(world: &World) {
    assert!(world.relays.iter().all(|relay| relay.violations.is_empty()));
}

#[test]
fn circuits_that_are_made_later_go_by_quic_and_those_that_are_there_stay() {
    let mut world = World::new(setting());
    let first = download(&mut world, 1);
    assert_eq!(quic(&world), [5, 0], "the client's at the guard, two between relays, both ends");
    let before = carried(&world);
    let second = download(&mut world, 2);
    assert_eq!(quic(&world), [5, 5]);
    for (link, before) in before {
        let grown = world.pipes[&link].carried - before;
        assert_eq!(grown > BYTES as u64, world.quic.contains(&link), "{link:?}: {grown}");
    }
    // Without circuits either kind is closed after a while.
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
    assert_eq!((quic(&world), world.tried_beside), ([0, 0], 3));
    download(&mut world, 2);
    world.run_for(Duration::from_secs(300));
    // At once, and after 60 and 180 seconds.
    assert_eq!(world.tried_beside, 9);
    world.run_for(Duration::from_secs(24 * 3600));
    assert!((60..100).contains(&world.tried_beside), "{}", world.tried_beside);
    // Once it passes, it is used.
    world.setting.blocked = false;
    world.run_for(Duration::from_secs(3_700));
    // One that nobody uses is closed, and opened again a minute later.
    for _ in 0..10 {
        if quic(&world)[0] < 5 {
            world.run_for(Duration::from_secs(10));
        }
    }
    download(&mut world, 3);
    assert_eq!(quic(&world), [5, 5]);
    nobody_is_at_fault(&world);
}

/// UDP passes for long enough to open a QUIC connection, and not for what is said by it first.
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
