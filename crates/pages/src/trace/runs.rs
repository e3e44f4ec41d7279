//! The figures of runs (successive packets on one path): the first runs one by one, and the
//! distribution of all run lengths.

use anabranch_capture::{DirectionTraffic, Histogram, Run};
use maud::{Markup, html};

use super::words::{self, Measure};
use super::{Direction, Part};
use crate::figures::{self, axis, drawing, figure_row, grouped, number, span, times};

/// Width of the figure of the first runs (successive packets on one path), in the drawing's units.
const WIDTH: f64 = 1000.0;

/// Number of uplink runs in the figure of the first runs. A run is a series of packets that take
/// the same path.
const LOOK: usize = 24;

/// Maximum number of rows in the table below the figure of the first runs.
const ROWS: usize = 60;

/// Maximum share of all packets that may be in the runs of the first bar, which stands for the
/// shortest runs. This bar merges several classes (histogram bins) of run lengths.
const MOST_IN_SHORT_RUNS: f64 = 0.03;

/// Renders the figure of a session's first runs (successive packets on one path), each as a block.
/// The result is empty if the session never changed its path.
pub(super) fn closely(part: &Part<'_>) -> Markup {
    let series = part.series;
    let enough = series.runs.up.get(LOOK).map_or(f64::INFINITY, |run| run.first);
    let lasts = series.runs_until().min(enough) - series.begins;
    if part.paths.len() < 2 || series.runs.up.len().max(series.runs.down.len()) < 2 || lasts <= 0.0
    {
        return html! {};
    }
    let all = lasts >= series.lasts;
    html! {
        figure.closely {
            figcaption {
                h3 { "Switches" @if !all { ", in detail" } }
                p {
                    @if all { "The whole session, run by run. " }
                    @else { "The first " (span(lasts)) ", run by run. " }
                    "A block begins with the first " (part.units.one())
                    " of a run and ends with its last. Where a row is empty, the observer of that \
                     path saw nothing of this session."
                }
            }
            div.directions { @for way in Direction::BOTH { (close_direction(part, way, lasts)) } }
            (close_numbers(part, lasts))
        }
    }
}

fn close_direction(part: &Part<'_>, way: Direction, lasts: f64) -> Markup {
    let runs = way.of(&part.series.runs);
    let row = |path: i16| {
        let own = || {
            runs.iter().filter(|run| run.path == path && run.first - part.series.begins <= lasts)
        };
        let shapes: String = own().map(|run| block(part, run, lasts)).collect();
        let count = own().count();
        let remark = format!("{count} {}", if count == 1 { "run" } else { "runs" });
        let title = format!("{}: {remark} in {}", part.name(path), span(lasts));
        let grid: Vec<f64> = times(lasts).iter().map(|(at, _)| at * WIDTH).collect();
        figure_row(
            path,
            &part.name(path),
            &remark,
            &drawing("close", WIDTH, &title, &grid, &shapes),
        )
    };
    html! {
        div.way data-way=(way.name()) {
            h4 { (way.name()) " " span.muted { (way.about()) } }
            @for (path, ..) in part.rows(way) { (row(path)) }
            (axis(&times(lasts)))
        }
    }
}

/// Renders a run (successive packets on one path) as a block. The figure covers `lasts` seconds.
/// The block has a minimum width, so that short runs are visible.
fn block(part: &Part<'_>, run: &Run, lasts: f64) -> String {
    let at = |time: f64| ((time - part.series.begins) / lasts * WIDTH).clamp(0.0, WIDTH);
    let width = (at(run.last) - at(run.first)).max(1.5);
    let from = span(run.first - part.series.begins);
    let (packets, length) = (part.units.many(run.packets), span(run.last - run.first));
    let title = html! { title { (packets) " in " (length) ", from " (from) } };
    format!(
        r#"<rect class="{}" x="{}" y="8" width="{}" height="92">{}</rect>"#,
        figures::colour(run.path),
        number(at(run.first)),
        number(width),
        title.into_string()
    )
}

fn close_numbers(part: &Part<'_>, lasts: f64) -> Markup {
    let head = ["from", "direction", "path", part.units.plural(), "lasted"].map(str::to_owned);
    let mut runs: Vec<(Direction, &Run)> = Direction::BOTH
        .iter()
        .flat_map(|&way| way.of(&part.series.runs).iter().map(move |run| (way, run)))
        .collect();
    runs.retain(|(_, run)| run.first - part.series.begins <= lasts);
    runs.sort_by(|(_, one), (_, other)| one.first.total_cmp(&other.first));
    let row = |&(way, run): &(Direction, &Run)| {
        let from = format!("{:.4} s", run.first - part.series.begins);
        let name = part.name(run.path);
        vec![from, way.name().to_owned(), name, grouped(run.packets), span(run.last - run.first)]
    };
    let rows: Vec<_> = runs.iter().take(ROWS).map(row).collect();
    figures::numbers("The first runs", &head, &rows)
}

