//! Journals: files that store an experiment's results so far, one JSON record per line. Each line
//! is on disk before the next measurement begins.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anabranch_os::file_lock::FileLock;
use anabranch_os::toml_keys::in_plain_words;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// The stored results of an experiment, in a file that grows by a line for each result.
///
/// The first line identifies the experiment and the build that runs it, so that results of two
/// builds are never mixed. An incomplete last line (after a power failure or a kill) is dropped,
/// so at most the measurement in progress is lost.
#[derive(Debug)]
pub struct Journal<R> {
    file: FileLock,
    path: PathBuf,
    header: Value,
    records: Vec<R>,
}

/// Name of the member of the journal's first line (a JSON object) that may grow when the
/// experiment is resumed. It lists the third-party programs, and the resumed experiment may need
/// more of them.
const GROWS: &str = "programs";
/// Names of the members of the journal's first line that describe the origin of the results. No
/// option sets these members.
const ORIGIN: [&str; 3] = ["machine", "program", GROWS];

/// Reason why an experiment's journal cannot be resumed.
#[derive(Debug)]
pub enum JournalError {
    /// The journal's file cannot be read or written.
    Io(PathBuf, io::Error),
    /// Another process uses the journal's file.
    Busy(PathBuf),
    /// The file is not a journal, or the line with this number (from 1) is malformed.
    Line(PathBuf, usize, String),
    /// The journal belongs to an experiment with other settings. The fields are the path, the name
    /// of the first setting that differs, its value in the journal, and its present value.
    Other(PathBuf, String, Value, Value),
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            JournalError::Busy(path) => {
                write!(
                    f,
                    "{}: another process writes to this folder: wait until it ends, or choose \
                     another folder",
                    path.display()
                )
            }
            JournalError::Line(path, line, why) => {
                write!(
                    f,
                    "{}:{line}: the line is not a record of this experiment ({why}): choose \
                     another folder",
                    path.display()
                )
            }
            JournalError::Other(path, key, there, here) => {
                let (what, remedy) = match ORIGIN.iter().any(|own| key.starts_with(own)) {
                    true => (
                        "of another build, with other programs, or on another machine",
                        "continue with the same build, programs and machine",
                    ),
                    false => ("with other settings", "continue with the same settings"),
                };
                let value_text = |value: &Value| match value {
                    Value::Null => "not noted".to_owned(),
                    value => value.to_string(),
                };
                write!(
                    f,
                    "{}: the file belongs to an experiment {what} ({key}: {} in the file, {} now): \
                     {remedy}, or choose another folder",
                    path.display(),
                    value_text(there),
                    value_text(here)
                )
            }
        }
    }
}

impl std::error::Error for JournalError {}

impl<R: Serialize + DeserializeOwned> Journal<R> {
    /// Opens the journal at `path` to resume it, or creates it with the first line `header`, a
    /// JSON object.
    ///
    /// # Errors
    /// [`JournalError`] if the file cannot be used. In this case, the file is unchanged.
    pub fn open(path: &Path, header: &Value) -> Result<Journal<R>, JournalError> {
        let io = |error| JournalError::Io(path.to_owned(), error);
        let options = OpenOptions::new().read(true).append(true).create(true).clone();
        let locked = FileLock::take(options.open(path).map_err(io)?).map_err(io)?;
        let mut file = locked.ok_or_else(|| JournalError::Busy(path.to_owned()))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io)?;
        let text = whole_lines(&bytes);
        let (path, header) = (path.to_owned(), header.clone());
        let mut journal = Journal { file, path, header, records: Vec::new() };
        match text.is_empty() {
            true => journal.begin(&bytes)?,
            false => journal.resume(&text)?,
        }
        Ok(journal)
    }

    /// Writes the journal's first line. The file's content, `found`, is empty or only a part of
    /// that line.
    fn begin(&mut self, found: &[u8]) -> Result<(), JournalError> {
        if !self.header.to_string().as_bytes().starts_with(found) {
            let why = "the file does not begin like a journal".to_owned();
            return Err(JournalError::Line(self.path.clone(), 1, why));
        }
        let header = self.header.clone();
        let written = self.file.set_len(0).and_then(|()| self.line(&header));
        written.map_err(|error| JournalError::Io(self.path.clone(), error))
    }

    /// Reads the journal's existing records, if they belong to the same experiment with the same
    /// settings. If the experiment uses more programs now, adds them to the member [`GROWS`] of
    /// the first line.
    fn resume(&mut self, text: &str) -> Result<(), JournalError> {
        let (mut header, records) = parse(&self.path, text)?;
        let more = agree(&self.path, &header, &self.header)?;
        let cut = self.file.set_len(text.len() as u64);
        let written = cut.and_then(|()| match more.is_empty() {
            true => Ok(()),
            false => self.line(&json!({ GROWS: more })),
        });
        written.map_err(|error| JournalError::Io(self.path.clone(), error))?;
        grow(&mut header, &more);
        (self.header, self.records) = (header, records);
        Ok(())
    }

    /// Reads the header and the records of a journal that another process may be writing.
    ///
    /// # Errors
    /// [`JournalError`], for example if the file does not exist.
    pub fn read(path: &Path) -> Result<(Value, Vec<R>), JournalError> {
        let bytes = fs::read(path).map_err(|error| JournalError::Io(path.to_owned(), error))?;
        parse(path, &whole_lines(&bytes))
    }

    /// Appends a record, and waits until it is on disk.
    ///
    /// # Errors
    /// The disk is full, or was removed.
    pub fn append(&mut self, record: R) -> Result<(), JournalError> {
        self.line(&record).map_err(|error| JournalError::Io(self.path.clone(), error))?;
        self.records.push(record);
        Ok(())
    }

    /// Returns the journal's first line: the settings and the origin that all records share.
    pub fn header(&self) -> &Value {
        &self.header
    }

    /// Returns all records of the journal, oldest first.
    pub fn records(&self) -> &[R] {
        &self.records
    }

    fn line(&mut self, content: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(content)?;
        line.push(b'\n');
        // A single write suffices, because only a crash of the machine can leave an incomplete
        // line.
        self.file.write_all(&line)?;
        self.file.sync_data()
    }
}

