//! Links over a simulated network. Streams arrive completely, even if their connections fail.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use anabranch_testkit::stego_world as world;

use std::time::Duration;

use anabranch_multipath::{Core, Time};
use anabranch_stego::Ending;
use anabranch_stego::slot::FAMILIES;
use rand::RngExt as _;

use world::{Fate, Fates, Task, World, all, dsl, line};

const MINUTES: Duration = Duration::from_secs(600);

/// Transfers `up` and `down` bytes. Returns the simulated world afterwards, and the duration.
fn carried(
    seed: u64,
    profile: &str,
    (up, down): (usize, usize),
    fates: Fates,
) -> (World, Duration) {
    let mut world = World::new(seed, profile, dsl(), fates);
    let mut task = Task::new(seed, up, down);
    world.carry(&mut task, MINUTES);
    let elapsed = world.over.since(Time::ZERO);
    let received = [task.received[0].len(), task.received[1].len()];
    assert!(task.is_whole(), "seed {seed}: {received:?} of {up} and {down} came, {:?}", world.ends);
    assert_eq!(world.ends, [Some(Ending::Done); 2], "seed {seed}, {up} and {down}: {elapsed:?}");
    (world, elapsed)
}

#[test]
fn streams_of_any_length_are_whole_both_ways() {
    for (seed, length) in [0, 1, 500, 16_384, 16_385, 300_000].into_iter().enumerate() {
        for profile in FAMILIES.iter().map(|family| family.name) {
            let slow = ["nosteg-rr", "http-image", "embed"].contains(&profile);
            let length = if slow { length.min(60_000) } else { length };
            carried(seed as u64, profile, (length, length / 2), all(Fate::Fine));
            carried(seed as u64, profile, (length / 3, length), all(Fate::Fine));
        }
    }
}

#[test]
fn both_directions_at_once_do_not_hold_each_other_up() {
    for profile in ["nosteg", "nosteg-short", "http-opaque", "http-text-short"] {
        // The line is so fast that it is never the cause of a delay.
        let mut world = World::new(1, profile, line(50_000_000, 50_000_000, 2), all(Fate::Fine));
        let mut task = Task::new(1, 2_000_000, 2_000_000);
        world.carry(&mut task, MINUTES);
        assert!(task.is_whole() && world.over < Time::from_secs(4), "{profile}: {:?}", world.over);
    }
}

#[test]
fn ten_megabytes_pass_at_the_rate_of_the_line() {
    let (world, elapsed) = carried(1, "nosteg", (100, 10_000_000), all(Fate::Fine));
    let rate = 10_000_000.0 / elapsed.as_secs_f64();
    assert!(rate > 620_000.0, "{rate} B/s of 700,000");
    let down = world.crossed[1] as f64 / 10_000_000.0;
    assert!(down < 1.065, "{down} bytes down for each");
    let up = world.crossed[0] as f64 / 10_000_000.0;
    assert!(up < 0.02, "{up} bytes up for each, TCP's own acknowledgements not counted");
}

#[test]
fn requests_and_answers_fill_the_line_and_cost_what_their_tier_costs() {
    let most = [
        ("http-opaque", 1.06, 0.025, 580_000.0),
        ("http-opaque-short", 1.13, 0.07, 470_000.0),
        ("http-text", 1.42, 0.03, 440_000.0),
        ("http-text-short", 1.52, 0.09, 350_000.0),
    ];
    for (profile, most_down, most_up, least_rate) in most {
        let (world, elapsed) = carried(1, profile, (100, 3_000_000), all(Fate::Fine));
        let rate = 3_000_000.0 / elapsed.as_secs_f64();
        let [up, down] = world.crossed.map(|bytes| bytes as f64 / 3_000_000.0);
        let (within, quick) = (down < most_down && up < most_up, rate > least_rate);
        assert!(within, "{profile}: {down} down, {up} up for each byte, TCP's own not counted");
        assert!(quick, "{profile}: {rate} B/s of 700,000");
    }
}

