//! The writer of traces in Parquet: a row per datagram, in row groups written as they fill.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anabranch_multipath::Time;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::{FileMetaData, ParquetMetaDataBuilder, ParquetMetaDataWriter};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use super::facts::{COLUMNS, LateFacts, MESSAGE};
use super::live::LiveFile;
use super::worker::{Sink, Worker};
use super::{FLUSH_INTERVAL, ObservedBatch, Tap, TraceFacts, Transport, invalid, same_label};

/// Number of rows in a row group, which needs 4 MB of memory.
const GROUP: usize = 1 << 17;

/// Maximum number of copies of a label that are passed to the Parquet encoder at once, which
/// bounds memory.
const LABELS: usize = 1 << 10;

/// A row of a trace: one datagram or, with some values of [`SizeUnit`](super::SizeUnit), one Tor
/// cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row<'a> {
    /// Identifier of the page load or session, unique within `run`.
    pub load: i64,
    /// The label of the page load: the page or site that was loaded. Empty if unknown.
    pub label: &'a str,
    /// Whether an attacker tries to recognise loads of this label (in the open-world setting of
    /// website fingerprinting).
    pub monitored: bool,
    /// Index of the repetition of the experiment, from 0.
    pub run: i32,
    /// Index of the path; -1 is the whole, unsplit traffic.
    pub path: i16,
    /// Time in seconds since the trace began.
    pub time: f64,
    /// Size in the trace's unit ([`SizeUnit`](super::SizeUnit)): positive from client to server,
    /// negative from server to client.
    pub size: i32,
}

/// A writer of traces for any producer of rows: a splitter, a test bed or a simulator.
///
/// The writer uses at most about 16 MB of memory, plus about 3 KB for each 131,072 rows of the
/// trace.
pub struct TraceWriter {
    rows: Rows,
    /// Time at which rows were last passed to the writing thread, in seconds since the trace
    /// began.
    flushed: f64,
    worker: Worker<TraceSink>,
}

impl TraceWriter {
    /// Creates a trace that will be renamed to `target` when it is complete.
    ///
    /// # Errors
    /// The directory does not exist or is not writable, or `target` exists and is not a file.
    pub fn create(target: &Path, facts: &TraceFacts) -> io::Result<TraceWriter> {
        TraceWriter::begin(target, facts, false)
    }

    /// Creates a trace whose file has a temporary name until the first flush. After that, the file
    /// is readable up to the last flush, even if the program is killed.
    ///
    /// # Errors
    /// The errors of [`TraceWriter::create`].
    pub fn create_surviving(target: &Path, facts: &TraceFacts) -> io::Result<TraceWriter> {
        TraceWriter::begin(target, facts, true)
    }

    fn begin(target: &Path, facts: &TraceFacts, survives: bool) -> io::Result<TraceWriter> {
        if facts.paths.len() > i16::MAX as usize {
            return Err(invalid("a trace holds at most 32,767 paths"));
        }
        let worker = Worker::start("trace", TraceSink::create(target, facts, survives)?)?;
        Ok(TraceWriter { rows: Rows::default(), flushed: 0.0, worker })
    }

    /// Writes the rows from before `time`, in seconds since the trace began. Does nothing if less
    /// than a second, or less than 1/32 of the trace's duration, has passed since the last write.
    /// Each write adds a row group with an overhead of about 3 KB.
    ///
    /// # Errors
    /// The errors of [`TraceWriter::push`].
    pub fn flush(&mut self, time: f64) -> io::Result<()> {
        let patience = FLUSH_INTERVAL.as_secs_f64().max(time / 32.0);
        if self.rows.load.is_empty() || time - self.flushed < patience {
            return Ok(());
        }
        self.flushed = time;
        self.worker.swap(&mut self.rows)
    }

    /// Appends a row.
    ///
    /// Within a load and run, times must not decrease, and sizes must not be 0.
    /// [`Trace`](super::Trace) rejects a file with other rows.
    ///
    /// # Errors
    /// A write failed, or the disk is too slow.
    pub fn push(&mut self, row: &Row<'_>) -> io::Result<()> {
        self.rows.push(row);
        if self.rows.load.len() < GROUP {
            return Ok(());
        }
        self.worker.swap(&mut self.rows)
    }

