//! What came of one network, and how it is stored.

use serde::{Deserialize, Serialize};

use super::super::table::{Column, Rows};
use super::super::{Disturbance, Record};
use super::plan::{Design, Load, Place};

/// A bulk download is of so many times as many bytes as there are to be MiB.
pub const MIB: usize = 1 << 20;

/// One repetition: a web page and then a bulk download, in seconds from the SOCKS request on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repetition {
    /// Whether the HTTP request left with the SOCKS request.
    pub optimistic: bool,
    /// Until the page's first byte.
    pub first_byte: f64,
    /// Until its last one.
    pub web: f64,
    /// Until the last byte of the bulk download.
    pub bulk: f64,
}

/// A network in which a design was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Its name in the plan.
    pub unit: String,
    /// Of what.
    pub design: Design,
    /// Over so many circuits.
    pub legs: u32,
    /// Where.
    pub place: Place,
    /// The circuits of the clients that loaded the network.
    #[serde(default)]
    pub load: Load,
    /// Load in per cent of one guard's line, in [`Place::Line`].
    #[serde(default)]
    pub level: Option<u32>,
    /// The round, from 0.
    pub round: u32,
    /// When it began, in seconds since 1970.
    pub started: f64,
    /// What was measured.
    pub repetitions: Vec<Repetition>,
    /// Fetches that failed, of the client that measures.
    pub failed: u32,
    /// Seconds that the repetitions took, pauses included.
    pub seconds: f64,
    /// Bytes that all clients fetched meanwhile.
    pub bytes: u64,
    /// Fetches of the clients that load the network which failed.
    pub load_failed: u64,
    /// CPU seconds of the three guards, the three middles and the exit meanwhile.
    pub cpu: [f64; 7],
    /// The share of the machine's CPUs that was in use.
    pub busy: f64,
    /// Why some of it failed; empty if nothing did.
    pub error: String,
    /// What else the machine did meanwhile.
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

    /// CPU of a place of circuits in ms for each MB that the network carried: all guards, all
    /// middles, the exit.
    pub fn per_megabyte(&self) -> [f64; 3] {
        let [a, b, c, d, e, f, exit] = self.cpu;
        [a + b + c, d + e + f, exit].map(|seconds| seconds * 1e3 / self.megabytes().max(1e-9))
    }

    /// CPU of one employed guard, of one employed middle and of the exit in ms for each MB that the
    /// network carried; `None` where clients use all guards, so that none is employed.
    pub fn of_one(&self) -> Option<[f64; 3]> {
        let employed = f64::from(self.legs);
        let [guards, middles, exit] = self.per_megabyte();
        (self.load == Load::Employed).then_some([guards / employed, middles / employed, exit])
    }

    /// CPU in per cent of one core, as the paper has it: of a guard, of a middle, of the exit.
    pub fn percent(&self) -> [f64; 3] {
        let [a, b, c, d, e, f, exit] = self.cpu;
        let share = |seconds: f64| seconds * 100.0 / self.seconds.max(1e-9);
        [share((a + b + c) / 3.0), share((d + e + f) / 3.0), share(exit)]
    }
}

/// The columns of the table of all repetitions (`docs/formats.md`).
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

    /// A network whose pages take so long.
    pub(in super::super) fn measured(design: Design, legs: u32, round: u32, web: f64) -> Measured {
        let one =
            |optimistic| Repetition { optimistic, first_byte: web / 4.0, web, bulk: web * 2.0 };
        Measured {
            unit: format!("{design}/{legs}/loopback/{round}"),
            design,
            legs,
            place: Place::Loopback,
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
