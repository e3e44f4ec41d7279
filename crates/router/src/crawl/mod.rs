//! Covers of an operator's own: of what a site, a HAR file or a capture has the objects with which
//! a server of `http-site` answers; of connections in captures shapes for `embed`.
//!
//! * `folder`, `har`, `capture`: the sources, each read into [`Found`]. `html`: what a page pulls
//!   in. `flows`: TCP connections of a capture.
//! * `judge`: which objects may hide bytes. `browser`: Chromium's word on it.
//! * `covers`: the folder that keeps it all (`docs/formats.md`).
//!
//! Nothing enters that strict parsers do not take again once it is changed.

mod browser;
mod capture;
mod covers;
mod flows;
mod folder;
mod har;
mod html;
mod judge;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use browser::{Browser, Verdict};
pub use covers::{read, site, write};
pub use judge::{Judged, Kept, judge};

pub use anabranch_stego::{Hiding, Object};
use anabranch_stego::{Shape, ShapeFault, Shapes};

/// Bytes of a source at most.
const LARGEST: u64 = 512 << 20;
/// Objects of covers at most, and pages.
const OBJECTS: usize = 20_000;

/// Why there are no covers.
#[derive(Debug)]
pub enum CrawlError {
    /// A file or a folder cannot be read or written.
    File(PathBuf, io::Error),
    /// A source, or an index of covers, says something that it may not; what, and where.
    Source(PathBuf, String),
    /// The browser cannot be asked.
    Browser(String),
}

impl fmt::Display for CrawlError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CrawlError::File(path, error) => write!(out, "{}: {error}", path.display()),
            CrawlError::Source(path, why) => write!(out, "{}: {why}", path.display()),
            CrawlError::Browser(why) => write!(out, "the browser: {why}"),
        }
    }
}

impl std::error::Error for CrawlError {}

/// What a server answered to a GET, with 200.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The path, without a query.
    pub path: String,
    /// The head of the answer in its order, without what the transfer alone needs.
    pub headers: Vec<(String, String)>,
    /// The body, as it was before the transfer.
    pub body: Vec<u8>,
}

impl Fetched {
    /// Its type, without parameters.
    #[must_use]
    pub fn content_type(&self) -> &str {
        let kind = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        kind.map_or("", |(_, kind)| kind.split(';').next().unwrap_or_default().trim())
    }
}

/// A page, and the objects that it asks for, by their places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Its path.
    pub path: String,
    /// The objects, itself among them, in the order in which they are asked for.
    pub objects: Vec<usize>,
    /// How long it was looked at before the next one.
    pub pause: Duration,
}

/// What a source has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Objects, each path once.
    pub objects: Vec<Fetched>,
    /// Pages.
    pub pages: Vec<Page>,
    /// The head of a page's request, in its order; empty where the source has none.
    pub request: Vec<(String, String)>,
    /// What was left out, by the reason, and how often.
    pub left_out: BTreeMap<String, usize>,
}

impl Found {
    /// Leaves something out.
    fn leave_out(&mut self, why: &str) {
        *self.left_out.entry(why.to_owned()).or_default() += 1;
    }

    /// Takes an object: its place. One of a path that is there already is the same.
    fn add(&mut self, object: Fetched) -> usize {
        if let Some(place) = self.objects.iter().position(|other| other.path == object.path) {
            return place;
        }
        self.objects.push(object);
        self.objects.len() - 1
    }

    /// Takes what was fetched one after the other, each at its time: a document begins a page.
    fn follow(&mut self, fetched: Vec<(Fetched, Duration)>) {
        let mut last = Duration::ZERO;
        for (object, at) in fetched {
            if self.objects.len() >= OBJECTS {
                return self.leave_out("more than 20,000 objects");
            }
            let (document, path) = (object.content_type() == "text/html", object.path.clone());
            let place = self.add(object);
            if document || self.pages.is_empty() {
                if let Some(page) = self.pages.last_mut() {
                    page.pause = at.saturating_sub(last);
                }
                self.pages.push(Page { path, ..Page::default() });
            }
            if let Some(page) = self.pages.last_mut() {
                page.objects.push(place);
            }
            last = at;
        }
    }
}

