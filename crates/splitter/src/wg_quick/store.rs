//! Reads and writes wg-quick configuration files.

use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::error::ConfError;
use super::parse::WgQuick;

/// Maximum bytes of a configuration file: ten times the size of a file with a thousand complete
/// peers.
const LARGEST: u64 = 4 << 20;

impl WgQuick {
    /// Reads and parses the file at `path`.
    ///
    /// # Errors
    /// The file cannot be read (the message names the remedy), is too large, is not text, or
    /// [`WgQuick::parse`] refuses it.
    pub fn read(path: &Path) -> Result<WgQuick, ConfError> {
        let name = path.display().to_string();
        let blame = |message: String| ConfError::new(&name, None, message);
        let mut bytes = Vec::new();
        let file = File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes));
        file.map_err(|error| blame(unreadable(&error)))?;
        if bytes.len() as u64 > LARGEST {
            return Err(blame(format!(
                "the file is larger than {} MiB, so it is not a wg-quick file: choose another file",
                LARGEST >> 20
            )));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
            ConfError::new(&name, Some(line), "this line is not UTF-8 text: save the file in UTF-8")
        })?;
        WgQuick::parse(&text, &name)
    }
}

fn unreadable(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "this user may not read it: run the command as the file's owner or as root, or use a \
             copy"
                .to_owned()
        }
        _ => format!("cannot be read: {error}"),
    }
}

/// A configuration file to write. The file gets its name only when it is complete. Only its owner
/// may read it (mode 0600), because it contains keys.
#[derive(Debug)]
pub struct Write {
    target: PathBuf,
    overwrite: bool,
}

impl Write {
    /// Prepares to write the file `target`, which must not be `source`. If `overwrite` is false,
    /// `target` must not exist. Tests with a temporary file that it can be written.
    ///
    /// # Errors
    /// `target` cannot be written, is `source` or a directory, or exists already.
    pub fn begin(target: &Path, source: &Path, overwrite: bool) -> Result<Write, ConfError> {
        let blame = |message: String| ConfError::new(&target.display().to_string(), None, message);
        if let (Ok(old), Ok(new)) = (fs::canonicalize(source), fs::canonicalize(target))
            && old == new
        {
            return Err(blame(
                "is the file that --wg reads, and its Endpoint would be lost: name another file"
                    .into(),
            ));
        }
        if target.file_name().is_none() || target.is_dir() {
            return Err(blame("is a directory: name a file".into()));
        }
        if !overwrite && target.symlink_metadata().is_ok() {
            return Err(blame("exists already: name another file, or add --overwrite".into()));
        }
        // If an unnamed file can be made in this directory, so can a named one.
        let trial = tempfile::tempfile_in(folder_of(target));
        trial.map_err(|error| blame(format!("cannot be written: {error}")))?;
        Ok(Write { target: target.to_owned(), overwrite })
    }

    /// Writes `text`, and then gives the file its name. If this fails, no file is left.
    ///
    /// # Errors
    /// The disk is full, or another program has made a file with this name in the meantime.
    pub fn finish(self, text: &str) -> Result<(), ConfError> {
        self.write(text).map_err(|error| {
            let name = self.target.display().to_string();
            ConfError::new(&name, None, format!("cannot be written: {error}"))
        })
    }

    fn write(&self, text: &str) -> io::Result<()> {
        // Only the owner may read the file, because tempfile's files have mode 0600.
        let mut file = NamedTempFile::new_in(folder_of(&self.target))?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        let named = match self.overwrite {
            true => file.persist(&self.target),
            false => file.persist_noclobber(&self.target),
        };
        named.map(drop).map_err(|error| error.error)
    }

    /// Returns the path that the file will have after [`Write::finish`].
    pub fn target(&self) -> &Path {
        &self.target
    }
}

fn folder_of(target: &Path) -> &Path {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Returns the file's path for wg-quick's command line. A path without a directory gets `./`,
/// because wg-quick would take a bare name for an interface.
pub fn invocation(file: &Path) -> String {
    let text = file.display().to_string();
    if text.contains('/') { text } else { format!("./{text}") }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_written_file_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("split.conf");
        let write = Write::begin(&target, Path::new("tunnel.conf"), false).unwrap();
        assert!(names(folder.path()).is_empty(), "nothing before it is complete");
        write.finish("text\n").unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "text\n");
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_exists_stays_unless_told_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let (source, target) = (folder.path().join("a.conf"), folder.path().join("b.conf"));
        fs::write(&source, "a").unwrap();
        fs::write(&target, "b").unwrap();
        let begin = |target, overwrite| Write::begin(target, &source, overwrite);
        let error = begin(&target, false).unwrap_err().to_string();
        assert!(
            error.ends_with("exists already: name another file, or add --overwrite"),
            "{error}"
        );
        let error = begin(&source, true).unwrap_err().to_string();
        assert!(
            error.ends_with(
                "is the file that --wg reads, and its Endpoint would be lost: name another file"
            ),
            "{error}"
        );
        begin(&target, true).unwrap().finish("c").unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "c");
        assert_eq!(names(folder.path()).len(), 2);
    }

    #[test]
    fn a_file_that_came_meanwhile_is_kept_and_nothing_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("b.conf");
        let write = Write::begin(&target, Path::new("a.conf"), false).unwrap();
        fs::write(&target, "mine").unwrap();
        assert!(write.finish("c").is_err());
        assert_eq!(
            (fs::read_to_string(&target).unwrap().as_str(), names(folder.path()).len()),
            ("mine", 1)
        );
    }

    #[test]
    fn what_cannot_be_read_is_told_with_what_helps() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.conf");
        let error = |path: &Path| WgQuick::read(path).unwrap_err().to_string();
        assert!(error(&path).contains("a.conf: cannot be read: No such file"));
        assert!(error(folder.path()).contains(": cannot be read: Is a directory"));
        fs::write(&path, b"[Interface]\n# \xe4\n").unwrap();
        assert!(
            error(&path).ends_with("a.conf:2: this line is not UTF-8 text: save the file in UTF-8")
        );
        let large = error(Path::new("/dev/zero"));
        assert!(
            large.ends_with("larger than 4 MiB, so it is not a wg-quick file: choose another file"),
            "{large}"
        );
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert!(unreadable(&denied).contains("as the file's owner or as root"));
    }

    #[test]
    fn wg_quick_takes_a_bare_name_for_an_interface() {
        assert_eq!(invocation(Path::new("wg0.conf")), "./wg0.conf");
        assert_eq!(invocation(Path::new("/etc/wireguard/wg0.conf")), "/etc/wireguard/wg0.conf");
    }
}
