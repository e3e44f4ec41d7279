//! Errors of reading and writing state on disk.

use std::fmt;
use std::io;
use std::path::PathBuf;

use anabranch_onion::wire::keys::KeyError;

/// Reason why keys or state on disk cannot be used.
#[derive(Debug)]
pub enum StoreError {
    /// A file or folder cannot be accessed. The fields are its path and the system's error.
    File(PathBuf, io::Error),
    /// Other users can access the folder. The fields are its path and its permissions.
    Open(PathBuf, u32),
    /// Another process uses the folder. The fields are the folder's path and the ID of that
    /// process, if it is known.
    Busy(PathBuf, Option<u32>),
    /// The keys in the folder are invalid. The fields are its path and the error.
    Keys(PathBuf, KeyError),
}

impl fmt::Display for StoreError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::File(path, error) => write!(out, "{}: {error}", path.display()),
            StoreError::Open(path, mode) => {
                let path = path.display();
                write!(
                    out,
                    "{path}: other users can read this folder (mode {mode:o}); run chmod 700 {path}"
                )
            }
            StoreError::Busy(path, process) => {
                let process = process.map_or(String::new(), |id| format!(" {id}"));
                let path = path.display();
                write!(
                    out,
                    "{path}: another process{process} uses this folder; start this program with \
                     another folder: --data DIR"
                )
            }
            StoreError::Keys(path, error) => write!(out, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for StoreError {}