/// Renders the distribution of run lengths. If the schedule sets run lengths as times, they are
/// measured in time, otherwise in packets.
pub(super) fn lengths(part: &Part<'_>) -> Markup {
    let measure = words::measure(part.facts);
    let Some(shown) = LengthClasses::of(part, measure) else { return html! {} };
    html! {
        figure.lengths {
            figcaption {
                h3 { "Lengths of runs" }
                p {
                    "A run is a group of consecutive packets in one direction on one path, \
                     before another path takes over. A bar's height is the share of the observed \
                     packets that belong to runs of that length. The scale is "
                    @match measure {
                        Measure::Time => { "the time from a run's first " (part.units.one()) " to its last" }
                        Measure::Packets => { "the number of " (part.units.plural()) " in a run" }
                    }
                    ", each mark ten times the one before. When the path changes, packets that \
                     are still under way on the old path arrive mixed with packets on the new \
                     path; this makes many short runs of few "
                    (part.units.plural()) "."
                }
            }
            div.directions { @for way in Direction::BOTH { (length_direction(part, way, shown)) } }
            (length_numbers(part, shown))
        }
    }
}

fn weights(traffic: &DirectionTraffic, measure: Measure) -> &[u64] {
    match measure {
        Measure::Time => traffic.by_ms.weights(),
        Measure::Packets => traffic.by_packets.weights(),
    }
}

/// Histogram bins ("classes") of run lengths that a figure displays with one bar each.
#[derive(Clone, Copy)]
struct LengthClasses {
    /// Index of the first class (histogram bin) with its own bar. Its lower bound is a power of
    /// ten. One more bar before it stands for all shorter runs.
    first: usize,
    last: usize,
    measure: Measure,
}

impl LengthClasses {
    /// Selects the classes (histogram bins) of run lengths to display. Returns `None` if there are
    /// no runs. The classes begin at a power of ten, and end at the first power of ten above the
    /// longest run. The first power of ten is as large as possible, but shorter runs may contain
    /// at most the share [`MOST_IN_SHORT_RUNS`] of the packets. Runs of a single packet (class 0)
    /// are not included in that share.
    fn of(part: &Part<'_>, measure: Measure) -> Option<LengthClasses> {
        let mut sums = [0; Histogram::LEN];
        for (_, _, traffic) in Direction::BOTH.iter().flat_map(|&way| part.rows(way)) {
            sums.iter_mut().zip(weights(traffic, measure)).for_each(|(sum, weight)| *sum += weight);
        }
        let (total, last) = (sums.iter().sum::<u64>(), sums.iter().rposition(|&sum| sum > 0)?);
        let per = Histogram::PER_DECADE;
        // Powers of ten begin at classes 1, 5, 9, … Runs of a single packet are in class 0, which
        // looks the same whatever its label.
        let little = |&first: &usize| {
            sums[1..first].iter().sum::<u64>() as f64 <= MOST_IN_SHORT_RUNS * total as f64
        };
        let first = (1..=last.max(1)).step_by(per).take_while(little).last().unwrap_or(1);
        let last = (last.max(first) - 1) / per * per + per;
        Some(LengthClasses { first, last, measure })
    }

    /// Returns the packet count of each bar, for the path of `traffic`: first all packets in
    /// shorter runs, then the packets in each displayed class (histogram bin) of run lengths.
    fn of_path(self, traffic: &DirectionTraffic) -> Vec<u64> {
        let weights = weights(traffic, self.measure);
        let shorter = weights[..self.first].iter().sum();
        [shorter].into_iter().chain(weights[self.first..=self.last].iter().copied()).collect()
    }

    fn classes(self) -> impl Iterator<Item = usize> {
        self.first - 1..=self.last
    }

