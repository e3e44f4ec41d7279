//! Round-trip times that are read off the answers, under a download that fills the paths' queues.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use anabranch_testkit::comps_world as world;

use std::time::Duration;

use anabranch_comps::Batch;
use anabranch_multipath::Time;
use anabranch_netem::LinkSettings;
use world::{Seen, Server, World, client, config};

/// Bytes of a datagram of the download.
const SIZE: usize = 1250;
/// Datagrams under way: more than both paths hold without their queues, less than one holds with
/// its.
const WINDOW: usize = 1700;
const ONE_WAY: Duration = Duration::from_millis(60);

/// Sends a window to the address of the newest datagram, then a datagram for each that comes: a
/// bulk transfer whose congestion window has grown until the queues are full.
#[derive(Default)]
struct Bulk {
    newest: Option<(u64, Seen)>,
}

impl Server for Bulk {
    fn hear(&mut self, _now: Time, from: Seen, datagram: &[u8]) -> Vec<(Seen, Vec<u8>)> {
        let number = u64::from_be_bytes(datagram[1..9].try_into().unwrap());
        let answers = if self.newest.is_none() { WINDOW } else { 1 };
        if self.newest.is_none_or(|(newest, _)| number > newest) {
            self.newest = Some((number, from));
        }
        vec![(self.newest.unwrap().1, vec![0x55; SIZE]); answers]
    }
}

/// A datagram of the client: an unknown protocol's, with its number.
fn acknowledgement(number: u64) -> Vec<u8> {
    let mut datagram = vec![0x55; 40];
    datagram[1..9].copy_from_slice(&number.to_be_bytes());
    datagram
}

/// Two paths of 60 ms, 50 Mbit/s and a queue of 2 MB (320 ms).
fn world(schedule: &str) -> World<Bulk> {
    let link =
        LinkSettings { delay: ONE_WAY, queue: 2_000_000, ..LinkSettings::with_rate(50_000_000) };
    World::with_links(config(2, schedule, "100ms"), Bulk::default(), &[link.clone(), link])
}

/// Lets the download run for a second: an acknowledgement for each datagram, once a millisecond.
fn download(world: &mut World<Bulk>, number: &mut u64) {
    for _ in 0..1000 {
        let came = world.returned.remove(&client(0)).map_or(0, |datagrams| datagrams.len());
        let sent: Vec<u8> = (0..came)
            .flat_map(|_| {
                *number += 1;
                acknowledgement(*number)
            })
            .collect();
        if !sent.is_empty() {
            world.client_batch(client(0), Batch { bytes: &sent, stride: 40, ecn: 0 });
        }
        world.sent.clear();
        world.run_until(world.now + Duration::from_millis(1));
    }
}

#[test]
fn a_download_that_fills_the_queues_leaves_the_round_trip_times_right() {
    let mut world = world("weighted:4");
    let mut number = 0;
    world.client(client(0), &acknowledgement(number));
    let mut measured = 0;
    for second in 1..=25 {
        download(&mut world, &mut number);
        for (path, counters) in world.core.snapshot().paths.iter().enumerate() {
            let Some(rtt) = counters.rtt else { continue };
            let millis = rtt.as_secs_f64() * 1e3;
            assert!((120.0..130.0).contains(&millis), "path {path} after {second} s: {millis} ms");
            measured += 1;
        }
    }
    assert!(measured >= 40, "both paths had a figure most of the time: {measured}");
    let down: Vec<u64> = world.core.snapshot().paths.iter().map(|path| path.down.bytes).collect();
    assert!(down.iter().all(|bytes| *bytes > 25_000_000), "a download by both: {down:?}");
}
