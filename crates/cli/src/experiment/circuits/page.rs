//! Results of the experiment `circuits` as one HTML page.

use anabranch_experiment::Mean;
use anabranch_experiment::circuits::summary::Cell;
use anabranch_experiment::circuits::{Layout, WEB, paper};
use anabranch_pages::figures::{self, axis, drawing, figure_row, number};
use maud::{Markup, html};

use super::super::common::origin;
use super::words::{self, ReportData};

/// Returns the whole HTML page with all results.
pub(super) fn page(report_data: &ReportData<'_>) -> String {
    let rows = words::verdict_rows(report_data);
    anabranch_pages::page(
        "Several circuits for one stream",
        &html! {
            header {
                h1 { "Several circuits for one stream" }
                p.muted {
                    (words::description(report_data))
                    ". The experiment repeats section 5.1 of \"Analysis of Multi-path Onion \
                     Routing\" (de la Cadena et al., DBSec 2019)."
                }
            }
            main {
                @for place in places(report_data) { (section(report_data, place)) }
                section aria-labelledby="claims" {
                    h2 id="claims" { "The paper's claims" }
                    (figures::table("verdicts", "Does it hold here?", &words::HEAD, rows.iter().map(Vec::as_slice)))
                    p { (words::judged()) }
                }
                (figures::numbers("All designs", &words::cell_head(report_data), &words::cell_rows(report_data)))
                (conditions(report_data))
            }
            footer { p { "Made by " (anabranch_pages::GENERATOR) ", experiment circuits, seed " (report_data.header["seed"]) "." } }
        },
    )
}

/// Returns all measured topologies, each with its level of load in percent (`None` if the topology
/// has no levels).
fn places(report_data: &ReportData<'_>) -> Vec<(Layout, Option<u32>)> {
    let mut places: Vec<_> = report_data.cells.iter().map(|cell| cell.place).collect();
    places.dedup();
    places
}

fn section(report_data: &ReportData<'_>, place: (Layout, Option<u32>)) -> Markup {
    let cells: Vec<&Cell> = report_data.cells.iter().filter(|cell| cell.place == place).collect();
    let name = words::place(place);
    html! {
        @if !cells.is_empty() {
            @let id = name.replace([',', ' ', '%'], "");
            section id=(id) aria-labelledby={ (id) "-h" } {
                h2 id={ (id) "-h" } { "On " (name) }
                (times(&cells, ("web", &format!("{} KiB", WEB >> 10)), |cell| cell.web, |row| Some(row.web)))
                (times(&cells, ("bulk", &format!("{} MiB", report_data.bulk())), |cell| cell.bulk, |row| report_data.bulk_of(row)))
            }
        }
    }
}

/// Draws a chart with a row for each design: the mean time with its confidence interval, and a dot
/// for the paper's value.
fn times(
    cells: &[&Cell],
    (name, description): (&str, &str),
    of: impl Fn(&Cell) -> Option<Mean>,
    of_paper: impl Fn(&paper::Row) -> Option<f64>,
) -> Markup {
    let papers = |cell: &Cell| paper::row(cell.design, cell.legs).and_then(|row| of_paper(&row));
    let ends = cells.iter().flat_map(|cell| [of(cell).map(|mean| mean.mean * 1.2), papers(cell)]);
    let lasts = ends.flatten().fold(0.001, f64::max) * 1.05;
    let ticks = figures::times(lasts);
    let grid: Vec<f64> = ticks.iter().map(|(at, _)| at * 100.0).collect();
    html! {
        figure {
            figcaption {
                h3 { (description) }
                p { "Seconds to the last byte. The bar is the mean, the line its 95 % interval, \
                     the dot the paper's value, which is from another machine." }
            }
            div.way data-way=(name) {
                @for cell in cells {
                    @if let Some(mean) = of(cell) {
                        @let title = format!("{} × {}", words::title(cell.design), cell.legs);
                        @let remark = format!("{:.0} ms", mean.mean * 1e3);
                        @let shapes = shapes(mean, papers(cell), cell.legs as i16 - 1, lasts);
                        @let label = format!("{title}: {description}, {remark}");
                        @let bars = drawing("time", 100.0, &label, &grid, &shapes);
                        (figure_row(cell.legs as i16 - 1, &title, &remark, &bars))
                    }
                }
                (axis(&ticks))
            }
        }
    }
}

fn shapes(mean: Mean, paper: Option<f64>, colour: i16, lasts: f64) -> String {
    let at = |seconds: f64| number((100.0 * seconds / lasts).clamp(0.0, 100.0));
    let class = figures::colour(colour);
    let mut shapes =
        figures::bar(colour, (0.0, (100.0 * mean.mean / lasts).min(100.0)), 100.0, None);
    if mean.half.is_finite() {
        let (from, to) = (at(mean.mean - mean.half), at(mean.mean + mean.half));
        shapes += &format!(r#"<path class="line {class}" d="M{from} 50H{to}"/>"#);
    }
    if let Some(paper) = paper {
        shapes += &format!(r#"<path class="dot {class}" d="M{} 50h0"/>"#, at(paper));
    }
    shapes
}

fn conditions(report_data: &ReportData<'_>) -> Markup {
    html! {
        section aria-labelledby="conditions" {
            h2 id="conditions" { "How it was measured" }
            p {
                "Each network is started from scratch: our authority, three guards, three middle \
                 relays and one exit, with one thread each, all Anabranch or all C tor. All \
                 clients use the measured design. Clients that load the network fetch a page, \
                 pause for a random time (exponential distribution, mean "
                (report_data.header["pauses"][0])
                " s on loopback, "
                (report_data.header["pauses"][1])
                " s on emulated lines), and repeat. Times start at a program's SOCKS request; \
                 with optimistic data the HTTP request leaves together with the SOCKS request. \
                 Every byte is compared with what the server sends. The paper may have measured \
                 first bytes on new circuits; here the circuits are in use."
            }
            p {
                "With Conflux the exit chooses the circuit of each cell (" code { "lowrtt" }
                "). With Conflux 2013 and mTor the rule is that of their papers, or round robin. \
                 CPU time in ms per MB is the sum over all guards, or all middles, divided by all \
                 megabytes that the network carried. The paper shows the load of one relay of \
                 each kind; our shares of a core are means over three relays. By default the \
                 clients that create load are spread over all guards, even with one circuit each; \
                 with "
                code { "--load employed" } " they use the relays of the measured client."
            }
            p { (words::machine(report_data)) }
            p { (origin(report_data.header)) }
        }
    }
}
