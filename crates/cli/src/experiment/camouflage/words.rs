//! Texts about the results of the experiment `camouflage`, shared by the HTML page, the Markdown
//! file and the terminal output.

use anabranch_experiment::camouflage::bars::CostComparison;
use anabranch_experiment::camouflage::claims::JudgedClaim;
use anabranch_experiment::camouflage::summary::{Curve, Quantity, Row, StreamBox};
use anabranch_experiment::camouflage::{
    Arm, DOWN_KBIT, LENGTHS, LONGEST, Measured, MeasurementKind, QUEUE_KB, RTT, UP_KBIT, paper,
};
use anabranch_experiment::{Mean, Spread};
use anabranch_pages::figures::{grouped, percent};
use serde_json::Value;

use super::super::common::disturbance;
use super::super::numbers::{NONE, between, mean, median, with_half};

/// Data for the HTML page, the Markdown file and the terminal output.
pub(super) struct ReportData<'a> {
    /// First line of the journal `units.jsonl`: the settings, and the program and machine of the
    /// measurements.
    pub(super) header: &'a Value,
    /// Results of all measurements.
    pub(super) records: &'a [Measured],
    /// Rows of the table that repeats Table 3 of the paper (Weinberg et al., CCS 2012).
    pub(super) table: &'a [Row],
    /// Curves of the chart that repeats Figure 7 of the paper: goodput against download length.
    pub(super) curves: &'a [Curve],
    /// Boxes of the chart that repeats Figure 6 of the paper: one for each arm (kind of
    /// connection), stream rate and round-trip time.
    pub(super) boxes: &'a [StreamBox],
    /// Claims of the paper (Weinberg et al., CCS 2012), each with its verdict.
    pub(super) claims: &'a [JudgedClaim],
    /// Costs of our camouflage profiles, each compared with its limit.
    pub(super) bars: &'a [CostComparison],
}

/// Returns the name of `arm` (a kind of connection) in texts and tables.
pub(super) fn title(arm: Arm) -> &'static str {
    match arm {
        Arm::Direct => "direct",
        Arm::Tor => "Tor alone",
        _ => arm.name(),
    }
}

/// Returns a sentence about the measurements, without its full stop.
pub(super) fn description() -> String {
    format!(
        "The client's line has {UP_KBIT} kbit/s up and {DOWN_KBIT} kbit/s down, a round-trip time \
         of {RTT} ms, and a queue of {QUEUE_KB} kB in each direction. At the other end of the \
         line, a host without limits runs a web server, and a bridge and relays of C tor (the Tor \
         project's program). All numbers of bytes are bytes of IP packets on the client's line"
    )
}

/// Returns a sentence with the numbers of rounds and the measured programs.
pub(super) fn how_often(report_data: &ReportData<'_>) -> String {
    let rounds = |what: MeasurementKind| {
        let of = report_data.records.iter().filter(|record| record.what == what);
        of.map(|record| record.round + 1).max().unwrap_or_default()
    };
    let [downloads, bare, streams] =
        [MeasurementKind::Downloads, MeasurementKind::Bare, MeasurementKind::Streams].map(rounds);
    let hid = |what: &str, arm: &str| match report_data.header[what][0].as_u64() {
        Some(files) => format!(" {arm} hid its data in {files} files."),
        None => String::new(),
    };
    let files = hid("pictures", "http-image") + &hid("covers", "http-site");
    format!(
        "Downloads through Tor: {downloads} rounds (a full measurement has 8). In each round every \
         kind of connection carries four downloads of 1 MB and one of every other length in the \
         tables. Downloads without Tor: {bare} rounds (a full measurement has 8), with four \
         downloads of 1 MB over each of our profiles (protocols that the camouflage imitates). \
         Streams (data sent at a fixed rate): {streams} rounds (a full measurement has 6), {} s \
         for each stream. In a round, all connections use the same order of download lengths and \
         of stream rates. The order of the connections depends on the seed.{files}",
        report_data.header["seconds"]
    )
}

/// Describes how the experiment measures a download and a stream.
pub(super) fn method() -> String {
    "For each measurement a bridge and a client of C tor start with empty data folders. The \
     client knows only the bridge; circuits continue over one middle relay and one exit. All \
     these programs are C tor; only the directory authority is Anabranch's. Bytes are counted \
     only after a first byte has been fetched, so the link is open. A download starts when the \
     line has been idle for half a second. The cost of a download is all bytes on the line until \
     0.3 s after the last byte, including C tor's own padding and maintenance. Goodput is the \
     length divided by the time from the SOCKS request to the last byte. For a stream, the bytes \
     on the line are counted for each second from its first byte on. Payload is random, and every \
     byte is compared. Without Tor, `anabranch pt client` and `anabranch pt server` carry a \
     connection to the web server, with one link for each download. For webtunnel, nginx with TLS \
     stands in front of the bridge. The HTTP profiles run without a web site, so there are no \
     other visitors."
        .to_owned()
}