/// Reads a source: a site's folder, a HAR file (1.2), or a capture (pcap or pcapng) with plain
/// HTTP.
///
/// # Errors
/// It cannot be read, or is none of these: one line.
pub fn crawl(source: &Path) -> Result<Found, CrawlError> {
    let told = |error| CrawlError::File(source.to_owned(), error);
    if fs::metadata(source).map_err(told)?.is_dir() {
        return folder::read(source);
    }
    let mut file = open_file(source)?;
    let found = match flows::is_capture(file.fill_buf().map_err(told)?) {
        true => capture::read(file),
        false => {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map_err(told)?;
            har::read(&bytes)
        }
    };
    found.map_err(|why| CrawlError::Source(source.to_owned(), why))
}

/// The shapes of the TCP connections in captures (pcap or pcapng), called after their files.
///
/// # Errors
/// A file cannot be read, is no capture, or has no connection that can be played: one line.
pub fn shapes(captures: &[PathBuf]) -> Result<Shapes, CrawlError> {
    let mut all = Vec::new();
    for path in captures {
        let told = |why: String| CrawlError::Source(path.clone(), why);
        let found = shapes_of(path, open_file(path)?).map_err(told)?;
        all.extend(found);
    }
    let none = |fault: ShapeFault| CrawlError::Source(PathBuf::from("shapes"), fault.to_string());
    Shapes::new(all).map_err(none)
}

fn shapes_of(path: &Path, capture: impl Read) -> Result<Vec<Shape>, String> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let stem: String = stem.chars().map(|one| if plain(one) { one } else { '-' }).collect();
    let stem: String = stem.chars().take(56).collect();
    let (flows, skipped) = flows::read(capture)?;
    let (mut shapes, mut why) =
        (Vec::new(), format!("it has no TCP connection ({skipped} other packets)"));
    for flow in &flows {
        let name = if flows.len() == 1 { stem.clone() } else { format!("{stem}-{}", shapes.len()) };
        match Shape::of_record(&name, &flow.passed) {
            Ok(shape) => shapes.push(shape),
            Err(fault) => why = fault.to_string(),
        }
    }
    if shapes.is_empty() { Err(why) } else { Ok(shapes) }
}

/// Opens a file to be read piece by piece, unless it is too large.
fn open_file(path: &Path) -> Result<BufReader<File>, CrawlError> {
    let told = |error| CrawlError::File(path.to_owned(), error);
    let file = File::open(path).map_err(told)?;
    if file.metadata().map_err(told)?.len() > LARGEST {
        return Err(CrawlError::Source(path.to_owned(), "it is larger than 512 MiB".to_owned()));
    }
    Ok(BufReader::new(file))
}

fn read_file(path: &Path) -> Result<Vec<u8>, CrawlError> {
    let mut bytes = Vec::new();
    let read = open_file(path)?.read_to_end(&mut bytes);
    read.map(|_| bytes).map_err(|error| CrawlError::File(path.to_owned(), error))
}

/// Headers that say how a transfer went, or who it was: they have no place in another's answer.
fn is_of_transfer(name: &str) -> bool {
    let names = [
        "transfer-encoding",
        "content-encoding",
        "content-range",
        "set-cookie",
        "keep-alive",
        "alt-svc",
        "strict-transport-security",
        "trailer",
        "upgrade",
    ];
    name.starts_with(':') || names.iter().any(|one| name.eq_ignore_ascii_case(one))
}

/// For the fuzzer: reads bytes as each source, and as an index of covers.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let Some((&kind, rest)) = bytes.split_first() else { return };
    let found = match kind % 7 {
        0 => har::read(rest),
        1 => capture::read(rest),
        2 => {
            let found = flows::read(rest);
            let of = |flow: &flows::Flow| Shape::of_record("one", &flow.passed);
            found.into_iter().flat_map(|(flows, _)| flows).for_each(|flow| drop(of(&flow)));
            return;
        }
        _ => {
            drop(html::parts("/a/b.html", &String::from_utf8_lossy(rest)));
            drop(covers::parse(rest));
            return;
        }
    };
    if let Ok(found) = found {
        let judged = judge(&found);
        assert!(judged.kept.len() <= found.objects.len());
    }
}
