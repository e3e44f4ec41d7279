//! Sweeps of simulations: each scenario runs on each random network with each seed.
//!
//! A [`Journal`](super::Journal) stores a record of each simulation. Each simulation's downloads
//! are in a separate file. Several threads run the simulations, and the results do not depend on
//! the number of threads.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anabranch_sim::onion::{Keyring, NetworkPlan};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::origin::digest;
use super::simulated::{SimulationResults, columns, simulate};
use super::{Attempt, Record, Turns, Unit, table};

/// Subfolder with the downloads of each simulation.
pub const RUNS: &str = "runs";

/// A scenario: a simulation's settings, which a sweep runs on each random network with each seed.
#[derive(Clone, Debug)]
pub struct Arm {
    /// Name of the scenario, which is part of file names.
    pub name: String,
    /// Text of the scenario file.
    pub text: String,
    /// The parsed scenario. Each simulation uses a random network instead of the scenario's
    /// network.
    pub plan: NetworkPlan,
}

impl Arm {
    /// Returns a common digest of two files: the scenario file, and the consensus file that the
    /// scenario names.
    fn digest(&self) -> String {
        let mut bytes = self.text.clone().into_bytes();
        let consensus = self.plan.sample.as_ref().map(|sample| sample.consensus.digest());
        bytes.extend(consensus.into_iter().flatten());
        digest(&bytes)
    }
}

/// A sweep of simulations: scenarios, random networks and seeds.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The scenarios, each with a different name.
    pub arms: Vec<Arm>,
    /// Number of random networks, which are numbered from 1.
    pub networks: u64,
    /// Number of simulations per scenario and network; their seeds count from 1.
    pub seeds: u64,
    /// Folder for the results of the sweep.
    pub folder: PathBuf,
}

/// A planned simulation of a sweep.
#[derive(Clone, Debug)]
pub struct SweepUnit {
    arm: String,
    seed: u64,
    plan: NetworkPlan,
}

/// Results of a simulation of a sweep, without its downloads, which are in a separate file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepRecord {
    /// Name of the simulation in the plan.
    pub unit: String,
    /// Hash of all simulated events, as 16 hexadecimal digits.
    pub hash: String,
    /// Number of simulated events, a measure of the simulation's size.
    pub events: u64,
    /// Number of downloads that ended after the warm-up phase.
    pub downloads: usize,
    /// Number of downloads that failed.
    pub failed: usize,
    /// Shares of the capacity of the relays' network lines that were used: first for relays that
    /// are not exits, then for exits.
    pub loads: [f64; 2],
    /// Real duration of the simulation, in seconds.
    #[serde(rename = "took")]
    pub elapsed: f64,
}

impl Unit for SweepUnit {
    fn id(&self) -> String {
        format!("{}-n{}-s{}", self.arm, self.plan.network, self.seed)
    }

    fn lasts(&self) -> Duration {
        cost(&self.plan)
    }
}

/// Estimates the real duration of a simulation: 5 ms for each megabyte of downloads.
pub(super) fn cost(plan: &NetworkPlan) -> Duration {
    // These are the rates in bytes per second of a web client, whose download takes about 2 s, and
    // of a bulk client.
    let web = f64::from(320 << 10) / (plan.common.web_pause.as_secs_f64() / 2.0 + 2.0);
    let rate = plan.web as f64 * web + plan.bulk as f64 * 500e3;
    plan.duration.mul_f64(rate * 5e-9).max(Duration::from_millis(1))
}

impl Record for SweepRecord {
    fn unit(&self) -> &str {
        &self.unit
    }
}

impl Attempt for SweepRecord {
    fn failed(&self) -> Option<&str> {
        None
    }
}

impl Sweep {
    /// Returns the settings that must not change when a sweep is resumed. The numbers of networks
    /// and seeds may be increased.
    #[must_use]
    pub fn header(&self) -> Value {
        let arms = self.arms.iter().map(|arm| (arm.name.clone(), arm.digest().into()));
        let arms: serde_json::Map<String, Value> = arms.collect();
        json!({ "experiment": "sweep", "version": 1, "arms": arms })
    }

