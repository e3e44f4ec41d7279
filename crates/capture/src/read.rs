//! The reader of trace files. It rejects any other file, with a precise reason.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::Path;
use std::sync::Once;

use parquet::basic::{Compression, ConvertedType, Encoding, LogicalType, Type as Physical};
use parquet::column::page::Page;
use parquet::column::reader::{ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, KeyValue, ParquetMetaData};
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};

use super::facts::COLUMNS;
use super::{Row, TraceFacts, same_label};

/// First and last four bytes of a Parquet file.
const MAGIC: [u8; 4] = *b"PAR1";

/// Metadata key that marks a file with the results of an experiment, which is no trace.
const EXPERIMENT: &str = "anabranch.experiment";

/// Number of rows that are decoded at a time.
const CHUNK: usize = 1 << 16;

/// Error: a file is not a readable trace.
#[derive(Debug)]
pub enum TraceError {
    /// The file cannot be read.
    Io(io::Error),
    /// The file is not a Parquet file, is damaged, or is compressed by a method other than zstd.
    Parquet(String),
    /// The file is not a Parquet file: its first bytes are wrong.
    Foreign,
    /// The file is an incomplete Parquet file: its first bytes are right, but its end is missing.
    BrokenOff,
    /// The path is a directory.
    Directory,
    /// The file contains results of `anabranch experiment`, which are not a trace.
    Experiment,
    /// The file's metadata are not those of a trace. The field is the reason.
    Facts(String),
    /// A column is missing or has the wrong type.
    Column {
        /// Name of the column.
        name: &'static str,
        /// Description of the problem.
        problem: String,
    },
    /// A row breaks a rule of the schema.
    Row {
        /// Index of the row in the file, from 0.
        row: u64,
        /// Description of the rule that the row breaks.
        problem: String,
    },
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Io(error) => write!(f, "{error}"),
            TraceError::Parquet(why) => write!(f, "not a readable Parquet file: {why}"),
            TraceError::Foreign => f.write_str("not a trace, because it is not a Parquet file"),
            TraceError::BrokenOff => {
                f.write_str("the file is incomplete: its end is missing; copy or record it again")
            }
            TraceError::Directory => f.write_str("a directory"),
            TraceError::Experiment => f.write_str(
                "not a trace, but a file with results of an experiment: to show them, run \
                 'anabranch experiment NAME FOLDER --report'",
            ),
            TraceError::Facts(why) => write!(f, "not an Anabranch trace: {why}"),
            TraceError::Column { name, problem } => {
                write!(f, "not an Anabranch trace: the column `{name}` {problem}")
            }
            TraceError::Row { row, problem } => {
                write!(f, "not a valid Anabranch trace: row {row}: {problem}")
            }
        }
    }
}

impl std::error::Error for TraceError {}

impl From<ParquetError> for TraceError {
    fn from(error: ParquetError) -> TraceError {
        TraceError::Parquet(error.to_string())
    }
}

/// A trace file, open for reading.
pub struct Trace {
    file: SerializedFileReader<File>,
    facts: TraceFacts,
    /// For each column in [`COLUMNS`], the index of this column in the file.
    columns: [usize; 7],
}

impl Trace {
    /// Opens the trace at `path`, and checks its metadata and columns.
    ///
    /// # Errors
    /// The file cannot be read, or is not a trace of the schema version that this program
    /// supports.
    pub fn open(path: &Path) -> Result<Trace, TraceError> {
        let file = File::open(path).map_err(TraceError::Io)?;
        let about = file.metadata().map_err(TraceError::Io)?;
        if about.is_dir() {
            return Err(TraceError::Directory);
        }
        let length = about.len();
        check_ends(&file, length)?;
        let file = guarded(|| Ok(SerializedFileReader::new(file)?))?;
        let meta = file.metadata().file_metadata();
        let pairs: &[KeyValue] = meta.key_value_metadata().map_or(&[], Vec::as_slice);
        if pairs.iter().any(|pair| pair.key == EXPERIMENT) {
            return Err(TraceError::Experiment);
        }
        // Columns are checked first, because for a file of another kind, the missing column is a
        // better message.
        let columns = locate_all(meta.schema_descr())?;
        vet_chunks(file.metadata(), &columns, length)?;
        let facts = TraceFacts::parse(pairs).map_err(TraceError::Facts)?;
        Ok(Trace { file, facts, columns })
    }

