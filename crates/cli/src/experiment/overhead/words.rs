//! Texts about the results of the experiment `overhead`, shared by the HTML page, the Markdown
//! file and the terminal output.

use anabranch_experiment::Spread;
use anabranch_experiment::overhead::summary::{Cell, Verdict, verdicts};
use anabranch_experiment::overhead::{EVERY, Kind, Measured, Net, System, summary::find};
use serde_json::Value;

use super::super::common::disturbance;
use super::super::numbers::between;
use crate::text::table;

/// Data for the HTML page, the Markdown file and the terminal output.
pub(super) struct ReportData<'a> {
    /// First line of the journal `units.jsonl`: the settings, and the program and machine of the
    /// measurements.
    pub(super) header: &'a Value,
    /// Results of all measurements.
    pub(super) records: &'a [Measured],
    /// Summary of the results by system, network, paths and switching interval.
    pub(super) cells: &'a [Cell],
}

/// Returns the name of `system` in texts and tables.
pub(super) fn title(system: System) -> &'static str {
    match system {
        System::WireGuard => "WireGuard (wireguard-go)",
        System::Mosh => "Mosh",
        System::QuicGo => "QUIC: quic-go",
        System::Quinn => "QUIC: quinn",
        System::S2n => "QUIC: s2n-quic",
        System::Ngtcp2 => "QUIC: ngtcp2",
        System::Aioquic => "QUIC: aioquic",
    }
}

/// Returns the name of a network in texts and tables.
pub(super) fn network(net: Net) -> String {
    net.rtts().map(|rtt| rtt.to_string()).join("/") + " ms"
}

/// Formats a switching interval of `ms` milliseconds; 0 becomes `never`.
pub(super) fn every(ms: u32) -> String {
    if ms == 0 { "never".to_owned() } else { format!("{ms} ms") }
}

/// Describes the result of a measurement in a few words.
pub(super) fn outcome(record: &Measured) -> String {
    let mut text = format!("{:.3} Mbit/s", record.goodput());
    if !record.counts() {
        text += ", does not count (the paths carried too unequal shares of the downlink)";
    }
    if !record.error.is_empty() {
        text += &format!(", aborted: {}", record.error);
    }
    if record.disturbed() {
        text += ", disturbed by other work on the machine";
    }
    text
}

/// Formats median and range of goodputs in Mbit/s.
pub(super) fn mbits(spread: Spread) -> String {
    let digits = if spread.most < 1.0 { 3 } else { 1 + usize::from(spread.most < 10.0) };
    between(spread, 1.0, digits)
}

/// Formats the goodput with splitting as a share of the goodput without splitting. If the share is
/// unknown, returns the reason.
pub(super) fn kept(cell: &Cell) -> String {
    match (cell.kept, cell.uncounted) {
        (Some(spread), _) => format!("{:.1} %", spread.median * 100.0),
        (None, Some(shares)) if cell.counted.is_none() => {
            let [least, most] = [shares.least, shares.most].map(|share| share * 100.0);
            format!(
                "no valid download, because the paths carried too unequal shares of the bytes: \
                 {least:.0}–{most:.0} %"
            )
        }
        _ => "–".to_owned(),
    }
}

/// Formats the result of [`kept`] (share of the unsplit goodput) with its range and the number of
/// repetitions.
fn kept_between(cell: Option<&Cell>) -> String {
    match cell.map(|cell| (cell, cell.kept)) {
        Some((_, Some(s))) if s.count > 1 => format!(
            "{:.1} % ({:.1}–{:.1}, {} downloads)",
            s.median * 100.0,
            s.least * 100.0,
            s.most * 100.0,
            s.count
        ),
        Some((_, Some(s))) => format!("{:.1} % (1 download)", s.median * 100.0),
        Some((cell, None)) => kept(cell),
        None => "not measured".to_owned(),
    }
}

/// Returns in words whether downloads keep the wanted share of the unsplit goodput.
pub(super) fn reached(verdict: &Verdict) -> &'static str {
    match (verdict.reached, verdict.kept) {
        (Some(true), _) => "yes",
        (Some(false), _) => "no",
        (None, Some(kept)) if kept.count > 1 => {
            "unclear: only some downloads reach the wanted share"
        }
        (None, Some(_)) => "unclear, because there is only one download",
        (None, None) => "–",
    }
}

/// Column headings of the table that compares the measured share of goodput with the wanted share.
pub(super) const VERDICT_HEAD: [&str; 5] = ["", "kept", "wanted", "the paper", "reached"];

