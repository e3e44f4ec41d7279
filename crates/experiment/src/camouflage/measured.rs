//! Result of one measurement of the camouflage experiment, and its storage format.

use serde::{Deserialize, Serialize};

use super::super::table::{Column, Rows};
use super::super::{Disturbance, Record};
use super::plan::{Arm, MeasurementKind};

/// A download. Times are in seconds since the SOCKS request; for direct downloads, since the start
/// of the connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Download {
    /// Length of the payload in bytes.
    pub bytes: u32,
    /// Time to the first byte; `None` if the download was cut off or failed.
    pub first_byte: Option<f64>,
    /// Time to the last byte; `None` if the download was cut off or failed.
    pub whole: Option<f64>,
    /// Bytes of IP packets that the client sent over its access line for this download.
    pub up: u64,
    /// Bytes of IP packets that the client received over its access line for this download.
    pub down: u64,
}

/// A download whose server sends at a fixed rate. Each list has one value for each second since
/// the first byte.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// Sending rate of the web server in kB/s.
    pub rate: u32,
    /// Time from the SOCKS request to the first byte in seconds; `None` if no byte arrived.
    pub first_byte: Option<f64>,
    /// Time from the SOCKS request to the last byte in seconds; `None` if the stream was cut off
    /// or failed.
    pub whole: Option<f64>,
    /// Payload bytes that arrived in each second.
    #[serde(rename = "came")]
    pub received: Vec<u64>,
    /// Bytes of IP packets that the client sent over its access line in each second.
    pub up: Vec<u64>,
    /// Bytes of IP packets that the client received over its access line in each second.
    pub down: Vec<u64>,
}

/// Result of one measurement of the camouflage experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Name of the measurement in the plan.
    pub unit: String,
    /// Kind of measurement.
    pub what: MeasurementKind,
    /// The client's method of fetching: directly, or through Tor, with or without a transport.
    pub arm: Arm,
    /// Round-trip time of the client's access line, in ms.
    pub rtt: u32,
    /// Index of the round (a pass over all settings), from 0.
    pub round: u32,
    /// Start time, in seconds since 1970.
    pub started: f64,
    /// Time from the Tor client's start until it had bootstrapped, in seconds; 0 without Tor.
    pub bootstrap: f64,
    /// Downloads in the order of execution.
    pub downloads: Vec<Download>,
    /// Streams (downloads at a fixed rate) in the order of execution.
    pub streams: Vec<Stream>,
    /// Total duration of all downloads and streams, in seconds.
    pub seconds: f64,
    /// Share of the machine's CPU time that any process used during the measurement.
    pub busy: f64,
    /// Reason for the first failure of a download or stream; empty if all completed.
    pub error: String,
    /// Load of the machine by other work during the measurement.
    pub machine: Disturbance,
}

impl Record for Measured {
    fn unit(&self) -> &str {
        &self.unit
    }
}

impl Download {
    /// Returns the download's goodput from the request to the last byte, in kB/s; `None` if it was
    /// cut off or failed.
    #[must_use]
    pub fn goodput(&self) -> Option<f64> {
        Some(f64::from(self.bytes) / 1e3 / self.whole?)
    }
}

fn unit_columns<R>(rows: &Rows<'_, R>, of: impl Fn(&R) -> &Measured + Copy) -> Vec<Column> {
    vec![
        rows.text("arm", |r| of(r).arm.to_string()),
        rows.int("rtt", |r| of(r).rtt),
        rows.int("round", |r| of(r).round),
        rows.double("started", |r| of(r).started),
        rows.double("bootstrap", |r| of(r).bootstrap),
    ]
}

/// Replaces `None` by NaN, because the Parquet tables of this crate have no nulls.
fn or_none(value: Option<f64>) -> f64 {
    value.unwrap_or(f64::NAN)
}

/// Returns the columns of the table of all downloads (`docs/formats.md`).
#[must_use]
pub fn columns(records: &[Measured]) -> Vec<Column> {
    let each: Vec<(&Measured, &Download)> =
        records.iter().flat_map(|r| r.downloads.iter().map(move |one| (r, one))).collect();
    let rows = Rows(&each);
    let mut columns = unit_columns(&rows, |(record, _)| record);
    columns.extend([
        rows.bool("bare", |(record, _)| record.what == MeasurementKind::Bare),
        rows.long("bytes", |(_, one)| one.bytes.into()),
        rows.bool("ended", |(_, one)| one.whole.is_some()),
        rows.double("first_byte", |(_, one)| or_none(one.first_byte)),
        rows.double("whole", |(_, one)| or_none(one.whole)),
        rows.long("up", |(_, one)| one.up),
        rows.long("down", |(_, one)| one.down),
        rows.double("busy", |(r, _)| r.busy),
    ]);
    columns.extend(rows.machine("load", |(r, _)| r.machine));
    columns
}

