//! Texts about the results of the experiment `unordered`, shared by the HTML page, the Markdown
//! file and the terminal output.

use anabranch_experiment::Median;
use anabranch_experiment::unordered::claims::{Answer, Claim, JudgedClaim};
use anabranch_experiment::unordered::summary::{Curve, LinkRow, Pairing};
use anabranch_experiment::unordered::{
    Arm, CELL_CIRCUITS, CELL_RATE, DELAY_MS, Direction, Line, Measured, QUEUE_MS, RATE_MBIT,
    SegmentOrder, paper,
};
use anabranch_pages::figures::percent;
use serde_json::Value;

use super::super::common::disturbance;
use super::super::numbers::{NONE, mean, median, owned};
use super::SIMULATED;
use crate::text::table;

/// Data for the HTML page, the Markdown file and the terminal output.
pub(super) struct ReportData<'a> {
    /// First line of the journal `units.jsonl`: the settings, and the program and machine of the
    /// measurements.
    pub(super) header: &'a Value,
    /// Results of all measurements.
    pub(super) records: &'a [Measured],
    /// Curves of the share of finished downloads over time, one for each arm (kind of link) and
    /// emulated line.
    pub(super) curves: &'a [Curve],
    /// Comparisons of the arms (kinds of links) with ordered links.
    pub(super) pairings: &'a [Pairing],
    /// Results of the measurements of one link alone, without relays.
    pub(super) links: &'a [LinkRow],
    /// Claims of the paper (Nowlan et al., FOCI 2013), each with its verdict.
    pub(super) claims: &'a [JudgedClaim],
}

impl ReportData<'_> {
    fn is_simulated(&self) -> bool {
        self.header[SIMULATED] == true
    }
}

/// Returns the name of `arm` (a kind of link) in texts and tables.
pub(super) fn title(arm: Arm) -> &'static str {
    match arm {
        Arm::Stock => "C tor",
        Arm::Ordered => "ours, in order",
        Arm::OrderedKist => "ours, in order, kist",
        Arm::Unordered => "ours, unordered",
        Arm::UnorderedKist => "ours, unordered, kist",
        Arm::Quic => "ours, QUIC",
        Arm::PerCircuit => "ours, one link per circuit",
        Arm::Mptcp => "ours, MPTCP, two lines",
        Arm::Cells => "a link alone",
    }
}

/// Describes an emulated line in text: its loss, its delay and the congestion control.
pub(super) fn line(line: &Line) -> String {
    let Line { loss, direction, deviation, congestion, order } = line;
    let way = match direction {
        Direction::ToExit => "to the exit",
        Direction::FromExit => "from the exit",
    };
    let lost = if *loss == 0 { "no loss".to_owned() } else { format!("{loss} % {way}") };
    let order = if *order == SegmentOrder::Reordered { " with reordering" } else { "" };
    format!("{lost}, ±{deviation} ms{order}, {congestion}")
}

/// Returns a sentence about the measurements, without its full stop.
pub(super) fn description(report_data: &ReportData<'_>) -> String {
    let [shortest, longest] = [0, 1].map(|at| report_data.header["lengths"][at].as_u64());
    format!(
        "{} downloads of {} to {} KB start at the same time. Each uses its own circuit, and all \
         circuits use the same three relays. The three lines between client, guard, middle relay \
         and exit have a delay of {DELAY_MS} ms one way and {RATE_MBIT} Mbit/s. The last line, \
         between middle relay and exit, loses TCP segments; the tables give the percentages",
        report_data.header["downloads"],
        shortest.unwrap_or_default() / 1000,
        longest.unwrap_or_default() / 1000,
    )
}

/// Explains the choice of the parameters for which the paper gives no value.
pub(super) fn readings(report_data: &ReportData<'_>) -> String {
    let tcp = if report_data.is_simulated() { "simulator" } else { "kernel" };
    let stock = match report_data.curves.iter().any(|curve| curve.arm == Arm::Stock) {
        true => "",
        false => " C tor was not measured.",
    };
    format!(
        "In the paper the delay is normally distributed with a mean of {DELAY_MS} ms. The paper \
         does not state the links with this delay, the deviation, the congestion control and the \
         rate. Here each of the three lines has the delay, in both directions. The table gives \
         the deviation; segments keep their order unless the table mentions reordering. Queues \
         hold the data of {QUEUE_MS} ms. CUBIC and BBR are those of this {tcp}. The paper loses \
         segments towards the exit only; here both directions are measured. The paper downloads \
         popular sites. Here a web server next to the exit sends files, each longer than the one \
         before by the same factor. Circuits are built before the downloads start, so the times \
         are those of the downloads alone. The paper's circuits have windows of 1,000 cells; here \
         circuits have Tor's present congestion control. Downloads are aborted after {} s and \
         then count as not done. Each round has its own random seed, which all variants \
         share.{stock}",
        report_data.header["cut"]
    ) + &others(report_data)
}

