//! Tests of packets that were replayed, changed, forged or late, of too many packets, and of peers
//! that vanish.

mod world;

use std::time::Duration;

use anabranch_more::{Config, Datagram, DropReason, Ending, OVERHEAD, PAYLOAD};
use anabranch_multipath::{Core as _, Time};
use anabranch_netem::LinkSettings;
use sphinx_packet::SphinxPacketBuilder;
use sphinx_packet::header::delays::Delay;
use sphinx_packet::route::{Destination, DestinationAddressBytes, Node, NodeAddressBytes};
use world::{MS, SeenDatagram, Transfer, World, address};

const LIMIT: Duration = Duration::from_secs(200);

fn quiet() -> LinkSettings {
    LinkSettings { delay: 2 * MS, ..LinkSettings::default() }
}

fn world(config: &Config) -> World {
    World::new(quiet(), config, 1)
}

#[test]
fn replayed_packets_are_dropped_and_contact_nobody() {
    let mut world = world(&Config::default());
    world.seen = Some(Vec::new());
    world.start(20_000, 20_000);
    world.transfers[0].closes = false;
    world.run(LIMIT);
    world.rest(20 * MS);
    let delivered = world.count(|counters| counters.delivered);
    let seen = world.seen.take().unwrap_or_default();
    let count = seen.len() as u64;
    assert!(count > 200);
    seen.into_iter().for_each(|one| world.push(one));
    world.rest(20 * MS);
    assert_eq!(world.dropped(DropReason::Replayed), count);
    assert_eq!(world.count(|counters| counters.delivered), delivered);
    assert_eq!(world.transfers[0].begun, 1);
}

#[test]
fn a_packet_that_is_late_beyond_its_lifetime_is_dropped() {
    let mut world = world(&Config::default());
    world.seen = Some(Vec::new());
    world.start(10, 10);
    world.run(LIMIT);
    let first = world.seen.as_ref().and_then(|seen| seen.first().cloned()).expect("a packet");
    world.rest(Duration::from_secs(200));
    let before = world.dropped(DropReason::Expired);
    world.push(first);
    world.rest(20 * MS);
    // The tags of that time are removed, and the packet has expired.
    assert_eq!(world.dropped(DropReason::Expired), before + 1);
    assert_eq!(world.transfers[0].begun, 1);
}

#[test]
fn a_changed_packet_is_destroyed_and_the_stream_goes_on() {
    // One bit is changed in each part: group element, MAC, routing information, payload.
    for at in [3, 40, 200, OVERHEAD - 10, OVERHEAD + PAYLOAD - 1] {
        let mut world = world(&Config::default());
        let (mut number, mut changed) = (0, 0);
        let (count, report) = std::sync::mpsc::channel();
        world.tamper = Some(Box::new(move |seen: &mut SeenDatagram| {
            number += 1;
            if number % 10 == 0 {
                seen.bytes[at] ^= 4;
                changed += 1;
                let _ = count.send(changed);
            }
            true
        }));
        world.start(10_000, 10_000);
        world.run(LIMIT);
        world.transfers[0].assert_whole();
        let in_header = at < 348;
        let destroyed = match in_header {
            true => world.dropped(DropReason::Forged),
            false => world.dropped(DropReason::Garbled),
        };
        let changed = report.try_iter().last().unwrap_or_default();
        assert!(changed > 5, "{changed}");
        // The last changed packets may still be in flight. Some packets were changed twice.
        assert!(destroyed > changed / 2 && destroyed <= changed, "{at}: {destroyed}, {changed}");
    }
}

#[test]
fn floods_of_garbage_change_nothing_and_are_counted() {
    let mut world = world(&Config::default());
    let size = OVERHEAD + PAYLOAD;
    let now = world.now;
    let node = &mut world.nodes[1];
    for number in 0..200u32 {
        let garbage = world::pattern(number.into(), 0, size);
        let (neighbour, stranger) = (address(2), "198.51.100.1:9".parse().expect("an address"));
        let datagrams =
            [(neighbour, size), (neighbour, size - 1), (stranger, size), (neighbour, 0)];
        for (from, length) in datagrams {
            node.handle(now, Datagram { from, bytes: &garbage[..length] });
        }
    }
    let counters = node.counters();
    assert_eq!(counters.dropped(DropReason::Forged), 200);
    assert_eq!(counters.dropped(DropReason::Malformed), 400);
    assert_eq!(counters.dropped(DropReason::UnknownSource), 200);
    assert_eq!((node.stored(), node.streams(), node.poll(now)), ([0, 0], 0, None));
}