/// Describes the CPU use of all programs during measurements, and the load of the machine by other
/// work.
pub(super) fn machine(report_data: &ReportData<'_>) -> String {
    let busiest = report_data.records.iter().map(|record| record.busy).fold(0.0, f64::max);
    format!(
        "All programs of the machine together used at most {} of its CPUs in a measurement. {}",
        percent(busiest),
        disturbance(report_data.records.iter().map(|record| record.machine))
    )
}

/// Formats a number of bytes, rounded to a whole number.
fn whole(bytes: f64) -> String {
    grouped(bytes.round() as u64)
}

/// Formats a ratio of two measured values with three decimals. `None` becomes a dash.
pub(super) fn times(factor: Option<f64>) -> String {
    factor.map_or_else(|| NONE.to_owned(), |factor| format!("{factor:.3}"))
}

/// Column headings of the table with the quantities of the paper's Table 3.
pub(super) const TABLE_HEAD: [&str; 12] = [
    "connection",
    "downloads",
    "to the server, B",
    "× direct",
    "the paper's",
    "from the server, B",
    "× direct",
    "the paper's",
    "up / payload",
    "first byte, s",
    "kB/s",
    "share of Tor alone",
];

/// Returns the quantities of the paper's Table 3 as rows of a table. The headings are
/// [`TABLE_HEAD`].
pub(super) fn table_rows(report_data: &ReportData<'_>) -> Vec<Vec<String>> {
    let row = |row: &Row| {
        let (all, failed) = row.counts;
        let of_paper = |way: usize| {
            let direct = paper::table_3(Arm::Direct)?;
            let there = paper::table_3(row.arm)?;
            let [bytes, straight] =
                [there, direct].map(|row| if way == 0 { row.up } else { row.down });
            Some(format!("{} ({:.2} ×)", grouped(bytes as u64), bytes / straight))
        };
        let of_paper = |way| of_paper(way).unwrap_or_else(|| NONE.to_owned());
        let share = row.bytes[0].map(|mean| mean.mean / f64::from(LONGEST));
        vec![
            title(row.arm).to_owned(),
            format!("{} of {all}", all - failed),
            with_half(row.bytes[0], whole),
            times(row.to_direct[0]),
            of_paper(0),
            with_half(row.bytes[1], whole),
            times(row.to_direct[1]),
            of_paper(1),
            times(share),
            median(row.first_byte, 2),
            median(row.goodput, 0),
            median(row.to_tor, 2),
        ]
    };
    report_data.table.iter().map(row).collect()
}

/// Returns the text that explains the table with the quantities of the paper's Table 3.
pub(super) fn table_3() -> &'static str {
    "All downloads have 1,000,000 B. The downloads of one round use the same running programs \
     within minutes, so a round counts as one value. For numbers of bytes, the mean of each \
     round's completed downloads is taken, and then the mean over the rounds, with 95 % intervals \
     (Student's t). For first byte, goodput and its ratio to Tor alone in the same round, medians \
     replace both means. From six rounds on they have 95 % intervals (by ranks). A download that \
     was aborted or failed counts as the worst value. Each of our HTTP profiles is compared with \
     the paper's HTTP. Below \"the paper's\", the number in brackets is the paper's number of \
     bytes, divided by that of the paper's direct download."
}

/// Returns the column headings of the table with the values of Figure 7 (goodput over download
/// length).
pub(super) fn curve_head() -> Vec<String> {
    let lengths = LENGTHS.map(|bytes| format!("{} kB", bytes / 1_000));
    std::iter::once("connection".to_owned()).chain(lengths).collect()
}

/// Returns the values of Figure 7 as rows of a table. The paper's values follow the measured
/// values.
pub(super) fn curve_rows(report_data: &ReportData<'_>) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for curve in report_data.curves {
        let cell = |point: &Option<(Mean, usize)>| mean(point.map(|(mean, _)| mean), 1.0, 0);
        let name = title(curve.arm).to_owned();
        rows.push(std::iter::once(name.clone()).chain(curve.points.iter().map(cell)).collect());
        if let Some(points) = paper::figure_7(curve.arm) {
            let points = points.map(|point| format!("{point:.0}"));
            rows.push(std::iter::once(format!("{name}, the paper's")).chain(points).collect());
        }
    }
    rows
}