    /// Returns the facts about the whole trace.
    pub fn facts(&self) -> &TraceFacts {
        &self.facts
    }

    /// Returns the number of rows, as stated in the file's metadata.
    pub fn rows(&self) -> u64 {
        u64::try_from(self.file.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    /// Checks each row, in the order of the file, and passes it to `visit`.
    ///
    /// Memory is bounded by the number of page loads, not by the number of rows.
    ///
    /// # Errors
    /// The file cannot be decoded, or a row breaks a rule of the schema. The rows before it have
    /// then been passed to `visit` already.
    pub fn for_each(&self, mut visit: impl FnMut(&Row<'_>)) -> Result<(), TraceError> {
        let mut check = Check::default();
        for index in 0..self.file.num_row_groups() {
            let group = self.file.get_row_group(index)?;
            let mut columns = guarded(|| Columns::open(group.as_ref(), &self.columns))?;
            while guarded(|| columns.next(check.row))? {
                for at in 0..columns.len() {
                    let row = columns.row(at, check.row)?;
                    check.admit(&row)?;
                    visit(&row);
                }
            }
        }
        Ok(())
    }
}

/// Rejects a file that does not begin and end like a Parquet file. The error is easier to
/// understand than the Parquet library's error, which mentions footers.
fn check_ends(file: &File, length: u64) -> Result<(), TraceError> {
    let read = |at| {
        let mut found = [0; MAGIC.len()];
        file.read_exact_at(&mut found, at).map(|()| found)
    };
    let whole = length >= 2 * MAGIC.len() as u64 + 4;
    match (read(0), whole.then(|| read(length - MAGIC.len() as u64))) {
        (Ok(MAGIC), Some(Ok(MAGIC))) => Ok(()),
        (Ok(MAGIC), _) => Err(TraceError::BrokenOff),
        (Ok(_), _) => Err(TraceError::Foreign),
        (Err(error), _) if error.kind() == io::ErrorKind::UnexpectedEof => Err(TraceError::Foreign),
        (Err(error), _) => Err(TraceError::Io(error)),
    }
}

/// Converts a panic of the Parquet decoder into an error. Some damaged pages cause such panics.
///
/// After such an error, the caller must not use the data that `decode` was working on.
fn guarded<T>(decode: impl FnOnce() -> Result<T, TraceError>) -> Result<T, TraceError> {
    keep_quiet_while_decoding();
    let outer = DECODING.replace(true);
    let damaged = |_| {
        Err(TraceError::Parquet(
            "a data page is damaged; copy or record the trace again".to_owned(),
        ))
    };
    let decoded = catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(damaged);
    DECODING.set(outer);
    decoded
}

thread_local! {
    static DECODING: Cell<bool> = const { Cell::new(false) };
}

/// Installs a panic hook that prints nothing for panics that [`guarded`] catches. Such panics
/// would look like a fault of the program, and the error already reports them. Other panics,
/// including those of other threads, are printed as before.
fn keep_quiet_while_decoding() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = take_hook();
        set_hook(Box::new(move |about| {
            if !DECODING.get() {
                hook(about);
            }
        }));
    });
}

fn locate_all(schema: &SchemaDescriptor) -> Result<[usize; 7], TraceError> {
    let mut found = [0; 7];
    for (slot, (name, physical)) in found.iter_mut().zip(COLUMNS) {
        *slot = locate(schema, name, physical)
            .map_err(|problem| TraceError::Column { name, problem })?;
    }
    Ok(found)
}

