//! Result of one measurement of the experiment with unordered links, and its storage format.

use serde::{Deserialize, Serialize};

use super::super::table::{Column, Rows};
use super::super::{Disturbance, Record};
use super::plan::{Arm, Line};

/// One of the downloads that started at the same time. Times are in seconds since the SOCKS
/// request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Download {
    /// Length of the payload in bytes.
    pub bytes: u32,
    /// Time to the last byte; `None` if the download was cut off or failed.
    pub whole: Option<f64>,
}

/// Summary of the delays of cells on a link, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delays {
    /// Mean delay.
    pub mean: f64,
    /// Median, 90 % quantile and 99 % quantile.
    pub ranks: [f64; 3],
}

/// Delays of a link's cells for three rules of delivery, all computed from the same cells.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellDelays {
    /// Number of cells that the sender was to send.
    pub wanted: u32,
    /// Number of cells that arrived before the end of the measurement.
    #[serde(rename = "came")]
    pub received: u32,
    /// Share of the arrived cells that arrived more than a millisecond before TCP delivered them
    /// in order.
    pub early: f64,
    /// Delays if all cells are delivered in the order in which they were sent, as TCP does.
    pub in_order: Delays,
    /// Delays if the cells of each of [`CELL_CIRCUITS`](super::CELL_CIRCUITS) circuits are
    /// delivered in order, as by uTor (the FOCI 2013 paper's modified Tor).
    pub by_circuit: Delays,
    /// Delays if each cell is delivered when it arrives.
    pub unordered: Delays,
}

/// Result of one measurement of the experiment with unordered links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Name of the measurement in the plan.
    pub unit: String,
    /// Kind of link, and program, that was measured.
    pub arm: Arm,
    /// Properties of the emulated network lines: loss, delay variation and congestion control.
    pub line: Line,
    /// Index of the round (a pass over all settings), from 0.
    pub round: u32,
    /// Start time, in seconds since 1970.
    pub started: f64,
    /// Downloads sorted by length, shortest first; empty for a measurement of a single link.
    pub downloads: Vec<Download>,
    /// Delays of cells on a single link; `None` for a measurement of downloads.
    pub cells: Option<CellDelays>,
    /// Number of TLS records that the three relays, or the link's ends, decrypted before earlier
    /// records of the same connection had arrived.
    pub early_records: u64,
    /// Duration of the measurement in seconds, without the start of the network.
    pub seconds: f64,
    /// CPU time that guard, middle and exit used during the measurement, in seconds.
    pub cpu: [f64; 3],
    /// Share of the machine's CPU time that any process used during the measurement.
    pub busy: f64,
    /// Reason for the first failure of a download; empty if all completed.
    pub error: String,
    /// Load of the machine by other work during the measurement.
    pub machine: Disturbance,
}

impl Record for Measured {
    fn unit(&self) -> &str {
        &self.unit
    }
}

impl Delays {
    /// Summarises `delays`, which are in seconds; `None` if there are none.
    #[must_use]
    pub fn of(mut delays: Vec<f64>) -> Option<Delays> {
        delays.sort_by(f64::total_cmp);
        let last = delays.len().checked_sub(1)?;
        let rank = |share: f64| delays[(share * last as f64).round() as usize] * 1e3;
        let mean = delays.iter().sum::<f64>() / delays.len() as f64 * 1e3;
        Some(Delays { mean, ranks: [0.5, 0.9, 0.99].map(rank) })
    }
}

impl Measured {
    /// Returns the times of completed downloads in seconds, sorted from the shortest.
    #[must_use]
    pub fn times(&self) -> Vec<f64> {
        let mut times: Vec<f64> = self.downloads.iter().filter_map(|one| one.whole).collect();
        times.sort_by(f64::total_cmp);
        times
    }

    /// Returns the share of all downloads that completed within `seconds` seconds.
    #[must_use]
    pub fn done(&self, seconds: f64) -> f64 {
        let done = self.times().iter().filter(|time| **time <= seconds).count();
        done as f64 / self.downloads.len().max(1) as f64
    }

    /// Returns the time in seconds at which `share` of all downloads was complete; `None` if this
    /// share was never complete.
    #[must_use]
    pub fn moment(&self, share: f64) -> Option<f64> {
        let count = (share * self.downloads.len() as f64).ceil() as usize;
        self.times().get(count.checked_sub(1)?).copied()
    }
}

fn line_columns<R>(rows: &Rows<'_, R>, of: impl Fn(&R) -> &Measured + Copy) -> Vec<Column> {
    vec![
        rows.text("arm", |r| of(r).arm.to_string()),
        rows.int("loss", |r| of(r).line.loss),
        rows.text("direction", |r| of(r).line.direction.to_string()),
        rows.int("deviation", |r| of(r).line.deviation),
        rows.text("congestion", |r| of(r).line.congestion.to_string()),
        rows.text("order", |r| of(r).line.order.to_string()),
        rows.int("round", |r| of(r).round),
        rows.double("started", |r| of(r).started),
    ]
}

