//! Whole transfers over links that lose, reorder and duplicate segments, in virtual time.

mod world;

use std::time::Duration;

use anabranch_multipath::seed::stream;
use anabranch_multipath::{Core as _, Time};
use anabranch_netem::{LinkSettings, Loss};
use anabranch_tcp::{Config, Congestion, Ending, State};
use rand::RngExt;
use world::*;

fn link(rate: u64, delay: Duration) -> LinkSettings {
    LinkSettings { delay, queue: 64_000, ..LinkSettings::with_rate(rate) }
}

#[test]
fn a_clean_link_is_filled() {
    let mut pair = Pair::over(&link(10_000_000, 20 * MS), 1);
    pair.sides[0].total = 4 << 20;
    pair.run_to_end(Duration::from_secs(60));
    pair.assert_whole();
    // 4 MiB in segments of 1448 bytes, each of 1500 on the wire, take 3.48 s.
    let seconds = pair.now.secs_f64();
    assert!((3.4..4.2).contains(&seconds), "{seconds} s");
    assert_eq!(pair.client().stats().timeouts, 0);
}

#[test]
fn both_sides_close_and_end() {
    let mut pair = Pair::over(&link(10_000_000, 20 * MS), 2);
    (pair.sides[0].total, pair.sides[1].total) = (100_000, 70_000);
    pair.run_to_end(Duration::from_secs(60));
    pair.assert_whole();
    pair.run(Time::from_secs(200));
    for side in &pair.sides {
        let tcp = side.tcp.as_ref().unwrap();
        assert_eq!((tcp.state(), tcp.ending()), (State::Closed, Some(Ending::Finished)));
        assert_eq!(tcp.next_timeout(), None);
    }
}

/// Returns a random network with random settings, over which each transfer must complete.
fn rough(seed: u64) -> Pair {
    rough_with(seed, [false, false])
}

/// Returns the network of [`rough`]. A side whose entry in `fast_open` is true uses data in SYNs,
/// copies of the first segments, and sparse acknowledgements.
fn rough_with(seed: u64, fast_open: [bool; 2]) -> Pair {
    let mut dice = stream(seed, 0, "rough");
    let mut way = || {
        let delay = MS * dice.random_range(1..120);
        let loss = dice.random_range(0..6);
        LinkSettings {
            delay,
            jitter: if dice.random_bool(0.5) {
                delay / dice.random_range(2..10)
            } else {
                Duration::ZERO
            },
            reorder: dice.random_bool(0.5),
            loss: match loss {
                0 => Loss::None,
                percent => Loss::Bernoulli(f64::from(percent) / 40.0),
            },
            queue: dice.random_range(3_000..200_000),
            ..LinkSettings::with_rate(dice.random_range(300_000..50_000_000))
        }
    };
    let links = [way(), way()];
    let all: Vec<Congestion> = Congestion::all().collect();
    let mut config = |fast_open: bool| Config {
        mss: [1460, 1460, 536, 1220][dice.random_range(0..4)],
        congestion: all[dice.random_range(0..all.len())],
        pacing: dice.random_bool(0.3),
        sack: dice.random_bool(0.8),
        timestamps: dice.random_bool(0.8),
        window_scaling: dice.random_bool(0.8),
        receive_buffer: dice.random_range(2_000..500_000),
        send_buffer: dice.random_range(4_000..300_000),
        timestamp_offset: u32::MAX - 2_000,
        out_of_order: dice.random_bool(0.5),
        fast_open,
        syn_copy: true,
        doubled: if fast_open { 2_000 } else { 0 },
        sparse_acks: fast_open,
        initial_window: dice.random_range(1..30),
        paws: dice.random_bool(0.8),
        legs: 1,
    };
    let mut pair = Pair::new(fast_open.map(&mut config), links, seed);
    pair.sides[0].total = dice.random_range(0..300_000);
    pair.sides[1].total = dice.random_range(0..300_000);
    pair
}

