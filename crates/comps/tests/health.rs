//! Tests of paths that fail, that work again, or that only seem to fail.

use anabranch_testkit::comps_world as world;

use std::time::Duration;

use anabranch_comps::{Config, DownReason, Event, Failure, Input, SessionId, TupleId};
use anabranch_multipath::{PathId, Time};
use anabranch_netem::LinkSettings;
use world::{DELAY, Follower, Mute, SeenAddress, Server, World, client, config, link, numbered};

const MS: Duration = Duration::from_millis(1);

fn ms(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn downs<S: Server>(world: &World<S>) -> Vec<(Time, u16, DownReason)> {
    let down = |(time, event): &(Time, Event)| match event {
        Event::Down { path, reason, .. } => Some((*time, path.0, *reason)),
        _ => None,
    };
    world.events.iter().filter_map(down).collect()
}

fn ups<S: Server>(world: &World<S>) -> Vec<(Time, u16)> {
    let up = |(time, event): &(Time, Event)| match event {
        Event::Up { path, .. } => Some((*time, path.0)),
        _ => None,
    };
    world.events.iter().filter_map(up).collect()
}

/// Cuts path 1 from 2 s to 8 s, while a client sends every 5 ms. Returns the times at which the
/// session left the path and used it again.
fn cut_and_restore(every: &str, links: &[LinkSettings]) -> (Time, Time) {
    let mut world = World::with_links(config(3, "round-robin", every), Follower::default(), links);
    world.stream(client(0), 5 * MS, ms(2000));
    world.cut(1, true);
    world.stream(client(0), 5 * MS, ms(8000));
    world.cut(1, false);
    world.stream(client(0), 5 * MS, ms(20_000));
    let (downs, ups) = (downs(&world), ups(&world));
    assert_eq!((downs.len(), ups.len()), (1, 1), "{every}: {downs:?} {ups:?}");
    assert_eq!((downs[0].1, downs[0].2, ups[0].1), (1, DownReason::Silent, 1));
    let shares = world.counts(ms(15_000), ms(20_000));
    assert!(shares.iter().all(|&count| count >= 200), "{every}: all paths carry again: {shares:?}");
    (downs[0].0, ups[0].0)
}

#[test]
fn a_silent_path_is_left_after_a_second_of_use_and_comes_back() {
    for every in ["10ms", "100ms", "1s", "50p"] {
        let (down, up) = cut_and_restore(every, &vec![link(); 3]);
        // The path is in use for a third of the time. So one second of use takes three seconds,
        // plus the rest of a run.
        assert!((ms(3000)..=ms(6100)).contains(&down), "{every}: left at {down:?}");
        assert!((ms(8000)..=ms(9600)).contains(&up), "{every}: back at {up:?}");
    }
}

#[test]
fn a_path_slower_than_the_others_comes_back_too() {
    let mut links = vec![link(); 3];
    links[1].delay = DELAY + 25 * MS;
    let (_, up) = cut_and_restore("100ms", &links);
    assert!(up <= ms(12_000), "a copy must outrun its original by 25 ms: back at {up:?}");
}

/// A server that follows its client like [`Follower`], but answers only datagrams that begin with
/// 0xaa. Mosh likewise does not answer acknowledgements.
#[derive(Default)]
struct Choosy {
    newest: Option<SeenAddress>,
}

impl Server for Choosy {
    fn receive(
        &mut self,
        _now: Time,
        from: SeenAddress,
        datagram: &[u8],
    ) -> Vec<(SeenAddress, Vec<u8>)> {
        self.newest = Some(from);
        let answer = (datagram[0] == 0xaa).then(|| (from, datagram.to_vec()));
        answer.into_iter().collect()
    }
}

#[test]
fn a_path_comes_back_though_the_datagram_after_each_pause_is_one_that_nobody_answers() {
    let mut world = World::new(config(2, "round-robin", "100ms"), Choosy::default());
    let talk = |world: &mut World<Choosy>, seconds: u64| {
        for _ in 0..seconds * 10 {
            world.client(client(0), &[0xbb; 60]);
            let next = world.now + 50 * MS;
            world.run_until(next);
            world.client(client(0), &[0xaa; 60]);
            let next = world.now + 50 * MS;
            world.run_until(next);
        }
    };
    talk(&mut world, 2);
    world.cut(1, true);
    talk(&mut world, 5);
    assert_eq!(downs(&world).len(), 1);
    world.cut(1, false);
    talk(&mut world, 3);
    assert_eq!(ups(&world).len(), 1, "{:?}", ups(&world));
}

#[test]
fn a_total_outage_is_no_paths_fault() {
    let mut world = World::new(config(3, "round-robin", "100ms"), Follower::default());
    world.stream(client(0), 5 * MS, ms(2000));
    (0..3).for_each(|path| world.cut(path, true));
    world.stream(client(0), 5 * MS, ms(12_000));
    assert_eq!(downs(&world), []);
    (0..3).for_each(|path| world.cut(path, false));
    world.stream(client(0), 5 * MS, ms(14_000));
    let shares = world.counts(ms(13_000), ms(14_000));
    assert!(shares.iter().all(|&count| count > 50), "{shares:?}");
}

#[test]
fn the_only_path_in_use_is_left_when_it_goes_silent() {
    let mut world = World::new(config(2, "round-robin", "never"), Follower::default());
    world.stream(client(0), 20 * MS, ms(1000));
    world.cut(0, true);
    world.stream(client(0), 20 * MS, ms(4000));
    let downs = downs(&world);
    assert_eq!(downs.len(), 1, "{downs:?}");
    assert!(downs[0].1 == 0 && downs[0].0 <= ms(2100), "{downs:?}");
    assert!(
        world.returned[&client(0)].iter().any(|(time, _)| *time > ms(3500)),
        "the session goes on"
    );
}

#[test]
fn one_way_traffic_makes_no_path_look_dead() {
    let mut world = World::new(config(3, "round-robin", "100ms"), Mute);
    world.stream(client(0), 5 * MS, ms(10_000));
    assert_eq!(downs(&world), []);
}

#[test]
fn a_local_error_takes_a_path_out_at_once_and_its_absence_brings_it_back() {
    let mut world = World::new(config(2, "round-robin", "10p"), Follower::default());
    world.stream(client(0), 5 * MS, ms(1000));
    let failure = Failure::Unreachable;
    let error = Input::Failed {
        session: SessionId(0),
        tuple: TupleId(1),
        failure,
        datagrams: 1,
        bytes: 200,
    };
    world.feed(error);
    assert_eq!(downs(&world), [(ms(1000), 1, DownReason::Unreachable)]);
    world.cut(1, true);
    world.stream(client(0), 5 * MS, ms(1900));
    assert_eq!(world.counts(ms(1001), ms(1900))[1], 0, "nothing leaves by it");
    world.cut(1, false);
    world.stream(client(0), 5 * MS, ms(4000));
    assert_eq!(ups(&world).len(), 1);
    assert_eq!(world.core.snapshot().paths[1].drops.unreachable, 1);
}

#[test]
fn a_closed_port_of_the_server_is_not_the_paths_fault() {
    let mut world = World::new(config(2, "round-robin", "10p"), Follower::default());
    world.stream(client(0), 5 * MS, ms(100));
    let failure = Failure::Refused;
    world.feed(Input::Failed {
        session: SessionId(0),
        tuple: TupleId(1),
        failure,
        datagrams: 0,
        bytes: 0,
    });
    assert_eq!(downs(&world), []);
    assert_eq!(world.core.snapshot().paths[1].refused, 1);
}

#[test]
fn with_no_path_left_datagrams_wait_then_drop_and_what_still_waits_goes_when_one_returns() {
    let mut world = World::new(config(2, "round-robin", "10p"), Follower::default());
    world.stream(client(0), 5 * MS, ms(100));
    let broken = |path, broken| Input::Path { path: PathId(path), broken };
    world.feed(broken(0, Some(DownReason::Interface)));
    world.feed(broken(1, Some(DownReason::Interface)));
    let before = world.sent.len();
    world.stream(client(0), 5 * MS, ms(6000));
    assert_eq!(world.sent.len(), before, "nothing leaves");
    assert_eq!(world.core.snapshot().waiting, 128, "the queue is bounded");
    assert_eq!(world.core.snapshot().no_path, 1180 - 128);
    world.feed(broken(1, None));
    assert_eq!(world.sent.len(), before + 128);
    world.run_until(ms(7000));
    assert_eq!(world.core.snapshot().waiting, 0);
}

#[test]
fn what_waits_too_long_is_dropped() {
    let mut world = World::new(config(1, "round-robin", "10p"), Mute);
    world.feed(Input::Path { path: PathId(0), broken: Some(DownReason::Interface) });
    world.client(client(0), &numbered(1));
    world.run_until(ms(3100));
    let snapshot = world.core.snapshot();
    assert_eq!((snapshot.waiting, snapshot.no_path), (0, 1));
}

#[test]
fn idle_paths_are_kept_open_only_by_copies_of_the_sessions_own_keep_alives() {
    let mut world = World::new(config(3, "round-robin", "never"), Follower::default());
    world.stream(client(0), 10 * MS, ms(500));
    // Path 0 breaks for a moment, so that path 1 gets a NAT mapping to preserve. Path 2 has no
    // mapping.
    world.feed(Input::Path { path: PathId(0), broken: Some(DownReason::Interface) });
    world.stream(client(0), 10 * MS, ms(1000));
    world.feed(Input::Path { path: PathId(0), broken: None });
    let before = world.sent.len();
    world.run_until(ms(60_000));
    assert_eq!(world.sent.len(), before, "a silent session sends nothing of its own");
    world.client(client(0), &numbered(u64::MAX >> 8));
    let paths: Vec<u16> = world.sent[before..].iter().map(|sent| sent.path.0).collect();
    assert_eq!(paths, [1, 0], "the original, and one copy for the idle path");
    assert_eq!(world.core.snapshot().paths[0].copies, 1);
}

#[test]
fn round_trip_times_are_read_off_a_server_that_follows() {
    let mut links = vec![link(); 2];
    links[1].delay = 3 * DELAY;
    let mut world =
        World::with_links(config(2, "round-robin", "500ms"), Follower::default(), &links);
    world.stream(client(0), 5 * MS, ms(5000));
    let rtts: Vec<_> =
        world.core.snapshot().paths.iter().map(|path| path.rtt.unwrap().as_millis()).collect();
    assert_eq!(rtts, [20, 60]);
}

#[test]
fn a_path_that_dies_while_the_session_rests_is_found_silent_too() {
    for pause_end in (5000..5300).step_by(50) {
        let mut world = World::new(config(3, "round-robin", "100ms"), Follower::default());
        world.stream(client(0), 5 * MS, ms(1900));
        world.run_until(ms(2200));
        world.cut(1, true);
        world.run_until(ms(pause_end));
        world.stream(client(0), 5 * MS, ms(10_000));
        let downs = downs(&world);
        assert!(matches!(downs[..], [(_, 1, DownReason::Silent)]), "{pause_end}: {downs:?}");
        assert!(downs[0].0 < ms(pause_end + 4500), "{pause_end}: {downs:?}");
    }
}

#[test]
fn an_error_on_top_of_silence_does_not_bring_a_dead_path_back() {
    let mut world = World::new(config(2, "round-robin", "100ms"), Follower::default());
    world.stream(client(0), 5 * MS, ms(2000));
    world.cut(1, true);
    world.stream(client(0), 5 * MS, ms(6000));
    let failure = Failure::Unreachable;
    world.feed(Input::Failed {
        session: SessionId(0),
        tuple: TupleId(1),
        failure,
        datagrams: 0,
        bytes: 0,
    });
    world.stream(client(0), 5 * MS, ms(12_000));
    assert_eq!((downs(&world).len(), ups(&world).len()), (1, 0));
}

#[test]
fn what_waits_for_one_path_is_not_kept_young_by_the_comings_and_goings_of_others() {
    let config =
        Config { handshake: Some(1), handshake_scheduled: false, ..config(2, "round-robin", "1p") };
    let mut world = World::new(config, Mute);
    world.feed(Input::Path { path: PathId(1), broken: Some(DownReason::Interface) });
    let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07example\x03org\0\0\x01\0\x01";
    world.client(client(0), query);
    assert_eq!(world.core.snapshot().waiting, 1, "a query waits for its own path");
    for step in 1..5 {
        world.run_until(ms(step * 1000));
        world.feed(Input::Path { path: PathId(0), broken: Some(DownReason::Interface) });
        world.feed(Input::Path { path: PathId(0), broken: None });
    }
    assert_eq!(world.core.snapshot().waiting, 0);
}

#[test]
fn before_a_far_end_a_path_is_down_when_the_driver_says_so_and_nothing_is_copied() {
    let settings = Config { far_end: true, ..config(3, "round-robin", "100ms") };
    let mut world = World::new(settings, Follower::default());
    world.stream(client(0), 5 * MS, ms(2000));
    world.cut(1, true);
    world.stream(client(0), 5 * MS, ms(8000));
    assert_eq!(downs(&world), [], "a far end answers by a schedule of its own");
    let unheard = Some(DownReason::Unheard);
    world.feed(Input::Path { path: PathId(1), broken: unheard });
    world.stream(client(0), 5 * MS, ms(12_000));
    assert_eq!(world.counts(ms(8010), ms(12_000))[1], 0, "nothing tries it by itself");
    world.cut(1, false);
    world.feed(Input::Path { path: PathId(1), broken: None });
    world.stream(client(0), 5 * MS, ms(16_000));
    assert!(world.counts(ms(12_010), ms(16_000))[1] >= 200);
    // With a splitter, a keep-alive after a long silence is copied to idle paths. With a far end,
    // it is not.
    world.run_until(ms(50_000));
    world.client(client(0), &numbered(1));
    world.run_until(ms(51_000));
    let copies: u64 = world.core.snapshot().paths.iter().map(|path| path.copies).sum();
    assert_eq!(copies, 0);
}
