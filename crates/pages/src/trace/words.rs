//! The explanatory texts on the page of a trace.

use anabranch_capture::{SizeUnit, Summary, TraceFacts};
use anabranch_multipath::Every;
use anabranch_multipath::schedule::FAMILIES;
use maud::{Markup, html};

use super::{Direction, Part, ReportData, sketch};
use crate::figures::{grouped, named, percent, scaled, span};
use crate::legible;

/// Share of a direction's packets on one path above which the page warns that this direction was
/// hardly split.
const NEARLY_ALL: f64 = 0.95;

/// Unit in which run lengths are measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Measure {
    Time,
    Packets,
}

/// Nouns for the rows of a trace (packets or cells) and for the unit of their sizes.
#[derive(Clone, Copy)]
pub(super) struct Units(pub(super) SizeUnit);

impl Units {
    /// Returns the noun for one row of the trace, such as "packet".
    pub(super) fn one(self) -> &'static str {
        match self.0 {
            SizeUnit::IpPacket => "packet",
            SizeUnit::Cell => "cell",
            SizeUnit::Direction => "unit",
        }
    }

    /// Returns the noun for several rows of the trace, such as "packets".
    pub(super) fn plural(self) -> &'static str {
        match self.0 {
            SizeUnit::IpPacket => "packets",
            SizeUnit::Cell => "cells",
            SizeUnit::Direction => "units",
        }
    }

    /// Formats `count`, a number of rows of the trace, with its noun, as in "3 packets".
    pub(super) fn many(self, count: u64) -> String {
        format!("{} {}", grouped(count), if count == 1 { self.one() } else { self.plural() })
    }

    /// Returns the name of the unit of sizes: bytes, or, if the trace has no sizes, units.
    pub(super) fn sizes(self) -> &'static str {
        match self.0 {
            SizeUnit::Direction => "units",
            _ => "bytes",
        }
    }

    /// Formats `sum`, the total size of some rows of the trace, without rounding.
    pub(super) fn size(self, sum: u64) -> String {
        grouped(sum)
    }

    /// Formats `sum`, the total size of some rows of the trace, rounded and in brackets. If each
    /// row has the size 1, the sum is only the number of rows, and the result is empty.
    fn about(self, sum: u64) -> String {
        match self.0 {
            SizeUnit::Direction => String::new(),
            _ => format!(" ({})", scaled(sum as f64, "B")),
        }
    }

    /// Formats the rate `per_second`, given in the unit of the trace's sizes per second.
    pub(super) fn rate(self, per_second: f64) -> String {
        match self.0 {
            SizeUnit::Direction => format!("{per_second:.0} units/s"),
            _ => scaled(per_second * 8.0, "bit/s"),
        }
    }
}

/// Renders the short summary at the beginning of the page.
pub(super) fn in_short(report_data: &ReportData<'_>) -> Markup {
    let ReportData { facts, summary, .. } = *report_data;
    let units = Units(facts.unit);
    if summary.datagrams == 0 {
        return html! {
            section aria-label="In short" {
                p.lead { "The trace is empty: nothing was sent or received while it was recorded." }
            }
        };
    }
    html! {
        section aria-label="In short" {
            p.lead {
                (what(summary, units)) " "
                @if summary.paths.len() > 1 {
                    "Imagine an observer at each path who records everything that passes there: \
                     a phone company, the owner of a hotspot, an internet provider. This page \
                     shows what each of these observers saw, and how much of the whole that is."
                }
            }
            @if summary.paths.len() > 1 { (sketch::sketch(facts, summary)) }
            @if let Some(schedule) = &facts.schedule { p { (how(schedule)) } }
            @if report_data.summary.sessions.len() > 1 { (shown(report_data)) }
        }
    }
}

fn what(summary: &Summary, units: Units) -> Markup {
    let whole = &summary.whole;
    let packets = whole.up.packets + whole.down.packets;
    let bytes = whole.up.bytes + whole.down.bytes;
    let sessions = summary.sessions.len();
    html! {
        @match sessions { 1 => "One session", n => { (grouped(n as u64)) " sessions" } }
        @match summary.paths.len() {
            0 => ", recorded as a whole and not split over paths: ",
            1 => " went over a single path: ",
            n => { @if sessions == 1 { " was" } @else { " were" } " split over " (n) " paths: " }
        }
        (units.many(packets)) (units.about(bytes))
        @if summary.is_data_set() { "; the longest took " (span(summary.longest())) "." }
        @else { " in " (span(summary.seconds)) "." }
    }
}

