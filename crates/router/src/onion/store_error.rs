//! Why state cannot be had.

use std::fmt;
use std::io;
use std::path::PathBuf;

use anabranch_onion::wire::keys::KeyError;

/// Why there are no keys, or no state.
#[derive(Debug)]
pub enum StoreError {
    /// A file or folder, and what the system said.
    File(PathBuf, io::Error),
    /// Others may read the folder; what its mode is.
    Open(PathBuf, u32),
    /// Another process runs on the folder; its number, if it said so.
    Busy(PathBuf, Option<u32>),
    /// What the folder holds is of no use.
    Keys(PathBuf, KeyError),
}

impl fmt::Display for StoreError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::File(path, error) => write!(out, "{}: {error}", path.display()),
            StoreError::Open(path, mode) => {
                let path = path.display();
                write!(out, "{path}: other users can read it (mode {mode:o}); run chmod 700 {path}")
            }
            StoreError::Busy(path, process) => {
                let process = process.map_or(String::new(), |id| format!(" {id}"));
                let path = path.display();
                write!(
                    out,
                    "{path}: another process{process} uses this folder; start this one with \
                     another folder: --data DIR"
                )
            }
            StoreError::Keys(path, error) => write!(out, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for StoreError {}
