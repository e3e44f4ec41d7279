//! Replays recorded page loads over circuits of several legs, and writes the cells that each leg's
//! guard sees. Client, relays and exit are cores, over emulated links. The same seed gives the
//! same rows.
//!
//! * `recorded`: choice and reader of the loads;
//! * `play`: replay of one load, with a new client and new relays;
//! * `world`: the cores and links, from `anabranch-testkit`, as in tests of `anabranch-onion`.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anabranch_capture::{Row, SizeUnit, Trace, TraceFacts, TraceWriter};
use anabranch_multipath::Every;
use anabranch_multipath::schedule::Spec;
use anabranch_onion::conflux::{Design, LegScheduler, UnknownDesign};
use clap::Parser;

use play::{Line, SeenCell, Stage};
use recorded::{Choice, Load};

mod play;
mod recorded;
use anabranch_testkit::onion_world as world;

/// Replay recorded page loads over several circuits (legs) at once, and write the cells that the
/// guard (first relay) of each leg sees.
///
/// IN is a trace of the cells (Tor's packets) that one guard saw (docs/formats.md). For each
/// uplink cell, the client writes a cell of data at the recorded time; for each downlink cell, the
/// destination does. OUT has the cells of all kinds on the links from the client to the guards,
/// from the load's first to its last. The column path contains the number of the leg. Circuits are
/// built and linked before the load.
#[derive(Parser)]
struct Arguments {
    /// Read the recorded page loads from this trace of cells.
    #[arg(value_name = "IN.parquet")]
    input: PathBuf,
    /// Write the cells that each guard sees to this trace.
    #[arg(value_name = "OUT.parquet")]
    output: PathBuf,
    /// Distribute cells among the circuits (legs) with this scheduler, as with `anabranch client
    /// --schedule`.
    #[arg(long, default_value = "lowrtt", value_parser = Spec::over_windows)]
    schedule: Spec,
    /// Join the circuits (legs) with this design. With conflux and anabranch the circuits join at
    /// the exit, with merged at a middle relay.
    #[arg(long, value_name = "DESIGN", default_value = "conflux", value_parser = design)]
    multipath: Design,
    /// Set the length of a run (consecutive cells on one circuit), in cells or as a time.
    #[arg(long, default_value = "1p")]
    every: Every,
    /// Set the rate (in Mbit/s) and the one-way delay (in milliseconds) of the link from the
    /// client to the guard (first relay) of each circuit. Each circuit has two more links, of 100
    /// Mbit/s and 5 ms.
    #[arg(long = "line", value_name = "RATE/DELAY", default_values = ["20/20", "20/20", "20/20"])]
    lines: Vec<Line>,
    /// Before the page load, let the circuits carry KIB KiB towards the client, so that their
    /// congestion windows have grown; 0 means new circuits.
    #[arg(long, value_name = "KIB", default_value_t = 0)]
    used: usize,
    #[command(flatten)]
    choice: Choice,
    /// Use this seed for the keys, nonces and random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl FromStr for Line {
    type Err = String;

    fn from_str(text: &str) -> Result<Line, String> {
        let parts = text.split_once('/');
        let parts = parts.and_then(|(rate, delay)| Some((rate.parse().ok()?, delay.parse().ok()?)));
        let usable = |&(rate, delay): &(u64, u64)| {
            (1..=10_000).contains(&rate) && (1..=1000).contains(&delay)
        };
        let (rate, delay) = parts.filter(usable).ok_or("Mbit/s and milliseconds, as 20/20")?;
        Ok(Line { rate: rate * 1_000_000, delay: Duration::from_millis(delay) })
    }
}

/// Parses a design whose circuits have congestion control, which all circuits here have.
fn design(name: &str) -> Result<Design, String> {
    let design: Design = name.parse().map_err(|error: UnknownDesign| error.to_string())?;
    let fits = design.has_congestion_control();
    fits.then_some(design).ok_or("these circuits have congestion control".to_owned())
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("guards: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> io::Result<String> {
    if arguments.output.exists() {
        return Err(io::Error::other(format!("{} exists", arguments.output.display())));
    }
    let begun = Instant::now();
    let trace = Trace::open(&arguments.input).map_err(io::Error::other)?;
    let loads = arguments.choice.read(&trace)?;
    let stage = arguments.stage();
    let mut writer = TraceWriter::create(&arguments.output, &arguments.facts())?;
    let mut tally = Tally::default();
    for load in &loads {
        let seen = stage.play(load).map_err(io::Error::other)?;
        tally.add(load, &seen, arguments.lines.len());
        write(&mut writer, load, &seen)?;
    }
    writer.finish()?;
    Ok(tally.summary(begun.elapsed()))
}

impl Arguments {
    fn stage(&self) -> Stage {
        let dealing =
            LegScheduler { schedule: self.schedule.clone(), every: self.every, redraw: None };
        let joined = (self.multipath, dealing);
        Stage::new(self.lines.clone(), joined, self.used << 10, self.seed)
    }

    fn facts(&self) -> TraceFacts {
        TraceFacts {
            paths: (0..self.lines.len()).map(|leg| format!("guard {leg}")).collect(),
            seed: Some(self.seed),
            schedule: Some(format!("{} --every {}", self.schedule, self.every)),
            unit: SizeUnit::Cell,
            ..TraceFacts::default()
        }
    }
}

fn write(writer: &mut TraceWriter, load: &Load, seen: &[SeenCell]) -> io::Result<()> {
    for &SeenCell { time, leg, size } in seen {
        let Load { label, monitored, run, .. } = load;
        let (load, path) = (load.number, leg as i16);
        writer.push(&Row { load, label, monitored: *monitored, run: *run, path, time, size })?;
    }
    Ok(())
}

/// Sums over the replayed loads.
#[derive(Default)]
struct Tally {
    loads: usize,
    recorded: usize,
    seen: usize,
    fullest: f64,
    /// Sum over loads of the largest share of one leg in the first 50 downlink cells.
    beginning: f64,
}

impl Tally {
    fn add(&mut self, load: &Load, seen: &[SeenCell], legs: usize) {
        let down = seen.iter().filter(|one| one.size < 0);
        self.loads += 1;
        self.recorded += load.cells.len();
        self.seen += seen.len();
        self.fullest += fullest(seen.iter(), legs);
        self.beginning += fullest(down.take(50), legs);
    }

    fn summary(&self, elapsed: Duration) -> String {
        let loads = self.loads.max(1) as f64;
        format!(
            "{} loads: {} cells recorded, {} seen; by the fullest leg {:.3} of a load's cells and \
             {:.3} of its first 50 downward ones; {:.0} s",
            self.loads,
            self.recorded,
            self.seen,
            self.fullest / loads,
            self.beginning / loads,
            elapsed.as_secs_f64()
        )
    }
}

/// Returns the share of the cells on the leg that has most of them.
fn fullest<'a>(cells: impl Iterator<Item = &'a SeenCell>, legs: usize) -> f64 {
    let mut counts = vec![0_u32; legs];
    cells.for_each(|cell| counts[cell.leg] += 1);
    let all: u32 = counts.iter().sum();
    f64::from(counts.into_iter().max().unwrap_or(0)) / f64::from(all.max(1))
}
