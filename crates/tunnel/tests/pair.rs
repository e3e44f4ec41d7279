//! Both ends over emulated paths. The tests check the order and the delay of received datagrams,
//! and the information that a path reveals.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use anabranch_testkit::tunnel_world as world;

use std::time::Duration;

use anabranch_multipath::seed::stream;
use anabranch_multipath::{Decoys, PathId, Time};
use anabranch_netem::{LinkSettings, Loss};
use anabranch_tunnel::{DecoyCount, FarSide, NearEnd, OVERHEAD, PacketKind, Peer, State};
use rand::RngExt;
use world::{World, address, near, pair, path};

/// Returns a datagram of 1,000 bytes that begins with `number`.
fn datagram(number: u32) -> Vec<u8> {
    let mut bytes = vec![0; 1000];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn numbers(out: &[(Time, Vec<u8>)]) -> Vec<u32> {
    out.iter().map(|(_, bytes)| u32::from_be_bytes(bytes[..4].try_into().unwrap())).collect()
}

/// Sends `count` datagrams in each direction, one per millisecond. Returns the time at which each
/// was sent.
fn exchange(world: &mut World, count: u32) -> Vec<Time> {
    let mut sent = Vec::new();
    for number in 0..count {
        sent.push(world.now);
        world.send_up(&datagram(number));
        world.send_down(&datagram(number));
        world.run_for(Duration::from_millis(1));
    }
    world.run_for(Duration::from_secs(1));
    sent
}

fn ready(seed: u64, paths: &[LinkSettings], every: &str) -> World {
    let mut world = World::new(seed, paths, every);
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.near.state(), State::Up);
    world
}

#[test]
fn all_arrives_in_order_both_ways_over_unequal_paths_and_no_later_than_the_slowest_path() {
    for every in ["20ms", "1p", "100ms"] {
        let mut world = ready(1, &[path(20), path(35), path(60)], every);
        let sent = exchange(&mut world, 3000);
        for out in &world.out {
            let all: Vec<u32> = (0..3000).collect();
            assert!(numbers(out) == all, "{every}: {} came", out.len());
            let late = |(out, sent): (&(Time, Vec<u8>), &Time)| out.0.since(*sent);
            let latest = out.iter().zip(&sent).map(late).max().unwrap();
            assert!(latest <= Duration::from_millis(63), "{every}: {latest:?}");
        }
    }
}

/// Makes both ends send decoys from now on.
fn send_decoys(world: &mut World, budget: &str) {
    let decoys = |entity| {
        Some(Decoys::new(budget.parse().unwrap(), stream(world.begun as u64, entity, "decoys")))
    };
    let (near, far) = (decoys(1), decoys(2));
    world.near.session().send_decoys(near);
    let client = world.client.unwrap();
    world.far.session(client).unwrap().send_decoys(far);
}

/// Returns the counts of decoys: sent by the near end and received by the far end, then the same
/// in the other direction.
fn decoys(world: &mut World) -> [[DecoyCount; 2]; 2] {
    let [near_sent, near_came] = world.near.session().decoys();
    let client = world.client.unwrap();
    let [far_sent, far_came] = world.far.session(client).unwrap().decoys();
    [[near_sent, far_came], [far_sent, near_came]]
}

#[test]
fn decoys_are_dropped_by_the_other_end_and_cost_no_more_than_their_budget() {
    let mut world = ready(31, &[path(20), path(35), path(60)], "20ms");
    send_decoys(&mut world, "10%");
    let sent = exchange(&mut world, 6000);
    for out in &world.out {
        assert!(numbers(out).into_iter().eq(0..6000), "{} came", out.len());
        let late = |(out, sent): (&(Time, Vec<u8>), &Time)| out.0.since(*sent);
        let latest = out.iter().zip(&sent).map(late).max().unwrap();
        assert!(latest <= Duration::from_millis(63), "{latest:?}");
    }
    for (way, [sent, received]) in decoys(&mut world).into_iter().enumerate() {
        assert_eq!(sent, received, "way {way}");
        assert!((300_000..=600_000).contains(&sent.bytes), "{sent:?}");
        assert_eq!(sent.bytes, 1_000 * sent.packets);
    }
    // For comparison: without a budget, no decoys are sent.
    let mut without = ready(31, &[path(20), path(35), path(60)], "20ms");
    exchange(&mut without, 6000);
    assert_eq!(decoys(&mut without), [[DecoyCount::default(); 2]; 2]);
}

