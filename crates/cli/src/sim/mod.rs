//! `anabranch sim`: simulates an onion network in virtual time.

mod consensus;
mod drawn;
mod file;
mod sweep;
mod switches;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anabranch_experiment::simulated::{DownloadRow, SimulationResults, columns};
use anabranch_experiment::table;
use anabranch_sim::onion::{DownloadRecord, quantiles};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use self::file::ScenarioFile;
use crate::failure::Failure;

/// Simulate an onion network (relays, clients and web servers) in virtual time.
///
/// The simulation runs the relays and clients of this program over a simulated network. TCP
/// connections are simulated too, and the network connection of each node has a limited rate. The
/// results depend only on the scenario, its seeds and the version of this program, not on the
/// machine. A scenario is a TOML file that describes the network (docs/simulator.md).
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    many: Option<Many>,
    /// Read the scenario (the description of the network) from this TOML file.
    #[arg(value_name = "SCENARIO.toml", required = true)]
    scenario: Option<PathBuf>,
    /// Simulate once, with N as the seed of all random choices. Without this option, the program
    /// simulates once for each seed in the scenario.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print the results as one JSON object.
    #[arg(long)]
    json: bool,
    /// Write one row for each simulated download to this Parquet file, which must not exist
    /// (docs/formats.md).
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Do not show progress.
    #[arg(long)]
    quiet: bool,
}

#[derive(Subcommand, Debug)]
enum Many {
    Sweep(sweep::SweepArgs),
}

/// Number of relays from which on a notice about the creation of keys is printed, because it takes
/// more than a few seconds.
const MANY_RELAYS: usize = 200;

/// Results of one simulation.
struct RunResult {
    seed: u64,
    run: SimulationResults,
    /// Duration of the simulation in real time, not in virtual time.
    elapsed: Duration,
}

impl SimArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if let Some(Many::Sweep(sweep)) = self.many {
            return sweep.run();
        }
        let scenario = self.scenario.as_deref().unwrap_or(Path::new(""));
        let name = scenario.display().to_string();
        let text = read(scenario)?;
        let ScenarioFile { plan, seeds } =
            ScenarioFile::parse(&text, &name).map_err(Failure::misuse)?;
        self.out.as_deref().map_or(Ok(()), writable)?;
        let seeds = self.seed.map_or(seeds, |seed| vec![seed]);
        let relays = plan.relays + plan.exits;
        if relays >= MANY_RELAYS && !self.quiet {
            eprintln!("creating the keys of {relays} relays");
        }
        let documents = plan.documents(&plan.keyring());
        let mut results = Vec::new();
        for seed in seeds {
            let begun = Instant::now();
            let mut progress = self.progress(seed, plan.duration);
            let run = plan.run(seed, &documents, &mut progress);
            let run = SimulationResults::of(&run, (plan.network, seed));
            results.push(RunResult { seed, run, elapsed: begun.elapsed() });
        }
        if let Some(out) = &self.out {
            write_table(out, &text, &results)?;
        }
        let mut shown = io::stdout().lock();
        let printed = match self.json {
            true => writeln!(shown, "{}", as_json(&results)),
            false => results
                .iter()
                .try_for_each(|run| print(&mut shown, run, plan.duration))
                .and_then(|()| print_memory(&mut shown)),
        };
        printed.map_err(Failure::trouble)
    }

    /// Returns a callback that prints the progress of a simulation, at most once in five seconds
    /// of real time.
    fn progress(&self, seed: u64, whole: Duration) -> impl FnMut(Duration) + use<> {
        let (begun, quiet) = (Instant::now(), self.quiet);
        let mut last_printed = begun;
        move |passed| {
            if quiet || last_printed.elapsed() < Duration::from_secs(5) {
                return;
            }
            last_printed = Instant::now();
            let left =
                begun.elapsed().mul_f64((whole - passed).as_secs_f64() / passed.as_secs_f64());
            eprintln!(
                "seed {seed}: {} of {} s simulated, {} s left",
                passed.as_secs(),
                whole.as_secs(),
                left.as_secs()
            );
        }
    }
}

/// Reads a scenario file.
fn read(file: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(file);
    text.map_err(|e| Failure::misuse(format!("{}: {e}: name a scenario file", file.display())))
}

