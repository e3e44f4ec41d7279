//! Where a run shows what happens: a live view on a terminal, lines elsewhere, JSON for machines.

pub(crate) mod advice;
mod book;
mod json;
mod live;
mod model;
mod plain;
mod posting;
mod pricing;

use std::fs::File;
use std::io;
use std::path::Path;

use anabranch_splitter::split::Screen;

use super::options::Options;
use crate::screen::has_terminal;
use crate::screen::lines::Lines;

pub(super) use json::about as about_json;
pub(super) use posting::Posting;
pub(super) use pricing::Pricing;

/// The screen that suits the options and the place that stdout leads to. None makes the run wait
/// for who reads it.
///
/// # Errors
/// The threads that write cannot be had.
pub(super) fn of(options: &Options) -> io::Result<Box<dyn Screen>> {
    if options.json {
        return Ok(Box::new(json::Json::new(options.name.clone())?));
    }
    let plain = plain::Plain::new(options.quiet, options.verbose, options.name.as_deref())?;
    if options.quiet || !has_terminal() {
        return Ok(Box::new(plain));
    }
    Ok(Box::new(live::Live::new(plain, options.name.clone())))
}

/// A screen that writes to the file at `path`, behind what is there: lines, or with `json` objects.
///
/// # Errors
/// The file cannot be written to, or no thread that writes it can be had.
pub(crate) fn log(path: &Path, json: bool) -> io::Result<Box<dyn Screen>> {
    let file = File::options().create(true).append(true).open(path)?;
    if json {
        return Ok(Box::new(json::Json::to(Lines::file(file)?)));
    }
    let warnings = Lines::file(file.try_clone()?)?;
    Ok(Box::new(plain::Plain::to(Some(Lines::file(file)?), warnings).of_login()))
}
