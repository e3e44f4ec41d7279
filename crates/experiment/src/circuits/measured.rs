//! Result of one measurement of the circuits experiment, and its storage format.

use serde::{Deserialize, Serialize};

use super::super::table::{Column, Rows};
use super::super::{Disturbance, Record};
use super::plan::{Design, Layout, Load};

/// Number of bytes in a MiB, the unit in which the size of bulk downloads is given.
pub const MIB: usize = 1 << 20;

/// One repetition: a web page, then a bulk download. Times are in seconds since the SOCKS request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repetition {
    /// True if the HTTP request was sent together with the SOCKS request (optimistic data).
    pub optimistic: bool,
    /// Time to the first byte of the web page.
    pub first_byte: f64,
    /// Time to the last byte of the web page.
    pub web: f64,
    /// Time to the last byte of the bulk download.
    pub bulk: f64,
}

/// Result of one measurement: repeated fetches with one design (a way to split streams over
/// circuits), in one network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Name of the measurement in the plan.
    pub unit: String,
    /// Design (protocol and scheduler that split streams over circuits) that was measured.
    pub design: Design,
    /// Number of circuits over which the measuring client splits a stream.
    pub legs: u32,
    /// Topology of the network.
    pub place: Layout,
    /// Rule for the choice of relays by load clients (clients that only create load).
    #[serde(default)]
    pub load: Load,
    /// Load in the topology [`Layout::Line`], in percent of the rate of one guard's access line;
    /// `None` in other topologies.
    #[serde(default)]
    pub level: Option<u32>,
    /// Index of the round (a pass over all settings), from 0.
    pub round: u32,
    /// Start time, in seconds since 1970.
    pub started: f64,
    /// Results of the measured repetitions.
    pub repetitions: Vec<Repetition>,
    /// Number of fetches by the measuring client that failed.
    pub failed: u32,
    /// Duration of all repetitions in seconds, including pauses.
    pub seconds: f64,
    /// Bytes that the measuring client and the load clients together fetched during the
    /// repetitions.
    pub bytes: u64,
    /// Number of failed fetches by load clients (clients that only create load).
    pub load_failed: u64,
    /// CPU seconds that each of the three guards, the three middles and the exit used during the
    /// repetitions.
    pub cpu: [f64; 7],
    /// Share of the machine's CPU time that any process used during the measurement.
    pub busy: f64,
    /// Error of the last failed fetch; empty if none failed.
    pub error: String,
    /// Load of the machine by other work during the repetitions.
    pub machine: Disturbance,
}

impl Record for Measured {
    fn unit(&self) -> &str {
        &self.unit
    }
}

impl Measured {
    fn megabytes(&self) -> f64 {
        self.bytes as f64 / 1e6
    }

    /// Returns the CPU time per MB that the network carried, in ms: of all guards together, of all
    /// middles together, and of the exit.
    pub fn per_megabyte(&self) -> [f64; 3] {
        let [a, b, c, d, e, f, exit] = self.cpu;
        [a + b + c, d + e + f, exit].map(|seconds| seconds * 1e3 / self.megabytes().max(1e-9))
    }

    /// Returns the CPU time per MB that the network carried, in ms: of one guard, of one middle,
    /// and of the exit. Counts only relays that the clients use. Returns `None` if clients spread
    /// their circuits over all guards.
    pub fn of_one(&self) -> Option<[f64; 3]> {
        let employed = f64::from(self.legs);
        let [guards, middles, exit] = self.per_megabyte();
        (self.load == Load::ClientRelays).then_some([guards / employed, middles / employed, exit])
    }

    /// Returns the CPU use of one guard, of one middle and of the exit, in percent of one core, as
    /// in the DBSec 2019 paper.
    pub fn percent(&self) -> [f64; 3] {
        let [a, b, c, d, e, f, exit] = self.cpu;
        let share = |seconds: f64| seconds * 100.0 / self.seconds.max(1e-9);
        [share((a + b + c) / 3.0), share((d + e + f) / 3.0), share(exit)]
    }
}

