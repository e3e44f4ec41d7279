//! Tables of records as Parquet files, for all experiments.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::Disturbance;
use anabranch_capture::Draft;

/// Values of a table column, one for each row. There are no nulls.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Strings.
    Text(Vec<String>),
    /// 32-bit integers.
    Int(Vec<i32>),
    /// 64-bit integers.
    Long(Vec<i64>),
    /// Floating-point numbers.
    Double(Vec<f64>),
    /// Booleans.
    Bool(Vec<bool>),
}

/// A table column: its name and its values.
pub type Column = (String, Values);

/// Records of an experiment, from which the columns of a table are made; each record becomes a
/// row.
#[derive(Debug)]
pub struct Rows<'a, R>(pub &'a [R]);

impl<R> Rows<'_, R> {
    /// Makes a column of strings.
    pub fn text(&self, name: &str, of: impl Fn(&R) -> String) -> Column {
        (name.to_owned(), Values::Text(self.0.iter().map(of).collect()))
    }

    /// Makes a column of 32-bit integers. Values that do not fit become the maximum.
    pub fn int(&self, name: &str, of: impl Fn(&R) -> u32) -> Column {
        let number = |record| i32::try_from(of(record)).unwrap_or(i32::MAX);
        (name.to_owned(), Values::Int(self.0.iter().map(number).collect()))
    }

    /// Makes a column of 64-bit integers. Values that do not fit become the maximum.
    pub fn long(&self, name: &str, of: impl Fn(&R) -> u64) -> Column {
        let number = |record| i64::try_from(of(record)).unwrap_or(i64::MAX);
        (name.to_owned(), Values::Long(self.0.iter().map(number).collect()))
    }

    /// Makes a column of floating-point numbers.
    pub fn double(&self, name: &str, of: impl Fn(&R) -> f64) -> Column {
        (name.to_owned(), Values::Double(self.0.iter().map(of).collect()))
    }

    /// Makes a column of booleans.
    pub fn bool(&self, name: &str, of: impl Fn(&R) -> bool) -> Column {
        (name.to_owned(), Values::Bool(self.0.iter().map(of).collect()))
    }

    /// Makes the columns that describe the machine's load by other work. `load` is the name of the
    /// column with the load average.
    pub fn machine(&self, load: &str, of: impl Fn(&R) -> Disturbance) -> [Column; 4] {
        [
            self.double("steal", |record| of(record).steal),
            self.double("pressure", |record| of(record).pressure),
            self.double(load, |record| of(record).load),
            self.double("late_ms", |record| of(record).late),
        ]
    }
}

/// Writes a Parquet file with `columns`, which all have the same length, and the metadata `facts`.
/// The file gets its name only when it is complete.
///
/// # Errors
/// The directory does not exist or cannot be written to. Then no file remains.
pub fn write(target: &Path, columns: &[Column], facts: &[(&str, String)]) -> io::Result<()> {
    let schema = parse_message_type(&message(columns)).map_err(io::Error::other)?;
    let facts = facts.iter().map(|(key, value)| KeyValue::new((*key).to_owned(), value.clone()));
    let layout = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_key_value_metadata(Some(facts.collect()))
        .build();
    let draft = Draft::begin(target)?;
    let written = || -> Result<Draft, ParquetError> {
        let mut file = SerializedFileWriter::new(draft, Arc::new(schema), Arc::new(layout))?;
        let mut group = file.next_row_group()?;
        columns.iter().try_for_each(|(_, values)| write_column(&mut group, values))?;
        group.close()?;
        file.into_inner()
    };
    written().map_err(io::Error::other)?.commit()
}

/// Returns the schema of a table with `columns`, in the text notation of Parquet schemas.
fn message(columns: &[Column]) -> String {
    let fields: Vec<_> = columns
        .iter()
        .map(|(name, values)| match values {
            Values::Text(_) => format!("required binary {name} (STRING);"),
            Values::Int(_) => format!("required int32 {name};"),
            Values::Long(_) => format!("required int64 {name};"),
            Values::Double(_) => format!("required double {name};"),
            Values::Bool(_) => format!("required boolean {name};"),
        })
        .collect();
    format!("message anabranch_experiment {{ {} }}", fields.join(" "))
}

type Group<'a> = SerializedRowGroupWriter<'a, Draft>;

fn write_column(group: &mut Group<'_>, values: &Values) -> Result<(), ParquetError> {
    match values {
        Values::Text(texts) => {
            let texts: Vec<_> = texts.iter().map(|text| ByteArray::from(text.as_str())).collect();
            typed::<ByteArrayType>(group, &texts)
        }
        Values::Int(numbers) => typed::<Int32Type>(group, numbers),
        Values::Long(numbers) => typed::<Int64Type>(group, numbers),
        Values::Double(numbers) => typed::<DoubleType>(group, numbers),
        Values::Bool(answers) => typed::<BoolType>(group, answers),
    }
}

fn typed<T: DataType>(group: &mut Group<'_>, values: &[T::T]) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.expect("as many columns are written as the schema has");
    column.typed::<T>().write_batch(values, None, None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("t.parquet");
        let columns = [
            ("system".to_owned(), Values::Text(vec!["a".into(), "b".into()])),
            ("every".to_owned(), Values::Int(vec![1, 2])),
            ("bytes".to_owned(), Values::Long(vec![1 << 40, 2])),
            ("rate".to_owned(), Values::Double(vec![0.5, 2.5])),
            ("counts".to_owned(), Values::Bool(vec![true, false])),
        ];
        write(&target, &columns, &[("anabranch.experiment", "test".to_owned())]).unwrap();
        let reader = SerializedFileReader::new(std::fs::File::open(&target).unwrap()).unwrap();
        let facts = reader.metadata().file_metadata().key_value_metadata().unwrap();
        assert!(facts.iter().any(|f| f.key == "anabranch.experiment"));
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1].get_string(0).unwrap(), "b");
        assert_eq!((rows[0].get_int(1).unwrap(), rows[0].get_long(2).unwrap()), (1, 1 << 40));
        assert_eq!((rows[1].get_double(3).unwrap(), rows[1].get_bool(4).unwrap()), (2.5, false));
    }

    #[test]
    fn a_folder_that_is_not_there_is_refused() {
        let error = write(Path::new("/no/where/t.parquet"), &[], &[]).unwrap_err();
        assert!(error.to_string().contains("does not exist"), "{error}");
    }
}
