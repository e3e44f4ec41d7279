//! Rate of a bulk transfer through both ends over emulated paths, compared with one path without a
//! tunnel. Everything is emulated, so a seed gives the same figures on any machine (`--nocapture`
//! prints them).

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use anabranch_testkit::tunnel_world as world;

use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_netem::{Link, LinkSettings};
use anabranch_testkit::tcp::{Receiver, Sender};
use world::World;

const STEP: Duration = Duration::from_micros(50);
/// Duration of a transfer. The next constant is the time at its beginning that does not count (slow
/// start).
const LASTS: Duration = Duration::from_secs(10);
const LEFT_OUT: Duration = Duration::from_secs(2);
/// Length in bytes of the headers of the outer packet, which the links count.
const OUTER: usize = 60;

/// Returns a link of 100 Mbit/s with a queue of 20 ms.
fn link(delay_ms: u64) -> LinkSettings {
    let delay = Duration::from_millis(delay_ms);
    LinkSettings { delay, queue: 250_000, ..LinkSettings::with_rate(100_000_000) }
}

/// Returns a link of 30 Mbit/s with a queue of 27 ms.
fn narrow(delay_ms: u64) -> LinkSettings {
    let delay = Duration::from_millis(delay_ms);
    LinkSettings { delay, queue: 100_000, ..LinkSettings::with_rate(30_000_000) }
}

/// The state of a transfer.
struct Transfer {
    start: Time,
    sender: Sender,
    receiver: Receiver,
    left_out: u64,
}

impl Transfer {
    fn new(start: Time) -> Transfer {
        Transfer { start, sender: Sender::new(start), receiver: Receiver::default(), left_out: 0 }
    }

    /// Returns whether the transfer continues at `now`.
    fn goes_on(&mut self, now: Time) -> bool {
        if now.since(self.start) < LEFT_OUT {
            self.left_out = self.receiver.bytes;
        }
        now.since(self.start) < LASTS
    }

    /// Returns the rate in Mbit/s, without slow start.
    fn rate(&self) -> f64 {
        let counted = (self.receiver.bytes - self.left_out) as f64;
        counted * 8.0 / 1e6 / (LASTS - LEFT_OUT).as_secs_f64()
    }
}

/// Returns the rate over one path, without the two ends of a tunnel.
fn alone(link: &LinkSettings) -> f64 {
    let [mut down, mut up] = [0, 1].map(|way| Link::<Vec<u8>>::new(link.clone(), 1, way));
    let mut now = Time::from_millis(10);
    let mut transfer = Transfer::new(now);
    while transfer.goes_on(now) {
        now += STEP;
        while let Some(ack) = up.pop(now) {
            transfer.sender.acknowledged(now, &ack);
        }
        transfer.sender.tick(now);
        while let Some(segment) = transfer.sender.poll(now) {
            let length = segment.len() + OUTER;
            let _ = down.push(now, segment, length);
        }
        while let Some(segment) = down.pop(now) {
            if let Some(ack) = transfer.receiver.take(&segment) {
                let length = ack.len() + OUTER;
                let _ = up.push(now, ack, length);
            }
        }
    }
    transfer.rate()
}

/// Returns the rate from the far end to the near end over three paths, if both ends use uniform
/// runs.
fn split(seed: u64, delays: [u64; 3], every: &str) -> f64 {
    let rate = transfer(World::new(seed, &delays.map(link), every));
    println!("  {delays:?} {every}, seed {seed}: {rate:.1} Mbit/s");
    rate
}

/// Returns the rate as `split` does, with a schedule that uses windows.
fn summed(seed: u64, links: &[LinkSettings], schedule: &str) -> f64 {
    scheduled(seed, links, schedule, "1p")
}

fn scheduled(seed: u64, links: &[LinkSettings], schedule: &str, every: &str) -> f64 {
    let rate = transfer(World::scheduled(seed, links, schedule, every));
    println!("  {schedule} {every}, seed {seed}: {rate:.1} Mbit/s");
    rate
}

fn transfer(mut world: World) -> f64 {
    world.run_for(Duration::from_secs(2));
    let mut transfer = Transfer::new(world.now);
    while transfer.goes_on(world.now) {
        world.run_for(STEP);
        let [up, down] = world.out.each_mut().map(std::mem::take);
        for (_, ack) in up {
            transfer.sender.acknowledged(world.now, &ack);
        }
        transfer.sender.tick(world.now);
        while let Some(segment) = transfer.sender.poll(world.now) {
            world.send_down(&segment);
        }
        for (_, segment) in down {
            if let Some(ack) = transfer.receiver.take(&segment) {
                world.send_up(&ack);
            }
        }
        world.seen.iter_mut().for_each(Vec::clear);
    }
    transfer.rate()
}

