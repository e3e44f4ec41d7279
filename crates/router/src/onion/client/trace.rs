//! A client's log of cells as its guards see them. The log has a row for each cell of a circuit
//! that carries programs' streams (`docs/formats.md`). The column `load` identifies the circuit's
//! set, the circuits that carry the same streams. The column `path` has the circuit's index in the
//! set.

use std::io;
use std::path::Path;

use anabranch_capture::{Row, SizeUnit, TraceFacts, TraceWriter};
use anabranch_multipath::Time;
use anabranch_onion::client::CellSeen;
use anabranch_onion::conflux::LegScheduler;
use anabranch_onion::wire::cell::CELL;
use anabranch_os::clock::Clock;

use super::sets::SetLeg;

/// Number of circuits in a set that get names in the trace file's header. Further circuits are
/// identified by their index only.
const NAMED: usize = 8;

/// Writer of a log of cells, which this project calls a trace.
pub(super) struct CellTrace {
    writer: TraceWriter,
    latest: Time,
}

impl CellTrace {
    /// Creates the trace file `target`, a log of cells. Its times are relative to the start of
    /// `clock`.
    ///
    /// # Errors
    /// The errors of [`TraceWriter::create`].
    pub(super) fn create(
        target: &Path,
        clock: &Clock,
        dealing: Option<&LegScheduler>,
    ) -> io::Result<CellTrace> {
        let schedule = |LegScheduler { schedule, every, .. }: &LegScheduler| {
            format!("{schedule} --every {every}")
        };
        let facts = TraceFacts {
            paths: (0..NAMED).map(|leg| format!("leg {leg}")).collect(),
            start: Some(clock.wall_start()),
            schedule: dealing.map(schedule),
            unit: SizeUnit::Cell,
            ..TraceFacts::default()
        };
        Ok(CellTrace { writer: TraceWriter::create_surviving(target, &facts)?, latest: Time::ZERO })
    }

    /// Writes a row for the cell `seen`. `set` identifies the set of its circuit, and `leg` the
    /// circuit within the set.
    ///
    /// # Errors
    /// Writing failed, or the disk is too slow.
    pub(super) fn push(&mut self, seen: &CellSeen, SetLeg { set, leg }: SetLeg) -> io::Result<()> {
        self.latest = self.latest.max(seen.time);
        self.writer.flush(self.latest.secs_f64())?;
        let size = CELL as i32;
        self.writer.push(&Row {
            load: i64::try_from(set).map_err(io::Error::other)?,
            label: "",
            monitored: false,
            run: 0,
            path: i16::try_from(leg).map_err(io::Error::other)?,
            time: self.latest.secs_f64(),
            size: if seen.outward { size } else { -size },
        })
    }

    /// Completes the trace file. Renames it to its final name, if that was not done already.
    ///
    /// # Errors
    /// Writing failed. Rows that were written to the disk earlier are kept.
    pub(super) fn finish(self) -> io::Result<()> {
        self.writer.finish()
    }
}

#[cfg(test)]
mod tests {
    use anabranch_onion::client::CircuitKey;

    use super::*;
    use anabranch_capture::Trace;

    #[test]
    fn a_set_is_a_load_and_a_leg_a_path_whatever_its_circuit() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a.parquet");
        let dealing =
            LegScheduler::as_desired(anabranch_onion::wire::conflux::DesiredUx::HighThroughput);
        let mut trace = CellTrace::create(&target, &Clock::start(), Some(&dealing)).unwrap();
        for (ms, circuit, outward, leg) in [(5, 3, true, 0), (7, 9, true, 1), (7, 3, false, 0)] {
            let (time, circuit) = (Time::from_millis(ms), CircuitKey(circuit));
            trace.push(&CellSeen { time, circuit, outward }, SetLeg { set: 3, leg }).unwrap();
        }
        trace.finish().unwrap();
        let trace = Trace::open(&target).unwrap();
        let facts = trace.facts();
        assert_eq!((facts.unit, facts.path_name(1)), (SizeUnit::Cell, "leg 1".to_owned()));
        assert_eq!(facts.schedule.as_deref(), Some("lowrtt --every 1p"));
        let mut rows = Vec::new();
        trace.for_each(|row| rows.push((row.load, row.path, row.time, row.size))).unwrap();
        assert_eq!(rows, [(3, 0, 0.005, 514), (3, 1, 0.007, 514), (3, 0, 0.007, -514)]);
    }
}