/// Sends `pieces` pieces of `piece` bytes to the client on an idle link, one every 2 ms. The line
/// has a round-trip time of `trip` milliseconds. Returns the duration, and the number of messages
/// that the client sent.
fn answered(profile: &str, trip: u64, (piece, pieces): (usize, usize)) -> (Duration, usize) {
    let mut world = World::new(1, profile, line(700_000, 5_600_000, trip), all(Fate::Fine));
    let mut task = Task::new(1, 600, 0);
    task.hold_open();
    let until = Time::from_secs(10);
    while world.now < until {
        world.step(&mut task, until);
    }
    let asked = |world: &World| {
        let sent = world.sent.values().flatten();
        sent.filter(|(way, _)| *way == 0).count()
    };
    let (began, before) = (world.now, asked(&world));
    for _ in 0..pieces {
        task.add_down(piece);
        let next = world.now + Duration::from_millis(2);
        while world.now < next {
            world.step(&mut task, next);
        }
    }
    while !task.is_whole() {
        world.step(&mut task, Time::from_secs(60));
    }
    let elapsed = world.now.since(began);
    // The last acknowledgements are still sent, and the server may still hold an answer.
    let rest = world.now + Duration::from_secs(3);
    while world.now < rest {
        world.step(&mut task, rest);
    }
    (elapsed, asked(&world) - before)
}

#[test]
fn a_short_answer_takes_few_requests_and_a_long_one_that_begins_small_as_many_as_fill_the_line() {
    for (profile, few, least) in [
        ("http-opaque", 4, 310_000.0),
        ("http-text", 4, 250_000.0),
        ("http-opaque-short", 10, 252_000.0),
    ] {
        let (_, requests) = answered(profile, 85, (20_000, 1));
        assert!(requests <= few, "{profile}: {requests}");
        let (elapsed, _) = answered(profile, 450, (16_384, 120));
        let rate = 120.0 * 16_384.0 / elapsed.as_secs_f64();
        assert!(rate > least, "{profile}: {rate} B/s of 700,000");
    }
}

#[test]
fn connections_have_their_shapes_to_the_byte_and_carry_both_ways() {
    let shapes = anabranch_stego::Shapes::recorded();
    for (up, down) in [(600_000, 100), (100, 3_000_000), (300_000, 300_000)] {
        let (world, elapsed) = carried(1, "embed", (up, down), all(Fate::Fine));
        for sent in world.sent.values() {
            let of = |shape: &anabranch_stego::Shape| {
                let steps = shape.steps().iter().map(|step| (usize::from(!step.up), step.bytes));
                steps.take(sent.len()).eq(sent.iter().copied())
            };
            assert!(shapes.all().iter().any(of), "{sent:?}");
        }
        let rate = (up + down) as f64 / elapsed.as_secs_f64();
        let least = if down > up { 250_000.0 } else { 20_000.0 };
        assert!(rate > least, "{rate} B/s, {:?} bytes", world.crossed);
    }
}

#[test]
fn requests_survive_what_connections_suffer() {
    for profile in ["http-opaque", "http-text-short", "http-site", "embed"] {
        for seed in 0..3 {
            let fates: Fates = Box::new(|_, _, dice| match dice.random_range(0..3) {
                0 => Fate::Killed(Duration::from_millis(dice.random_range(100..6_000))),
                1 => Fate::Frozen(15_000),
                _ => Fate::Fine,
            });
            carried(seed, profile, (200_000, 700_000), fates);
        }
        // An object of a site is read as a whole, and one object of this site is longer than 15
        // kB.
        let frozen = if profile == "http-site" { 100_000 } else { 15_000 };
        carried(9, profile, (10_000, 200_000), all(Fate::Frozen(frozen)));
    }
}

#[test]
fn an_idle_link_asks_now_and_then_and_is_answered_at_once() {
    let mut world = World::new(6, "http-opaque", dsl(), all(Fate::Fine));
    let mut task = Task::new(6, 0, 0);
    task.hold_open();
    while world.now < Time::from_secs(60) {
        world.step(&mut task, Time::from_secs(60));
    }
    let before = world.crossed;
    while world.now < Time::from_secs(160) {
        world.step(&mut task, Time::from_secs(160));
    }
    let idle = [0, 1].map(|way| world.crossed[way] - before[way]);
    assert!(idle.iter().all(|&bytes| bytes < 40_000), "{idle:?} bytes in 100 s");
    let asked = world.now;
    task.add_down(600);
    while task.received[1].len() < 600 {
        world.step(&mut task, Time::from_secs(200));
    }
    let waited = world.now.since(asked);
    assert!(waited < Duration::from_millis(100), "{waited:?}");
}

#[test]
fn a_seed_replays() {
    let fates = || -> Fates {
        Box::new(|_, _, dice| match dice.random_range(0..3) {
            0 => Fate::Killed(Duration::from_millis(dice.random_range(0..4_000))),
            1 => Fate::Frozen(15_000),
            _ => Fate::Fine,
        })
    };
    let trace = |seed| carried(seed, "nosteg", (200_000, 900_000), fates()).0.trace;
    assert_eq!(trace(5), trace(5));
    assert_ne!(trace(5), trace(6));
}

