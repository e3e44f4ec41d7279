//! Tests of the random delay before the split: order, range, limits, and agreement with the lab.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use anabranch_testkit::comps_world as world;

use std::time::Duration;

use anabranch_comps::{Batch, Config};
use anabranch_multipath::{Assignment, PathView, Splitter, Time, seed, trace};
use world::{Follower, Mute, World, client, config, numbered};

const MS: Duration = Duration::from_millis(1);

fn jittery(paths: usize, every: &str, jitter: &str) -> Config {
    Config { jitter: Some(jitter.parse().unwrap()), ..config(paths, "weighted:4", every) }
}

/// Returns the times of 80 bursts, 30 ms apart, with five datagrams each.
fn times() -> Vec<Time> {
    (0..400).map(|n| Time::from_micros(n / 5 * 30_000 + n % 5 * 70)).collect()
}

/// Sends a datagram at each of `times`, and waits until all have left. Returns the time, path and
/// content of each datagram that left.
fn deliveries(world: &mut World<Mute>, times: &[Time]) -> Vec<(Time, u16, Vec<u8>)> {
    for (number, &at) in (0..).zip(times) {
        world.run_until(at);
        world.client(client(0), &numbered(number));
    }
    world.run_until(world.now + Duration::from_secs(1));
    world.sent.iter().map(|sent| (sent.time, sent.path.0, sent.datagram.clone())).collect()
}

#[test]
fn each_datagram_leaves_once_in_order_and_within_the_range() {
    let mut world = World::new(jittery(3, "10ms", "2-20ms"), Mute);
    let left = deliveries(&mut world, &times());
    assert_eq!(left.len(), 400);
    for (number, ((at, _, datagram), received)) in (0..).zip(left.iter().zip(times())) {
        assert_eq!(*datagram, numbered(number), "the order is kept");
        assert!((2 * MS..=20 * MS).contains(&at.since(received)), "{:?}", at.since(received));
    }
    let snapshot = world.core.snapshot();
    assert_eq!((snapshot.hurried, snapshot.waiting, snapshot.no_path), (0, 0, 0));
}

#[test]
fn the_lab_delays_and_splits_as_the_splitter_does() {
    let config = jittery(3, "10ms", "0-20ms");
    let seed = config.seed;
    let dice = move |purpose: &str| seed::stream(seed, 0, purpose);
    let seconds: Vec<f64> = times().iter().map(|time| time.secs_f64()).collect();
    let sizes = vec![100; seconds.len()];
    let jitter = config.jitter.unwrap();
    let late = trace::delayed(jitter, dice("jitter"), &seconds, &sizes).unwrap();
    let mut splitter =
        Splitter::drawn(&config.schedule, 3, config.every, config.redraw, dice).unwrap();
    let mut path = |at| match splitter.assign(at, &[PathView::open(); 3], 1) {
        Assignment::Send { path, .. } => path.0,
        other => panic!("{other:?}"),
    };
    let nanos = |seconds: f64| Time::from_nanos((seconds * 1e9).round() as u64);
    let lab: Vec<(Time, u16)> = late.iter().map(|&at| (nanos(at), path(nanos(at)))).collect();
    let left = deliveries(&mut World::new(config, Mute), &times());
    let ours: Vec<(Time, u16)> = left.iter().map(|left| (left.0, left.1)).collect();
    assert_eq!(ours, lab);
}

#[test]
fn what_is_more_than_may_wait_leaves_early_in_order_and_nothing_is_lost() {
    let mut world = World::new(jittery(2, "never", "500-600ms"), Mute);
    let bytes = vec![7; 1_000 * 50];
    for _ in 0..100 {
        world.client_batch(client(0), Batch { bytes: &bytes, stride: 1_000, ecn: 0 });
    }
    let snapshot = world.core.snapshot();
    // The limit of 4,096 datagrams is reached before the limit of bytes.
    assert_eq!((snapshot.hurried, snapshot.waiting), (5_000 - 4_096, 4_096));
    assert_eq!(world.sent.len(), 5_000 - 4_096);
    let large = vec![7; 60_000];
    (0..40).for_each(|_| world.client(client(0), &large));
    let waiting: u64 = 5_040 - world.sent.len() as u64;
    assert!(waiting < 4_096, "4 MiB of them wait at most, not {waiting}");
    assert_eq!(world.core.snapshot().hurried, 5_040 - waiting);
    world.run_until(Time::from_secs(1));
    let snapshot = world.core.snapshot();
    assert_eq!((world.sent.len(), snapshot.waiting, snapshot.no_path), (5_040, 0, 0));
}

#[test]
fn many_sessions_share_what_may_wait() {
    let mut world = World::new(jittery(2, "never", "500-600ms"), Mute);
    (0..64).for_each(|number| world.client(client(number), b"first"));
    let bytes = vec![7; 60_000 * 10];
    for _ in 0..5 {
        world.client_batch(client(0), Batch { bytes: &bytes, stride: 60_000, ecn: 0 });
    }
    // 64 sessions share 64 MiB, so each session may hold 1 MiB: 17 datagrams of 60,000 bytes.
    let waiting = world.core.snapshot().waiting;
    assert_eq!(waiting, 63 + 17);
}

#[test]
fn round_trips_are_measured_from_where_datagrams_leave() {
    let mut world = World::new(jittery(1, "never", "0-50ms"), Follower::default());
    world.stream(client(0), 100 * MS, Time::from_secs(5));
    let rtt = world.core.snapshot().paths[0].rtt.unwrap();
    assert!((20 * MS..22 * MS).contains(&rtt), "{rtt:?}: two ways of 10 ms each");
}

#[test]
fn other_settings_delay_what_comes_and_keep_the_order() {
    let mut world = World::new(jittery(2, "never", "80-90ms"), Mute);
    world.client(client(0), &numbered(0));
    world.reconfigure(config(2, "weighted:4", "never"), &[Some(0), Some(1)]);
    world.client(client(0), &numbered(1));
    world.run_until(Time::ZERO + 79 * MS);
    assert_eq!(world.sent.len(), 0, "what waits keeps its time, and nothing overtakes it");
    world.run_until(Time::ZERO + 90 * MS);
    world.client(client(0), &numbered(2));
    let sent: Vec<_> = world.sent.iter().map(|sent| sent.datagram.clone()).collect();
    assert_eq!(sent, [numbered(0), numbered(1), numbered(2)]);
    assert_eq!(world.sent[2].time, Time::ZERO + 90 * MS, "and then nothing is delayed");
    world.reconfigure(jittery(2, "never", "10-20ms"), &[Some(0), Some(1)]);
    world.client(client(0), &numbered(3));
    assert_eq!(world.sent.len(), 3);
    world.run_until(Time::ZERO + 110 * MS);
    assert_eq!(world.sent.len(), 4);
}

#[test]
fn a_session_that_ends_counts_what_waited() {
    let mut world = World::new(jittery(2, "never", "500-600ms"), Mute);
    (0..3).for_each(|number| world.client(client(0), &numbered(number)));
    world.feed(anabranch_comps::Input::Shutdown);
    assert_eq!(world.core.snapshot().no_path, 3);
}