/// Returns all complete lines of a journal. If the lines are not valid UTF-8, returns a text that
/// the parser rejects.
fn whole_lines(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    String::from_utf8(bytes[..end].to_vec()).unwrap_or_else(|_| "?\n".to_owned())
}

fn parse<R: DeserializeOwned>(path: &Path, text: &str) -> Result<(Value, Vec<R>), JournalError> {
    let error = |line: usize, why: &dyn fmt::Display| {
        JournalError::Line(path.to_owned(), line, in_plain_words(&why.to_string()))
    };
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    let (_, first) = lines.next().ok_or_else(|| error(1, &"the file is empty"))?;
    let mut header: Value = serde_json::from_str(first).map_err(|e| error(1, &e))?;
    let mut records = Vec::new();
    for (at, line) in lines {
        let value: Value = serde_json::from_str(line).map_err(|e| error(at, &e))?;
        match value.as_object().filter(|o| o.len() == 1).and_then(|o| o.get(GROWS)?.as_object()) {
            Some(more) => grow(&mut header, more),
            None => records.push(serde_json::from_value(value).map_err(|e| error(at, &e))?),
        }
    }
    Ok((header, records))
}

/// Adds the entries of `more` to the member [`GROWS`] of the journal's first line.
fn grow(header: &mut Value, more: &Map<String, Value>) {
    for (key, value) in more {
        header[GROWS][key] = value.clone();
    }
}

