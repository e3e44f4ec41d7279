//! Files that have a temporary name until they are complete.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// A file that is written under a temporary name in the directory of its target.
///
/// The file is removed if this value is dropped without [`Draft::commit`]. The file has mode 0600
/// (readable by its owner only), because a capture reveals who communicates with whom.
#[derive(Debug)]
pub struct Draft {
    file: BufWriter<NamedTempFile>,
    target: PathBuf,
}

impl Draft {
    /// Creates a file that [`Draft::commit`] will rename to `target`.
    ///
    /// # Errors
    /// The directory does not exist or is not writable, or `target` exists and is not a file.
    pub fn begin(target: &Path) -> io::Result<Draft> {
        let file = hidden(target)?;
        Ok(Draft { file: BufWriter::with_capacity(1 << 16, file), target: target.to_owned() })
    }

    /// Writes all content so far to the disk, and waits until it is stored (fsync(2)).
    pub(super) fn settle(&mut self) -> io::Result<()> {
        let written = self.file.flush().and_then(|()| self.file.get_ref().as_file().sync_all());
        written.map_err(|e| explain(e, format!("cannot write {}", self.target.display())))
    }

    /// Writes the content to the disk and renames the file to its target. Replaces an older file
    /// of that name.
    ///
    /// # Errors
    /// The disk is full, or the directory was removed. The draft is then removed, too.
    pub fn commit(mut self) -> io::Result<()> {
        self.settle()?;
        let Draft { file, target } = self;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        let named = file.persist(&target).map_err(|e| e.error);
        let what = || format!("cannot rename the temporary file to {}", target.display());
        named.map(drop).map_err(|e| explain(e, what()))
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Creates a file in the directory of `target`, under a temporary name and with mode 0600.
///
/// # Errors
/// The directory does not exist or is not writable, or `target` exists and is not a file.
pub(super) fn hidden(target: &Path) -> io::Result<NamedTempFile> {
    refuse_non_file(target)?;
    let folder = folder_of(target)?;
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let mut builder = tempfile::Builder::new();
    let made = builder.prefix(&format!(".{name}.")).suffix(".part").tempfile_in(folder);
    made.map_err(|e| explain(e, format!("cannot write in the directory {}", folder.display())))
}

/// Puts `what` before the message of `error`.
pub(super) fn explain(error: io::Error, what: String) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Returns an error if `target` exists and is not a regular file. Without this check, a directory
/// as the target would fail only at the final renaming, and a device would be replaced.
fn refuse_non_file(target: &Path) -> io::Result<()> {
    let refuse = |kind, what| {
        Err(io::Error::new(
            kind,
            format!("{} is {what}; give the name of a file", target.display()),
        ))
    };
    if target.file_name().is_none() {
        return refuse(io::ErrorKind::IsADirectory, "not the name of a file");
    }
    match fs::metadata(target) {
        Ok(meta) if meta.is_dir() => refuse(io::ErrorKind::IsADirectory, "a directory"),
        Ok(meta) if !meta.is_file() => refuse(io::ErrorKind::InvalidInput, "not a regular file"),
        _ => Ok(()),
    }
}

fn folder_of(target: &Path) -> io::Result<&Path> {
    let parent = target.parent().filter(|p| !p.as_os_str().is_empty());
    let folder = parent.unwrap_or(Path::new("."));
    if folder.is_dir() {
        return Ok(folder);
    }
    let why = format!("the directory {} does not exist: make it first", folder.display());
    Err(io::Error::new(io::ErrorKind::NotFound, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_draft_has_its_name_only_after_commit() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a");
        fs::write(&target, "old").unwrap();
        let mut draft = Draft::begin(&target).unwrap();
        draft.write_all(b"new").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"old");
        draft.commit().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn a_dropped_draft_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut draft = Draft::begin(&folder.path().join("a")).unwrap();
        draft.write_all(&[0; 1 << 20]).unwrap();
        assert_eq!(names(folder.path()).len(), 1);
        drop(draft);
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn what_cannot_become_a_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |path: &Path| Draft::begin(path).unwrap_err().to_string();
        assert!(refused(folder.path()).ends_with("is a directory; give the name of a file"));
        assert!(refused(&folder.path().join("no/a")).ends_with("no does not exist: make it first"));
        assert!(
            refused(Path::new("/dev/null"))
                .ends_with("is not a regular file; give the name of a file")
        );
        let sealed = refused(Path::new("/proc/self/a"));
        assert!(sealed.starts_with("cannot write in the directory /proc/self: "), "{sealed}");
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn a_full_disk_is_reported_and_leaves_nothing() {
        // Writes to /dev/full fail like writes to a full disk.
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = tempfile::TempPath::try_from_path(folder.path().join(".a.part")).unwrap();
        let file = BufWriter::new(NamedTempFile::from_parts(full, path));
        let mut draft = Draft { file, target: folder.path().join("a") };
        draft.write_all(b"new").unwrap();
        let error = draft.commit().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(names(folder.path()).is_empty());
    }
}
