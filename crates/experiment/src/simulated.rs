//! Simulations of onion networks, for sweeps and experiments.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anabranch_sim::onion::{DownloadRecord, Keyring, NetworkPlan, PlannedRun};

use super::table::{Column, Rows};

/// A download in a simulation, as a row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DownloadRow {
    /// Index of the random network that was simulated.
    pub network: u64,
    /// Seed of the simulation.
    pub seed: u64,
    /// Index of the client, from 0; clients that load web pages come first.
    pub client: usize,
    /// True if the client makes large (bulk) downloads.
    pub bulk: bool,
    /// Times and result of the download.
    pub download: DownloadRecord,
}

/// Results of a simulation of an onion network.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulationResults {
    /// Hash of all simulated events, to check that two runs of a simulation are identical.
    pub hash: u64,
    /// Number of simulated events, a measure of the simulation's size.
    pub events: u64,
    /// Shares of the capacity of the relays' network lines that were used: first for relays that
    /// are not exits, then for exits.
    pub loads: [f64; 2],
    /// Downloads that ended after the warm-up phase.
    pub rows: Vec<DownloadRow>,
}

impl SimulationResults {
    /// Collects the results of the finished simulation `run`. `network` is the index of the random
    /// network, and `seed` the seed of the simulation.
    #[must_use]
    pub fn of(run: &PlannedRun, (network, seed): (u64, u64)) -> SimulationResults {
        let row = |(client, bulk, download): (usize, bool, &DownloadRecord)| DownloadRow {
            network,
            seed,
            client,
            bulk,
            download: *download,
        };
        let trace = run.network.trace();
        SimulationResults {
            hash: trace.hash(),
            events: trace.events(),
            loads: run.loads(),
            rows: run.downloads().map(row).collect(),
        }
    }

    /// Returns the downloads of one kind of clients: of bulk clients if `bulk`, otherwise of web
    /// clients.
    pub fn of_load(&self, bulk: bool) -> impl Iterator<Item = &DownloadRecord> + Clone {
        self.rows.iter().filter(move |row| row.bulk == bulk).map(|row| &row.download)
    }

    /// Returns the number of downloads that failed.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.rows.iter().filter(|row| !row.download.complete).count()
    }
}

/// Simulates the network of `plan` with `seed`. Returns `None` if `stop` was set before the end.
///
/// # Panics
/// `keys` has fewer relays than `plan`.
#[must_use]
pub fn simulate(
    plan: &NetworkPlan,
    seed: u64,
    keys: &Keyring,
    stop: &AtomicBool,
) -> Option<SimulationResults> {
    let goes_on = &mut |_| !stop.load(Ordering::Relaxed);
    let run = plan.run_while(seed, &plan.documents(keys), goes_on)?;
    Some(SimulationResults::of(&run, (plan.network, seed)))
}

/// Returns the columns of a table with a row for each download.
#[must_use]
pub fn columns(rows: &[DownloadRow]) -> Vec<Column> {
    let rows = Rows(rows);
    let seconds = |time: Option<Duration>| time.map_or(f64::NAN, |time| time.as_secs_f64());
    vec![
        rows.long("network", |row| row.network),
        rows.long("seed", |row| row.seed),
        rows.int("client", |row| u32::try_from(row.client).unwrap_or(u32::MAX)),
        rows.text("load", |row| if row.bulk { "bulk" } else { "web" }.to_owned()),
        rows.double("asked", |row| row.download.asked.secs_f64()),
        rows.double("time_to_first_byte", |row| seconds(row.download.ttfb())),
        rows.double("time_to_last_byte", |row| seconds(row.download.ttlb())),
        rows.long("bytes", |row| row.download.received),
        rows.bool("complete", |row| row.download.complete),
    ]
}