/// Renders the schedule as it was configured, and explains it in plain words.
fn how(schedule: &str) -> Markup {
    html! {
        "The schedule was " code { bdi { (legible(schedule)) } }
        @match (family(schedule).and_then(meaning), every(schedule)) {
            (Some(meaning), Some(every)) => { ": " (meaning) "; " (due(every)) "." }
            (Some(meaning), None) => { ": " (meaning) "." }
            (None, Some(every)) => { "; " (due(every)) "." }
            (None, None) => { "." }
        }
        " The packets that use one path until the path changes are called a run."
    }
}

fn family(schedule: &str) -> Option<&str> {
    schedule.split([' ', ':']).next()
}

fn every(schedule: &str) -> Option<Every> {
    let (_, every) = schedule.split_once("--every ")?;
    every.split(' ').next()?.parse().ok()
}

/// Returns the unit in which the schedule sets the lengths of runs (consecutive packets on one
/// path). If the unit is unknown, returns packets.
pub(super) fn measure(facts: &TraceFacts) -> Measure {
    match facts.schedule.as_deref().and_then(every) {
        Some(
            Every::Time { .. } | Every::TimeRange { .. } | Every::Growing { .. } | Every::Never,
        ) => Measure::Time,
        _ => Measure::Packets,
    }
}

/// Returns a plain explanation of a family of schedulers; `None` if the family is unknown.
fn meaning(family: &str) -> Option<&'static str> {
    FAMILIES.iter().find(|each| each.name == family).map(|each| each.plain)
}

fn due(every: Every) -> String {
    let ms = |time: std::time::Duration| span(time.as_secs_f64());
    match every {
        Every::Never => "the path never changes".to_owned(),
        Every::Packets { mean, random: false } => {
            format!("the path changes after every {mean} packets")
        }
        Every::Packets { mean, .. } => {
            format!("the path changes after {mean} packets on average, at random")
        }
        Every::PacketRange { least, most } => {
            format!("the path changes after a random number of {least} to {most} packets")
        }
        Every::Time { mean, random: false } => format!("the path changes every {}", ms(mean)),
        Every::Time { mean, .. } => {
            format!("the path changes every {} on average, at random", ms(mean))
        }
        Every::TimeRange { least, most } => {
            format!("the path changes after a random time of {} to {}", ms(least), ms(most))
        }
        Every::Growing { least, most } => format!(
            "the path changes at random intervals, about every {} at the beginning of a page load \
             and about every {} later",
            ms(least),
            ms(most)
        ),
    }
}

fn shown(report_data: &ReportData<'_>) -> Markup {
    let (all, shown) = (report_data.summary.sessions.len(), report_data.chosen.len());
    html! {
        @if shown < all {
            p.muted {
                "Below, the " (shown) " busiest of " (grouped(all as u64))
                " sessions are shown one by one; the other sessions are included only in “All \
                 sessions together”."
            }
        }
    }
}

/// Renders the totals of a section, the largest share of each direction's packets that any single
/// observer saw, and a list with the shares of each observer.
pub(super) fn of_part(part: &Part<'_>) -> Markup {
    let whole = part.whole;
    let lasts = part.series.lasts;
    html! {
        p {
            (part.units.many(whole.down.packets)) (part.units.about(whole.down.bytes)) " down and "
            (part.units.many(whole.up.packets)) (part.units.about(whole.up.bytes)) " up in "
            @if part.loads.is_some() { "loads of up to " } (span(lasts)) ". "
            (nobody(part))
        }
        @if part.paths.len() > 1 {
            ul.observers { @for path in part.paths.iter().take(super::MAX_ROWS) { li { (observer(part, path.path)) } } }
        }
        @if part.paths.len() > super::MAX_ROWS {
            p.muted {
                "This list and the figures show the " (super::MAX_ROWS) " first or busiest of " (part.paths.len())
                " paths; the table shows further paths."
            }
        }
    }
}

fn observer(part: &Part<'_>, path: i16) -> Markup {
    let Some(path) = part.paths.iter().find(|each| each.path == path) else { return html! {} };
    let gap = path.up.longest_gap_ms.max(path.down.longest_gap_ms) / 1e3;
    html! {
        "The observer of " (named(path.path, &part.name(path.path))) " saw " b { (percent(path.down.share)) }
        " of what the server sent and " b { (percent(path.up.share)) } " of what the client sent"
        @if path.up.bursts > 1 {
            ". The client changed to this path " (grouped(path.up.bursts)) " times"
            @if gap > 0.0 { "; the longest pause on this path was " (span(gap)) }
        }
        "."
    }
}