#[test]
fn connections_killed_at_random_cost_no_byte() {
    for seed in 0..8 {
        let fates: Fates = Box::new(|_, _, dice| {
            Fate::Killed(Duration::from_millis(dice.random_range(100..6_000)))
        });
        carried(seed, "nosteg", (300_000, 2_000_000), fates);
    }
}

/// Transfers `down` bytes to the client over connections with these `fates`. Returns the goodput
/// as a share of the goodput over connections that do not fail. Also prints both durations.
fn share(profile: &str, down: usize, fates: fn() -> Fates) -> f64 {
    let seconds = |fates| carried(1, profile, (1_000, down), fates).1.as_secs_f64();
    let (free, under) = (seconds(all(Fate::Fine)), seconds(fates()));
    println!("{profile}, {down} bytes: {free:.2} s, {under:.2} s under it, {:.3}", free / under);
    free / under
}

/// Returns fates of connections as in some networks: each connection freezes after 15 kB.
fn frozen() -> Fates {
    all(Fate::Frozen(15_000))
}

/// Returns fates of connections: all open connections die every 20 s.
fn killed() -> Fates {
    const EVERY: u64 = 20_000_000_000;
    Box::new(|_, now, _| Fate::Killed(Duration::from_nanos(EVERY - now.nanos() % EVERY)))
}

#[test]
fn connections_frozen_after_15_kb_cost_no_byte_and_short_ones_little_time() {
    for profile in ["nosteg-short", "http-opaque-short", "http-text-short"] {
        let share = share(profile, 3_000_000, frozen);
        assert!(share > 0.5, "{profile}: {share} of the goodput without");
    }
}

#[test]
fn connections_killed_every_20_s_cost_short_ones_little_time() {
    for profile in ["nosteg-short", "http-opaque-short", "http-text-short"] {
        // The connections die at least twice during the transfer.
        let share = share(profile, 25_000_000, killed);
        assert!(share > 0.5, "{profile}: {share} of the goodput without");
    }
}

#[test]
fn few_connections_frozen_or_killed_bring_all_and_how_soon_is_told() {
    for (profile, down) in [
        ("nosteg", 25_000_000),
        ("http-opaque", 25_000_000),
        ("http-text", 25_000_000),
        ("http-image", 6_000_000),
        ("http-site", 10_000_000),
        ("nosteg-rr", 10_000_000),
        ("embed", 10_000_000),
    ] {
        share(profile, down, killed);
        // An object of a site is read as a whole, and one object of this site is longer than 15
        // kB.
        if profile != "http-site" {
            share(profile, 100_000, frozen);
        }
    }
}

#[test]
fn connections_that_all_freeze_and_are_few_cost_no_byte_either() {
    let (world, elapsed) = carried(1, "nosteg", (1_000, 300_000), all(Fate::Frozen(15_000)));
    // Six simultaneous connections carry 15 kB each, and are given up after some seconds.
    assert!(elapsed < Duration::from_secs(60), "{elapsed:?}");
    assert!(world.crossed[1] < 2_000_000, "{} bytes went down", world.crossed[1]);
    let (_, elapsed) = carried(2, "nosteg", (100_000, 300_000), all(Fate::Frozen(15_000)));
    assert!(elapsed < Duration::from_secs(60), "{elapsed:?}");
}

#[test]
fn half_of_all_connections_are_black_holes_and_no_byte_is_lost() {
    for seed in 0..6 {
        let fates: Fates =
            Box::new(|_, _, dice| if dice.random_bool(0.5) { Fate::Hole } else { Fate::Fine });
        carried(seed, "nosteg", (200_000, 1_000_000), fates);
    }
}

#[test]
fn a_link_survives_minutes_without_any_connection() {
    // All connections die at 3 s, and no connection can be opened until 4 minutes have passed.
    let fates: Fates = Box::new(|_, now, _| match now.secs_f64() {
        0.0..3.0 => Fate::Killed(Time::from_secs(3).since(now)),
        3.0..240.0 => Fate::Hole,
        _ => Fate::Fine,
    });
    let (world, elapsed) = carried(2, "nosteg", (500_000, 4_000_000), fates);
    assert!(
        elapsed > Duration::from_secs(240) && elapsed < Duration::from_secs(270),
        "{elapsed:?}"
    );
    assert!(world.dialled < 300, "{}", world.dialled);
}