    /// Adds `protocol` to the protocols whose packets carry a packet number in clear
    /// ([`TraceFacts::numbers`]).
    pub fn numbered(&mut self, protocol: &str) {
        self.rows.late.numbers.push(protocol.to_owned());
    }

    /// Adds `path` to the names of the paths that were TCP connections ([`TraceFacts::streams`]).
    pub fn streamed(&mut self, path: &str) {
        self.rows.late.streams.push(path.to_owned());
    }

    /// Completes the file and gives it its final name.
    ///
    /// # Errors
    /// A write failed. The file is then removed, unless it already has its final name.
    pub fn finish(self) -> io::Result<()> {
        self.worker.finish(self.rows)
    }
}

/// Values of the columns that describe an experiment. The splitter cannot determine them, so its
/// user may specify them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowLabels {
    /// The page or site that was loaded: the column `label`.
    pub label: String,
    /// True if an attacker wants to recognise this page (open world): the column `monitored`.
    pub monitored: bool,
    /// Index of the experiment's repetition, from 0: the column `run`.
    pub run: i32,
}

/// An observer of a driver's traffic (a tap) that writes a trace.
pub struct TraceTap {
    writer: TraceWriter,
    labels: RowLabels,
    paths: Vec<String>,
    /// Indices of the paths that have been TCP connections so far.
    streams: Vec<u16>,
    latest: f64,
}

impl TraceTap {
    /// Creates a trace that will have the name `target`.
    ///
    /// # Errors
    /// The errors of [`TraceWriter::create`].
    pub fn create(target: &Path, facts: &TraceFacts, labels: RowLabels) -> io::Result<TraceTap> {
        let writer = TraceWriter::create_surviving(target, facts)?;
        let (paths, streams) = (facts.paths.clone(), Vec::new());
        Ok(TraceTap { writer, labels, paths, streams, latest: 0.0 })
    }

    /// Returns a row with the columns that all datagrams of the batch share: all except `label`
    /// and `size`.
    fn row(&self, seen: &ObservedBatch<'_>) -> io::Result<Row<'static>> {
        let RowLabels { monitored, run, .. } = self.labels;
        let time = seen.time.secs_f64();
        if usize::from(seen.path) >= self.paths.len() {
            return Err(invalid(format!(
                "a packet with the path number {} cannot be recorded, because the trace was \
                 created for fewer paths",
                seen.path
            )));
        }
        if time < self.latest {
            return Err(invalid(format!(
                "the rows of a trace must be in the order of time, but {time} s follows {} s",
                self.latest
            )));
        }
        let path = i16::try_from(seen.path)
            .map_err(|_| invalid("the recording has more than 32,768 paths"))?;
        let load = i64::try_from(seen.session)
            .map_err(|_| invalid("the identifier of the session has more than 63 bits"))?;
        Ok(Row { load, label: "", monitored, run, path, time, size: 0 })
    }

    /// Records, for the file's metadata, that a path is a TCP connection. Does nothing if this was
    /// recorded before.
    fn note_stream(&mut self, path: u16) {
        if !self.streams.contains(&path) {
            self.streams.push(path);
            self.writer.streamed(&self.paths[usize::from(path)]);
        }
    }
}

impl Tap for TraceTap {
    fn seen(&mut self, seen: &ObservedBatch<'_>) -> io::Result<()> {
        let row = self.row(seen)?;
        self.latest = row.time;
        if seen.transport == Transport::Tcp {
            self.note_stream(seen.path);
        }
        let (label, overhead) = (self.labels.label.as_str(), seen.overhead());
        for datagram in seen.datagrams() {
            let size = signed_size(datagram.len() + overhead, seen.outward)?;
            self.writer.push(&Row { size, label, ..row })?;
        }
        Ok(())
    }

    fn numbered(&mut self, protocol: &str) {
        self.writer.numbered(protocol);
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        self.writer.flush(now.secs_f64())
    }

