//! Tests of changes of the settings while sessions are live.

use anabranch_testkit::comps_world as world;

use std::collections::BTreeSet;
use std::time::Duration;

use anabranch_comps::{Config, DownReason, Guess, Input, Protocol, TupleId};
use anabranch_multipath::{PathId, Time};
use world::{Follower, Mute, Server, Stubborn, World, client, config, numbered};

const EVERY: Duration = Duration::from_millis(5);

/// Returns the four-tuples of the datagrams that left on `link` from the time `from` to the time
/// `to`.
fn used<S: Server>(world: &World<S>, link: usize, from: Time, to: Time) -> BTreeSet<TupleId> {
    let sent = world.sent.iter().filter(|sent| sent.path.index() == link);
    sent.filter(|sent| (from..to).contains(&sent.time)).map(|sent| sent.tuple).collect()
}

#[test]
fn a_session_goes_on_where_a_path_is_added_and_another_removed() {
    let ports = |ports: &[u16]| Config { ports: ports.to_vec(), ..config(3, "round-robin", "4p") };
    let (change, end) = (Time::from_secs(2), Time::from_secs(4));
    let mut world = World::new(ports(&[1, 2, 3]), Follower::default());
    world.stream(client(0), EVERY, change);
    let before = world.core.snapshot();
    // The second path is removed, a new path is first, and the other two change their order.
    world.reconfigure(ports(&[1, 3, 1]), &[None, Some(2), Some(0)]);
    world.stream(client(0), EVERY, end);
    world.run_until(end + Duration::from_secs(1));
    let counts = world.counts(change, Time::MAX);
    assert_eq!(counts[1], 0, "the path that is gone");
    assert!([0, 2, 3].iter().all(|&link| counts[link] > 120), "{counts:?}");
    for link in [0, 2] {
        let (then, now) =
            (used(&world, link, Time::ZERO, change), used(&world, link, change, Time::MAX));
        assert_eq!(then, now, "a path that stays keeps its sockets");
    }
    assert_eq!(world.server.accepted, 800, "nothing is lost");
    assert_eq!(world.returned[&client(0)].len(), 800, "what was on its way comes too");
    let after = world.core.snapshot();
    assert_eq!(after.removed.up, before.paths[1].up);
    let all = after.paths.iter().chain([&after.removed]);
    assert_eq!(all.map(|path| path.up.datagrams).sum::<u64>(), 800);
    assert!(after.paths[2].up.datagrams > before.paths[0].up.datagrams, "it counts on");
}

#[test]
fn what_comes_late_by_a_removed_path_reaches_the_client_and_is_counted() {
    let mut world = World::new(config(2, "round-robin", "1p"), Stubborn::default());
    world.client(client(0), &numbered(0));
    // The answer is in flight on the first path when that path is removed.
    world.run_until(Time::from_millis(15));
    assert!(!world.returned.contains_key(&client(0)));
    world.reconfigure(config(1, "round-robin", "1p"), &[Some(1)]);
    world.run_until(Time::from_secs(1));
    assert_eq!(world.returned[&client(0)].len(), 1);
    assert_eq!(world.core.snapshot().removed.down.datagrams, 1);
    world.feed(Input::Shutdown);
}

#[test]
fn the_same_settings_again_change_nothing() {
    let run = |again: bool| {
        let settings = Config { ports: vec![2, 1, 2], ..config(3, "weighted", "~3p") };
        let mut world = World::new(settings.clone(), Follower::default());
        world.stream(client(0), EVERY, Time::from_secs(1));
        if again {
            world.reconfigure(settings, &[Some(0), Some(1), Some(2)]);
        }
        world.stream(client(0), EVERY, Time::from_secs(2));
        world.trace()
    };
    assert_eq!(run(false), run(true));
}

#[test]
fn another_schedule_holds_from_the_next_datagram_on() {
    let mut world = World::new(config(2, "round-robin", "1p"), Follower::default());
    world.stream(client(0), EVERY, Time::from_secs(1));
    world.reconfigure(config(2, "weights:1,0.000001", "1p"), &[Some(0), Some(1)]);
    world.stream(client(0), EVERY, Time::from_secs(2));
    assert_eq!(world.counts(Time::from_secs(1), Time::MAX), [200, 0]);
    let (schedule, paths) = (config(2, "weights:1,1,1", "1p"), [Some(PathId(0)), Some(PathId(1))]);
    assert!(world.core.reconfigure(world.now, schedule, &paths).is_err());
    world.stream(client(0), EVERY, Time::from_secs(3));
    assert_eq!(world.counts(Time::from_secs(2), Time::MAX), [200, 0], "all is as before");
}

#[test]
fn handshakes_take_the_handshake_path_from_then_on() {
    let dns = |handshake: Option<usize>| Config {
        handshake,
        handshake_scheduled: handshake.is_none(),
        protocol: Guess::Is(Protocol::Dns),
        ..config(3, "round-robin", "1p")
    };
    let mut world = World::new(dns(None), Follower::default());
    world.stream(client(0), EVERY, Time::from_secs(1));
    assert!(world.counts(Time::ZERO, Time::MAX).iter().all(|&count| count > 50));
    world.reconfigure(dns(Some(2)), &[Some(1), Some(2), Some(0)]);
    world.stream(client(0), EVERY, Time::from_secs(2));
    assert_eq!(world.counts(Time::from_secs(1), Time::MAX), [200, 0, 0]);
}

#[test]
fn what_waits_for_a_path_leaves_by_one_that_is_added() {
    let mut world = World::new(config(1, "round-robin", "1p"), Mute);
    world.feed(Input::Path { path: PathId(0), broken: Some(DownReason::Interface) });
    (0..5).for_each(|number| world.client(client(0), &numbered(number)));
    assert!(world.sent.is_empty());
    world.reconfigure(config(2, "round-robin", "1p"), &[Some(0), None]);
    assert_eq!(world.counts(Time::ZERO, Time::MAX), [0, 5], "the first is broken as before");
    assert!(!world.core.snapshot().paths[0].works);
}

#[test]
fn a_path_that_is_barred_to_a_session_stays_so() {
    let mut world = World::new(config(2, "uniform", "1p"), Follower::default());
    world.barred = vec![PathId(0)];
    world.stream(client(0), EVERY, Time::from_secs(1));
    world.barred = vec![PathId(1)];
    world.reconfigure(config(3, "uniform", "1p"), &[Some(1), Some(0), None]);
    world.stream(client(0), EVERY, Time::from_secs(2));
    let counts = world.counts(Time::ZERO, Time::MAX);
    assert!(counts[0] == 0 && counts[1] > 250 && counts[2] > 50, "{counts:?}");
}
