//! The status texts of this program's running processes. Each process serves its text at a Unix
//! socket of mode 0600, which only the process's user and root can open.
//!
//! The directory of a socket depends on the process. A service uses its systemd runtime directory
//! (`RUNTIME_DIRECTORY`). A process of root uses `/run/anabranch`. A process of another user uses
//! `anabranch` in the runtime directory of that user (`XDG_RUNTIME_DIR`). A client reads one text,
//! up to its end. The server reads nothing, so a client cannot change anything.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Directory of root's sockets.
const ROOT: &str = "/run/anabranch";
/// Suffix of the names of sockets.
const ENDING: &str = ".status";
/// Timeout for serving a status text to one reader, or for reading the status text of one process.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum bytes of a status text. A reader rejects a longer text, because this program never
/// writes one.
const LONGEST: usize = 1 << 20;
/// Maximum number of attempts to bind a socket. An attempt fails if a process in another PID
/// namespace has the same process number, and therefore the same socket name. It also fails if the
/// directory was removed after its creation.
const ATTEMPTS: u32 = 64;

/// The status socket of this process, which exists until this value is dropped.
#[derive(Debug)]
pub struct StatusSocket {
    text: Arc<Mutex<String>>,
    path: PathBuf,
    over: Arc<AtomicBool>,
}

impl StatusSocket {
    /// Opens the status socket of this process. `kind` is the subcommand of `anabranch` that the
    /// process executes, such as `split`. Returns `None` if the process's user has no directory
    /// for sockets.
    ///
    /// # Errors
    /// The directory or the socket cannot be created, or no thread can be started.
    pub fn open(kind: &str) -> io::Result<Option<StatusSocket>> {
        folder().map(|folder| StatusSocket::open_in(&folder, kind)).transpose()
    }

    fn open_in(folder: &Path, kind: &str) -> io::Result<StatusSocket> {
        let (listener, path) = bind(folder, kind)?;
        let text = Arc::new(Mutex::new(String::new()));
        let over = Arc::new(AtomicBool::new(false));
        let (shown, until) = (Arc::clone(&text), Arc::clone(&over));
        let work = move || serve(&listener, &shown, &until);
        let board = StatusSocket { text, path, over };
        thread::Builder::new().name("status".to_owned()).spawn(work)?;
        Ok(board)
    }

    /// Replaces the status text by `text`, which later readers receive.
    pub fn post(&self, text: String) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

impl Drop for StatusSocket {
    /// Ends the socket's thread and removes the socket. The thread blocks in `accept`, so this
    /// function connects to the socket once.
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = UnixStream::connect(&self.path);
        let _ = fs::remove_file(&self.path);
        // The directory may contain other sockets and root's locks. It is then not empty, and
        // `remove_dir` leaves it in place.
        let _ = self.path.parent().map(fs::remove_dir);
    }
}

/// Returns the directory for this process's socket; `None` if there is none.
fn folder() -> Option<PathBuf> {
    if let Some(own) = variable("RUNTIME_DIRECTORY") {
        // systemd.exec(5): several folders are separated by colons.
        return env::split_paths(&own).next();
    }
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from(ROOT));
    }
    let own = variable("XDG_RUNTIME_DIR").map(PathBuf::from);
    let usual = || PathBuf::from(format!("/run/user/{}", rustix::process::geteuid()));
    let own = own.unwrap_or_else(usual);
    own.is_dir().then(|| own.join("anabranch"))
}

fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Binds a new socket in `folder`, with mode 0600. Its name contains `kind` and the process
/// number. Also returns the socket's path.
fn bind(folder: &Path, kind: &str) -> io::Result<(UnixListener, PathBuf)> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let number = if attempt == 1 { String::new() } else { format!("-{attempt}") };
        let path = folder.join(format!("{kind}-{}{number}{ENDING}", process::id()));
        match DirBuilder::new().recursive(true).mode(0o755).create(folder) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        if is_left(&path) {
            fs::remove_file(&path)?;
        }
        match UnixListener::bind(&path) {
            // Connecting requires write permission, which a usual umask leaves to the owner only.
            Ok(listener) => {
                fs::set_permissions(&path, Permissions::from_mode(0o600))?;
                return Ok((listener, path));
            }
            // Another run has this name, or a run that ended has removed the directory in the
            // meantime.
            Err(error)
                if attempt < ATTEMPTS
                    && matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns whether a process that was killed left the socket at `path` without removing it.
fn is_left(path: &Path) -> bool {
    UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

fn serve(listener: &UnixListener, text: &Mutex<String>, over: &AtomicBool) {
    for reader in listener.incoming() {
        if over.load(Ordering::SeqCst) {
            return;
        }
        let Ok(mut reader) = reader else {
            thread::sleep(PATIENCE);
            continue;
        };
        let text = text.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A reader that disconnects early affects nobody else.
        let patient = reader.set_write_timeout(Some(PATIENCE));
        let _ = patient.and_then(|()| reader.write_all(text.as_bytes()));
    }
}

/// Returns the texts of all processes of this program whose sockets this user may open, ordered by
/// the names of the sockets.
///
/// Root may open the sockets of services and of all users. Sockets of killed processes are
/// skipped.
///
/// # Errors
/// A directory exists but cannot be read.
pub fn ask() -> io::Result<Vec<String>> {
    let mut sockets = Vec::new();
    for folder in folders() {
        sockets.extend(sockets_in(&folder)?);
    }
    sockets.sort();
    sockets.dedup();
    Ok(sockets.iter().filter_map(|path| read(path).ok()).filter(|text| !text.is_empty()).collect())
}

fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<_> = folder().into_iter().collect();
    if rustix::process::geteuid().is_root() {
        let below = |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten();
        let ours = |name: OsString| name.to_string_lossy().starts_with("anabranch");
        folders.extend(below("/run").filter(|at| ours(at.file_name())).map(|at| at.path()));
        folders.extend(below("/run/user").map(|at| at.path().join("anabranch")));
    }
    folders
}

fn sockets_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => {
            return Ok(Vec::new());
        }
        entries => entries?,
    };
    let is_ours = |path: &PathBuf| path.to_string_lossy().ends_with(ENDING);
    Ok(entries.flatten().map(|entry| entry.path()).filter(is_ours).collect())
}

/// Reads the status text that one process serves at `path`, in bounded time and memory.
fn read(path: &Path) -> io::Result<String> {
    let end = Instant::now() + PATIENCE;
    let mut stream = UnixStream::connect(path)?;
    let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(&mut buffer)? {
            0 => break,
            _ if left.is_zero() => return Err(ErrorKind::TimedOut.into()),
            length if text.len() + length <= LONGEST => text.extend(&buffer[..length]),
            _ => return Err(ErrorKind::InvalidData.into()),
        }
    }
    String::from_utf8(text).map_err(|_| ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn read_all(folder: &Path) -> Vec<String> {
        sockets_in(folder).unwrap().iter().filter_map(|path| read(path).ok()).collect()
    }

    #[test]
    fn what_was_posted_last_is_read_and_a_run_that_ended_leaves_nothing() {
        let folder = TempDir::new().unwrap();
        let inner = folder.path().join("anabranch");
        let board = StatusSocket::open_in(&inner, "split").unwrap();
        board.post("first".to_owned());
        board.post("second".to_owned());
        assert_eq!([read_all(&inner), read_all(&inner)].concat(), ["second", "second"]);
        let mode = fs::metadata(&board.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(board);
        assert!(!inner.exists());
    }

    #[test]
    fn a_socket_that_a_killed_run_left_is_passed_over_and_replaced() {
        let folder = TempDir::new().unwrap();
        let (listener, left) = bind(folder.path(), "split").unwrap();
        // A child process that another test has just forked may hold the listener, too. Shutting
        // it down affects every holder.
        rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
        drop(listener);
        assert!(left.exists() && read_all(folder.path()).is_empty());
        let board = StatusSocket::open_in(folder.path(), "split").unwrap();
        assert_eq!(board.path, left);
        let other = StatusSocket::open_in(folder.path(), "split").unwrap();
        assert_ne!(other.path, left, "two runs of one number, in two namespaces");
        board.post("a".to_owned());
        other.post("b".to_owned());
        let mut texts = read_all(folder.path());
        texts.sort();
        assert_eq!(texts, ["a", "b"]);
    }

    #[test]
    fn a_run_that_says_too_much_or_nothing_keeps_nobody() {
        let folder = TempDir::new().unwrap();
        let (silent, path) = bind(folder.path(), "split").unwrap();
        let start = Instant::now();
        assert!(read(&path).is_err(), "it accepts and says nothing");
        assert!(start.elapsed() < 3 * PATIENCE);
        let chatter = thread::spawn(move || {
            let flood = vec![b'x'; 2 * LONGEST];
            for _ in 0..2 {
                let _ = silent.accept().unwrap().0.write_all(&flood);
            }
        });
        assert_eq!(read(&path).unwrap_err().kind(), ErrorKind::InvalidData);
        chatter.join().unwrap();
    }
}
