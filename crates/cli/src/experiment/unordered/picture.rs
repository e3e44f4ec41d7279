//! Figure 3 of the paper (Nowlan et al., FOCI 2013): the share of finished downloads over time,
//! with a panel for each kind of emulated line.

use anabranch_experiment::unordered::summary::Curve;
use anabranch_experiment::unordered::{Arm, Line, paper};
use anabranch_pages::figures::{colour, number, times};
use maud::{Markup, PreEscaped, html};

use super::words::{self, ReportData};

/// Width and height of one panel, in SVG units.
const PANEL: (f64, f64) = (300.0, 180.0);
/// Margin around each panel, in SVG units.
const MARGIN: f64 = 45.0;
/// Number of panels in a row.
const ROW: usize = 2;
/// Style sheet inside the SVG file, which is also shown without the HTML page and its style sheet.
const STYLE: &str = "text{font:12px sans-serif;fill:#333}.frame{fill:none;stroke:#999}\
    .claim{fill:none;stroke:#999;stroke-dasharray:4 3}.line{fill:none;stroke-width:2}\
    .p0{fill:#2568b8}.p1{fill:#d06a00}.p2{fill:#1e8a5a}.p3{fill:#8250b5}.p4{fill:#b03a5b}\
    .p5{fill:#7a6a00}.p6{fill:#008a9a}.p7{fill:#555}\
    .line.p0{stroke:#2568b8}.line.p1{stroke:#d06a00}.line.p2{stroke:#1e8a5a}\
    .line.p3{stroke:#8250b5}.line.p4{stroke:#b03a5b}.line.p5{stroke:#7a6a00}\
    .line.p6{stroke:#008a9a}.line.p7{stroke:#555}\
    path.line{fill:none}";
/// Number of arms (kinds of links) in a row of the legend.
const LEGEND: usize = 4;
/// Distances between the columns and between the rows of the legend, in SVG units.
const APART: (f64, f64) = (190.0, 18.0);

/// Draws the figure. Without downloads, the figure has no panels.
pub(super) fn figure(report_data: &ReportData<'_>) -> String {
    let mut lines: Vec<Line> = report_data.curves.iter().map(|curve| curve.line).collect();
    lines.dedup();
    let (width, height) = (PANEL.0 + 2.0 * MARGIN, PANEL.1 + 2.0 * MARGIN);
    let panels: Vec<Markup> = lines
        .iter()
        .enumerate()
        .map(|(place, line)| {
            let at = ((place % ROW) as f64 * width, (place / ROW) as f64 * height);
            let of: Vec<&Curve> =
                report_data.curves.iter().filter(|one| one.line == *line).collect();
            panel(line, &of, (at.0 + MARGIN, at.1 + MARGIN))
        })
        .collect();
    let has = |arm: &&Arm| report_data.curves.iter().any(|curve| curve.arm == **arm);
    let shown: Vec<&Arm> = Arm::DOWNLOADS.iter().filter(has).collect();
    let panels_end = lines.len().div_ceil(ROW) as f64 * height;
    let tall = panels_end + shown.len().div_ceil(LEGEND) as f64 * APART.1 + 12.0;
    let whole = ROW as f64 * width;
    let view = format!("0 0 {} {}", number(whole), number(tall));
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(number(whole)) height=(number(tall)) viewBox=(view) {
            title { "Share of completed downloads against time in seconds" }
            style { (PreEscaped(STYLE)) }
            rect width="100%" height="100%" fill="#fff" {}
            @for panel in &panels { (panel) }
            @for (place, arm) in shown.iter().enumerate() {
                @let x = MARGIN + (place % LEGEND) as f64 * APART.0;
                @let y = panels_end + (place / LEGEND) as f64 * APART.1;
                rect.(colour(colour_of(**arm))) x=(number(x)) y=(number(y + 4.0)) width="12" height="12" {}
                text x=(number(x + 17.0)) y=(number(y + 14.0)) { (words::title(**arm)) }
            }
        }
    };
    picture.into_string() + "\n"
}

/// Draws the curves of all arms (kinds of links) on one emulated line. The time axis ends when 98
/// % of the finished downloads of every arm have ended. At 5 % packet loss, dashed lines mark two
/// shares of finished downloads that the paper mentions.
fn panel(line: &Line, curves: &[&Curve], (left, up): (f64, f64)) -> Markup {
    let late = |curve: &&Curve| curve.times.get(curve.times.len() * 98 / 100).copied();
    let lasts = curves.iter().filter_map(late).fold(0.5, f64::max);
    let x = |seconds: f64| number((PANEL.0 * seconds / lasts).min(PANEL.0));
    let y = |share: f64| number(PANEL.1 * (1.0 - share));
    let claims = [paper::ORDERED, paper::UNORDERED].into_iter().filter(|_| line.loss == 5);
    html! {
        g transform={ "translate(" (number(left)) " " (number(up)) ")" } {
            text y="-10" { (words::line(line)) }
            rect.frame width=(number(PANEL.0)) height=(number(PANEL.1)) {}
            @for share in claims {
                path.claim d={ "M0 " (y(share)) "H" (number(PANEL.0)) } {}
            }
            @for part in 0..=5u8 {
                @let share = f64::from(part) / 5.0;
                text x="-6" y=(number(PANEL.1 * (1.0 - share) + 4.0)) text-anchor="end" { (number(share)) }
            }
            @for (at, name) in times(lasts) {
                text x=(number(PANEL.0 * at)) y=(number(PANEL.1 + 16.0)) text-anchor="middle" { (name) }
            }
            @for curve in curves {
                @let class = format!("line {}", colour(colour_of(curve.arm)));
                path class=(class) d=(steps(curve, lasts, x, y)) {}
            }
        }
    }
}

fn colour_of(arm: Arm) -> i16 {
    Arm::DOWNLOADS.iter().position(|other| *other == arm).map_or(0, |place| place as i16)
}

/// Returns the SVG path of a curve: the share of finished downloads over time, with one step for
/// each finished download. The curve ends at `lasts` seconds. `x` and `y` convert a time and a
/// share to coordinates.
fn steps(
    curve: &Curve,
    lasts: f64,
    x: impl Fn(f64) -> String,
    y: impl Fn(f64) -> String,
) -> String {
    let all = curve.counts.1.max(1) as f64;
    let mut path = format!("M0 {}", y(0.0));
    let shown = curve.times.iter().filter(|time| **time <= lasts);
    for (time, done) in shown.zip(1..) {
        path += &format!("H{}V{}", x(*time), y(f64::from(done) / all));
    }
    path + &format!("H{}", number(PANEL.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_experiment::unordered::{Congestion, Direction, SegmentOrder};

    #[test]
    fn a_curve_ends_at_the_share_that_was_done() {
        let line = Line {
            loss: 5,
            direction: Direction::ToExit,
            deviation: 0,
            congestion: Congestion::Bbr,
            order: SegmentOrder::Kept,
        };
        let (times, cpu) = (vec![1.0, 2.0], [0.0; 3]);
        let curve = Curve {
            arm: Arm::Ordered,
            line,
            counts: (1, 4),
            unfinished: 2,
            times,
            done: None,
            cpu,
            busy: 0.0,
        };
        let path = steps(&curve, 2.0, |x| format!("x{x}"), |y| format!("y{y}"));
        assert_eq!(path, "M0 y0Hx1Vy0.25Hx2Vy0.5H300");
        let drawn = panel(&line, &[&curve], (0.0, 0.0)).into_string();
        assert_eq!(drawn.matches("class=\"claim\"").count(), 2);
    }
}
