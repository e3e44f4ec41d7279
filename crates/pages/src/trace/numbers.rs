//! The figure with each path's share of the packets, and the table with all counts and sizes of
//! each path.

use anabranch_capture::{Flow, PathSummary};
use maud::{Markup, html};

use super::{Direction, Part};
use crate::figures::{colour, grouped, named, number, percent, span};

/// Maximum number of paths in the table, each with two rows. A trace may have thousands of paths.
const PATHS: usize = 100;

/// Renders the figure with each path's share of the packets, by direction.
pub(super) fn shares(part: &Part<'_>) -> Markup {
    html! {
        figure.shares {
            figcaption {
                h3 { "Shares" }
                p {
                    "The part of the " (part.units.plural())
                    " in each direction that each observer saw. A whole bar is 100 %."
                }
            }
            div.directions { @for way in Direction::BOTH { (bar(part, way)) } }
        }
    }
}

fn bar(part: &Part<'_>, way: Direction) -> Markup {
    let mut from = 0.0;
    let mut pieces = Vec::new();
    for path in part.paths.iter().take(PATHS) {
        let share = way.flow(path).share;
        pieces.push((path.path, from, share));
        from += share;
    }
    let parts: Vec<_> = pieces
        .iter()
        .map(|(path, _, share)| format!("{} {}", part.name(*path), percent(*share)))
        .collect();
    html! {
        div.way data-way=(way.name()) {
            h4 { (way.name()) " " span.muted { (way.about()) } }
            svg.bar role="img" preserveAspectRatio="none" viewBox="0 0 100 10" {
                title { (way.name()) ": " (parts.join(", ")) }
                @for (path, from, share) in &pieces {
                    @if *share > 0.0 {
                        rect.(colour(*path)) x=(number(from * 100.0)) y="0" width=(number(share * 100.0)) height="10" {
                            title { (part.name(*path)) " " (percent(*share)) }
                        }
                    }
                }
                @if from < 0.999 && !pieces.is_empty() && way.flow(part.whole).packets > 0 {
                    rect.whole x=(number(from * 100.0)) y="0" width=(number((1.0 - from) * 100.0)) height="10" {
                        title { "all other paths" }
                    }
                }
            }
            ul.legend {
                @for (path, _, share) in &pieces {
                    li { (named(*path, &part.name(*path))) " " (percent(*share)) }
                }
            }
        }
    }
}

/// Renders a table with all values of each path and direction, such as packets and sizes.
pub(super) fn table(part: &Part<'_>) -> Markup {
    let title = "What each observer saw, in numbers";
    let more = part.paths.len().saturating_sub(PATHS);
    html! {
        div.scroll tabindex="0" role="region" aria-label=(title) {
            table.counts {
                caption { (title) }
                (table_head(part))
                @for path in part.paths.iter().take(PATHS) { (rows(part, path)) }
                (rows(part, part.whole))
            }
        }
        @if more > 0 { p.muted { (grouped(more as u64)) " more paths are left out of this table." } }
    }
}

fn table_head(part: &Part<'_>) -> Markup {
    let plural = part.units.plural();
    html! {
        thead {
            tr {
                th rowspan="2" scope="col" { "path" } th rowspan="2" scope="col" { "direction" }
                th rowspan="2" scope="col" { (plural) } th rowspan="2" scope="col" { (part.units.sizes()) }
                th rowspan="2" scope="col" { "share of " (plural) } th rowspan="2" scope="col" { "runs" }
                th colspan="2" scope="colgroup" { (plural) " in a run" }
                th colspan="2" scope="colgroup" { "a run lasts" }
                th rowspan="2" scope="col" { "longest pause" }
            }
            tr {
                th scope="col" { "median" } th scope="col" { "longest" }
                th scope="col" { "median" } th scope="col" { "longest" }
            }
        }
    }
}

fn rows(part: &Part<'_>, path: &PathSummary) -> Markup {
    let name = if path.path < 0 { "all together".to_owned() } else { part.name(path.path) };
    html! {
        tbody data-path=(path.path) {
            @for way in Direction::BOTH {
                tr data-way=(way.name()) {
                    @if way == Direction::BOTH[0] {
                        th rowspan="2" scope="rowgroup" { (named(path.path, &name)) }
                    }
                    th scope="row" { (way.name()) }
                    (cells(part, way.flow(path)))
                }
            }
        }
    }
}

fn cells(part: &Part<'_>, flow: &Flow) -> Markup {
    let ms = |ms: f64| span(ms / 1e3);
    let packets = |packets: f64| number((packets * 10.0).round() / 10.0);
    html! {
        td.packets { (grouped(flow.packets)) }
        td.sizes { (part.units.size(flow.bytes)) }
        td.share { (percent(flow.share)) }
        td.runs { (grouped(flow.bursts)) }
        @if flow.bursts == 0 {
            td { "–" } td { "–" } td { "–" } td { "–" }
        } @else {
            td { (packets(flow.burst_packets.median)) } td { (packets(flow.burst_packets.longest)) }
            td { (ms(flow.burst_ms.median)) } td { (ms(flow.burst_ms.longest)) }
        }
        td { @if flow.packets < 2 { "–" } @else { (ms(flow.longest_gap_ms)) } }
    }
}
