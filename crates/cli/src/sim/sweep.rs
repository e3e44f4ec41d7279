//! `anabranch sim sweep`: simulates many scenarios on many networks, with many seeds.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;

use anabranch_experiment::sweep::{Arm, RUNS, Sweep, SweepRecord, SweepUnit, sweep_hash};
use anabranch_experiment::{
    Event, Journal, Origin, Programs, Progress, Turns, Unit as _, carry_out_together,
};
use clap::Args;
use serde_json::{Value, json};

use super::file::ScenarioFile;
use crate::experiment::common::{JOURNAL, make_results};
use crate::experiment::reporter::{Reporter, stop_flag};
use crate::failure::Failure;

/// Maximum length in bytes of the name of an arm. An arm is one scenario of the sweep.
const LONGEST_NAME: usize = 64;

/// Simulate many scenarios, each on several random networks with several seeds, on all processors.
///
/// The command writes units.jsonl (one line for each simulation) and the folder runs (a Parquet
/// file with the downloads of each simulation) into FOLDER. Run the same command again to continue
/// after a stop, or with larger --networks and --seeds to add simulations. The results do not
/// depend on the number of workers.
#[derive(Args, Debug)]
pub(crate) struct SweepArgs {
    /// Write the results to this folder, which is created if it is missing.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Simulate the scenarios in these TOML files. The results call each scenario by its file's
    /// name without the extension.
    #[arg(value_name = "SCENARIO.toml", required = true)]
    scenarios: Vec<PathBuf>,
    /// Simulate each scenario on N random networks, which are numbered from 1 to N. In each
    /// network, rates, delays and relays are drawn again from the lists, tables and consensus in
    /// the scenario. The key `network` in the scenario files is ignored.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    networks: u64,
    /// Simulate each scenario on each network N times, with the seeds 1 to N. The key `seeds` in
    /// the scenario files is ignored.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Print the names of the simulations that are still to be done, one per line, and simulate
    /// nothing.
    #[arg(long, conflicts_with_all = ["run", "json"])]
    list: bool,
    /// Do only the simulation that --list calls NAME, and print its result as one JSON object. The
    /// table of downloads is written into FOLDER, but no line is added to units.jsonl. Use this
    /// option to distribute the simulations over several machines.
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
    /// Run N simulations at the same time [default: one for each processor].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: Option<u32>,
    /// Print events as JSON, one object per line. The last object has a hash of all results. Two
    /// commands with the same results print the same hash.
    #[arg(long)]
    json: bool,
}

impl SweepArgs {
    pub(super) fn run(self) -> Result<(), Failure> {
        let sweep = Sweep {
            arms: arms(&self.scenarios)?,
            networks: self.networks,
            seeds: self.seeds,
            folder: self.folder.clone(),
        };
        let units = sweep.units();
        let one = self.run.as_deref().map(|name| named(&units, name)).transpose()?;
        let header = origin(sweep.header())?;
        make_results(&self.folder, &[RUNS])?;
        if let Some(unit) = one {
            return carry_out_one(&sweep, unit, &header);
        }
        let journal = self.folder.join(JOURNAL);
        let mut journal: Journal<SweepRecord> =
            Journal::open(&journal, &header).map_err(Failure::misuse)?;
        if self.list {
            return list(&units, journal.records()).map_err(Failure::trouble);
        }
        let whole = self.carry_out(&sweep, &units, &mut journal)?;
        let wanted: Vec<SweepRecord> = of_plan(&units, journal.records());
        self.conclude(&wanted).map_err(Failure::trouble)?;
        match whole {
            true => Ok(()),
            false => Err(Failure::trouble(format!(
                "stopped with {} of {} simulations done; run the same command again to continue",
                wanted.len(),
                units.len()
            ))),
        }
    }

    /// Carries out the simulations whose results are not in the journal `units.jsonl` yet. Returns
    /// false if the sweep was stopped before the end.
    fn carry_out(
        &self,
        sweep: &Sweep,
        units: &[SweepUnit],
        journal: &mut Journal<SweepRecord>,
    ) -> Result<bool, Failure> {
        let all = || thread::available_parallelism().map_or(1, NonZero::get) as u32;
        let workers = self.workers.unwrap_or_else(all);
        let stop = stop_flag()?;
        let keys = sweep.keyring();
        let mut reporter = Reporter::new("sim sweep", self.json, outcome);
        let on_event = |progress: &Progress, event: Event<'_, SweepUnit, SweepRecord>| {
            reporter.report(progress, event);
        };
        let work = |turns: &Turns<'_, SweepUnit, SweepRecord>| sweep.work(turns, &keys, &stop);
        let whole = carry_out_together(units, journal, &stop, (workers, 1), work, on_event);
        reporter.end();
        whole.map_err(Failure::trouble)
    }

    fn conclude(&self, records: &[SweepRecord]) -> io::Result<()> {
        let (mut out, hash) = (io::stdout().lock(), sweep_hash(records));
        match self.json {
            true => writeln!(out, "{}", json!({"runs": records.len(), "hash": hash})),
            false => {
                let folder = self.folder.display();
                writeln!(out, "{} simulations, hash {hash}; {folder}", records.len())
            }
        }
    }
}