#[test]
fn an_observer_sees_decoys_as_packets_that_are_as_long_as_data() {
    let mut world = ready(32, &[path(20), path(20)], "20ms");
    send_decoys(&mut world, "20%");
    exchange(&mut world, 3000);
    let long = world.seen.iter().flatten().filter(|packet| packet.len() > 900);
    let (lengths, long): (Vec<usize>, u64) =
        (long.clone().map(Vec::len).collect(), long.count() as u64);
    assert!(lengths.iter().all(|length| *length == 1_000 + OVERHEAD));
    let decoys: u64 = decoys(&mut world).iter().map(|[sent, _]| sent.packets).sum();
    assert!(decoys > 300, "{decoys}");
    assert_eq!(long, 6_000 + decoys);
}

#[test]
fn a_path_that_died_gets_no_decoys() {
    let mut world = ready(33, &[path(20), path(20), path(20)], "20ms");
    world.cut[2] = true;
    exchange(&mut world, 6000);
    send_decoys(&mut world, "20%");
    let before = world.seen[2].iter().filter(|packet| packet.len() > 900).count();
    exchange(&mut world, 3000);
    let after = world.seen[2].iter().filter(|packet| packet.len() > 900).count();
    assert_eq!(after, before);
    assert!(decoys(&mut world)[0][0].packets > 100);
}

/// Returns a world whose paths carry packets of 1,500 bytes, with 28 bytes of headers. Both ends
/// know this limit.
fn narrow(seed: u64, loss: &Loss) -> World {
    let path = |delay| LinkSettings { mtu: 1_500, loss: loss.clone(), ..path(delay) };
    let mut world = ready(seed, &[path(20), path(35)], "20ms");
    (0..2).map(PathId).for_each(|path| world.near.session().set_room(path, 1_472));
    world.run_for(Duration::from_secs(30));
    world
}

#[test]
fn datagrams_longer_than_a_packet_arrive_whole_and_in_order_both_ways() {
    let mut world = narrow(21, &Loss::None);
    let lengths = (0..).map(|number| [1_452, 1_439, 1_440, 60, 4_000, 0, 65_507][number % 7]);
    let sent: Vec<Vec<u8>> =
        lengths.take(700).enumerate().map(|(n, length)| vec![n as u8; length]).collect();
    for datagram in &sent {
        world.send_up(datagram);
        world.send_down(datagram);
        world.run_for(Duration::from_millis(2));
    }
    world.run_for(Duration::from_secs(1));
    for (out, way) in world.out.iter().zip(["up", "down"]) {
        let received: Vec<&Vec<u8>> = out.iter().map(|(_, bytes)| bytes).collect();
        assert!(received.iter().copied().eq(&sent), "{way}: {} came", received.len());
    }
    let seen = world.seen.iter().flatten();
    assert!(seen.clone().any(|packet| packet.len() > 1_400));
    assert!(seen.clone().all(|packet| packet.len() <= 1_472));
}

#[test]
fn a_part_that_is_lost_costs_its_datagram_and_no_other() {
    let mut world = narrow(22, &Loss::Bernoulli(0.02));
    let long = |number: u32| [datagram(number), vec![number as u8; 452]].concat();
    for number in 0..2_000 {
        world.send_up(&long(number));
        world.send_down(&long(number));
        world.run_for(Duration::from_millis(1));
    }
    world.run_for(Duration::from_secs(1));
    for out in &world.out {
        assert!(
            out.iter().all(|(_, bytes)| *bytes == long(numbers(&[(Time::ZERO, bytes.clone())])[0]))
        );
        // Each datagram needs two packets, so about 96 of 100 datagrams arrive.
        assert!((1_860..1_970).contains(&out.len()), "{} came", out.len());
        assert!(numbers(out).is_sorted());
    }
}

#[test]
fn each_path_carries_its_share_each_way() {
    let mut world = ready(2, &[path(20), path(20), path(20)], "20ms");
    let before: Vec<u64> = world.down.iter().map(|wire| wire.counters().delivered.units).collect();
    exchange(&mut world, 6000);
    for (place, before) in before.iter().enumerate() {
        let down = world.down[place].counters().delivered.units - before;
        assert!((1600..2400).contains(&down), "path {place} carried {down}");
    }
}

#[test]
fn a_lost_datagram_delays_others_by_no_more_than_the_paths_differ() {
    let lossy = |delay| LinkSettings { loss: Loss::Bernoulli(0.05), ..path(delay) };
    let mut world = ready(3, &[lossy(20), lossy(35), lossy(60)], "20ms");
    let sent = exchange(&mut world, 3000);
    for out in &world.out {
        let received = numbers(out);
        assert!((2750..2950).contains(&received.len()), "{}", received.len());
        assert!(received.windows(2).all(|two| two[0] < two[1]), "in order");
        let late = out.iter().zip(&received).map(|((at, _), n)| at.since(sent[*n as usize]));
        let latest = late.max().unwrap();
        assert!(latest <= Duration::from_millis(60 + 45), "{latest:?}");
    }
}