    fn finish(self: Box<Self>) -> io::Result<()> {
        self.writer.finish()
    }
}

fn signed_size(bytes: usize, outward: bool) -> io::Result<i32> {
    let size = i32::try_from(bytes).map_err(|_| invalid("the datagram is larger than 2 GiB"))?;
    Ok(if outward { size } else { -size })
}

/// The rows of the next row group, with a vector per column.
#[derive(Default)]
struct Rows {
    load: Vec<i64>,
    /// Run-length encoded labels: each label with the number of consecutive rows that have it,
    /// because labels rarely change.
    label: Vec<(ByteArray, usize)>,
    monitored: Vec<bool>,
    run: Vec<i32>,
    path: Vec<i32>,
    time: Vec<f64>,
    size: Vec<i32>,
    /// Metadata of the trace that have become known since the last row group was written.
    late: LateFacts,
}

impl Rows {
    fn push(&mut self, row: &Row<'_>) {
        self.load.push(row.load);
        match self.label.last_mut() {
            Some((label, rows)) if same_label(label.data(), row.label.as_bytes()) => *rows += 1,
            _ => self.label.push((ByteArray::from(row.label), 1)),
        }
        self.monitored.push(row.monitored);
        self.run.push(row.run);
        self.path.push(row.path.into());
        self.time.push(row.time);
        self.size.push(row.size);
    }

    fn clear(&mut self) {
        self.load.clear();
        self.label.clear();
        self.monitored.clear();
        self.run.clear();
        self.path.clear();
        self.time.clear();
        self.size.clear();
    }
}

struct TraceSink {
    file: SerializedFileWriter<LiveFile>,
    facts: TraceFacts,
    /// Metadata of the trace that have become known so far, for the next footer.
    late: LateFacts,
    /// Whether the file has to be readable after each batch of rows, so that it survives a kill of
    /// the program.
    survives: bool,
    /// Position and bytes of the last footer that was written; `None` before the first footer.
    good: Option<(u64, Vec<u8>)>,
}

impl TraceSink {
    fn create(target: &Path, facts: &TraceFacts, survives: bool) -> io::Result<TraceSink> {
        let draft = LiveFile::begin(target)?;
        let schema = parse_message_type(MESSAGE).map_err(to_io)?;
        let file = SerializedFileWriter::new(draft, Arc::new(schema), Arc::new(layout(facts)));
        let facts = facts.clone();
        let (numbers, streams) = (facts.numbers.clone(), facts.streams.clone());
        let late = LateFacts { numbers, streams };
        Ok(TraceSink { file: file.map_err(to_io)?, facts, late, survives, good: None })
    }

    /// Writes a Parquet footer after the row groups so far, so that the file is readable. The next
    /// row group overwrites the footer.
    fn put_footer(&mut self) -> io::Result<()> {
        let footer = self.footer().map_err(to_io)?;
        self.file.flush()?;
        let length = self.file.inner().length();
        self.file.inner_mut().put_tail(&footer)?;
        self.good = Some((length, footer));
        Ok(())
    }

    /// Builds the footer for the row groups so far (Parquet format, "File Metadata").
    fn footer(&self) -> Result<Vec<u8>, ParquetError> {
        let groups = self.file.flushed_row_groups().to_vec();
        let rows = groups.iter().map(|group| group.num_rows()).sum();
        let schema = Arc::new(self.file.schema_descr().clone());
        let version = self.file.properties().writer_version().as_num();
        let mut facts = self.facts.metadata();
        facts.extend(self.late.entries());
        let about = FileMetaData::new(version, rows, None, Some(facts), schema, None);
        let about = ParquetMetaDataBuilder::new(about).set_row_groups(groups).build();
        let mut footer = Vec::new();
        ParquetMetaDataWriter::new(&mut footer, &about).finish()?;
        Ok(footer)
    }

    fn write_group(&mut self, rows: &Rows) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        // The columns follow the order of the schema, because Parquet stores columns one after the
        // other.
        column::<Int64Type>(&mut group, &rows.load)?;
        labels(&mut group, &rows.label)?;
        column::<BoolType>(&mut group, &rows.monitored)?;
        column::<Int32Type>(&mut group, &rows.run)?;
        column::<Int32Type>(&mut group, &rows.path)?;
        column::<DoubleType>(&mut group, &rows.time)?;
        column::<Int32Type>(&mut group, &rows.size)?;
        group.close().map(drop)
    }
}

