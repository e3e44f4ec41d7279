//! Texts about the results of the experiment `validation`, shared by the HTML page, the Markdown
//! file and the terminal output.

use anabranch_experiment::circuits::simulated::{Combination, Quantity};
use anabranch_experiment::validation::summary::{QUANTITIES, QUARTILES, QuartileComparison, arms};
use anabranch_experiment::validation::{Measured, RelayUse};
use anabranch_experiment::{Spread, average};
use anabranch_pages::figures::grouped;
use serde_json::Value;

use super::super::common::{disturbance, markdown_table, origin};
use super::super::numbers::{NONE, owned};
use crate::text::table;

/// The results of the experiment `validation`.
pub(super) struct ReportData<'a> {
    /// First line of the journal `units.jsonl`: the settings, and the program and machine of the
    /// measurements.
    pub(super) header: &'a Value,
    /// Results of all runs.
    pub(super) records: &'a [Measured],
    /// Quartiles of download times, each measured and simulated.
    pub(super) compared: &'a [QuartileComparison],
}

impl ReportData<'_> {
    /// Returns the runs in the emulator, without the simulations.
    fn measured(&self) -> impl Iterator<Item = &Measured> + Clone {
        self.records.iter().filter(|run| !run.simulated)
    }

    fn runs(&self, is_simulated: bool, arm: Combination) -> impl Iterator<Item = &Measured> {
        let is_it = move |run: &&Measured| (run.simulated, run.arm()) == (is_simulated, arm);
        self.records.iter().filter(is_it)
    }
}

/// Describes a run in a few words.
pub(super) fn outcome(run: &Measured) -> String {
    let busy = match run.simulated {
        true => String::new(),
        false => format!("; {:.0} % of the machine's CPUs were in use", run.busy * 100.0),
    };
    format!(
        "{} downloads, {} failed; the relays sent {:.0} Mbit/s{busy}",
        run.transfers.len(),
        run.failed,
        run.relayed()
    )
}

/// Describes the network and the runs in a few sentences.
pub(super) fn description(report_data: &ReportData<'_>) -> String {
    let header = report_data.header;
    let numbers = |key: &str| header[key].as_array().into_iter().flatten().map(Value::to_string);
    let relays: Vec<String> = numbers("relays").collect();
    let clients: Vec<String> = numbers("clients").collect();
    let (measured, all) = (report_data.measured().count(), report_data.records.len());
    let downloads: usize = report_data.records.iter().map(|run| run.transfers.len()).sum();
    format!(
        "The network has {} guards, {} middles, {} exits, {} web servers, {} web clients with \
         pauses of {} s on average, and {} bulk clients. The rates of all lines are divided by \
         {}. {measured} measurements and {} simulations were made. In each, downloads count for \
         {} s, after a warm-up of {} s. {} downloads completed",
        relays.first().map_or(NONE, String::as_str),
        relays.get(1).map_or(NONE, String::as_str),
        relays.get(2).map_or(NONE, String::as_str),
        header["servers"],
        clients.first().map_or(NONE, String::as_str),
        header["pause"],
        clients.get(1).map_or(NONE, String::as_str),
        header["scale"],
        all - measured,
        header["seconds"],
        header["warm_up"],
        grouped(downloads as u64),
    )
}

/// Describes the load of the machine during the measured runs.
pub(super) fn machine(report_data: &ReportData<'_>) -> String {
    disturbance(report_data.measured().map(|run| run.machine))
}

fn within<'a>(cells: impl Iterator<Item = &'a QuartileComparison>) -> String {
    let good: Vec<bool> = cells.map(|cell| cell.times.is_within()).collect();
    format!("{} of {}", good.iter().filter(|good| **good).count(), good.len())
}

/// Returns a sentence with the number of simulated times within 15 % of the measured times.
pub(super) fn counts(report_data: &ReportData<'_>) -> String {
    let of =
        |quartile: usize| report_data.compared.iter().filter(move |one| one.quartile == quartile);
    format!(
        "Simulated times within 15 % of the measured times: {} medians; {} values if the \
         quartiles are included.",
        within(of(1)),
        within(report_data.compared.iter())
    )
}

/// Column headings of the table that counts simulated times within 15 % of the measured times.
pub(super) const COUNT_HEAD: [&str; 4] = ["design", "first byte", "320 KiB", "1 MiB"];

/// Returns, for each design, how many simulated quartiles of each time are within 15 % of the
/// measured quartiles. The headings are [`COUNT_HEAD`].
pub(super) fn count_rows(report_data: &ReportData<'_>) -> Vec<Vec<String>> {
    let cell = |arm: Combination, quantity: Quantity| {
        let is_it = |one: &&QuartileComparison| {
            (one.times.combination, one.times.quantity) == (arm, quantity)
        };
        within(report_data.compared.iter().filter(is_it))
    };
    let row = |arm: Combination| {
        let cells = QUANTITIES.map(|quantity| cell(arm, quantity));
        [arm.to_string()].into_iter().chain(cells).collect()
    };
    arms(report_data.records).into_iter().map(row).collect()
}

/// Column headings of the table that compares measured with simulated download times.
pub(super) const TIME_HEAD: [&str; 8] =
    ["design", "time", "value", "measured", "rounds", "simulated", "ratio", "within 15 %"];

/// Returns the measured and simulated times in ms as rows of a table. The headings are
/// [`TIME_HEAD`]. `no` is the word in the last column for simulated values that are not within 15
/// %.
pub(super) fn time_rows(report_data: &ReportData<'_>, no: &str) -> Vec<Vec<String>> {
    let ms = |seconds: f64| format!("{:.0}", seconds * 1e3);
    let row = |one: &QuartileComparison| {
        let times = &one.times;
        let [least, most] = times.range.map(ms);
        vec![
            times.combination.to_string(),
            times.quantity.name().to_owned(),
            QUARTILES[one.quartile].to_owned(),
            ms(times.measured),
            format!("{least}–{most}"),
            ms(times.simulated),
            format!("{:.2}", times.ratio()),
            if times.is_within() { "yes" } else { no }.to_owned(),
        ]
    };
    report_data.compared.iter().map(row).collect()
}

