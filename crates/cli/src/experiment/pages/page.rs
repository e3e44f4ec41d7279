//! Results of the page loads as one HTML page.

use anabranch_experiment::pages::RTTS;
use anabranch_experiment::pages::summary::{Cell, Page, shares};
use anabranch_pages::figures::{self, axis, drawing, figure_row};
use maud::{Markup, html};

use super::super::common::origin;
use super::super::numbers::between;
use super::words::{self, ReportData};

/// Returns the whole HTML page with all results.
pub(super) fn page(report_data: &ReportData<'_>) -> String {
    anabranch_pages::page(
        "Page loads, split and undefended",
        &html! {
            header {
                h1 { "Page loads, split and undefended" }
                p.muted { (words::loads(&report_data.counts())) }
            }
            main {
                (times(report_data))
                (paths(report_data))
                (failures(report_data))
                (conditions(report_data))
            }
            footer { p { "Made by " (anabranch_pages::GENERATOR) ", experiment pages, seed " (report_data.header["seed"]) "." } }
        },
    )
}

/// Draws the load times of each page, without splitting (undefended) and with splitting.
fn times(report_data: &ReportData<'_>) -> Markup {
    let slower = words::slower(report_data.pages, |cell| cell.seconds.median);
    let larger = words::slower(report_data.pages, |cell| cell.bytes.median);
    html! {
        section aria-labelledby="times" {
            h2 id="times" { "Time and bytes" }
            @if let Some(slower) = slower {
                p {
                    "Until its load event, a page takes " (between(slower, 1.0, 2))
                    " times as long with splitting as without (undefended). This is the median \
                     over "
                    (slower.count) " pages of the ratio of a page's two median times (lowest to \
                                    highest). A split load has "
                    @if let Some(larger) = larger { (between(larger, 1.0, 2)) }
                    " times the bytes."
                }
            }
            figure {
                figcaption {
                    h3 { "Load times" }
                    p { "The median load time of each page, from the fastest undefended page to \
                         the slowest. Each page has the same position in both rows." }
                }
                (figure(report_data.pages))
                (numbers(report_data.pages))
            }
        }
    }
}

fn figure(pages: &[Page]) -> Markup {
    let mut both: Vec<(f64, f64)> = pages
        .iter()
        .filter_map(|page| {
            let of = |cell: &Option<Cell>| Some(cell.as_ref()?.seconds.median);
            of(&page.undefended).zip(of(&page.split))
        })
        .collect();
    both.sort_by(|one, other| one.0.total_cmp(&other.0));
    let top = both.iter().flat_map(|&(a, b)| [a, b]).fold(0.0, f64::max);
    let top = figures::round(top);
    let width = both.len().max(1) as f64;
    let rows = [("undefended", -1), ("split", 0)];
    html! {
        @for (at, (name, colour)) in rows.into_iter().enumerate() {
            @let values = both.iter().map(|&(undefended, split)| if at == 0 { undefended } else { split });
            @let title = format!("load times of {} pages, {name}; the vertical axis ends at {}", both.len(), figures::span(top));
            (figure_row(colour, name, &format!("up to {}", figures::span(top)), &drawing("bars", width, &title, &[], &bars(colour, top, values))))
        }
        (axis(&[(0.0, "fastest page".to_owned()), (1.0, "slowest page".to_owned())]))
    }
}

fn bars(colour: i16, top: f64, values: impl Iterator<Item = f64>) -> String {
    let shape = |(at, value): (usize, f64)| {
        figures::bar(colour, (at as f64 + 0.1, 0.8), 100.0 * (value / top).clamp(0.0, 1.0), None)
    };
    values.enumerate().map(shape).collect()
}

fn numbers(pages: &[Page]) -> Markup {
    let head = ["page", "HTTP", "loads", "s split", "s undefended", "kB split", "kB undefended"];
    let cell = |cell: &Option<Cell>, of: fn(&Cell) -> String| match cell {
        Some(cell) => of(cell),
        None => "–".to_owned(),
    };
    let row = |page: &Page| {
        let count = |cell: &Option<Cell>| cell.as_ref().map_or(0, |cell| cell.seconds.count);
        let seconds = |c: &Cell| between(c.seconds, 1.0, 2);
        let bytes = |c: &Cell| between(c.bytes, 1e-3, 0);
        vec![
            anabranch_pages::legible(&page.site),
            page.http.clone(),
            format!("{} + {}", count(&page.split), count(&page.undefended)),
            cell(&page.split, seconds),
            cell(&page.undefended, seconds),
            cell(&page.split, bytes),
            cell(&page.undefended, bytes),
        ]
    };
    let rows: Vec<_> = pages.iter().map(row).collect();
    figures::numbers("All pages: median (least–most)", &head.map(str::to_owned), &rows)
}

/// Draws, for loads with splitting, the share of the downlink bytes that the observer of each path
/// saw.
fn paths(report_data: &ReportData<'_>) -> Markup {
    let shares = shares(report_data.records);
    let mut shapes = String::new();
    let mut left = 0.0;
    for (path, share) in (0..).zip(&shares) {
        shapes += &figures::bar(path, (left * 100.0, share * 100.0), 100.0, None);
        left += share;
    }
    html! {
        section aria-labelledby="paths" {
            h2 id="paths" { "Shares of the paths" }
            p { "Shares of the bytes that arrived at the client in split loads: " (words::path_shares(report_data)) "." }
            div.figure-row {
                div.figure-row-head { @for (path, name) in (0..).zip(path_names(report_data)) { (figures::named(path, &name)) } }
                @let label = "share of each path in the bytes of the downlink";
                (drawing("bar", 100.0, label, &[], &shapes))
            }
            p { (words::sharing(report_data.records)) }
        }
    }
}

fn path_names(report_data: &ReportData<'_>) -> [String; RTTS.len()] {
    match report_data.has_circuits() {
        true => report_data.paths(),
        false => std::array::from_fn(|path| format!("p{path}, {} ms", RTTS[path])),
    }
}

fn failures(report_data: &ReportData<'_>) -> Markup {
    let reasons = words::failures(report_data.records);
    html! {
        section aria-labelledby="failures" {
            h2 id="failures" { "Failures" }
            @if reasons.is_empty() { p { "None." } } @else {
                p { "Each failed attempt is recorded, and was repeated at the end. The traces have \
                     successful attempts only." }
                ul { @for (why, count) in reasons { li { (count) " × " (anabranch_pages::legible(&why)) } } }
            }
        }
    }
}

fn conditions(report_data: &ReportData<'_>) -> Markup {
    html! {
        section aria-labelledby="conditions" {
            h2 id="conditions" { "How it was measured" }
            p {
                "Headless Chromium with a new profile for each load, through WireGuard \
                 (wireguard-go at both ends), through "
                code { "anabranch split" } " over three emulated paths of " (report_data.rate())
                " Mbit/s and 20, 35 and 60 ms. Undefended loads use the first path alone."
                (report_data.circuits()) " "
                "Schedule: " (report_data.schedule())
                ". Caddy serves the sites, each from its own address. What the data set has and \
                 lacks is in "
                code { "DATASHEET.md" } " in the folder of this page."
            }
            p { (words::machine(report_data.records)) }
            p { (origin(report_data.header)) }
        }
    }
}
