//! Tests of the schedulers for circuits with unequal legs, compared with the statements of their
//! sources.
//!
//! A leg is a queue of a given rate, followed by a delay. Its window follows a simplified form of
//! TOR_VEGAS: it grows while fewer than 186 cells wait in queues, and shrinks above 248. Rates
//! vary by up to a fifth from seed to seed. The tests print figures; `cargo test -- --nocapture`
//! shows them.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_multipath::schedule::Spec;
use anabranch_multipath::{Assignment, Boundary, LegView, PathId, PathView, Splitter, Time, seed};
use rand::RngExt;

const SEEDS: u64 = 5;
/// Cells of 514 bytes in a second at 1 Mbit/s.
const CELLS: f64 = 1e6 / 8.0 / 514.0;
/// Bytes of a stream in a cell.
const DATA: usize = 498;
const STEP: u64 = 31;
const LEAST: u64 = 124;

/// A leg (circuit of a set) and its sender's window.
struct Leg {
    /// Time that sending a cell takes, and the delay in one direction.
    cell: Duration,
    delay: Duration,
    /// Time at which the bottleneck will have sent all cells so far.
    free: Time,
    rtt: Duration,
    least: Duration,
    size: u64,
    inflight: u64,
    carried: u64,
    slow_start: bool,
    /// Number of acknowledgements until the window may change again.
    rest: u64,
}

impl Leg {
    fn new(mbit: f64, rtt: Duration) -> Leg {
        let cell = Duration::from_secs_f64(1.0 / (mbit * CELLS));
        let (free, delay) = (Time::ZERO, rtt / 2);
        let (size, inflight, carried, rest) = (LEAST, 0, 0, 0);
        let (least, slow_start) = (rtt, true);
        Leg { cell, delay, free, rtt, least, size, inflight, carried, slow_start, rest }
    }

    fn bdp(&self) -> u64 {
        (self.size as f64 * self.least.as_secs_f64() / self.rtt.as_secs_f64()) as u64
    }

    fn view(&self, current: bool) -> PathView {
        let leg = LegView {
            least_rtt: self.least,
            size: self.size,
            inflight: self.inflight,
            step: STEP,
            bdp: self.bdp(),
            queued: 0,
            slow_start: self.slow_start,
            current,
            switch_cost: 0,
            capacity: 0,
            max_rate: 0,
            link: None,
        };
        PathView::leg(Some(self.rtt), self.size.saturating_sub(self.inflight), leg)
    }

    /// Sends a cell. Returns the time of its arrival, and whether it will be acknowledged.
    fn send(&mut self, now: Time) -> (Time, bool) {
        self.free = self.free.max(now) + self.cell;
        self.inflight += 1;
        self.carried += 1;
        (self.free + self.delay, self.carried.is_multiple_of(STEP))
    }

    fn acknowledged(&mut self, rtt: Duration) {
        self.inflight -= STEP;
        self.rtt = (2 * rtt + self.rtt) / 3;
        self.least = self.least.min(self.rtt);
        let waiting = self.size - self.bdp();
        if self.slow_start {
            match waiting < 186 {
                true => self.size += STEP,
                false => (self.slow_start, self.size) = (false, self.bdp() + 186),
            }
        } else if self.rest > 0 {
            self.rest -= 1;
        } else if waiting > 248 {
            self.size -= STEP;
        } else if waiting < 186 {
            self.size += STEP;
        }
        if !self.slow_start && self.rest == 0 {
            self.rest = self.size / STEP;
        }
        self.size = self.size.max(LEAST);
    }
}

/// Result of the transfer of an object.
struct Outcome {
    /// Seconds until the object's last cell arrived.
    seconds: f64,
    /// Number of cells carried by each leg.
    carried: Vec<u64>,
}

