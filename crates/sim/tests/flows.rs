//! TCP connections over simulated lines.

use std::time::Duration;

use anabranch_sim::flows::{Flows, Outcome};

const MS: Duration = Duration::from_millis(1);

/// The share of the line that payload can have: 1,448 of 1,500 bytes.
const PAYLOAD: f64 = 1448.0 / 1500.0;

fn used(flows: &Flows, outcome: &Outcome) -> f64 {
    outcome.goodput(flows.span) / flows.rate.get() as f64
}

#[test]
fn four_connections_fill_a_line_and_share_it() {
    let flows = Flows { span: Duration::from_secs(60), apart: 250 * MS, ..Flows::default() };
    let outcome = flows.run(1);
    let used = used(&flows, &outcome);
    assert!((0.97 * PAYLOAD..PAYLOAD).contains(&used), "{used} of the line");
    assert!(outcome.fairness() > 0.95, "{:?}", outcome.received);
    assert!(outcome.stats.iter().all(|stats| stats.timeouts == 0), "{:?}", outcome.stats);
}

#[test]
fn loss_is_recovered_from_and_costs_goodput() {
    let span = Duration::from_secs(10);
    let clean = Flows { count: 1, span, ..Flows::default() };
    let lossy = Flows { loss: 0.01, ..clean.clone() };
    let (clean_run, lossy_run) = (clean.run(1), lossy.run(1));
    let (whole, rest) = (used(&clean, &clean_run), used(&lossy, &lossy_run));
    // Mathis: 1,448 bytes / 20 ms * sqrt(1.5) / sqrt(0.01) is 7.1 Mbit/s.
    assert!(whole > 0.9 && (0.05..0.12).contains(&rest), "{whole} and {rest}");
    let retransmitted = lossy_run.stats[0].retransmitted;
    let packets = lossy_run.received[0] / 1448;
    assert!(retransmitted > packets / 200 && retransmitted < packets / 50, "{retransmitted}");
}

#[test]
fn the_hash_is_a_function_of_the_seed() {
    let flows = Flows { loss: 0.005, span: Duration::from_secs(2), ..Flows::default() };
    let run = flows.run(7);
    assert_eq!(run, flows.run(7));
    assert_ne!(run.hash, flows.run(8).hash);
}

/// Checks the hash of one scenario, which must be the same for all builds and machines. Each change
/// to the behaviour of TCP or of the simulator changes it.
#[test]
fn the_hash_is_that_of_any_build() {
    let flows = Flows { loss: 0.002, span: Duration::from_secs(3), ..Flows::default() };
    assert_eq!(flows.run(1).hash, 9_078_904_977_705_900_017);
}