#[test]
fn no_network_and_no_settings_stop_a_transfer() {
    for seed in 0..400 {
        let mut pair = rough(seed);
        pair.run_to_end(Duration::from_secs(3_000));
        let states = pair.sides.each_ref().map(|side| {
            let tcp = side.tcp.as_ref().unwrap();
            (tcp.state(), tcp.ending(), side.received, side.written, side.total, tcp.stats())
        });
        assert!(pair.is_done(), "seed {seed} at {:?}: {states:#?}", pair.now);
        pair.assert_whole();
    }
}

#[test]
fn transfers_with_data_in_the_syn_are_whole_too() {
    for (seed, fast_open) in (0..200).zip([[true, true], [true, false]].into_iter().cycle()) {
        let mut pair = rough_with(seed, fast_open);
        pair.duplicates = (seed % 3 == 0).then(|| stream(seed, 1, "doubles"));
        pair.run_to_end(Duration::from_secs(3_000));
        assert!(pair.is_done(), "seed {seed} at {:?}", pair.now);
        pair.assert_whole();
    }
}

#[test]
fn segments_that_arrive_twice_do_no_harm() {
    for seed in 0..100 {
        let mut pair = rough(seed);
        pair.duplicates = Some(stream(seed, 1, "doubles"));
        pair.run_to_end(Duration::from_secs(3_000));
        assert!(pair.is_done(), "seed {seed} at {:?}", pair.now);
        pair.assert_whole();
    }
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let run = |seed| {
        let mut pair = rough(seed);
        pair.run_to_end(Duration::from_secs(3_000));
        (pair.trace, pair.now)
    };
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(3), run(4));
}

#[test]
fn jitter_beyond_the_delay_leaves_bbr_the_rate_of_the_link() {
    // 5 MiB in segments of 459 bytes, each of 511 on the wire, take 4.7 s at 10 Mbit/s.
    let cases = [(0.0, 6.0), (0.01, 6.5), (0.05, 8.0)];
    for ((loss, most), sparse_acks) in cases.map(|case| [(case, false), (case, true)]).concat() {
        let mut times = [1, 2, 3].map(|seed| {
            let way = LinkSettings {
                delay: 15 * MS,
                jitter: 15 * MS,
                reorder: true,
                loss: if loss > 0.0 { Loss::Bernoulli(loss) } else { Loss::None },
                ..LinkSettings::with_rate(10_000_000)
            };
            let config = Config {
                mss: 459,
                initial_window: 20,
                congestion: Congestion::BBR,
                paws: false,
                receive_buffer: 512 << 10,
                send_buffer: 512 << 10,
                sparse_acks,
                ..Config::default()
            };
            let mut pair = Pair::new([config.clone(), config], [way.clone(), way], seed);
            pair.sides[0].total = 5 << 20;
            pair.run_to_end(Duration::from_secs(300));
            pair.assert_whole();
            let (now, stats) = (pair.now, pair.client().stats());
            let again = stats.retransmitted as f64 / stats.sent as f64;
            assert!(again < loss + 0.02, "{loss}: {again} of the segments were sent again");
            now.secs_f64()
        });
        times.sort_by(f64::total_cmp);
        println!("loss {loss}: {times:?} s");
        assert!(times[1] < most, "{loss}: {times:?} s");
    }
}

/// Returns settings for lossy circuits, with or without sparse acknowledgements.
fn short_segments(sparse_acks: bool) -> Config {
    Config {
        mss: 471,
        initial_window: 20,
        congestion: Congestion::BBR,
        paws: false,
        receive_buffer: 512 << 10,
        send_buffer: 512 << 10,
        sparse_acks,
        ..Config::default()
    }
}

