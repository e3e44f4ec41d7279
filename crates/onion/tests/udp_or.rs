//! UDP-OR: streams that are TCP connections between client and exit. They use lossy circuits of
//! three relays, whose QUIC links lose, delay and reorder cells (`docs/spec/lossy-circuits.md`).

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use anabranch_testkit::onion_world as world;

use std::time::Duration;

use anabranch_multipath::{Core as _, Time};
use anabranch_onion::client::{Cause, CircuitKey, Input, Output};
use anabranch_onion::handshake::extension::HopRequest;
use anabranch_onion::wire::message::{Begin, DestroyReason, EndReason};
use anabranch_onion::{
    CircuitFault, LinkCore, LinkId, LossyCongestion, StreamKey, StreamOutput, Violation,
};
use world::{Server, Setting, World};

const MS: Duration = Duration::from_millis(1);

fn setting() -> Setting {
    Setting { quic: true, lossy: true, ..Setting::default() }
}

/// Builds a lossy circuit (a circuit whose cells may get lost) over all relays. Returns whether it
/// was built.
fn build(world: &mut World, key: u64) -> bool {
    let hops = (0..world.setting.relays).map(|relay| world.hop(relay, HopRequest::Lossy)).collect();
    world.build(key, hops)
}

fn lossy(setting: Setting) -> (World, CircuitKey) {
    let mut world = World::new(setting);
    assert!(build(&mut world, 1), "{:?}", world.outputs);
    (world, CircuitKey(1))
}

fn begin(world: &mut World, circuit: CircuitKey, host: &str) -> StreamKey {
    let begin = Begin { host: host.into(), port: 80, flags: 0 };
    world.client.begin(world.now, circuit, &begin).unwrap()
}

fn ended(world: &World, stream: StreamKey) -> Option<EndReason> {
    world.outputs.iter().find_map(|output| match output {
        Output::Stream(StreamOutput::Ended { stream: ended, reason, .. }) if *ended == stream => {
            Some(*reason)
        }
        _ => None,
    })
}

fn is_connected(world: &World, stream: StreamKey) -> bool {
    world.outputs.contains(&Output::Connected { stream })
}

/// Returns the number of hops that the circuit had when it was closed, and the cause. Returns
/// `None` if it is open.
fn closed(world: &World, key: u64) -> Option<(usize, Cause)> {
    world.outputs.iter().find_map(|output| match output {
        Output::CircuitClosed { circuit, hops, cause } if circuit.0 == key => Some((*hops, *cause)),
        _ => None,
    })
}

/// Runs until the stream has ended, but at most for `limit`. Returns the elapsed time.
fn run_to_end(world: &mut World, stream: StreamKey, limit: Duration) -> Duration {
    let begun = world.now;
    while ended(world, stream).is_none() && world.now.since(begun) < limit {
        world.run_for(MS);
    }
    world.now.since(begun)
}

fn download(world: &mut World, circuit: CircuitKey, bytes: usize) -> Duration {
    let stream = begin(world, circuit, &format!("source-{bytes}"));
    let elapsed = run_to_end(world, stream, Duration::from_secs(300));
    let received = world.received.remove(&stream).unwrap_or_default();
    assert_eq!((ended(world, stream), received.len()), (Some(EndReason::DONE), bytes));
    assert!(received.iter().enumerate().all(|(at, byte)| *byte == Server::byte(at)));
    elapsed
}

fn nobody_is_at_fault(world: &World) {
    let faults: Vec<_> = world.relays.iter().flat_map(|relay| &relay.violations).collect();
    assert!(faults.is_empty(), "{faults:?}");
}

/// Returns the QUIC link between the nodes `ends`, which carries lossy cells.
fn quic_between(world: &World, ends: [usize; 2]) -> LinkId {
    let joins = |link: &&LinkId| world.pipes.get(link).is_some_and(|pipe| pipe.nodes == ends);
    *world.quic.iter().find(joins).expect("a QUIC link")
}

