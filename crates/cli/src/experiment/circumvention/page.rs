//! Results of the experiment `circumvention` as one HTML page.

use anabranch_experiment::circumvention::summary::{Cell, find};
use anabranch_experiment::circumvention::{Access, BLOCKED, RATES, RTTS, Server};
use anabranch_pages::figures::{self, axis, drawing, figure_row, number, percent};
use maud::{Markup, html};

use super::super::common::{command, origin};
use super::words::{self, ReportData};

/// Routes to the server that the figures compare, each with its colour. The route that the censor
/// blocks is left out.
const WAYS: [(Access, i16); 3] = [(Access::Open, -1), (Access::Vpn, 0), (Access::Handshake, 1)];

/// Returns the whole HTML page with all results.
pub(super) fn page(report_data: &ReportData<'_>) -> String {
    anabranch_pages::page(
        "Evading a censor",
        &html! {
            header {
                h1 { "Evading a censor" }
                @let command = command("anabranch split --handshake vpn", report_data.header);
                p.muted {
                    (words::description(report_data)) ", by " code { (command) }
                    " (CoMPS, section 3.3)"
                }
            }
            main {
                (in_short(report_data))
                @for verdict in report_data.verdicts { (section(report_data, verdict.server)) }
                (numbers(report_data))
                (conditions(report_data))
            }
            footer { p { "Made by " (anabranch_pages::GENERATOR) ", experiment circumvention, seed " (report_data.header["seed"]) "." } }
        },
    )
}

fn in_short(report_data: &ReportData<'_>) -> Markup {
    let rows = words::verdict_rows(report_data.verdicts, report_data.cells);
    html! {
        section aria-labelledby="short" {
            h2 id="short" { "In short" }
            (figures::table("targets", "Does it work, and what does it cost?", &words::HEAD, rows.iter().map(<[String; 6]>::as_slice)))
            p { (words::judged()) }
        }
    }
}

fn section(report_data: &ReportData<'_>, server: Server) -> Markup {
    let name = server.name();
    html! {
        section id=(name) aria-labelledby={ (name) "-h" } {
            h2 id={ (name) "-h" } { (words::title(server)) }
            figure {
                figcaption {
                    h3 { "Time to the first byte" }
                    p { "Measured from the client's first packet. Each dot is a fetch, the line is \
                         the median. Through the censor: " (straight(report_data, server)) }
                }
                div.way data-way="first" { (first_bytes(report_data, server)) }
            }
            @if find(report_data.cells, server, Access::Handshake).is_some() { (shares(report_data, server)) }
        }
    }
}

fn straight(report_data: &ReportData<'_>, server: Server) -> String {
    match find(report_data.cells, server, Access::Direct) {
        None => "not measured.".to_owned(),
        Some(cell) => format!("{} of {} fetches succeeded.", cell.through, cell.count),
    }
}

/// Draws a chart of the times to the first byte, with a row for each route. Time runs from left to
/// right.
fn first_bytes(report_data: &ReportData<'_>, server: Server) -> Markup {
    let of = |access| find(report_data.cells, server, access).and_then(|cell| cell.first_byte);
    let latest = WAYS.iter().filter_map(|(access, _)| of(*access)).map(|spread| spread.most);
    let lasts = latest.fold(0.0, f64::max) * 1.05;
    let ticks = figures::times(lasts);
    let grid: Vec<f64> = ticks.iter().map(|(at, _)| at * 100.0).collect();
    html! {
        @for (access, colour) in WAYS {
            @if let Some(cell) = find(report_data.cells, server, access) {
                @let remark = format!("{} ms", words::millis(cell.first_byte));
                @let title = format!("{}, {}: time to the first byte, {remark}", words::title(server), words::way(access));
                (figure_row(colour, words::way(access), &remark, &drawing("first", 100.0, &title, &grid, &dots(report_data, cell, colour, lasts))))
            }
        }
        (axis(&ticks))
    }
}

fn dots(report_data: &ReportData<'_>, cell: &Cell, colour: i16, lasts: f64) -> String {
    let at = |seconds: f64| number(100.0 * seconds / lasts);
    let class = figures::colour(colour);
    let mut shapes = String::new();
    if let Some(spread) = cell.first_byte {
        shapes += &format!(r#"<path class="line {class}" d="M{} 5V95"/>"#, at(spread.median));
    }
    let key = (cell.server, cell.access, true);
    let good = report_data.records.iter().filter(|r| (r.server, r.access, r.through) == key);
    for (n, record) in good.enumerate() {
        // The dots have different heights, so that dots of equal times do not hide each other.
        let y = 15 + n * 14 % 70;
        shapes += &format!(r#"<path class="dot {class}" d="M{} {y}h0"/>"#, at(record.first_byte));
    }
    shapes
}

/// Draws the share of the bytes that each path carries if only the handshake uses the VPN.
fn shares(report_data: &ReportData<'_>, server: Server) -> Markup {
    let cell = find(report_data.cells, server, Access::Handshake);
    let direct = cell.and_then(|cell| cell.direct).map_or(0.0, |spread| spread.median);
    let parts = [("direct path", 2, direct), ("VPN", 0, 1.0 - direct)];
    let shapes = figures::bar(2, (0.0, direct * 100.0), 100.0, None)
        + &figures::bar(0, (direct * 100.0, 100.0 - direct * 100.0), 100.0, None);
    html! {
        figure {
            figcaption {
                h3 { "Which path carried the bytes" }
                p { "With the handshake through the VPN: the median share of the bytes of both \
                     directions. The VPN's own headers count as bytes of the VPN." }
            }
            div.way data-way="shares" {
                div.figure-row {
                    div.figure-row-head { @for (name, colour, share) in parts { (figures::named(colour, &format!("{name}, {}", percent(share)))) } }
                    (drawing("bar", 100.0, &format!("{}: {} of the bytes came by the direct path, the others through the VPN", words::title(server), percent(direct)), &[], &shapes))
                }
            }
        }
    }
}

fn numbers(report_data: &ReportData<'_>) -> Markup {
    let rows = words::cell_rows(report_data.cells);
    let title = "All fetches: median (least–most) of those that succeeded";
    figures::numbers(title, &words::CELL_HEAD.map(str::to_owned), &rows)
}

fn conditions(report_data: &ReportData<'_>) -> Markup {
    let ([straight, around], [rate, slow]) = (RTTS, RATES);
    html! {
        section aria-labelledby="conditions" {
            h2 id="conditions" { "How it was measured" }
            p {
                "Each fetch has an emulated network of its own (" code { "anabranch emulate" }
                "). All packets of the client pass a border, where a censor cuts connections that \
                 ask for " code { (BLOCKED) }
                " or a name below it, over TCP and QUIC. It derives the keys of QUIC's first \
                 packets, as any observer on the path can. On the direct path the server is \
                 " (straight) " ms away (round trip, "
                (rate)
                " Mbit/s). Through the VPN (wireguard-go at both ends, connected before the fetch, \
                 address translation at its exit) it is " (around)
                " ms at " (slow)
                " Mbit/s. quic-go's client fetches over QUIC, OpenSSL's client over TLS; the times \
                 of OpenSSL's client include its start."
            }
            p { (words::machine(report_data.records)) }
            p { (origin(report_data.header)) }
            p {
                "A censor that looks at more than names (addresses, the form of traffic, \
                 connections that begin without a handshake) is not measured. What such a censor \
                 would see is in " code { "docs/results/circumvention.md" } "."
            }
        }
    }
}