impl Sink for TraceSink {
    type Batch = Rows;

    fn write(&mut self, rows: &mut Rows) -> io::Result<()> {
        if !rows.load.is_empty() {
            let mut written = self.write_group(rows).map_err(to_io);
            if self.survives {
                written = written.and_then(|()| self.put_footer());
            }
            written.map_err(|error| self.file.inner().failed(error))?;
        }
        self.late.append(&mut rows.late);
        rows.clear();
        Ok(())
    }

    fn commit(&mut self) -> io::Result<()> {
        let late: Vec<_> = self.late.entries().collect();
        late.into_iter().for_each(|entry| self.file.append_key_value_metadata(entry));
        self.file.finish().map_err(to_io)?;
        self.file.inner_mut().commit()
    }

    /// Truncates the file to its state at the last footer, so that it is readable. A file without
    /// a footer is removed.
    fn keep(&mut self) {
        if let Some((length, footer)) = self.good.take() {
            let _ = self.file.inner_mut().restore(length, &footer);
        }
    }
}

fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, LiveFile>,
    values: &[T::T],
) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.expect("as many columns are written as the schema has");
    column.typed::<T>().write_batch(values, None, None)?;
    column.close()
}

fn labels(
    group: &mut SerializedRowGroupWriter<'_, LiveFile>,
    runs: &[(ByteArray, usize)],
) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.expect("as many columns are written as the schema has");
    for (label, rows) in runs {
        let same = vec![label.clone(); LABELS.min(*rows)];
        for at in (0..*rows).step_by(LABELS) {
            let rows = LABELS.min(rows - at);
            column.typed::<ByteArrayType>().write_batch(&same[..rows], None, None)?;
        }
    }
    column.close()
}

/// Chooses the encodings of columns. Numbers that rarely change from row to row are stored as
/// differences. Differences are smaller than dictionaries, and several times faster to write.
/// Sizes are stored with a dictionary. Times and labels are plain, because some readers
/// (fastparquet) support neither BYTE_STREAM_SPLIT nor DELTA_LENGTH_BYTE_ARRAY. Labels have no
/// statistics, because these would compare every label (see [`same_label`]).
fn layout(facts: &TraceFacts) -> WriterProperties {
    let mut layout = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_column_statistics_enabled(ColumnPath::from("label"), EnabledStatistics::None)
        .set_key_value_metadata(Some(facts.metadata()));
    for (name, _) in COLUMNS {
        let encoding = match name {
            "load" | "run" | "path" => Encoding::DELTA_BINARY_PACKED,
            "label" | "time" => Encoding::PLAIN,
            _ => continue,
        };
        layout = layout
            .set_column_dictionary_enabled(ColumnPath::from(name), false)
            .set_column_encoding(ColumnPath::from(name), encoding);
    }
    layout.build()
}