#[test]
fn a_link_goes_on_soon_after_an_outage_in_which_nobody_answered() {
    // All connections die at 3 s. Connections dialled in the next 30 s are never answered.
    let fates: Fates = Box::new(|_, now, _| match now.secs_f64() {
        0.0..3.0 => Fate::Killed(Time::from_secs(3).since(now)),
        3.0..33.0 => Fate::Unanswered,
        _ => Fate::Fine,
    });
    let (_, elapsed) = carried(2, "nosteg", (500_000, 4_000_000), fates);
    assert!(elapsed > Duration::from_secs(33) && elapsed < Duration::from_secs(65), "{elapsed:?}");
    // At the beginning, no connection is answered either.
    let fates: Fates = Box::new(|_, now, _| match now.secs_f64() {
        0.0..15.0 => Fate::Unanswered,
        _ => Fate::Fine,
    });
    let (_, elapsed) = carried(2, "http-opaque", (5_000, 40_000), fates);
    assert!(elapsed > Duration::from_secs(15) && elapsed < Duration::from_secs(35), "{elapsed:?}");
}

#[test]
fn a_server_that_is_not_there_is_given_up_after_five_minutes() {
    let mut world = World::new(3, "nosteg", dsl(), all(Fate::Hole));
    let mut task = Task::new(3, 10, 10);
    while world.ends[0].is_none() && world.now < Time::from_secs(400) {
        world.step(&mut task, Time::from_secs(400));
    }
    assert_eq!(world.ends[0], Some(Ending::Lost));
    assert!(world.over < Time::from_secs(320), "{:?}", world.over);
    assert!(world.link.is_none() && world.dialled < 60, "{}", world.dialled);
}

#[test]
fn a_link_begins_hours_after_its_program_did() {
    let mut world = World::new(3, "nosteg", dsl(), all(Fate::Fine));
    world.now = Time::from_secs(10_000);
    let mut task = Task::new(3, 10_000, 10_000);
    world.carry(&mut task, Duration::from_secs(60));
    assert!(task.is_whole());
    assert_eq!(world.ends, [Some(Ending::Done); 2]);
}

#[test]
fn a_long_fat_line_is_filled_and_windows_grow_for_it() {
    // 200 Mbit/s and 300 ms: 7.5 MB under way.
    let fates = all(Fate::Fine);
    let mut world = World::new(4, "nosteg", line(20_000_000, 200_000_000, 300), fates);
    let mut task = Task::new(4, 10, 40_000_000);
    world.carry(&mut task, MINUTES);
    assert!(task.is_whole());
    let elapsed = world.over;
    // Each of the six connections has 128 KiB under way at most: 5.2 MB/s.
    let rate = 40_000_000.0 / elapsed.secs_f64();
    assert!(rate > 3_500_000.0, "{rate}");
}

#[test]
fn strangers_are_told_apart_and_get_no_byte() {
    use anabranch_stego::{ConnId, Input, ServerOutput};
    let mut world = World::new(5, "nosteg", dsl(), all(Fate::Fine));
    for (number, probe) in
        [&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], &[7; 56], &[0; 300]].into_iter().enumerate()
    {
        let id = ConnId(1_000 + number as u64);
        world.server.handle(world.now, Input::Opened(id));
        world.server.handle(world.now, Input::Room(id, 9_000));
        for byte in probe {
            world.server.handle(world.now, Input::Bytes(id, &[*byte]));
        }
        let outputs: Vec<_> = std::iter::from_fn(|| world.server.poll(world.now)).collect();
        let expected = if probe.len() < 56 {
            vec![]
        } else {
            vec![ServerOutput::Stranger(id, probe[..56].to_vec())]
        };
        assert_eq!(outputs, expected);
    }
}

#[test]
fn a_visitor_of_the_web_is_handed_over_with_every_byte_that_he_said() {
    use anabranch_stego::{ConnId, Input, ServerOutput};
    let mut world = World::new(5, "http-text", dsl(), all(Fate::Fine));
    let request = b"GET /favicon.ico HTTP/1.1\r\nHost: a\r\n\r\n";
    let (id, slow) = (ConnId(1_000), ConnId(1_001));
    world.server.handle(world.now, Input::Opened(id));
    world.server.handle(world.now, Input::Opened(slow));
    for byte in request {
        assert_eq!(world.server.poll(world.now), None);
        world.server.handle(world.now, Input::Bytes(id, &[*byte]));
    }
    let output = world.server.poll(world.now);
    assert_eq!(output, Some(ServerOutput::Stranger(id, request.to_vec())));
    assert_eq!(world.server.treat_as_stranger(id), None, "he is known for what he is");
    world.server.handle(world.now, Input::Bytes(slow, b"GET /"));
    assert_eq!(world.server.treat_as_stranger(slow), Some(b"GET /".to_vec()));
    world.server.handle(world.now, Input::Bytes(slow, b"more"));
    assert_eq!(world.server.poll(world.now), None);
}
