//! The schema of trace files (`docs/formats.md`): the columns, and the metadata that concern a
//! whole trace.

use std::time::SystemTime;

use chrono::{DateTime, SecondsFormat, Utc};
use parquet::basic::Type as Physical;
use parquet::file::metadata::KeyValue;

/// The version of the trace schema that this program writes and reads.
pub const SCHEMA: &str = "1";

/// The columns of a trace in Parquet's own notation. All columns are required. A test checks that
/// they equal the columns in `io/columns.json` of the lab (this project's Python programs).
pub(super) const MESSAGE: &str = "message anabranch_trace {
    required int64 load;
    required binary label (STRING);
    required boolean monitored;
    required int32 run (INTEGER(32, true));
    required int32 path (INTEGER(16, true));
    required double time;
    required int32 size (INTEGER(32, true));
}";

/// The names and types of the columns that a reader needs, in the order of [`MESSAGE`].
pub(super) const COLUMNS: [(&str, Physical); 7] = [
    ("load", Physical::INT64),
    ("label", Physical::BYTE_ARRAY),
    ("monitored", Physical::BOOLEAN),
    ("run", Physical::INT32),
    ("path", Physical::INT32),
    ("time", Physical::DOUBLE),
    ("size", Physical::INT32),
];

/// The unit of the values in a trace's `size` column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SizeUnit {
    /// Sizes are in bytes of whole IP packets, as an observer of the path sees them.
    #[default]
    IpPacket,
    /// Sizes are in bytes of Tor cells, as in data sets recorded inside a relay.
    Cell,
    /// Each size is 1 or -1, as in data sets that record only directions.
    Direction,
}

impl SizeUnit {
    const ALL: [SizeUnit; 3] = [SizeUnit::IpPacket, SizeUnit::Cell, SizeUnit::Direction];

    /// Returns the name of the unit in the file.
    pub const fn name(self) -> &'static str {
        match self {
            SizeUnit::IpPacket => "ip-packet",
            SizeUnit::Cell => "cell",
            SizeUnit::Direction => "direction",
        }
    }
}

/// The metadata of a trace file, which concern the whole trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TraceFacts {
    /// The name of each path, by the path's index in the `path` column.
    pub paths: Vec<String>,
    /// The wall-clock time at which the column `time` is zero; `None` if it was not recorded.
    pub start: Option<SystemTime>,
    /// The seed of the random choices of the program that recorded the trace; `None` if the seed
    /// was not recorded.
    pub seed: Option<u64>,
    /// The splitter's schedule (its rule for choosing paths), as on the command line: `weighted
    /// --every 100ms`. `None` if the schedule was not recorded.
    pub schedule: Option<String>,
    /// The unit of the values in a trace's `size` column.
    pub unit: SizeUnit,
    /// Machine-readable names of the protocols whose packets carried an unencrypted sequence
    /// number. From such numbers, an observer learns how many packets other paths carried.
    pub numbers: Vec<String>,
    /// Names of the paths that were TCP connections. Each of their rows is a TCP segment, not a
    /// datagram.
    pub streams: Vec<String>,
}

/// The metadata of a trace that become known while it is recorded, so that they are written at its
/// end.
#[derive(Debug, Default)]
pub(super) struct LateFacts {
    /// The protocols whose packets carried an unencrypted sequence number
    /// ([`TraceFacts::numbers`]).
    pub(super) numbers: Vec<String>,
    /// Names of the paths that were TCP connections ([`TraceFacts::streams`]).
    pub(super) streams: Vec<String>,
}

impl LateFacts {
    /// Appends the lists of `later` to these lists, and empties the lists of `later`.
    pub(super) fn append(&mut self, later: &mut LateFacts) {
        self.numbers.append(&mut later.numbers);
        self.streams.append(&mut later.streams);
    }

