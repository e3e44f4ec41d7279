//! The figure of traffic rates over time. Its first row is for all paths together. The rows below
//! are for one path each, on the same scale.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::{Direction, Part};
use crate::figures::{self, axis, drawing, figure_row, grouped, number, span, times};
use crate::tables::in_clear;

/// Maximum number of rows in the table of rates, each for one interval of time.
const ROWS: usize = 16;

/// Renders the rates over time, with both directions side by side.
pub(super) fn figure(part: &Part<'_>) -> Markup {
    html! {
        figure {
            figcaption {
                h3 { "Rate over time" }
                @if let Some(text) = in_clear(part.facts) {
                    p {
                        strong { "Not hidden:" } " " (text)
                        " In these sessions every observer can therefore compute the grey area \
                         below, as a number of packets."
                    }
                }
                p {
                    "The grey area is all traffic in that direction. Below it, on the same \
                     scale, is the part that each path carried. Each step is " (span(part.series.step))
                    " long; time counts from the first " (part.units.one())
                    @if part.loads.is_some() { " of each load" } "."
                }
                @if let Some(loads) = part.loads {
                    p {
                        "These are page loads of a data set, which have no common clock: each \
                         begins at 0 here. The rates are means over all " (grouped(loads as u64))
                        " loads; a load that has ended counts as 0."
                    }
                }
            }
            div.directions { @for way in Direction::BOTH { (direction(part, way)) } }
            (numbers(part))
        }
    }
}

fn direction(part: &Part<'_>, way: Direction) -> Markup {
    let whole = way.of(&part.series.whole);
    // The recorded total may be below a path's rate, if the total was recorded separately.
    let rows = part.rows(way).flat_map(|(_, _, traffic)| &traffic.sizes);
    let top = whole.iter().chain(rows).copied().max().unwrap_or(0);
    html! {
        div.way data-way=(way.name()) {
            h4 { (way.name()) " " span.muted { (way.about()) } }
            (row(part, -1, "all paths together", whole, top))
            @for (path, _, traffic) in part.rows(way) { (row(part, path, &part.name(path), &traffic.sizes, top)) }
            (axis(&times(part.series.lasts)))
        }
    }
}

fn row(part: &Part<'_>, path: i16, name: &str, sizes: &[u64], top: u64) -> Markup {
    let step = part.series.step;
    let peak = sizes.iter().copied().max().unwrap_or(0);
    let remark = match peak {
        0 => "nothing".to_owned(),
        _ => format!("at most {}", part.rate(peak, step)),
    };
    let title = format!("{name}: rate over {}, {remark}", span(part.series.lasts));
    // The drawing ends at the end of the trace, which may be within the last step.
    let width = (part.series.lasts / step).max(1e-3);
    let width = if part.series.lasts > 0.0 { width } else { 1.0 };
    let grid: Vec<f64> = times(part.series.lasts).iter().map(|(at, _)| at * width).collect();
    let shape = format!(r#"<path class="{}" d="{}"/>"#, figures::colour(path), area(sizes, top));
    figure_row(path, name, &remark, &drawing("rate", width, &title, &grid, &shape))
}

/// Returns the SVG outline of `sizes` as a staircase, scaled so that `top` is near the upper edge.
fn area(sizes: &[u64], top: u64) -> String {
    let mut path = String::from("M0 100");
    let mut height = 100.0;
    for (at, &size) in sizes.iter().enumerate() {
        let next = if top == 0 { 100.0 } else { 100.0 - 96.0 * size as f64 / top as f64 };
        if next != height {
            write!(path, "H{at}V{}", number((next * 10.0).round() / 10.0))
                .expect("writing to a string does not fail");
            height = next;
        }
    }
    write!(path, "H{}V100Z", sizes.len()).expect("writing to a string does not fail");
    path
}

/// Renders a table of mean rates over at most [`ROWS`] equal intervals.
fn numbers(part: &Part<'_>) -> Markup {
    let series = part.series;
    let (steps, step) = (series.whole.up.len(), series.step);
    let chunk = steps.div_ceil(ROWS).max(1);
    let mut head = vec!["from".to_owned()];
    let mut columns = Vec::new();
    for way in Direction::BOTH {
        head.push(format!("{}, all", way.name()));
        columns.push(way.of(&series.whole).as_slice());
        for (path, _, traffic) in part.rows(way) {
            head.push(format!("{}, {}", way.name(), part.name(path)));
            columns.push(traffic.sizes.as_slice());
        }
    }
    let row = |at: usize| {
        let seconds = step * chunk.min(steps - at) as f64;
        let mean = |sizes: &&[u64]| {
            let sum: u64 = sizes[at..(at + chunk).min(steps)].iter().sum();
            part.rate(sum, seconds)
        };
        let from = span(at as f64 * step);
        [from].into_iter().chain(columns.iter().map(mean)).collect()
    };
    let rows: Vec<Vec<String>> = (0..steps).step_by(chunk).map(row).collect();
    figures::numbers(
        &format!("Mean rates over intervals of {}", span(step * chunk as f64)),
        &head,
        &rows,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_is_a_staircase_that_ends_at_the_base() {
        assert_eq!(area(&[0, 5, 5, 10], 10), "M0 100H1V52H3V4H4V100Z");
        assert_eq!(area(&[0, 0], 0), "M0 100H2V100Z");
    }
}