fn locate(schema: &SchemaDescriptor, name: &str, wanted: Physical) -> Result<usize, String> {
    let at = schema.columns().iter().position(|c| c.path().parts() == [name]);
    let Some(at) = at else { return Err("is missing".to_owned()) };
    let column = schema.column(at);
    if column.physical_type() != wanted {
        return Err(format!(
            "is of type {}, but must be of type {wanted}; docs/formats.md lists the type of each \
             column",
            column.physical_type()
        ));
    }
    if column.max_rep_level() > 0 {
        return Err("is a list".to_owned());
    }
    if is_foreign(&column) {
        return Err(format!(
            "is stored as {wanted}, but with another logical type (such as a date, an unsigned \
             number or text) than this column must have; docs/formats.md lists the type of each \
             column"
        ));
    }
    Ok(at)
}

/// Checks the position and compression of each column chunk, as the footer states them, before the
/// decoder uses them. The decoder would panic on a negative offset, and report an unsupported
/// compression misleadingly.
fn vet_chunks(meta: &ParquetMetaData, places: &[usize; 7], length: u64) -> Result<(), TraceError> {
    for group in meta.row_groups() {
        for (&place, (name, _)) in places.iter().zip(COLUMNS) {
            let chunk = group.columns().get(place);
            let problem = match chunk.map(|chunk| (lies_within(chunk, length), chunk.compression()))
            {
                Some((true, Compression::UNCOMPRESSED | Compression::ZSTD(_))) => continue,
                Some((true, method)) => {
                    format!(
                        "is compressed by {method}: write the trace again with zstd or without \
                         compression"
                    )
                }
                _ => "is damaged".to_owned(),
            };
            return Err(TraceError::Column { name, problem });
        }
    }
    Ok(())
}

fn lies_within(chunk: &ColumnChunkMetaData, length: u64) -> bool {
    let begin = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
    let (begin, size) = (u64::try_from(begin), u64::try_from(chunk.compressed_size()));
    let end = begin.ok().zip(size.ok()).and_then(|(begin, size)| begin.checked_add(size));
    end.is_some_and(|end| end <= length)
}

/// Rejects pages of text columns whose header claims more string lengths than the page has values.
/// The decoder would allocate memory for all claimed lengths, and a failed allocation would abort
/// the program.
fn vet_pages(group: &dyn RowGroupReader, place: usize) -> Result<(), TraceError> {
    let optional = group.metadata().column(place).column_descr().max_def_level() > 0;
    let mut pages = group.get_column_page_reader(place)?;
    // A page that cannot be read is left to the decoder, which will report the error.
    while let Ok(Some(page)) = pages.get_next_page() {
        let by_lengths = matches!(
            page.encoding(),
            Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY
        );
        let claimed = || lengths_claimed(levels_skipped(&page, optional)?);
        if by_lengths && claimed().is_none_or(|lengths| lengths > u64::from(page.num_values())) {
            return Err(TraceError::Parquet(
                "a data page is damaged; copy or record the trace again".to_owned(),
            ));
        }
    }
    Ok(())
}

/// Returns the encoded values of a Parquet page, without the definition levels (the marks of null
/// values) before them. Returns `None` if the page is too short.
fn levels_skipped(page: &Page, optional: bool) -> Option<&[u8]> {
    match page {
        Page::DataPage { buf, .. } if optional => {
            let (length, rest) = buf.split_first_chunk::<4>()?;
            rest.get(u32::from_le_bytes(*length) as usize..)
        }
        Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
            buf.get((*def_levels_byte_len as usize).checked_add(*rep_levels_byte_len as usize)?..)
        }
        _ => Some(page.buffer()),
    }
}