    /// Returns a Parquet metadata entry for each list that is not empty.
    pub(super) fn entries(&self) -> impl Iterator<Item = KeyValue> {
        let lists = [("numbers", &self.numbers), ("streams", &self.streams)];
        let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
        lists.map(|(key, list)| {
            let value = serde_json::Value::from(list.as_slice()).to_string();
            KeyValue::new(format!("anabranch.{key}"), value)
        })
    }
}

impl TraceFacts {
    /// Returns the name of the path with the index `number` in the file. Returns `whole` for -1
    /// (the unsplit traffic), and the index as text if the path has no name.
    pub fn path_name(&self, number: i16) -> String {
        let Ok(index) = usize::try_from(number) else { return "whole".to_owned() };
        self.paths.get(index).cloned().unwrap_or_else(|| number.to_string())
    }

    /// Formats [`TraceFacts::start`] for display, as date and time of day in UTC. Returns `None`
    /// if it was not recorded.
    pub fn started(&self) -> Option<String> {
        let start = DateTime::<Utc>::from(self.start?);
        Some(start.format("%Y-%m-%d %H:%M:%S UTC").to_string())
    }

    /// Converts the facts into Parquet metadata, except the facts in [`LateFacts`], which become
    /// known while the trace is recorded.
    pub(super) fn metadata(&self) -> Vec<KeyValue> {
        let entry = |key: &str, value: String| KeyValue::new(format!("anabranch.{key}"), value);
        let mut entries = vec![
            entry("schema", SCHEMA.to_owned()),
            entry("program", concat!("anabranch ", env!("CARGO_PKG_VERSION")).to_owned()),
            entry("size", self.unit.name().to_owned()),
            entry("paths", serde_json::Value::from(self.paths.clone()).to_string()),
        ];
        entries.extend(self.start.map(|start| entry("start", rfc3339(start))));
        entries.extend(self.seed.map(|seed| entry("seed", seed.to_string())));
        entries.extend(self.schedule.clone().map(|schedule| entry("schedule", schedule)));
        entries
    }

    /// Parses the facts from Parquet metadata; unknown keys are ignored.
    ///
    /// # Errors
    /// The schema version is missing or is not [`SCHEMA`], or a value is malformed.
    pub(super) fn parse(metadata: &[KeyValue]) -> Result<TraceFacts, String> {
        let find = |key: &str| {
            let key = format!("anabranch.{key}");
            metadata.iter().find(|kv| kv.key == key).and_then(|kv| kv.value.as_deref())
        };
        check_version(find("schema"))?;
        Ok(TraceFacts {
            paths: field("paths", find("paths"), |s| serde_json::from_str(s).ok())?
                .unwrap_or_default(),
            start: field("start", find("start"), parse_rfc3339)?,
            seed: field("seed", find("seed"), |s| s.parse().ok())?,
            schedule: find("schedule").map(str::to_owned),
            unit: field("size", find("size"), parse_unit)?.unwrap_or_default(),
            numbers: field("numbers", find("numbers"), |s| serde_json::from_str(s).ok())?
                .unwrap_or_default(),
            streams: field("streams", find("streams"), |s| serde_json::from_str(s).ok())?
                .unwrap_or_default(),
        })
    }
}

fn check_version(found: Option<&str>) -> Result<(), String> {
    match found {
        Some(SCHEMA) => Ok(()),
        Some(other) => Err(format!(
            "the file has version {other} of the trace format, but this program reads only version \
             {SCHEMA}: read it with the program that wrote it, or record the trace again"
        )),
        None => {
            Err("the file has no metadata field anabranch.schema: give a file that --trace wrote"
                .to_owned())
        }
    }
}