#[test]
fn a_full_set_of_tags_refuses_packets_until_the_old_ones_expire() {
    let mut world = world(&Config { tags: 100, ..Config::default() });
    world.start(0, 200_000);
    world.rest(Duration::from_secs(5));
    assert!(world.dropped(DropReason::Full) > 0);
    assert!(world.nodes.iter().all(|node| node.stored()[0] <= 100));
    assert!(!world.transfers[0].is_done());
    world.rest(Duration::from_secs(200));
    world.start(10, 10);
    world.rest(Duration::from_secs(5));
    world.transfers[1].assert_whole();
}

/// Returns a packet over `route` that the client could have built.
fn crafted(world: &World, route: &[usize], expiry: u64) -> Vec<u8> {
    let peers = world.network.peers();
    let node =
        |&at: &usize| Node::new(NodeAddressBytes::from_bytes(peers[at].key), peers[at].key.into());
    let nodes: Vec<_> = route.iter().map(node).collect();
    let mut address = [0; 32];
    address[..8].copy_from_slice(&expiry.to_be_bytes());
    let destination = Destination::new(DestinationAddressBytes::from_bytes(address), [0; 16]);
    let delays = vec![Delay::new_from_nanos(expiry); route.len()];
    let builder = SphinxPacketBuilder::new().with_payload_size(PAYLOAD + 17);
    let packet = builder.build_packet(b"nothing", &nodes, &destination, &delays);
    packet.expect("a route of up to 5 hops").to_bytes()
}

#[test]
fn looping_routes_end_at_the_first_return() {
    let mut world = world(&Config::default());
    let expiry = world.now.nanos() / 30_000_000_000 + 4;
    for (route, passed) in [(&[1, 1, 2][..], 0), (&[1, 2, 1, 2, 1], 1), (&[1, 2, 3, 1, 2], 4)] {
        let before = world.count(|counters| counters.relayed);
        let bytes = crafted(&world, route, expiry);
        world.push(SeenDatagram { from: 0, to: route[0], bytes });
        world.rest(50 * MS);
        assert_eq!(world.count(|counters| counters.relayed) - before, passed, "{route:?}");
    }
    assert_eq!(world.dropped(DropReason::Looped), 2);
    assert_eq!(world.dropped(DropReason::Malformed), 1, "the third one arrives, and says nothing");
}

#[test]
fn an_expiry_that_would_fill_the_tags_for_ever_is_refused() {
    let mut world = world(&Config::default());
    let bytes = crafted(&world, &[1, 2, 3], u64::MAX);
    world.push(SeenDatagram { from: 0, to: 1, bytes });
    world.rest(50 * MS);
    assert_eq!(world.dropped(DropReason::Expired), 1);
}

#[test]
fn an_exit_without_room_resets_the_stream() {
    // Each of the two exits has room for one stream.
    let mut world = world(&Config { streams: 1, ..Config::default() });
    for client in 0..3 {
        world.start_at(client, 1, 1);
        world.transfers[client].closes = false;
        assert!(world.nodes[client].open(world.now, world::target(0)).is_err(), "its own limit");
    }
    world.rest(Duration::from_secs(2));
    let reset = |transfer: &&Transfer| transfer.ends[0].ending == Some(Ending::Reset);
    let resets = world.transfers.iter().filter(reset).count();
    let done = world.transfers.iter().filter(|transfer| transfer.is_done()).count();
    assert!(resets >= 1 && done + resets == 3, "{:?}", world.transfers);
    assert!(world.dropped(DropReason::UnknownStream) > 0);
}

#[test]
fn an_exit_forgets_a_client_that_is_silent_for_two_minutes() {
    let mut world = world(&Config::default());
    world.start(1_000, 1_000);
    world.transfers[0].closes = false;
    world.run(LIMIT);
    let exit = world.transfers[0].ends[1].node;
    world.rest(Duration::from_secs(300));
    assert_eq!(world.nodes[exit].streams(), 1, "an idle client keeps its stream");
    world.tamper = Some(Box::new(|seen: &mut SeenDatagram| seen.from != 0));
    world.rest(Duration::from_secs(125));
    assert_eq!(world.nodes[exit].streams(), 0);
    assert_eq!(world.transfers[0].ends[1].ending, Some(Ending::TimedOut));
}

#[test]
fn an_idle_stream_resumes_after_its_reply_blocks_have_expired() {
    let mut world = world(&Config::default());
    world.start(500, 500);
    world.transfers[0].closes = false;
    world.run(LIMIT);
    world.rest(Duration::from_secs(400));
    let server = &mut world.transfers[0].ends[1];
    server.total += 50_000;
    let began: Time = world.now;
    world.run(LIMIT);
    world.transfers[0].assert_whole();
    assert!(world.now.since(began) < Duration::from_secs(1), "{:?}", world.now.since(began));
}
