//! How many packets a second the trace splitter assigns on one core: `cargo run --release --example split_rate`.
//!
//! Loads of 1,500 packets with a down-heavy mix, as page loads are. Each line is the median of five runs, and their spread.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "not part of the core: it times one"
)]

use std::hint::black_box;
use std::time::Instant;

use anabranch_multipath::trace::{Entity, Mode, TraceSplit};

const LOADS: i64 = 2_000;
const PACKETS: usize = 1_500;
const CASES: &[(&str, &str)] = &[
    ("round-robin", "50p"),
    ("uniform", "1p"),
    ("weighted", "50p"),
    ("weighted", "100ms"),
    ("batched", "50-70p"),
    ("hywf", "~20p"),
];

fn main() {
    let times: Vec<f64> = (0..PACKETS).map(|packet| packet as f64 * 0.004).collect();
    let sizes: Vec<i32> =
        (0..PACKETS).map(|packet| if packet % 5 == 0 { 90 } else { -1500 }).collect();
    for mode in [Mode::Together, Mode::Independent] {
        for (schedule, every) in CASES {
            let spec = schedule.parse().expect("a schedule as the documentation writes it");
            let every_ = every.parse().expect("a boundary as the documentation writes it");
            let plan =
                TraceSplit::new(spec, every_, 3, mode, 7).expect("three paths suit all cases");
            let mut rates: Vec<f64> = (0..5).map(|_| rate(&plan, &times, &sizes)).collect();
            rates.sort_by(f64::total_cmp);
            let [low, .., high] = rates[..] else { unreachable!("five runs") };
            let name = format!("{schedule} {every} {mode:?}");
            println!("{name:<32} {:>5.0} M packets/s ({low:.0} to {high:.0})", rates[2]);
        }
    }
}

/// Million packets per second over all loads.
fn rate(plan: &TraceSplit, times: &[f64], sizes: &[i32]) -> f64 {
    let mut paths = vec![0; times.len()];
    let start = Instant::now();
    for load in 0..LOADS {
        let entity = Entity { load, run: 0, replica: 0 };
        plan.assign(entity, black_box(times), sizes, &mut paths).expect("a sound trace");
        black_box(&paths);
    }
    LOADS as f64 * times.len() as f64 / start.elapsed().as_secs_f64() / 1e6
}
