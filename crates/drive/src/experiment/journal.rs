//! What an experiment has measured so far: a file of lines, each durable before the next unit begins.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The records of an experiment, in a file that grows by a line for each.
///
/// The first line says what the experiment is, so that nobody mixes two. A line that was cut short (by
/// a power cut, or a kill) is dropped: at most the unit under way is lost.
#[derive(Debug)]
pub struct Journal<R> {
    file: File,
    path: PathBuf,
    records: Vec<R>,
}

/// Why there is no journal to go on with.
#[derive(Debug)]
pub enum JournalError {
    /// The file cannot be read or written.
    Io(PathBuf, io::Error),
    /// Another process is at it.
    Busy(PathBuf),
    /// It is not a journal, or a line of it makes no sense; counted from 1.
    Line(PathBuf, usize, String),
    /// It belongs to a run with other settings: the setting, its value there, its value here.
    Other(PathBuf, String, Value, Value),
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            JournalError::Busy(path) => {
                write!(f, "{}: another run is at work there; name another folder", path.display())
            }
            JournalError::Line(path, line, why) => {
                write!(f, "{}:{line}: not a record of this experiment: {why}", path.display())
            }
            JournalError::Other(path, key, there, here) => write!(
                f,
                "{}: belongs to a run with other settings ({key}: {there} there, {here} here); give \
                 the same ones to go on, or name another folder",
                path.display()
            ),
        }
    }
}

impl std::error::Error for JournalError {}

impl<R: Serialize + DeserializeOwned> Journal<R> {
    /// Opens the journal at `path` to go on with it, or begins it with `header`, a JSON object.
    ///
    /// # Errors
    /// [`JournalError`]; nothing has changed then.
    pub fn open(path: &Path, header: &Value) -> Result<Journal<R>, JournalError> {
        let io = |error| JournalError::Io(path.to_owned(), error);
        let options = OpenOptions::new().read(true).append(true).create(true).clone();
        let mut file = options.open(path).map_err(io)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| JournalError::Busy(path.to_owned()))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io)?;
        let text = whole_lines(&bytes);
        let mut journal = Journal { file, path: path.to_owned(), records: Vec::new() };
        if text.is_empty() {
            if !header.to_string().as_bytes().starts_with(&bytes) {
                let why = "it is another file".to_owned();
                return Err(JournalError::Line(path.to_owned(), 1, why));
            }
            journal.file.set_len(0).map_err(io)?;
            journal.line(header).map_err(io)?;
            return Ok(journal);
        }
        let (found, records) = parse(path, &text)?;
        agree(path, &found, header)?;
        journal.file.set_len(text.len() as u64).map_err(io)?;
        journal.records = records;
        Ok(journal)
    }

    /// The header and the records of a journal that somebody else may be writing.
    ///
    /// # Errors
    /// [`JournalError`]; there is none, for instance.
    pub fn read(path: &Path) -> Result<(Value, Vec<R>), JournalError> {
        let bytes = fs::read(path).map_err(|error| JournalError::Io(path.to_owned(), error))?;
        parse(path, &whole_lines(&bytes))
    }

    /// Adds a record; it is durable when this returns.
    ///
    /// # Errors
    /// The disk is full, or gone.
    pub fn append(&mut self, record: R) -> Result<(), JournalError> {
        self.line(&record).map_err(|error| JournalError::Io(self.path.clone(), error))?;
        self.records.push(record);
        Ok(())
    }

    /// All records, the oldest first.
    pub fn records(&self) -> &[R] {
        &self.records
    }

    fn line(&mut self, content: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(content)?;
        line.push(b'\n');
        // One write, so that a line is cut short only by the end of the machine.
        self.file.write_all(&line)?;
        self.file.sync_data()
    }
}

/// All up to the last line's end; what is no text in there is found by the parser.
fn whole_lines(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    String::from_utf8(bytes[..end].to_vec()).unwrap_or_else(|_| "?\n".to_owned())
}

fn parse<R: DeserializeOwned>(path: &Path, text: &str) -> Result<(Value, Vec<R>), JournalError> {
    let error = |line: usize, why: &dyn fmt::Display| {
        JournalError::Line(path.to_owned(), line, why.to_string())
    };
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    let (_, first) = lines.next().ok_or_else(|| error(1, &"it is empty"))?;
    let header: Value = serde_json::from_str(first).map_err(|e| error(1, &e))?;
    let record = |(at, line): (usize, &str)| serde_json::from_str(line).map_err(|e| error(at, &e));
    Ok((header, lines.map(record).collect::<Result<_, _>>()?))
}

/// The headers say the same, or the first thing in which they differ.
fn agree(path: &Path, there: &Value, here: &Value) -> Result<(), JournalError> {
    if there == here {
        return Ok(());
    }
    let keys = |value: &Value| {
        value.as_object().map(|o| o.keys().cloned().collect::<Vec<_>>()).unwrap_or_default()
    };
    let all = keys(here).into_iter().chain(keys(there));
    let (mut key, mut pair) = ("the whole".to_owned(), (there.clone(), here.clone()));
    for each in all {
        if there.get(&each) != here.get(&each) {
            pair = (there[&each].clone(), here[&each].clone());
            key = each;
            break;
        }
    }
    Err(JournalError::Other(path.to_owned(), key, pair.0, pair.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn header() -> Value {
        json!({"experiment": "test", "seed": 1})
    }

    fn open(path: &Path) -> Result<Journal<u32>, JournalError> {
        Journal::open(path, &header())
    }

    /// A place for a journal, and the folder that goes with the test.
    fn place() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("units.jsonl");
        (folder, path)
    }

    /// That it is refused, and has not changed.
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
    fn a_line_that_was_cut_short_is_dropped_and_the_rest_goes_on() {
        let (_folder, path) = place();
        open(&path).unwrap().append(7).unwrap();
        let whole = fs::read(&path).unwrap();
        // Whatever of the next line got to the disk.
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
        // The header itself was cut: nothing was done yet.
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
        assert!(error.contains("(seed: 1 there, 2 here)"), "{error}");
    }

    #[test]
    fn what_is_no_journal_is_refused_with_its_line_and_kept() {
        let (_folder, path) = place();
        fs::write(&path, format!("{}\n7\nseven\n", header())).unwrap();
        let error = refused(&path, &header());
        assert!(error.contains("units.jsonl:3: not a record"), "{error}");
    }

    #[test]
    fn two_runs_do_not_write_into_one_journal() {
        let (_folder, path) = place();
        let _first = open(&path).unwrap();
        assert!(matches!(open(&path), Err(JournalError::Busy(_))));
    }
}