#[test]
fn files_of_all_sizes_arrive_whole_over_links_that_lose_and_reorder() {
    let lines = [(0, Duration::ZERO), (10, 4 * MS), (50, 10 * MS)];
    // With CUBIC, TCP reaches about 100 kB/s over three links that lose 1 % each, and about 20
    // kB/s if they lose 5 % each.
    let control = [
        (LossyCongestion::BBR, [5 << 20; 3]),
        (LossyCongestion::CUBIC, [5 << 20, 1 << 20, 320 << 10]),
    ];
    for (lossy_congestion, largest) in control {
        for ((dropped, jitter), largest) in lines.into_iter().zip(largest) {
            let setting = Setting {
                dropped_per_mille: dropped,
                jitter,
                pieces: false,
                lossy_congestion,
                ..setting()
            };
            let (mut world, circuit) = lossy(setting);
            for bytes in [1, 447, 20_000, 320 << 10, largest] {
                let elapsed = download(&mut world, circuit, bytes);
                println!(
                    "{lossy_congestion:?}, {bytes} bytes, {dropped} of 1000 lost: {elapsed:?}"
                );
                // Losses, and jitter above the delay, do not slow BBR down much.
                let is_bbr = lossy_congestion == LossyCongestion::BBR;
                assert!(!is_bbr || elapsed < Duration::from_secs(10), "{bytes} bytes: {elapsed:?}");
            }
            nobody_is_at_fault(&world);
            let stats = world.relays[1].core.stats();
            assert!(stats.lossy.sent > 1_000, "the middle passes lossy cells: {stats:?}");
            assert_eq!((stats.lossy.garbage, stats.lossy.refused), (0, 0));
            assert_eq!(stats.relayed, 1, "and no cell of a stream in order: only an EXTEND2");
        }
    }
}

#[test]
fn random_losses_cost_bbr_little() {
    // The circuit has three links of 100 Mbit/s, and a round trip takes 30 ms.
    for (dropped, least) in [(0, 30.0), (10, 20.0), (50, 8.0)] {
        let setting = Setting { dropped_per_mille: dropped, pieces: false, ..setting() };
        let (mut world, circuit) = lossy(setting);
        let elapsed = download(&mut world, circuit, 5 << 20);
        let megabits = f64::from(5u32 << 20) * 8.0 / 1e6 / elapsed.as_secs_f64();
        println!("{dropped} of 1000 lost on each link: {megabits:.1} Mbit/s");
        assert!(megabits > least, "{dropped}: {megabits} Mbit/s");
    }
}

#[test]
fn the_first_byte_arrives_after_one_round_trip() {
    let (mut world, circuit) = lossy(setting());
    // The circuit has three links with a one-way delay of 5 ms each.
    let elapsed = download(&mut world, circuit, 400);
    assert!((30 * MS..34 * MS).contains(&elapsed), "{elapsed:?}");
}

#[test]
fn an_upload_arrives_whole_and_its_first_bytes_go_with_begin() {
    let (mut world, circuit) =
        lossy(Setting { dropped_per_mille: 20, jitter: 5 * MS, ..setting() });
    let stream = begin(&mut world, circuit, "sink");
    let data: Vec<u8> = (0..1 << 20).map(Server::byte).collect();
    let mut written = world.client.write(world.now, stream, &data);
    assert!(written > 400, "a program need not wait for the answer");
    let limit = world.now + Duration::from_secs(60);
    while written < data.len() && world.now < limit {
        world.run_for(10 * MS);
        written += world.client.write(world.now, stream, &data[written..]);
    }
    world.client.handle(world.now, Input::Ended { stream });
    world.run_for(Duration::from_secs(20));
    let server = world.relays[2].servers.values().next().unwrap();
    assert_eq!((server.received, server.ended), (data.len(), Some(EndReason::DONE)));
    nobody_is_at_fault(&world);
}

