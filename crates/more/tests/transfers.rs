//! Streams of every size arrive whole, over links that lose and reorder.

mod world;

use std::time::Duration;

use anabranch_more::{CELL_PAYLOAD, Config, DropReason, Ending, PAYLOAD};
use anabranch_multipath::Time;
use anabranch_netem::{Codel, LinkSettings, Loss};
use world::{MS, World};

const LIMIT: Duration = Duration::from_secs(300);
/// The longest download of a large file, in virtual time.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

fn link(loss: f64, jitter: Duration) -> LinkSettings {
    let loss = if loss > 0.0 { Loss::Bernoulli(loss) } else { Loss::None };
    let reorder = jitter > Duration::ZERO;
    let delay = (2 * MS).max(jitter);
    LinkSettings { delay, jitter, reorder, loss, ..LinkSettings::with_rate(100_000_000) }
}

fn transfer(link: LinkSettings, payload: usize, [up, down]: [u64; 2], seed: u64) -> World {
    let mut world = World::new(link, &Config { payload, ..Config::default() }, seed);
    world.start(up, down);
    world.run(LIMIT);
    world.transfers[0].assert_whole();
    world
}

#[test]
fn small_and_middling_streams_arrive_whole_at_any_loss() {
    for (seed, loss) in (1..).zip([0.0, 0.01, 0.05]) {
        for size in [1, 1_000, 40_000] {
            transfer(link(loss, Duration::ZERO), PAYLOAD, [size, size], seed);
            transfer(link(loss, Duration::ZERO), CELL_PAYLOAD, [1, size], seed);
        }
    }
}

#[test]
fn a_mebibyte_arrives_whole_in_both_directions_without_loss() {
    let world = transfer(link(0.0, Duration::ZERO), PAYLOAD, [1 << 20, 1 << 20], 1);
    // The last acknowledgement may arrive after the client's end.
    for reason in DropReason::ALL.into_iter().filter(|reason| *reason != DropReason::UnknownStream)
    {
        assert_eq!(world.dropped(reason), 0, "{}", reason.name());
    }
}

#[test]
fn a_mebibyte_arrives_whole_in_both_directions_at_one_percent_of_loss() {
    transfer(link(0.01, Duration::ZERO), PAYLOAD, [1 << 20, 1 << 20], 2);
}

#[test]
fn a_mebibyte_arrives_whole_in_both_directions_at_five_percent_of_loss() {
    transfer(link(0.05, Duration::ZERO), PAYLOAD, [1 << 20, 1 << 20], 3);
}

#[test]
fn reordering_by_30_ms_loses_nothing() {
    for (seed, jitter) in (1..).zip([5 * MS, 30 * MS]) {
        transfer(link(0.0, jitter), PAYLOAD, [100_000, 400_000], seed);
        transfer(link(0.01, jitter), PAYLOAD, [100_000, 100_000], seed);
    }
}

/// Downloads 200 MiB over links with `loss`, without jitter and with it. Start these tests with
/// `cargo test --release -p anabranch-more --test transfers -- --ignored --nocapture`.
fn large(loss: f64, seed: u64) {
    for jitter in [Duration::ZERO, 30 * MS] {
        let mut world = World::new(link(loss, jitter), &Config::default(), seed);
        world.start(0, 200 << 20);
        world.run(LONGEST);
        world.transfers[0].assert_whole();
        println!("loss {loss}, jitter {jitter:?}: {:.0} s", world.now.secs_f64());
    }
}

#[test]
#[ignore = "takes long: 400 MB through five nodes"]
fn two_hundred_mebibytes_arrive_whole() {
    large(0.0, 1);
}

#[test]
#[ignore = "takes long: 400 MB through five nodes"]
fn two_hundred_mebibytes_arrive_whole_at_one_percent_of_loss() {
    large(0.01, 2);
}

#[test]
#[ignore = "takes long: 400 MB through five nodes"]
fn two_hundred_mebibytes_arrive_whole_at_five_percent_of_loss() {
    large(0.05, 3);
}

#[test]
fn a_bottleneck_with_a_short_queue_slows_a_stream_down_and_loses_nothing() {
    let narrow = LinkSettings {
        queue: 30_000,
        codel: Some(Codel::default()),
        delay: 10 * MS,
        ..LinkSettings::with_rate(500_000)
    };
    let world = transfer(narrow, PAYLOAD, [0, 300_000], 4);
    // 393 packets of 1,188 bytes are distributed over the seven links of the client.
    assert!(world.now > Time::from_secs(101), "{:?}", world.now);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let run = |seed| {
        let world = transfer(link(0.02, 10 * MS), PAYLOAD, [10_000, 60_000], seed);
        (world.trace, world.sent, world.now)
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5).0, run(6).0);
}

#[test]
fn the_first_byte_arrives_after_one_round_trip() {
    let mut world = World::new(
        LinkSettings { delay: 10 * MS, ..LinkSettings::default() },
        &Config::default(),
        1,
    );
    let began = world.now;
    world.start(100, 500);
    world.run(LIMIT);
    world.transfers[0].assert_whole();
    assert_eq!(world.now.since(began), 60 * MS, "three links each way");
}

#[test]
fn each_packet_of_a_stream_takes_a_path_of_its_own() {
    let mut world = World::new(link(0.0, Duration::ZERO), &Config::default(), 1);
    world.seen = Some(Vec::new());
    world.start(200_000, 0);
    world.run(LIMIT);
    let seen = world.seen.take().unwrap_or_default();
    let mut entries: Vec<usize> =
        seen.iter().filter(|one| one.from == 0).map(|one| one.to).collect();
    entries.sort_unstable();
    entries.dedup();
    let exit = world.transfers[0].ends[1].node;
    let others: Vec<usize> = (1..8).filter(|at| *at != exit).collect();
    assert_eq!(entries, others, "all nodes but the exit are entries");
    // The relays form a full mesh: each pair has links.
    let mut pairs: Vec<_> = seen.iter().map(|one| (one.from, one.to)).collect();
    pairs.sort_unstable();
    pairs.dedup();
    assert!(pairs.len() > 6 * 5, "{}", pairs.len());
}

#[test]
fn many_streams_share_a_node_and_end() {
    let mut world = World::new(link(0.01, 3 * MS), &Config::default(), 7);
    for number in 0..12 {
        world.start(1_000 * number, 3_000 + 2_000 * number);
    }
    world.run(LIMIT);
    world.transfers.iter().for_each(world::Transfer::assert_whole);
    world.rest(Duration::from_secs(130));
    let ending = |at: usize| world.transfers[at].ends[1].ending;
    assert!((0..12).all(|at| ending(at) == Some(Ending::Closed)), "{:?}", world.transfers);
    assert!(world.nodes.iter().all(|node| node.streams() == 0));
}
