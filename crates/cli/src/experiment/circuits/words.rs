//! Texts about the results of the experiment `circuits`, shared by the HTML page, the Markdown
//! file and the terminal output.

use anabranch_experiment::Mean;
use anabranch_experiment::circuits::summary::{
    Answer, Cell, Claim, Verdict, narrow, narrow_by_repetitions,
};
use anabranch_experiment::circuits::{Design, LINES, LOADED, Layout, MORE_PAUSES, Measured, paper};
use anabranch_pages::figures::percent;
use serde_json::Value;

use super::super::numbers::{mean, owned};
use crate::text::table;

/// Data for the HTML page, the Markdown file and the terminal output.
pub(super) struct ReportData<'a> {
    /// First line of the journal `units.jsonl`: the settings, and the program and machine of the
    /// measurements.
    pub(super) header: &'a Value,
    /// Results of all measurements.
    pub(super) records: &'a [Measured],
    /// Summary of the results by topology, design and number of circuits per stream.
    pub(super) cells: &'a [Cell],
    /// Claims of the paper (de la Cadena et al., DBSec 2019), each with its verdict.
    pub(super) verdicts: &'a [Verdict],
}

impl ReportData<'_> {
    /// Returns the size of a bulk download in this execution of the experiment, in MiB.
    pub(super) fn bulk(&self) -> u64 {
        self.header["bulk"].as_u64().unwrap_or(PAPERS_BULK)
    }

    /// Returns the paper's time for a bulk download; `None` if the paper's download had another
    /// size.
    pub(super) fn bulk_of(&self, row: &paper::Row) -> Option<f64> {
        row.bulk.filter(|_| self.bulk() == PAPERS_BULK)
    }
}

/// Size of the paper's bulk download in MiB.
const PAPERS_BULK: u64 = 1;

/// Returns the name of `design` in texts and tables.
pub(super) fn title(design: Design) -> &'static str {
    match design {
        Design::Tor => "Tor",
        Design::Conflux => "Conflux",
        Design::Conflux2013 => "Conflux 2013",
        Design::Conflux2013Turns => "Conflux 2013, round robin",
        Design::MTor => "mTor",
        Design::MTorTurns => "mTor, round robin",
        Design::Ours => "Anabranch",
        Design::OursTurns => "Anabranch, round robin",
        Design::Merged => "merged in the middle",
        Design::MergedBatches => "merged in the middle, batches",
        Design::UdpOr => "UDP-OR",
        Design::MudpOr => "mUDP-OR",
        Design::MudpOrTurns => "mUDP-OR, round robin",
        Design::More => "MORE",
        Design::Stock => "C tor",
        Design::StockConflux => "C tor, Conflux",
    }
}

/// Returns the name of a topology in texts and tables, with its load in percent, if it is given.
pub(super) fn place((place, level): (Layout, Option<u32>)) -> String {
    match level {
        Some(0) => format!("{}, idle", place.name()),
        Some(level) => format!("{} at {level} %", place.name()),
        None => place.name().to_owned(),
    }
}

/// Returns a sentence about the measurements, without its full stop.
pub(super) fn description(report_data: &ReportData<'_>) -> String {
    let lines: Vec<_> =
        LINES.iter().map(|(rate, rtt)| format!("{rate} Mbit/s and {rtt} ms")).collect();
    format!(
        "Each of the three networks has seven relays, four web servers and two kinds of clients. \
         One client is measured: it downloads pages of 320 KiB and files of {} MiB over one \
         circuit or several. The other {} clients create load. The first network is on loopback. \
         In the second the connections of the three guards have different rates and round-trip \
         times: {}. In the third they are equal, with {} Mbit/s and {} ms, and the clients that \
         create load use a fixed share of one connection's rate. The circuits of the clients that \
         create load use {}",
        report_data.bulk(),
        report_data.header["clients"],
        lines.join(", "),
        LOADED.0,
        LOADED.1,
        match report_data.header["load"] == "employed" {
            true => "the relays of the measured client",
            false => "all guards and middle relays",
        }
    ) + &of_more(report_data)
}