#[test]
fn the_first_bytes_of_a_program_leave_with_the_request_for_the_stream() {
    let (mut world, circuit) = lossy(setting());
    let begin = Begin { host: "sink".into(), port: 80, flags: 0 };
    let bytes: Vec<u8> = (0..4_096).map(Server::byte).collect();
    let stream = world.client.begin_with(world.now, circuit, &begin, &bytes[..400]).unwrap();
    // The circuit has three links of 5 ms. The exit has the bytes before the client can know of
    // the connection.
    world.run_for(16 * MS);
    let server = world.relays[2].servers.values().next().unwrap();
    assert_eq!((server.received, is_connected(&world, stream)), (400, false));
    // Bytes that do not fit into one cell follow after a round trip.
    let stream = world.client.begin_with(world.now, circuit, &begin, &bytes).unwrap();
    world.run_for(32 * MS);
    assert!(is_connected(&world, stream));
    world.run_for(16 * MS);
    let received: Vec<usize> =
        world.relays[2].servers.values().map(|server| server.received).collect();
    assert_eq!(received, [400, 4_096]);
    nobody_is_at_fault(&world);
}

#[test]
fn streams_of_one_circuit_do_not_wait_for_each_other() {
    let (mut world, circuit) =
        lossy(Setting { dropped_per_mille: 10, jitter: 3 * MS, ..setting() });
    let streams: Vec<StreamKey> =
        (0..40).map(|n| begin(&mut world, circuit, &format!("source-{}", 1_000 * n + 1))).collect();
    let stalled = begin(&mut world, circuit, "source-3000000");
    world.unread.push(stalled);
    world.run_for(Duration::from_secs(30));
    for (n, stream) in streams.iter().enumerate() {
        assert_eq!(ended(&world, *stream), Some(EndReason::DONE), "stream {n}");
        assert_eq!(world.received[stream].len(), 1_000 * n + 1);
    }
    // If a program does not read, data fill its window. The rest waits at the exit.
    assert_eq!(ended(&world, stalled), None);
    let (front, back) = world.client.read(stalled);
    assert!((500_000..600_000).contains(&(front.len() + back.len())));
    world.unread.clear();
    world.read(stalled);
    run_to_end(&mut world, stalled, Duration::from_secs(60));
    assert_eq!(world.received[&stalled].len(), 3_000_000);
}

#[test]
fn refusals_and_ends_have_their_reasons() {
    let (mut world, circuit) = lossy(setting());
    let refused = begin(&mut world, circuit, "refuse");
    let denied = begin(&mut world, circuit, "deny-192.0.2.5");
    let silent = begin(&mut world, circuit, "silent");
    let fed = begin(&mut world, circuit, "fed");
    world.run_for(Duration::from_secs(10));
    assert_eq!(ended(&world, refused), Some(EndReason::REFUSED));
    let of_denied = |output: &Output| match output {
        Output::Stream(StreamOutput::Ended { stream, refused, .. }) if *stream == denied => {
            *refused
        }
        _ => None,
    };
    let address = world.outputs.iter().find_map(of_denied);
    assert_eq!(address, Some("192.0.2.5".parse().unwrap()));
    assert_eq!(ended(&world, denied), Some(EndReason::EXIT_POLICY));
    assert!(!is_connected(&world, silent) && is_connected(&world, fed));
    // The destination resets the connection: the reason arrives, reliably.
    let key = *world.relays[2].servers.keys().next_back().unwrap();
    let reset = anabranch_onion::relay::Input::Ended { stream: key, reason: EndReason::RESET };
    let now = world.now;
    world.relays[2].core.handle(now, reset);
    world.run_for(Duration::from_secs(5));
    assert_eq!(ended(&world, fed), Some(EndReason::RESET));
    // The client closes a stream that no destination has answered.
    world.client.handle(world.now, Input::Ended { stream: silent });
    world.run_for(Duration::from_secs(30));
    let exit = &world.relays[2].core;
    assert_eq!(exit.stats().streams, 0, "the exit has forgotten them all");
    nobody_is_at_fault(&world);
}

#[test]
fn an_exit_without_streams_refuses_them() {
    let (mut world, circuit) = lossy(Setting { exit: false, ..setting() });
    let stream = begin(&mut world, circuit, "192.0.2.9");
    world.run_for(Duration::from_secs(5));
    assert_eq!(ended(&world, stream), Some(EndReason::EXIT_POLICY));
}

