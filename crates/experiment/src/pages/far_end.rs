//! The far end (the program that puts split traffic together again), which runs in front of the
//! tunnel's server. This module has its keys, its process, and the options with which splitters
//! use it.

use std::io;
use std::path::Path;
use std::process::Command;

use super::super::stage::{SERVER, Stage};
use super::super::tunnel;
use anabranch_emulator::GroupProcess;
use tempfile::TempDir;

/// Port on which the far end receives the packets of splitters.
pub(super) const PORT: u16 = 4500;

/// A running far end (the program that puts split traffic together again). Splitters use it one
/// after another. It is stopped on drop.
pub(super) struct FarEnd<'a> {
    keys: TempDir,
    _merge: GroupProcess<'a>,
}

impl<'a> FarEnd<'a> {
    /// Generates the keys, and starts the far end with the additional arguments `words`. The far
    /// end accepts both datagrams and byte streams from splitters.
    ///
    /// # Errors
    /// The program rejects the arguments. The error includes its message.
    pub(super) fn open(
        stage: &'a Stage,
        program: &Path,
        words: &[String],
    ) -> io::Result<FarEnd<'a>> {
        let keys = TempDir::new()?;
        let (near, far) = (keys.path().join("near.key"), keys.path().join("far.key"));
        let made = Command::new(program).arg("key").args([&far, &near]).output()?;
        if !made.status.success() {
            let stderr = String::from_utf8_lossy(&made.stderr).trim().to_owned();
            return Err(io::Error::other(format!("`anabranch key` failed: {stderr}")));
        }
        let own =
            ["--key", &far.display().to_string(), "--listen-tcp", &format!("{SERVER}:{PORT}")]
                .map(str::to_owned);
        let merge = stage.merge(program, (PORT, tunnel::PORT), &[&own, words].concat())?;
        Ok(FarEnd { keys, _merge: merge })
    }

    /// Returns the additional command-line arguments with which a splitter uses this far end.
    pub(super) fn words(&self) -> [String; 2] {
        ["--key".to_owned(), self.keys.path().join("near.key").display().to_string()]
    }
}
