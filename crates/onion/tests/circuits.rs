//! Tests with a client and three relays: they build circuits, carry data in both directions, and
//! replay a run from its seed.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use anabranch_multipath::Core as _;
use anabranch_testkit::onion_world as world;

use std::net::IpAddr;
use std::time::Duration;

use anabranch_onion::circuitmux;
use anabranch_onion::client::{Cause, CircuitKey, Hop, HopKey, Input, Output};
use anabranch_onion::handshake::extension::HopRequest;
use anabranch_onion::wire::message::{Answer, Begin, DestroyReason, EndReason};
use anabranch_onion::{
    CircuitFault, Event, LinkCore, LinkFault, Neighbour, StreamKey, StreamOutput,
};
use world::{Setting, World};

const MEGABYTE: usize = 1_000_000;

fn begin(world: &mut World, circuit: CircuitKey, host: &str) -> StreamKey {
    let begin = Begin { host: host.into(), port: 80, flags: 0 };
    world.client.begin(world.now, circuit, &begin).unwrap()
}

fn is_pattern(bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(at, &found)| found == world::Server::byte(at))
}

/// Writes `bytes` bytes to a stream whenever it has space, and ends the stream.
fn upload(world: &mut World, stream: StreamKey, bytes: usize) {
    let mut sent = 0;
    while sent < bytes {
        let piece: Vec<u8> = (sent..bytes.min(sent + 20_000)).map(world::Server::byte).collect();
        sent += world.client.write(world.now, stream, &piece);
        world.run_for(Duration::from_millis(20));
    }
    world.client.handle(world.now, Input::Ended { stream });
}

/// Builds a circuit, and sends 10 MB in each direction at once. Returns the hash of the trace.
fn ten_megabytes_both_ways(setting: Setting, wish: HopRequest) -> u64 {
    let mut world = World::new(setting);
    let circuit = world.build_through_all(1, wish);
    load(&mut world, circuit)
}

/// Sends 10 MB in each direction of `circuit` at once. Returns the hash of the trace.
fn load(world: &mut World, circuit: CircuitKey) -> u64 {
    let down = begin(world, circuit, &format!("source-{}", 10 * MEGABYTE));
    let up = begin(world, circuit, "sink");
    upload(world, up, 10 * MEGABYTE);
    world.run_for(Duration::from_secs(120));
    let received = &world.received[&down];
    assert_eq!(received.len(), 10 * MEGABYTE);
    assert!(is_pattern(received));
    assert!(world.outputs.contains(&Output::Stream(StreamOutput::Ended {
        stream: down,
        reason: EndReason::DONE,
        refused: None
    })));
    let servers = world.relays.iter().flat_map(|relay| relay.servers.values());
    assert_eq!(world.client.transferred(circuit), [10 * MEGABYTE as u64; 2]);
    let taken: usize = servers.map(|server| server.received).sum();
    assert_eq!(taken, 10 * MEGABYTE);
    assert!(world.relays.iter().all(|relay| relay.violations.is_empty()));
    assert!(world.relays.iter().all(|relay| relay.core.stats().cells == 0), "nothing is left");
    world.trace
}

#[test]
fn ten_megabytes_with_congestion_control_by_each_policy() {
    for policy in [circuitmux::Kind::Ewma, circuitmux::Kind::RoundRobin] {
        let setting = Setting { policy, ..Setting::default() };
        ten_megabytes_both_ways(setting, HopRequest::CongestionControl);
    }
}

#[test]
fn ten_megabytes_with_counter_galois_onion() {
    let seed =
        |seed| ten_megabytes_both_ways(Setting { seed, ..Setting::default() }, HopRequest::Cgo);
    assert_eq!(seed(3), seed(3));
}

#[test]
fn ten_megabytes_with_fixed_windows() {
    ten_megabytes_both_ways(Setting::default(), HopRequest::Plain);
}

/// Returns a world whose relays have `shards` shards (event loops) each, and a circuit through all
/// relays. At the middle relay, the circuit's two links belong to different shards.
fn world_of_shards(shards: usize, wish: HopRequest) -> (World, CircuitKey) {
    let mut world = World::new(Setting { shards, ..Setting::default() });
    let hops = vec![world.hop(1, HopRequest::Plain), world.hop(2, HopRequest::Plain)];
    assert!(world.build(1, hops));
    let circuit = world.build_through_all(2, wish);
    assert_eq!(world.links_between([1, 2]), 1, "all shards of a relay share the link");
    (world, circuit)
}