/// Transfers an object of `cells` cells over legs, each given as (Mbit/s, RTT in ms).
fn transfer(schedule: &str, legs: &[(f64, u64)], cells: u64, seed: u64) -> Outcome {
    let mut chance = seed::stream(seed, 0, "rates");
    let mut vary = || chance.random_range(0.8..1.2);
    let mut legs: Vec<Leg> =
        legs.iter().map(|(mbit, ms)| Leg::new(mbit * vary(), Duration::from_millis(*ms))).collect();
    let spec = Spec::over_windows(schedule).unwrap();
    let scheduler = spec.build(legs.len(), seed::stream(seed, 0, "scheduler")).unwrap();
    let boundary = Boundary::new("1p".parse().unwrap(), seed::stream(seed, 0, "boundary"));
    let mut splitter = Splitter::new(scheduler, boundary);
    // For each acknowledgement, its time, its leg, and the time at which the cell was sent.
    let mut due: BTreeMap<(Time, usize), Time> = BTreeMap::new();
    let (mut now, mut left, mut last) = (Time::ZERO, cells, Time::ZERO);
    let mut views = Vec::new();
    while left > 0 {
        views.clear();
        let current = splitter.current();
        let current = |index| current == Some(PathId::at(index));
        views.extend(legs.iter().enumerate().map(|(index, leg)| leg.view(current(index))));
        let Assignment::Send { path, .. } = splitter.assign(now, &views, left) else {
            let ((at, index), sent) = due.pop_first().expect("rule: who waits is woken");
            now = at;
            legs[index].acknowledged(now.since(sent));
            continue;
        };
        let leg = &mut legs[path.index()];
        let (arrives, marked) = leg.send(now);
        if marked {
            due.insert((arrives + leg.delay, path.index()), now);
        }
        (left, last) = (left - 1, last.max(arrives));
    }
    Outcome { seconds: last.secs_f64(), carried: legs.iter().map(|leg| leg.carried).collect() }
}

/// Transfers an object with each seed. Prints and returns the seconds, sorted.
fn spread(schedule: &str, legs: &[(f64, u64)], bytes: usize) -> [f64; SEEDS as usize] {
    let cells = bytes.div_ceil(DATA) as u64;
    let one = |n| transfer(schedule, legs, cells, n as u64 + 1).seconds;
    let mut all: [f64; SEEDS as usize] = std::array::from_fn(one);
    all.sort_by(f64::total_cmp);
    let [least, .., most] = all;
    let median = all[all.len() / 2];
    println!("{schedule}, {legs:?}, {bytes} bytes: {median:.3} s ({least:.3} to {most:.3})");
    all
}

/// Returns the median of the download times, in seconds.
fn seconds(schedule: &str, legs: &[(f64, u64)], bytes: usize) -> f64 {
    spread(schedule, legs, bytes)[SEEDS as usize / 2]
}

/// Returns the legs' shares of a long transfer with the first seed.
fn shares(schedule: &str, legs: &[(f64, u64)], cells: u64) -> Vec<f64> {
    let carried = transfer(schedule, legs, cells, 1).carried;
    println!("{schedule}, {legs:?}, {cells} cells: {carried:?}");
    carried.iter().map(|carried| *carried as f64 / cells as f64).collect()
}

/// A leg of 20 Mbit/s and 40 ms, and a leg of 5 Mbit/s and 120 ms.
const UNEQUAL: [(f64, u64); 2] = [(20.0, 40), (5.0, 120)];
const EQUAL: [(f64, u64); 2] = [(20.0, 40), (20.0, 40)];
const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

#[test]
fn lowrtt_fills_the_better_window_before_the_second_leg_carries_anything() {
    let carried = |cells| transfer("lowrtt", &UNEQUAL, cells, 1).carried;
    assert_eq!(carried(LEAST), [LEAST, 0]);
    assert_eq!(carried(LEAST + 50), [LEAST, 50]);
}