#[test]
fn a_path_that_is_cut_is_noticed_by_both_ends_and_comes_back() {
    let mut world = ready(4, &[path(20), path(20), path(20)], "20ms");
    exchange(&mut world, 1000);
    world.cut[1] = true;
    exchange(&mut world, 8000);
    let client = world.client.unwrap();
    assert!(!world.near.session().view(world.now, PathId(1)).usable);
    assert!(!world.far.view(world.now, client, PathId(1)).usable);
    let before = [world.out[0].len(), world.out[1].len()];
    exchange(&mut world, 2000);
    assert_eq!(world.out[0].len() - before[0], 2000, "nothing goes by it any more");
    assert_eq!(world.out[1].len() - before[1], 2000);
    world.cut[1] = false;
    exchange(&mut world, 5000);
    assert!(world.near.session().view(world.now, PathId(1)).usable);
    assert!(world.far.view(world.now, client, PathId(1)).usable);
}

#[test]
fn a_far_end_that_was_started_again_is_found_again() {
    let mut world = ready(5, &[path(20), path(35)], "20ms");
    exchange(&mut world, 500);
    world.restart_far();
    let handshakes = world.handshakes;
    exchange(&mut world, 8000);
    assert_eq!(world.handshakes - handshakes, 1, "one is enough");
    let before = [world.out[0].len(), world.out[1].len()];
    exchange(&mut world, 1000);
    assert_eq!(world.out[0].len() - before[0], 1000);
    assert_eq!(world.out[1].len() - before[1], 1000);
}

#[test]
fn keys_are_renewed_and_nothing_is_lost_meanwhile() {
    let mut world = ready(6, &[path(20), path(35), path(60)], "100ms");
    for round in 0..400u32 {
        for number in 0..10 {
            world.send_up(&datagram(10 * round + number));
            world.send_down(&datagram(10 * round + number));
        }
        world.run_for(Duration::from_secs(1));
    }
    world.run_for(Duration::from_secs(1));
    for out in &world.out {
        assert_eq!(numbers(out), (0..4000).collect::<Vec<u32>>());
    }
}

#[test]
fn a_client_that_moves_is_followed() {
    let mut world = ready(7, &[path(20), path(20)], "20ms");
    exchange(&mut world, 500);
    world.addresses = vec![address(7), address(8)];
    exchange(&mut world, 3000);
    let before = world.out[1].len();
    exchange(&mut world, 500);
    assert_eq!(world.out[1].len() - before, 500);
}

#[test]
fn a_handshake_whose_path_is_dead_goes_by_another() {
    let mut world = World::new(8, &[path(20), path(20)], "20ms");
    world.cut[0] = true;
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.near.state(), State::Up);
}

#[test]
fn nothing_on_a_path_stands_still_rises_or_repeats() {
    let mut world = ready(9, &[path(20), path(20), path(20)], "20ms");
    exchange(&mut world, 12_000);
    let packets: Vec<&Vec<u8>> =
        world.seen[1].iter().filter(|packet| packet.len() > 1000).collect();
    assert!(packets.len() > 6000);
    for place in 0..1024 {
        let mut counts = [0u32; 256];
        packets.iter().for_each(|packet| counts[usize::from(packet[place])] += 1);
        let mean = packets.len() as f64 / 256.0;
        let chi: f64 = counts.iter().map(|&n| (f64::from(n) - mean).powi(2) / mean).sum();
        // 255 degrees of freedom; one of 1,024 offsets exceeds 350 by chance in 25 runs.
        assert!(chi < 380.0, "byte {place}: {chi}");
    }
    let mut headers: Vec<&[u8]> = packets.iter().map(|packet| &packet[..8]).collect();
    headers.sort_unstable();
    headers.dedup();
    assert_eq!(headers.len(), packets.len(), "no header comes twice");
}

#[test]
fn strangers_are_not_answered_and_replays_do_nothing() {
    let mut world = ready(10, &[path(20), path(20)], "20ms");
    exchange(&mut world, 200);
    let seen: Vec<Vec<u8>> = world.seen.concat();
    let client = world.client.unwrap();
    let arrived = world.out[0].len();
    for packet in &seen {
        // The packet is replayed from another address, as an attacker would do to move the session
        // there.
        let received = world.far.receive(world.now, address(99).into(), packet);
        assert_eq!(received, PacketKind::Nothing);
        assert!(!world.near.open(world.now, PathId(0), packet));
    }
    for length in 0..200usize {
        let noise: Vec<u8> = (0..length).map(|n| (n * 37 + length) as u8).collect();
        assert_eq!(world.far.receive(world.now, address(99).into(), &noise), PacketKind::Nothing);
    }
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.out[0].len(), arrived);
    assert!(world.far.view(world.now, client, PathId(0)).usable);
}