/// Converts an error, and preserves its kind if it comes from the underlying file.
fn to_io(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Trace, TraceError};
    use super::*;
    use std::fs;
    use std::os::unix::fs::FileExt;
    use std::time::{Duration, Instant, SystemTime};

    fn facts() -> TraceFacts {
        TraceFacts {
            paths: vec!["wlan".into(), "lte".into()],
            start: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)),
            seed: Some(7),
            schedule: Some("round-robin --every 50p".into()),
            ..TraceFacts::default()
        }
    }

    fn tap(target: &Path) -> Box<TraceTap> {
        labelled(target, RowLabels { label: "example.org".into(), monitored: true, run: 3 })
    }

    fn labelled(target: &Path, labels: RowLabels) -> Box<TraceTap> {
        let mut tap = TraceTap::create(target, &facts(), labels).unwrap();
        tap.writer.worker.patience = Duration::from_secs(60);
        Box::new(tap)
    }

    fn seen(
        micros: u64,
        path: u16,
        outward: bool,
        bytes: &[u8],
        stride: usize,
    ) -> ObservedBatch<'_> {
        ObservedBatch {
            time: Time::from_micros(micros),
            session: 5,
            path,
            transport: Transport::Udp,
            outward,
            client_end: "192.0.2.1:4000".parse().unwrap(),
            server: "192.0.2.2:443".parse().unwrap(),
            ecn: 0,
            bytes,
            stride,
        }
    }

    /// Returns load, path, time and size of every row in the file.
    fn rows(target: &Path) -> Vec<(i64, i16, f64, i32)> {
        let mut rows = Vec::new();
        let trace = Trace::open(target).unwrap();
        trace.for_each(|r| rows.push((r.load, r.path, r.time, r.size))).unwrap();
        rows
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn what_was_seen_is_what_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a.parquet");
        let mut tap = tap(&target);
        tap.seen(&seen(0, 0, true, &[0; 2500], 1000)).unwrap();
        tap.seen(&seen(1500, 1, false, &[0; 40], 40)).unwrap();
        let server = "[2001:db8::2]:443".parse().unwrap();
        tap.seen(&ObservedBatch { server, session: 6, ..seen(1500, 1, false, &[], 0) }).unwrap();
        tap.finish().unwrap();
        let up = [(5, 0, 0.0, 1028), (5, 0, 0.0, 1028), (5, 0, 0.0, 528)];
        let down = [(5, 1, 0.0015, -68), (6, 1, 0.0015, -48)];
        assert_eq!(rows(&target), [&up[..], &down[..]].concat());
        assert_eq!(names(folder.path()), ["a.parquet"]);
    }

    #[test]
    fn segments_are_rows_with_tcp_headers_and_their_paths_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a.parquet");
        let mut tap = tap(&target);
        tap.seen(&seen(0, 0, true, &[0; 10], 0)).unwrap();
        for (micros, outward) in [(1, true), (2, false)] {
            let segments = seen(micros, 1, outward, &[0; 3000], 1448);
            tap.seen(&ObservedBatch { transport: Transport::Tcp, ..segments }).unwrap();
        }
        tap.finish().unwrap();
        let sizes: Vec<_> = rows(&target).into_iter().map(|row| (row.1, row.3)).collect();
        let segments = [1500, 1500, 156, -1500, -1500, -156].map(|size| (1, size));
        assert_eq!(sizes, [&[(0, 38)][..], &segments].concat());
        assert_eq!(Trace::open(&target).unwrap().facts().streams, ["lte"]);
    }

    #[test]
    fn labels_and_facts_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a.parquet");
        let mut tap = tap(&target);
        tap.seen(&seen(0, 0, true, &[0; 2048 * 5], 5)).unwrap();
        tap.numbered("wireguard");
        tap.numbered("other");
        tap.finish().unwrap();
        let trace = Trace::open(&target).unwrap();
        let numbers = vec!["wireguard".to_owned(), "other".to_owned()];
        assert_eq!(trace.facts(), &TraceFacts { numbers, ..facts() });
        let mut seen = 0;
        let visit = |r: &Row<'_>| {
            assert_eq!((r.label, r.monitored, r.run), ("example.org", true, 3));
            seen += 1;
        };
        trace.for_each(visit).unwrap();
        assert_eq!(seen, 2048);
    }

    #[test]
    fn labels_may_change_from_load_to_load() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a.parquet");
        let mut writer = TraceWriter::create(&target, &facts()).unwrap();
        let labels = ["a", "a", "", "b", "a"];
        for (load, label) in (0..).zip(labels) {
            let row =
                Row { load, label, monitored: load == 3, run: 0, path: -1, time: 1.0, size: 9 };
            writer.push(&row).unwrap();
        }
        writer.finish().unwrap();
        let mut found = Vec::new();
        let trace = Trace::open(&target).unwrap();
        trace.for_each(|r| found.push((r.label.to_owned(), r.monitored))).unwrap();
        let wanted: Vec<_> = (0..).zip(labels).map(|(i, l)| (l.to_owned(), i == 3)).collect();
        assert_eq!(found, wanted);
    }

    #[test]
    fn a_trace_without_rows_is_a_trace() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a.parquet");
        tap(&target).finish().unwrap();
        assert_eq!(rows(&target), []);
    }

    #[test]
    fn a_writers_trace_that_is_abandoned_leaves_nothing_and_keeps_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a.parquet");
        fs::write(&target, "old").unwrap();
        let mut writer = TraceWriter::create(&target, &facts()).unwrap();
        let row = Row { load: 0, label: "", monitored: false, run: 0, path: 0, time: 0.0, size: 1 };
        for _ in 0..2 * GROUP {
            writer.push(&row).unwrap();
        }
        assert_eq!(names(folder.path()).len(), 2);
        drop(writer);
        assert_eq!(names(folder.path()), ["a.parquet"]);
        assert_eq!(fs::read(&target).unwrap(), b"old");
    }

    /// Returns the number of rows of a file that is still being written, once there are at least
    /// `wanted`.
    fn grown(target: &Path, wanted: usize) -> usize {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let found = match Trace::open(target) {
                Ok(trace) => trace.rows() as usize,
                Err(_) => 0,
            };
            if found >= wanted || Instant::now() > deadline {
                return found;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_trace_can_be_read_up_to_the_last_flush_while_it_goes_on_and_when_it_is_abandoned() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a.parquet");
        let mut tap = tap(&target);
        for second in 1..=40u64 {
            tap.seen(&seen(second * 1_000_000, 0, true, b"xxxxxx", 1)).unwrap();
            tap.flush(Time::from_secs(second)).unwrap();
            if second == 5 {
                assert_eq!(grown(&target, 30), 30);
            }
        }
        tap.seen(&seen(41_000_000, 0, true, b"lost", 1)).unwrap();
        // From 32 s on, flushes are due less often than once per second.
        assert!(grown(&target, 200) >= 200);
        drop(tap);
        let kept = rows(&target).len();
        assert!((200..=240).contains(&kept), "{kept}");
        assert_eq!(names(folder.path()), ["a.parquet"]);
    }

    #[test]
    fn a_trace_whose_disk_is_full_is_readable_up_to_the_last_flush() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a.parquet");
        let mut sink = TraceSink::create(&target, &facts(), true).unwrap();
        let row = Row { load: 0, label: "", monitored: false, run: 0, path: 0, time: 0.0, size: 1 };
        let batch = |count: usize| {
            let mut rows = Rows::default();
            (0..count).for_each(|_| rows.push(&row));
            rows
        };
        sink.write(&mut batch(1000)).unwrap();
        // A part of the next row group is written to the disk.
        sink.write_group(&batch(5000)).unwrap();
        sink.file.flush().unwrap();
        assert!(Trace::open(&target).is_err(), "the footer was written over");
        sink.keep();
        drop(sink);
        assert_eq!(rows(&target).len(), 1000);
    }

    #[test]
    fn nonsense_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut tap = tap(&folder.path().join("a.parquet"));
        tap.seen(&seen(10, 0, true, b"x", 0)).unwrap();
        let refused = |tap: &mut TraceTap, seen| tap.seen(&seen).unwrap_err().to_string();
        assert!(
            refused(&mut tap, seen(9, 0, true, b"x", 0)).contains("must be in the order of time")
        );
        assert!(refused(&mut tap, seen(10, 2, true, b"x", 0)).contains("path number 2"));
        let session = u64::MAX;
        let beyond = ObservedBatch { session, ..seen(10, 0, true, b"x", 0) };
        assert!(refused(&mut tap, beyond).contains("63 bits"));
    }

    #[test]
    fn a_row_that_breaks_a_rule_is_named() {
        let good =
            Row { load: 1, label: "a", monitored: false, run: 0, path: 0, time: 2.0, size: 9 };
        let verdict = |bad: Row<'_>| {
            let folder = tempfile::tempdir().unwrap();
            let target = folder.path().join("a.parquet");
            let mut writer = TraceWriter::create(&target, &facts()).unwrap();
            writer.push(&good).unwrap();
            writer.push(&bad).unwrap();
            writer.finish().unwrap();
            match Trace::open(&target).unwrap().for_each(|_| ()) {
                Err(TraceError::Row { row: 1, problem }) => problem,
                other => panic!("{other:?}"),
            }
        };
        assert!(verdict(Row { time: 1.0, ..good }).contains("`time` decreases from 2 to 1"));
        assert!(verdict(Row { time: f64::NAN, ..good }).contains("`time` is NaN"));
        assert!(verdict(Row { time: -1.0, load: 2, ..good }).contains("`time` is -1"));
        assert!(verdict(Row { size: 0, ..good }).contains("`size` is 0"));
        assert!(verdict(Row { path: -2, ..good }).contains("`path` is -2"));
        assert!(verdict(Row { label: "b", ..good }).contains("earlier rows with `load` 1;"));
        assert!(verdict(Row { monitored: true, ..good }).contains("earlier rows with `load` 1;"));
    }

    /// A damaged file may cause an error, but no panic. The reader does not allocate the memory
    /// that the file claims to need.
    #[test]
    fn a_damaged_file_does_no_harm() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a.parquet");
        let mut tap = tap(&target);
        for n in 0..200 {
            tap.seen(&seen(n * 13, (n % 2) as u16, n % 3 > 0, &[0; 99], 0)).unwrap();
        }
        tap.finish().unwrap();
        let sound = fs::read(&target).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&target).unwrap();
        let mut refused = 0;
        for (at, byte) in (0..).zip(&sound) {
            for mask in [0x01, 0x80, 0xff] {
                file.write_at(&[byte ^ mask], at).unwrap();
                let read = Trace::open(&target).and_then(|trace| trace.for_each(|_| ()));
                refused += usize::from(read.is_err());
            }
            file.write_at(&[*byte], at).unwrap();
        }
        Trace::open(&target).and_then(|trace| trace.for_each(|_| ())).unwrap();
        println!("{refused} of {} damaged files refused", 3 * sound.len());
        assert!(refused > sound.len());
    }

    /// Returns a line of `/proc/self/status`, in kilobytes.
    fn memory(key: &str) -> usize {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Records four million datagrams of many sizes. Returns by how many kilobytes the peak of the
    /// process's memory rises.
    fn record_four_million() -> usize {
        const COUNT: u64 = 4_000_000;
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a.parquet");
        let (payload, before) = ([0u8; 1350], memory("VmRSS:"));
        // The rows are like those of a splitter, with no labels and irregular times.
        let mut tap = labelled(&target, RowLabels::default());
        let begun = Instant::now();
        let mut micros = 0;
        for n in 0..COUNT {
            let dice = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            micros += dice % 200;
            let bytes = &payload[..40 + dice as usize % 1300];
            tap.seen(&seen(micros, (n / 50 % 2) as u16, dice % 3 > 0, bytes, 0)).unwrap();
        }
        tap.finish().unwrap();
        let each = begun.elapsed().as_nanos() as u64 / COUNT;
        let grown = memory("VmHWM:") - before;
        let bytes = fs::metadata(&target).unwrap().len() as f64 / COUNT as f64;
        println!("trace: {each} ns and {bytes:.2} bytes a datagram, {grown} KB of memory");
        assert_eq!(Trace::open(&target).unwrap().rows(), COUNT);
        grown
    }

    /// The test runs in its own process, because other tests use memory, too. All rows together
    /// would need over 100 MB.
    #[test]
    fn four_million_datagrams_fit_in_bounded_memory() {
        const ALONE: &str = "ANABRANCH_TEST_ALONE";
        const NAME: &str = "four_million_datagrams_fit_in_bounded_memory";
        if std::env::var_os(ALONE).is_some() {
            let grown = record_four_million();
            assert!(grown < 40_000, "{grown} KB");
            return;
        }
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let output = alone.args([NAME, "--nocapture"]).env(ALONE, "1").output().unwrap();
        let (stdout, stderr) = (output.stdout, output.stderr);
        let stdout = String::from_utf8_lossy(&stdout);
        println!("{stdout}");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&stderr));
        assert!(stdout.contains("1 passed"));
    }
}