#[test]
fn minrtt_uses_one_leg_until_its_queue_makes_the_other_the_quicker() {
    assert_eq!(transfer("minrtt", &UNEQUAL, 500, 1).carried, [500, 0]);
    let one = seconds("minrtt", &UNEQUAL[..1], 20 * MIB);
    let (both, low) =
        (seconds("minrtt", &UNEQUAL, 20 * MIB), seconds("lowrtt", &UNEQUAL, 20 * MIB));
    assert!(low < one && low < both, "one {one}, both {both}, lowrtt {low}");
}

#[test]
fn pull_follows_the_rates_without_an_estimate() {
    let legs = [(20.0, 60), (10.0, 60), (5.0, 60)];
    let mut chance = seed::stream(1, 0, "rates");
    let rates: Vec<f64> =
        legs.iter().map(|(mbit, _)| mbit * chance.random_range(0.8..1.2)).collect();
    let sum: f64 = rates.iter().sum();
    for (share, rate) in shares("pull", &legs, 60_000).iter().zip(&rates) {
        let expected = rate / sum;
        assert!((share / expected - 1.0).abs() < 0.1, "{share} instead of {expected}");
    }
}

#[test]
fn conflux_2013_deals_by_the_time_that_sendmes_take() {
    // Neither leg fills its window, so the propagation times alone determine the shares.
    let shares = shares("conflux-2013", &[(1_000.0, 40), (1_000.0, 120)], 160);
    assert_eq!(shares, [0.75, 0.25]);
}

#[test]
fn a_mix_lies_between_turns_and_the_quickest_alone() {
    let first = |schedule: &str| shares(schedule, &[(1_000.0, 40), (1_000.0, 120)], 120)[0];
    let shares = ["mix:0", "mix:1", "mix:3", "lowrtt"].map(first);
    assert!(shares.is_sorted() && shares[0] == 0.5 && shares[3] == 1.0, "{shares:?}");
}

#[test]
fn cwndrtt_gives_the_second_leg_only_what_its_window_sends_meanwhile() {
    let carried = transfer("cwndrtt", &UNEQUAL, 4_000, 1).carried;
    println!("cwndrtt: {carried:?}");
    assert!(carried[1] > 0 && carried[1] < carried[0], "{carried:?}");
}

#[test]
fn eta_beats_turns_on_unequal_legs_and_loses_nothing_to_the_better_leg_alone() {
    for bytes in [50 * KIB, 320 * KIB, MIB] {
        let eta = seconds("eta", &UNEQUAL, bytes);
        let turns = seconds("round-robin", &UNEQUAL, bytes);
        let [.., alone] = spread("lowrtt", &UNEQUAL[..1], bytes);
        assert!(eta < turns, "{bytes} bytes: {eta} s, round robin {turns}");
        assert!(eta <= alone, "{bytes} bytes: {eta} s, the better leg alone {alone} at most");
    }
}

#[test]
fn eta_is_not_below_lowrtt_on_long_transfers_and_uses_both_legs() {
    for legs in [UNEQUAL, EQUAL] {
        let eta = seconds("eta", &legs, 20 * MIB);
        let low = seconds("lowrtt", &legs, 20 * MIB);
        let turns = seconds("round-robin", &legs, 20 * MIB);
        let alone = seconds("lowrtt", &legs[..1], 20 * MIB);
        assert!(eta <= low * 1.01, "{legs:?}: eta {eta} s, lowrtt {low} s");
        assert!(eta < turns && eta < alone, "{eta} s, round robin {turns}, alone {alone}");
    }
}

#[test]
fn two_equal_legs_carry_nearly_twice_as_much_as_one() {
    for schedule in ["lowrtt", "pull", "conflux-2013", "mix:2", "eta", "round-robin"] {
        let one = seconds(schedule, &EQUAL[..1], 20 * MIB);
        let two = seconds(schedule, &EQUAL, 20 * MIB);
        assert!(one / two > 1.6, "{schedule}: {one} s by one leg, {two} s by two");
    }
}