#[test]
fn who_lacks_a_key_gets_no_session() {
    let (near_keys, far_keys) = pair(11);
    let (stranger, _) = pair(12);
    let mut world = World::new(11, &[path(20)], "20ms");
    let good = far_keys.public;
    // A stranger's own key; the right key with another secret; another far end's public key.
    for (keys, far, psk) in [
        (stranger.clone(), good, [9; 32]),
        (near_keys.clone(), good, [1; 32]),
        (near_keys, stranger.public, [9; 32]),
    ] {
        world.near = near(13, far, keys, psk, 1);
        world.run_for(Duration::from_secs(20));
        assert!(matches!(world.near.state(), State::Trying { tries: 4.. }));
    }
}

#[test]
fn a_flood_of_handshakes_wants_proof_of_address_and_the_honest_get_in() {
    let mut world = World::new(14, &[path(20)], "20ms");
    let (near_keys, far_keys) = pair(14);
    let mut answers = 0;
    let mut flooder = near(15, far_keys.public, near_keys, [1; 32], 1);
    for n in 0..500u64 {
        let mut packet = Vec::new();
        // Each handshake is due at once. For the far end, no time passes.
        flooder.poll_transmit(Time::from_secs(100 * n), n, &mut packet).unwrap();
        let received = world.far.receive(world.now, address(50).into(), &packet);
        answers += usize::from(
            matches!(received, PacketKind::Handshake(ref packet, None) if packet.len() < 60),
        );
    }
    assert!(answers > 400, "{answers} cookies");
    world.run_for(Duration::from_secs(3));
    assert_eq!(world.near.state(), State::Up);
}

#[test]
fn an_end_that_says_farewell_is_forgotten() {
    let mut world = ready(16, &[path(20), path(20)], "20ms");
    exchange(&mut world, 100);
    world.near.session().close();
    world.run_for(Duration::from_millis(200));
    let client = world.client.unwrap();
    assert_eq!(world.far.expire(world.now), [client]);
    assert!(world.far.session(client).is_none());
}

#[test]
fn a_slow_path_among_many_is_not_taken_for_dead_while_its_question_is_on_its_way() {
    let paths = [path(5), path(5), path(5), path(5), path(5), path(60)];
    let mut world = ready(17, &paths, "20ms");
    let client = world.client.unwrap();
    for number in 0..4000 {
        world.send_down(&datagram(number));
        world.run_for(Duration::from_millis(1));
        assert!(world.far.view(world.now, client, PathId(5)).usable, "{number} ms");
    }
}

/// The paths are probed each second. The answers after 2.4 and 3 s arrive after three more probes.
#[test]
fn a_path_with_a_long_round_trip_is_not_taken_for_dead_by_either_end() {
    let mut world = ready(34, &[path(20), path(650), path(1_200), path(1_500)], "20ms");
    exchange(&mut world, 6_000);
    let client = world.client.unwrap();
    for number in 0..20_000 {
        world.send_up(&datagram(number));
        world.send_down(&datagram(number));
        world.run_for(Duration::from_millis(1));
        for path in (0..4).map(PathId) {
            assert!(world.near.session().view(world.now, path).usable, "{path:?} {number} ms");
            assert!(world.far.view(world.now, client, path).usable, "{path:?} {number} ms");
        }
    }
    let lag = |path| world.near.session().lag(PathId(path)).unwrap().as_millis();
    let lags: Vec<_> = (0..4).map(lag).collect();
    assert!(lags[0] == 0 && (628..634).contains(&lags[1]) && lags[3] > 1_470, "{lags:?}");
    // For comparison: the failure of a slow path is still detected.
    world.cut[3] = true;
    let cut = world.now;
    while world.near.session().view(world.now, PathId(3)).usable {
        world.send_up(&datagram(0));
        world.run_for(Duration::from_millis(1));
        assert!(world.now.since(cut) < Duration::from_secs(8));
    }
}

#[test]
fn the_death_of_a_path_is_found_out_by_both_ends_within_three_seconds() {
    let mut world = ready(18, &[path(20), path(35), path(60)], "20ms");
    exchange(&mut world, 500);
    let client = world.client.unwrap();
    world.cut[2] = true;
    let cut = world.now;
    while world.near.session().view(world.now, PathId(2)).usable
        || world.far.view(world.now, client, PathId(2)).usable
    {
        world.send_up(&datagram(0));
        world.send_down(&datagram(0));
        world.run_for(Duration::from_millis(1));
        assert!(world.now.since(cut) < Duration::from_secs(3));
    }
}

#[test]
fn a_far_end_that_says_farewell_and_is_started_again_is_found_within_a_second() {
    let mut world = ready(19, &[path(20), path(35)], "20ms");
    exchange(&mut world, 100);
    world.far.session(world.client.unwrap()).unwrap().close();
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.near.state(), State::Trying { tries: 0 });
    world.restart_far();
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.near.state(), State::Up);
    let before = [world.out[0].len(), world.out[1].len()];
    exchange(&mut world, 200);
    assert_eq!([world.out[0].len() - before[0], world.out[1].len() - before[1]], [200, 200]);
}

