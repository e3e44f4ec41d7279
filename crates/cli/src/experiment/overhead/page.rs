//! Results of the experiment `overhead` as one HTML page.

use std::fmt::Write as _;

use anabranch_experiment::Spread;
use anabranch_experiment::overhead::summary::{Cell, find};
use anabranch_experiment::overhead::{Kind, Net, System, claims};
use anabranch_pages::figures::{self, axis, drawing, figure_row, number};
use maud::{Markup, html};

use super::super::common::{command, origin, splitter};
use super::words::{self, ReportData};

/// Upper end of a figure's y axis, as a multiple of the unsplit goodput.
const TOP: f64 = 1.2;

/// Returns the whole HTML page with all results.
pub(super) fn page(report_data: &ReportData<'_>) -> String {
    let mut systems: Vec<System> = report_data.cells.iter().map(|cell| cell.system).collect();
    systems.dedup();
    anabranch_pages::page(
        "What splitting costs",
        &html! {
            header {
                h1 { "What splitting costs" }
                p.muted {
                    (report_data.records.len()) " downloads, " (words::limit(report_data.header)) ", through "
                    code { (command("anabranch split", report_data.header)) }
                    " over emulated paths of 100 Mbit/s, compared with section 6 of the paper \
                     CoMPS"
                }
            }
            main {
                (in_short(report_data))
                @for system in systems { (section(report_data, system)) }
                (conditions(report_data))
            }
            footer { p { "Made by " (anabranch_pages::GENERATOR) ", experiment overhead, seed " (report_data.header["seed"]) "." } }
        },
    )
}

fn in_short(report_data: &ReportData<'_>) -> Markup {
    html! {
        section aria-labelledby="targets" {
            h2 id="targets" { "In short" }
            (figures::table("targets", words::TARGET, &words::VERDICT_HEAD, words::verdict_rows(report_data.cells).iter().map(<[String; 5]>::as_slice)))
            p { (words::COUNTS) "." }
        }
    }
}

fn section(report_data: &ReportData<'_>, system: System) -> Markup {
    let name = system.name();
    let claims: Vec<_> = claims().iter().filter(|claim| claim.kind == system.kind()).collect();
    html! {
        section id=(name) aria-labelledby={ (name) "-h" } {
            h2 id={ (name) "-h" } { (words::title(system)) }
            p { "Measured: " (words::measured_as(system.kind())) "." }
            figure.overhead {
                figcaption {
                    h3 { "Goodput by switching interval" }
                    p {
                        "The line is the median as a share of the median without splitting (the \
                         fine line is 100 %). Each dot is a download; small dots are downloads \
                         that do not count as split"
                        @if system.kind() == Kind::Quic { ", and the line has a gap where none \
                                                           counts" }
                        ". The shaded area is the goodput that remains according to the paper: "
                        @for claim in &claims { (claim.words) }
                        "."
                    }
                }
                div.ways { @for net in Net::ALL { (panel(report_data, system, net)) } }
                (numbers(report_data.cells, system))
            }
        }
    }
}

/// Draws the results of the program `system` on the network `net`, with a row for each number of
/// paths.
fn panel(report_data: &ReportData<'_>, system: System, net: Net) -> Markup {
    let counts = [2, 3].into_iter().filter(|&paths| {
        report_data
            .cells
            .iter()
            .any(|cell| (cell.system, cell.net, cell.paths) == (system, net, paths))
    });
    let counts: Vec<usize> = counts.collect();
    let all: Vec<&Cell> =
        report_data.cells.iter().filter(|cell| (cell.system, cell.net) == (system, net)).collect();
    let mut every: Vec<u32> = all.iter().map(|cell| cell.every).filter(|&ms| ms != 0).collect();
    every.sort_unstable();
    every.dedup();
    html! {
        @if !counts.is_empty() {
            div.way data-way=(net.name()) {
                h4 { (words::network(net)) " " span.muted { "round-trip times" } }
                @for paths in counts { (row(report_data, system, net, paths, &every)) }
                (axis(&ticks(&every)))
                p.muted { "switching interval in ms" }
            }
        }
    }
}