/// Returns the columns of the table of all streams, with a row for each second
/// (`docs/formats.md`).
#[must_use]
pub fn stream_columns(records: &[Measured]) -> Vec<Column> {
    let each: Vec<(&Measured, &Stream, usize)> = records
        .iter()
        .flat_map(|r| r.streams.iter().map(move |one| (r, one)))
        .flat_map(|(r, one)| (0..one.received.len()).map(move |second| (r, one, second)))
        .collect();
    let rows = Rows(&each);
    let mut columns = unit_columns(&rows, |(record, ..)| record);
    columns.extend([
        rows.int("rate", |(_, one, _)| one.rate),
        rows.int("second", |(.., second)| *second as u32),
        rows.bool("ended", |(_, one, _)| one.whole.is_some()),
        rows.double("first_byte", |(_, one, _)| or_none(one.first_byte)),
        rows.long("came", |(_, one, second)| one.received[*second]),
        rows.long("up", |(_, one, second)| one.up[*second]),
        rows.long("down", |(_, one, second)| one.down[*second]),
        rows.double("busy", |(r, ..)| r.busy),
    ]);
    columns.extend(rows.machine("load", |(r, ..)| r.machine));
    columns
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::super::table::{self, Values};
    use super::super::plan::{LONGEST, RTT};
    use super::*;

    /// Returns a round of 1 MB downloads. `each` has their times and their bytes to the client; a
    /// hundredth of these bytes goes up.
    pub(in super::super) fn measured(arm: Arm, round: u32, each: &[(f64, u64)]) -> Measured {
        let download = |&(whole, down): &(f64, u64)| Download {
            bytes: LONGEST,
            first_byte: Some(0.25),
            whole: Some(whole),
            up: down / 100,
            down,
        };
        Measured {
            unit: format!("downloads/{arm}/{round}"),
            what: MeasurementKind::Downloads,
            arm,
            rtt: RTT,
            round,
            started: 1.7e9,
            bootstrap: 3.0,
            downloads: each.iter().map(download).collect(),
            streams: Vec::new(),
            seconds: 10.0,
            busy: 0.5,
            error: String::new(),
            machine: Disturbance::default(),
        }
    }

    /// Returns a stream of `rate` kB/s over 20 s. About `received` kB of it arrive in each second.
    /// The bytes on the wire are a tenth more.
    pub(in super::super) fn streamed(
        arm: Arm,
        (rtt, round): (u32, u32),
        rate: u32,
        received: u64,
    ) -> Measured {
        let each = |factor: u64| (0..20).map(|at| (received * 100 + at % 3) * factor).collect();
        let stream = Stream {
            rate,
            first_byte: Some(0.3),
            whole: Some(20.3),
            received: each(10),
            up: each(1),
            down: each(11),
        };
        let unit = format!("streams/{arm}/{rtt}/{round}");
        let none = measured(arm, round, &[]);
        Measured { unit, what: MeasurementKind::Streams, rtt, streams: vec![stream], ..none }
    }

    #[test]
    fn tables_have_a_row_for_each_download_and_for_each_second_of_a_stream() {
        let mut cut = measured(Arm::Text, 1, &[(2.0, 1_500_000)]);
        cut.downloads[0].whole = None;
        let records =
            [measured(Arm::Tor, 0, &[(2.0, 1_100_000)]), cut, streamed(Arm::Tor, (100, 0), 50, 50)];
        let folder = tempfile::tempdir().unwrap();
        let (downloads, streams) = (columns(&records), stream_columns(&records));
        table::write(&folder.path().join("a.parquet"), &downloads, &[]).unwrap();
        table::write(&folder.path().join("b.parquet"), &streams, &[]).unwrap();
        assert!(downloads.contains(&("ended".to_owned(), Values::Bool(vec![true, false]))));
        assert!(streams.contains(&("second".to_owned(), Values::Int((0..20).collect()))));
        assert_eq!(records[0].downloads[0].goodput(), Some(500.0));
    }
}
