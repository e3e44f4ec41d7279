//! Speed of the simulator with the 315-node network of `anabranch experiment wide`: simulated
//! seconds per second of CPU time, and CPU time per delivered megabyte. Run it with `--release`.
//!
//! `--seconds N` sets the measured simulated time, `--runs N` the number of runs, `--seed N` the
//! seed, and `--design NAME` and `--crypto NAME` restrict the measurements.

use std::error::Error;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_sim::onion::{
    Common, Crypto, LineRates, NetworkDocuments, NetworkPlan, OnionNetwork, PublicRates,
    QuantileTable, planetlab_delays,
};
use rustix::time::{ClockId, clock_gettime};

/// Simulated time before the measurement. By then, all clients have begun their first download.
const WARM_UP: Duration = Duration::from_secs(20);
/// Minimum speed without encryption of cells, in simulated seconds per second of CPU time.
const TIMES_REAL_TIME: f64 = 8.0;
/// Maximum CPU time per delivered megabyte in milliseconds: first without, then with encryption of
/// cells.
const MS_PER_MB: [f64; 2] = [5.0, 8.0];
/// Designs under test, each with its number of circuits per set. One circuit is Tor's own design.
const DESIGNS: [(&str, usize); 2] = [("tor x 1", 1), ("conflux x 2", 2)];
/// Modes of the cells' encryption: first without encryption ("elided"), then with it.
const CRYPTO: [(&str, Crypto); 2] = [("elided", Crypto::Elided), ("full", Crypto::Full)];

/// Command-line options.
struct Options {
    seconds: u64,
    runs: usize,
    seed: u64,
    design: Option<String>,
    crypto: Option<String>,
}

/// Results of one run.
struct Speed {
    times_real_time: f64,
    ms_per_mb: f64,
    megabytes: f64,
    events: u64,
    hash: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::read()?;
    let keys = plan(1, Crypto::Elided).keyring();
    println!("design       crypto  x real time  CPU ms/MB  delivered MB    events  hash");
    let mut is_met = true;
    for (place, (crypto_name, crypto)) in CRYPTO.into_iter().enumerate() {
        if options.crypto.as_ref().is_some_and(|wanted| wanted != crypto_name) {
            continue;
        }
        for (design, legs) in DESIGNS {
            if options.design.as_ref().is_some_and(|wanted| !design.starts_with(wanted)) {
                continue;
            }
            let plan = plan(legs, crypto);
            let documents = plan.documents(&keys);
            let mut runs = (0..options.runs)
                .map(|_| measure(&plan, &documents, &options))
                .collect::<Result<Vec<_>, _>>()?;
            runs.sort_by(|one, other| one.ms_per_mb.total_cmp(&other.ms_per_mb));
            let median = &runs[runs.len() / 2];
            println!(
                "{design:11}  {crypto_name:6}  {:11.2}  {:9.2}  {:12.1}  {:8}  {:016x}",
                median.times_real_time,
                median.ms_per_mb,
                median.megabytes,
                median.events,
                median.hash
            );
            let is_fast = crypto == Crypto::Full || median.times_real_time >= TIMES_REAL_TIME;
            is_met &= is_fast && median.ms_per_mb <= MS_PER_MB[place];
        }
    }
    println!(
        "bar: elided at least {TIMES_REAL_TIME} x real time, and at most {} ms CPU per MB; full \
         at most {} ms: {}",
        MS_PER_MB[0],
        MS_PER_MB[1],
        if is_met { "met" } else { "MISSED" }
    );
    Ok(())
}

impl Options {
    /// Parses the command line.
    fn read() -> Result<Options, Box<dyn Error>> {
        let mut options = Options { seconds: 10, runs: 3, seed: 1, design: None, crypto: None };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--seconds" => options.seconds = value.parse()?,
                "--runs" => options.runs = value.parse::<usize>()?.max(1),
                "--seed" => options.seed = value.parse()?,
                "--design" => options.design = Some(value),
                "--crypto" => options.crypto = Some(value),
                _ => return Err(format!("unknown option {name}").into()),
            }
        }
        Ok(options)
    }
}

/// Returns the plan of the 315-node network: 206 web clients, 22 bulk clients, 59 relays, 14 exits
/// and 14 servers, with the settings of `anabranch experiment wide`.
fn plan(legs: usize, crypto: Crypto) -> NetworkPlan {
    let [relays, exits] = PublicRates::Tor2018Spare.tables();
    NetworkPlan {
        common: Common { legs, crypto, first_pause: WARM_UP, ..Common::default() },
        relays: 59,
        exits: 14,
        sample: None,
        servers: 14,
        web: 206,
        bulk: 22,
        network: 1,
        rates: LineRates {
            relays,
            exits,
            servers: QuantileTable::one(1_000_000_000),
            clients: QuantileTable::one(50_000_000),
        },
        queue: Duration::from_millis(50),
        delays: planetlab_delays(),
        congestion_control: true,
        duration: Duration::from_secs(1500),
        warm_up: WARM_UP,
    }
}

/// Simulates the network, and measures the time after the warm-up.
fn measure(
    plan: &NetworkPlan,
    documents: &NetworkDocuments,
    options: &Options,
) -> Result<Speed, Box<dyn Error>> {
    let mut network = OnionNetwork::new(&plan.scenario(options.seed, documents));
    network.run_until(Time::ZERO + WARM_UP);
    let (before, begun) = (received(&network), cpu()?);
    network.run_until(Time::ZERO + WARM_UP + Duration::from_secs(options.seconds));
    let spent = (cpu()? - begun).as_secs_f64();
    let megabytes = (received(&network) - before) as f64 / 1e6;
    Ok(Speed {
        times_real_time: options.seconds as f64 / spent,
        ms_per_mb: spent * 1e3 / megabytes,
        megabytes,
        events: network.trace().events(),
        hash: network.trace().hash(),
    })
}

/// Returns the number of bytes that all downloads have received.
fn received(network: &OnionNetwork) -> u64 {
    network.clients().map(|client| client.received()).sum()
}

/// Returns the CPU time of this thread.
fn cpu() -> Result<Duration, Box<dyn Error>> {
    Ok(Duration::try_from(clock_gettime(ClockId::ThreadCPUTime))?)
}
