//! Tests of round-trip times that are measured from answers, during a download that fills the
//! paths' queues.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use anabranch_testkit::comps_world as world;

use std::time::Duration;

use anabranch_comps::Batch;
use anabranch_multipath::Time;
use anabranch_netem::LinkSettings;
use world::{SeenAddress, Server, World, client, config};

/// Length of a datagram of the download, in bytes.
const SIZE: usize = 1250;
/// Number of datagrams in flight. It exceeds the capacity of both paths without their queues, and
/// is below the capacity of one path with its queue.
const WINDOW: usize = 1700;
const ONE_WAY: Duration = Duration::from_millis(60);

/// A server that first sends a whole window to the address of the newest datagram, and then a
/// datagram for each that arrives. This is a bulk transfer whose congestion window has grown until
/// the queues are full.
#[derive(Default)]
struct Bulk {
    newest: Option<(u64, SeenAddress)>,
}

impl Server for Bulk {
    fn receive(
        &mut self,
        _now: Time,
        from: SeenAddress,
        datagram: &[u8],
    ) -> Vec<(SeenAddress, Vec<u8>)> {
        let number = u64::from_be_bytes(datagram[1..9].try_into().unwrap());
        let answers = if self.newest.is_none() { WINDOW } else { 1 };
        if self.newest.is_none_or(|(newest, _)| number > newest) {
            self.newest = Some((number, from));
        }
        vec![(self.newest.unwrap().1, vec![0x55; SIZE]); answers]
    }
}

/// Returns a client's datagram of an unknown protocol, with its number.
fn acknowledgement(number: u64) -> Vec<u8> {
    let mut datagram = vec![0x55; 40];
    datagram[1..9].copy_from_slice(&number.to_be_bytes());
    datagram
}

/// Returns a world with two paths, each with a delay of 60 ms, a rate of 50 Mbit/s and a queue of
/// 2 MB (320 ms).
fn world(schedule: &str) -> World<Bulk> {
    let link =
        LinkSettings { delay: ONE_WAY, queue: 2_000_000, ..LinkSettings::with_rate(50_000_000) };
    World::with_links(config(2, schedule, "100ms"), Bulk::default(), &[link.clone(), link])
}

/// Runs the download for a second. Once per millisecond, the client acknowledges each datagram
/// that has arrived.
fn download(world: &mut World<Bulk>, number: &mut u64) {
    for _ in 0..1000 {
        let received = world.returned.remove(&client(0)).map_or(0, |datagrams| datagrams.len());
        let sent: Vec<u8> = (0..received)
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