#[test]
fn ten_megabytes_from_shard_to_shard() {
    for (shards, wish) in
        [(2, HopRequest::CongestionControl), (3, HopRequest::Cgo), (4, HopRequest::Plain)]
    {
        let (mut world, circuit) = world_of_shards(shards, wish);
        load(&mut world, circuit);
        assert!(world.crossed() > 20 * MEGABYTE as u64, "all of it went from shard to shard");
    }
}

#[test]
fn what_ends_on_one_shard_ends_on_the_other() {
    let idle =
        |world: &World| world.relays.iter().all(|relay| relay.core.stats().link_circuits == 0);
    let (mut world, circuit) = world_of_shards(2, HopRequest::CongestionControl);
    begin(&mut world, circuit, "source-50000000");
    world.run_for(Duration::from_millis(500));
    // The last relay loses its links. The client is notified.
    let end = world.links_of(5).into_iter().chain(world.links_of(6)).collect::<Vec<_>>();
    end.into_iter().for_each(|link| world.cut(link));
    world.run_for(Duration::from_secs(1));
    let is_closed = |output: &Output| matches!(output, Output::CircuitClosed { circuit: other, .. } if *other == circuit);
    assert!(world.outputs.iter().any(is_closed));
    assert!(idle(&world));
    // The client closes a circuit. All shards forget it.
    let circuit = world.build_through_all(3, HopRequest::Plain);
    assert!(!idle(&world));
    world.client.handle(world.now, Input::Destroy { circuit });
    world.run_for(Duration::from_secs(1));
    assert!(idle(&world));
    assert!(world.relays.iter().all(|relay| relay.violations.is_empty()));
}

#[test]
fn a_relay_that_is_not_there_is_told_of_from_shard_to_shard() {
    let (mut world, _) = world_of_shards(2, HopRequest::Plain);
    let gone: Vec<_> = world.links_of(5).into_iter().chain(world.links_of(6)).collect();
    world.relays[4..].iter_mut().for_each(|shard| shard.target.addresses = Vec::new());
    let hops: Vec<Hop> = (0..3).map(|n| world.hop(n, HopRequest::Plain)).collect();
    let mut hops = hops;
    hops[2].target.addresses = vec!["10.0.0.77:1".parse().unwrap()];
    gone.into_iter().for_each(|link| world.cut(link));
    assert!(!world.build(9, hops));
    let is_closed = |output: &Output| {
        matches!(output, Output::CircuitClosed { circuit: CircuitKey(9), hops: 2, .. })
    };
    assert!(world.outputs.iter().any(is_closed), "{:?}", world.outputs);
}

#[test]
fn what_is_written_at_once_is_there_before_the_exit_has_answered() {
    let mut world = World::new(Setting::default());
    let circuit = world.build_through_all(1, HopRequest::CongestionControl);
    let early: Vec<u8> = (0..3000).map(world::Server::byte).collect();
    let open = |world: &mut World, host: &str| {
        let begin = Begin { host: host.to_owned(), port: 80, flags: 0 };
        let stream = world.client.begin(world.now, circuit, &begin).unwrap();
        assert_eq!(world.client.write(world.now, stream, &early), early.len());
        stream
    };
    let (taken, refused) = (open(&mut world, "sink"), open(&mut world, "refuse"));
    // Client and exit are three links apart. Each has a delay of 5 ms.
    world.run_for(Duration::from_millis(25));
    let received: usize = world.relays[2].servers.values().map(|server| server.received).sum();
    assert_eq!(received, early.len());
    assert!(!world.outputs.contains(&Output::Connected { stream: taken }));
    world.run_for(Duration::from_secs(1));
    assert!(world.outputs.contains(&Output::Connected { stream: taken }));
    let (stream, reason) = (refused, EndReason::REFUSED);
    assert!(world.outputs.contains(&Output::Stream(StreamOutput::Ended {
        stream,
        reason,
        refused: None
    })));
    assert!(world.relays.iter().all(|relay| relay.violations.is_empty()));
}

