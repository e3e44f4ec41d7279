//! Tests with many clients: limits, idle times and loops.

use anabranch_testkit::comps_world as world;

use std::net::SocketAddr;
use std::time::Duration;

use anabranch_comps::{Batch, CloseReason, Config, Event, Input, SessionId, StayReason, Unsplit};
use anabranch_multipath::{Core as _, PathId, Time};
use world::{Follower, Mute, Server, World, client, config, numbered};

fn closed<S: Server>(world: &World<S>) -> Vec<(u64, CloseReason)> {
    let close = |(_, event): &(Time, Event)| match event {
        Event::Closed { session, reason } => Some((session.0, *reason)),
        _ => None,
    };
    world.events.iter().filter_map(close).collect()
}

#[test]
fn an_idle_session_expires_and_its_client_may_open_another() {
    let mut world =
        World::new(Config { idle: Duration::from_secs(5), ..config(2, "uniform", "1p") }, Mute);
    world.client(client(0), &numbered(0));
    world.run_until(Time::from_millis(4900));
    world.client(client(0), &numbered(1));
    world.run_until(Time::from_millis(9800));
    assert_eq!(closed(&world), []);
    world.run_until(Time::from_millis(10_000));
    assert_eq!(closed(&world), [(0, CloseReason::Idle)]);
    world.client(client(0), &numbered(2));
    assert_eq!(world.core.snapshot().sessions, 1);
    assert_eq!(world.sent.last().unwrap().session, SessionId(1));
}

#[test]
fn unanswered_sessions_make_room_before_answered_ones() {
    let limits = Config { sessions: 10, ..config(2, "uniform", "1p") };
    let mut world = World::new(limits, Follower::default());
    for number in 0..3 {
        world.client(client(number), &numbered(u64::from(number)));
    }
    world.run_until(Time::from_millis(100));
    for number in 100..1100 {
        world.client(client(number), &[0xff; 40]);
    }
    assert_eq!(world.core.snapshot().sessions, 10);
    assert!(closed(&world).iter().all(|(id, reason)| *id > 2 && *reason == CloseReason::Evicted));
}

#[test]
fn where_all_sessions_are_in_use_a_new_client_has_to_wait() {
    let limits = Config { sessions: 2, ..config(2, "uniform", "1p") };
    let mut world = World::new(limits, Follower::default());
    world.client(client(0), &numbered(0));
    world.client(client(1), &numbered(1));
    world.run_until(Time::from_millis(100));
    world.client(client(2), &numbered(2));
    assert_eq!(world.core.snapshot().sessions, 2);
    world.run_until(Time::from_secs(11));
    world.client(client(1), &numbered(3));
    world.client(client(2), &numbered(4));
    assert_eq!(closed(&world), [(0, CloseReason::Evicted)], "the one idle longest");
}

#[test]
fn our_own_socket_as_a_client_is_a_loop() {
    let mut world = World::new(config(1, "uniform", "1p"), Mute);
    world.feed(Input::Opened { local: client(7) });
    world.client(client(7), &numbered(0));
    let snapshot = world.core.snapshot();
    assert_eq!((snapshot.sessions, snapshot.looped), (0, 1));
    world.feed(Input::Shut { local: client(7) });
    world.client(client(7), &numbered(0));
    assert_eq!(world.core.snapshot().sessions, 1, "a port that another program took over");
}

#[test]
fn a_datagram_that_comes_back_again_and_again_as_new_clients_is_a_loop() {
    let mut world = World::new(config(1, "uniform", "1p"), Mute);
    for number in 0..100 {
        world.client(client(number), &numbered(42));
    }
    assert_eq!(world.core.snapshot().sessions, 8);
    assert!(world.has_event(|event| matches!(event, Event::Loop { .. })));
}