/// Renders the largest share of each direction's packets that any single observer saw, and a
/// warning for a direction that was hardly split.
fn nobody(part: &Part<'_>) -> Markup {
    let most =
        |way: Direction| part.paths.iter().map(|path| way.flow(path).share).fold(0.0, f64::max);
    let (down, up) = (most(Direction::Down), most(Direction::Up));
    let whole = |way: Direction| most(way) > NEARLY_ALL;
    html! {
        @match (part.paths.len(), whole(Direction::Down), whole(Direction::Up)) {
            (0, ..) => "The trace has no paths, so this is what an observer of all traffic saw.",
            (1, ..) => "There was one path only: its observer saw everything.",
            (_, true, true) => {
                strong { "Hardly split:" } " one path carried " (percent(down))
                " of what the server sent, and one path "
                (percent(up)) " of what the client sent."
            }
            (_, true, false) => {
                strong { "The downlink was hardly split:" } " one path carried " (percent(down))
                " of it. The server answered on that path, whatever path the client used. The most \
                 that one observer saw of the uplink is "
                b { (percent(up)) } "."
            }
            (_, false, true) => {
                strong { "The uplink was hardly split:" } " one path carried " (percent(up))
                " of it. The most that one observer saw of the downlink is "
                b { (percent(down)) } "."
            }
            _ => {
                "Nobody on a single path saw more than " b { (percent(down)) }
                " of what the server sent, or more than "
                b { (percent(up)) } " of what the client sent; no single observer saw the whole."
            }
        }
    }
}

/// Renders the list of limits: facts about the traffic that the page does not show.
pub(super) fn limits(report_data: &ReportData<'_>) -> Markup {
    let sizes = match report_data.facts.unit {
        SizeUnit::IpPacket => "Sizes are those of IP packets with their headers.",
        SizeUnit::Cell => "Sizes are those of Tor cells.",
        SizeUnit::Direction => {
            "The trace has directions but no sizes, so each packet or cell counts as one unit."
        }
    };
    html! {
        section aria-labelledby="limits" {
            h2 id="limits" { "What this page does not show" }
            ul {
                li {
                    strong { "Packet numbers that are not encrypted." }
                    " Each packet of WireGuard (its counter) and of Mosh (its nonce) has a number \
                     that counts the packets of all paths. From gaps in the numbers, the observer \
                     of one path learns how many packets all paths carried in each direction, and \
                     when. The shares above do not show this. QUIC encrypts its numbers (RFC 9001, \
                     5.4), and a far end in front of the server hides the numbers of all protocols \
                     (anabranch merge)."
                }
                li {
                    "How much can be guessed from what an observer saw. Even a part of a session \
                     may reveal its content. Only attacks on many traces can measure that."
                }
                li {
                    "What an observer of several paths sees. An observer of several paths, or of \
                     the server's side, sees the sum of what is shown here."
                }
                li {
                    "Contents and addresses. The trace holds times, sizes and directions, but no \
                     contents and no addresses. The observers do see the addresses."
                }
                li {
                    "What happened in the network. Times are those at which this machine sent or \
                     received the packets. "
                    (sizes)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_text(schedule: &str) -> String {
        let text = how(schedule).into_string();
        text.replace("<code><bdi>", "").replace("</bdi></code>", "").replace("&quot;", "\"")
    }

    #[test]
    fn a_schedule_is_explained_with_its_run_length() {
        let text = page_text("round-robin --every 100ms");
        assert!(text.contains("the paths take turns; the path changes every 100 ms."), "{text}");
        let cases = [
            ("uniform --every ~50p", "after 50 packets on average, at random"),
            ("batched --every 50-70p", "after a random number of 50 to 70 packets"),
            ("weighted:2 --every 80-120ms", "after a random time of 80 ms to 120 ms"),
            (
                "evened --every grow:10-100ms --redraw 1s",
                "10 ms at the beginning of a page load and about",
            ),
            ("weights:0.5,0.5 --every 20p", "after every 20 packets"),
            ("hywf --every never", "the path never changes"),
        ];
        for (schedule, wanted) in cases {
            assert!(page_text(schedule).contains(wanted), "{}", page_text(schedule));
        }
    }

    #[test]
    fn an_unknown_schedule_is_only_quoted() {
        assert!(
            page_text("<b>magic --every often")
                .starts_with("The schedule was &lt;b&gt;magic --every often. The")
        );
    }

    #[test]
    fn runs_are_measured_as_the_schedule_counts() {
        let facts = |schedule: &str| TraceFacts {
            schedule: Some(schedule.into()),
            ..TraceFacts::default()
        };
        assert_eq!(measure(&facts("uniform --every 1s")), Measure::Time);
        assert_eq!(measure(&facts("uniform --every 9p")), Measure::Packets);
        assert_eq!(measure(&TraceFacts::default()), Measure::Packets);
    }
}
