//! Keys of a relay's families, in files that `tor --keygen-family` has generated.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anabranch_onion::wire::family::{FAMILY_KEY_SUFFIX, FamilyKey};

use super::kept::read_bytes;
use super::store::StoreError;

/// Reads family keys from `files`, and from the subfolder `keys` of a relay's folder `data`. C tor
/// stores its family keys there, so a relay that takes over C tor's data folder stays in its
/// families.
///
/// # Errors
/// A file is absent or unreadable, or contains no family key. The relay must not run
/// without the key, because a path could then use two relays of the same operator.
pub fn families(data: &Path, files: &[PathBuf]) -> Result<Vec<FamilyKey>, StoreError> {
    let mut families: Vec<FamilyKey> = Vec::new();
    for path in files.iter().cloned().chain(kept(&data.join("keys"))?) {
        let missing = || StoreError::File(path.clone(), io::ErrorKind::NotFound.into());
        let content = read_bytes(&path)?.ok_or_else(missing)?;
        let family =
            FamilyKey::from_file(&content).map_err(|error| StoreError::Keys(path, error))?;
        if !families.contains(&family) {
            families.push(family);
        }
    }
    Ok(families)
}

/// Returns the files of family keys in `folder`, sorted by name.
fn kept(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let to_error = |error| StoreError::File(folder.to_owned(), error);
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(to_error)?,
    };
    let paths = entries.map(|entry| Ok(entry.map_err(to_error)?.path()));
    let mut paths: Vec<PathBuf> = paths.collect::<Result<_, _>>()?;
    paths.retain(|path| path.to_string_lossy().ends_with(FAMILY_KEY_SUFFIX));
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys that tor 0.4.9.11 made with `--keygen-family`, in hex, and their IDs.
    const KEYS: [(&str, &str); 2] = [
        (
            concat!(
                "801befb3806e7f7e96bdf11cbbd909ecec264a9fabd77d1580365e296c722240",
                "b8cf296ea54f0a14eacc1cb96e22c074bb767f9cc60a4a0908748f87cf6c2d44",
            ),
            "K7PKsrAF0bbviLI4GvaD0mtxfDPX7w+Oa2eMkSJ3W4U",
        ),
        (
            concat!(
                "7065be1f504ca3005e947228aa4b0f703739ed980998fe5fa90732234ab3a26a",
                "5c9a023e6245a3e2750b95d9a1d3385a9fd9390357747338d1b87c093c08ce0b",
            ),
            "Tq0MNARC0Tw1MNGiwcWGLNvde4qwFoef6N8nhUo5oWs",
        ),
    ];

    fn write(path: &Path, key: usize) {
        let hex = KEYS[key].0;
        let bytes = (0..hex.len()).step_by(2);
        let secret = bytes.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
        let mut file = b"== ed25519v1-secret: fmly-id ==\0".to_vec();
        file.extend(secret);
        fs::write(path, file).unwrap();
    }

    #[test]
    fn keys_of_a_relay_that_is_taken_over_are_found_and_named_ones_come_first() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        assert_eq!(families(data, &[]).unwrap(), []);
        let keys = data.join("keys");
        fs::create_dir(&keys).unwrap();
        fs::write(keys.join("secret_id_key"), "another").unwrap();
        write(&keys.join("mine.secret_family_key"), 0);
        let named = data.join("other");
        write(&named, 1);
        let ids = |files: &[PathBuf]| -> Vec<String> {
            families(data, files).unwrap().iter().map(FamilyKey::id).collect()
        };
        assert_eq!(ids(&[]), [KEYS[0].1]);
        assert_eq!(ids(std::slice::from_ref(&named)), [KEYS[1].1, KEYS[0].1]);
        write(&named, 0);
        assert_eq!(ids(&[named]), [KEYS[0].1], "one key twice is one family");
    }

    #[test]
    fn a_key_that_cannot_be_used_ends_the_start() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        let missing = data.join("missing");
        let error = families(data, &[missing]).unwrap_err().to_string();
        assert!(error.contains("missing: "), "{error}");
        let keys = data.join("keys");
        fs::create_dir(&keys).unwrap();
        let path = keys.join("mine.secret_family_key");
        fs::write(&path, "no key").unwrap();
        let error = families(data, &[]).unwrap_err().to_string();
        assert!(
            error.contains("mine.secret_family_key: a family's key: the file contains"),
            "{error}"
        );
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let error = families(data, &[]).unwrap_err().to_string();
        assert!(error.contains("the file cannot be read"), "{error}");
    }
}
