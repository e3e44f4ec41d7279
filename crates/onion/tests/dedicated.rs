//! Tests of dedicated links, which a relay opens for one circuit each. They check the number of
//! links, the effect of a broken link, the closing of links, and the limit.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use anabranch_multipath::Core as _;
use anabranch_testkit::onion_world as world;

use std::time::Duration;

use anabranch_onion::client::{CircuitKey, Input, Output};
use anabranch_onion::handshake::extension::HopRequest;
use anabranch_onion::wire::message::Begin;
use world::{Setting, World};

const BYTES: usize = 20_000;
/// Maximum number of dedicated links from the middle relay to one neighbour.
const MOST: usize = 8;
const MIDDLE: usize = 1;

/// Creates a world in which only the middle relay opens a link for each circuit.
fn world() -> World {
    let mut world = World::new(Setting::default());
    world.relays[MIDDLE].core.dedicate_links(MOST);
    world
}

fn build(world: &mut World, keys: std::ops::Range<u64>) -> Vec<CircuitKey> {
    keys.map(|key| world.build_through_all(key, HopRequest::CongestionControl)).collect()
}

fn download(world: &mut World, circuit: CircuitKey) {
    let host = format!("source-{BYTES}");
    let begin = Begin { host, port: 80, flags: 0 };
    let stream = world.client.begin(world.now, circuit, &begin).unwrap();
    world.run_for(Duration::from_secs(10));
    let received = &world.received[&stream];
    assert_eq!(received.len(), BYTES);
    assert!(received.iter().enumerate().all(|(at, byte)| *byte == world::Server::byte(at)));
}

fn middle(world: &World) -> (usize, u64) {
    let stats = world.relays[MIDDLE].core.stats();
    (stats.dedicated_links, stats.shared_circuits)
}

fn nobody_is_at_fault(world: &World) {
    assert!(world.relays.iter().all(|relay| relay.violations.is_empty()));
}

#[test]
fn each_circuit_has_a_link_of_its_own_and_one_that_dies_takes_its_own_alone() {
    let mut world = world();
    let circuits = build(&mut world, 0..3);
    assert_eq!(world.links_between([0, 1]), 1, "the guard does as everybody");
    assert_eq!(world.links_between([1, 2]), 3);
    assert_eq!(middle(&world), (3, 0));
    for circuit in &circuits {
        download(&mut world, *circuit);
    }

    let links = world.links_of(1 + MIDDLE);
    let mut between = links.into_iter().filter(|link| world.pipes[link].nodes.contains(&3));
    let broken = between.next().unwrap();
    world.outputs.clear();
    world.cut(broken);
    world.run_for(Duration::from_secs(2));
    let closed = |output: &&Output| matches!(output, Output::CircuitClosed { .. });
    assert_eq!(world.outputs.iter().filter(closed).count(), 1, "{:?}", world.outputs);
    assert_eq!(world.links_between([1, 2]), 2);
    for circuit in &circuits[1..] {
        download(&mut world, *circuit);
    }
    nobody_is_at_fault(&world);
}

#[test]
fn a_link_closes_with_its_circuit_whoever_ends_that() {
    let mut world = world();
    let circuits = build(&mut world, 0..4);
    assert_eq!(world.links_between([1, 2]), 4);
    world.client.handle(world.now, Input::Destroy { circuit: circuits[0] });
    world.run_for(Duration::from_secs(3));
    assert_eq!(world.links_between([1, 2]), 3);
    // The circuits are idle for ten minutes.
    world.run_for(Duration::from_secs(600));
    assert_eq!(world.links_between([1, 2]), 3, "a circuit may be silent");
    world.client.handle(world.now, Input::Destroy { circuit: circuits[1] });
    world.run_for(Duration::from_secs(3));
    assert_eq!((world.links_between([1, 2]), middle(&world)), (2, (2, 0)));
    download(&mut world, circuits[2]);
    nobody_is_at_fault(&world);
}

#[test]
fn beyond_the_bound_circuits_share_the_links_that_there_are() {
    let mut world = world();
    let circuits = build(&mut world, 0..MOST as u64 + 6);
    assert_eq!((world.links_between([1, 2]), middle(&world)), (MOST, (MOST, 6)));
    let [first, last] = [circuits[0], *circuits.last().unwrap()];
    download(&mut world, last);
    download(&mut world, first);
    // A shared link stays open while it has any circuit.
    circuits[..MOST].iter().for_each(|circuit| {
        world.client.handle(world.now, Input::Destroy { circuit: *circuit });
    });
    world.run_for(Duration::from_secs(5));
    assert_eq!((world.links_between([1, 2]), middle(&world)), (6, (6, 6)));
    download(&mut world, last);
    nobody_is_at_fault(&world);
}

#[test]
fn circuits_that_come_together_are_each_dialled_for() {
    let mut world = world();
    for key in 0..4 {
        let hops = (0..3).map(|relay| world.hop(relay, HopRequest::Plain)).collect();
        world.client.handle(world.now, Input::Build { circuit: CircuitKey(key), hops });
    }
    world.run_for(Duration::from_secs(10));
    let built = |output: &&Output| matches!(output, Output::Built { .. });
    assert_eq!(world.outputs.iter().filter(built).count(), 4);
    assert_eq!((world.links_between([1, 2]), middle(&world)), (4, (4, 0)));
    nobody_is_at_fault(&world);
}