fn row(
    report_data: &ReportData<'_>,
    system: System,
    net: Net,
    paths: usize,
    every: &[u32],
) -> Markup {
    let unsplit = find(report_data.cells, system, net, paths, 0).map(|cell| cell.goodput);
    let (remark, base) = match unsplit {
        Some(spread) => (format!("unsplit {} Mbit/s", words::mbits(spread)), spread.median),
        None => ("the download without splitting is missing".to_owned(), 0.0),
    };
    let colour = paths as i16 - 2;
    let name = format!("{paths} paths");
    let title = format!(
        "{}, {}, {name}: goodput by switching interval, {remark}",
        words::title(system),
        words::network(net)
    );
    let class = figures::colour(colour);
    let mut shapes = paper(system.kind(), every);
    for (at, &ms) in every.iter().enumerate().filter(|_| base > 0.0) {
        let key = (system, net, paths, ms);
        for run in report_data.records.iter().filter(|r| (r.system, r.net, r.paths, r.every) == key)
        {
            let small = if run.counts() { "" } else { " small" };
            let (x, y) = (middle(at), height(run.goodput() / base));
            shapes += &format!(r#"<path class="dot {class}{small}" d="M{x} {y}h0"/>"#);
        }
    }
    let kept = |&ms: &u32| find(report_data.cells, system, net, paths, ms)?.kept;
    let line = line(every.iter().map(kept));
    if !line.is_empty() {
        shapes += &format!(r#"<path class="line {class}" d="{line}"/>"#);
    }
    let width = every.len().max(1) as f64;
    figure_row(colour, &name, &remark, &drawing("cost", width, &title, &[], &shapes))
}

/// Draws a line through the median goodputs at all switching intervals. The line has a gap where a
/// median is missing.
fn line(kept: impl Iterator<Item = Option<Spread>>) -> String {
    let mut line = String::new();
    let mut pen = "M";
    for (at, kept) in kept.enumerate() {
        match kept {
            Some(kept) => {
                line += &format!("{pen}{} {}", middle(at), height(kept.median));
                pen = "L";
            }
            None => pen = "M",
        }
    }
    line
}

/// Draws the paper's values for programs of this `kind`: the range of goodput with splitting, and
/// a line at the goodput without splitting. `every` has the switching interval of each column.
fn paper(kind: Kind, every: &[u32]) -> String {
    let mut shapes = format!(r#"<path class="unsplit" d="M0 {}H{}"/>"#, height(1.0), every.len());
    for claim in claims().iter().filter(|claim| claim.kind == kind) {
        let within = |ms: &u32| (claim.every.0..=claim.every.1).contains(ms);
        let first = every.iter().position(within);
        let last = every.iter().rposition(within);
        if let (Some(first), Some(last)) = (first, last) {
            let (top, bottom) = (height(1.0 - claim.loss.0), height(1.0 - claim.loss.1));
            write!(
                shapes,
                r#"<path class="claim" d="M{first} {top}H{}V{bottom}H{first}Z"/>"#,
                last + 1
            )
            .expect("writing to a string does not fail");
        }
    }
    shapes
}

/// Returns the x coordinate of the middle of column `at`, which shows the switching interval with
/// this index. Each column is one unit wide.
fn middle(at: usize) -> String {
    number(at as f64 + 0.5)
}

fn height(share: f64) -> String {
    number(100.0 - 100.0 * (share / TOP).clamp(0.0, 1.0))
}

fn ticks(every: &[u32]) -> Vec<(f64, String)> {
    let at = |n: usize| (n as f64 + 0.5) / every.len().max(1) as f64;
    every.iter().enumerate().map(|(n, ms)| (at(n), ms.to_string())).collect()
}

fn numbers(cells: &[Cell], system: System) -> Markup {
    let head = [
        "network",
        "paths",
        "switching",
        "Mbit/s",
        "kept",
        "counted",
        "longest wait",
        "aborted",
        "disturbed",
    ];
    let head = head.map(str::to_owned);
    let of = |cell: &Cell| {
        let counted = cell.counted.map_or(0, |spread| spread.count);
        vec![
            words::network(cell.net),
            cell.paths.to_string(),
            words::every(cell.every),
            words::mbits(cell.goodput),
            words::kept(cell),
            format!("{counted} of {}", cell.goodput.count),
            figures::span(cell.longest_gap),
            cell.broken.to_string(),
            cell.disturbed.to_string(),
        ]
    };
    let rows: Vec<_> = cells.iter().filter(|cell| cell.system == system).map(of).collect();
    figures::numbers(&format!("{}: all settings", words::title(system)), &head, &rows)
}

fn conditions(report_data: &ReportData<'_>) -> Markup {
    let missing = words::not_run(report_data.cells);
    html! {
        section aria-labelledby="conditions" {
            h2 id="conditions" { "How it was measured" }
            p {
                "Each download has an emulated network of its own (" code { "anabranch emulate" }
                "): three paths of 100 Mbit/s with queues of 250 kB and no loss; each path has \
                 its own address at the client. The schedule is weighted random. For each \
                 repetition the probabilities of the paths are drawn from a flat Dirichlet \
                 distribution. All programs and switching intervals use the same probabilities. \
                 If they would leave a path nearly unused, other probabilities are drawn. Each \
                 download without switching uses one path; the repetitions use the paths in turn"
                @if !splitter(report_data.header).is_empty() { ", without the further options of the \
                                                            split measurements" }
                ". Repetitions are interleaved, in a random order that depends on the seed."
            }
            p { (words::machine(report_data.records)) }
            p { (origin(report_data.header)) }
            p {
                "This is an emulation on one machine. The CPU time of the splitter, of both ends \
                 and of the links affects all figures, and the paper used other paths (virtual \
                 machines in two cities). Shares can be compared with the paper; absolute values \
                 cannot."
            }
            @if !missing.is_empty() {
                h3 { "Not measured yet" }
                ul { @for each in &missing { li { (each) } } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_gaps_where_there_is_no_median() {
        let of = |medians: &[f64]| {
            line(
                medians.iter().map(|&median| Spread::of([median].into_iter().filter(|m| *m > 0.0))),
            )
        };
        assert_eq!(of(&[0.6, 1.2, 0.6]), "M0.5 50L1.5 0L2.5 50");
        assert_eq!(of(&[0.6, 0.0, 0.6, 1.2]), "M0.5 50M2.5 50L3.5 0");
        assert_eq!(of(&[0.0, 0.0]), "");
    }
}
