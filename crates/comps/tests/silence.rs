//! Tests with paths that discard everything, and with servers that stay on one path. The splitter
//! cannot easily distinguish the two.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use anabranch_testkit::comps_world as world;

use std::collections::BTreeSet;
use std::time::Duration;

use anabranch_comps::{Config, DownReason, Event, Guess, Protocol, SessionId};
use anabranch_multipath::Time;
use anabranch_netem::LinkSettings;
use world::moving::{MigrationRule, Moving, ServerTraffic, session};
use world::{Follower, Server, Stubborn, World, client, config, link, numbered};

const MS: Duration = Duration::from_millis(1);
const WIREGUARD: Guess = Guess::Is(Protocol::WireGuard);

fn ms(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn carries(protocol: Guess, settings: Config) -> Config {
    Config { protocol, ..settings }
}

fn downs<S: Server>(world: &World<S>) -> Vec<(Time, u16, DownReason)> {
    let down = |(time, event): &(Time, Event)| match event {
        Event::Down { path, reason, .. } => Some((*time, path.0, *reason)),
        _ => None,
    };
    world.events.iter().filter_map(down).collect()
}

/// Returns the time of the first report that the server stays on one path, that path, and whether
/// the server had followed its client before.
fn skewed<S: Server>(world: &World<S>) -> Option<(Time, u16, bool)> {
    world.events.iter().find_map(|(time, event)| match event {
        Event::Skewed { path, followed, .. } => Some((*time, path.0, *followed)),
        _ => None,
    })
}

/// Runs a session for 10 s. Path 1 discards everything from the start.
fn swallowed(settings: Config, every: Duration) -> World<Follower> {
    let mut world = World::new(settings, Follower::default());
    world.cut(1, true);
    world.stream(client(0), every, ms(10_000));
    world
}

#[test]
fn wireguard_and_mosh_leave_a_path_that_swallows_within_three_seconds() {
    for protocol in [Protocol::WireGuard, Protocol::Mosh] {
        for (paths, every) in [(2, "100ms"), (3, "100ms"), (2, "10ms"), (3, "50p"), (3, "500ms")] {
            let settings = carries(Guess::Is(protocol), config(paths, "round-robin", every));
            let mut world = swallowed(settings, 5 * MS);
            let downs = downs(&world);
            let [(at, 1, DownReason::Silent)] = downs[..] else { panic!("{every}: {downs:?}") };
            assert!(at <= ms(3700), "{paths} paths, {every}: a third of that is use: {at:?}");
            assert!(skewed(&world).is_none());
            world.cut(1, false);
            world.stream(client(0), 5 * MS, ms(14_000));
            assert!(world.has_event(|event| matches!(event, Event::Up { .. })), "{every}");
        }
    }
}

#[test]
fn a_ping_now_and_then_finds_a_path_that_swallows_too() {
    for pause in [200, 1000, 5000] {
        let settings = Config {
            idle: Duration::from_secs(600),
            ..carries(WIREGUARD, config(2, "round-robin", "100ms"))
        };
        let mut world = World::new(settings, Follower::default());
        world.cut(1, true);
        world.stream(client(0), pause * MS, Time::ZERO + pause * MS * 40);
        let downs = downs(&world);
        let [(left, 1, DownReason::Silent)] = downs[..] else { panic!("{pause} ms: {downs:?}") };
        let is_lost = |sent: &&world::Sent| sent.path.0 == 1 && sent.time < left;
        let lost = world.sent.iter().filter(is_lost).count();
        assert!(lost <= 15, "{pause} ms: {lost} pings");
    }
}

#[test]
fn one_silent_path_among_two_that_answer_swallows() {
    for every in ["10ms", "100ms", "500ms", "50p"] {
        let world = swallowed(config(3, "round-robin", every), 5 * MS);
        let downs = downs(&world);
        let [(at, 1, DownReason::Silent)] = downs[..] else { panic!("{every}: {downs:?}") };
        assert!(at <= ms(3700), "{every}: {at:?}");
        assert!(skewed(&world).is_none(), "{every}");
    }
}

#[test]
fn while_it_is_undecided_nothing_is_lost_then_the_silent_path_is_left() {
    let mut world = swallowed(config(2, "round-robin", "100ms"), 5 * MS);
    let downs = downs(&world);
    let [(at, 1, DownReason::NeverAnswered)] = downs[..] else { panic!("{downs:?}") };
    assert!((ms(3000)..=ms(4000)).contains(&at), "{at:?}");
    let answered: BTreeSet<&[u8]> =
        world.returned[&client(0)].iter().map(|(_, datagram)| &datagram[..]).collect();
    let missing = |sent: &&world::Sent| !answered.contains(&sent.datagram[..]);
    let lost: Vec<Time> = world.sent.iter().filter(missing).map(|sent| sent.time).collect();
    let (first, rest): (Vec<Time>, Vec<Time>) = lost.iter().partition(|time| **time < ms(800));
    assert!(first.len() <= 65, "before it was doubted: {}", first.len());
    assert!(rest.iter().all(|time| *time >= ms(9970)), "later on: {rest:?}");
    world.cut(1, false);
    world.stream(client(0), 5 * MS, ms(14_000));
    assert!(world.counts(ms(13_000), ms(14_000))[1] > 50, "it is tried again");
}

#[test]
fn a_server_that_only_ever_answered_on_one_path_leaves_it_undecided() {
    let mut world = World::new(config(3, "round-robin", "100ms"), Stubborn::default());
    world.stream(client(0), 5 * MS, ms(10_000));
    let downs = downs(&world);
    assert_eq!(downs.len(), 2, "{downs:?}");
    let reasons = downs.iter().map(|(at, _, reason)| (*at <= ms(4500), *reason));
    assert!(reasons.clone().all(|down| down == (true, DownReason::NeverAnswered)), "{downs:?}");
}

#[test]
fn silent_paths_are_kept_if_the_user_says_so() {
    let settings = Config { keep_silent_paths: true, ..config(3, "round-robin", "100ms") };
    let mut world = World::new(settings, Stubborn::default());
    world.stream(client(0), 5 * MS, ms(10_000));
    assert_eq!(downs(&world), []);
    assert!(matches!(skewed(&world), Some((_, 0, false))), "and it is reported");
    let snapshot = world.core.snapshot();
    assert!(snapshot.paths[1].up.datagrams > 500 && snapshot.paths[1].down.datagrams == 0);
    assert_eq!(snapshot.paths.iter().map(|path| path.copies).sum::<u64>(), 0);
}

fn links(paths: usize, delays: [u64; 3]) -> Vec<LinkSettings> {
    let of = |delay: u64| LinkSettings { delay: delay as u32 * MS, queue: 1 << 20, ..link() };
    delays.into_iter().map(of).take(paths).collect()
}

#[test]
fn a_server_that_stops_following_makes_no_path_look_dead_and_is_named() {
    for says in [ServerTraffic::Echo, ServerTraffic::Bulk] {
        for (paths, moves) in [
            (3, MigrationRule::Times(2)),
            (3, MigrationRule::Times(1)),
            (2, MigrationRule::Times(2)),
            (2, MigrationRule::EachTwoSeconds),
            (3, MigrationRule::EachTwoSeconds),
        ] {
            for seed in 0..20 {
                let settings = Config { seed, ..config(paths, "uniform", "100ms") };
                let server = Moving::new(moves, says);
                let world = session(settings, server, &links(paths, [10; 3]), 12);
                let about = format!("{says:?}, {paths} paths, {moves:?}, seed {seed}");
                assert_eq!(downs(&world), [], "{about}");
                let up = world.counts(ms(2000), ms(12_000));
                let (least, all) = (up.iter().min().unwrap(), up.iter().sum::<usize>());
                assert!(least * paths * 2 > all, "{about}: the uplink stays split: {up:?}");
                let Some((at, ..)) = skewed(&world) else { panic!("{about}: not named") };
                assert!(at <= ms(10_000), "{about}: {at:?}");
            }
        }
    }
}

#[test]
fn nor_does_any_path_look_dead_where_a_round_trip_is_longer_than_a_visit() {
    for says in [ServerTraffic::Echo, ServerTraffic::Bulk] {
        for moves in
            [MigrationRule::Times(1), MigrationRule::Times(2), MigrationRule::EachTwoSeconds]
        {
            for (paths, delay) in [(2, 20), (2, 40), (2, 80), (3, 20), (3, 40), (3, 80)] {
                for seed in 0..2 {
                    let schedule = ["uniform", "round-robin"][seed as usize];
                    let settings = Config { seed, ..config(paths, schedule, "100ms") };
                    let server = Moving::new(moves, says);
                    let world = session(settings, server, &links(paths, [delay; 3]), 10);
                    let about = format!("{says:?}, {paths}, {delay}, {moves:?}, {schedule} {seed}");
                    assert_eq!(downs(&world), [], "{about}");
                }
            }
        }
    }
}

#[test]
fn a_server_that_follows_is_never_accused() {
    let mut runs = 0;
    for says in [ServerTraffic::Echo, ServerTraffic::Bulk] {
        for moves in [MigrationRule::Always, MigrationRule::Validated] {
            for (paths, delays) in [(2, [30; 3]), (3, [10; 3]), (3, [60; 3]), (3, [5, 30, 60])] {
                for seed in 0..13 {
                    let schedule = ["weighted:4", "round-robin", "uniform"][seed as usize % 3];
                    let settings = Config { seed, ..config(paths, schedule, "100ms") };
                    let server = Moving::new(moves, says);
                    let world = session(settings, server, &links(paths, delays), 4);
                    let about = format!("{says:?}, {moves:?}, {delays:?}, {schedule}, seed {seed}");
                    assert_eq!((skewed(&world), downs(&world)), (None, vec![]), "{about}");
                    runs += 1;
                }
            }
        }
    }
    assert!(runs >= 200);
}

#[test]
fn a_path_that_dies_under_a_download_is_left_though_the_server_goes_on_for_a_while() {
    for (paths, delay) in [(2, 10), (3, 10), (2, 40), (3, 40)] {
        let server = Moving::new(MigrationRule::Validated, ServerTraffic::Bulk);
        let links = links(paths, [delay; 3]);
        let mut world = World::with_links(config(paths, "round-robin", "100ms"), server, &links);
        let (mut number, mut before) = (0, 0);
        while world.now < ms(8000) {
            if world.now == ms(2000) {
                world.cut(1, true);
            }
            let returned = world.returned.get(&client(0)).map_or(0, Vec::len);
            // The client sends a probe every 20 ms, like a sender that receives nothing any more.
            let due =
                (returned - before).max(usize::from(world.now.nanos().is_multiple_of(20_000_000)));
            before = returned;
            for _ in 0..due {
                number += 1;
                world.client(client(0), &numbered(number));
            }
            let next = world.now + MS;
            world.run_until(next);
        }
        let downs = downs(&world);
        assert!(matches!(downs[..], [(_, 1, DownReason::Silent)]), "{paths}, {delay}: {downs:?}");
        assert!(downs[0].0 <= ms(6500), "{paths}, {delay}: {downs:?}");
    }
}

#[test]
fn a_handshake_by_a_path_that_swallows_goes_on_by_another() {
    let mut initial = vec![0xc0, 0, 0, 0, 1, 8];
    initial.extend(b"invented\x00\x00\x44\xb0");
    initial.resize(initial.len() + 1200, 0);
    let mut world = World::new(config(3, "round-robin", "100ms"), Follower::default());
    world.cut(0, true);
    for at in [0, 1000, 3000, 7000] {
        world.run_until(ms(at));
        world.client(client(0), &initial);
    }
    let paths: Vec<u16> = world.sent.iter().map(|sent| sent.path.0).collect();
    assert_eq!(paths[..2], [0, 1]);
    assert!(paths[2..].iter().all(|path| *path == 1), "that one answers: {paths:?}");
    let pinned = |event: &Event| matches!(event, Event::Pinned { session: SessionId(0), .. });
    assert_eq!(world.events.iter().filter(|(_, event)| pinned(event)).count(), 2);
}
