//! Checks that an experiment's networks can be created on this machine and by this user.

use std::path::PathBuf;

use anabranch_emulator as emulate;
use rustix::process::geteuid;

use crate::failure::Failure;
use crate::sudo;

/// A command-line option whose value is a folder, and this folder.
pub(super) type Folder = (&'static str, PathBuf);

/// Fails unless the user is root. The error message shows the `sudo` command line to use. That
/// command line contains the options in `folders` explicitly, because root has another home
/// folder.
///
/// # Errors
/// Misuse (exit code 2): the user is not root.
pub(super) fn need_root(folders: &[Folder]) -> Result<(), Failure> {
    if geteuid().is_root() {
        return Ok(());
    }
    let command = sudo::command_line(folders.iter().flat_map(words));
    Err(Failure::misuse(format!("emulated networks need root: run {command}")))
}

fn words((name, folder): &Folder) -> [String; 2] {
    [(*name).to_owned(), folder.to_string_lossy().into_owned()]
}

/// Checks that network namespaces are available. If not, the error has the remedy.
///
/// # Errors
/// Misuse (exit code 2): a requirement of emulated networks is not met.
pub(super) fn need_networks() -> Result<(), Failure> {
    let essential = |need: &emulate::Need| {
        need.missing.is_some() && need.only_for.is_none_or(|only| only == "[[program]]")
    };
    match emulate::check().into_iter().find(essential) {
        Some(need) => {
            Err(Failure::misuse(format!("{}: {}", need.what, need.missing.unwrap_or_default())))
        }
        None => Ok(()),
    }
}