/// Returns a sentence about the network of the design MORE (a new path for each packet), without
/// its full stop. Returns an empty text if MORE was not measured.
fn of_more(report_data: &ReportData<'_>) -> String {
    if report_data.cells.iter().all(|cell| cell.design != Design::More) {
        return String::new();
    }
    format!(
        ". In MORE's network each client relays for all others, and the clients that create load \
         pause {MORE_PAUSES} times as long, because a page costs all nodes together about 0.4 s of \
         CPU time"
    )
}

/// Describes the use of the machine's CPUs: the highest mean of any design, and the number of
/// networks in which the use exceeded [`BUSY`].
pub(super) fn machine(report_data: &ReportData<'_>) -> String {
    let busiest = report_data.cells.iter().filter_map(|cell| cell.busy).map(|mean| mean.mean);
    let busiest = busiest.fold(0.0, f64::max);
    let over = report_data.records.iter().filter(|record| record.busy > BUSY).count();
    format!(
        "The busiest design used {} of the machine's CPUs on average. {over} of {} networks were \
         measured with more than {} of the CPUs in use; their times depend partly on the machine's \
         speed.",
        percent(busiest),
        report_data.records.len(),
        percent(BUSY)
    )
}

/// Limit for the share of the machine's CPUs in use. Above it, measured times depend partly on the
/// machine's speed.
const BUSY: f64 = 0.7;

/// Column headings of the table of the paper's claims, each with its verdict.
pub(super) const HEAD: [&str; 6] =
    ["network", "design", "claim", "ratio to one circuit", "paper", "verdict"];

/// Explains how the verdict about each claim of the paper is reached.
pub(super) fn judged() -> String {
    "Each ratio compares a design with one circuit of Tor in the same network, at the same load \
     and in the same round. The number after ± is half the width of its 95 % interval over rounds \
     (Student's t). Ratios between guards, middle relays and exits compare relays within a \
     design. A claim holds if it is true for every value in the interval, and does not hold if it \
     is false for every value. Two values are alike if the whole interval of their ratio is \
     within 10 % of 1. CPU time is per byte that the network carried, for one guard and one \
     middle relay that the circuits use, and for the exit. The CPU time of one guard and one \
     middle relay can be measured only if the clients that create load use these two relays."
        .to_owned()
}

/// Describes how wide the confidence intervals are, compared with the paper's.
pub(super) fn intervals(report_data: &ReportData<'_>) -> String {
    format!(
        "Values are means over rounds; the number after ± is half the width of the 95 % confidence \
         interval. Each round is one sample: it has its own network, and its repetitions share \
         circuits. For times, {} of the intervals are as narrow as the paper's (10 % of the mean). \
         The paper seems to count each repetition as one sample; by that count {} of the intervals \
         would be as narrow.",
        percent(narrow(report_data.cells)),
        percent(narrow_by_repetitions(report_data.records))
    )
}

fn claim(claim: Claim) -> &'static str {
    match claim {
        Claim::FirstByte => "the first byte arrives sooner than with one circuit",
        Claim::Web => "320 KiB arrive sooner than with one circuit",
        Claim::Bulk => "1 MiB arrives sooner than with one circuit",
        Claim::Guard => "a guard uses less CPU time than with one circuit",
        Claim::Middle => "a middle relay uses less CPU time than with one circuit",
        Claim::Exit => "the exit uses the same CPU time as with one circuit",
        Claim::EntriesCostMore => "all guards use more CPU time than all middle relays",
        Claim::ExitCostsLess => "the exit uses less CPU time than all middle relays",
        Claim::WebLater => "320 KiB arrive later than with one circuit",
        Claim::BulkFails => {
            "most downloads do not finish (the ratio is the share of failed downloads)"
        }
    }
}

fn answer(answer: Answer) -> &'static str {
    match answer {
        Answer::Holds => "holds",
        Answer::Fails => "does not hold",
        Answer::Alike => "alike",
        Answer::Open => "cannot be judged",
    }
}