/// Returns the measured and the wanted shares of goodput as rows of a table. The headings are
/// [`VERDICT_HEAD`].
pub(super) fn verdict_rows(cells: &[Cell]) -> Vec<[String; 5]> {
    verdicts(cells)
        .iter()
        .map(|verdict| {
            [
                title(verdict.system).to_owned(),
                kept_between(find(cells, verdict.system, Net::Equal, 3, 100)),
                format!("≥ {:.0} %", verdict.wanted * 100.0),
                verdict.paper.to_owned(),
                reached(verdict).to_owned(),
            ]
        })
        .collect()
}

/// Definition of the share of goodput that the table of targets compares with the wanted share.
pub(super) const TARGET: &str = "Goodput with switching every 100 ms over three paths of 20 ms, as \
                                 a share of the median without splitting";

/// Definition of a download that counts as split.
pub(super) const COUNTS: &str = "A download counts as split if each path carried 20 to 50 % of \
                                 the downlink (with two paths: 30 to 70 %); each path has its own \
                                 address. The shares for QUIC use only downloads that count. If \
                                 no download counts, the table shows instead the shares of the \
                                 bytes that the paths carried";

/// Lists the systems, networks and switching intervals of the default plan that were not measured.
/// The list is empty if nothing is missing.
pub(super) fn not_run(cells: &[Cell]) -> Vec<String> {
    let mut missing = Vec::new();
    for system in System::ALL {
        let of = |net, paths| {
            let has = |&&ms: &&u32| find(cells, system, net, paths, ms).is_none();
            EVERY.iter().filter(has).map(|&ms| every(ms)).collect::<Vec<_>>()
        };
        if !cells.iter().any(|cell| cell.system == system) {
            missing.push(format!("{}: not measured", title(system)));
            continue;
        }
        for net in Net::ALL {
            for paths in [2, 3] {
                let gone = of(net, paths);
                if gone.len() == EVERY.len() {
                    missing.push(format!(
                        "{}, {}, {paths} paths: not measured",
                        title(system),
                        network(net)
                    ));
                } else if !gone.is_empty() {
                    let list = gone.join(", ");
                    missing.push(format!(
                        "{}, {}, {paths} paths: {list}",
                        title(system),
                        network(net)
                    ));
                }
            }
        }
    }
    missing
}

/// Describes the limit of a transfer in seconds or bytes.
pub(super) fn limit(header: &Value) -> String {
    let seconds = header["seconds"].as_f64().map_or("?".to_owned(), |seconds| seconds.to_string());
    match header["bytes"].as_f64() {
        None => format!("{seconds} s each"),
        Some(bytes) => format!("{} GB each, {seconds} s at most (Mosh: 60 s)", bytes / 1e9),
    }
}

/// Describes how a download with a program of this `kind` is measured.
pub(super) fn measured_as(kind: Kind) -> &'static str {
    match kind {
        Kind::WireGuard => {
            "one TCP connection (cubic) in the tunnel, from the server; the bytes that the client \
             read"
        }
        Kind::Mosh => {
            "a file of 10 MB that cat shows again and again; the bytes that mosh-client wrote to \
             its terminal. Mosh sends only the most recent screen, as often as the round-trip time \
             allows, and omits text that scrolled by in between"
        }
        Kind::Quic => "one HTTP response; the bytes that quic-go's client read",
    }
}

/// Describes the load of the machine by other work during the measurements: median and maximum of
/// each number.
pub(super) fn machine(records: &[Measured]) -> String {
    let disturbed = records.iter().filter(|record| record.disturbed()).count();
    format!(
        "{} {disturbed} of {} measurements count as disturbed (the hypervisor took more than 10 % \
         of the CPU time, or wake-ups were more than 20 ms late).",
        disturbance(records.iter().map(|record| record.machine)),
        records.len(),
    )
}

/// Returns the results as text for a terminal.
pub(super) fn plain(cells: &[Cell]) -> String {
    if cells.is_empty() {
        return "Nothing was measured yet.".to_owned();
    }
    let head = ["system", "network", "paths", "every", "Mbit/s", "kept", "counted"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(cells.iter().map(|cell| {
        vec![
            cell.system.to_string(),
            network(cell.net),
            cell.paths.to_string(),
            every(cell.every),
            mbits(cell.goodput),
            kept(cell),
            format!("{}/{}", cell.counted.map_or(0, |spread| spread.count), cell.goodput.count),
        ]
    }));
    table(&rows)
}
