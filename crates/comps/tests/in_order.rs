//! Tests of `Config::in_order`: datagrams that a server sends on one path after another reach the
//! client in the same order.

use anabranch_testkit::comps_world as world;

use std::time::Duration;

use anabranch_comps::{Config, Event};
use anabranch_multipath::Time;
use anabranch_netem::LinkSettings;
use world::{SeenAddress, Server, World, client, config, link, numbered};

const MS: Duration = Duration::from_millis(1);

/// A server that sends on request of the test, to the address of the client's latest datagram.
#[derive(Default)]
struct Sender {
    latest: Option<SeenAddress>,
}

impl Server for Sender {
    fn receive(&mut self, _: Time, from: SeenAddress, _: &[u8]) -> Vec<(SeenAddress, Vec<u8>)> {
        self.latest = Some(from);
        Vec::new()
    }
}

/// Returns a server's datagram of `length` bytes, with `number` at the end.
fn sized(length: usize, number: u64) -> Vec<u8> {
    [&vec![0x55; length - 8], &number.to_be_bytes()[..]].concat()
}

fn full(number: u64) -> Vec<u8> {
    sized(1200, number)
}

fn number(datagram: &[u8]) -> u64 {
    u64::from_be_bytes(*datagram.last_chunk().expect("a number of eight bytes"))
}

/// Returns a world with three paths and a change of path every 100 ms. The delay of the first path
/// is 20 ms longer, like that of a path with a queue.
fn world(in_order: Option<Duration>) -> World<Sender> {
    let slow = LinkSettings { delay: 30 * MS, ..link() };
    let config = Config { in_order, ..config(3, "round-robin", "100ms") };
    World::with_links(config, Sender::default(), &[slow, link(), link()])
}

/// Runs a download for a second, with one datagram per millisecond. Returns the numbers in the
/// order in which the client received them, and the longest delay.
fn download(world: &mut World<Sender>) -> (Vec<u64>, Duration) {
    let mut sent = Vec::new();
    for each in 0..1_000 {
        world.client(client(0), &numbered(each));
        if let Some(seen) = world.server.latest {
            world.answer(seen, full(sent.len() as u64));
            sent.push(world.now);
        }
        world.run_until(world.now + MS);
    }
    world.run_until(world.now + 200 * MS);
    let returned = &world.returned[&client(0)];
    assert_eq!(returned.len(), sent.len(), "nothing is lost, nothing doubled");
    let delay = |(at, datagram): &(Time, Vec<u8>)| at.since(sent[number(datagram) as usize]);
    let slowest = returned.iter().map(delay).max().expect("some came");
    (returned.iter().map(|(_, datagram)| number(datagram)).collect(), slowest)
}

/// Returns the number of datagrams that arrived after a datagram that was sent later.
fn overtaken(numbers: &[u64]) -> usize {
    let mut highest = 0;
    let late = |number: &&u64| {
        highest = highest.max(**number);
        **number < highest
    };
    numbers.iter().filter(late).count()
}

#[test]
fn without_it_a_path_is_overtaken_by_the_next() {
    let (numbers, _) = download(&mut world(None));
    assert!(overtaken(&numbers) >= 40, "20 of each of three visits: {}", overtaken(&numbers));
}

#[test]
fn with_it_nothing_is_overtaken_but_on_a_first_visit_and_nothing_waits_for_longer_than_allowed() {
    let (numbers, slowest) = download(&mut world(Some(50 * MS)));
    assert!(overtaken(&numbers) <= 20, "{}", overtaken(&numbers));
    let (first, rest) = numbers.split_at(300);
    assert!(overtaken(first) > 0, "a first visit waits for nothing");
    assert_eq!(overtaken(rest), 0);
    assert!(slowest <= 60 * MS, "{slowest:?}");
}

#[test]
fn what_is_allowed_is_kept() {
    let (numbers, slowest) = download(&mut world(Some(5 * MS)));
    assert!(overtaken(&numbers) > 20, "5 ms are too short for 20 ms of queue");
    assert!(slowest <= 31 * MS, "the slow path itself needs 30: {slowest:?}");
}