/// Returns the columns of the table of all repetitions (`docs/formats.md`).
pub fn columns(records: &[Measured]) -> Vec<Column> {
    let each: Vec<(&Measured, &Repetition)> = records
        .iter()
        .flat_map(|record| record.repetitions.iter().map(move |one| (record, one)))
        .collect();
    let rows = Rows(&each);
    let mut columns = vec![
        rows.text("design", |(r, _)| r.design.to_string()),
        rows.int("legs", |(r, _)| r.legs),
        rows.text("place", |(r, _)| r.place.name().to_owned()),
        rows.text("circuits", |(r, _)| r.load.name().to_owned()),
        rows.double("level", |(r, _)| r.level.map_or(f64::NAN, f64::from)),
        rows.int("round", |(r, _)| r.round),
        rows.double("started", |(r, _)| r.started),
        rows.bool("optimistic", |(_, one)| one.optimistic),
        rows.double("first_byte", |(_, one)| one.first_byte),
        rows.double("web", |(_, one)| one.web),
        rows.double("bulk", |(_, one)| one.bulk),
        rows.int("failed", |(r, _)| r.failed),
        rows.long("load_failed", |(r, _)| r.load_failed),
        rows.double("seconds", |(r, _)| r.seconds),
        rows.long("bytes", |(r, _)| r.bytes),
        rows.double("busy", |(r, _)| r.busy),
    ];
    for (at, name) in ["guards", "middles", "exit"].into_iter().enumerate() {
        columns.push(rows.double(&format!("{name}_ms_per_mb"), |(r, _)| r.per_megabyte()[at]));
        columns.push(rows.double(&format!("{name}_percent"), |(r, _)| r.percent()[at]));
    }
    columns.extend(rows.machine("load", |(r, _)| r.machine));
    columns
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::super::table::{self, Values};
    use super::*;

    /// Returns a measurement of a network in which a page takes `web` seconds.
    pub(in super::super) fn measured(design: Design, legs: u32, round: u32, web: f64) -> Measured {
        let one =
            |optimistic| Repetition { optimistic, first_byte: web / 4.0, web, bulk: web * 2.0 };
        Measured {
            unit: format!("{design}/{legs}/loopback/{round}"),
            design,
            legs,
            place: Layout::Loopback,
            load: Load::Spread,
            level: None,
            round,
            started: 1.7e9,
            repetitions: vec![one(false), one(true)],
            failed: 0,
            seconds: 10.0,
            bytes: 100_000_000,
            load_failed: 0,
            cpu: [1.0, 0.5, 0.3, 0.2, 0.2, 0.2, 1.5],
            busy: 0.5,
            error: String::new(),
            machine: Disturbance::default(),
        }
    }

    #[test]
    fn cpu_is_told_for_each_megabyte_and_as_a_share_of_a_core() {
        let one = measured(Design::Tor, 1, 0, 0.1);
        let near = |got: [f64; 3], wanted: [f64; 3]| {
            got.iter().zip(wanted).all(|(got, wanted)| (got - wanted).abs() < 1e-9)
        };
        assert!(near(one.per_megabyte(), [18.0, 6.0, 15.0]), "{:?}", one.per_megabyte());
        assert!(near(one.percent(), [6.0, 2.0, 15.0]), "{:?}", one.percent());
    }

    #[test]
    fn the_table_has_a_row_for_each_repetition_and_can_be_written() {
        let columns =
            columns(&[measured(Design::Tor, 1, 0, 0.1), measured(Design::MTor, 2, 0, 0.2)]);
        let folder = tempfile::tempdir().unwrap();
        table::write(&folder.path().join("circuits.parquet"), &columns, &[]).unwrap();
        assert!(columns.contains(&("legs".to_owned(), Values::Int(vec![1, 1, 2, 2]))));
    }
}