#[test]
fn circuits_to_a_relay_that_died_in_mid_download_fail_at_once_again_and_again() {
    let mut world = World::new(Setting::default());
    let circuit = world.build_through_all(1, HopRequest::CongestionControl);
    begin(&mut world, circuit, "source-50000000");
    world.run_for(Duration::from_millis(500));
    let wish = |n| if n == 2 { HopRequest::CongestionControl } else { HopRequest::Plain };
    let hops: Vec<Hop> = (0..3).map(|n| world.hop(n, wish(n))).collect();
    // The exit loses its links, and accepts no new ones.
    cut_off(&mut world, 3);
    world.relays[2].target.addresses = Vec::new();
    for key in 2..8 {
        let circuit = CircuitKey(key);
        world.client.handle(world.now, Input::Build { circuit, hops: hops.clone() });
        world.run_for(Duration::from_millis(300));
        let is_closed = |output: &Output| matches!(output, Output::CircuitClosed { circuit: other, .. } if *other == circuit);
        assert!(world.outputs.iter().any(is_closed), "circuit {key}");
    }
    // Cells that were in flight to the exit are no violation.
    assert!(world.relays[..2].iter().all(|relay| relay.violations.is_empty()));
}

#[test]
fn all_circuits_through_a_relay_that_died_are_closed_at_once() {
    let mut world = World::new(Setting::default());
    let circuits: Vec<_> =
        (1..=6).map(|key| world.build_through_all(key, HopRequest::CongestionControl)).collect();
    cut_off(&mut world, 3);
    world.run_for(Duration::from_secs(1));
    for circuit in circuits {
        let is_closed = |output: &Output| matches!(output, Output::CircuitClosed { circuit: other, .. } if *other == circuit);
        assert!(world.outputs.iter().any(is_closed), "{circuit:?}");
    }
}

/// Closes all links of `node`, as the operating system does when a process ends.
fn cut_off(world: &mut World, node: usize) {
    let links = world.pipes.iter().filter(|(_, pipe)| pipe.nodes.contains(&node));
    let links: Vec<_> = links.map(|(id, _)| *id).collect();
    links.into_iter().for_each(|id| world.cut(id));
}

#[test]
fn a_seed_replays_to_the_same_trace_and_another_does_not() {
    let run = |seed| {
        ten_megabytes_both_ways(
            Setting { seed, ..Setting::default() },
            HopRequest::CongestionControl,
        )
    };
    let first = run(7);
    assert_eq!(first, run(7));
    assert_ne!(first, run(8));
}

#[test]
fn congestion_control_fills_a_path_that_fixed_windows_do_not() {
    let bytes_in_ten_seconds = |wish| {
        // The round-trip time is 240 ms. A stream with fixed windows sends at most 500 cells in
        // this time, which is about 1 MB/s. The links can carry 12.5 MB/s.
        let delay = Duration::from_millis(40);
        let mut world = World::new(Setting { delay, ..Setting::default() });
        let circuit = world.build_through_all(1, wish);
        let down = begin(&mut world, circuit, &format!("source-{}", 200 * MEGABYTE));
        world.run_for(Duration::from_secs(10));
        world.received[&down].len()
    };
    let (fixed, vegas) = (
        bytes_in_ten_seconds(HopRequest::Plain),
        bytes_in_ten_seconds(HopRequest::CongestionControl),
    );
    assert!(vegas > 2 * fixed, "{vegas} and {fixed} bytes");
}

#[test]
fn many_streams_of_many_circuits_share_links() {
    let mut world = World::new(Setting::default());
    let mut streams = Vec::new();
    for key in 1..=5 {
        let wish =
            [HopRequest::Plain, HopRequest::CongestionControl, HopRequest::Cgo][key as usize % 3];
        let circuit = world.build_through_all(key, wish);
        streams.extend((0..10).map(|_| begin(&mut world, circuit, "source-50000")));
    }
    world.run_for(Duration::from_secs(60));
    assert_eq!(world.pipes.len(), 3, "all circuits share a link between any two");
    for stream in streams {
        assert_eq!(world.received[&stream].len(), 50_000);
        assert!(is_pattern(&world.received[&stream]));
    }
}

#[test]
fn a_directory_is_read_over_one_hop_without_an_onion_key() {
    let mut world = World::new(Setting::default());
    let hop = Hop { key: HopKey::Fast, ..world.hop(0, HopRequest::Plain) };
    assert!(world.build(1, vec![hop]));
    let stream = world.client.begin_directory(world.now, CircuitKey(1)).unwrap();
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.received[&stream].len(), 5000);
}