/// Checks, before the simulation, that `file` can be created at its end: `file` must not exist,
/// and its folder must exist.
fn writable(file: &Path) -> Result<(), Failure> {
    let name = file.display();
    if file.exists() {
        return Err(Failure::misuse(format!(
            "the file {name} already exists; remove it, or choose another name for --out"
        )));
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_some_and(|folder| !folder.is_dir()) {
        return Err(Failure::misuse(format!("the folder of {name} does not exist; create it")));
    }
    Ok(())
}

/// Quantiles of download times that the tables show.
const SHARES: [f64; 3] = [0.1, 0.5, 0.9];

/// Returns the download times in seconds at the quantiles [`SHARES`]: first the times to the first
/// byte, then those to the last byte.
fn times<'a>(downloads: impl Iterator<Item = &'a DownloadRecord> + Clone) -> [[f64; 3]; 2] {
    let first = downloads.clone().filter_map(DownloadRecord::ttfb).collect();
    let last = downloads.filter_map(DownloadRecord::ttlb).collect();
    [first, last].map(|times| quantiles(times, SHARES).map(|time| time.as_secs_f64()))
}

fn print(out: &mut impl Write, run: &RunResult, simulated: Duration) -> io::Result<()> {
    let RunResult { seed, run: SimulationResults { hash, events, loads, .. }, elapsed } = run;
    let speed = simulated.as_secs_f64() / elapsed.as_secs_f64();
    writeln!(
        out,
        "seed {seed}: {events} events with the hash {hash:016x}; {} s simulated in {:.1} s \
         ({speed:.1} times real time)",
        simulated.as_secs(),
        elapsed.as_secs_f64()
    )?;
    let [relays, exits] = loads.map(|load| load * 100.0);
    writeln!(
        out,
        "mean use of the network connections: of relays {relays:.0} %, of exits {exits:.0} %"
    )?;
    writeln!(
        out,
        "      downloads  failed  first byte p10/p50/p90 (s)  last byte p10/p50/p90 (s)"
    )?;
    for (name, bulk) in [("web", false), ("bulk", true)] {
        let downloads = run.run.of_load(bulk);
        let failed = downloads.clone().filter(|download| !download.complete).count();
        let [first, last] = times(downloads.clone());
        let shown = |times: [f64; 3]| times.map(|time| format!("{time:.3}")).join(" / ");
        writeln!(
            out,
            "{name:4}  {:9}  {failed:6}  {:>26}  {:>25}",
            downloads.count(),
            shown(first),
            shown(last)
        )?;
    }
    Ok(())
}

/// Prints the peak resident memory of this process (`VmHWM`), if the system reports it.
fn print_memory(out: &mut impl Write) -> io::Result<()> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes.map_or(Ok(()), |kilobytes| writeln!(out, "memory: {} MiB", kilobytes.div_ceil(1024)))
}

/// Returns the results as JSON (docs/formats.md). The results do not depend on the machine.
fn as_json(results: &[RunResult]) -> Value {
    let class = |run: &SimulationResults, bulk| {
        let [first, last] = times(run.of_load(bulk));
        json!({
            "downloads": run.of_load(bulk).count(),
            "failed": run.of_load(bulk).filter(|download| !download.complete).count(),
            "quantiles": SHARES,
            "time_to_first_byte": first,
            "time_to_last_byte": last,
        })
    };
    let run = |run: &RunResult| {
        json!({
            "seed": run.seed,
            "hash": format!("{:016x}", run.run.hash),
            "events": run.run.events,
            "loads": run.run.loads,
            "web": class(&run.run, false),
            "bulk": class(&run.run, true),
        })
    };
    json!({ "runs": results.iter().map(run).collect::<Vec<_>>() })
}

fn write_table(out: &Path, scenario: &str, results: &[RunResult]) -> Result<(), Failure> {
    let rows: Vec<DownloadRow> = results.iter().flat_map(|run| run.run.rows.clone()).collect();
    let hashes = results.iter().map(|run| format!("{:016x}", run.run.hash));
    let hashes: Vec<String> = hashes.collect();
    let facts = [
        ("anabranch.scenario", scenario.to_owned()),
        ("anabranch.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("anabranch.hashes", hashes.join(" ")),
    ];
    table::write(out, &columns(&rows), &facts).map_err(Failure::trouble)
}
