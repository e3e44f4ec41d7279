//! Tests of the choice of paths while all paths work. A run of the simulation depends only on its
//! scenario and its seed.

use anabranch_testkit::comps_world as world;

use std::time::Duration;

use anabranch_comps::{Batch, Config, Event, Input, SessionId};
use anabranch_multipath::{Assignment, PathView, Splitter, Time, seed};
use world::{Follower, Mute, World, client, config, lossy, numbered};

const MS: Duration = Duration::from_millis(1);

#[test]
fn time_slices_give_every_path_its_share_of_both_directions() {
    let mut world = World::new(config(3, "round-robin", "100ms"), Follower::default());
    world.stream(client(0), 2 * MS, Time::from_secs(6));
    let snapshot = world.core.snapshot();
    for path in &snapshot.paths {
        assert!((900..=1100).contains(&path.up.datagrams), "{snapshot:?}");
        assert!((900..=1100).contains(&path.down.datagrams), "{snapshot:?}");
    }
}

#[test]
fn a_batch_is_cut_at_the_boundary_and_nothing_is_lost_or_doubled() {
    let mut world = World::new(config(2, "round-robin", "50p"), Follower::default());
    let bytes: Vec<u8> = (0..100u8).flat_map(|n| vec![n | 0x80; 10]).collect();
    world.client_batch(client(0), Batch { bytes: &bytes, stride: 10, ecn: 0 });
    assert_eq!(world.counts(Time::ZERO, Time::MAX), [50, 50]);
    let left: Vec<u8> = world.sent.iter().flat_map(|sent| sent.datagram.clone()).collect();
    assert_eq!(left, bytes);
}

#[test]
fn rotating_ports_change_at_each_run_and_come_round() {
    let mut world = World::new(
        anabranch_comps::Config { ports: vec![4], ..config(1, "round-robin", "10p") },
        Follower::default(),
    );
    world.stream(client(0), MS, Time::from_millis(80));
    let tuples: Vec<u16> = world.sent.chunks(10).map(|run| run[0].tuple.0).collect();
    assert_eq!(tuples, [1, 2, 3, 0, 1, 2, 3, 0]);
    assert_eq!(world.core.snapshot().paths[0].switches, 7);
}

#[test]
fn each_session_has_its_own_draw() {
    let mut world = World::new(config(3, "weighted", "1p"), Mute);
    for _ in 0..1500 {
        for number in 0..2 {
            world.client(client(number), &numbered(u64::from(number)));
        }
    }
    let shares = |session: u64| {
        let of = |path: u16| {
            world
                .sent
                .iter()
                .filter(|s| s.session == SessionId(session) && s.path.0 == path)
                .count()
        };
        (0..3).map(of).collect::<Vec<_>>()
    };
    let difference: usize = shares(0).iter().zip(shares(1)).map(|(a, b)| a.abs_diff(b)).sum();
    assert!(difference > 150, "{:?} {:?}", shares(0), shares(1));
}

/// Returns the times of twenty loads, with pauses of 1.4 s between them. Each load has 100
/// datagrams, one per millisecond.
fn loads() -> impl Iterator<Item = Time> {
    (0..20).flat_map(|load| (0..100).map(move |ms| Time::from_millis(load * 1_500 + ms)))
}

/// Returns the path of each datagram of a session with the times of [`loads`].
fn paths_of_loads(config: Config) -> Vec<u16> {
    let mut world = World::new(config, Mute);
    for (number, at) in (0..).zip(loads()) {
        world.run_until(at);
        world.client(client(0), &numbered(number));
    }
    world.sent.iter().map(|sent| sent.path.0).collect()
}

