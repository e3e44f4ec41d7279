//! Speed of the simulator: four CUBIC connections between two hosts over access lines of 100
//! Mbit/s and a core network with a delay of 10 ms, for 20 s. Run it with `--release`.

use std::error::Error;
use std::time::Duration;

use anabranch_sim::flows::Flows;
use rustix::time::{ClockId, clock_gettime};

const RUNS: u64 = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let flows = Flows::default();
    println!("seed  packet-hops  CPU s  packet-hops a CPU s  Mbit/s  Jain's index  hash");
    for seed in 1..=RUNS {
        let begun = cpu()?;
        let outcome = flows.run(seed);
        let spent = (cpu()? - begun).as_secs_f64();
        let hops = outcome.packet_hops;
        let (rate, fair) = (outcome.goodput(flows.span) / 1e6, outcome.fairness());
        println!(
            "{seed:4}  {hops:11}  {spent:5.2}  {:19.0}  {rate:6.2}  {fair:12.3}  {:016x}",
            hops as f64 / spent,
            outcome.hash
        );
    }
    Ok(())
}

/// Returns the CPU time of this thread.
fn cpu() -> Result<Duration, Box<dyn Error>> {
    Ok(Duration::try_from(clock_gettime(ClockId::ThreadCPUTime))?)
}