#[test]
fn a_far_end_that_ends_each_session_at_once_is_greeted_ever_more_seldom() {
    let mut world = ready(21, &[path(20)], "20ms");
    let before = world.handshakes;
    for _ in 0..60_000 {
        if let Some(session) = world.client.and_then(|client| world.far.session(client)) {
            session.close();
        }
        world.run_for(Duration::from_millis(1));
        world.far.expire(world.now);
    }
    let greeted = world.handshakes - before;
    assert!((4..12).contains(&greeted), "{greeted} times in a minute");
}

#[test]
fn a_far_end_that_vanished_is_known_to_have() {
    let mut world = ready(22, &[path(20), path(35)], "20ms");
    exchange(&mut world, 500);
    world.cut = vec![true, true];
    for _ in 0..3000 {
        world.send_up(&datagram(0));
        world.run_for(Duration::from_millis(1));
    }
    // The near end asks for new keys at the earliest 5 s after a handshake.
    world.run_for(Duration::from_secs(5));
    assert!(matches!(world.near.state(), State::Trying { .. }));
    world.cut = vec![false, false];
    world.run_for(Duration::from_secs(6));
    assert_eq!(world.near.state(), State::Up);
    exchange(&mut world, 100);
}

#[test]
fn packets_of_equal_datagrams_are_of_equal_size_wherever_a_run_begins() {
    let mut world = ready(20, &[path(20), path(20), path(20)], "3p");
    exchange(&mut world, 300);
    let sizes = world.seen.concat().into_iter().map(|packet| packet.len());
    let mut large: Vec<usize> = sizes.filter(|size| *size > 500).collect();
    large.dedup();
    assert_eq!(large, [1000 + anabranch_tunnel::OVERHEAD]);
}

/// Paths are cut for up to 1.5 s, and sometimes all of them for up to 15 s.
#[test]
fn ten_thousand_cuts_of_paths_lose_no_session() {
    let mut world = ready(23, &[path(20), path(35), path(60)], "20ms");
    let mut chance = stream(23, 0, "cuts");
    for cut in 0..10_000u32 {
        let all = chance.random_ratio(1, 50);
        let place = chance.random_range(0..3);
        (0..3).for_each(|path| world.cut[path] = all || path == place);
        let rounds = chance.random_range(1..if all { 150 } else { 15 });
        for _ in 0..rounds {
            world.send_up(b"up");
            world.send_down(b"down");
            world.run_for(Duration::from_millis(100));
        }
        world.cut = vec![false; 3];
        world.run_for(Duration::from_millis(100));
        world.seen.iter_mut().for_each(Vec::clear);
        if cut % 100 == 99 {
            // Both ends use all paths again within a few rounds of probes.
            world.run_for(Duration::from_secs(6));
            world.out = [Vec::new(), Vec::new()];
            exchange(&mut world, 30);
            assert_eq!(world.out.each_ref().map(Vec::len), [30, 30], "after {cut} cuts");
        }
        world.out = [Vec::new(), Vec::new()];
    }
    assert_eq!(world.begun, 1, "one session, from the first cut to the last");
}

#[test]
fn clients_come_and_go_and_who_stays_keeps_his_session() {
    let mut world = ready(24, &[path(20), path(35)], "20ms");
    exchange(&mut world, 100);
    let (near_keys, other) = (pair(24).0, pair(25).0);
    let (home, away) = ((near_keys.public, [9; 32]), (other.public, [0; 32]));
    let client = world.client.unwrap();
    let (named, gone) = world.far.replace_clients(&[away, home]);
    assert_eq!((named.len(), named[1], gone.len()), (2, client, 0));
    assert_ne!(named[0], client);
    world.out = [Vec::new(), Vec::new()];
    exchange(&mut world, 100);
    assert_eq!(world.out.each_ref().map(Vec::len), [100, 100]);
    assert_eq!(world.begun, 1);
    let (_, gone) = world.far.replace_clients(&[away]);
    assert_eq!(gone, [client]);
    assert!(world.far.session(client).is_none());
    world.run_for(Duration::from_secs(60));
    assert!(matches!(world.near.state(), State::Trying { .. }), "its key is not known any more");
    let (named, _) = world.far.replace_clients(&[home, away]);
    assert_ne!(named[0], client, "a name is not given twice");
    world.run_for(Duration::from_secs(10));
    assert_eq!(world.near.state(), State::Up);
}

