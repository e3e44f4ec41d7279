//! Line charts of Figures 6 and 7 of the paper (Weinberg et al., CCS 2012). Figure 6 shows
//! bandwidth against round-trip time, with a panel for each stream rate. Figure 7 shows goodput
//! against the length of a download.

use anabranch_experiment::camouflage::{Arm, LENGTHS, paper};
use anabranch_pages::figures::{number, round};
use maud::{Markup, PreEscaped, html};

use super::words::{self, ReportData};

/// Width and height of one panel, in SVG units.
const PANEL: (f64, f64) = (520.0, 240.0);
/// Margin around each panel, in SVG units.
const MARGIN: f64 = 50.0;
/// Height of a line of the legend in SVG units, and number of names in a line.
const NAMES: (f64, usize) = (20.0, 4);
/// Style sheet inside the SVG file, which is also shown without the HTML page and its style sheet.
const STYLE: &str = "text{font:12px sans-serif;fill:#333}.frame{fill:none;stroke:#999}\
    .grid{stroke:#ddd}.line{fill:none;stroke-width:2}.paper{fill:none;stroke-dasharray:4 3}\
    .hinges{stroke-width:1}";
/// Colours of the lines in the figures, one for each arm (kind of connection).
const COLOURS: [&str; 14] = [
    "#777777", "#2568b8", "#d06a00", "#8b6d00", "#1e8a5a", "#66bb6a", "#00838f", "#b03a5b",
    "#e57399", "#8250b5", "#b39ddb", "#5d4037", "#00695c", "#ad1457",
];

/// One curve in a panel of a figure: the measurements of one arm (kind of connection).
struct Trace {
    arm: Arm,
    /// Points of the line: the position on the x axis, and the lower quartile, median and upper
    /// quartile. If only one value is known, all three numbers are this value.
    points: Vec<(f64, [f64; 3])>,
    is_paper: bool,
}

/// A panel of a figure: its title, the quantity on the x axis with its ticks, and its lines.
struct Panel {
    title: String,
    along: &'static str,
    ticks: Vec<f64>,
    traces: Vec<Trace>,
}

/// Draws Figure 6: the median bandwidth on the wire against the round-trip time. If no streams
/// were measured, the figure has no panels.
pub(super) fn figure_6(report_data: &ReportData<'_>) -> String {
    let mut rates: Vec<u32> = report_data.boxes.iter().map(|one| one.rate).collect();
    rates.sort_unstable();
    rates.dedup();
    let ticks: Vec<f64> = words::rtts(report_data).into_iter().map(f64::from).collect();
    let panel = |&rate: &u32| Panel {
        title: format!("stream of {rate} kB/s"),
        along: "ms",
        ticks: ticks.clone(),
        traces: streams(report_data, rate),
    };
    picture(
        "Bandwidth on the client's line (kB/s) against the round-trip time",
        &rates.iter().map(panel).collect::<Vec<_>>(),
    )
}

fn streams(report_data: &ReportData<'_>, rate: u32) -> Vec<Trace> {
    let mut traces = Vec::new();
    for (arm, _) in
        words::arms_and_rates(report_data).into_iter().filter(|(_, other)| *other == rate)
    {
        let of = report_data.boxes.iter().filter(|one| (one.arm, one.rate) == (arm, rate));
        let ours = of.clone().map(|one| (f64::from(one.rtt), one.down)).collect();
        let of_paper = of.filter_map(|one| {
            paper::figure_6(arm, rate, one.rtt).map(|value| (f64::from(one.rtt), [value; 3]))
        });
        let of_paper = of_paper.collect();
        traces.push(Trace { arm, points: ours, is_paper: false });
        traces.push(Trace { arm, points: of_paper, is_paper: true });
    }
    traces
}

/// Draws Figure 7: the mean goodput against the length of a download. If no downloads were
/// measured, the figure has no panel.
pub(super) fn figure_7(report_data: &ReportData<'_>) -> String {
    let kilobytes = LENGTHS.map(|bytes| f64::from(bytes) / 1e3);
    let mut traces = Vec::new();
    for curve in report_data.curves {
        let points = kilobytes.iter().zip(&curve.points).filter_map(|(&x, point)| {
            let mean = point.as_ref()?.0.mean;
            Some((x, [mean; 3]))
        });
        traces.push(Trace { arm: curve.arm, points: points.collect(), is_paper: false });
        let of_paper = paper::figure_7(curve.arm).into_iter().flatten();
        let points = kilobytes.into_iter().zip(of_paper).map(|(x, y)| (x, [y; 3])).collect();
        traces.push(Trace { arm: curve.arm, points, is_paper: true });
    }
    let panel =
        Panel { title: "goodput, kB/s".to_owned(), along: "kB", ticks: kilobytes.to_vec(), traces };
    let panels: Vec<Panel> = std::iter::once(panel).filter(|p| !p.traces.is_empty()).collect();
    picture("Mean goodput (kB/s) against the size of a download", &panels)
}

