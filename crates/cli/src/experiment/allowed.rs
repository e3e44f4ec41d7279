//! Whether this machine and this user can build networks at all.

use anabranch_drive::emulate;
use rustix::process::geteuid;

use crate::failure::Failure;

/// Refuses whoever is not root; `command` is what to say to sudo.
///
/// # Errors
/// Misuse.
pub(super) fn need_root(command: &str) -> Result<(), Failure> {
    if geteuid().is_root() {
        return Ok(());
    }
    let programs = "~/.cache/anabranch/peers/bin";
    Err(Failure::misuse(format!(
        "networks of their own take root: sudo {command} --programs {programs}"
    )))
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