/// Explains which arms (kinds of links) should not be compared with the others, because they
/// differ in more than their links.
fn others(report_data: &ReportData<'_>) -> String {
    let has = |arm| report_data.curves.iter().any(|curve| curve.arm == arm);
    let notes = [
        (
            Arm::Quic,
            " QUIC links use their own CUBIC, whatever the kernel's congestion control is.",
        ),
        (
            Arm::PerCircuit,
            " With one link per circuit, each download has its own connection on a line, with its \
             own window. A loss slows down only one of these connections. The client's circuits \
             still share its link to the guard. The links exist before the downloads start, so no \
             time includes the round trips that open them.",
        ),
        (
            Arm::Mptcp,
            " With MPTCP the link between middle and exit has two lines, each like the one line of \
             the other variants: twice the rate, and two congestion windows. This variant measures \
             the gain of a second path, not the gain of another link on the same path.",
        ),
    ];
    notes.into_iter().filter(|(arm, _)| has(*arm)).map(|(_, text)| text).collect()
}

/// Explains the measurement of one link alone, without relays.
pub(super) fn alone(report_data: &ReportData<'_>) -> String {
    format!(
        "This table compares three rules of delivery on one unordered link (its TLS records can \
         be read out of order). The link runs over the line between middle relay and exit, and \
         carries {CELL_RATE} cells per second for {} s. The cells belong to {CELL_CIRCUITS} \
         circuits in turn, and each cell is sent in its own write. Three moments are recorded for \
         each cell. 'In order' is when the kernel has delivered all data up to the end of the \
         cell, as with TLS over TCP. 'By circuit' is when all earlier cells of the same circuit \
         have arrived, as with a uTor link (--link utls). 'Unordered' is when the cell's own \
         record was decrypted. The last column is the mean delay by circuit, divided by the mean \
         delay in order: below 1, uTor is faster.",
        report_data.header["seconds"]
    )
}

/// Describes the CPU use of all programs during measurements, and the load of the machine by other
/// work.
pub(super) fn machine(report_data: &ReportData<'_>) -> String {
    if report_data.is_simulated() {
        return "Relays, client and lines were simulated in virtual time. Downloads do not depend \
                on the machine."
            .to_owned();
    }
    let busiest = report_data.records.iter().map(|record| record.busy).fold(0.0, f64::max);
    format!(
        "All programs of the machine together used at most {} of its CPUs in a measurement. {}",
        percent(busiest),
        disturbance(report_data.records.iter().map(|record| record.machine))
    )
}

/// Formats the median of `rounds`, and the number of rounds.
fn median_of(rounds: &[f64]) -> String {
    match Median::of(rounds) {
        None => NONE.to_owned(),
        all @ Some(Median { count, .. }) => format!("{} (of {count})", median(all, 2)),
    }
}

/// Column headings of the table of download times.
pub(super) const CURVE_HEAD: [&str; 8] = [
    "lines",
    "variant",
    "rounds",
    "done",
    "quartiles of download times, s",
    "done after 5 s",
    "CPU s of guard, middle, exit",
    "CPUs in use, at most",
];

/// Returns the summaries of download times as rows of a table. The headings are [`CURVE_HEAD`].
pub(super) fn curve_rows(report_data: &ReportData<'_>) -> Vec<Vec<String>> {
    let row = |curve: &Curve| {
        let (rounds, all) = curve.counts;
        let quartiles = curve.quartiles().map(|three| three.map(|one| format!("{one:.2}")));
        vec![
            line(&curve.line),
            title(curve.arm).to_owned(),
            rounds.to_string(),
            format!("{} of {all}", all - curve.unfinished),
            quartiles.map_or_else(|| NONE.to_owned(), |three| three.join(", ")),
            mean(curve.done, 1.0, 2),
            curve.cpu.map(|seconds| format!("{seconds:.1}")).join(", "),
            percent(curve.busy),
        ]
    };
    report_data.curves.iter().map(row).collect()
}

/// Column headings of the table that compares arms (kinds of links) with ordered links.
pub(super) const PAIR_HEAD: [&str; 4] = [
    "lines",
    "variant",
    "share done when 30 % of the downloads over ordered links are done",
    "time of a download / its time over ordered links",
];

/// Explains how arms (kinds of links) are compared.
pub(super) fn compared() -> String {
    format!(
        "According to the paper, at 5 % loss more than {} of the unordered downloads are done \
         within {} s, but less than {} of the ordered ones. But this time depends on settings \
         that the paper does not give. So here the comparison is made at the moment when {} of \
         our downloads over ordered links are done. The table has medians over rounds with their \
         95 % intervals (without an assumption on the distribution); all variants of a round \
         share its random seed. Ratios of times use the median over the downloads of a round.",
        percent(paper::UNORDERED),
        paper::MOMENT,
        percent(paper::ORDERED),
        percent(paper::ORDERED),
    )
}

/// Returns the comparisons as rows of a table. The headings are [`PAIR_HEAD`].
pub(super) fn pair_rows(report_data: &ReportData<'_>) -> Vec<Vec<String>> {
    let row = |pairing: &Pairing| {
        vec![
            line(&pairing.line),
            title(pairing.arm).to_owned(),
            median_of(&pairing.done),
            median_of(&pairing.ratios),
        ]
    };
    report_data.pairings.iter().map(row).collect()
}

