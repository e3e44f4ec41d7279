//! Figures 2, 3 and 4 of "Analysis of Multi-path Onion Routing". They show the distributions of
//! download times with the largest number of clients, and times and speeds against the number of
//! clients.

use anabranch_experiment::wide::claims::MEASURES;
use anabranch_experiment::wide::summary::{Measure, by_run, curve, mean, of};
use anabranch_experiment::wide::{Arm, Measured, SHARES, Schedule};
use anabranch_pages::figures::{colour, number, times};
use maud::{Markup, PreEscaped, html};

use super::words::ReportData;

/// Width and height of a panel, in SVG units.
const PANEL: (f64, f64) = (260.0, 180.0);
/// Margin around each panel, in SVG units.
const MARGIN: f64 = 48.0;
/// Height of a line of the legend, in SVG units.
const LEGEND: f64 = 22.0;
/// Style sheet inside each SVG file, which is also shown without the HTML page and its style
/// sheet.
const STYLE: &str = "text{font:12px sans-serif;fill:#333}.frame{fill:none;stroke:#999}\
    .p0{fill:#2568b8}.p1{fill:#555}.p2{fill:#d06a00}.p3{fill:#1e8a5a}.p4{fill:#8250b5}\
    .p5{fill:#008a9a}.p6{fill:#b03a5b}\
    .line.p0{stroke:#2568b8}.line.p1{stroke:#555}.line.p2{stroke:#d06a00}\
    .line.p3{stroke:#1e8a5a}.line.p4{stroke:#8250b5}.line.p5{stroke:#008a9a}\
    .line.p6{stroke:#b03a5b}\
    path.line{fill:none;stroke-width:2}path.alone{stroke-dasharray:5 3}";
/// Designs (protocols for several circuits), in the order of their colours.
const DESIGNS: [&str; 7] =
    ["tor", "tor-fixed", "conflux", "conflux-2013", "mtor", "merged", "anabranch"];
/// Schedules (rules that choose the circuit of each cell), in the order of the figure's columns.
const COLUMNS: [Schedule; 3] = [Schedule::RoundRobin, Schedule::Own, Schedule::Eta];

/// Returns all figures with their file names.
pub(super) fn all(report_data: &ReportData<'_>) -> Vec<(&'static str, String)> {
    if report_data.records.is_empty() {
        return Vec::new();
    }
    let [first, last]: [Of; 2] =
        [|run, bulk| &run.class(bulk).first, |run, bulk| &run.class(bulk).last];
    vec![
        ("figure-2.svg", distributions(report_data, ("Time to first byte", first))),
        ("figure-3.svg", distributions(report_data, ("Time to last byte", last))),
        ("figure-4.svg", growth(report_data)),
    ]
}

/// Function that returns the quantiles of a time (such as the time to the last byte) in one
/// simulation. The argument `true` selects bulk downloads, `false` web downloads.
type Of = fn(&Measured, bool) -> &Vec<f64>;

fn colour_of(arm: &Arm) -> String {
    let place = DESIGNS.iter().position(|design| *design == arm.design);
    colour(place.unwrap_or_default() as i16)
}

/// Draws the share of completed downloads over time, for streams with two circuits. Each schedule
/// has a column.
fn distributions(report_data: &ReportData<'_>, (description, of_run): (&str, Of)) -> String {
    let arms = report_data.arms();
    let panels = [false, true].into_iter().enumerate().flat_map(|(row, bulk)| {
        let arms = &arms;
        COLUMNS.into_iter().enumerate().map(move |(column, schedule)| {
            let shown = |arm: &&Arm| arm.legs == 1 || (arm.legs == 2 && arm.schedule == schedule);
            let curves: Vec<(&Arm, Vec<f64>)> = arms
                .iter()
                .filter(shown)
                .filter_map(|arm| {
                    let runs = of(report_data.records, arm, report_data.clients);
                    let runs = runs.filter(|run| run.class(bulk).downloads > 0);
                    Some((arm, curve(runs.map(|run| of_run(run, bulk).as_slice()))?))
                })
                .collect();
            let load = if bulk { "bulk" } else { "web" };
            let name = format!("{load}, {}", schedule.name());
            panel((&name, place(column, row)), &shares(&curves))
        })
    });
    let title = format!("{description}, {} clients, two paths", report_data.clients);
    picture((&title, 3, 2), &panels.collect::<Vec<_>>())
}

