//! Silent links are padded, and links that nobody uses are closed: a client and three relays.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use anabranch_testkit::onion_world as world;

use std::time::Duration;

use anabranch_multipath::{Core as _, Time};
use anabranch_onion::LinkId;
use anabranch_onion::client::{CircuitKey, Hop, HopKey, Input};
use anabranch_onion::handshake::extension::HopRequest;
use anabranch_onion::padding::{Amount, PaddingParams};
use anabranch_onion::wire::message::Begin;
use world::{Setting, World};

/// The link between client and guard.
const FIRST: LinkId = LinkId::new(0, 1);
const DELAY: Duration = Duration::from_millis(5);
const TEN_MINUTES: Duration = Duration::from_secs(600);

/// Creates a circuit of three hops, and runs for ten minutes without any use of it.
fn silent(setting: Setting) -> World {
    let mut world = World::new(setting);
    world.build_through_all(1, HopRequest::CongestionControl);
    world.run_for(TEN_MINUTES);
    assert!(world.relays.iter().all(|relay| relay.violations.is_empty()));
    world
}

/// Returns the numbers of padding cells that each relay received and sent.
fn padded(world: &World) -> Vec<[u64; 2]> {
    world.relays.iter().map(|relay| relay.core.stats().padding).collect()
}

/// Returns the pauses between arrivals on a link, from the end of the first minute on.
fn silences(world: &World, link: LinkId) -> Vec<Duration> {
    let later = world.moves[&link].windows(2).filter(|pair| pair[0] > Time::from_secs(60));
    // A cell may arrive in pieces.
    later.map(|pair| pair[1].since(pair[0])).filter(|silence| !silence.is_zero()).collect()
}

fn download(world: &mut World, circuit: CircuitKey, bytes: usize) {
    let begin = Begin { host: format!("source-{bytes}"), port: 80, flags: 0 };
    world.client.begin(world.now, circuit, &begin).unwrap();
}

#[test]
fn a_silent_link_to_a_guard_is_padded_by_both_ends_and_no_other_link_is() {
    let world = silent(Setting::default());
    let [received, sent] = world.client.padding();
    assert!(received > 30 && sent > 30, "{received} and {sent} cells");
    assert_eq!(padded(&world), [[sent, received], [0, 0], [0, 0]]);
    // Each end measures from the last cell that it sent or received. So the measured times differ
    // by the delay.
    let longest = silences(&world, FIRST).into_iter().max().unwrap();
    assert!(longest <= Duration::from_millis(9500) + 2 * DELAY, "{longest:?}");
    let shortest = silences(&world, FIRST).into_iter().filter(|silence| *silence > 2 * DELAY).min();
    assert!(shortest.unwrap() + 2 * DELAY >= Duration::from_millis(1500), "{shortest:?}");
}

#[test]
fn a_relay_of_several_shards_pads_its_links_to_clients_and_not_those_between_its_shards() {
    let world = silent(Setting { shards: 2, ..Setting::default() });
    let [received, sent] = world.client.padding();
    assert!(received > 30 && sent > 30, "{received} and {sent} cells");
    let shards = padded(&world);
    let sum = |place: usize| shards.iter().map(|cells| cells[place]).sum::<u64>();
    assert_eq!([sum(0), sum(1)], [sent, received], "{shards:?}");
}

#[test]
fn padding_replays_with_its_seed() {
    let run = |seed| silent(Setting { seed, ..Setting::default() }).trace;
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn a_busy_link_is_not_padded() {
    let mut world = World::new(Setting { rate: 100_000, ..Setting::default() });
    let circuit = world.build_through_all(1, HopRequest::CongestionControl);
    download(&mut world, circuit, 10_000_000);
    world.run_for(Duration::from_secs(60));
    assert_eq!((world.client.padding(), padded(&world)), ([0, 0], vec![[0, 0]; 3]));
}

#[test]
fn a_user_who_wants_less_padding_sends_less_and_gets_none() {
    let reduced = silent(Setting { amount: Amount::Reduced, ..Setting::default() });
    let [received, sent] = reduced.client.padding();
    assert!(received == 0 && (40..=66).contains(&sent), "{received} and {sent} cells");
    assert!(silences(&reduced, FIRST).into_iter().min().unwrap() >= Duration::from_millis(9000));
    let off = silent(Setting { amount: Amount::Off, ..Setting::default() });
    assert_eq!((off.client.padding(), padded(&off)), ([0, 0], vec![[0, 0]; 3]));
}

#[test]
fn the_consensus_may_forgo_padding_and_have_it_between_relays() {
    let usual = PaddingParams::default();
    let none = PaddingParams { silence: (0, 0), ..usual };
    let mut world = silent(Setting { padding: none, ..Setting::default() });
    assert_eq!(world.client.padding(), [0, 0]);
    // A new consensus arrives, first at the client and then at the guard.
    world.client.set_padding(usual);
    world.run_for(TEN_MINUTES);
    let [received, sent] = world.client.padding();
    assert!(received == 0 && sent > 60, "{received} and {sent} cells");
    world.relays[0].core.set_padding(usual);
    world.run_for(TEN_MINUTES);
    assert!(world.client.padding()[0] > 30);
    let everywhere = PaddingParams { relays: true, ..usual };
    let world = silent(Setting { padding: everywhere, ..Setting::default() });
    let all = padded(&world);
    assert!(all.iter().take(2).flatten().all(|&cells| cells > 30), "{all:?}");
}

#[test]
fn padding_may_wait_for_the_first_stream() {
    let late = PaddingParams { before_usage: false, ..PaddingParams::default() };
    let mut world = silent(Setting { padding: late, ..Setting::default() });
    assert_eq!(world.client.padding(), [0, 0]);
    download(&mut world, CircuitKey(1), 1000);
    world.run_for(TEN_MINUTES);
    let [received, sent] = world.client.padding();
    assert!(received > 30 && sent > 30, "{received} and {sent} cells");
}

#[test]
fn a_link_for_directories_is_not_padded_and_goes_when_it_is_of_no_more_use() {
    let mut world = World::new(Setting::default());
    let hop = Hop { key: HopKey::Fast, ..world.hop(0, HopRequest::Plain) };
    assert!(world.build(1, vec![hop]));
    world.client.begin_directory(world.now, CircuitKey(1)).unwrap();
    world.run_for(TEN_MINUTES);
    assert_eq!((world.client.padding(), world.pipes.len()), ([0, 0], 1));
    world.client.handle(world.now, Input::Destroy { circuit: CircuitKey(1) });
    world.run_for(Duration::from_secs(179));
    assert_eq!(world.pipes.len(), 1, "somebody might want it again");
    world.run_for(Duration::from_secs(92));
    assert_eq!((world.pipes.len(), world.client.links().count()), (0, 0));
    assert!(world.build(2, vec![Hop { key: HopKey::Fast, ..world.hop(0, HopRequest::Plain) }]));
}

#[test]
fn links_between_relays_stay_for_an_hour() {
    let mut world = World::new(Setting::default());
    let circuit = world.build_through_all(1, HopRequest::CongestionControl);
    world.client.handle(world.now, Input::Destroy { circuit });
    world.run_for(Duration::from_secs(44 * 60));
    assert_eq!(world.pipes.len(), 2, "the client's has gone");
    world.run_for(Duration::from_secs(32 * 60));
    assert_eq!(world.pipes.len(), 0);
}