#[test]
fn a_path_that_is_dead_in_one_direction_is_left_by_both_ends_and_comes_back() {
    let mut world = ready(26, &[path(20), path(35), path(60)], "20ms");
    exchange(&mut world, 500);
    world.cut_down[1] = true;
    exchange(&mut world, 4000);
    let client = world.client.unwrap();
    assert!(!world.near.session().view(world.now, PathId(1)).usable);
    assert!(!world.far.view(world.now, client, PathId(1)).usable, "it hears the path, and is told");
    world.out = [Vec::new(), Vec::new()];
    exchange(&mut world, 1000);
    assert_eq!(world.out.each_ref().map(Vec::len), [1000, 1000]);
    world.cut_down[1] = false;
    exchange(&mut world, 4000);
    assert!(world.near.session().view(world.now, PathId(1)).usable);
    assert!(world.far.view(world.now, client, PathId(1)).usable);
}

/// Returns a world in which both ends use a schedule with windows.
fn by_windows(seed: u64, schedule: &str, delays: [u64; 2]) -> World {
    let mut world = World::scheduled(seed, &delays.map(path), schedule, "1p");
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.near.state(), State::Up);
    world
}

#[test]
fn ends_agree_on_a_cipher_and_one_that_changes_its_mind_is_followed() {
    let mut world = ready(29, &[path(20), path(35)], "20ms");
    for (near, far) in [(true, true), (false, true), (true, false), (true, true)] {
        world.near.prefer_aes(near);
        world.far.prefer_aes(far);
        // Another handshake takes place while packets with the earlier keys are in flight.
        for number in 0..1300 {
            world.send_up(&datagram(number));
            world.send_down(&datagram(number));
            world.run_for(Duration::from_millis(100));
        }
        world.run_for(Duration::from_secs(1));
        for out in &mut world.out {
            assert_eq!(numbers(out), (0..1300).collect::<Vec<u32>>());
            out.clear();
        }
    }
    assert!(world.handshakes > 4, "{}", world.handshakes);
}

#[test]
fn windows_outlive_a_cut_path_and_a_far_end_that_is_started_again() {
    let mut world = by_windows(27, "conflux-2013", [20, 35]);
    let all = |count: u32| (0..count).collect::<Vec<u32>>();
    let whole = |world: &mut World, count: u32| {
        world.out = [Vec::new(), Vec::new()];
        world.seen.iter_mut().for_each(Vec::clear);
        exchange(world, count);
        for out in &world.out {
            assert_eq!(numbers(out), all(count));
        }
        world.seen.iter().map(Vec::len).collect::<Vec<usize>>()
    };
    let used = whole(&mut world, 2000);
    assert!(used.iter().all(|packets| *packets > 800), "{used:?}");
    world.cut[0] = true;
    exchange(&mut world, 3000);
    whole(&mut world, 1000);
    world.cut[0] = false;
    world.run_for(Duration::from_secs(6));
    let used = whole(&mut world, 2000);
    assert!(used[0] > 800, "it is used again: {used:?}");
    world.restart_far();
    world.run_for(Duration::from_secs(12));
    let used = whole(&mut world, 2000);
    assert!(used.iter().all(|packets| *packets > 800), "{used:?}");
}

#[test]
fn what_a_path_took_is_acknowledged_by_that_path_alone() {
    let mut world = by_windows(28, "minrtt", [20, 60]);
    world.run_for(Duration::from_secs(5));
    world.seen.iter_mut().for_each(Vec::clear);
    for number in 0..2000 {
        world.send_up(&datagram(number));
        world.run_for(Duration::from_millis(1));
    }
    let large = |path: usize| world.seen[path].iter().filter(|packet| packet.len() > 900).count();
    let small = [0, 1].map(|path| world.seen[path].len() - large(path));
    assert_eq!((large(0), large(1)), (2000, 0));
    assert!(small[0] > 125 && small[1] <= 8, "{small:?}: questions and answers alone");
}

#[test]
fn a_path_whose_stream_ended_leads_nowhere_until_it_comes_by_another() {
    let (now, (own, theirs)) = (Time::from_secs(1), pair(31));
    let clients = [(own.public, [9; 32])];
    let mut far = FarSide::new(theirs.clone(), &clients, &[], stream(31, 3, "far"));
    let mut near = near(31, theirs.public, own, [9; 32], 2);
    let by = |stream| Peer { stream: Some(stream), ..Peer::from(address(0)) };
    let mut hello = Vec::new();
    near.poll_transmit(now, 1, &mut hello).unwrap();
    let PacketKind::Handshake(answer, Some(run)) = far.receive(now, by(7), &hello) else {
        panic!("the client is known")
    };
    assert!(near.open(now, PathId(0), &answer));
    let mut packet = |path| {
        let mut packet = Vec::new();
        assert!(near.seal(now, PathId(path), (1, b"datagram"), &mut packet));
        packet
    };
    assert_eq!(far.receive(now, by(7), &packet(0)), PacketKind::Session(run.client));
    assert_eq!(far.receive(now, by(8), &packet(1)), PacketKind::Session(run.client));
    let stream_of =
        |far: &FarSide<_>, path| far.peer(run.client, PathId(path)).and_then(|peer| peer.stream);
    far.lose_stream(run.client, 7);
    assert_eq!([0, 1].map(|path| stream_of(&far, path)), [None, Some(8)]);
    assert!(!far.view(now, run.client, PathId(0)).usable);
    let mut out = Vec::new();
    assert_eq!(far.seal(now, run.client, PathId(0), (1, b"answer"), &mut out), None);
    far.receive(now, by(9), &packet(0));
    assert_eq!(stream_of(&far, 0), Some(9));
}