fn field<T>(
    key: &str,
    value: Option<&str>,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, String> {
    let malformed = |value| {
        format!(
            "the file's metadata field anabranch.{key} has the invalid value {value}: the file is \
             damaged, or another program changed it; record the trace again"
        )
    };
    value.map(|value| parse(value).ok_or_else(|| malformed(value))).transpose()
}

fn parse_unit(name: &str) -> Option<SizeUnit> {
    SizeUnit::ALL.into_iter().find(|unit| unit.name() == name)
}

fn rfc3339(at: SystemTime) -> String {
    DateTime::<Utc>::from(at).to_rfc3339_opts(SecondsFormat::Nanos, true)
}

fn parse_rfc3339(text: &str) -> Option<SystemTime> {
    DateTime::parse_from_rfc3339(text).ok().map(SystemTime::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn facts() -> TraceFacts {
        TraceFacts {
            paths: vec!["wlan".into(), "l\"te".into()],
            start: Some(SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789)),
            seed: Some(u64::MAX),
            schedule: Some("weighted --every 100ms".into()),
            unit: SizeUnit::Cell,
            numbers: Vec::new(),
            streams: Vec::new(),
        }
    }

    fn without(key: &str) -> Vec<KeyValue> {
        facts().metadata().into_iter().filter(|kv| kv.key != key).collect()
    }

    #[test]
    fn facts_survive_the_file() {
        assert_eq!(TraceFacts::parse(&facts().metadata()).unwrap(), facts());
        let none = TraceFacts::default();
        assert_eq!(TraceFacts::parse(&none.metadata()).unwrap(), none);
    }

    /// The lab reads the names of the columns from `io/columns.json`.
    #[test]
    fn the_columns_are_those_of_the_lab() {
        let file = include_str!("../../../lab/src/anabranch/io/columns.json");
        let schema: serde_json::Value = serde_json::from_str(file).unwrap();
        assert_eq!(schema["version"], SCHEMA);
        let columns = schema["columns"].as_array().unwrap();
        let rows: Vec<_> = columns.iter().filter(|row| row["optional"] != true).collect();
        let lines: Vec<_> = rows.iter().map(|row| row["parquet"].as_str().unwrap()).collect();
        let own: Vec<_> = MESSAGE.lines().map(str::trim).filter(|it| it.ends_with(';')).collect();
        assert_eq!(own, lines);
        let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
        assert_eq!(COLUMNS.map(|(name, _)| name).to_vec(), names);
    }

    #[test]
    fn the_start_is_written_in_universal_time() {
        let start = facts().metadata().into_iter().find(|kv| kv.key == "anabranch.start").unwrap();
        assert_eq!(start.value.unwrap(), "2023-11-14T22:13:20.123456789Z");
        assert_eq!(facts().started().unwrap(), "2023-11-14 22:13:20 UTC");
    }

    #[test]
    fn another_version_or_a_malformed_value_is_refused() {
        let parse = |key: &str, value: &str| {
            let mut metadata = without(key);
            metadata.push(KeyValue::new(key.to_owned(), value.to_owned()));
            TraceFacts::parse(&metadata).unwrap_err()
        };
        assert!(parse("anabranch.schema", "2").contains("has version 2 of the trace format"));
        assert!(parse("anabranch.seed", "-1").contains("anabranch.seed has the invalid value -1"));
        assert!(parse("anabranch.start", "today").contains("anabranch.start"));
        assert!(parse("anabranch.paths", "wlan").contains("anabranch.paths"));
        assert!(parse("anabranch.size", "bit").contains("anabranch.size"));
        assert!(parse("anabranch.numbers", "all").contains("anabranch.numbers"));
        assert!(parse("anabranch.streams", "all").contains("anabranch.streams"));
        let none = TraceFacts::parse(&without("anabranch.schema")).unwrap_err();
        assert!(none.contains("no metadata field anabranch.schema"), "{none}");
    }

    #[test]
    fn a_path_without_a_name_is_called_by_its_number() {
        assert_eq!(facts().path_name(0), "wlan");
        assert_eq!(facts().path_name(2), "2");
        assert_eq!(facts().path_name(-1), "whole");
    }
}
