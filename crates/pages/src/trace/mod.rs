//! The page of a trace: what the observer of each path saw.

mod numbers;
mod rates;
mod runs;
mod sketch;
mod words;

use anabranch_capture::{
    DirectionTraffic, Flow, PathSummary, PerDirection, Summary, TimeSeries, TraceFacts,
    TraceTimeSeries,
};
use maud::{Markup, html};

use crate::{GENERATOR, legible, tables};
use words::Units;

/// Maximum number of paths that get their own row in the figures; tables list more.
pub const MAX_ROWS: usize = 12;

/// Data for the page of a trace.
pub struct ReportData<'a> {
    /// Name of the trace's file.
    pub name: &'a str,
    /// Metadata of the trace: paths, schedule, seed, units.
    pub facts: &'a TraceFacts,
    /// Summary of the trace: counts by session and path.
    pub summary: &'a Summary,
    /// Traffic of the sessions over time: rates, and runs (consecutive packets on one path).
    pub time_series: &'a TraceTimeSeries,
    /// Indices of the sessions in `summary` that get their own section on the page.
    pub chosen: &'a [usize],
}

/// One section of a page: a session, or all sessions together.
struct Part<'a> {
    /// Prefix that makes the HTML ids of this section unique.
    id: String,
    title: String,
    facts: &'a TraceFacts,
    units: Units,
    paths: &'a [PathSummary],
    whole: &'a PathSummary,
    series: &'a TimeSeries,
    /// Number of page loads over which rates are averaged, if all page loads of this section begin
    /// at time 0. `None` if rates are not averaged.
    loads: Option<usize>,
}

/// Direction of the traffic.
#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Down,
    Up,
}

impl Direction {
    const BOTH: [Direction; 2] = [Direction::Down, Direction::Up];

    fn name(self) -> &'static str {
        match self {
            Direction::Down => "Downlink",
            Direction::Up => "Uplink",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Direction::Down => "from the server to the client",
            Direction::Up => "from the client to the server",
        }
    }

    fn of<T>(self, directions: &PerDirection<T>) -> &T {
        match self {
            Direction::Down => &directions.down,
            Direction::Up => &directions.up,
        }
    }

    fn flow(self, path: &PathSummary) -> &Flow {
        match self {
            Direction::Down => &path.down,
            Direction::Up => &path.up,
        }
    }
}

impl<'a> Part<'a> {
    /// Returns the paths that have a row in the figures, each with its index, its packet counts
    /// and its traffic over time. All values are for the direction `way`.
    fn rows(&self, way: Direction) -> impl Iterator<Item = (i16, &'a Flow, &'a DirectionTraffic)> {
        let (paths, series) = (self.paths, self.series);
        series.paths.iter().filter_map(move |series| {
            let path = paths.iter().find(|path| path.path == series.path)?;
            Some((series.path, way.flow(path), way.of(&series.directions)))
        })
    }

    fn name(&self, path: i16) -> String {
        legible(&self.facts.path_name(path))
    }

    /// Formats `size` divided by `seconds` as a rate. If [`Part::loads`] has a number of page
    /// loads, the result is the mean rate of one load.
    fn rate(&self, size: u64, seconds: f64) -> String {
        self.units.rate(size as f64 / seconds / self.loads.unwrap_or(1) as f64)
    }
}

/// Returns the whole page.
#[must_use]
pub fn page(report_data: &ReportData<'_>) -> String {
    let name = legible(report_data.name);
    let parts = parts(report_data);
    let title = format!("What the observers saw: {name}");
    crate::page(
        &title,
        &html! {
            (head(report_data, &name))
            main {
                (words::in_short(report_data))
                @if report_data.chosen.len() > 1 { (contents(&parts)) }
                @for part in &parts { (section(part)) }
                (words::limits(report_data))
            }
            footer { p { "Made by " (GENERATOR) " from the trace " bdi { (name) } "." } }
        },
    )
}

fn head(report_data: &ReportData<'_>, name: &str) -> Markup {
    html! {
        header {
            h1 { "What the observers saw" }
            p.muted {
                "Trace " bdi { (name) }
                @if let Some(started) = report_data.facts.started() { ", begun " (started) }
            }
        }
    }
}

/// Returns the sections: all sessions together if there are several, then the chosen sessions.
fn parts<'a>(report_data: &ReportData<'a>) -> Vec<Part<'a>> {
    let ReportData { facts, summary, time_series, chosen, .. } = *report_data;
    let units = Units(facts.unit);
    let session = |(&at, series): (&usize, &'a TimeSeries)| {
        let session = &summary.sessions[at];
        let title = tables::title(session);
        let (paths, whole) = (&*session.paths, &session.whole);
        let (id, title) = (format!("s{at}"), capital(&title));
        Part { id, title, facts, units, paths, whole, series, loads: None }
    };
    let several = summary.sessions.len() > 1;
    let all = several.then(|| Part {
        id: "all".to_owned(),
        title: "All sessions together".to_owned(),
        facts,
        units,
        paths: &summary.paths,
        whole: &summary.whole,
        series: &time_series.all,
        loads: time_series.all.aligned.then_some(summary.sessions.len()),
    });
    all.into_iter().chain(chosen.iter().zip(&time_series.chosen).map(session)).collect()
}

fn contents(parts: &[Part<'_>]) -> Markup {
    html! {
        nav aria-label="Sessions" {
            ul { @for part in parts { li { a href={ "#" (part.id) } { bdi { (part.title) } } } } }
        }
    }
}

fn section(part: &Part<'_>) -> Markup {
    html! {
        section id=(part.id) aria-labelledby={ (part.id) "-h" } {
            h2 id={ (part.id) "-h" } { bdi { (part.title) } }
            (words::of_part(part))
            (numbers::shares(part))
            (numbers::table(part))
            (rates::figure(part))
            (runs::closely(part))
            (runs::lengths(part))
        }
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests;
