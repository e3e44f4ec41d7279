//! Texts about the results of the experiment `circumvention`, shared by the HTML page, the
//! Markdown file and the terminal output.

use anabranch_experiment::Spread;
use anabranch_experiment::circumvention::summary::{Cell, Verdict, WANTED};
use anabranch_experiment::circumvention::{Access, FetchResult, Server};
use anabranch_pages::figures::{grouped, percent};
use serde_json::Value;

use super::super::{common, numbers};
use crate::text::table;

/// Data for the HTML page, the Markdown file and the terminal output.
pub(super) struct ReportData<'a> {
    /// First line of the journal `units.jsonl`: the settings, and the program and machine of the
    /// measurements.
    pub(super) header: &'a Value,
    /// Results of all fetches.
    pub(super) records: &'a [FetchResult],
    /// Summary of the fetches by server and route.
    pub(super) cells: &'a [Cell],
    /// Verdict for each server: whether the splitter evades the censor.
    pub(super) verdicts: &'a [Verdict],
}

/// Returns the name of `server` in texts and tables.
pub(super) fn title(server: Server) -> &'static str {
    match server {
        Server::QuicGo => "QUIC: quic-go",
        Server::Quinn => "QUIC: quinn",
        Server::Ngtcp2 => "QUIC: ngtcp2",
        Server::Aioquic => "QUIC: aioquic",
        Server::Tls => "TLS over TCP: OpenSSL",
    }
}

/// Returns the name of a route to the server in texts and tables.
pub(super) fn way(access: Access) -> &'static str {
    match access {
        Access::Open => "without censor",
        Access::Direct => "through the censor",
        Access::Vpn => "all through the VPN",
        Access::Handshake => "handshake through the VPN",
    }
}

/// Describes the result of a fetch in a few words.
pub(super) fn outcome(record: &FetchResult) -> String {
    match record.through {
        true => format!(
            "first byte after {:.0} ms, {} of the bytes by the direct path",
            record.first_byte * 1e3,
            percent(record.direct_share())
        ),
        false => format!("nothing arrived: the censor dropped {} packets", record.censored),
    }
}

/// Formats median and range of times in milliseconds. `None` becomes a dash.
pub(super) fn millis(spread: Option<Spread>) -> String {
    between(spread, 1e3, 0)
}

fn between(spread: Option<Spread>, scale: f64, digits: usize) -> String {
    spread.map_or("–".to_owned(), |spread| numbers::between(spread, scale, digits))
}

/// Returns the verdict about each server, as rows of a table. The headings are [`HEAD`].
pub(super) fn verdict_rows(verdicts: &[Verdict], cells: &[Cell]) -> Vec<[String; 6]> {
    let row = |verdict: &Verdict| {
        let share =
            |cell: &&Cell| cell.server == verdict.server && cell.access == Access::Handshake;
        let direct = cells.iter().find(share).and_then(|cell| cell.direct);
        [
            title(verdict.server).to_owned(),
            answer(verdict.blocked),
            answer(verdict.works),
            between(direct, 100.0, 2) + if direct.is_some() { " %" } else { "" },
            millis(verdict.added),
            millis(verdict.added_to_vpn),
        ]
    };
    verdicts.iter().map(row).collect()
}

/// Column headings of the table of verdicts, which has one row for each server.
pub(super) const HEAD: [&str; 6] = [
    "server",
    "blocked",
    "gets through",
    "direct path",
    "first byte later than without censor, ms",
    "first byte later than through the VPN, ms",
];

/// Explains how the verdict about a server is reached.
pub(super) fn judged() -> String {
    format!(
        "A server is blocked if every fetch without the censor succeeds, every fetch through the \
         censor fails, and the censor dropped packets each time. A server gets through if every \
         fetch with the handshake through the VPN succeeds, and at least {:.0} % of the bytes of \
         each such fetch take the direct path; the column 'direct path' has this share. The last \
         two columns compare the first byte of such a fetch with two other fetches of the same \
         repetition: one without censor and splitter, and one completely through the VPN. Delays \
         are given as median (lowest–highest).",
        WANTED * 100.0
    )
}

fn answer(answer: Option<bool>) -> String {
    match answer {
        Some(true) => "yes",
        Some(false) => "no",
        None => "–",
    }
    .to_owned()
}

/// Returns the summaries of all servers and routes as rows of a table. The headings are
/// [`CELL_HEAD`].
pub(super) fn cell_rows(cells: &[Cell]) -> Vec<Vec<String>> {
    let row = |cell: &Cell| {
        vec![
            title(cell.server).to_owned(),
            way(cell.access).to_owned(),
            format!("{} of {}", cell.through, cell.count),
            millis(cell.first_byte),
            between(cell.goodput, 1.0, 1),
            between(cell.direct, 100.0, 2),
            between(cell.vpn, 1e-3, 0),
            format!("{} of {}", cell.cut, cell.count),
        ]
    };
    cells.iter().map(row).collect()
}

/// Column headings of the table of servers and routes.
pub(super) const CELL_HEAD: [&str; 8] = [
    "server",
    "fetch",
    "succeeded",
    "first byte, ms",
    "Mbit/s",
    "direct path, %",
    "VPN, kB",
    "cut by the censor",
];

/// Returns a sentence on the fetches: their sizes, repetitions and order.
pub(super) fn description(report_data: &ReportData<'_>) -> String {
    let bytes = report_data.header["bytes"].as_u64().map_or("?".to_owned(), grouped);
    format!(
        "{} fetches of {bytes} bytes (from the TLS server: of a short page), {} repetitions, \
         interleaved, seed {}",
        report_data.records.len(),
        report_data.cells.iter().map(|cell| cell.count).max().unwrap_or(0),
        report_data.header["seed"]
    )
}

/// Describes the load of the machine by other work during the fetches.
pub(super) fn machine(records: &[FetchResult]) -> String {
    common::disturbance(records.iter().map(|record| record.machine))
}

/// Returns the results as text for a terminal.
pub(super) fn plain(report_data: &ReportData<'_>) -> String {
    if report_data.cells.is_empty() {
        return "Nothing was measured yet.".to_owned();
    }
    let mut rows = vec![CELL_HEAD.map(str::to_owned).to_vec()];
    rows.extend(cell_rows(report_data.cells));
    let mut text = table(&rows);
    for verdict in report_data.verdicts.iter().filter(|verdict| verdict.added.is_some()) {
        text += &format!(
            "\n{}: the first byte arrives {} ms later than without the censor.",
            title(verdict.server),
            millis(verdict.added)
        );
    }
    text
}