#[test]
fn names_are_looked_up_over_the_ordered_part() {
    let (mut world, circuit) = lossy(setting());
    let lookup = world.client.resolve(world.now, circuit, "known").unwrap();
    world.run_for(Duration::from_secs(5));
    let is_answer =
        |output: &Output| matches!(output, Output::Resolved { stream, .. } if *stream == lookup);
    assert!(world.outputs.iter().any(is_answer));
}

#[test]
fn a_closed_circuit_ends_its_streams() {
    let (mut world, circuit) = lossy(setting());
    let stream = begin(&mut world, circuit, "fed");
    world.run_for(Duration::from_secs(1));
    world.client.handle(world.now, Input::Destroy { circuit });
    world.run_for(Duration::from_secs(1));
    assert_eq!(ended(&world, stream), Some(EndReason::DESTROY));
    let server = world.relays[2].servers.values().next().unwrap();
    assert_eq!(server.ended, Some(EndReason::DESTROY));
    assert_eq!(world.relays[2].core.stats().streams, 0);
}

#[test]
fn a_relay_that_does_not_grant_lossy_cells_is_known_by_its_place() {
    for relay in 0..3 {
        let mut world = World::new(Setting { ungranting: vec![relay + 1], ..setting() });
        assert!(!build(&mut world, 1));
        assert_eq!(closed(&world, 1), Some((relay, Cause::NoLossyCells)));
        world.build_through_all(2, HopRequest::CongestionControl);
        nobody_is_at_fault(&world);
    }
}

#[test]
fn a_relay_without_quic_links_is_known_by_its_place() {
    for relay in 0..3 {
        let mut world = World::new(Setting { stock: vec![relay + 1], ..setting() });
        assert!(!build(&mut world, 1));
        world.run_for(Duration::from_secs(10));
        let cause = match relay {
            0 => Cause::NoLossyLink,
            _ => Cause::Destroyed(DestroyReason::CONNECT_FAILED),
        };
        assert_eq!(closed(&world, 1), Some((relay, cause)));
        world.build_through_all(2, HopRequest::CongestionControl);
        nobody_is_at_fault(&world);
    }
}

#[test]
fn a_circuit_is_lossy_only_if_all_its_hops_are_asked() {
    let mut world = World::new(setting());
    let last = world.hop(2, HopRequest::Plain);
    let hops = vec![world.hop(0, HopRequest::Lossy), world.hop(1, HopRequest::Lossy), last];
    assert!(world.build(1, hops));
    assert!(!world.client.is_lossy(CircuitKey(1)));
}

#[test]
fn where_udp_is_blocked_the_circuit_is_given_up_and_others_are_not() {
    let mut world = World::new(Setting { blocked: true, ..setting() });
    assert!(!build(&mut world, 1));
    assert_eq!(closed(&world, 1), Some((0, Cause::NoLossyLink)));
    world.build_through_all(2, HopRequest::CongestionControl);
    nobody_is_at_fault(&world);
}

#[test]
fn a_changed_cell_closes_the_circuit_and_is_counted() {
    for ends in [[0, 1], [1, 2], [2, 3]] {
        let (mut world, circuit) = lossy(setting());
        let stream = begin(&mut world, circuit, "source-200000");
        world.run_for(40 * MS);
        let link = quic_between(&world, ends);
        world.pipes.get_mut(&link).unwrap().corrupts_next = true;
        world.run_for(Duration::from_secs(5));
        assert!(ended(&world, stream).is_some(), "{ends:?}");
        let (_, cause) = closed(&world, 1).unwrap();
        let at_relays: u64 =
            world.relays.iter().map(|relay| relay.core.stats().lossy.garbage).sum();
        assert_eq!(at_relays + world.client.lossy().garbage, 1, "{ends:?}: {cause}");
        let garbage = Violation::Circuit(CircuitFault::Garbage);
        let violations = world.relays.iter().flat_map(|relay| &relay.violations);
        let count = violations.filter(|violation| **violation == garbage).count() as u64;
        assert_eq!(count, at_relays, "whoever finds it reports it");
        // The link serves other circuits.
        assert!(build(&mut world, 2));
        download(&mut world, CircuitKey(2), 10_000);
    }
}

