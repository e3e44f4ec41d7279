//! Compares the splitter with its targets, and prints a table.
//!
//! Every number is the median of several runs with minimum and maximum. The subjects of one
//! comparison take turns, so that a disturbance of the machine affects all of them. The baselines
//! (no forwarder at all, the naive one of `crates/os/examples/forward.rs`, the splitter with one
//! path) are measured together with the splitter each time.

mod areas;
mod rig;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use anabranch_bench::table::Table;
use areas::AREAS;
use rig::{Rig, Subject};

/// Measure the splitter against its targets.
#[derive(Parser)]
struct Arguments {
    /// Measure these areas: forward, delay, sessions, far-end, schedulers, traces [default: all].
    areas: Vec<String>,
    /// Repeat each measurement RUNS times.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Run each measurement for SECONDS.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Measure the programs in this folder [default: the folder of this program].
    #[arg(long)]
    programs: Option<PathBuf>,
    /// Measure only the baselines, which are compared with the splitter in other measurements.
    #[arg(long)]
    baselines: bool,
    /// Print rows as JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Fail if a target is missed.
    #[arg(long)]
    strict: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(table) if arguments.strict && table.missed() > 0 => ExitCode::FAILURE,
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> io::Result<Table> {
    let names: Vec<&str> = AREAS.iter().map(|(name, _)| *name).collect();
    if let Some(unknown) = arguments.areas.iter().find(|area| !names.contains(&area.as_str())) {
        let known = names.join(", ");
        return Err(io::Error::other(format!("no area '{unknown}'; there are {known}")));
    }
    let alongside = std::env::current_exe()?.parent().map(PathBuf::from).unwrap_or_default();
    let programs = arguments.programs.clone().unwrap_or(alongside);
    let subjects = match arguments.baselines {
        true => vec![Subject::Direct, Subject::Naive],
        false => vec![Subject::Direct, Subject::Naive, Subject::Split(1), Subject::Split(3)],
    };
    let rig = Rig::new(programs, subjects, arguments.runs.max(1), arguments.seconds)?;
    let mut table = Table::new(arguments.json);
    for (name, area) in AREAS {
        if arguments.areas.is_empty() || arguments.areas.iter().any(|area| area == name) {
            eprintln!("measuring {name} …");
            area(&rig, &mut table)?;
        }
    }
    table.print();
    Ok(table)
}