#[test]
fn a_path_that_appears_carries_the_next_handshake_at_once() {
    let (now, (own, theirs)) = (Time::from_secs(1), pair(32));
    let mut near = near(32, theirs.public, own, [9; 32], 3);
    let mut out = Vec::new();
    assert_eq!(near.poll_transmit(now, 1, &mut out), Some(PathId(0)));
    assert_eq!(near.poll_transmit(now, 1, &mut out), None, "it waits for an answer");
    near.on_path(now, PathId(2));
    assert_eq!(near.poll_transmit(now, 2, &mut out), Some(PathId(2)));
    near.on_path(now, PathId(3));
    assert_eq!(near.poll_transmit(now, 3, &mut out), None, "there is no such path");
}

#[test]
fn a_path_that_appears_again_and_again_takes_no_turn_from_others() {
    let (mut now, (own, theirs)) = (Time::from_secs(1), pair(33));
    let mut near = near(33, theirs.public, own, [9; 32], 2);
    let mut by = [0; 2];
    for stamp in 0..1_000 {
        near.on_path(now, PathId(1));
        while let Some(path) = near.poll_transmit(now, stamp, &mut Vec::new()) {
            by[path.index()] += 1;
        }
        now += Duration::from_millis(10);
    }
    assert_eq!(by[0], 5, "at 0, .5, 1.5, 3.5 and 8.5 s");
    let most = [50, 100, 128, 128, 128].into_iter().sum();
    assert!((200..=most).contains(&by[1]), "{by:?}: copies of one handshake are at most 128");
}

/// Returns when the session was up, counted from the start of `world`; at most 30 s.
fn up_after(world: &mut World) -> Duration {
    let start = world.now;
    while world.near.state() != State::Up {
        let until = world.now + Duration::from_millis(1);
        world.run_until(until);
        assert!(until.since(start) < Duration::from_secs(30), "it does not come up");
    }
    world.now.since(start)
}

/// All paths accept packets, and all but one lose them.
#[test]
fn one_path_that_works_among_32_that_swallow_is_found_by_the_first_retry() {
    for works in [0, 16, 32] {
        let mut world = World::new(40, &vec![path(20); 33], "20ms");
        world.cut = (0..33).map(|path| path != works).collect();
        let elapsed = up_after(&mut world).as_millis();
        assert!(elapsed <= if works == 0 { 42 } else { 542 }, "path {works}: {elapsed} ms");
        assert_eq!(world.begun, 1);
    }
}

/// The paths are like streams that are being dialled, or interfaces that are down.
#[test]
fn paths_that_cannot_carry_get_neither_handshakes_nor_probes() {
    let mut world = World::new(41, &vec![path(20); 33], "20ms");
    (0..32).for_each(|path| world.near.set_carries(world.now, PathId(path), false));
    let elapsed = up_after(&mut world);
    assert!(elapsed <= Duration::from_millis(42), "{elapsed:?}");
    world.run_for(Duration::from_secs(3));
    assert!(world.seen[..32].iter().all(Vec::is_empty), "nothing was sent by those");
    let before = world.seen[32].len();
    world.run_for(Duration::from_secs(60));
    let probes = world.seen[32].len() - before;
    assert!((4..=8).contains(&probes), "{probes}: each 20 s, as if there were no other paths");
    world.near.set_carries(world.now, PathId(3), true);
    world.run_for(Duration::from_millis(42));
    assert_eq!(world.seen[3].len(), 2, "it is probed at once, and answers");
}

#[test]
fn without_a_path_that_carries_there_is_no_handshake_and_with_one_at_once() {
    let (start, (own, theirs)) = (Time::from_secs(1), pair(42));
    let mut near = near(42, theirs.public, own, [9; 32], 2);
    (0..2).for_each(|path| near.set_carries(start, PathId(path), false));
    let later = start + Duration::from_secs(60);
    assert_eq!(near.poll_transmit(later, 1, &mut Vec::new()), None);
    assert!(near.next_timeout() > later, "nothing is due");
    assert_eq!(near.state(), State::Trying { tries: 0 });
    near.set_carries(later, PathId(1), true);
    assert!(near.next_timeout() <= later);
    assert_eq!(near.poll_transmit(later, 2, &mut Vec::new()), Some(PathId(1)));
    assert_eq!(near.poll_transmit(later, 2, &mut Vec::new()), None);
}

