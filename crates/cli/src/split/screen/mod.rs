//! Output of a splitter: a live view on a terminal, lines of text elsewhere, or JSON objects with
//! `--json`.

pub(crate) mod advice;
mod json;
mod live;
mod model;
mod plain;
mod posting;
mod quic_warning;
mod session_table;

use std::fs::File;
use std::io;
use std::path::Path;

use anabranch_splitter::split::Screen;

use super::options::Options;
use crate::screen::has_terminal;
use crate::screen::lines::Lines;

pub(super) use json::about as about_json;
pub(super) use posting::PublishingScreen;
pub(super) use quic_warning::QuicWarning;

/// Returns the screen that suits `options` and the type of standard output. A slow reader of the
/// output never blocks the program.
///
/// # Errors
/// The writer threads cannot be started.
pub(super) fn of(options: &Options) -> io::Result<Box<dyn Screen>> {
    if options.json {
        return Ok(Box::new(json::Json::new(options.name.clone())?));
    }
    let plain = plain::PlainScreen::new(options.quiet, options.verbose, options.name.as_deref())?;
    if options.quiet || !has_terminal() {
        return Ok(Box::new(plain));
    }
    Ok(Box::new(live::LiveScreen::new(plain, options.name.clone())))
}

/// Returns a screen that appends to the file at `path`. It writes JSON objects if `json`, and
/// lines otherwise.
///
/// # Errors
/// The file cannot be opened for writing, or its thread cannot be started.
pub(crate) fn log(path: &Path, json: bool) -> io::Result<Box<dyn Screen>> {
    let file = File::options().create(true).append(true).open(path)?;
    if json {
        return Ok(Box::new(json::Json::to(Lines::file(file)?)));
    }
    let warnings = Lines::file(file.try_clone()?)?;
    Ok(Box::new(plain::PlainScreen::to(Some(Lines::file(file)?), warnings).of_login()))
}