/// Returns a world with two equal paths. The client has moved to the second path, and the server
/// has received its datagram but has not answered there. Also returns the client's old and new
/// address, as the server sees them.
fn about_to_move() -> (World<Sender>, SeenAddress, SeenAddress) {
    let mut world = World::with_links(
        Config { in_order: Some(30 * MS), ..config(2, "round-robin", "100ms") },
        Sender::default(),
        &[link(), link()],
    );
    world.client(client(0), &numbered(0));
    world.run_until(Time::from_millis(20));
    let old = world.server.latest.expect("the client spoke");
    world.answer(old, full(0));
    world.run_until(Time::from_millis(110));
    world.client(client(0), &numbered(1));
    world.run_until(Time::from_millis(121));
    let new = world.server.latest.expect("the client spoke");
    assert_ne!(old, new);
    (world, old, new)
}

/// Waits until all datagrams have arrived. Returns their numbers in the order of arrival.
fn arrived(world: &mut World<Sender>) -> Vec<u64> {
    world.run_until(world.now + 50 * MS);
    assert!(!world.has_event(|event| matches!(event, Event::Down { .. })));
    world.returned[&client(0)].iter().map(|(_, datagram)| number(datagram)).collect()
}

#[test]
fn a_probe_on_the_path_that_was_left_does_not_overtake_what_was_sent_before() {
    let (mut world, old, new) = about_to_move();
    world.answer(new, full(1));
    world.run_until(Time::from_millis(150));
    // Seven full packets take 0.7 ms at 100 Mbit/s. A short packet on the other path would arrive
    // before them.
    (2..=8).for_each(|each| world.answer(new, full(each)));
    world.answer(old, sized(43, 9));
    assert_eq!(arrived(&mut world), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

/// Returns whether three datagrams that were sent later arrived before another one. QUIC treats
/// this as a loss (RFC 9002, section 6.1.1).
fn looks_lost(numbers: &[u64]) -> bool {
    let mut highest = 0;
    numbers.iter().any(|&number| {
        highest = highest.max(number);
        highest - number >= 3
    })
}

#[test]
fn neither_the_first_datagrams_of_a_new_path_nor_the_probes_among_them_look_lost() {
    // The orders in which s2n-quic sends datagrams: `n` on the new path, and `p`, the
    // PATH_CHALLENGE, on the old path.
    for sent in ["np", "nnnp", "nnnnp", "npnpn", "npnpnnnn", "nnnpnpnn", "pnnnn"] {
        let (mut world, old, new) = about_to_move();
        for (each, kind) in (1..).zip(sent.chars()) {
            match kind {
                'n' => world.answer(new, full(each)),
                _ => world.answer(old, sized(43, each)),
            }
        }
        let numbers = arrived(&mut world);
        assert_eq!(numbers.len(), 1 + sent.len(), "nothing is lost, nothing doubled");
        assert!(!looks_lost(&numbers), "{sent}: {numbers:?}");
    }
}

#[test]
fn a_short_datagram_in_the_midst_of_a_path_keeps_its_place() {
    let (mut world, old, _) = about_to_move();
    for first in [1, 5] {
        world.answer(old, full(first));
        world.answer(old, sized(43, first + 1));
        (2..4).for_each(|each| world.answer(old, full(first + each)));
    }
    assert_eq!(arrived(&mut world), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn a_change_of_settings_sets_free_what_is_held() {
    let mut world = world(Some(50 * MS));
    let plain = Config { in_order: None, ..config(3, "round-robin", "100ms") };
    for each in 0..700 {
        world.client(client(0), &numbered(each));
        let seen = world.server.latest;
        seen.into_iter().for_each(|seen| world.answer(seen, full(each)));
        world.run_until(world.now + MS);
        // At this time, the server is moving from the slow path to the next one.
        if each == 425 {
            world.reconfigure(plain.clone(), &[Some(0), Some(1), Some(2)]);
        }
    }
    world.run_until(world.now + 200 * MS);
    let mut numbers: Vec<_> =
        world.returned[&client(0)].iter().map(|(_, datagram)| number(datagram)).collect();
    numbers.sort_unstable();
    let first = numbers[0];
    assert!(numbers.iter().copied().eq(first..700), "nothing is lost, nothing doubled");
}
