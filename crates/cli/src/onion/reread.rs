//! The settings once more, on SIGHUP.

use std::path::{Path, PathBuf};

use anabranch_router::onion::authorities::Authority;
use anabranch_router::onion::reload::{Names, Renewed, Reread};

use super::Common;
use crate::failure::Failure;

/// What a program was started with, and what of it holds now. `A` are its arguments.
pub(super) struct Source<A> {
    /// The flags, with the file's name.
    pub(super) flags: A,
    /// What both came to, and is in force.
    pub(super) running: A,
    pub(super) authorities: Vec<Authority>,
}

/// A setting that may differ from what is in force.
pub(super) type Setting = (&'static str, bool);

/// The names of those that differ: of what changes in a running program, and of what does not.
pub(super) fn names(live: &[Setting], fixed: &[Setting]) -> Names {
    let differing = |all: &[Setting]| {
        all.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect()
    };
    Names { changed: differing(live), restart: differing(fixed) }
}

/// Those of [`Common`] that want a restart.
pub(super) fn common(old: &Common, new: &Common) -> [Setting; 4] {
    [
        ("data", old.data != new.data),
        ("name", old.name != new.name),
        ("json", old.json != new.json),
        ("quiet", old.quiet != new.quiet),
    ]
}

/// As a driver wants it: a failure in one line that begins with the file, if there is one.
pub(super) fn reread<'r, T>(
    file: Option<PathBuf>,
    mut read: impl FnMut() -> Result<Renewed<T>, Failure> + 'r,
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