#[test]
fn a_bulk_transfer_keeps_its_speed_over_equal_paths() {
    let unsplit = alone(&link(20));
    println!("unsplit: {unsplit:.1} Mbit/s");
    for every in ["100ms", "20ms"] {
        for seed in 1..4 {
            let share = split(seed, [20, 20, 20], every) / unsplit;
            assert!(share >= 0.95, "every {every}, seed {seed}: {share:.2} of unsplit");
        }
    }
}

#[test]
fn over_unequal_paths_it_is_as_fast_as_over_the_slowest_alone() {
    let slowest = alone(&link(60));
    println!("the slowest path alone: {slowest:.1} Mbit/s");
    for every in ["100ms", "20ms"] {
        for seed in 1..4 {
            let share = split(seed, [20, 35, 60], every) / slowest;
            assert!(share >= 0.95, "every {every}, seed {seed}: {share:.2} of the slowest path");
        }
    }
}

/// The schedules that the guide recommends for adding up the rates of paths. Their results are the
/// same with any seed.
const SUMS: [&str; 4] = ["conflux-2013", "mix:2", "pull", "eta"];

#[test]
fn schedules_that_look_at_windows_add_equal_paths_up() {
    let one = alone(&narrow(20));
    println!("one path: {one:.1} Mbit/s");
    for schedule in SUMS {
        let sum = summed(1, &[20, 20, 20].map(narrow), schedule) / one;
        assert!(sum >= 2.5, "{schedule}: {sum:.2} times one path");
    }
}

#[test]
fn of_paths_with_unlike_rates_they_give_more_than_the_best_and_than_turns() {
    let rates = [(50, 150_000), (30, 100_000), (10, 60_000)];
    let links = rates.map(|(mbits, queue)| LinkSettings {
        delay: Duration::from_millis(20),
        queue,
        ..LinkSettings::with_rate(mbits * 1_000_000)
    });
    let (best, turns) = (alone(&links[0]), summed(1, &links, "round-robin"));
    println!("the best path alone: {best:.1} Mbit/s");
    for schedule in SUMS {
        let sum = summed(1, &links, schedule);
        assert!(sum >= 1.15 * best && sum >= 1.9 * turns, "{schedule}: {sum:.1} Mbit/s");
    }
}

/// Paths that differ in rate, in delay or in both. Only their queues of 100 kB lose packets.
const UNLIKE: [([u64; 3], [u64; 3]); 4] = [
    ([50, 30, 10], [20, 20, 20]),
    ([50, 30, 10], [20, 35, 60]),
    ([30, 30, 30], [20, 20, 20]),
    ([30, 30, 30], [20, 35, 60]),
];

fn unlike(rates: [u64; 3], delays: [u64; 3]) -> Vec<LinkSettings> {
    let link = |(mbits, delay)| LinkSettings {
        delay: Duration::from_millis(delay),
        queue: 100_000,
        ..LinkSettings::with_rate(mbits * 1_000_000)
    };
    rates.into_iter().zip(delays).map(link).collect()
}

#[test]
fn chances_by_capacity_are_as_fast_as_the_fastest_path_alone() {
    let links = unlike(UNLIKE[0].0, UNLIKE[0].1);
    let best = links.iter().map(alone).fold(0.0, f64::max);
    for seed in 1..4 {
        let share = scheduled(seed, &links, "by-capacity", "~4p") / best;
        let equal = scheduled(seed, &links, "uniform", "~10p") / best;
        println!("{share:.2} of {best:.1} Mbit/s; uniform {equal:.2}");
        assert!(share >= 0.95 && equal < 0.6, "seed {seed}: {share:.2}, uniform {equal:.2}");
    }
}

#[test]
fn eta_adds_up_paths_that_differ_in_rate_and_delay() {
    for (rates, delays) in UNLIKE {
        let links = unlike(rates, delays);
        let alone: f64 = links.iter().map(alone).sum();
        let share = summed(1, &links, "eta") / alone;
        println!("{rates:?} Mbit/s, {delays:?} ms: {share:.2} of {alone:.1} Mbit/s");
        assert!(share >= 0.9, "{rates:?} Mbit/s, {delays:?} ms: {share:.2} of the sum");
    }
}
