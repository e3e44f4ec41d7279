//! Rules for reading state files. If a file is absent, there is no state. If a file cannot be
//! read, the program does not start, because the operator may need its content. A damaged file is
//! renamed and reported if its loss is harmless; otherwise the program does not start. Fields that
//! a later version wrote are preserved.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anabranch_os::toml_keys::in_plain_words;
use serde::de::DeserializeOwned;

use super::store_error::StoreError;

/// Fields of a JSON object in a state file that this version does not know.
pub type Unknown = serde_json::Map<String, serde_json::Value>;

/// Maximum number of damaged versions of one state file that are kept under other names. Further
/// damaged versions overwrite the last of them.
const MOST_DAMAGED: u32 = 9;

/// Contents of a state file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateContent<T> {
    /// The file does not exist.
    Absent,
    /// The state file is well-formed. The field is its parsed content.
    Whole(T),
    /// The state file is malformed. The field describes the error.
    Damaged(String),
}

/// Reads the bytes of the file `path`. Returns `None` if it does not exist.
///
/// # Errors
/// The file cannot be read.
pub fn read_bytes(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(path, &error)),
    }
}

/// Reads the text file `path`. The result is [`StateContent::Damaged`] if the file is not UTF-8.
///
/// # Errors
/// The file exists, but cannot be read.
pub fn read_text(path: &Path) -> Result<StateContent<String>, StoreError> {
    let Some(bytes) = read_bytes(path)? else { return Ok(StateContent::Absent) };
    let text = String::from_utf8(bytes);
    Ok(text.map_or_else(
        |error| StateContent::Damaged(format!("it is not text: {error}")),
        StateContent::Whole,
    ))
}

/// Reads and parses the JSON file `path`.
///
/// # Errors
/// The file cannot be read.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<StateContent<T>, StoreError> {
    Ok(match read_text(path)? {
        StateContent::Whole(text) if text.trim().is_empty() => {
            StateContent::Damaged("it is empty".to_owned())
        }
        StateContent::Whole(text) => serde_json::from_str(&text).map_or_else(
            |error| StateContent::Damaged(in_plain_words(&error.to_string())),
            StateContent::Whole,
        ),
        StateContent::Absent => StateContent::Absent,
        StateContent::Damaged(why) => StateContent::Damaged(why),
    })
}

/// Checks that the file `path` is readable or does not exist.
///
/// # Errors
/// The file cannot be read.
pub fn check_readable(path: &Path) -> Result<(), StoreError> {
    match fs::File::open(path).and_then(|mut file| file.read(&mut [0])) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unreadable(path, &error)),
        _ => Ok(()),
    }
}

/// Renames the damaged file `path`, whose loss is harmless. Returns a message for the operator, in
/// which `why` describes the damage and `instead` the consequence.
///
/// # Errors
/// The file cannot be renamed.
pub fn set_aside(path: &Path, why: &str, instead: &str) -> Result<String, StoreError> {
    let aside = free_name(path);
    fs::rename(path, &aside).map_err(|error| StoreError::File(path.to_owned(), error))?;
    let (path, aside) = (path.display(), aside.display());
    Ok(format!("{path} was damaged ({why}) and is now called {aside}: {instead}"))
}

/// Creates the error for the damaged file `path`. The program does not start without that file.
/// `why` describes the damage, and `cure` the remedy.
pub fn damaged(path: &Path, why: &str, cure: &str) -> StoreError {
    StoreError::File(path.to_owned(), io::Error::other(format!("it is damaged ({why}): {cure}")))
}

/// Returns the file name with `.damaged` appended. If a file of that name exists already, also
/// appends a number.
fn free_name(path: &Path) -> PathBuf {
    let name = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(if number == 1 { ".damaged".to_owned() } else { format!(".damaged-{number}") });
        PathBuf::from(name)
    };
    let free = |path: &PathBuf| !path.exists();
    (1..MOST_DAMAGED).map(name).find(free).unwrap_or_else(|| name(MOST_DAMAGED))
}

fn unreadable(path: &Path, error: &io::Error) -> StoreError {
    let message = format!(
        "the file cannot be read ({error}): make it readable, or move it away if it is not needed"
    );
    StoreError::File(path.to_owned(), io::Error::new(error.kind(), message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_absent_whole_damaged_or_an_error_and_never_two_of_these() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        assert_eq!(read_json::<Vec<u8>>(&path).unwrap(), StateContent::Absent);
        fs::write(&path, "[1, 2]").unwrap();
        assert_eq!(read_json::<Vec<u8>>(&path).unwrap(), StateContent::Whole(vec![1, 2]));
        for damaged in [&b""[..], b"\n", b"[1, 2", b"{}", b"[1]\xff"] {
            fs::write(&path, damaged).unwrap();
            let read = read_json::<Vec<u8>>(&path).unwrap();
            assert!(matches!(read, StateContent::Damaged(_)), "{damaged:?}: {read:?}");
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        // Not even root can read a folder as a file.
        let error = read_json::<Vec<u8>>(&path).unwrap_err().to_string();
        assert!(error.contains("state.json: the file cannot be read"), "{error}");
        assert!(check_readable(&path).is_err() && check_readable(&folder.path().join("a")).is_ok());
    }

    #[test]
    fn damaged_files_lie_side_by_side() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        for number in 0..12 {
            fs::write(&path, number.to_string()).unwrap();
            let report = set_aside(&path, "it is empty", "it begins anew").unwrap();
            assert!(report.contains("a.json.damaged") && report.contains("empty"), "{report}");
            assert!(!path.exists());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 9);
        assert_eq!(fs::read_to_string(folder.path().join("a.json.damaged")).unwrap(), "0");
        assert_eq!(fs::read_to_string(folder.path().join("a.json.damaged-9")).unwrap(), "11");
    }
}