/// A curve in a panel: the arm (design, schedule and number of paths), and points whose
/// coordinates are fractions of the panel's size.
struct PanelCurve<'a> {
    arm: &'a Arm,
    points: Vec<(f64, f64)>,
}

/// The content of a panel.
struct Panel<'a> {
    curves: Vec<PanelCurve<'a>>,
    x_ticks: Vec<(f64, String)>,
    y_ticks: Vec<(f64, String)>,
}

fn shares<'a>(curves: &[(&'a Arm, Vec<f64>)]) -> Panel<'a> {
    // The last quantiles are left out, because they belong to the slowest clients and would
    // flatten all curves.
    let late = |(_, times): &(&Arm, Vec<f64>)| times[SHARES.len() - 3];
    let lasts = curves.iter().map(late).fold(0.1, f64::max);
    let points = |times: &Vec<f64>| {
        let all = times.iter().zip(SHARES).map(|(time, share)| (time / lasts, share));
        all.filter(|(x, _)| *x <= 1.0).collect::<Vec<_>>()
    };
    let curves =
        curves.iter().map(|(arm, times)| PanelCurve { arm, points: points(times) }).collect();
    Panel { curves, x_ticks: times(lasts), y_ticks: ticks(1.0) }
}

/// Draws median download times and speeds against the number of clients.
fn growth(report_data: &ReportData<'_>) -> String {
    let arms = report_data.arms();
    let panels = MEASURES.iter().enumerate().map(|(at, (name, measure))| {
        panel((name, place(at % 2, at / 2)), &grown(report_data, &arms, *measure))
    });
    let title = "Median times and speeds by the number of clients, two paths. Dashed lines: each \
                 design's own scheduler.";
    picture((title, 2, 2), &panels.collect::<Vec<_>>())
}

fn grown<'a>(report_data: &ReportData<'_>, arms: &'a [Arm], measure: Measure) -> Panel<'a> {
    let most = report_data.steps().last().copied().unwrap_or(1) as f64;
    let value = |arm: &Arm, clients: usize| {
        mean(&by_run(report_data.records, (arm, clients), measure)).map(|mean| mean.mean)
    };
    let steps = report_data.steps();
    let of_arm = |arm: &'a Arm| {
        let values = steps.iter().filter_map(|step| Some((*step as f64, value(arm, *step)?)));
        (arm, values.collect::<Vec<_>>())
    };
    let curves: Vec<_> = arms.iter().map(of_arm).filter(|(_, values)| values.len() > 1).collect();
    let top = curves.iter().flat_map(|(_, values)| values).map(|(_, y)| *y).fold(0.0, f64::max);
    let top = if top > 0.0 { top * 1.05 } else { 1.0 };
    let scaled =
        |values: &[(f64, f64)]| values.iter().map(|(x, y)| (x / most, y / top)).collect::<Vec<_>>();
    let curves =
        curves.iter().map(|(arm, values)| PanelCurve { arm, points: scaled(values) }).collect();
    let x_ticks = steps.iter().map(|step| (*step as f64 / most, step.to_string())).collect();
    Panel { curves, x_ticks, y_ticks: ticks(top) }
}

fn ticks(top: f64) -> Vec<(f64, String)> {
    let digits = if top > 20.0 { 0 } else { 1 };
    (0..=5)
        .map(|part| f64::from(part) / 5.0)
        .map(|at| (at, format!("{:.digits$}", at * top)))
        .collect()
}