/// Returns the simulation that --list calls `name`.
fn named<'a>(units: &'a [SweepUnit], name: &str) -> Result<&'a SweepUnit, Failure> {
    units.iter().find(|unit| unit.id() == name).ok_or_else(|| {
        Failure::misuse(format!("this sweep has no simulation `{name}`; --list prints the names"))
    })
}

/// Carries out the simulation `unit`, and prints its result together with `header`, the first line
/// of the journal.
fn carry_out_one(sweep: &Sweep, unit: &SweepUnit, header: &Value) -> Result<(), Failure> {
    let stop = stop_flag()?;
    let record = sweep.carry_out_one(unit, &stop).map_err(Failure::trouble)?;
    let Some(record) = record else {
        return Err(Failure::trouble(format!("the simulation `{}` was stopped", unit.id())));
    };
    let line = json!({ "header": header, "record": record });
    writeln!(io::stdout().lock(), "{line}").map_err(Failure::trouble)
}

/// Returns the records (results) of the simulations `units`. The folder may also contain records
/// of simulations that this sweep does not have.
fn of_plan(units: &[SweepUnit], records: &[SweepRecord]) -> Vec<SweepRecord> {
    let ids: BTreeSet<String> = units.iter().map(SweepUnit::id).collect();
    records.iter().filter(|record| ids.contains(&record.unit)).cloned().collect()
}

/// Prints the names of the simulations without a record (result).
fn list(units: &[SweepUnit], records: &[SweepRecord]) -> io::Result<()> {
    let done: BTreeSet<&str> = records.iter().map(|record| record.unit.as_str()).collect();
    let mut out = io::stdout().lock();
    let left = units.iter().map(SweepUnit::id).filter(|id| !done.contains(id.as_str()));
    for id in left {
        writeln!(out, "{id}")?;
    }
    Ok(())
}

/// Adds the version of this program to `header`, the first line of the journal, so that a sweep is
/// not continued with another version. The machine is not added, because results do not depend on
/// it.
fn origin(mut header: Value) -> Result<Value, Failure> {
    let own = std::env::current_exe().map_err(Failure::trouble)?;
    let origin = Origin::of(anabranch_pages::GENERATOR, &own, &Programs::new(None));
    header["program"] = origin.map_err(Failure::misuse)?.join(json!({}))["program"].take();
    Ok(header)
}

fn arms(files: &[PathBuf]) -> Result<Vec<Arm>, Failure> {
    let mut arms: Vec<Arm> = Vec::new();
    for file in files {
        let arm = arm(file)?;
        if arms.iter().any(|other| other.name == arm.name) {
            return Err(Failure::misuse(format!(
                "two scenarios are called `{}`; rename one of the files",
                arm.name
            )));
        }
        arms.push(arm);
    }
    Ok(arms)
}

fn arm(file: &Path) -> Result<Arm, Failure> {
    let path = file.display().to_string();
    let name = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(fits) {
        return Err(Failure::misuse(format!(
            "{path}: the name of a scenario in a sweep has 1 to {LONGEST_NAME} letters, digits, \
             `-`, `_` and `.`; rename the file"
        )));
    }
    let text = super::read(file)?;
    let plan = ScenarioFile::parse(&text, &path).map_err(Failure::misuse)?.plan;
    Ok(Arm { name, text, plan })
}

fn outcome(record: &SweepRecord) -> String {
    format!(
        "{} downloads, {} failed, hash {}, {:.0} s",
        record.downloads, record.failed, record.hash, record.elapsed
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn arms_are_named_by_their_files_and_names_differ() {
        let folder = tempfile::tempdir().unwrap();
        let text = "duration = '9s'\ndelay = '20ms'\n[relays]\ncount = 2\nexits = 1\n\
                    [clients]\nweb = 1\n";
        let write = |name: &str, text: &str| {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, text).unwrap();
            file
        };
        let files = [write("tor.toml", text), write("b/two-legs.toml", text)];
        let names: Vec<String> = arms(&files).unwrap().into_iter().map(|arm| arm.name).collect();
        assert_eq!(names, ["tor", "two-legs"]);
        let refused = |files: &[PathBuf]| arms(files).unwrap_err().to_string();
        let twice = [write("tor.toml", text), write("b/tor.toml", text)];
        assert!(refused(&twice).contains("two scenarios are called `tor`; rename"));
        assert!(refused(&[write("a b.toml", text)]).contains("letters, digits"));
        let bad = [write("bad.toml", &text.replace("web = 1", "web = 0"))];
        assert!(refused(&bad).contains("bad.toml:6: there is no client"));
        let none = refused(&[folder.path().join("none.toml")]);
        assert!(none.contains("none.toml: ") && none.ends_with("name a scenario file"), "{none}");
    }
}