    /// Describes the run lengths in a class (histogram bin), such as "10 to 17".
    fn label(self, class: usize) -> String {
        let edge = |class| edge(class, self.measure);
        match self.measure {
            _ if class < self.first => format!("less than {}", edge(self.first)),
            _ if class + 1 >= Histogram::LEN => format!("{} and more", edge(class)),
            Measure::Time => format!("{} to {}", edge(class), edge(class + 1)),
            Measure::Packets => {
                let (from, to) =
                    (Histogram::from(class).ceil(), Histogram::from(class + 1).ceil() - 1.0);
                if from < to { format!("{from} to {to}") } else { number(from) }
            }
        }
    }
}

fn length_direction(part: &Part<'_>, way: Direction, shown: LengthClasses) -> Markup {
    let rows: Vec<_> =
        part.rows(way).map(|(path, flow, traffic)| (path, flow, shown.of_path(traffic))).collect();
    let most = rows.iter().flat_map(|(_, _, weights)| weights).copied().max().unwrap_or(0);
    let width = shown.classes().count() as f64;
    let ticks: Vec<(f64, String)> = (shown.first..=shown.last)
        .step_by(Histogram::PER_DECADE)
        .map(|class| ((class - shown.first + 1) as f64 / width, edge(class, shown.measure)))
        .collect();
    let grid: Vec<f64> = ticks.iter().map(|(at, _)| at * width).collect();
    html! {
        div.way data-way=(way.name()) {
            h4 { (way.name()) " " span.muted { (way.about()) } }
            @for (path, flow, weights) in &rows {
                @let name = part.name(*path);
                @let remark = match flow.bursts { 1 => "1 run".to_owned(), n => format!("{} runs", grouped(n)) };
                @let bars = bars(*path, weights, shown, most, part);
                (figure_row(*path, &name, &remark, &drawing("bars", width, &format!("{name}: {remark}"), &grid, &bars)))
            }
            (axis(&ticks))
        }
    }
}

fn bars(path: i16, weights: &[u64], shown: LengthClasses, most: u64, part: &Part<'_>) -> String {
    let used =
        weights.iter().zip(shown.classes()).enumerate().filter(|(_, (weight, _))| **weight > 0);
    let shape = |(at, (&weight, class)): (usize, (&u64, usize))| {
        let height = (94.0 * weight as f64 / most.max(1) as f64).max(2.0);
        let title = format!("{} in runs of {}", part.units.many(weight), shown.label(class));
        figures::bar(path, (at as f64 + 0.06, 0.88), height, Some(&title))
    };
    used.map(shape).collect()
}

/// Formats the lower bound of a class (histogram bin) of run lengths, in the unit `measure`.
fn edge(class: usize, measure: Measure) -> String {
    match measure {
        Measure::Time => span(Histogram::from(class) / 1e3),
        Measure::Packets => number(Histogram::from(class).ceil()),
    }
}

fn length_numbers(part: &Part<'_>, shown: LengthClasses) -> Markup {
    let mut head = vec![match shown.measure {
        Measure::Time => "in runs on one path that lasted".to_owned(),
        Measure::Packets => format!("{} in the run", part.units.plural()),
    }];
    let mut columns = Vec::new();
    for way in Direction::BOTH {
        for (path, _, traffic) in part.rows(way) {
            head.push(format!("{}, {}", way.name(), part.name(path)));
            columns.push(shown.of_path(traffic));
        }
    }
    let row = |(at, class): (usize, usize)| {
        let weights = columns.iter().map(|weights| grouped(weights[at]));
        [shown.label(class)].into_iter().chain(weights).collect()
    };
    let used = |(at, _): &(usize, usize)| columns.iter().any(|weights| weights[*at] > 0);
    let rows: Vec<Vec<String>> = shown.classes().enumerate().filter(used).map(row).collect();
    let title = format!(
        "Number of {} by length of the run (an uninterrupted series on one path)",
        part.units.plural()
    );
    figures::numbers(&title, &head, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(length: f64, measure: Measure) -> String {
        let mut histogram = Histogram::default();
        histogram.add(length, 1);
        let class = histogram.weights().iter().position(|&weight| weight > 0).unwrap();
        LengthClasses { first: 1, last: 30, measure }.label(class)
    }

    #[test]
    fn classes_are_told_in_words() {
        assert_eq!(label(100.0, Measure::Time), "100 ms to 178 ms");
        assert_eq!(label(0.0, Measure::Time), "less than 10 µs");
        assert_eq!(label(1.0, Measure::Packets), "1");
        assert_eq!(label(3.0, Measure::Packets), "2 to 3");
        assert_eq!(label(50.0, Measure::Packets), "32 to 56");
        assert!(label(1e300, Measure::Packets).ends_with("and more"));
    }
}