/// Returns the upper left corner of the panel in column `column` and row `row`, in SVG units.
fn place(column: usize, row: usize) -> (f64, f64) {
    let (width, height) = (PANEL.0 + 2.0 * MARGIN, PANEL.1 + 2.0 * MARGIN);
    (column as f64 * width + MARGIN, row as f64 * height + MARGIN + LEGEND)
}

fn panel((name, (left, up)): (&str, (f64, f64)), panel: &Panel<'_>) -> Markup {
    let x = |share: f64| number(PANEL.0 * share);
    let y = |share: f64| number(PANEL.1 * (1.0 - share));
    let path = |points: &[(f64, f64)]| {
        let points = points.iter().map(|(at, share)| format!("{} {}", x(*at), y(*share)));
        format!("M{}", points.collect::<Vec<_>>().join("L"))
    };
    // The curve of a design's own scheduler is dashed if round robin is in the same panel.
    let both = panel.curves.iter().any(|one| one.arm.schedule == Schedule::RoundRobin);
    let dashed = |arm: &Arm| if both && arm.schedule == Schedule::Own { " alone" } else { "" };
    html! {
        g transform={ "translate(" (number(left)) " " (number(up)) ")" } {
            text y="-10" { (name) }
            rect.frame width=(number(PANEL.0)) height=(number(PANEL.1)) {}
            @for (share, label) in &panel.y_ticks {
                text x="-6" y=(number(PANEL.1 * (1.0 - share) + 4.0)) text-anchor="end" { (label) }
            }
            @for (share, label) in &panel.x_ticks {
                text x=(x(*share)) y=(number(PANEL.1 + 16.0)) text-anchor="middle" { (label) }
            }
            @for curve in panel.curves.iter().filter(|curve| !curve.points.is_empty()) {
                @let class = format!("line {}{}", colour_of(curve.arm), dashed(curve.arm));
                path class=(class) d=(path(&curve.points)) {}
            }
        }
    }
}

fn picture((title, columns, rows): (&str, usize, usize), panels: &[Markup]) -> String {
    let (right, bottom) = place(columns, rows);
    let (width, height) = (right - MARGIN, bottom - MARGIN);
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(number(width)) height=(number(height))
            viewBox={ "0 0 " (number(width)) " " (number(height)) } {
            title { (title) }
            style { (PreEscaped(STYLE)) }
            rect width="100%" height="100%" fill="#fff" {}
            @for (at, design) in DESIGNS.iter().enumerate() {
                @let x = 10.0 + at as f64 * 95.0;
                rect.(colour(at as i16)) x=(number(x)) y="6" width="12" height="12" {}
                text x=(number(x + 16.0)) y="16" { (design) }
            }
            @for panel in panels { (panel) }
        }
    };
    picture.into_string() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_is_scaled_to_the_slowest_curve() {
        let arm = Arm::tor();
        let quick: Vec<f64> = SHARES.to_vec();
        let slow: Vec<f64> = SHARES.iter().map(|share| share * 4.0).collect();
        let panel = shares(&[(&arm, quick), (&arm, slow)]);
        let last = |at: usize| *panel.curves[at].points.last().unwrap();
        assert_eq!(panel.curves[0].points.len(), SHARES.len());
        assert!(last(0).0 < 0.3 && (last(1).0 - 1.0).abs() < 1e-9);
        assert!((last(1).1 - SHARES[SHARES.len() - 3]).abs() < 1e-9, "the rest is cut off");
    }

    #[test]
    fn designs_have_colours_of_their_own() {
        let colours: Vec<String> =
            DESIGNS.iter().map(|design| colour_of(&Arm::of(design, 2, Schedule::Own))).collect();
        let distinct: std::collections::BTreeSet<&String> = colours.iter().collect();
        assert_eq!(distinct.len(), DESIGNS.len());
    }
}