#[test]
fn the_end_closes_every_session() {
    let mut world = World::new(config(1, "uniform", "1p"), Mute);
    for number in 0..5 {
        world.client(client(number), &numbered(u64::from(number)));
    }
    world.feed(Input::Shutdown);
    assert_eq!(closed(&world).len(), 5);
    assert_eq!(world.core.next_timeout(), None);
}

#[test]
fn complaints_are_told_once_a_second_and_everything_is_counted() {
    let limits = Config { sessions: 2, ..config(1, "uniform", "1p") };
    let mut world = World::new(limits, Follower::default());
    world.feed(Input::Opened { local: client(7) });
    for number in 0..2 {
        world.client(client(number), &numbered(u64::from(number)));
    }
    world.run_until(Time::from_millis(100));
    for number in 0..1000 {
        world.client(client(7), &numbered(number));
        world.client(client(5), &numbered(1000 + number));
    }
    let count =
        |wanted: fn(&Event) -> bool| world.events.iter().filter(|(_, event)| wanted(event)).count();
    assert_eq!(count(|event| matches!(event, Event::Loop { .. })), 1);
    assert_eq!(count(|event| matches!(event, Event::Refused { .. })), 1);
    let snapshot = world.core.snapshot();
    assert_eq!((snapshot.looped, snapshot.refused), (1000, 1000));
}

#[test]
fn a_flood_from_ever_new_ports_opens_sessions_no_faster_than_the_limit() {
    let mut world = World::new(Config { sessions: 100, ..config(1, "uniform", "1p") }, Mute);
    for step in 0..20_000u64 {
        world.run_until(Time::from_micros(step * 50));
        world.client(client((step % 50_000) as u16), &numbered(step));
    }
    let opened =
        world.events.iter().filter(|(_, event)| matches!(event, Event::Opened { .. })).count();
    assert!((1000..=1150).contains(&opened), "100 at once and 1,000 a second: {opened}");
}

#[test]
fn what_a_closed_session_could_not_send_is_not_counted_as_sent() {
    let mut world = World::new(config(1, "uniform", "1p"), Mute);
    world.client(client(0), &numbered(1));
    world.feed(Input::Shutdown);
    let (session, tuple) = (SessionId(0), anabranch_comps::TupleId(0));
    let failure = anabranch_comps::Failure::Full;
    world.feed(Input::Failed { session, tuple, failure, datagrams: 1, bytes: 200 });
    let path = world.core.snapshot().paths[0];
    assert_eq!((path.up.datagrams, path.drops.full), (0, 1));
}

#[test]
fn a_client_that_speaks_to_two_servers_has_a_session_with_each() {
    let mut world = World::new(config(2, "round-robin", "1p"), Follower::default());
    let servers = [server(1), server(2)].map(Some);
    for round in 0..4 {
        for (number, server) in servers.into_iter().enumerate() {
            let datagram = numbered(100 * number as u64 + round);
            world.client_to(client(0), server, Batch::single(&datagram, 0));
        }
    }
    world.run_until(Time::from_secs(1));
    assert_eq!(world.wanted, [(SessionId(0), servers[0]), (SessionId(1), servers[1])].into());
    for (session, server) in [(SessionId(0), servers[0]), (SessionId(1), servers[1])] {
        let paths: Vec<_> = world
            .sent
            .iter()
            .filter(|sent| sent.session == session)
            .map(|sent| sent.path)
            .collect();
        let mut other = paths.clone();
        other.dedup();
        assert_eq!((paths.len(), other.len()), (4, 4), "each has its own turns");
        let answers = world.seems.iter().filter(|seems| **seems == (client(0), server));
        assert_eq!(answers.count(), 4);
    }
}

#[test]
fn a_path_that_does_not_lead_to_the_server_carries_nothing() {
    for datagram in [numbered(7), quic_initial()] {
        let mut world = World::new(config(3, "uniform", "1p"), Follower::default());
        world.barred = vec![PathId::at(0), PathId::at(2)];
        for number in 0..50 {
            let mut datagram = datagram.clone();
            datagram[20] = number;
            world.client(client(0), &datagram);
            world.run_until(world.now + Duration::from_millis(100));
        }
        assert_eq!(world.counts(Time::ZERO, Time::MAX), [0, 50, 0]);
        assert!(!world.has_event(|event| matches!(event, Event::Down { .. })));
    }
}