/// Column headings of the table of the paper's claims.
pub(super) const CLAIM_HEAD: [&str; 5] = ["lines", "claim", "found", "the paper", "verdict"];

/// Explains how the verdict about each claim of the paper is reached.
pub(super) fn judged() -> String {
    format!(
        "Each row of the table tests one statement of the paper (a claim). Downloads over \
         Anabranch's unordered links are compared with downloads over its ordered links in the \
         same round. The column 'found' has the result and its 95 % confidence interval over \
         rounds. A claim holds if the claim is true for every value in this interval. A claim does \
         not hold if it is false for every value. Otherwise, and with fewer than six rounds, the \
         claim cannot be judged. 'Alike' means that the fastest {} of the downloads take the same \
         time within 10 %. 'The slowest' are the {} of the downloads that take longest.",
        percent(paper::ALIKE),
        percent(paper::SLOWEST),
    )
}

/// Returns the paper's claims as rows of a table. The headings are [`CLAIM_HEAD`].
pub(super) fn claim_rows(report_data: &ReportData<'_>) -> Vec<Vec<String>> {
    let row = |one: &JudgedClaim| {
        let (claim, paper) = match one.claim {
            Claim::HalfDone => (
                "share of downloads over unordered links that are done when 30 % over ordered links are done",
                "over 0.50",
            ),
            Claim::Alike => {
                ("time of the fastest downloads, divided by their time over ordered links", "alike")
            }
            Claim::Slowest => (
                "time of the slowest downloads, divided by their time over ordered links",
                "0.60 to 0.70",
            ),
        };
        let answer = match one.answer {
            Answer::Holds => "holds",
            Answer::Fails => "does not hold",
            Answer::Open => "cannot be judged",
        };
        let found = format!("{} (of {})", median(Some(one.found), 2), one.found.count);
        vec![line(&one.line), claim.to_owned(), found, paper.to_owned(), answer.to_owned()]
    };
    report_data.claims.iter().map(row).collect()
}

/// Column headings of the table of links that were measured alone, without relays.
pub(super) const LINK_HEAD: [&str; 8] = [
    "line",
    "rounds",
    "cells that arrived",
    "read out of order",
    "in order, ms: mean, p90",
    "by circuit",
    "unordered",
    "by circuit / in order",
];

/// Returns the results of links that were measured alone, without relays, as rows of a table. The
/// headings are [`LINK_HEAD`].
pub(super) fn link_rows(report_data: &ReportData<'_>) -> Vec<Vec<String>> {
    let row = |row: &LinkRow| {
        let delays =
            |at: usize| format!("{}, {}", mean(row.delays[at], 1.0, 1), mean(row.p90[at], 1.0, 0));
        let (wanted, received) = row.cells;
        vec![
            // A single link is measured only with losses in this direction, so the direction is
            // left out.
            line(&row.line).replace(" from the exit", ""),
            row.rounds.to_string(),
            format!("{received} of {wanted}"),
            row.early.map_or_else(|| NONE.to_owned(), |early| percent(early.mean)),
            delays(0),
            delays(1),
            delays(2),
            mean(row.ratio, 1.0, 3),
        ]
    };
    report_data.links.iter().map(row).collect()
}

/// Describes the result of a measurement in a few words.
pub(super) fn outcome(record: &Measured) -> String {
    let busy = percent(record.busy);
    if let Some(cells) = &record.cells {
        let (circuit, order) = (cells.by_circuit.mean, cells.in_order.mean);
        return format!(
            "{} of {} cells arrived; mean delay {circuit:.1} ms if each cell waits for earlier \
             cells of its circuit only, {order:.1} ms if it waits for all earlier cells of the \
             link; CPUs {busy} busy",
            cells.received, cells.wanted
        );
    }
    let (times, all) = (record.times(), record.downloads.len());
    let last = times.last().copied().unwrap_or_default();
    let middle = record.moment(0.5).map_or_else(|| NONE.to_owned(), |time| format!("{time:.1} s"));
    let failed = match times.len() == all {
        true => String::new(),
        false => format!("; {} not done: {}", all - times.len(), record.error),
    };
    format!(
        "half of the downloads done after {middle}, the last after {last:.1} s; CPUs {busy} \
         busy{failed}"
    )
}

/// Returns all results as text for a terminal.
pub(super) fn plain(report_data: &ReportData<'_>) -> String {
    let rows = |head: Vec<String>, rows: Vec<Vec<String>>| match rows.len() {
        0 => String::new(),
        _ => table(&std::iter::once(head).chain(rows).collect::<Vec<_>>()) + "\n",
    };
    format!(
        "{}\n{}\n{}\n{}\n{}",
        rows(owned(&CURVE_HEAD), curve_rows(report_data)),
        rows(owned(&PAIR_HEAD), pair_rows(report_data)),
        rows(owned(&CLAIM_HEAD), claim_rows(report_data)),
        rows(owned(&LINK_HEAD), link_rows(report_data)),
        machine(report_data)
    )
}