fn design(design: Design, legs: u32) -> String {
    format!("{} × {legs}", title(design))
}

/// Returns the paper's claims with their verdicts, as rows of a table. The headings are [`HEAD`].
pub(super) fn verdict_rows(report_data: &ReportData<'_>) -> Vec<Vec<String>> {
    let row = |verdict: &Verdict| {
        vec![
            place(verdict.place),
            design(verdict.design, verdict.legs),
            claim(verdict.claim).to_owned(),
            mean(Some(verdict.ratio), 1.0, 2),
            format!("{:.2}", verdict.paper),
            answer(verdict.answer).to_owned(),
        ]
    };
    report_data.verdicts.iter().map(row).collect()
}

/// Returns the column headings of the table that compares the designs (tor, conflux, mtor, ...).
pub(super) fn cell_head(report_data: &ReportData<'_>) -> Vec<String> {
    let bulk = format!("{} MiB, ms (paper)", report_data.bulk());
    owned(&[
        "network",
        "design",
        "rounds",
        "failed",
        "first byte, ms",
        "first byte with optimistic data, ms",
        "320 KiB, ms (paper)",
        &bulk,
        "CPU ms/MB: guards, middles, exit",
        "CPU % of a guard, a middle, the exit (paper)",
    ])
}

/// Returns the measured times and CPU use of each design (tor, conflux, mtor, ...), as rows of a
/// table. The headings are [`cell_head`].
pub(super) fn cell_rows(report_data: &ReportData<'_>) -> Vec<Vec<String>> {
    report_data.cells.iter().map(|cell| cell_row(report_data, cell)).collect()
}

fn cell_row(report_data: &ReportData<'_>, cell: &Cell) -> Vec<String> {
    let row = paper::row(cell.design, cell.legs);
    let with_paper = |own: String, value: Option<String>| match value {
        Some(value) => format!("{own} ({value})"),
        None => own,
    };
    let three = |means: [Option<Mean>; 3]| means.map(|one| mean(one, 1.0, 1)).join(", ");
    let of_paper = |cpu: [f64; 3]| cpu.map(|share| format!("{share:.0}")).join(", ");
    vec![
        place(cell.place),
        design(cell.design, cell.legs),
        cell.counts.0.to_string(),
        cell.failed.to_string(),
        mean(cell.first_byte[0], 1e3, 1),
        mean(cell.first_byte[1], 1e3, 1),
        with_paper(mean(cell.web, 1e3, 0), row.map(|row| format!("{:.0}", row.web * 1e3))),
        with_paper(
            mean(cell.bulk, 1e3, 0),
            row.and_then(|row| report_data.bulk_of(&row)).map(|bulk| format!("{:.0}", bulk * 1e3)),
        ),
        three(cell.per_megabyte),
        with_paper(three(cell.percent), row.map(|row| of_paper(row.cpu))),
    ]
}

/// Describes the result of a measurement in a few words.
pub(super) fn outcome(record: &Measured) -> String {
    let count = record.repetitions.len().max(1) as f64;
    let mean = |time: fn(&anabranch_experiment::circuits::Repetition) -> f64| {
        record.repetitions.iter().map(time).sum::<f64>() / count * 1e3
    };
    let failed = match record.failed {
        0 => String::new(),
        failed => format!("; {failed} failed: {}", record.error),
    };
    format!(
        "mean times: first byte {:.0} ms, page of 320 KiB {:.0} ms, bulk download {:.0} ms; CPUs \
         {} busy{failed}",
        mean(|one| one.first_byte),
        mean(|one| one.web),
        mean(|one| one.bulk),
        percent(record.busy)
    )
}

/// Returns all results as text for a terminal.
pub(super) fn plain(report_data: &ReportData<'_>) -> String {
    let rows = |head: Vec<String>, rows: Vec<Vec<String>>| {
        table(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
    };
    format!(
        "{}\n\n{}\n{}",
        rows(cell_head(report_data), cell_rows(report_data)),
        rows(owned(&HEAD), verdict_rows(report_data)),
        machine(report_data)
    )
}