#[test]
fn ntor_works_where_ntor_v3_is_not_offered() {
    let mut world = World::new(Setting::default());
    let ntor = |world: &World, n: usize| {
        let key = HopKey::Ntor(world.relays[n].onion_key);
        Hop { key, ..world.hop(n, HopRequest::Plain) }
    };
    let hops = (0..3).map(|n| ntor(&world, n)).collect();
    assert!(world.build(1, hops));
    let stream = begin(&mut world, CircuitKey(1), "source-1000");
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.received[&stream].len(), 1000);
}

#[test]
fn names_are_resolved_at_the_exit() {
    let mut world = World::new(Setting::default());
    let circuit = world.build_through_all(1, HopRequest::CongestionControl);
    let (known, unknown) = (
        world.client.resolve(world.now, circuit, "known").unwrap(),
        world.client.resolve(world.now, circuit, "unknown").unwrap(),
    );
    world.run_for(Duration::from_secs(5));
    let address = Answer::Address("192.0.2.7".parse().unwrap());
    for (stream, answer) in [(known, address), (unknown, Answer::Never)] {
        let resolved = Output::Resolved { stream, answers: vec![(answer, 60)] };
        assert!(world.outputs.contains(&resolved));
    }
}

#[test]
fn a_refused_destination_ends_its_stream_only() {
    let mut world = World::new(Setting::default());
    let circuit = world.build_through_all(1, HopRequest::CongestionControl);
    let (refused, fine) =
        (begin(&mut world, circuit, "refuse"), begin(&mut world, circuit, "source-1000"));
    world.run_for(Duration::from_secs(5));
    assert!(world.outputs.contains(&Output::Stream(StreamOutput::Ended {
        stream: refused,
        reason: EndReason::REFUSED,
        refused: None
    })));
    assert_eq!(world.received[&fine].len(), 1000);
}

/// Opens a stream to each of `hosts`, which the exit's policy must refuse. Returns the refused
/// addresses that the client reports, or `None` for a stream without one.
fn refusals(setting: Setting, hosts: &[&str]) -> Vec<Option<IpAddr>> {
    let mut world = World::new(setting);
    let circuit = world.build_through_all(1, HopRequest::CongestionControl);
    let streams: Vec<StreamKey> =
        hosts.iter().map(|host| begin(&mut world, circuit, host)).collect();
    world.run_for(Duration::from_secs(5));
    let ended = |wanted: &StreamKey| {
        world.outputs.iter().find_map(|output| match output {
            Output::Stream(StreamOutput::Ended { stream, reason, refused })
                if stream == wanted && *reason == EndReason::EXIT_POLICY =>
            {
                Some(*refused)
            }
            _ => None,
        })
    };
    let refused = streams.iter().map(|stream| ended(stream).unwrap()).collect();
    assert_eq!(world.relays[2].core.stats().streams, 0, "the exit has forgotten them");
    assert!(world.relays.iter().all(|relay| relay.violations.is_empty()));
    refused
}

#[test]
fn an_exit_tells_the_address_that_its_policy_refuses() {
    let refused = refusals(Setting::default(), &["deny-192.0.2.9", "deny-2001:db8::9"]);
    let expected = ["192.0.2.9", "2001:db8::9"].map(|text| Some(text.parse().unwrap()));
    assert_eq!(refused, expected);
}

#[test]
fn a_relay_that_is_no_exit_tells_an_address_and_looks_up_no_name() {
    let setting = Setting { exit: false, ..Setting::default() };
    // The first address is like the one with which an unmodified client tests an unused circuit.
    let refused = refusals(setting, &["0.1.2.3", "::1", "a.name"]);
    let expected = ["0.1.2.3", "::1"].map(|text| Some(text.parse().unwrap()));
    assert_eq!(refused, [&expected[..], &[None]].concat());
}

#[test]
fn a_destination_that_never_answers_holds_up_nobody() {
    let mut world = World::new(Setting::default());
    let circuit = world.build_through_all(1, HopRequest::CongestionControl);
    let (silent, fine) =
        (begin(&mut world, circuit, "silent"), begin(&mut world, circuit, "source-1000"));
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.received[&fine].len(), 1000);
    world.client.handle(world.now, Input::Ended { stream: silent });
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.relays[2].core.stats().streams, 0, "the exit has forgotten both");
}