/// Returns the count of values that a DELTA_BINARY_PACKED header claims: the header's third
/// integer (Parquet format, "Delta Encoding").
fn lengths_claimed(values: &[u8]) -> Option<u64> {
    let mut bytes = values.iter();
    let mut number = || {
        let mut value = 0u64;
        for shift in (0..63).step_by(7) {
            let byte = *bytes.next()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    };
    number()?;
    number()?;
    number()
}

/// Returns whether a column's logical type makes its values unusable, although the storage type is
/// right: unsigned integers, dates or decimals.
fn is_foreign(column: &ColumnDescriptor) -> bool {
    use ConvertedType as C;
    match column.logical_type_ref() {
        Some(LogicalType::Integer(integer)) => !integer.is_signed,
        Some(LogicalType::String) => false,
        Some(_) => true,
        None => !matches!(
            column.converted_type(),
            C::NONE | C::UTF8 | C::INT_8 | C::INT_16 | C::INT_32 | C::INT_64
        ),
    }
}

/// A column of a row group, which is decoded in chunks.
struct Column<T: DataType> {
    name: &'static str,
    reader: ColumnReaderImpl<T>,
    values: Vec<T::T>,
    /// Definition level of each row, if the column is nullable; 0 means null.
    levels: Vec<i16>,
}

impl<T: DataType> Column<T> {
    fn open(
        group: &dyn RowGroupReader,
        places: &[usize; 7],
        which: usize,
    ) -> Result<Column<T>, TraceError> {
        if COLUMNS[which].1 == Physical::BYTE_ARRAY {
            vet_pages(group, places[which])?;
        }
        let reader = get_typed_column_reader(group.get_column_reader(places[which])?);
        let name = COLUMNS[which].0;
        Ok(Column { name, reader, values: Vec::new(), levels: Vec::new() })
    }

    /// Decodes the next chunk of rows. The chunk's first row has the index `first` in the file.
    /// Returns the number of rows in the chunk.
    fn next(&mut self, first: u64) -> Result<usize, TraceError> {
        self.values.clear();
        self.levels.clear();
        let levels = Some(&mut self.levels);
        let (rows, values, _) = self.reader.read_records(CHUNK, levels, None, &mut self.values)?;
        if values == rows {
            return Ok(rows);
        }
        let null = self.levels.iter().position(|&level| level == 0).unwrap_or(0);
        let problem = format!("`{}` is null", self.name);
        Err(TraceError::Row { row: first + null as u64, problem })
    }
}

/// The seven columns of a row group. Each call of [`Columns::next`] decodes one chunk of each
/// column.
struct Columns {
    load: Column<Int64Type>,
    label: Column<ByteArrayType>,
    monitored: Column<BoolType>,
    run: Column<Int32Type>,
    path: Column<Int32Type>,
    time: Column<DoubleType>,
    size: Column<Int32Type>,
}

impl Columns {
    fn open(group: &dyn RowGroupReader, places: &[usize; 7]) -> Result<Columns, TraceError> {
        Ok(Columns {
            load: Column::open(group, places, 0)?,
            label: Column::open(group, places, 1)?,
            monitored: Column::open(group, places, 2)?,
            run: Column::open(group, places, 3)?,
            path: Column::open(group, places, 4)?,
            time: Column::open(group, places, 5)?,
            size: Column::open(group, places, 6)?,
        })
    }

    /// Decodes the next chunk of each column. Returns `false` at the end of the row group.
    fn next(&mut self, first: u64) -> Result<bool, TraceError> {
        let lengths = [
            self.load.next(first)?,
            self.label.next(first)?,
            self.monitored.next(first)?,
            self.run.next(first)?,
            self.path.next(first)?,
            self.time.next(first)?,
            self.size.next(first)?,
        ];
        if lengths.iter().any(|&length| length != lengths[0]) {
            return Err(TraceError::Parquet("its columns differ in length".to_owned()));
        }
        Ok(lengths[0] > 0)
    }

    fn len(&self) -> usize {
        self.load.values.len()
    }

    /// Returns the row with the index `at` in the present chunk. `row` is the row's index in the
    /// file, for errors.
    fn row(&self, at: usize, row: u64) -> Result<Row<'_>, TraceError> {
        let broken = |problem: String| TraceError::Row { row, problem };
        let path = self.path.values[at];
        Ok(Row {
            load: self.load.values[at],
            label: text(&self.label.values[at])
                .ok_or_else(|| broken("`label` is not UTF-8".to_owned()))?,
            monitored: self.monitored.values[at],
            run: self.run.values[at],
            path: i16::try_from(path)
                .map_err(|_| broken(format!("`path` is {path}, not a 16-bit number")))?,
            time: self.time.values[at],
            size: self.size.values[at],
        })
    }
}