fn picture(title: &str, panels: &[Panel]) -> String {
    let (width, height) = (PANEL.0 + 2.0 * MARGIN, PANEL.1 + 2.0 * MARGIN);
    let is_shown = |arm: &&Arm| {
        let mut traces = panels.iter().flat_map(|panel| &panel.traces);
        traces.any(|trace| trace.arm == **arm)
    };
    let shown: Vec<&Arm> = Arm::ALL.iter().filter(is_shown).collect();
    let above = height * panels.len() as f64;
    let tall = above + NAMES.0 * (shown.len().div_ceil(NAMES.1) as f64 + 1.0);
    let view = format!("0 0 {} {}", number(width), number(tall));
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(number(width)) height=(number(tall))
            viewBox=(view) {
            title { (title) }
            style { (PreEscaped(STYLE)) }
            rect width="100%" height="100%" fill="#fff" {}
            @for (test_network, one) in panels.iter().enumerate() {
                @let down = number(MARGIN + height * test_network as f64);
                g transform={ "translate(" (number(MARGIN)) " " (down) ")" } {
                    (panel(one))
                }
            }
            @for (test_network, arm) in shown.iter().enumerate() {
                @let x = MARGIN + (test_network % NAMES.1) as f64 * (PANEL.0 / NAMES.1 as f64);
                @let y = above + (test_network / NAMES.1) as f64 * NAMES.0;
                rect fill=(colour(**arm)) x=(number(x)) y=(number(y)) width="12" height="12" {}
                text x=(number(x + 17.0)) y=(number(y + 10.0)) { (words::title(**arm)) }
            }
        }
    };
    picture.into_string() + "\n"
}

fn panel(panel: &Panel) -> Markup {
    let tops = panel.traces.iter().flat_map(|trace| trace.points.iter().map(|(_, y)| y[2]));
    let most = round(tops.fold(1.0, f64::max));
    let [first, last] =
        [panel.ticks.first(), panel.ticks.last()].map(|x| x.copied().unwrap_or(0.0));
    let wide = (last - first).max(1.0);
    let x = |value: f64| number(PANEL.0 * (value - first) / wide);
    let y = |value: f64| number(PANEL.1 * (1.0 - value / most));
    html! {
        text y="-10" { (panel.title) }
        @for part in 0..=4u8 {
            @let value = most * f64::from(part) / 4.0;
            path.grid d={ "M0 " (y(value)) "H" (number(PANEL.0)) } {}
            @let below = number(PANEL.1 * (1.0 - value / most) + 4.0);
            text x="-6" y=(below) text-anchor="end" { (number(value)) }
        }
        @for tick in &panel.ticks {
            text x=(x(*tick)) y=(number(PANEL.1 + 16.0)) text-anchor="middle" { (number(*tick)) }
        }
        text x=(number(PANEL.0)) y=(number(PANEL.1 + 32.0)) text-anchor="end" { (panel.along) }
        rect.frame width=(number(PANEL.0)) height=(number(PANEL.1)) {}
        @for trace in panel.traces.iter().filter(|trace| !trace.points.is_empty()) {
            @let class = if trace.is_paper { "paper" } else { "line" };
            path class=(class) stroke=(colour(trace.arm)) d=(line(&trace.points, &x, &y)) {}
            @let spread = trace.points.iter().filter(|(_, [low, _, high])| low < high);
            @for (at, [low, _, high]) in spread {
                @let way = format!("M{} {}V{}", x(*at), y(*low), y(*high));
                path.hinges stroke=(colour(trace.arm)) d=(way) {}
            }
        }
    }
}

fn line(
    points: &[(f64, [f64; 3])],
    x: &impl Fn(f64) -> String,
    y: &impl Fn(f64) -> String,
) -> String {
    let steps = points.iter().map(|(at, [_, middle, _])| format!("{} {}", x(*at), y(*middle)));
    format!("M{}", steps.collect::<Vec<_>>().join("L"))
}

fn colour(arm: Arm) -> &'static str {
    let test_network = Arm::ALL.iter().position(|other| *other == arm).unwrap_or_default();
    COLOURS[test_network % COLOURS.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_its_points_and_hinges_stand_on_it() {
        let points = vec![(100.0, [40.0, 50.0, 60.0]), (450.0, [50.0; 3])];
        let trace = Trace { arm: Arm::Tor, points, is_paper: false };
        let one = Panel {
            title: "t".to_owned(),
            along: "ms",
            ticks: vec![100.0, 450.0],
            traces: vec![trace],
        };
        let drawn = panel(&one).into_string();
        // The value 60 is below the top of the axis, which is 100. The middle of the panel is 50.
        assert!(drawn.contains("d=\"M0 120L520 120\""), "{drawn}");
        assert_eq!(drawn.matches("class=\"hinges\"").count(), 1);
        let empty = picture("nothing", &[]);
        assert!(!empty.contains("class=\"frame\""));
    }

    #[test]
    fn each_arm_has_a_colour_of_its_own() {
        let colours: std::collections::BTreeSet<_> = Arm::ALL.iter().map(|a| colour(*a)).collect();
        assert_eq!(colours.len(), Arm::ALL.len());
    }
}