#[test]
fn a_doubled_cell_is_dropped_at_the_first_relay() {
    let (mut world, circuit) = lossy(setting());
    let link = quic_between(&world, [0, 1]);
    world.pipes.get_mut(&link).unwrap().duplicates = true;
    download(&mut world, circuit, 100_000);
    let refused: Vec<u64> =
        world.relays.iter().map(|relay| relay.core.stats().lossy.refused).collect();
    assert!(refused[0] > 20 && refused[1..] == [0, 0], "{refused:?}");
    assert!(world.client.lossy().refused > 20);
    nobody_is_at_fault(&world);
}

#[test]
fn cells_of_a_closed_circuit_are_dropped_and_counted() {
    let (mut world, circuit) = lossy(setting());
    begin(&mut world, circuit, "source-3000000");
    world.run_for(150 * MS);
    // Waits until the client is in the middle of a burst.
    let mut before = world.client.lossy().received;
    world.run_for(MS);
    while world.client.lossy().received < before + 5 {
        before = world.client.lossy().received;
        world.run_for(MS);
    }
    world.client.handle(world.now, Input::Destroy { circuit });
    world.run_for(Duration::from_secs(2));
    assert!(world.client.lossy().unknown > 0, "they were in flight");
    nobody_is_at_fault(&world);
    assert!(build(&mut world, 2));
    download(&mut world, CircuitKey(2), 10_000);
}

#[test]
fn a_lossy_circuit_ends_with_its_quic_link_and_others_move() {
    let (mut world, circuit) = lossy(setting());
    let stream = begin(&mut world, circuit, "fed");
    let other = world.build_through_all(2, HopRequest::CongestionControl);
    world.run_for(Duration::from_secs(1));
    let link = quic_between(&world, [1, 2]);
    world.lose(link, 0);
    world.lose(link, 1);
    world.run_for(Duration::from_secs(5));
    assert_eq!(ended(&world, stream), Some(EndReason::DESTROY));
    assert_eq!(closed(&world, 1).map(|(hops, _)| hops), Some(3));
    assert_eq!(closed(&world, 2), None);
    let stream = begin(&mut world, other, "source-5000");
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.received[&stream].len(), 5_000);
    nobody_is_at_fault(&world);
}

#[test]
fn relays_of_several_shards_pass_lossy_cells() {
    let (mut world, circuit) =
        lossy(Setting { shards: 3, dropped_per_mille: 10, jitter: MS, ..setting() });
    download(&mut world, circuit, 300_000);
    assert!(build(&mut world, 2));
    download(&mut world, CircuitKey(2), 10_000);
    nobody_is_at_fault(&world);
}