/// Returns all measured round-trip times in ms, in order.
pub(super) fn rtts(report_data: &ReportData<'_>) -> Vec<u32> {
    let mut rtts: Vec<u32> = report_data.boxes.iter().map(|one| one.rtt).collect();
    rtts.sort_unstable();
    rtts.dedup();
    rtts
}

/// Returns the measured pairs of an arm (kind of connection) and a stream rate in kB/s.
pub(super) fn arms_and_rates(report_data: &ReportData<'_>) -> Vec<(Arm, u32)> {
    let mut found: Vec<(Arm, u32)> = report_data.boxes.iter().map(|b| (b.arm, b.rate)).collect();
    found.dedup();
    found
}

/// Returns the column headings of the table with the values of Figure 6 (bandwidth over round-trip
/// time).
pub(super) fn box_head(report_data: &ReportData<'_>) -> Vec<String> {
    let rtts = rtts(report_data).into_iter().map(|rtt| format!("{rtt} ms"));
    ["connection", "stream, kB/s"].map(str::to_owned).into_iter().chain(rtts).collect()
}

/// Returns the values of Figure 6 as rows of a table: first the measured values, then the paper's.
pub(super) fn box_rows(report_data: &ReportData<'_>) -> Vec<Vec<String>> {
    let rtts = rtts(report_data);
    let mut rows = Vec::new();
    for (arm, rate) in arms_and_rates(report_data) {
        let there =
            |rtt| report_data.boxes.iter().find(|b| (b.arm, b.rate, b.rtt) == (arm, rate, rtt));
        let cell = |one: &StreamBox| {
            let [low, median, high] = one.down;
            let held = one.held.map_or_else(String::new, |held| percent(held.median));
            format!("{median:.0} ({low:.0}–{high:.0}) {held}")
        };
        let row = |name: String, cell: &dyn Fn(u32) -> Option<String>| -> Vec<String> {
            let cells = rtts.iter().map(|rtt| cell(*rtt).unwrap_or_else(|| NONE.to_owned()));
            [name, rate.to_string()].into_iter().chain(cells).collect()
        };
        let of_paper = |rtt| paper::figure_6(arm, rate, rtt).map(|value| format!("{value:.0}"));
        rows.push(row(title(arm).to_owned(), &|rtt| there(rtt).map(cell)));
        if rtts.iter().any(|rtt| of_paper(*rtt).is_some()) {
            rows.push(row(format!("{}, the paper's", title(arm)), &of_paper));
        }
    }
    rows
}

/// Returns the text that explains the chart of the paper's Figure 6.
pub(super) fn figure_6() -> &'static str {
    "Each cell of the table has two numbers. The first is the number of bytes that the client's \
     line receives per second, in kB/s: the median over all seconds of all rounds and, in \
     brackets, the lower and the upper quartile. The second is the payload that arrives per \
     second, as a share of the rate at which the web server sends the stream: the median over \
     rounds. The paper does not state in which direction it counts bandwidth. Its values are \
     about 70 kB/s higher than 1.07 times the rate of the stream. So the absolute values cannot \
     be compared with the paper. Only the constancy of the rate can be compared."
}

/// Describes the result of a measurement in a few words.
pub(super) fn outcome(record: &Measured) -> String {
    let busy = percent(record.busy);
    let failed = match record.error.is_empty() {
        true => String::new(),
        false => format!("; some transfers failed: {}", record.error),
    };
    if record.what == MeasurementKind::Streams {
        let held = record.streams.iter().map(|one| {
            let received: u64 = one.received.iter().sum();
            format!(
                "{:.0} of {} kB/s",
                received as f64 / 1e3 / one.received.len().max(1) as f64,
                one.rate
            )
        });
        let held = held.collect::<Vec<_>>().join(", ");
        return format!("{held}; CPUs {busy} busy{failed}");
    }
    let longest = record.downloads.iter().filter(|one| one.bytes == LONGEST);
    let goodput = Spread::of(longest.map(|one| Quantity::Goodput.of(one)));
    let goodput = goodput.map_or_else(|| NONE.to_owned(), |one| between(one, 1.0, 0));
    format!("downloads of 1 MB at {goodput} kB/s; CPUs {busy} busy{failed}")
}