#[test]
fn a_session_that_no_path_leads_to_is_closed_and_nothing_of_it_leaves() {
    let mut world = World::new(config(2, "uniform", "1p"), Mute);
    world.barred = vec![PathId::at(0), PathId::at(1)];
    world.client(client(0), &numbered(0));
    assert_eq!(closed(&world), [(0, CloseReason::Unreachable)]);
    assert!(world.sent.is_empty());
}

fn server(number: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, number], 443))
}

/// Returns the first packet of a QUIC connection, with its unencrypted part (RFC 9000, section
/// 17.2.2).
fn quic_initial() -> Vec<u8> {
    let mut packet = vec![0xc3, 0, 0, 0, 1, 8];
    packet.extend([7; 8]);
    packet.extend([0, 0, 0x44, 0x9e]);
    packet.resize(1200, 0xa5);
    packet
}

fn told_of_silence<S: Server>(world: &World<S>) -> Vec<(u64, u64)> {
    let silence_of = |(at, event): &(Time, Event)| match event {
        Event::Unanswered { session, waited, .. } => {
            assert_eq!(at.since(Time::ZERO).as_secs(), waited.as_secs());
            Some((session.0, waited.as_secs()))
        }
        _ => None,
    };
    world.events.iter().filter_map(silence_of).collect()
}

#[test]
fn a_server_that_never_answers_is_told_of_and_blames_no_path() {
    let mut world = World::new(config(2, "uniform", "100ms"), Mute);
    world.stream(client(0), Duration::from_secs(1), Time::from_secs(100));
    assert_eq!(told_of_silence(&world), [(0, 10), (0, 30), (0, 70)]);
    assert!(!world.has_event(|event| matches!(event, Event::Down { .. })));
    let snapshot = world.core.snapshot();
    assert!(snapshot.paths.iter().all(|path| path.works && path.silent_sessions == 0));
}

#[test]
fn many_sessions_without_an_answer_are_one_line_in_ten_seconds() {
    let mut world = World::new(config(2, "uniform", "100ms"), Mute);
    for second in 0..12 {
        for number in 0..50 {
            world.client(client(number), &numbered(second * 100 + u64::from(number)));
        }
        world.run_until(Time::from_secs(second + 1));
    }
    assert_eq!(told_of_silence(&world).len(), 1);
}

#[test]
fn a_server_that_answered_once_and_is_silent_is_reported_and_so_is_its_return() {
    let mut world = World::new(config(2, "uniform", "100ms"), Follower::default());
    world.client(client(0), &numbered(0));
    world.run_until(Time::from_millis(100));
    assert_eq!(world.core.snapshot().silent, None);
    (0..2).for_each(|path| world.cut(path, true));
    let cut = world.now;
    world.stream(client(0), Duration::from_secs(1), Time::from_secs(20));
    assert_eq!(told_of_silence(&world), [(0, 10)]);
    let silent = world.core.snapshot().silent.unwrap();
    assert_eq!((silent.sessions, silent.waited.as_secs()), (1, 19));
    assert!(silent.last.unwrap() < cut);
    (0..2).for_each(|path| world.cut(path, false));
    world.stream(client(0), Duration::from_secs(1), Time::from_secs(25));
    let back =
        |event: &Event| matches!(event, Event::Answered { waited, .. } if waited.as_secs() == 19);
    assert!(world.has_event(back), "{:?}", world.events);
    assert_eq!(world.core.snapshot().silent, None);
}

