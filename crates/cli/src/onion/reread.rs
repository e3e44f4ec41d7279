//! Rereading of the settings of onion programs on SIGHUP.

use std::path::{Path, PathBuf};

use anabranch_router::onion::authorities::Authority;
use anabranch_router::onion::reload::{Names, ReloadedSettings, Reread};

use super::Common;
use crate::failure::Failure;

/// Command-line flags with which a program was started, and the settings in force. `A` is the type
/// of both, such as the arguments of a relay.
pub(super) struct Source<A> {
    /// Flags of the command line, which include the name of the file.
    pub(super) flags: A,
    /// Settings from flags and file that are in force now.
    pub(super) running: A,
    pub(super) authorities: Vec<Authority>,
}

/// Result of comparing a setting: its name, and whether its new value differs from its value in
/// force.
pub(super) type Setting = (&'static str, bool);

/// Returns the names of the settings whose values differ. Changes in `live` take effect at once;
/// changes in `fixed` need a restart.
pub(super) fn names(live: &[Setting], fixed: &[Setting]) -> Names {
    let differing = |all: &[Setting]| {
        all.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect()
    };
    Names { changed: differing(live), restart: differing(fixed) }
}

/// Compares the settings that all onion commands share ([`Common`]) and whose change needs a
/// restart.
pub(super) fn common(old: &Common, new: &Common) -> [Setting; 4] {
    [
        ("data", old.data != new.data),
        ("name", old.name != new.name),
        ("json", old.json != new.json),
        ("quiet", old.quiet != new.quiet),
    ]
}

/// Wraps `read` for SIGHUP: returns the callback with which a running program reads its settings
/// again. An error becomes one line, which names the settings file if there is one.
pub(super) fn reread<'r, T>(
    file: Option<PathBuf>,
    mut read: impl FnMut() -> Result<ReloadedSettings<T>, Failure> + 'r,
) -> Reread<'r, T> {
    Box::new(move || read().map_err(|failure| named(file.as_deref(), &failure)))
}

fn named(file: Option<&Path>, failure: &Failure) -> String {
    let text = failure.to_string();
    match file.map(|file| file.display().to_string()) {
        Some(name) if !text.contains(&name) => format!("{name}: {text}"),
        _ => text,
    }
}
