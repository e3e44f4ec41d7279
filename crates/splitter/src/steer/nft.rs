//! The program `nft`, which installs rules in the kernel.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Directories in which `nft` is searched for in addition to `PATH`, because a user's `PATH` may
/// lack them.
const ELSEWHERE: &str = "/usr/sbin:/sbin:/usr/local/sbin";

/// Returns the path of `nft`; `None` if it is not installed.
pub(crate) fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(std::env::split_paths(ELSEWHERE));
    folders.map(|folder| folder.join("nft")).find(|file| file.is_file())
}

/// Executes `commands` as one transaction: if one command fails, none takes effect.
///
/// # Errors
/// The message of `nft`, in one line.
pub(crate) fn run(nft: &Path, commands: &str) -> io::Result<()> {
    let mut command = Command::new(nft);
    command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    // The terminal's Ctrl-C must not end `nft`, which may be undoing our changes.
    command.process_group(0);
    let mut child = command.spawn()?;
    let mut stdin = child.stdin.take().expect("the standard input of nft is a pipe");
    // If `nft` ends before it has read all commands, its error output has the reason.
    let written = stdin.write_all(commands.as_bytes());
    drop(stdin);
    let output = child.wait_with_output()?;
    if output.status.success() {
        return written;
    }
    Err(blame(&String::from_utf8_lossy(&output.stderr)))
}

/// Returns the content of the table `table` (of the family `inet`) as `nft` lists it; `None` if
/// there is none.
pub(crate) fn list(nft: &Path, table: &str) -> io::Result<Option<String>> {
    let mut command = Command::new(nft);
    command.args(["--stateless", "list", "table", "inet", table]).process_group(0);
    let output = command.stdin(Stdio::null()).output()?;
    let listed = output.status.success();
    Ok(listed.then(|| String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Returns the named counters of the table `table` (of the family `inet`) as `nft` lists them.
pub(crate) fn counters(nft: &Path, table: &str) -> io::Result<String> {
    let mut command = Command::new(nft);
    command.args(["list", "counters", "table", "inet", table]).process_group(0);
    let output = command.stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(blame(&String::from_utf8_lossy(&output.stderr))),
    }
}

/// Converts an error message of `nft` to an error with one line.
fn blame(message: &str) -> io::Error {
    let line = message.lines().find(|line| !line.trim().is_empty()).unwrap_or("it failed");
    io::Error::other(format!("nft: {line}"))
}

/// A table that this handle owns: no other process can change or remove it, not even by flushing
/// all tables. It is removed with the handle, or with the process (the kernel's `owner` flag,
/// since 5.12).
#[derive(Debug)]
pub(crate) struct OwnedTable {
    /// The `nft` process, which owns the table as long as its input is open.
    nft: Child,
}

impl OwnedTable {
    /// Makes the table `name`. `body` is the text between its braces, in one line.
    ///
    /// # Errors
    /// The message of `nft`, in one line.
    pub(crate) fn create(nft: &Path, name: &str, body: &str) -> io::Result<OwnedTable> {
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new(nft);
        command.arg("-i").stdin(Stdio::piped()).stdout(writer.try_clone()?).stderr(writer);
        let child = command.process_group(0).spawn()?;
        // The command value holds this process's copies of the pipe for the child's output.
        drop(command);
        let mut owned = OwnedTable { nft: child };
        let stdin = owned.nft.stdin.as_mut().expect("the standard input of nft is a pipe");
        writeln!(stdin, "add table inet {name} {{ flags owner; {body}; }}; list tables inet")?;
        let made = format!("table inet {name}");
        let mut all = String::new();
        for line in BufReader::new(reader).lines() {
            let line = line?;
            if line.trim() == made {
                return Ok(owned);
            }
            all = all + &line + "\n";
            if line.starts_with("Error") {
                break;
            }
        }
        Err(blame(&all))
    }

    /// Returns whether the table exists.
    pub(crate) fn stands(&mut self) -> bool {
        matches!(self.nft.try_wait(), Ok(None))
    }
}

impl Drop for OwnedTable {
    fn drop(&mut self) {
        // Closing the input of `nft` ends the process, and the kernel then removes the table.
        drop(self.nft.stdin.take());
        let _ = self.nft.wait();
    }
}
