//! One TCP connection in a tunnel over unlike lines. Its rate is compared with the sum of the
//! rates that the connection gets over each line alone. TCP behaves like Linux's. The lines, the
//! order of the transfers and the targets are those of `bench/far_end.py lines`. Time is virtual,
//! so a seed gives the same figures on any machine (`--nocapture` prints them; the example
//! `unlike_lines` shows one run).

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::time::Duration;

use anabranch_netem::LinkSettings;
use anabranch_testkit::tunnel_world::World;
use anabranch_testkit::tunnel_world::bulk::{Bulk, DatagramCarrier, Line, Outcome, lines};

const TIMES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(6));
/// The fastest schedule over lines that differ.
const SCHEDULE: &str = "eta";
/// Minimum share of the lines' summed rate: of the median, and of the worst round.
const OF_SUM: f64 = 0.9;
const WORST: f64 = 0.75;
/// Maximum increase of the round-trip time under load.
const LONGER: Duration = Duration::from_millis(100);
const ROUNDS: u64 = 3;

fn both_ways<C: DatagramCarrier>(carrier: C, round: u64) -> [Outcome; 2] {
    Bulk::new(carrier).up_then_down(round, TIMES, &mut |_, _, _| {})
}

/// Returns the rates up and down in Mbit/s, summed over the lines, each measured alone.
fn sum(links: &[LinkSettings], round: u64) -> [f64; 2] {
    links.iter().fold([0.0; 2], |sums, link| {
        let outcomes = both_ways(Line::new(link, round), round);
        [0, 1].map(|way| sums[way] + outcomes[way].rate)
    })
}

fn check(rates: &[u64], delays: &[u64]) {
    let links = lines(rates, delays);
    let mut shares = [Vec::new(), Vec::new()];
    for round in 1..=ROUNDS {
        let sums = sum(&links, round);
        let world = World::scheduled(round, &links, SCHEDULE, "1p");
        for (way, outcome) in both_ways(world, round).iter().enumerate() {
            let Outcome { rate, delay, stats, .. } = outcome;
            println!("{way}: {rate:.1} of {:.1} Mbit/s, {delay:?}, {stats:?}", sums[way]);
            shares[way].push(rate / sums[way]);
            assert!(*delay <= LONGER, "{delay:?}");
        }
    }
    for shares in &mut shares {
        shares.sort_by(f64::total_cmp);
        let [worst, median] = [shares[0], shares[shares.len() / 2]];
        assert!(median >= OF_SUM && worst >= WORST, "{shares:.2?} of the sum");
    }
}

#[test]
fn lines_of_unlike_rates_add_up() {
    check(&[50, 30, 10], &[20, 20, 20]);
}

#[test]
fn lines_of_equal_rates_add_up() {
    check(&[30, 30, 30], &[20, 20, 20]);
}