/// Checks that the journal's first line, `there`, has the same settings and origin as the first
/// line of the present experiment, `here`. Returns the entries of the member [`GROWS`] that only
/// `here` has.
fn agree(path: &Path, there: &Value, here: &Value) -> Result<Map<String, Value>, JournalError> {
    let object = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let (there, here) = (object(there), object(here));
    let differ = |key: String, there: Option<&Value>, here: Option<&Value>| {
        let [there, here] = [there, here].map(|value| value.cloned().unwrap_or_default());
        JournalError::Other(path.to_owned(), key, there, here)
    };
    // A different build is reported first, because it may be the cause of other differences.
    let keys = here.keys().chain(there.keys()).map(String::as_str);
    for key in ORIGIN.into_iter().chain(keys).filter(|key| *key != GROWS) {
        if there.get(key) != here.get(key) {
            return Err(differ(key.to_owned(), there.get(key), here.get(key)));
        }
    }
    let grown = |header: &Map<String, Value>| header.get(GROWS).map(object).unwrap_or_default();
    let (there, mut here) = (grown(&there), grown(&here));
    for (key, value) in &there {
        if let Some(other) = here.remove(key).filter(|other| other != value) {
            return Err(differ(format!("{GROWS}.{key}"), Some(value), Some(&other)));
        }
    }
    Ok(here)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anonymity::{Outcome, UnitResult};

    fn header() -> Value {
        json!({"experiment": "test", "seed": 1})
    }

    fn open(path: &Path) -> Result<Journal<u32>, JournalError> {
        Journal::open(path, &header())
    }

    /// Returns a path for a journal, and its directory, which is deleted on drop.
    fn place() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("units.jsonl");
        (folder, path)
    }

    /// Checks that the journal is refused and that its file does not change. Returns the error.
    fn refused(path: &Path, header: &Value) -> String {
        let before = fs::read(path).unwrap();
        let error = Journal::<u32>::open(path, header).unwrap_err().to_string();
        assert_eq!(fs::read(path).unwrap(), before);
        error
    }

    #[test]
    fn what_was_done_is_there_when_it_is_opened_again() {
        let (_folder, path) = place();
        let mut journal = open(&path).unwrap();
        journal.append(7).unwrap();
        journal.append(8).unwrap();
        drop(journal);
        assert_eq!(open(&path).unwrap().records(), [7, 8]);
        assert_eq!(Journal::<u32>::read(&path).unwrap(), (header(), vec![7, 8]));
    }

    #[test]
    fn a_journal_of_an_earlier_program_goes_on() {
        let (_folder, path) = place();
        let text = include_str!("../../../tests/formats/0e0b824b/units.jsonl");
        fs::write(&path, text).unwrap();
        let (header, records) = Journal::<UnitResult>::read(&path).unwrap();
        assert_eq!((&header["experiment"], &header["clients"]), (&json!("anonymity"), &json!(50)));
        let Outcome::Fingerprints { in_use: 2, rows } = &records[0].outcome else {
            panic!("{records:?}");
        };
        assert_eq!((records[0].listing.entries, rows[0].own.largest.mean), (100, 6.0));
        let mut journal = Journal::open(&path, &header).unwrap();
        journal.append(records[0].clone()).unwrap();
        let last = text.lines().last().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{text}{last}\n"));
    }

    #[test]
    fn a_line_that_was_cut_short_is_dropped_and_the_rest_goes_on() {
        let (_folder, path) = place();
        open(&path).unwrap().append(7).unwrap();
        let whole = fs::read(&path).unwrap();
        // Parts of the next line that may have been written before a power failure.
        for cut in [&b"1"[..], b"12", b"\xff\xfe"] {
            fs::write(&path, [&whole, cut].concat()).unwrap();
            match open(&path) {
                Ok(mut journal) => {
                    assert_eq!(journal.records(), [7]);
                    journal.append(9).unwrap();
                    drop(journal);
                    assert_eq!(open(&path).unwrap().records(), [7, 9]);
                }
                Err(error) => panic!("{error}"),
            }
        }
        // An incomplete header means that the journal has no record yet.
        fs::write(&path, &whole[..9]).unwrap();
        assert!(open(&path).unwrap().records().is_empty());
        fs::write(&path, "mine").unwrap();
        assert!(open(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"mine");
    }

    #[test]
    fn runs_with_other_settings_are_not_mixed() {
        let (_folder, path) = place();
        open(&path).unwrap().append(7).unwrap();
        let error = refused(&path, &json!({"experiment": "test", "seed": 2}));
        assert!(error.contains("(seed: 1 in the file, 2 now)"), "{error}");
    }

    #[test]
    fn results_of_two_builds_peers_or_machines_are_not_mixed() {
        let (_folder, path) = place();
        let header = |program: &str, machine: &str, peers: Value| json!({"program": program, "machine": machine, "programs": peers, "seed": 1});
        let first = header("a 1", "here", json!({"quinn": "0a"}));
        drop(Journal::<u32>::open(&path, &first).unwrap());
        for (other, wanted) in [
            (
                header("a 2", "here", json!({"quinn": "0a"})),
                r#"(program: "a 1" in the file, "a 2" now)"#,
            ),
            (header("a 1", "there", json!({})), r#"(machine: "here" in the file, "there" now)"#),
            (header("a 1", "here", json!({"quinn": "0b"})), r#"(programs.quinn: "0a" in the file"#),
            (json!({"seed": 1}), r#"(machine: "here" in the file, not noted now)"#),
        ] {
            let error = refused(&path, &other);
            assert!(
                error.contains(wanted) && error.contains("continue with the same build"),
                "{error}"
            );
        }
    }

    #[test]
    fn further_peers_are_noted_and_hold_from_then_on() {
        let (_folder, path) = place();
        let header = |peers: Value| json!({"programs": peers, "seed": 1});
        let open = |peers: Value| Journal::<u32>::open(&path, &header(peers));
        open(json!({"quinn": "0a"})).unwrap().append(7).unwrap();
        open(json!({"mosh": "0c"})).unwrap().append(8).unwrap();
        let both = header(json!({"quinn": "0a", "mosh": "0c"}));
        let journal = open(json!({"quinn": "0a", "mosh": "0c"})).unwrap();
        assert_eq!((journal.records(), journal.header()), (&[7, 8][..], &both));
        drop(journal);
        assert_eq!(Journal::<u32>::read(&path).unwrap(), (both, vec![7, 8]));
        let error = refused(&path, &header(json!({"mosh": "0d"})));
        assert!(error.contains(r#"(programs.mosh: "0c" in the file, "0d" now)"#), "{error}");
    }

    #[test]
    fn what_is_no_journal_is_refused_with_its_line_and_kept() {
        let (_folder, path) = place();
        fs::write(&path, format!("{}\n7\nseven\n", header())).unwrap();
        let error = refused(&path, &header());
        assert!(error.contains("units.jsonl:3: the line is not a record"), "{error}");
    }

    #[test]
    fn two_runs_do_not_write_into_one_journal() {
        let (_folder, path) = place();
        let _first = open(&path).unwrap();
        assert!(matches!(open(&path), Err(JournalError::Busy(_))));
    }
}
