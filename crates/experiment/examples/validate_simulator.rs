//! Compares the simulator with the measurements of `experiment circuits` on emulated network
//! lines. Writes the table of `docs/results/simulator.md`. `make validate-sim` runs this program.
//!
//! ```text
//! validate_simulator TABLE.parquet [--into FILE.md] [--seeds N] [--seconds N]
//! ```

use std::error::Error;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anabranch_experiment::circuits::Layout;
use anabranch_experiment::circuits::simulated::{
    Combination, Medians, Network, Quantity, Rounds, TimeComparison, compare, medians, rounds,
};

const BEGIN: &str = "<!-- make validate-sim: from here to the end mark, all is generated -->";
const END: &str = "<!-- end of make validate-sim -->";

struct Options {
    table: PathBuf,
    into: Option<PathBuf>,
    seeds: u64,
    seconds: u64,
}

impl Options {
    fn read(words: &[String]) -> Result<Options, String> {
        let usage = "usage: validate_simulator TABLE.parquet [--into FILE.md] [--seeds N] \
                     [--seconds N]";
        let (table, rest) = words.split_first().ok_or(usage)?;
        let mut options = Options { table: table.into(), into: None, seeds: 5, seconds: 60 };
        for pair in rest.chunks(2) {
            let [name, value] = pair else { return Err(usage.into()) };
            let number = || {
                let number = value.parse().ok().filter(|number| *number > 0);
                number.ok_or(format!("{name} {value}: write a number above zero"))
            };
            match name.as_str() {
                "--into" => options.into = Some(value.into()),
                "--seeds" => options.seeds = number()?,
                "--seconds" => options.seconds = number()?,
                _ => return Err(usage.into()),
            }
        }
        Ok(options)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let options = Options::read(&words)?;
    let measured = rounds(&options.table, Layout::Lines)
        .map_err(|error| format!("{}: {error}", options.table.display()))?;
    let old = match &options.into {
        Some(file) => Some((file, fs::read_to_string(file)?)),
        None => None,
    };
    let began = Instant::now();
    let compared = all(&options, &measured);
    let text = page(&options, &compared);
    eprintln!("{:.0} s", began.elapsed().as_secs_f64());
    match old {
        Some((file, old)) => fs::write(file, replaced(&old, &text)?)?,
        None => println!("{text}"),
    }
    Ok(())
}

/// Simulates all designs and numbers of circuits in `measured`, in parallel on all processors.
/// Compares the simulated times with the measured times.
fn all(options: &Options, measured: &Rounds) -> Vec<TimeComparison> {
    let combinations: Vec<Combination> = Combination::all()
        .into_iter()
        .filter(|combination| measured.contains_key(combination))
        .collect();
    let network = Network::new();
    let work: Vec<(usize, Vec<usize>)> = combinations
        .iter()
        .enumerate()
        .flat_map(|(place, combination)| {
            combination.guards().into_iter().map(move |set| (place, set))
        })
        .collect();
    let (next, runs) = (AtomicUsize::new(0), Mutex::new(vec![Vec::new(); combinations.len()]));
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((place, set)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = simulated(options, &network, combinations[*place], set);
                    eprintln!("{} over guards {set:?}: {found:.3?}", combinations[*place]);
                    if let (Some(found), Ok(mut runs)) = (found, runs.lock()) {
                        runs[*place].push((set.clone(), found));
                    }
                }
            });
        }
    });
    let mut runs = runs.into_inner().unwrap_or_default();
    let each = combinations.iter().zip(&mut runs).flat_map(|(combination, runs)| {
        // The threads end in any order, so the runs are sorted.
        runs.sort_by(|(one, _), (other, _)| one.cmp(other));
        let runs: Vec<Medians> = runs.iter().map(|(_, medians)| *medians).collect();
        compare(*combination, &measured[combination], &runs)
    });
    each.collect()
}

/// Returns the median times over the repetitions of the simulations with all seeds; `None` if a
/// time has no value.
fn simulated(
    options: &Options,
    network: &Network,
    combination: Combination,
    guards: &[usize],
) -> Option<Medians> {
    let duration = Duration::from_secs(options.seconds);
    let seeds = 1..=options.seeds;
    let repetitions: Vec<_> =
        seeds.flat_map(|seed| network.simulate(combination, guards, (seed, duration))).collect();
    medians(&repetitions)
}

fn page(options: &Options, compared: &[TimeComparison]) -> String {
    let within = |of: &dyn Fn(&TimeComparison) -> bool| {
        let cells: Vec<&TimeComparison> = compared.iter().filter(|cell| of(cell)).collect();
        let good = cells.iter().filter(|cell| cell.is_within()).count();
        format!("{good} of {}", cells.len())
    };
    let mut text = format!(
        "Seeds: {}; {} s of each after the warm-up.\n\n\
         Within 15 %: **{} cells**; with three circuits {}.\n\n| quantity | within 15 % |\n\
         |---|---|\n",
        options.seeds,
        options.seconds,
        within(&|_| true),
        within(&|cell| cell.combination.legs == 3),
    );
    for quantity in Quantity::ALL {
        let count = within(&|cell| cell.quantity == quantity);
        text += &format!("| {} | {count} |\n", quantity.name());
    }
    text += "\nTimes in ms. *Rounds* are the least and the greatest median of a measured round.\n\n\
             | design | circuits | time | measured | rounds | simulated | ratio | within 15 % |\n\
             |---|---|---|---|---|---|---|---|\n";
    for cell in compared {
        let ms = |seconds: f64| format!("{:.0}", seconds * 1e3);
        let [least, most] = cell.range.map(ms);
        text += &format!(
            "| {} | {} | {} | {} | {least}–{most} | {} | {:.2} | {} |\n",
            cell.combination.design,
            cell.combination.legs,
            cell.quantity.name(),
            ms(cell.measured),
            ms(cell.simulated),
            cell.ratio(),
            if cell.is_within() { "yes" } else { "**no**" },
        );
    }
    text
}

/// Replaces the text between the two marker lines in `old`, the content of the document.
fn replaced(old: &str, text: &str) -> Result<String, String> {
    let missing = format!("the page lacks the line `{BEGIN}` or, below it, `{END}`");
    let (before, rest) = old.split_once(BEGIN).ok_or_else(|| missing.clone())?;
    let (_, after) = rest.split_once(END).ok_or(missing)?;
    Ok(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", text.trim()))
}
