//! Figure 5 of "Analysis of Multi-path Onion Routing": shares of compromised clients by days of a
//! year, as curves with bands. The HTML page has the same panels. The SVG file of this module has
//! only the figure, for use in papers.

use anabranch_anonymity::year::YearRow;
use anabranch_experiment::anonymity::summary::YearTable;
use anabranch_pages::figures::{colour, number};
use maud::{PreEscaped, html};

use super::words::{KINDS, Kind, ReportData, legend};

/// Width and height of one panel in the SVG file, in SVG units.
const PANEL: (f64, f64) = (300.0, 200.0);
/// Margin around each panel, in SVG units.
const MARGIN: f64 = 45.0;
/// Style sheet inside the SVG file, which is also shown without the HTML page and its style sheet.
const STYLE: &str = "text{font:12px sans-serif;fill:#333}.frame{fill:none;stroke:#999}\
    .band{opacity:.22}.line{fill:none;stroke-width:2}\
    .p0{fill:#2568b8}.p1{fill:#d06a00}.p2{fill:#1e8a5a}.p3{fill:#8250b5}\
    .line.p0{stroke:#2568b8}.line.p1{stroke:#d06a00}.line.p2{stroke:#1e8a5a}.line.p3{stroke:#8250b5}\
    .line.p0,.line.p1,.line.p2,.line.p3{fill:none}";

/// Draws the curves of all rows of `table` in a panel of `width` by `height`. `kind` is the
/// definition of the clients that count as compromised. Each curve is drawn over its band (from
/// the 5 % to the 95 % quantile), so that the curve stays visible.
pub(super) fn curves(table: &YearTable, kind: &Kind, (width, height): (f64, f64)) -> String {
    let last = table.days.last().copied().unwrap_or(1) as f64;
    let x = |day: u64| number(day as f64 / last * width);
    let y = |share: f64| number(height - height * share / top(table, kind));
    let curve = |(row, place): (&YearRow, i16)| {
        let at = || table.days.iter().zip(&row.at).map(|(&day, at)| (day, (kind.of)(at)));
        let upper = at().map(|(day, band)| format!("{} {}", x(day), y(band.high)));
        let lower = at().map(|(day, band)| format!("{} {}", x(day), y(band.low)));
        let lower: Vec<String> = lower.collect();
        let around: Vec<String> = upper.chain(lower.into_iter().rev()).collect();
        let middle: Vec<String> =
            at().map(|(day, band)| format!("{} {}", x(day), y(band.mean))).collect();
        let class = colour(place);
        format!(
            r#"<path class="band {class}" d="M{}Z"/><path class="line {class}" d="M{}"/>"#,
            around.join("L"),
            middle.join("L")
        )
    };
    table.rows.iter().zip(0..).map(curve).collect()
}

/// Returns the upper end of a panel's axis: the upper end of the highest band, rounded up to a
/// multiple of 0.05, and at least 0.05.
pub(super) fn top(table: &YearTable, kind: &Kind) -> f64 {
    let all = table.rows.iter().flat_map(|row| &row.at).map(|at| (kind.of)(at).high);
    ((all.fold(0.0, f64::max) * 20.0).ceil() / 20.0).max(0.05)
}

/// Returns the content of the SVG file; `None` if no year was simulated.
pub(super) fn year(report_data: &ReportData<'_>) -> Option<String> {
    let table = report_data.summary.figure_5()?;
    let (width, height) = (PANEL.0 + 2.0 * MARGIN, PANEL.1 + 2.0 * MARGIN);
    let panels = KINDS.iter().enumerate().map(|(place, kind)| {
        let (left, up) = ((place % 2) as f64 * width, (place / 2) as f64 * height);
        panel(table, kind, (left + MARGIN, up + MARGIN))
    });
    let panels: String = panels.collect();
    let (whole, tall) = (2.0 * width, 2.0 * height + 30.0);
    let view = format!("0 0 {} {}", number(whole), number(tall));
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(number(whole)) height=(number(tall))
            viewBox=(view) {
            title {
                "Clients compromised within a year, " (table.listing.name) ", adversary: "
                (table.variant)
            }
            style { (PreEscaped(STYLE)) }
            rect width="100%" height="100%" fill="#fff" {}
            (PreEscaped(panels))
            @for (row, place) in table.rows.iter().zip(0i16..) {
                @let x = MARGIN + f64::from(place) * 90.0;
                rect.(colour(place)) x=(number(x)) y=(number(tall - 26.0)) width="12" height="12" {}
                text x=(number(x + 17.0)) y=(number(tall - 16.0)) { (legend(row)) }
            }
        }
    };
    Some(picture.into_string() + "\n")
}

fn panel(table: &YearTable, kind: &Kind, (left, up): (f64, f64)) -> String {
    let top = top(table, kind);
    let last = table.days.last().copied().unwrap_or(1);
    html! {
        g transform={ "translate(" (number(left)) " " (number(up)) ")" } {
            text y="-10" { (kind.name) }
            rect.frame width=(number(PANEL.0)) height=(number(PANEL.1)) {}
            @for part in 0..=5u8 {
                @let share = f64::from(part) / 5.0;
                @let y = number(PANEL.1 * (1.0 - share) + 4.0);
                text x="-6" y=(y) text-anchor="end" { (number(top * share)) }
            }
            @for day in [0u64, 90, 180, 270, 365].into_iter().filter(|day| *day <= last) {
                @let x = number(PANEL.0 * day as f64 / last as f64);
                text x=(x) y=(number(PANEL.1 + 16.0)) text-anchor="middle" { (day) }
            }
            text x=(number(PANEL.0 / 2.0)) y=(number(PANEL.1 + 32.0)) text-anchor="middle" { "day" }
            (PreEscaped(curves(table, kind, PANEL)))
        }
    }
    .into_string()
}