    /// Returns all planned simulations. Simulations with the same network and seed are
    /// consecutive, so that the scenarios can be compared before the sweep is complete.
    #[must_use]
    pub fn units(&self) -> Vec<SweepUnit> {
        let rounds = (1..=self.networks)
            .flat_map(|network| (1..=self.seeds).map(move |seed| (network, seed)));
        let unit = |arm: &Arm, (network, seed): (u64, u64)| SweepUnit {
            arm: arm.name.clone(),
            seed,
            plan: NetworkPlan { network, ..arm.plan.clone() },
        };
        rounds.flat_map(|round| self.arms.iter().map(move |arm| unit(arm, round))).collect()
    }

    /// Generates keys for the relays of all scenarios. This takes seconds.
    #[must_use]
    pub fn keyring(&self) -> Keyring {
        let relays = self.arms.iter().map(|arm| arm.plan.relays + arm.plan.exits);
        Keyring::new(relays.max().unwrap_or_default())
    }

    /// Runs simulations until none is left. Each thread calls this once.
    pub fn work(
        &self,
        turns: &Turns<'_, SweepUnit, SweepRecord>,
        keys: &Keyring,
        stop: &AtomicBool,
    ) {
        while let Some((unit, _)) = turns.next() {
            let begun = Instant::now();
            let Some(run) = simulate(&unit.plan, unit.seed, keys, stop) else { return };
            if let Err(why) = self.store(unit, &run) {
                return turns.give_up(&unit.id(), why);
            }
            let elapsed = begun.elapsed();
            turns.done(unit, record(unit, &run, elapsed), elapsed);
        }
    }

    /// Runs the simulation `unit`, and writes its downloads to a file. Returns `None` if `stop`
    /// was set.
    ///
    /// # Errors
    /// The downloads cannot be written.
    pub fn carry_out_one(
        &self,
        unit: &SweepUnit,
        stop: &AtomicBool,
    ) -> Result<Option<SweepRecord>, String> {
        let begun = Instant::now();
        let keys = unit.plan.keyring();
        let Some(run) = simulate(&unit.plan, unit.seed, &keys, stop) else { return Ok(None) };
        self.store(unit, &run)?;
        Ok(Some(record(unit, &run, begun.elapsed())))
    }