fn text(bytes: &ByteArray) -> Option<&str> {
    std::str::from_utf8(bytes.data()).ok()
}

/// State for checking the rules of the schema that concern several rows, such as the order of
/// times.
#[derive(Default)]
struct Check {
    /// Index of the next row in the file.
    row: u64,
    loads: HashMap<(i64, i32), Load>,
}

/// State of one page load, from its rows that were read so far: the time of the latest row, and
/// the label and the flag `monitored` that all rows of the load must share.
struct Load {
    time: f64,
    label: String,
    monitored: bool,
}

impl Check {
    fn admit(&mut self, row: &Row<'_>) -> Result<(), TraceError> {
        let verdict = plausible(row).and_then(|()| self.consistent(row));
        verdict.map_err(|problem| TraceError::Row { row: self.row, problem })?;
        self.row += 1;
        Ok(())
    }

    fn consistent(&mut self, row: &Row<'_>) -> Result<(), String> {
        let Row { load: id, run, time, label, monitored, .. } = *row;
        let load = self.loads.entry((id, run)).or_insert_with(|| Load {
            time,
            label: label.to_owned(),
            monitored,
        });
        if time < load.time {
            let before = load.time;
            return Err(format!(
                "`time` decreases from {before} to {time} in the rows with `load` {id}"
            ));
        }
        let same = same_label(label.as_bytes(), load.label.as_bytes());
        if !same || monitored != load.monitored {
            return Err(format!(
                "`label` or `monitored` differs from that of earlier rows with `load` {id}; all \
                 rows of one page load must agree"
            ));
        }
        load.time = time;
        Ok(())
    }
}