#[test]
fn sparse_acknowledgements_are_few_and_slow_nothing_down() {
    for loss in [0.0, 0.02, 0.05] {
        let run = |is_sparse| {
            let way = LinkSettings {
                delay: 30 * MS,
                loss: if loss > 0.0 { Loss::Bernoulli(loss) } else { Loss::None },
                queue: 25_000,
                ..LinkSettings::with_rate(4_000_000)
            };
            let config = short_segments(is_sparse);
            let mut pair = Pair::new([config.clone(), config], [way.clone(), way], 1);
            pair.sides[1].total = 2 << 20;
            pair.keeps = true;
            pair.run_to_end(Duration::from_secs(60));
            pair.assert_whole();
            let of = |side| pair.seen.iter().filter(move |(_, by, _)| *by == side);
            let bare = of(0).filter(|(_, _, segment)| segment.payload.is_empty()).count();
            let data = of(1).filter(|(_, _, segment)| !segment.payload.is_empty()).count();
            (bare as f64 / data as f64, pair.now.secs_f64(), pair.server().stats())
        };
        let [usual, sparse] = [false, true].map(run);
        println!("loss {loss}: usual {usual:?}, sparse {sparse:?}");
        assert!(usual.0 > 0.45, "{loss}: {usual:?}");
        assert!(sparse.0 < 0.08, "{loss}: {sparse:?}");
        assert!(sparse.1 < 1.1 * usual.1, "{loss}: {sparse:?} after {usual:?}");
    }
}

/// A link and Linux's goodput over the link in Mbit/s. The link has a rate in Mbit/s, a round-trip
/// time in ms, a loss rate in per cent, and a queue in bandwidth-delay products.
type Measured = (u64, u64, f64, f64, f64);

/// Medians of 5 seeds with CUBIC. Both ends are Linux 6.18, in real time (`make bench AREA=tcp`).
const LINUX: [Measured; 12] = [
    (2, 50, 0.0, 1.0, 1.83),
    (2, 50, 1.0, 1.0, 1.74),
    (2, 200, 1.0, 1.0, 1.07),
    (10, 20, 0.0, 0.25, 7.82),
    (10, 20, 1.0, 1.0, 6.38),
    (10, 100, 0.0, 1.0, 9.29),
    (10, 100, 1.0, 1.0, 1.91),
    (10, 100, 5.0, 1.0, 0.55),
    (50, 10, 1.0, 1.0, 11.92),
    (50, 50, 1.0, 1.0, 3.60),
    (50, 200, 1.0, 1.0, 1.11),
    (50, 50, 5.0, 1.0, 0.97),
];

/// Returns this crate's goodput over the link in virtual time, in Mbit/s. The seeds are the same
/// as for Linux, so segments with the same numbers are lost.
fn goodput(&(rate, rtt, loss, queue, _): &Measured) -> f64 {
    let rate = rate * 1_000_000;
    let span = Duration::from_millis(rtt * 100).clamp(6_000 * MS, 20_000 * MS);
    let mut rates = [1, 2, 3, 4, 5].map(|seed| {
        let way = LinkSettings {
            delay: MS / 2 * rtt as u32,
            queue: ((rate * rtt / 8_000) as f64 * queue).max(3_000.0) as usize,
            ..LinkSettings::with_rate(rate)
        };
        let data = LinkSettings { loss: Loss::Bernoulli(loss / 100.0), ..way.clone() };
        let mut pair = Pair::new([Config::default(), Config::default()], [data, way], seed);
        pair.sides[0].total = 1 << 30;
        pair.run(pair.now + span);
        pair.sides[1].received as f64 * 8.0 / 1e6 / span.as_secs_f64()
    });
    rates.sort_by(f64::total_cmp);
    rates[2]
}

#[test]
fn goodput_in_virtual_time_is_that_of_linux() {
    for cell in &LINUX {
        let ratio = goodput(cell) / cell.4;
        println!("{cell:?}: {ratio:.3}");
        assert!((0.85..=1.15).contains(&ratio), "{cell:?}: {ratio}");
    }
}