    /// Writes the downloads of one simulation to its file.
    fn store(&self, unit: &SweepUnit, run: &SimulationResults) -> Result<(), String> {
        let folder = self.folder.join(RUNS);
        let cannot_write = |path: &Path, error| format!("cannot write {}: {error}", path.display());
        fs::create_dir_all(&folder).map_err(|error| cannot_write(&folder, error))?;
        let target = folder.join(format!("{}.parquet", unit.id()));
        let text = self.arms.iter().find(|arm| arm.name == unit.arm).map(|arm| arm.text.clone());
        let facts = [
            ("anabranch.scenario", text.unwrap_or_default()),
            ("anabranch.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("anabranch.hashes", format!("{:016x}", run.hash)),
        ];
        table::write(&target, &columns(&run.rows), &facts)
            .map_err(|error| cannot_write(&target, error))
    }
}

fn record(unit: &SweepUnit, run: &SimulationResults, elapsed: Duration) -> SweepRecord {
    SweepRecord {
        unit: unit.id(),
        hash: format!("{:016x}", run.hash),
        events: run.events,
        downloads: run.rows.len(),
        failed: run.failed(),
        loads: run.loads,
        elapsed: elapsed.as_secs_f64(),
    }
}

/// Returns the hash of a whole sweep. It combines the hashes of all simulations, and does not
/// depend on their order.
#[must_use]
pub fn sweep_hash(records: &[SweepRecord]) -> String {
    let mut records: Vec<&SweepRecord> = records.iter().collect();
    records.sort_by(|one, other| one.unit.cmp(&other.unit));
    let mut text = String::new();
    for record in records {
        writeln!(text, "{} {}", record.unit, record.hash)
            .expect("writing to a string does not fail");
    }
    digest(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::sync::atomic::Ordering;

    use anabranch_sim::onion::{Common, Crypto, LineRates, QuantileTable};

    use super::*;
    use crate::{Event, Journal, Progress, carry_out_together};

    fn plan(legs: usize) -> NetworkPlan {
        let rate = |megabits: u64| {
            QuantileTable::new(vec![megabits * 1_000_000, megabits * 2_000_000]).unwrap()
        };
        NetworkPlan {
            common: Common { legs, crypto: Crypto::Elided, ..Common::default() },
            relays: 4,
            exits: 1,
            sample: None,
            servers: 1,
            web: 0,
            bulk: 1,
            network: 1,
            rates: LineRates {
                relays: rate(5),
                exits: rate(5),
                servers: rate(100),
                clients: rate(20),
            },
            queue: Duration::from_millis(50),
            delays: QuantileTable::one(10_000_000),
            congestion_control: true,
            duration: Duration::from_secs(8),
            warm_up: Duration::ZERO,
        }
    }

    fn sweep(folder: &Path) -> Sweep {
        let arm = |(name, legs): (&str, usize)| Arm {
            name: name.to_owned(),
            text: format!("legs = {legs}"),
            plan: plan(legs),
        };
        let arms = [("one", 1), ("two", 2)].map(arm).to_vec();
        Sweep { arms, networks: 2, seeds: 2, folder: folder.to_owned() }
    }

    /// Returns the keys of the relays of [`sweep`], generated once for all tests.
    fn keys() -> &'static Keyring {
        static MADE: OnceLock<Keyring> = OnceLock::new();
        MADE.get_or_init(|| plan(1).keyring())
    }

    /// Executes the remaining runs on `workers` threads until `most` runs are done.
    fn carry(sweep: &Sweep, workers: u32, most: usize) -> Vec<SweepRecord> {
        let path = sweep.folder.join("units.jsonl");
        let mut journal = Journal::open(&path, &sweep.header()).unwrap();
        let (stop, mut done) = (AtomicBool::new(false), 0);
        let notify = |_: &Progress, event: Event<'_, SweepUnit, SweepRecord>| {
            done += usize::from(matches!(event, Event::Done(..)));
            stop.store(done >= most, Ordering::Relaxed);
        };
        let work = |turns: &Turns<'_, SweepUnit, SweepRecord>| sweep.work(turns, keys(), &stop);
        carry_out_together(&sweep.units(), &mut journal, &stop, (workers, 1), work, notify)
            .unwrap();
        journal.records().to_vec()
    }

    #[test]
    fn the_hash_is_the_same_for_any_number_of_workers_and_after_a_stop() {
        let folders = [0; 3].map(|_| tempfile::tempdir().unwrap());
        let [one, three, stopped] = folders.each_ref().map(|folder| sweep(folder.path()));
        let records = carry(&one, 1, usize::MAX);
        assert_eq!(records.len(), 8);
        assert!(records.iter().all(|record| record.downloads > 0), "{records:?}");
        let hashes: std::collections::BTreeSet<&str> =
            records.iter().map(|record| record.hash.as_str()).collect();
        assert_eq!(hashes.len(), 8, "arms, networks and seeds differ");
        assert_eq!(sweep_hash(&carry(&three, 3, usize::MAX)), sweep_hash(&records));
        assert_eq!(carry(&stopped, 1, 3).len(), 3);
        assert_eq!(sweep_hash(&carry(&stopped, 2, usize::MAX)), sweep_hash(&records));
        let files = fs::read_dir(stopped.folder.join(RUNS)).unwrap().count();
        assert_eq!(files, 8, "each run has its downloads");
    }

    #[test]
    fn a_folder_of_other_arms_is_refused_and_more_seeds_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("units.jsonl");
        let mut sweep = sweep(folder.path());
        drop(Journal::<SweepRecord>::open(&path, &sweep.header()).unwrap());
        sweep.seeds = 9;
        drop(Journal::<SweepRecord>::open(&path, &sweep.header()).unwrap());
        sweep.arms[1].text = "legs = 3".to_owned();
        let error = Journal::<SweepRecord>::open(&path, &sweep.header()).unwrap_err().to_string();
        assert!(error.contains("arms") && error.contains("choose another folder"), "{error}");
    }
}