#[test]
fn a_program_that_does_not_read_holds_no_more_than_window_and_xoff() {
    for wish in [HopRequest::CongestionControl, HopRequest::Cgo, HopRequest::Plain] {
        let mut world = World::new(Setting::default());
        let circuit = world.build_through_all(1, wish);
        let stalled = begin(&mut world, circuit, &format!("source-{}", 20 * MEGABYTE));
        world.unread.push(stalled);
        world.run_for(Duration::from_secs(30));
        let (first, second) = world.client.read(stalled);
        let held = first.len() + second.len();
        let window = world.relays[2].core.stats().window as usize;
        let limit = if wish == HopRequest::Plain { 500 * 498 } else { (500 + window) * 498 };
        assert!(held > 100_000 && held <= limit, "{held} bytes, window {window}");
        let other = begin(&mut world, circuit, "source-100000");
        world.run_for(Duration::from_secs(10));
        assert_eq!(world.received[&other].len(), 100_000, "another stream is not held up");
        world.unread.clear();
        world.read(stalled);
        world.run_for(Duration::from_secs(60));
        assert_eq!(world.received[&stalled].len(), 20 * MEGABYTE);
    }
}

#[test]
fn a_destination_that_does_not_read_stops_the_client() {
    let mut world = World::new(Setting::default());
    let circuit = world.build_through_all(1, HopRequest::CongestionControl);
    world.relays[2].stalled = true;
    let up = begin(&mut world, circuit, "sink");
    let mut written = 0;
    for _ in 0..1000 {
        written += world.client.write(world.now, up, &[0; 50_000]);
        world.run_for(Duration::from_millis(20));
    }
    assert!(written < 3 * MEGABYTE, "{written} bytes");
    assert!(world.relays[2].violations.is_empty());
}

#[test]
fn the_loss_of_a_relay_ends_circuits_and_streams_and_new_ones_work() {
    let mut world = World::new(Setting::default());
    let circuit = world.build_through_all(1, HopRequest::CongestionControl);
    let stream = begin(&mut world, circuit, &format!("source-{}", 20 * MEGABYTE));
    world.run_for(Duration::from_millis(500));
    let last = *world.pipes.keys().max().unwrap();
    world.cut(last);
    world.run_for(Duration::from_secs(1));
    assert!(world.outputs.contains(&Output::Stream(StreamOutput::Ended {
        stream,
        reason: EndReason::DESTROY,
        refused: None
    })));
    let closed = world
        .outputs
        .iter()
        .any(|output| matches!(output, Output::CircuitClosed { cause: Cause::Destroyed(_), .. }));
    assert!(closed);
    world.build_through_all(2, HopRequest::CongestionControl);
}

#[test]
fn a_circuit_that_is_torn_down_leaves_nothing_behind() {
    let mut world = World::new(Setting::default());
    let circuit = world.build_through_all(1, HopRequest::CongestionControl);
    begin(&mut world, circuit, &format!("source-{}", 20 * MEGABYTE));
    world.run_for(Duration::from_millis(300));
    world.client.handle(world.now, Input::Destroy { circuit });
    world.run_for(Duration::from_secs(5));
    for relay in &world.relays {
        let stats = relay.core.stats();
        assert_eq!((stats.circuits, stats.streams, stats.cells), (0, 0, 0));
    }
}

#[test]
fn drop_cells_reach_the_last_hop_and_end_there() {
    let mut world = World::new(Setting::default());
    let circuit = world.build_through_all(1, HopRequest::CongestionControl);
    let before = world.relays[1].core.stats();
    world.client.handle(world.now, Input::Drop { circuit, cells: 1000 });
    world.run_for(Duration::from_secs(10));
    let after = world.relays[1].core.stats();
    assert_eq!(after.relayed - before.relayed, 1000);
    // These cells belong to no stream, and no window counts them. So streams continue.
    begin(&mut world, circuit, "source-1000000");
    world.run_for(Duration::from_secs(10));
    assert_eq!(world.client.transferred(circuit)[0], 1_000_000);
}