/// Column headings of the table of downloads and of the load of the relays' network connections.
pub(super) const LOAD_HEAD: [&str; 9] = [
    "design",
    "source",
    "runs",
    "pages, files",
    "failed",
    "relays send (Mbit/s)",
    "guard lines",
    "middle lines",
    "exit lines",
];

/// Returns the downloads and the load of the relays' network connections as rows of a table. The
/// headings are [`LOAD_HEAD`].
pub(super) fn load_rows(report_data: &ReportData<'_>) -> Vec<Vec<String>> {
    let mut all: Vec<(Combination, bool)> = Vec::new();
    for run in report_data.records {
        let one = (run.arm(), run.simulated);
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all.into_iter().map(|(arm, is_simulated)| load_row(report_data, arm, is_simulated)).collect()
}

fn load_row(report_data: &ReportData<'_>, arm: Combination, is_simulated: bool) -> Vec<String> {
    let runs: Vec<&Measured> = report_data.runs(is_simulated, arm).collect();
    let mean = |of: &dyn Fn(&Measured) -> f64, digits: usize| {
        let values: Vec<f64> = runs.iter().map(|run| of(run)).collect();
        average(&values).map_or(NONE.to_owned(), |mean| format!("{mean:.digits$}"))
    };
    let count = |run: &Measured, bulk: bool| {
        run.transfers.iter().filter(|one| one.bulk == bulk).count() as f64
    };
    let [pages, files] = [false, true].map(|bulk| mean(&|run| count(run, bulk), 0));
    let mut row = vec![
        arm.to_string(),
        if is_simulated { "simulated" } else { "measured" }.to_owned(),
        runs.len().to_string(),
        format!("{pages}, {files}"),
        mean(&|run| f64::from(run.failed), 1),
        mean(&Measured::relayed, 1),
    ];
    row.extend(["guard", "middle", "exit"].map(|position| used(&runs, position)));
    row
}

/// Formats the load of the network connections of the relays at `position` (guard, middle, exit):
/// the share of the rate in use at the median and at the busiest relay.
fn used(runs: &[&Measured], position: &str) -> String {
    let relays = runs.iter().flat_map(|run| &run.relays);
    let shares = relays.filter(|relay| relay.position == position).map(|relay| relay.used);
    Spread::of(shares).map_or(NONE.to_owned(), |spread| {
        format!("{:.0} % (at most {:.0} %)", spread.median * 100.0, spread.most * 100.0)
    })
}

/// Column headings of the table of CPU times.
pub(super) const CPU_HEAD: [&str; 8] = [
    "design",
    "round",
    "all CPUs in use",
    "busiest relay",
    "all relays",
    "all clients",
    "lines, servers, downloads",
    "late wake-ups (ms)",
];

/// Returns the CPU times of the measured runs as rows of a table, in percent of one core. The
/// headings are [`CPU_HEAD`].
pub(super) fn cpu_rows(report_data: &ReportData<'_>) -> Vec<Vec<String>> {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let row = |run: &Measured| {
        let cpu = |relay: &RelayUse| relay.cpu;
        vec![
            run.arm().to_string(),
            (run.number + 1).to_string(),
            percent(run.busy),
            percent(run.relays.iter().map(cpu).fold(0.0, f64::max)),
            percent(run.relays.iter().map(cpu).sum()),
            percent(run.clients_cpu),
            percent(run.own_cpu),
            format!("{:.1}", run.machine.late),
        ]
    };
    report_data.measured().map(row).collect()
}

/// Explanation of the table of CPU times.
pub(super) const CPU_NOTE: &str = "\
    The column \"all CPUs in use\" has a share of all CPUs of the machine; all other percentages \
    are shares of one core. Only the time in which downloads counted is included. One in a \
    hundred wake-ups of a sleeping thread was late by the time in the last column, or more.";

/// Explanation of the table of downloads and of the load of the relays' network connections.
pub(super) const LOAD_NOTE: &str = "\
    Numbers are means over measurements or simulations. The percentages are the use of the \
    relays' lines in their busier direction: that of the median relay and, in brackets, of the \
    busiest relay.";

/// Returns all results as Markdown.
pub(super) fn markdown(report_data: &ReportData<'_>) -> String {
    let table = |head: &[String], rows: Vec<Vec<String>>| {
        markdown_table(head, rows.iter().map(Vec::as_slice))
    };
    format!(
        "{}.\n\n{}\n\n{}\n\n{}\n\n{}\nTimes in ms. *Rounds* has the least and the greatest value \
         among the measured rounds.\n\n{}\n{LOAD_NOTE}\n\n{}\n{CPU_NOTE}\n\n{}",
        description(report_data),
        counts(report_data),
        machine(report_data),
        origin(report_data.header),
        table(&owned(&COUNT_HEAD), count_rows(report_data)),
        table(&owned(&TIME_HEAD), time_rows(report_data, "**no**")),
        table(&owned(&LOAD_HEAD), load_rows(report_data)),
        table(&owned(&CPU_HEAD), cpu_rows(report_data)),
    )
}

/// Returns the results as text for a terminal.
pub(super) fn plain(report_data: &ReportData<'_>) -> String {
    let rows = time_rows(report_data, "no");
    let rows: Vec<Vec<String>> = [owned(&TIME_HEAD)].into_iter().chain(rows).collect();
    format!("{}\n{}", table(&rows), counts(report_data))
}