#[test]
fn beyond_the_limit_of_memory_the_circuit_whose_streams_keep_the_most_is_closed() {
    // The limit of 1,000 cells is 514 kB. A stream may store 524 kB in each direction.
    let setting = Setting { max_cells: 1_000, rate: 5_000_000, pieces: false, ..setting() };
    let (mut world, full) = lossy(setting);
    assert!(build(&mut world, 2));
    let small = CircuitKey(2);
    let quiet = begin(&mut world, small, "fed");
    let streams = [(); 3].map(|()| begin(&mut world, full, "source-3000000"));
    world.run_for(Duration::from_secs(3));
    let exit = world.relays[2].core.stats();
    assert_eq!((exit.out_of_memory, exit.circuits, exit.streams), (1, 1, 1), "{exit:?}");
    let cause = Cause::Destroyed(DestroyReason::RESOURCES);
    assert_eq!(closed(&world, 1), Some((3, cause)));
    for stream in streams {
        assert_eq!(ended(&world, stream), Some(EndReason::DESTROY));
    }
    assert!(is_connected(&world, quiet) && ended(&world, quiet).is_none());
    // The bytes that the closed streams stored are no longer counted.
    download(&mut world, small, 400_000);
    nobody_is_at_fault(&world);
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let run = |seed| {
        let setting = Setting { seed, dropped_per_mille: 30, jitter: 5 * MS, ..setting() };
        let (mut world, circuit) = lossy(setting);
        let elapsed = download(&mut world, circuit, 200_000);
        (elapsed, world.trace, Time::since(world.now, Time::ZERO))
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

/// Creates a set of `legs` lossy circuits to one exit. Each circuit has two other relays of its
/// own.
fn lossy_set(legs: usize, setting: Setting) -> (World, Vec<CircuitKey>) {
    let relays = 2 * legs + 1;
    let mut world = World::new(Setting { relays, ..setting });
    let keys: Vec<CircuitKey> = (0..legs as u64).map(CircuitKey).collect();
    for (leg, key) in keys.iter().enumerate() {
        let path = [2 * leg, 2 * leg + 1, relays - 1];
        let hops = path.map(|relay| world.hop(relay, HopRequest::Lossy)).to_vec();
        assert!(world.build(key.0, hops), "{:?}", world.outputs);
        let with = (leg > 0).then_some(keys[0]);
        world.client.link(world.now, *key, with).unwrap();
        world.run_for(Duration::from_secs(1));
        let linked =
            |output: &&Output| matches!(output, Output::Linked { circuit, .. } if circuit == key);
        assert_eq!(world.outputs.iter().filter(linked).count(), 1, "leg {leg}");
    }
    (world, keys)
}

/// Returns the number of lossy cells that the middle of each leg (circuit of the set) has passed
/// on.
fn passed(world: &World, legs: usize) -> Vec<u64> {
    (0..legs).map(|leg| world.relays[2 * leg + 1].core.stats().lossy.sent).collect()
}

#[test]
fn cells_take_turns_over_the_legs_and_files_arrive_whole() {
    for (legs, dealing) in [(2, "round-robin 1p"), (3, "round-robin 5p"), (2, "uniform 1p")] {
        let dealing = anabranch_onion::conflux::LegScheduler::read(dealing, 8);
        let lines = [(0, (50_000_000, 8 * MS)), (2, (100_000_000, 3 * MS))].into();
        let setting = Setting { dealing, lines, dropped_per_mille: 5, pieces: false, ..setting() };
        let (mut world, keys) = lossy_set(legs, setting);
        for bytes in [1, 20_000, 1 << 20] {
            let elapsed = download(&mut world, keys[0], bytes);
            println!("{bytes} bytes over {legs} legs: {elapsed:?}");
        }
        let passed = passed(&world, legs);
        let (least, most) = (*passed.iter().min().unwrap(), *passed.iter().max().unwrap());
        assert!(least > 500 && most * 9 < least * 10, "each leg has its share: {passed:?}");
        nobody_is_at_fault(&world);
    }
}

#[test]
fn legs_that_come_to_different_shards_of_the_exit_are_one_set() {
    for (shards, legs, dealing) in
        [(2, 2, "round-robin 1p"), (4, 3, "eta 1p"), (3, 4, "uniform 1p")]
    {
        let dealing = dealt(dealing);
        let setting = Setting {
            shards,
            dealing,
            dropped_per_mille: 5,
            jitter: MS,
            pieces: false,
            ..setting()
        };
        let (mut world, keys) = lossy_set(legs, setting);
        for bytes in [1, 20_000, 3 << 20] {
            download(&mut world, keys[0], bytes);
        }
        let exits = |world: &World| -> Vec<anabranch_onion::relay::Stats> {
            let nodes = world.relays.iter().skip(2 * legs * shards);
            nodes.map(|node| node.core.stats()).collect()
        };
        let at = exits(&world);
        let mut circuits: Vec<usize> = at.iter().map(|stats| stats.circuits).collect();
        circuits.sort_unstable();
        assert_eq!(circuits.pop(), Some(legs), "all legs are in one shard: {at:?}");
        assert_eq!(circuits.iter().sum::<usize>(), 0);
        let with_links = at.iter().filter(|stats| stats.lossy.received > 500).count();
        assert!(with_links > 1, "their links are in several: {at:?}");
        assert!(world.crossed() > 500_000, "{}", world.crossed());
        nobody_is_at_fault(&world);
        // One leg is closed during a download, and after the download the client closes the
        // others.
        let stream = begin(&mut world, keys[0], "source-2000000");
        world.run_for(100 * MS);
        world.client.handle(world.now, Input::Destroy { circuit: keys[legs - 1] });
        run_to_end(&mut world, stream, Duration::from_secs(60));
        assert_eq!(world.received.remove(&stream).map(|bytes| bytes.len()), Some(2_000_000));
        for key in &keys[..legs - 1] {
            world.client.handle(world.now, Input::Destroy { circuit: *key });
        }
        world.run_for(Duration::from_secs(2));
        for stats in exits(&world) {
            assert_eq!(
                (stats.circuits, stats.streams, stats.cells, stats.link_circuits),
                (0, 0, 0, 0)
            );
        }
        nobody_is_at_fault(&world);
    }
}

#[test]
fn a_leg_in_another_shard_ends_with_its_quic_link() {
    let setting = Setting { shards: 2, dealing: dealt("eta 1p"), ..setting() };
    let (mut world, keys) = lossy_set(2, setting);
    let stream = begin(&mut world, keys[0], "source-3000000");
    world.run_for(200 * MS);
    // The middle of the second leg is the nodes 7 and 8, and the exit is the nodes 9 and 10.
    let leads = |link: &&LinkId| {
        let [from, to] = world.pipes[link].nodes;
        from.min(to) / 2 == 3 || from.min(to) == 8 && from.max(to) > 8
    };
    let links: Vec<LinkId> = world.quic.iter().filter(leads).copied().collect();
    assert!(!links.is_empty());
    for link in links {
        world.lose(link, 0);
        world.lose(link, 1);
    }
    run_to_end(&mut world, stream, Duration::from_secs(60));
    assert_eq!(world.received[&stream].len(), 3_000_000);
    assert_eq!(closed(&world, 1).map(|(hops, _)| hops), Some(3));
    assert_eq!(closed(&world, 0), None);
    nobody_is_at_fault(&world);
}

#[test]
fn streams_outlive_each_leg_but_the_last() {
    for first in [0, 1] {
        let (mut world, keys) = lossy_set(2, setting());
        let stream = begin(&mut world, keys[0], "source-3000000");
        world.run_for(200 * MS);
        world.client.handle(world.now, Input::Destroy { circuit: keys[first] });
        run_to_end(&mut world, stream, Duration::from_secs(60));
        assert_eq!(ended(&world, stream), Some(EndReason::DONE));
        assert_eq!(world.received[&stream].len(), 3_000_000);
        let stream = begin(&mut world, keys[1 - first], "fed");
        world.run_for(Duration::from_secs(1));
        assert!(is_connected(&world, stream));
        world.client.handle(world.now, Input::Destroy { circuit: keys[1 - first] });
        world.run_for(Duration::from_secs(1));
        assert_eq!(ended(&world, stream), Some(EndReason::DESTROY));
        let exit = world.relays.last().unwrap().core.stats();
        assert_eq!((exit.streams, exit.circuits), (0, 0));
        nobody_is_at_fault(&world);
    }
}

#[test]
fn a_circuit_with_streams_or_of_another_kind_cannot_be_linked() {
    let (mut world, circuit) = lossy(setting());
    begin(&mut world, circuit, "sink");
    assert!(world.client.link(world.now, circuit, None).is_err());
    assert!(build(&mut world, 2) && build(&mut world, 3));
    world.client.link(world.now, CircuitKey(2), None).unwrap();
    assert!(world.client.link(world.now, CircuitKey(2), None).is_err(), "twice");
    assert!(world.client.link(world.now, CircuitKey(3), Some(CircuitKey(9))).is_err());
}

#[test]
fn answers_that_overtake_each_other_on_unlike_legs_wait_for_no_timeout() {
    for dealing in ["round-robin 1p", "uniform 1p"] {
        let lines = [(0, (50_000_000, 60 * MS)), (2, (50_000_000, 5 * MS))].into();
        let setting = Setting { dealing: dealt(dealing), lines, pieces: false, ..setting() };
        let (mut world, keys) = lossy_set(2, setting);
        for _ in 0..20 {
            let elapsed = download(&mut world, keys[0], 400);
            // A round trip on the slower leg takes 140 ms.
            assert!(elapsed < 300 * MS, "{dealing}: {elapsed:?}");
        }
    }
}

#[test]
fn the_loss_of_a_first_cell_costs_no_more_than_a_few_round_trips() {
    let (mut world, circuit) = lossy(Setting { dropped_per_mille: 20, pieces: false, ..setting() });
    let mut elapsed: Vec<Duration> = (0..100).map(|_| download(&mut world, circuit, 400)).collect();
    elapsed.sort_unstable();
    // A round trip takes 30 ms, and a timeout at least 230 ms. Without an expected round-trip
    // time, the timeout would be 1 s.
    assert!(elapsed[80] < 100 * MS && elapsed[99] < 900 * MS, "{elapsed:?}");
}

/// Returns settings for two legs with unequal rates and delays.
fn unequal() -> Setting {
    let lines = [(0, (20_000_000, 8 * MS)), (2, (40_000_000, 20 * MS))].into();
    Setting { lines, pieces: false, ..setting() }
}

fn dealt(dealing: &str) -> Option<anabranch_onion::conflux::LegScheduler> {
    anabranch_onion::conflux::LegScheduler::read(dealing, 8)
}

#[test]
fn with_a_window_for_each_leg_each_has_its_own_rate() {
    for dropped in [0, 10] {
        let setting = Setting { dealing: dealt("eta 1p"), dropped_per_mille: dropped, ..unequal() };
        let (mut world, keys) = lossy_set(2, setting);
        for bytes in [1, 447, 20_000, 320 << 10] {
            let elapsed = download(&mut world, keys[0], bytes);
            println!("eta, {dropped} of 1000 lost, {bytes} bytes: {elapsed:?}");
        }
        let elapsed = download(&mut world, keys[0], 5 << 20);
        let megabits = f64::from(5u32 << 20) * 8.0 / 1e6 / elapsed.as_secs_f64();
        println!("eta, {dropped} of 1000 lost: {megabits:.1} Mbit/s, {:?}", passed(&world, 2));
        // The leg with the shorter delay has 20 Mbit/s. Headers of cells take 3 Mbit/s of them, so
        // streams get 17 Mbit/s.
        assert!(megabits > 18.0, "{dropped}: {megabits} Mbit/s");
        let passed = passed(&world, 2);
        let (least, most) = (passed[0].min(passed[1]), passed[0].max(passed[1]));
        assert!(least * 4 > most, "both carry a good part: {passed:?}");
        nobody_is_at_fault(&world);
    }
}

#[test]
fn a_leg_that_closes_costs_a_set_with_windows_its_cells_in_flight_only() {
    for first in [0, 1] {
        let (mut world, keys) = lossy_set(2, Setting { dealing: dealt("eta 1p"), ..unequal() });
        let stream = begin(&mut world, keys[0], "source-3000000");
        world.run_for(300 * MS);
        world.client.handle(world.now, Input::Destroy { circuit: keys[first] });
        run_to_end(&mut world, stream, Duration::from_secs(60));
        assert_eq!(ended(&world, stream), Some(EndReason::DONE));
        assert_eq!(world.received[&stream].len(), 3_000_000);
        download(&mut world, keys[1 - first], 50_000);
        nobody_is_at_fault(&world);
    }
}

#[test]
fn an_upload_uses_the_windows_of_all_legs() {
    let (mut world, keys) = lossy_set(2, Setting { dealing: dealt("eta 1p"), ..unequal() });
    let stream = begin(&mut world, keys[0], "sink");
    let data: Vec<u8> = (0..4 << 20).map(Server::byte).collect();
    let (mut written, begun) = (0, world.now);
    while written < data.len() && world.now.since(begun) < Duration::from_secs(60) {
        written += world.client.write(world.now, stream, &data[written..]);
        world.run_for(5 * MS);
    }
    world.client.handle(world.now, Input::Ended { stream });
    world.run_for(Duration::from_secs(2));
    let server = world.relays[4].servers.values().next().unwrap();
    assert_eq!((server.received, server.ended), (data.len(), Some(EndReason::DONE)));
    let elapsed = world.now.since(begun);
    assert!(elapsed < Duration::from_secs(4), "{elapsed:?}");
    nobody_is_at_fault(&world);
}
