//! Whether this machine and this user can build networks at all.

use std::path::PathBuf;

use anabranch_emulator as emulate;
use rustix::process::geteuid;

use crate::failure::Failure;
use crate::sudo;

/// An option, and the folder that it names.
pub(super) type Folder = (&'static str, PathBuf);

/// Refuses whoever is not root, with the line that does the same as root; `folders` are those that
/// root, who has a home of its own, would look for elsewhere.
///
/// # Errors
/// Misuse.
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

/// Refuses where networks of their own cannot be had, with what helps.
///
/// # Errors
/// Misuse.
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