/// The far end receives packets on the fast path first, and its answers there are lost.
#[test]
fn fast_paths_that_lose_all_answers_do_not_keep_a_slow_one_from_being_answered() {
    let mut world = World::new(43, &[path(5), path(5), path(60)], "20ms");
    world.cut_down = vec![true, true, false];
    let elapsed = up_after(&mut world);
    assert!(elapsed <= Duration::from_millis(500 + 122), "{elapsed:?}");
    assert_eq!(world.begun, 1);
    exchange(&mut world, 2_000);
    world.out = [Vec::new(), Vec::new()];
    exchange(&mut world, 100);
    assert_eq!(world.out.each_ref().map(Vec::len), [100, 100], "both ends have the same keys");
}

#[test]
fn an_answer_that_comes_after_the_next_handshake_is_taken() {
    let mut world = World::new(44, &[path(650)], "20ms");
    let elapsed = up_after(&mut world);
    assert!(elapsed <= Duration::from_millis(1_302), "{elapsed:?}");
    exchange(&mut world, 2_000);
    world.out = [Vec::new(), Vec::new()];
    exchange(&mut world, 100);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.out.each_ref().map(Vec::len), [100, 100]);
}

/// A path that handshakes may use fails while the session lasts.
#[test]
fn keys_are_renewed_by_a_path_that_answers() {
    let mut world = ready(45, &[path(20), path(20), path(20)], "20ms");
    world.cut = vec![true, true, false];
    exchange(&mut world, 1_000);
    let handshakes = world.handshakes;
    // 120 s after the handshake, and a round trip.
    world.run_until(Time::from_millis(10 + 120_000 + 90));
    assert_eq!(world.handshakes - handshakes, 1);
}

#[test]
fn copies_of_a_handshake_are_answered_once_each_and_replays_of_them_never() {
    let (now, (own, theirs)) = (Time::from_secs(1), pair(46));
    let clients = [(own.public, [9; 32])];
    let mut far = FarSide::new(theirs.clone(), &clients, &[], stream(46, 3, "far"));
    let mut near = near(46, theirs.public, own, [9; 32], 3);
    let mut copies = Vec::new();
    let send = |near: &mut NearEnd<_>, at| {
        let mut packet = Vec::new();
        near.poll_transmit(at, 1, &mut packet).map(|_| packet)
    };
    let (retry, mut begun) = (now + Duration::from_millis(500), 0);
    assert!(send(&mut near, now).is_some() && send(&mut near, now).is_none());
    copies.extend(std::iter::from_fn(|| send(&mut near, retry)));
    assert_eq!(copies.len(), 3);
    let mut answers = Vec::new();
    for (place, copy) in copies.iter().enumerate() {
        let received = far.receive(retry, address(place).into(), copy);
        let PacketKind::Handshake(answer, run) = received else { panic!("{received:?}") };
        begun += usize::from(run.is_some());
        answers.push(answer);
    }
    assert_eq!(begun, 1, "one session");
    assert!(answers[0] != answers[1] && copies[0] != copies[1], "an observer sees no copies");
    for copy in &copies {
        assert_eq!(far.receive(retry, address(7).into(), copy), PacketKind::Nothing);
    }
    assert!(near.open(retry, PathId(2), &answers[2]), "any of the answers will do");
    assert!(!near.open(retry, PathId(0), &answers[0]), "and one is enough");
    let mut packet = Vec::new();
    assert!(near.seal(retry, PathId(1), (1, b"datagram"), &mut packet));
    let received = far.receive(retry, address(1).into(), &packet);
    assert!(matches!(received, PacketKind::Session(_)), "{received:?}");
}

/// A far end under load requires a proof of each address.
#[test]
fn each_path_proves_its_own_address() {
    let mut world = World::new(47, &[path(20), path(20), path(30)], "20ms");
    world.cut[0] = true;
    let (stranger, far) = (pair(48).0, pair(47).1.public);
    let mut flooder = near(15, far, stranger, [1; 32], 1);
    // The flood exceeds the number of handshakes that the far end answers in one second.
    for stamp in 1..=60 {
        let mut packet = Vec::new();
        flooder.poll_transmit(Time::from_secs(100 * stamp), stamp, &mut packet).unwrap();
        world.far.receive(world.now, address(50).into(), &packet);
    }
    let elapsed = up_after(&mut world);
    // The session needs one retry, and one round trip more than without the load.
    assert!(elapsed <= Duration::from_millis(500 + 2 * 42), "{elapsed:?}");
}