#[test]
fn a_relay_that_is_not_who_it_should_be_is_not_built_upon() {
    for wrong in [0, 1] {
        let mut world = World::new(Setting::default());
        let mut hops: Vec<Hop> = (0..3).map(|n| world.hop(n, HopRequest::Plain)).collect();
        hops[wrong].target.ed25519 = Some([9; 32]);
        let target = hops[wrong].target.clone();
        assert!(!world.build(1, hops));
        if wrong == 0 {
            let named = world.outputs.iter().find_map(|output| match output {
                Output::Event(Event::Violation { neighbour, .. }) => Some(*neighbour),
                _ => None,
            });
            let (rsa, address) = (Some(target.rsa), target.addresses.first().copied());
            assert_eq!(named, Some(Neighbour { rsa, address }));
        }
        let reporter = if wrong == 0 {
            world.outputs.iter().any(|output| {
                let cause = Cause::Violation(LinkFault::WrongIdentity.into());
                matches!(output, Output::CircuitClosed { cause: c, .. } if *c == cause)
            })
        } else {
            world.relays[0].violations == [LinkFault::WrongIdentity.into()]
        };
        assert!(reporter, "{:?}", world.outputs);
        assert!(world.outputs.iter().any(|o| matches!(o, Output::CircuitClosed { .. })));
    }
}

#[test]
fn a_relay_refuses_to_extend_to_itself_and_back() {
    for path in [vec![0, 0], vec![0, 1, 0]] {
        let mut world = World::new(Setting::default());
        let hops = path.iter().map(|&n| world.hop(n, HopRequest::Plain)).collect();
        assert!(!world.build(1, hops));
        let last = path[path.len() - 2];
        assert_eq!(world.relays[last].violations, [CircuitFault::Extend.into()], "path {path:?}");
    }
}

#[test]
fn a_relay_that_extends_to_no_private_address_blames_no_client_that_asks_for_one() {
    let mut world = World::new(Setting { allow_private: false, ..Setting::default() });
    let mut hops: Vec<Hop> = (0..3).map(|n| world.hop(n, HopRequest::Plain)).collect();
    hops[1].target.addresses = vec!["10.77.0.1:9001".parse().unwrap()];
    assert!(!world.build(1, hops));
    assert_eq!(world.relays[0].violations, []);
    let closed = world.outputs.iter().any(|o| matches!(o, Output::CircuitClosed { hops: 1, .. }));
    assert!(closed, "{:?}", world.outputs);
}

#[test]
fn a_relay_that_cannot_be_reached_fails_the_circuit_at_once() {
    let mut world = World::new(Setting::default());
    let mut hops: Vec<Hop> = (0..3).map(|n| world.hop(n, HopRequest::Plain)).collect();
    hops[2].target.addresses = vec!["10.77.0.1:9001".parse().unwrap()];
    assert!(!world.build(1, hops));
    let closed = world.outputs.iter().any(|o| matches!(o, Output::CircuitClosed { hops: 2, .. }));
    assert!(closed, "{:?}", world.outputs);
}

/// Cells of two circuits wait at the exit, which may store 300 cells. Neither circuit exceeds this
/// limit alone.
#[test]
fn when_memory_is_short_the_circuit_whose_cells_waited_longest_goes() {
    for cells in [[120, 290], [290, 120]] {
        let setting = Setting { max_cells: 300, rate: 1_000_000, ..Setting::default() };
        let mut world = World::new(setting);
        // The windows are fixed, so the exit queues all cells of a stream at once.
        let circuits = [1, 2].map(|key| world.build_through_all(key, HopRequest::Plain));
        let lengths = cells.map(|cells| cells * 498);
        let streams = [0, 1].map(|one| {
            let stream = begin(&mut world, circuits[one], &format!("source-{}", lengths[one]));
            // The cells take 0.5 s or more, because all links have the same low rate.
            world.run_for(Duration::from_millis(150));
            stream
        });
        let exit = world.relays[2].core.stats();
        assert_eq!((exit.out_of_memory, exit.circuits), (1, 1), "{cells:?}: {exit:?}");
        assert!(exit.cells <= 300, "{cells:?}: {exit:?}");
        world.run_for(Duration::from_secs(20));
        let closed = world.outputs.iter().filter_map(|output| match output {
            Output::CircuitClosed { circuit, cause, .. } => Some((*circuit, *cause)),
            _ => None,
        });
        let wanted = [(circuits[0], Cause::Destroyed(DestroyReason::RESOURCES))];
        assert_eq!(closed.collect::<Vec<_>>(), wanted, "{cells:?}");
        assert_eq!(world.received[&streams[1]].len(), lengths[1], "{cells:?}");
        assert!(world.received.get(&streams[0]).is_none_or(|data| data.len() < lengths[0]));
    }
}
