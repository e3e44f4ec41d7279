//! Links that deliver cells out of order (`docs/spec/unordered-links.md`). Each circuit stays in
//! order, and a neighbour that does not support such links receives plain cells.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use anabranch_multipath::Core as _;
use anabranch_testkit::onion_world as world;

use std::time::Duration;

use anabranch_onion::StreamKey;
use anabranch_onion::client::{CircuitKey, Input, Output};
use anabranch_onion::handshake::extension::HopRequest;
use anabranch_onion::wire::message::Begin;
use world::{Setting, World};

const BYTES: usize = 200_000;

/// Returns settings in which 50 of 1,000 cells arrive one round trip late.
fn lossy() -> Setting {
    Setting {
        unordered: true,
        late_per_mille: 50,
        delay: Duration::from_millis(20),
        ..Setting::default()
    }
}

fn begin(world: &mut World, circuit: CircuitKey, host: &str) -> StreamKey {
    let begin = Begin { host: host.into(), port: 80, flags: 0 };
    world.client.begin(world.now, circuit, &begin).unwrap()
}

/// Downloads on ten circuits at once, and checks the bytes. Returns the number of cells that
/// arrived at relays before earlier cells of their circuits.
fn downloads(world: &mut World, wish: HopRequest) -> u64 {
    let circuits: Vec<CircuitKey> =
        (1..=10).map(|key| world.build_through_all(key, wish)).collect();
    let host = format!("source-{BYTES}");
    let streams: Vec<StreamKey> =
        circuits.iter().map(|circuit| begin(world, *circuit, &host)).collect();
    world.run_for(Duration::from_secs(60));
    for stream in streams {
        let received = &world.received[&stream];
        assert_eq!(received.len(), BYTES);
        let mut bytes = received.iter().enumerate();
        assert!(bytes.all(|(at, byte)| *byte == world::Server::byte(at)), "in order");
    }
    assert!(world.relays.iter().all(|relay| relay.violations.is_empty()));
    world.relays.iter().map(|relay| relay.core.stats().early_cells).sum()
}

#[test]
fn circuits_stay_in_order_on_links_that_do_not() {
    for wish in [HopRequest::CongestionControl, HopRequest::Cgo, HopRequest::Plain] {
        let mut world = World::new(lossy());
        let early = downloads(&mut world, wish);
        assert!(world.pipes.values().all(|pipe| pipe.is_unordered()));
        assert!(early > 500, "{early} cells came before their turn");
        let unordered: usize =
            world.relays.iter().map(|relay| relay.core.stats().unordered_links).sum();
        assert_eq!(unordered, 5, "the client's at the guard, two between relays at both ends");
    }
}

#[test]
fn a_run_replays() {
    let trace = || {
        let mut world = World::new(lossy());
        downloads(&mut world, HopRequest::CongestionControl);
        world.trace
    };
    assert_eq!(trace(), trace());
}

#[test]
fn a_neighbour_without_them_gets_plain_cells_and_the_circuit_stays_whole() {
    for stock in 1..=3 {
        let mut world = World::new(Setting { stock: vec![stock], ..lossy() });
        let early = downloads(&mut world, HopRequest::CongestionControl);
        for pipe in world.pipes.values() {
            assert_eq!(pipe.is_unordered(), !pipe.nodes.contains(&stock), "{:?}", pipe.nodes);
        }
        // If the middle is the stock relay, only the client's link delivers cells out of order.
        // Few cells arrive at a relay on that link.
        assert!(early > 0 || stock == 2, "relay {stock}");
    }
    let mut world = World::new(Setting { unordered: false, ..lossy() });
    assert_eq!(downloads(&mut world, HopRequest::CongestionControl), 0);
}

#[test]
fn circuits_come_and_go_while_their_cells_overtake_each_other() {
    let mut world = World::new(Setting { late_per_mille: 200, ..lossy() });
    world.build_through_all(1, HopRequest::CongestionControl);
    for key in 2..60 {
        let circuit = CircuitKey(key);
        let hops = (0..3).map(|relay| world.hop(relay, HopRequest::CongestionControl)).collect();
        world.client.handle(world.now, Input::Build { circuit, hops });
        // Some circuits are closed before they are built, and others during a download.
        world.run_for(Duration::from_millis(40 * (key % 12)));
        if key % 2 == 0 && world.outputs.contains(&Output::Built { cgo: false, circuit }) {
            begin(&mut world, circuit, "source-100000");
            world.run_for(Duration::from_millis(130));
        }
        world.client.handle(world.now, Input::Destroy { circuit });
    }
    world.run_for(Duration::from_secs(30));
    for relay in &world.relays {
        assert_eq!(relay.violations, []);
        assert_eq!(relay.core.stats().circuits, 1);
    }
    downloads_after(&mut world);
}

/// Checks that a circuit still carries data on links where other circuits were opened and closed.
fn downloads_after(world: &mut World) {
    let stream = begin(world, CircuitKey(1), &format!("source-{BYTES}"));
    world.run_for(Duration::from_secs(30));
    assert_eq!(world.received[&stream].len(), BYTES);
}