/// Returns the columns of the table of all downloads (`docs/formats.md`).
#[must_use]
pub fn columns(records: &[Measured]) -> Vec<Column> {
    let each: Vec<(&Measured, &Download)> = records
        .iter()
        .flat_map(|record| record.downloads.iter().map(move |one| (record, one)))
        .collect();
    let rows = Rows(&each);
    let mut columns = line_columns(&rows, |(record, _)| record);
    columns.extend([
        rows.long("bytes", |(_, one)| one.bytes.into()),
        rows.bool("ended", |(_, one)| one.whole.is_some()),
        // A missing time is stored as NaN, because the Parquet tables of this crate have no nulls.
        rows.double("whole", |(_, one)| one.whole.unwrap_or(f64::NAN)),
        rows.long("early_records", |(r, _)| r.early_records),
        rows.double("busy", |(r, _)| r.busy),
    ]);
    columns.extend(rows.machine("load", |(r, _)| r.machine));
    columns
}

/// Function that selects the delays for one of the three rules of delivery.
type DelaysOf = fn(&CellDelays) -> Delays;

/// Returns the columns of the table of single links (`docs/formats.md`).
#[must_use]
pub fn cell_columns(records: &[Measured]) -> Vec<Column> {
    let each: Vec<(&Measured, CellDelays)> =
        records.iter().filter_map(|record| Some((record, record.cells?))).collect();
    let rows = Rows(&each);
    let mut columns = line_columns(&rows, |(record, _)| record);
    columns.extend([
        rows.int("wanted", |(_, cells)| cells.wanted),
        rows.int("came", |(_, cells)| cells.received),
        rows.double("early", |(_, cells)| cells.early),
    ]);
    let orders: [(&str, DelaysOf); 3] = [
        ("in_order", |cells| cells.in_order),
        ("by_circuit", |cells| cells.by_circuit),
        ("unordered", |cells| cells.unordered),
    ];
    for (name, of) in orders {
        columns.push(rows.double(&format!("{name}_mean"), |(_, cells)| of(cells).mean));
        for (at, rank) in ["p50", "p90", "p99"].into_iter().enumerate() {
            columns.push(rows.double(&format!("{name}_{rank}"), |(_, cells)| of(cells).ranks[at]));
        }
    }
    columns.push(rows.double("busy", |(r, _)| r.busy));
    columns.extend(rows.machine("load", |(r, _)| r.machine));
    columns
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::super::table::{self, Values};
    use super::super::plan::{Congestion, Direction, SegmentOrder};
    use super::*;

    /// Emulated line of the tests: 5 % of the TCP segments from the exit are lost.
    pub(in super::super) const LINE: Line = Line {
        loss: 5,
        direction: Direction::FromExit,
        deviation: 0,
        congestion: Congestion::Bbr,
        order: SegmentOrder::Kept,
    };

    /// Returns a round of downloads that took `times`, and one download that was cut off.
    pub(in super::super) fn measured(arm: Arm, round: u32, times: &[f64]) -> Measured {
        let one = |whole| Download { bytes: 10_000, whole };
        let times = times.iter().map(|time| Some(*time)).chain([None]);
        Measured {
            unit: format!("{arm}/{}/{round}", LINE.name()),
            arm,
            line: LINE,
            round,
            started: 1.7e9,
            downloads: times.map(one).collect(),
            cells: None,
            early_records: 7,
            seconds: 10.0,
            cpu: [0.1; 3],
            busy: 0.5,
            error: "cut".to_owned(),
            machine: Disturbance::default(),
        }
    }

    /// Returns a round of a single link. The mean delays of its cells are `in_order` and
    /// `by_circuit`, in ms.
    pub(in super::super) fn link(round: u32, in_order: f64, by_circuit: f64) -> Measured {
        let delays = |mean| Delays { mean, ranks: [mean; 3] };
        let cells = CellDelays {
            wanted: 100,
            received: 99,
            early: 0.6,
            in_order: delays(in_order),
            by_circuit: delays(by_circuit),
            unordered: delays(by_circuit),
        };
        let none = measured(Arm::Cells, round, &[]);
        Measured { downloads: Vec::new(), cells: Some(cells), ..none }
    }

    #[test]
    fn shares_are_of_all_downloads_also_of_those_that_were_cut() {
        let one = measured(Arm::Ordered, 0, &[3.0, 1.0, 2.0]);
        assert_eq!((one.done(0.5), one.done(2.0), one.done(300.0)), (0.0, 0.5, 0.75));
        assert_eq!([0.25, 0.3, 0.75].map(|share| one.moment(share)), [1.0, 2.0, 3.0].map(Some));
        assert_eq!((one.moment(1.0), one.moment(0.0)), (None, None));
    }

    #[test]
    fn ranks_of_delays_are_in_ms() {
        let delays = Delays::of((0..=100).map(|at| f64::from(at) / 1e3).collect()).unwrap();
        assert!((delays.mean - 50.0).abs() < 1e-9, "{delays:?}");
        assert_eq!(delays.ranks.map(f64::round), [50.0, 90.0, 99.0]);
        assert_eq!(Delays::of(Vec::new()), None);
    }

    #[test]
    fn tables_have_a_row_for_each_download_and_for_each_link() {
        let records = [measured(Arm::Ordered, 0, &[3.0]), link(1, 100.0, 60.0)];
        let folder = tempfile::tempdir().unwrap();
        let (downloads, cells) = (columns(&records), cell_columns(&records));
        table::write(&folder.path().join("a.parquet"), &downloads, &[]).unwrap();
        table::write(&folder.path().join("b.parquet"), &cells, &[]).unwrap();
        assert!(downloads.contains(&("ended".to_owned(), Values::Bool(vec![true, false]))));
        assert!(cells.contains(&("came".to_owned(), Values::Int(vec![99]))));
    }
}
