//! The data set of page loads: a file with the traces of all split loads, and a file with the
//! traces of all unsplit loads.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::super::together::Attempt as _;
use super::{LoadResult, Mode, test_bed};
use anabranch_capture::{Row, Trace, TraceFacts, TraceWriter};

/// Source of the data set: the traces of single page loads, and the records of all attempts.
#[derive(Clone, Copy, Debug)]
pub struct Set<'a> {
    /// Directory with the trace of each single page load.
    pub traces: &'a Path,
    /// All attempts in the order of the journal, the file of the experiment's results. The index
    /// of an attempt in this list identifies the page load in the data set.
    pub records: &'a [LoadResult],
    /// Seed of the experiment, which is stored in the data set.
    pub seed: u64,
}

/// Reason why the data set of page loads could not be written.
#[derive(Debug)]
pub struct SetError {
    file: PathBuf,
    why: String,
}

impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.why)
    }
}

impl std::error::Error for SetError {}

impl Set<'_> {
    /// Writes the traces of all successful page loads of `mode` (split or unsplit) to the file
    /// `target` (`docs/formats.md`). Times are relative to the moment at which the browser was
    /// asked to open the page. Returns false, without writing a file, if no page load was
    /// successful.
    ///
    /// # Errors
    /// A trace cannot be read, or the file cannot be written. Then no file remains.
    pub fn write(&self, mode: Mode, target: &Path) -> Result<bool, SetError> {
        let loads = (0..).zip(self.records);
        let mut loads = loads.filter(|(_, l)| l.mode == mode && l.failed().is_none()).peekable();
        let Some((_, first)) = loads.peek() else { return Ok(false) };
        let wrong = |why: io::Error| SetError { file: target.to_owned(), why: why.to_string() };
        let facts = self.facts(first)?;
        let mut writer = TraceWriter::create(target, &facts).map_err(wrong)?;
        for (number, load) in loads {
            self.copy(number, load, &mut writer)?;
        }
        writer.finish().map_err(wrong)?;
        Ok(true)
    }

    /// Returns the metadata of the data set: the metadata of the trace of `load`, with the seed of
    /// the experiment. The start time is left out, because each page load has a different one.
    fn facts(&self, load: &LoadResult) -> Result<TraceFacts, SetError> {
        let (trace, _) = self.open(load)?;
        Ok(TraceFacts { start: None, seed: Some(self.seed), ..trace.facts().clone() })
    }

    fn open(&self, load: &LoadResult) -> Result<(Trace, PathBuf), SetError> {
        let file = self.traces.join(load.trace());
        match Trace::open(&file) {
            Ok(trace) => Ok((trace, file)),
            Err(error) => Err(SetError { file, why: error.to_string() }),
        }
    }

    fn copy(&self, number: i64, load: &LoadResult, to: &mut TraceWriter) -> Result<(), SetError> {
        let (trace, file) = self.open(load)?;
        let wrong = |why: &dyn fmt::Display| SetError { file: file.clone(), why: why.to_string() };
        let started: SystemTime = UNIX_EPOCH + Duration::from_secs_f64(load.started);
        let offset = test_bed::since(&trace, started).map_err(|e| wrong(&e))?;
        let run = i32::try_from(load.repetition).unwrap_or(i32::MAX);
        let mut written = Ok(());
        let read = trace.for_each(|row| {
            if row.time >= offset && written.is_ok() {
                written = to.push(&Row {
                    load: number,
                    label: &load.site,
                    monitored: load.monitored,
                    run,
                    time: row.time - offset,
                    ..*row
                });
            }
        });
        read.map_err(|e| wrong(&e))?;
        written.map_err(|e| wrong(&e))
    }
}

#[cfg(test)]
mod tests {
    use super::super::loaded::tests::loaded;
    use super::*;

    /// Writes a trace that begins two seconds before the page is opened.
    fn trace(folder: &Path, load: &LoadResult) {
        let start = UNIX_EPOCH + Duration::from_secs_f64(load.started - 2.0);
        let paths = (0..load.mode.paths()).map(|n| format!("p{n}")).collect();
        let facts = TraceFacts { paths, start: Some(start), ..TraceFacts::default() };
        let mut writer = TraceWriter::create(&folder.join(load.trace()), &facts).unwrap();
        let row =
            Row { load: 1, label: "", monitored: false, run: 0, path: 0, time: 1.0, size: 99 };
        writer.push(&row).unwrap();
        writer.push(&Row { time: 2.5, size: 1228, ..row }).unwrap();
        writer.push(&Row { time: 2.75, size: -1500, ..row }).unwrap();
        writer.finish().unwrap();
    }

    #[test]
    fn good_loads_become_one_trace_with_their_labels_and_their_own_time() {
        let folder = tempfile::tempdir().unwrap();
        let failed = LoadResult { error: "no".into(), attempt: 1, ..loaded(Mode::Split, "a", 0) };
        let again = LoadResult { attempt: 2, ..loaded(Mode::Split, "a", 0) };
        let other = LoadResult { monitored: false, ..loaded(Mode::Split, "b", 0) };
        let records = [failed, again, loaded(Mode::Undefended, "a", 0), other];
        records.iter().for_each(|load| trace(folder.path(), load));
        let set = Set { traces: folder.path(), records: &records, seed: 7 };
        let target = folder.path().join("split.parquet");
        assert!(set.write(Mode::Split, &target).unwrap());
        let trace = Trace::open(&target).unwrap();
        assert_eq!((trace.facts().seed, trace.facts().start), (Some(7), None));
        let mut rows = Vec::new();
        trace
            .for_each(|r| {
                let time = (r.time * 1e6).round() as i64;
                rows.push((r.load, r.label.to_owned(), r.monitored, time, r.size));
            })
            .unwrap();
        let row = |load, label: &str, time, size| (load, label.to_owned(), load == 1, time, size);
        let expected = [
            row(1, "a", 500_000, 1228),
            row(1, "a", 750_000, -1500),
            row(3, "b", 500_000, 1228),
            row(3, "b", 750_000, -1500),
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn no_loads_make_no_file_and_a_missing_trace_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("split.parquet");
        let empty = Set { traces: folder.path(), records: &[], seed: 7 };
        assert!(!empty.write(Mode::Split, &target).unwrap());
        let records = [loaded(Mode::Split, "a", 0)];
        let error = Set { records: &records, ..empty }.write(Mode::Split, &target).unwrap_err();
        assert!(error.to_string().contains("split~a~0.parquet"), "{error}");
        assert!(!target.exists());
    }
}