/// Sends a client's datagrams at the times `asks`, in milliseconds after both paths were cut.
/// Returns the reported silences, in seconds.
fn silences_after_a_cut(asks: &[u64]) -> Vec<u64> {
    let mut world = World::new(config(2, "uniform", "100ms"), Follower::default());
    world.stream(client(0), Duration::from_millis(20), Time::from_secs(1));
    world.run_until(Time::from_secs(2));
    (0..2).for_each(|path| world.cut(path, true));
    let cut = world.now;
    for &ask in asks {
        world.run_until(cut + Duration::from_millis(ask));
        world.client(client(0), &numbered(world.now.nanos()));
    }
    world.run_until(cut + Duration::from_secs(25));
    let waits = world.events.iter().filter_map(|(_, event)| match event {
        Event::Unanswered { waited, .. } => Some(waited.as_secs()),
        _ => None,
    });
    waits.collect()
}

#[test]
fn the_last_datagrams_of_a_program_that_has_ended_wait_for_no_answer() {
    // The client sends an acknowledgement. QUIC's CONNECTION_CLOSE follows at once or after a
    // while.
    for asks in [&[0, 5][..], &[0, 25, 30], &[0, 25, 900], &[0, 4_500], &[0, 9_900]] {
        assert_eq!(silences_after_a_cut(asks), [0; 0], "{asks:?} ms");
    }
    // Probes and handshakes continue while the program runs.
    let probes = [0, 70, 210, 490, 1_050, 2_170, 4_410, 8_890, 17_850];
    assert_eq!(silences_after_a_cut(&probes), [10]);
    assert_eq!(silences_after_a_cut(&[0, 5_200, 10_400, 15_600]), [10], "WireGuard's handshakes");
}

#[test]
fn a_client_that_changes_its_port_meanwhile_still_waits_for_a_server_that_was_heard() {
    let mut world = World::new(config(2, "uniform", "100ms"), Follower::default());
    world.client(client(0), &numbered(0));
    world.run_until(Time::from_millis(100));
    (0..2).for_each(|path| world.cut(path, true));
    let cut = world.now;
    // Mosh's client changes its port after 10 s without an answer.
    world.stream(client(1), Duration::from_secs(1), Time::from_secs(12));
    let last = world.events.iter().find_map(|(_, event)| match event {
        Event::Unanswered { session, last, .. } => Some((session.0, *last)),
        _ => None,
    });
    let Some((1, Some(last))) = last else { panic!("{last:?}: {:?}", world.events) };
    assert!(last < cut);
    assert_eq!(world.core.snapshot().silent.unwrap().last, Some(last));
}

#[test]
fn keep_alives_of_wireguard_are_answered_by_nobody() {
    let settings = Config { idle: Duration::from_secs(900), ..config(2, "uniform", "100ms") };
    let mut world = World::new(settings, Mute);
    for second in 0..300u64 {
        // The packet consists of type, receiver, counter, and the tag of an empty payload
        // (WireGuard's paper, section 5.4.6).
        let keepalive = [&[4, 0, 0, 0, 7, 7, 7, 7][..], &second.to_le_bytes(), &[9; 16]].concat();
        world.client(client(0), &keepalive);
        world.run_until(Time::from_secs(second));
    }
    assert_eq!(told_of_silence(&world), []);
}

#[test]
fn sessions_shorter_than_a_run_are_counted_as_never_split() {
    let mut world = World::new(config(2, "round-robin", "3p"), Mute);
    for number in 0..14 {
        let datagrams = if number == 4 { 4 } else { 3 };
        for datagram in 0..datagrams {
            world.client(client(number), &numbered(100 * u64::from(number) + datagram));
        }
    }
    let alive = world.core.snapshot();
    assert_eq!((alive.opened, alive.unsplit.sessions), (14, 13));
    assert_eq!(alive.unsplit.first.len(), Unsplit::NAMED);
    assert!(
        alive.unsplit.first.iter().all(|&(id, why)| id != SessionId(4) && why == StayReason::Short)
    );
    world.feed(Input::Shutdown);
    assert_eq!(world.core.snapshot().unsplit, alive.unsplit, "their end changes nothing");
}