#[test]
fn behind_a_silence_a_session_draws_anew_and_as_the_lab_does() {
    let redrawn = Config { redraw: "1s".parse().ok(), ..config(3, "weighted:0.01", "grow:5-20ms") };
    let seed = redrawn.seed;
    let dice = move |purpose: &str| seed::stream(seed, 0, purpose);
    let plan = (&redrawn.schedule, 3, redrawn.every, redrawn.redraw);
    // The lab splits traces with a splitter like this one.
    let mut alone = Splitter::drawn(plan.0, plan.1, plan.2, plan.3, dice).unwrap();
    let path = |at| match alone.assign(at, &[PathView::open(); 3], 1) {
        Assignment::Send { path, .. } => path.0,
        other => panic!("{other:?}"),
    };
    let expected: Vec<u16> = loads().map(path).collect();
    let paths = paths_of_loads(redrawn.clone());
    assert_eq!(paths, expected);
    let favourites = |paths: &[u16]| {
        let of = |load: &[u16]| {
            (0..3u16).max_by_key(|own| load.iter().filter(|path| *path == own).count())
        };
        paths.chunks(100).map(of).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(favourites(&paths).len(), 3, "each load has chances of its own");
    let kept = paths_of_loads(Config { redraw: None, ..redrawn.clone() });
    assert_eq!(favourites(&kept).len(), 1, "the session's chances: one path has nearly all");
    let patient = paths_of_loads(Config { redraw: "2s".parse().ok(), ..redrawn });
    assert_eq!(favourites(&patient).len(), 1, "1.4 s are no silence of 2 s");
}

#[test]
fn what_keeps_to_one_path_keeps_to_it_through_silences() {
    let redrawn = Config { redraw: "1s".parse().ok(), ..config(3, "weighted", "1p") };
    let mut world = World::new(redrawn, Mute);
    // The datagram is a DTLS ClientHello. A DTLS server identifies its client by the client's
    // address.
    let hello = [&[22, 0xfe, 0xfd][..], &[0; 8], &[0, 50], &[1], &[0; 49]].concat();
    for second in 0..30 {
        world.run_until(Time::from_secs(3 * second));
        world.client(client(0), &hello);
    }
    assert_eq!(world.sent.len(), 30);
    assert!(world.sent.iter().all(|sent| sent.path == world.sent[0].path));
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_does_not() {
    let run = |seed| {
        let mut config = config(3, "weighted", "~50p");
        config.seed = seed;
        let mut world = World::with_links(config, Follower::default(), &vec![lossy(0.05); 3]);
        world.duplicate = true;
        world.stream(client(0), MS, Time::from_secs(3));
        world.trace()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_further_session_shifts_nobody_elses_dice() {
    let run = |with_second: bool| {
        let mut world = World::new(config(3, "uniform", "5p"), Mute);
        for step in 0..500 {
            world.client(client(0), &numbered(step));
            if with_second {
                world.client(client(1), &numbered(step));
            }
        }
        let first = world.sent.iter().filter(|sent| sent.session == SessionId(0));
        first.map(|sent| sent.path).collect::<Vec<_>>()
    };
    assert_eq!(run(false), run(true));
}

#[test]
fn loss_reordering_and_duplication_are_survived() {
    let rough = anabranch_netem::LinkSettings { jitter: 8 * MS, reorder: true, ..lossy(0.1) };
    let mut world =
        World::with_links(config(3, "uniform", "10ms"), Follower::default(), &vec![rough; 3]);
    world.duplicate = true;
    world.stream(client(0), MS, Time::from_secs(5));
    world.run_until(Time::from_secs(6));
    let snapshot = world.core.snapshot();
    let up: u64 = snapshot.paths.iter().map(|path| path.up.datagrams - path.copies).sum();
    assert_eq!(up, 5000, "each datagram leaves exactly once");
    assert_eq!(snapshot.no_path, 0);
    assert!(world.returned[&client(0)].len() > 4000, "{}", world.returned[&client(0)].len());
}

#[test]
fn what_arrives_before_the_name_is_resolved_waits() {
    let mut world = World::new(config(2, "round-robin", "1p"), Follower::default());
    world.resolves = false;
    for number in 0..10 {
        world.client(client(0), &numbered(number));
    }
    assert!(world.sent.is_empty());
    world.feed(Input::Resolved { session: SessionId(0), found: true, barred: &[] });
    assert_eq!(world.counts(Time::ZERO, Time::MAX), [5, 5]);
}

#[test]
fn a_name_that_does_not_resolve_ends_the_session() {
    let mut world = World::new(config(2, "round-robin", "1p"), Mute);
    world.resolves = false;
    world.client(client(0), &numbered(0));
    world.feed(Input::Resolved { session: SessionId(0), found: false, barred: &[] });
    assert_eq!(world.core.snapshot().sessions, 0);
    assert!(world.has_event(|event| matches!(event, Event::Closed { .. })));
}
