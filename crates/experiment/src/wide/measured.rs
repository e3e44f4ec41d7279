//! Results of one simulation of the DBSec 2019 paper's larger network.

use std::time::Duration;

use anabranch_sim::onion::{ClientLoad, DownloadRecord, quantiles};
use serde::{Deserialize, Serialize};

use super::super::simulated::SimulationResults;
use super::super::table::{Column, Rows};
use super::super::{Attempt, runner};
use super::{Arm, Unit};

/// Quantiles of the download times that are stored for each simulation.
pub const SHARES: [f64; 25] = {
    let mut shares = [0.0; 25];
    let mut place = 0;
    while place < 25 {
        shares[place] = 0.02 + 0.04 * place as f64;
        place += 1;
    }
    shares
};

/// Downloads in one simulation by one class of clients: the web clients, or the bulk clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Class {
    /// Number of downloads that ended after the warm-up phase.
    pub downloads: usize,
    /// Number of failed downloads. If the first or last byte of a failed download did not arrive,
    /// the client's timeout is stored as its time.
    pub failed: usize,
    /// Times to the first byte in seconds, at the quantiles [`SHARES`].
    pub first: Vec<f64>,
    /// Times to the last byte in seconds, at the quantiles [`SHARES`].
    pub last: Vec<f64>,
}

/// Results of one simulation of the DBSec 2019 paper's larger network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Name of the simulation in the plan.
    pub unit: String,
    /// Design, number of paths and schedule that were simulated.
    pub arm: Arm,
    /// Number of clients in the network.
    pub clients: usize,
    /// Index of the random network that was simulated.
    pub network: u64,
    /// Seed of the simulation.
    pub seed: u64,
    /// Hash of all simulated events, as 16 hexadecimal digits.
    pub hash: String,
    /// Number of simulated events, a measure of the simulation's size.
    pub events: u64,
    /// Shares of the capacity of the relays' network lines that were used: first for relays that
    /// are not exits, then for exits.
    pub loads: [f64; 2],
    /// Duration of the simulation in real time, in seconds.
    #[serde(rename = "took")]
    pub elapsed: f64,
    /// Downloads of clients that load web pages.
    pub web: Class,
    /// Downloads of clients that make large (bulk) downloads.
    pub bulk: Class,
}

impl Class {
    fn of<'a>(
        downloads: impl Iterator<Item = &'a DownloadRecord> + Clone,
        load: &ClientLoad,
    ) -> Class {
        let seconds = |of: fn(&DownloadRecord) -> Option<Duration>| {
            let times = downloads.clone().map(|one| of(one).unwrap_or(load.timeout));
            // A precision of microseconds suffices, and keeps the journal short.
            let round = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e6;
            quantiles(times.collect(), SHARES).map(round).to_vec()
        };
        Class {
            downloads: downloads.clone().count(),
            failed: downloads.clone().filter(|download| !download.complete).count(),
            first: seconds(DownloadRecord::ttfb),
            last: seconds(DownloadRecord::ttlb),
        }
    }

    /// Returns the median time to the first byte in seconds; `None` without downloads.
    #[must_use]
    pub fn first_median(&self) -> Option<f64> {
        (self.downloads > 0).then(|| self.first[SHARES.len() / 2])
    }

    /// Returns the median time to the last byte in seconds; `None` without downloads.
    #[must_use]
    pub fn last_median(&self) -> Option<f64> {
        (self.downloads > 0).then(|| self.last[SHARES.len() / 2])
    }
}

impl Measured {
    pub(super) fn new(unit: &Unit, run: &SimulationResults, elapsed: Duration) -> Measured {
        Measured {
            unit: runner::Unit::id(unit),
            arm: unit.arm.clone(),
            clients: unit.clients,
            network: unit.network,
            seed: unit.seed,
            hash: format!("{:016x}", run.hash),
            events: run.events,
            loads: run.loads,
            elapsed: elapsed.as_secs_f64(),
            web: Class::of(run.of_load(false), &ClientLoad::web()),
            bulk: Class::of(run.of_load(true), &ClientLoad::bulk()),
        }
    }

    /// Returns the downloads of one class of clients: of bulk clients if `bulk`, otherwise of web
    /// clients.
    #[must_use]
    pub fn class(&self, bulk: bool) -> &Class {
        if bulk { &self.bulk } else { &self.web }
    }
}

impl runner::Record for Measured {
    fn unit(&self) -> &str {
        &self.unit
    }
}

impl Attempt for Measured {
    fn failed(&self) -> Option<&str> {
        None
    }
}

/// Returns the columns of the table of results, with a row for each quantile of each simulation.
#[must_use]
pub fn columns(records: &[Measured]) -> Vec<Column> {
    let loads = records.iter().flat_map(|one| [(one, false), (one, true)]);
    let each = loads.flat_map(|(one, bulk)| (0..SHARES.len()).map(move |at| (one, bulk, at)));
    let each: Vec<(&Measured, bool, usize)> = each.collect();
    let rows = Rows(&each);
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    vec![
        rows.text("design", |(one, ..)| one.arm.design.clone()),
        rows.int("paths", |(one, ..)| small(one.arm.legs)),
        rows.text("schedule", |(one, ..)| one.arm.schedule.name().to_owned()),
        rows.int("clients", |(one, ..)| small(one.clients)),
        rows.long("network", |(one, ..)| one.network),
        rows.long("seed", |(one, ..)| one.seed),
        rows.text("hash", |(one, ..)| one.hash.clone()),
        rows.text("load", |(_, bulk, _)| if *bulk { "bulk" } else { "web" }.to_owned()),
        rows.int("downloads", |(one, bulk, _)| small(one.class(*bulk).downloads)),
        rows.int("failed", |(one, bulk, _)| small(one.class(*bulk).failed)),
        rows.double("relay_load", |(one, ..)| one.loads[0]),
        rows.double("exit_load", |(one, ..)| one.loads[1]),
        rows.double("quantile", |(_, _, at)| SHARES[*at]),
        rows.double("time_to_first_byte", |(one, bulk, at)| one.class(*bulk).first[*at]),
        rows.double("time_to_last_byte", |(one, bulk, at)| one.class(*bulk).last[*at]),
    ]
}