fn plausible(row: &Row<'_>) -> Result<(), String> {
    if !(row.time.is_finite() && row.time >= 0.0) {
        return Err(format!("`time` is {}; expected seconds since the trace began", row.time));
    }
    if row.size == 0 {
        return Err("`size` is 0; expected a positive number of bytes (client to server) or a \
                    negative one (server to client)"
            .to_owned());
    }
    if row.path < -1 {
        return Err(format!("`path` is {}; expected -1 or more", row.path));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use std::sync::Arc;

    use crate::facts::{MESSAGE, SizeUnit};

    /// Returns a file with the columns of `message`, the metadata of a trace and no rows.
    fn empty(message: &str, metadata: Vec<KeyValue>) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let schema = Arc::new(parse_message_type(message).unwrap());
        let layout = WriterProperties::builder().set_key_value_metadata(Some(metadata)).build();
        let out = file.reopen().unwrap();
        SerializedFileWriter::new(out, schema, Arc::new(layout)).unwrap().close().unwrap();
        file
    }

    fn refusal(message: &str) -> String {
        let file = empty(message, TraceFacts::default().metadata());
        Trace::open(file.path()).err().unwrap().to_string()
    }

    #[test]
    fn traces_of_an_earlier_program_are_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/formats/0e0b824b");
        let trace = Trace::open(&folder.join("split.parquet")).unwrap();
        let facts = trace.facts();
        assert_eq!((facts.unit, facts.seed), (SizeUnit::IpPacket, Some(7)));
        assert_eq!(facts.paths, ["wlan", "lte"]);
        assert_eq!(facts.schedule.as_deref(), Some("round-robin"));
        let mut rows = Vec::new();
        let mut take =
            |row: &Row<'_>| rows.push((row.load, row.label.to_owned(), row.path, row.size));
        trace.for_each(&mut take).unwrap();
        assert_eq!(rows.len(), 8);
        assert_eq!(rows[0], (0, "example.org".to_owned(), 0, -1228));
        assert_eq!(rows[7], (1, String::new(), 1, 148));
        let trace = Trace::open(&folder.join("client.parquet")).unwrap();
        assert_eq!((trace.facts().unit, trace.facts().paths.len()), (SizeUnit::Cell, 8));
        assert_eq!(trace.facts().started().as_deref(), Some("2026-11-25 11:05:38 UTC"));
        // The expected values are from the client's own counters: the bytes that leg 0 received
        // and sent.
        let mut leg = [0, 0];
        trace
            .for_each(|row| {
                if (row.load, row.path) == (4, 0) {
                    leg[usize::from(row.size > 0)] += i64::from(row.size.abs());
                }
            })
            .unwrap();
        assert_eq!((trace.rows(), leg), (17_209, [4_647_588, 154_200]));
    }

    #[test]
    fn a_missing_column_is_named() {
        let refused = refusal(&MESSAGE.replace("required double time;", ""));
        assert_eq!(refused, "not an Anabranch trace: the column `time` is missing");
    }

    #[test]
    fn a_column_of_the_wrong_type_is_named() {
        let refused = |from, to| refusal(&MESSAGE.replace(from, to));
        let float = refused("double time", "float time");
        assert!(float.contains("`time` is of type FLOAT, but must be of type DOUBLE"), "{float}");
        let unsigned = refused("size (INTEGER(32, true))", "size (INTEGER(32, false))");
        assert!(
            unsigned.contains("`size` is stored as INT32, but with another logical type"),
            "{unsigned}"
        );
        let list = refused("required int64 load", "repeated int64 load");
        assert!(list.contains("`load` is a list"), "{list}");
    }

    #[test]
    fn columns_may_be_nullable_in_another_order_and_more() {
        let message = "message x { optional int32 size; optional double time; required int32 path;
            required int32 run; required boolean monitored; required binary label;
            required int64 load; required double more; }";
        let file = empty(message, TraceFacts::default().metadata());
        assert_eq!(Trace::open(file.path()).unwrap().rows(), 0);
    }

    #[test]
    fn foreign_files_are_refused() {
        let file = empty(MESSAGE, Vec::new());
        let refused = Trace::open(file.path()).err().unwrap().to_string();
        let wanted = "not an Anabranch trace: the file has no metadata field anabranch.schema: \
                      give a file that --trace wrote";
        assert_eq!(refused, wanted);
        let text = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(text.path(), "time,size\n0.1,1500\n").unwrap();
        assert!(matches!(Trace::open(text.path()), Err(TraceError::Foreign)));
        assert!(matches!(Trace::open(Path::new("/nowhere")), Err(TraceError::Io(_))));
    }

    #[test]
    fn a_null_is_named_with_its_row() {
        let message = MESSAGE.replace("required int32 size", "optional int32 size");
        let file = tempfile::NamedTempFile::new().unwrap();
        let schema = Arc::new(parse_message_type(&message).unwrap());
        let metadata = Some(TraceFacts::default().metadata());
        let layout = WriterProperties::builder().set_key_value_metadata(metadata).build();
        let out = file.reopen().unwrap();
        let mut writer = SerializedFileWriter::new(out, schema, Arc::new(layout)).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut at = 0;
        while let Some(mut column) = group.next_column().unwrap() {
            match at {
                0 => column.typed::<Int64Type>().write_batch(&[1, 1], None, None),
                1 => {
                    column.typed::<ByteArrayType>().write_batch(&["".into(), "".into()], None, None)
                }
                2 => column.typed::<BoolType>().write_batch(&[false, false], None, None),
                5 => column.typed::<DoubleType>().write_batch(&[0.0, 0.0], None, None),
                6 => column.typed::<Int32Type>().write_batch(&[9], Some(&[1, 0]), None),
                _ => column.typed::<Int32Type>().write_batch(&[0, 0], None, None),
            }
            .unwrap();
            column.close().unwrap();
            at += 1;
        }
        group.close().unwrap();
        writer.close().unwrap();
        let refused = Trace::open(file.path()).unwrap().for_each(|_| ()).unwrap_err();
        assert_eq!(refused.to_string(), "not a valid Anabranch trace: row 1: `size` is null");
    }
}
