//! What came of one load, and how it is stored.

use serde::{Deserialize, Serialize};

use super::super::table::{Column, Rows, Values};
use super::super::together::Attempt;
use super::super::{Disturbance, Record};
use super::{Mode, RTTS};

/// One attempt at a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// Its name in the plan.
    pub unit: String,
    /// The site's name, which is the label in the traces.
    pub site: String,
    /// The page's address.
    pub page: String,
    /// Whether the site is one that an attacker watches for.
    pub monitored: bool,
    /// How it was carried.
    pub mode: Mode,
    /// From 0.
    pub repetition: u32,
    /// From 1: the attempt at this load.
    pub attempt: u32,
    /// Of the splitter's choices.
    pub seed: u64,
    /// `h2` or `h3`.
    pub http: String,
    /// When the browser was told to open the page, seconds since 1970.
    pub started: f64,
    /// From the first request to the load event, by the browser's clock.
    pub seconds: f64,
    /// What the whole attempt took, the browser's start included.
    pub took: f64,
    /// Requests to servers.
    pub requests: u32,
    /// Of them, those to third parties, and others that fail each time.
    pub refused: u32,
    /// Packets that each path carried from the client.
    pub up_packets: Vec<u64>,
    /// Bytes of them, as IP packets.
    pub up: Vec<u64>,
    /// Packets that each path brought to the client.
    pub down_packets: Vec<u64>,
    /// Bytes of them.
    pub down: Vec<u64>,
    /// Browsers at work at once.
    pub browsers: u32,
    /// Why it failed; empty if it did not.
    pub error: String,
    /// What else the machine did meanwhile.
    pub machine: Disturbance,
}

impl Record for Loaded {
    fn unit(&self) -> &str {
        &self.unit
    }
}

impl Attempt for Loaded {
    fn failed(&self) -> Option<&str> {
        (!self.error.is_empty()).then_some(self.error.as_str())
    }
}

impl Loaded {
    /// The name of its trace in the folder of traces, which is its unit's.
    pub fn trace(&self) -> String {
        format!("{}.parquet", self.unit.replace('/', "~"))
    }

    /// Bytes of IP packets that it took, in both directions and by all paths.
    pub fn bytes(&self) -> u64 {
        self.up.iter().chain(&self.down).sum()
    }

    /// How many paths brought something to the client.
    pub fn used(&self) -> usize {
        self.down.iter().filter(|&&bytes| bytes > 0).count()
    }

    /// The share of the downlink's bytes of the path that brought most of them.
    pub fn largest_share(&self) -> f64 {
        let whole: u64 = self.down.iter().sum();
        self.down.iter().copied().max().unwrap_or(0) as f64 / whole.max(1) as f64
    }
}

/// The columns of the table of all attempts (`docs/formats.md`). Those that did not fail have the
/// number of their load in the traces, others -1.
pub fn columns(records: &[Loaded]) -> Vec<Column> {
    let rows = Rows(records);
    let number = |(at, r): (usize, &Loaded)| if r.error.is_empty() { at as i64 } else { -1 };
    let numbers = records.iter().enumerate().map(number).collect();
    let mut columns = vec![
        ("load".to_owned(), Values::Long(numbers)),
        rows.text("mode", |r| r.mode.name().to_owned()),
        rows.text("label", |r| r.site.clone()),
        rows.text("page", |r| r.page.clone()),
        rows.bool("monitored", |r| r.monitored),
        rows.int("run", |r| r.repetition),
        rows.int("attempt", |r| r.attempt),
        // As text: half of all seeds do not fit into a signed number of 64 bits.
        rows.text("seed", |r| r.seed.to_string()),
        rows.text("http", |r| r.http.clone()),
        rows.double("started", |r| r.started),
        rows.double("seconds", |r| r.seconds),
        rows.double("took", |r| r.took),
        rows.int("requests", |r| r.requests),
        rows.int("refused", |r| r.refused),
        rows.int("browsers", |r| r.browsers),
        rows.text("error", |r| r.error.clone()),
    ];
    columns.extend(rows.machine("load_average", |r| r.machine));
    type Counts = fn(&Loaded) -> &Vec<u64>;
    let counts: [(&str, Counts); 4] = [
        ("up_packets", |r| &r.up_packets),
        ("up", |r| &r.up),
        ("down_packets", |r| &r.down_packets),
        ("down", |r| &r.down),
    ];
    for path in 0..RTTS.len() {
        for (name, of) in counts {
            let bytes = |r: &Loaded| of(r).get(path).copied().unwrap_or(0);
            columns.push(rows.long(&format!("p{path}_{name}"), bytes));
        }
    }
    columns
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn loaded(mode: Mode, site: &str, repetition: u32) -> Loaded {
        let paths = mode.paths();
        Loaded {
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
            took: 4.0,
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
        let failed = Loaded { error: "no".to_owned(), ..loaded(Mode::Split, "a", 0) };
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
