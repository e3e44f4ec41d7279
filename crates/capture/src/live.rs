//! Files that are readable while they are written, and also if the program is killed. They have a
//! temporary name until the first content is written.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use super::draft::{explain, hidden};

/// Size in bytes of the write buffer: more bytes are written to the file at once.
const BUFFER: usize = 1 << 16;

/// A file that remains readable while it is written.
///
/// The file has a temporary name until [`LiveFile::show`] gives it its final name. If this value
/// is dropped before that call, the file is removed, so that a program that fails at its start
/// leaves no file. Only the file's owner may read it (mode 0600), because a capture reveals the
/// endpoints of each session.
#[derive(Debug)]
pub(super) struct LiveFile {
    file: File,
    buffer: Vec<u8>,
    /// The temporary name; `None` once the file has its final name.
    hidden: Option<TempPath>,
    target: PathBuf,
    /// Length of the file's data in bytes, including the buffered data.
    length: u64,
    /// Whether further writes are ignored, because a write has failed and the file was truncated
    /// to its valid part.
    is_over: bool,
}

impl LiveFile {
    /// Creates a file that [`LiveFile::show`] will rename to `target`.
    ///
    /// # Errors
    /// The directory does not exist or is not writable, or `target` exists and is not a file.
    pub(super) fn begin(target: &Path) -> io::Result<LiveFile> {
        let (file, path) = hidden(target)?.into_parts();
        let (hidden, target) = (Some(path), target.to_owned());
        Ok(LiveFile { file, buffer: Vec::new(), hidden, target, length: 0, is_over: false })
    }

    /// Writes all buffered data, without waiting for the disk, and gives the file its final name.
    /// Replaces an older file of that name.
    pub(super) fn show(&mut self) -> io::Result<()> {
        self.flush().map_err(|error| self.failed(error))?;
        self.name()
    }

    fn name(&mut self) -> io::Result<()> {
        let Some(path) = self.hidden.take() else { return Ok(()) };
        let target = &self.target;
        let named = path.persist(target).map_err(|failed| failed.error);
        let what = || format!("cannot rename the temporary file to {}", target.display());
        named.map_err(|e| explain(e, what()))
    }

    /// Gives the file its final name, and waits until its content is on the disk.
    pub(super) fn commit(&mut self) -> io::Result<()> {
        self.show()?;
        let synced = self.file.set_len(self.length).and_then(|()| self.file.sync_all());
        synced.map_err(|error| self.failed(error))
    }

    /// Writes `tail` (such as a footer) after the data, so that the file is complete, and gives
    /// the file its final name. The next write of data overwrites the tail.
    pub(super) fn put_tail(&mut self, tail: &[u8]) -> io::Result<()> {
        self.flush()?;
        self.file.write_all_at(tail, self.length)?;
        self.name()
    }

    /// Removes the remains of a failed write: truncates the file to `length` bytes, appends
    /// `tail`, and gives the file its final name. Later writes are ignored.
    pub(super) fn restore(&mut self, length: u64, tail: &[u8]) -> io::Result<()> {
        self.is_over = true;
        self.buffer.clear();
        self.file.set_len(length)?;
        self.file.write_all_at(tail, length)?;
        self.name()
    }

    /// Adds the file's name to `error`.
    pub(super) fn failed(&self, error: io::Error) -> io::Error {
        explain(error, format!("cannot write {}", self.target.display()))
    }

    /// Returns the length of the file's data in bytes, without a tail.
    pub(super) fn length(&self) -> u64 {
        self.length
    }
}

impl Write for LiveFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_over {
            return Ok(bytes.len());
        }
        self.buffer.extend_from_slice(bytes);
        self.length += bytes.len() as u64;
        match self.buffer.len() < BUFFER {
            true => Ok(bytes.len()),
            false => self.flush().map(|()| bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = self.file.write_all(&self.buffer);
        self.buffer.clear();
        written
    }
}

impl Drop for LiveFile {
    /// Writes the buffered bytes if the file already has its final name.
    fn drop(&mut self) {
        if self.hidden.is_none() {
            let _ = self.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_is_there_once_it_was_shown_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a");
        fs::write(&target, "old").unwrap();
        let mut file = LiveFile::begin(&target).unwrap();
        file.write_all(b"new").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"old");
        file.show().unwrap();
        file.write_all(b"er").unwrap();
        file.put_tail(b"-tail").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"newer-tail");
        file.write_all(b" than that").unwrap();
        drop(file);
        assert_eq!(fs::read(&target).unwrap(), b"newer than that");
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn a_file_that_was_never_shown_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = LiveFile::begin(&folder.path().join("a")).unwrap();
        file.write_all(&[0; 1 << 20]).unwrap();
        assert_eq!(names(folder.path()).len(), 1);
        drop(file);
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn what_a_failed_write_left_is_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a");
        let mut file = LiveFile::begin(&target).unwrap();
        file.write_all(b"whole").unwrap();
        file.put_tail(b"|end").unwrap();
        file.write_all(b" and half of the ne").unwrap();
        file.flush().unwrap();
        file.write_all(b"xt").unwrap();
        file.restore(5, b"|end").unwrap();
        file.write_all(b"more").unwrap();
        drop(file);
        assert_eq!(fs::read(&target).unwrap(), b"whole|end");
    }
}
