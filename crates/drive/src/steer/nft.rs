//! The program `nft`, which carries rules into the kernel.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where administrators' programs lie that a user's `PATH` may lack.
const ELSEWHERE: &str = "/usr/sbin:/sbin:/usr/local/sbin";

/// Where `nft` is.
pub(crate) fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(std::env::split_paths(ELSEWHERE));
    folders.map(|folder| folder.join("nft")).find(|file| file.is_file())
}

/// Carries out `commands`: all of them, or none.
///
/// # Errors
/// What `nft` says, in one line.
pub(crate) fn run(nft: &Path, commands: &str) -> io::Result<()> {
    let mut command = Command::new(nft);
    command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    // The terminal's Ctrl-C is for us, and must not keep us from undoing what we did.
    command.process_group(0);
    let mut child = command.spawn()?;
    let mut stdin = child.stdin.take().expect("it was asked for a pipe");
    // A program that ends before it has read everything says why on its error output.
    let written = stdin.write_all(commands.as_bytes());
    drop(stdin);
    let output = child.wait_with_output()?;
    if output.status.success() {
        return written;
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it failed");
    Err(io::Error::other(format!("nft: {line}")))
}
