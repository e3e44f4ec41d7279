//! Tests that a session which stays on one path, although it could be split, is reported with the
//! reason.

use anabranch_testkit::comps_world as world;

use std::time::Duration;

use anabranch_comps::{Config, DownReason, Event, Input, Protocol, StayReason};
use anabranch_multipath::{PathId, Time};
use world::{Follower, Mute, Server, Stubborn, World, client, config, numbered};

const MS: Duration = Duration::from_millis(1);

/// Returns a Handshake packet of QUIC version 1.
fn handshake() -> Vec<u8> {
    let mut packet = vec![0xe0, 0, 0, 0, 1, 1, b's', 1, b'c', 0x44, 0xb0];
    packet.resize(packet.len() + 1200, 0);
    packet
}

/// Returns a DTLS ClientHello.
fn hello() -> Vec<u8> {
    [&[22, 0xfe, 0xfd][..], &[0; 8], &[0, 50], &[1], &[0; 49]].concat()
}

/// Sends `datagram` every 50 ms for 10 s. Returns the reports of the session.
fn reports<S: Server>(world: &mut World<S>, datagram: &[u8]) -> Vec<(Time, u16, StayReason)> {
    while world.now < Time::from_secs(10) {
        world.client(client(0), datagram);
        let next = world.now + 50 * MS;
        world.run_until(next);
    }
    let report = |(at, event): &(Time, Event)| match event {
        Event::Kept { path, why, .. } => Some((*at, path.0, *why)),
        _ => None,
    };
    world.events.iter().filter_map(report).collect()
}

#[test]
fn a_handshake_without_end_is_reported_after_three_seconds() {
    // This server returns each datagram unchanged, so no packet with a short header arrives.
    let mut world = World::new(config(3, "round-robin", "100ms"), Stubborn::default());
    let reports = reports(&mut world, &handshake());
    assert_eq!(reports, [(Time::from_secs(3), world.sent[0].path.0, StayReason::Handshake)]);
    assert_eq!(world.core.snapshot().unsplit.first[0].1, StayReason::Handshake);
}

#[test]
fn a_protocol_that_keeps_to_one_path_is_reported() {
    let mut world = World::new(config(3, "round-robin", "100ms"), Mute);
    let reports = reports(&mut world, &hello());
    let [(at, _, StayReason::Protocol(Protocol::Dtls))] = reports[..] else {
        panic!("{reports:?}")
    };
    assert_eq!(at, Time::from_secs(3));
}

#[test]
fn a_session_whose_other_paths_are_gone_is_reported_and_again_after_it_was_split() {
    let mut world = World::new(config(2, "round-robin", "100ms"), Follower::default());
    let broken = |broken| Input::Path { path: PathId(1), broken };
    world.stream(client(0), 10 * MS, Time::from_secs(1));
    for _ in 0..2 {
        world.feed(broken(Some(DownReason::Interface)));
        let end = world.now + Duration::from_secs(5);
        world.stream(client(0), 10 * MS, end);
        world.feed(broken(None));
        let end = world.now + Duration::from_secs(1);
        world.stream(client(0), 10 * MS, end);
    }
    let events = world.events.iter().map(|(_, event)| event);
    let others = events
        .filter(|event| matches!(event, Event::Kept { why, .. } if *why == StayReason::OtherPaths));
    assert_eq!(others.count(), 2);
    assert_eq!(world.core.snapshot().unsplit.sessions, 0, "it was split");
}

#[test]
fn three_runs_of_the_schedule_are_waited_for() {
    let mut world = World::new(config(2, "round-robin", "2500ms"), Mute);
    assert_eq!(reports(&mut world, &hello())[0].0, Time::from_millis(7500));
}

#[test]
fn what_the_user_chose_is_not_reported() {
    let chosen = [
        config(3, "round-robin", "never"),
        config(1, "round-robin", "100ms"),
        Config { handshake: Some(1), handshake_scheduled: false, ..config(2, "uniform", "100ms") },
    ];
    for settings in chosen {
        let mut world = World::new(settings, Mute);
        assert_eq!(reports(&mut world, &handshake()), []);
    }
    let mut world = World::new(config(3, "weights:1,0,0", "100ms"), Mute);
    assert_eq!(reports(&mut world, &numbered(1)), []);
    assert_eq!(world.core.snapshot().unsplit.first[0].1, StayReason::Schedule);
}

#[test]
fn a_session_shorter_than_a_run_is_no_more_than_that() {
    let mut world = World::new(config(3, "round-robin", "100ms"), Mute);
    world.client(client(0), &numbered(1));
    assert_eq!(world.core.snapshot().unsplit.first[0].1, StayReason::Short);
}

#[test]
fn a_session_of_handshakes_alone_is_kept_on_their_path() {
    let chosen = Config { handshake: Some(1), ..config(3, "round-robin", "100ms") };
    let mut world = World::new(chosen, Mute);
    // The datagram is a handshake initiation of WireGuard.
    let mut initiation = vec![0; 148];
    initiation[0] = 1;
    assert_eq!(reports(&mut world, &initiation), []);
    assert_eq!(world.core.snapshot().unsplit.first[0].1, StayReason::HandshakePath);
}

#[test]
fn a_session_whose_other_paths_never_worked_is_kept_by_them() {
    let mut world = World::new(config(2, "round-robin", "100ms"), Follower::default());
    world.feed(Input::Path { path: PathId(1), broken: Some(DownReason::Interface) });
    world.stream(client(0), 10 * MS, Time::from_secs(2));
    assert_eq!(world.core.snapshot().unsplit.first[0].1, StayReason::OtherPaths);
}
