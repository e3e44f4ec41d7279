//! Result of one page load, and its storage format.

use serde::{Deserialize, Serialize};

use super::super::table::{Column, Rows, Values};
use super::super::together::Attempt;
use super::super::{Disturbance, Record};
use super::{Mode, RTTS};

/// Result of one attempt at a page load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// Name of the planned page load, which all attempts share.
    pub unit: String,
    /// Name of the site, which is also the label of the page load in the traces.
    pub site: String,
    /// URL of the page.
    pub page: String,
    /// True if the attacker monitors the site.
    pub monitored: bool,
    /// Kind of page load: split over several paths, or undefended on one path.
    pub mode: Mode,
    /// Index of the repetition, from 0.
    pub repetition: u32,
    /// Number of the attempt at this page load, from 1.
    pub attempt: u32,
    /// Seed of the splitter's random choices.
    pub seed: u64,
    /// HTTP version, `h2` or `h3`.
    pub http: String,
    /// Time at which the browser was asked to open the page, in seconds since 1970.
    pub started: f64,
    /// Time from the first request to the page's load event, in seconds by the browser's clock.
    pub seconds: f64,
    /// Duration of the whole attempt in seconds, including the browser's start.
    #[serde(rename = "took")]
    pub elapsed: f64,
    /// Number of requests that the browser sent to servers.
    pub requests: u32,
    /// Number of failed requests that fail in every load of the page because of its content, such
    /// as requests to third parties.
    pub refused: u32,
    /// Number of packets that the client sent on each path.
    pub up_packets: Vec<u64>,
    /// Bytes of IP packets that the client sent on each path.
    pub up: Vec<u64>,
    /// Number of packets that the client received on each path.
    pub down_packets: Vec<u64>,
    /// Bytes of IP packets that the client received on each path.
    pub down: Vec<u64>,
    /// Number of browsers that loaded pages at the same time.
    pub browsers: u32,
    /// Reason for the failure; empty if the page load succeeded.
    pub error: String,
    /// Load of the machine by other work during the page load.
    pub machine: Disturbance,
}

impl Record for LoadResult {
    fn unit(&self) -> &str {
        &self.unit
    }
}

impl Attempt for LoadResult {
    fn failed(&self) -> Option<&str> {
        (!self.error.is_empty()).then_some(self.error.as_str())
    }
}

impl LoadResult {
    /// Returns the file name of the page load's trace in the directory of traces.
    pub fn trace(&self) -> String {
        format!("{}.parquet", self.unit.replace('/', "~"))
    }

    /// Returns the bytes of the page load's IP packets, in both directions and on all paths.
    pub fn bytes(&self) -> u64 {
        self.up.iter().chain(&self.down).sum()
    }

    /// Returns the number of paths that carried data to the client.
    pub fn used(&self) -> usize {
        self.down.iter().filter(|&&bytes| bytes > 0).count()
    }

    /// Returns the largest share of the bytes to the client that one path carried.
    pub fn largest_share(&self) -> f64 {
        let whole: u64 = self.down.iter().sum();
        self.down.iter().copied().max().unwrap_or(0) as f64 / whole.max(1) as f64
    }
}

/// Returns the columns of the table of all attempts (`docs/formats.md`). The column `load` has the
/// identifier of the page load in the traces, or -1 for a failed attempt.
pub fn columns(records: &[LoadResult]) -> Vec<Column> {
    let rows = Rows(records);
    let number = |(at, r): (usize, &LoadResult)| if r.error.is_empty() { at as i64 } else { -1 };
    let numbers = records.iter().enumerate().map(number).collect();
    let mut columns = vec![
        ("load".to_owned(), Values::Long(numbers)),
        rows.text("mode", |r| r.mode.name().to_owned()),
        rows.text("label", |r| r.site.clone()),
        rows.text("page", |r| r.page.clone()),
        rows.bool("monitored", |r| r.monitored),
        rows.int("run", |r| r.repetition),
        rows.int("attempt", |r| r.attempt),
        // The seed is stored as text, because half of all seeds do not fit into a signed 64-bit
        // integer.
        rows.text("seed", |r| r.seed.to_string()),
        rows.text("http", |r| r.http.clone()),
        rows.double("started", |r| r.started),
        rows.double("seconds", |r| r.seconds),
        rows.double("took", |r| r.elapsed),
        rows.int("requests", |r| r.requests),
        rows.int("refused", |r| r.refused),
        rows.int("browsers", |r| r.browsers),
        rows.text("error", |r| r.error.clone()),
    ];
    columns.extend(rows.machine("load_average", |r| r.machine));
    type Counts = fn(&LoadResult) -> &Vec<u64>;
    let counts: [(&str, Counts); 4] = [
        ("up_packets", |r| &r.up_packets),
        ("up", |r| &r.up),
        ("down_packets", |r| &r.down_packets),
        ("down", |r| &r.down),
    ];
    for path in 0..RTTS.len() {
        for (name, of) in counts {
            let bytes = |r: &LoadResult| of(r).get(path).copied().unwrap_or(0);
            columns.push(rows.long(&format!("p{path}_{name}"), bytes));
        }
    }
    columns
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn loaded(mode: Mode, site: &str, repetition: u32) -> LoadResult {
        let paths = mode.paths();
        LoadResult {
            unit: format!("{}/{site}/{repetition}", mode.name()),
            site: site.to_owned(),
            page: format!("https://{site}.example/"),
            monitored: true,
            mode,
            repetition,
            attempt: 1,
            seed: u64::MAX,
            http: "h3".to_owned(),
            started: 1.7e9,
            seconds: 0.5,
            elapsed: 4.0,
            requests: 7,
            refused: 1,
            up_packets: vec![10; paths],
            up: vec![1000; paths],
            down_packets: vec![20; paths],
            down: vec![20_000; paths],
            browsers: 1,
            error: String::new(),
            machine: Disturbance::default(),
        }
    }

    #[test]
    fn all_columns_are_of_one_length_and_can_be_written() {
        let failed = LoadResult { error: "no".to_owned(), ..loaded(Mode::Split, "a", 0) };
        let columns = columns(&[failed, loaded(Mode::Undefended, "b", 1)]);
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("loads.parquet");
        super::super::super::table::write(&target, &columns, &[]).unwrap();
        assert!(columns.contains(&("load".to_owned(), Values::Long(vec![-1, 1]))));
        assert!(columns.contains(&("p1_down".to_owned(), Values::Long(vec![20_000, 0]))));
    }

    #[test]
    fn the_trace_of_a_load_has_a_plain_name() {
        assert_eq!(loaded(Mode::Split, "a.js", 3).trace(), "split~a.js~3.parquet");
    }
}
