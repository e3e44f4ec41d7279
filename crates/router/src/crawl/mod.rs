//! Covers for pluggable transports, from an operator's own pages. A cover is a web object in which
//! camouflage hides data. The objects of a site, a HAR file or a capture become the responses of a
//! server with the camouflage profile `http-site`. The TCP connections of a capture become traffic
//! shapes (sizes and times of messages), which connections with the profile `embed` imitate.
//!
//! * `folder`, `har`, `capture`: the sources, each read into [`SiteContent`]. `html`: references
//!   in pages. `flows`: TCP connections of a capture. `hosts`: selection of the visited host.
//!   `packed`: compressed sources.
//! * `judge`: selection of objects in which bytes can be hidden. `browser`: a check by Chromium.
//! * `covers`: the folder with the result (`docs/formats.md`).
//!
//! Covers contain only objects that strict parsers still accept after bytes were hidden in them.

mod browser;
mod capture;
mod covers;
mod flows;
mod folder;
mod har;
mod hosts;
mod html;
mod judge;
mod packed;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use browser::{Browser, Verdict};
pub use covers::{read, site, write};
pub use judge::{HidingObject, HidingObjects, judge};

pub use anabranch_stego::{Hiding, Object};
use anabranch_stego::{Shape, ShapeFault, Shapes};

/// Maximum size, in bytes, of a file from which covers (web objects in which bytes can be hidden)
/// are made.
const LARGEST: u64 = 512 << 20;
/// Words for an incomplete last packet of a capture, in messages about parts that were left out.
const CUT: &str = "the capture's last packet, which is incomplete";
/// Maximum number of web objects that are read from one site, and maximum number of its pages.
const OBJECTS: usize = 20_000;

/// Reason why covers cannot be made or read.
#[derive(Debug)]
pub enum CrawlError {
    /// A file or a folder cannot be read or written.
    File(PathBuf, io::Error),
    /// An input file, or an index of covers, is invalid: its path, and what is wrong.
    Source(PathBuf, String),
    /// The browser that checks objects after bytes are hidden in them cannot be used. The text is
    /// the reason.
    Browser(String),
}

impl fmt::Display for CrawlError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CrawlError::File(path, error) => write!(out, "{}: {error}", path.display()),
            CrawlError::Source(path, why) => write!(out, "{}: {why}", path.display()),
            CrawlError::Browser(why) => write!(out, "the browser's check failed: {why}"),
        }
    }
}

impl std::error::Error for CrawlError {}

/// A response with status 200 to a GET request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedObject {
    /// Path in the request, without the query.
    pub path: String,
    /// Headers of the response in order, without headers that concern only the transfer or the
    /// original server.
    pub headers: Vec<(String, String)>,
    /// Body of the response, without transfer encodings.
    pub body: Vec<u8>,
}

impl FetchedObject {
    /// Returns the content type of the response without parameters; empty if there is none.
    #[must_use]
    pub fn content_type(&self) -> &str {
        let kind = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        kind.map_or("", |(_, kind)| kind.split(';').next().unwrap_or_default().trim())
    }
}

/// A page of a site, and the objects that a browser loads for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Path of the page.
    pub path: String,
    /// Indices of the page's objects, including the page itself, in the order of their requests.
    pub objects: Vec<usize>,
    /// Time between the last object of this page and the start of the next page.
    pub pause: Duration,
}

/// Objects and pages of a site, as read from a folder, a HAR file or a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteContent {
    /// Objects of the site; each path occurs once.
    pub objects: Vec<FetchedObject>,
    /// Pages of the site.
    pub pages: Vec<Page>,
    /// Headers of a browser's request for a page, in order; empty if they are unknown.
    pub request: Vec<(String, String)>,
    /// Reasons for leaving objects or packets out, with the number of objects or packets for each
    /// reason.
    pub left_out: BTreeMap<String, usize>,
    /// Hosts with objects, except the selected host, as text for messages, such as `b.net (12),
    /// a.net (3)`; empty if there are none.
    pub others: String,
}

impl SiteContent {
    /// Counts one more object or packet that is left out for the reason `why`.
    fn leave_out(&mut self, why: &str) {
        *self.left_out.entry(why.to_owned()).or_default() += 1;
    }

    /// Adds `object`, unless there is an object with its path already. Returns the index of the
    /// object with that path.
    fn add(&mut self, object: FetchedObject) -> usize {
        if let Some(place) = self.objects.iter().position(|other| other.path == object.path) {
            return place;
        }
        self.objects.push(object);
        self.objects.len() - 1
    }

    /// Adds objects with their times, in the order in which they were fetched. Each HTML document
    /// begins a new page; the objects after it belong to that page.
    fn follow(&mut self, fetched: Vec<(FetchedObject, Duration)>) {
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

/// Reads a site from a folder, a HAR file (1.2), or a capture (pcap or pcapng) with unencrypted
/// HTTP. HAR files and captures may be compressed with gzip. Only objects of `host` are taken. If
/// `host` is `None`, only objects of the first page's host are taken.
///
/// # Errors
/// The source cannot be read, has another format, or has no object of the host. The error
/// is one line.
pub fn crawl(source: &Path, host: Option<&str>) -> Result<SiteContent, CrawlError> {
    let file = |error| CrawlError::File(source.to_owned(), error);
    let to_error = |why: String| CrawlError::Source(source.to_owned(), why);
    if fs::metadata(source).map_err(file)?.is_dir() {
        return match host {
            None => folder::read(source),
            Some(_) => Err(to_error(
                "it is a folder, and --host is only for HAR files and captures: remove --host"
                    .to_owned(),
            )),
        };
    }
    of_file(open_file(source)?, host).map_err(to_error)
}

fn of_file(source: impl io::BufRead, host: Option<&str>) -> Result<SiteContent, String> {
    let mut source = packed::unpacked(source)?;
    let why = |error: io::Error| error.to_string();
    if flows::is_capture(source.fill_buf().map_err(why)?) {
        return capture::read(source, host);
    }
    let mut bytes = Vec::new();
    source.read_to_end(&mut bytes).map_err(why)?;
    har::read(&bytes, host)
}

/// Returns the traffic shapes (sizes and times) of the TCP connections in `captures`, and messages
/// about what was left out. The files are pcap or pcapng, optionally compressed with gzip. Each
/// shape is named after its file.
///
/// # Errors
/// A file cannot be read, is no capture, or has no connection that can be replayed. The
/// error is one line.
pub fn shapes(captures: &[PathBuf]) -> Result<(Shapes, Vec<String>), CrawlError> {
    let (mut all, mut notes) = (Vec::new(), Vec::new());
    for path in captures {
        let to_error = |why: String| CrawlError::Source(path.clone(), why);
        let (found, left_out) = shapes_of(path, open_file(path)?).map_err(to_error)?;
        all.extend(found);
        notes.extend(left_out.iter().map(|why| format!("{}: left out: {why}", path.display())));
    }
    let none = |fault: ShapeFault| CrawlError::Source(PathBuf::from("shapes"), fault.to_string());
    Ok((Shapes::new(all).map_err(none)?, notes))
}

/// Returns the traffic shapes (sizes and times of messages) of the TCP connections in `capture`,
/// named after `path`. Also returns the reasons why parts of the capture were left out.
fn shapes_of(path: &Path, capture: impl io::BufRead) -> Result<(Vec<Shape>, Vec<String>), String> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let stem = stem.trim_end_matches(".pcapng").trim_end_matches(".pcap");
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let stem: String = stem.chars().map(|one| if plain(one) { one } else { '-' }).collect();
    let stem: String = stem.chars().take(56).collect();
    let flows::Capture { flows, skipped, cut, .. } = flows::read(packed::unpacked(capture)?)?;
    let (mut shapes, mut faults) = (Vec::new(), Vec::new());
    for flow in &flows {
        let name = if flows.len() == 1 { stem.clone() } else { format!("{stem}-{}", shapes.len()) };
        match Shape::of_record(&name, &flow.passed) {
            Ok(shape) => shapes.push(shape),
            Err(fault) => faults.push(fault.to_string()),
        }
    }
    let last = faults.last().map(|fault| {
        format!(
            "{} of {} connections cannot be imitated; reason for the last of them: {fault}",
            faults.len(),
            flows.len()
        )
    });
    match (shapes.is_empty(), last) {
        (true, Some(why)) => Err(format!("no connection of the capture is usable: {why}")),
        (true, None) => Err(format!(
            "the capture has no TCP connection (other packets, which were ignored: {skipped})"
        )),
        (false, last) => {
            Ok((shapes, last.into_iter().chain(cut.then(|| CUT.to_owned())).collect()))
        }
    }
}

/// Opens the file `path` for buffered reading. Fails if the file is larger than `LARGEST`.
fn open_file(path: &Path) -> Result<BufReader<File>, CrawlError> {
    let to_error = |error| CrawlError::File(path.to_owned(), error);
    let file = File::open(path).map_err(to_error)?;
    if file.metadata().map_err(to_error)?.len() > LARGEST {
        return Err(CrawlError::Source(
            path.to_owned(),
            "the file is larger than 512 MiB".to_owned(),
        ));
    }
    Ok(BufReader::new(file))
}

fn read_file(path: &Path) -> Result<Vec<u8>, CrawlError> {
    let mut bytes = Vec::new();
    let read = open_file(path)?.read_to_end(&mut bytes);
    read.map(|_| bytes).map_err(|error| CrawlError::File(path.to_owned(), error))
}

/// Returns whether the header `name` concerns only the transfer or the original server, so that it
/// does not belong in another server's response.
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

/// Parses `bytes` as a HAR file, a capture, an HTML page or an index of covers, for the fuzzer.
/// The first byte selects the format.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let Some((&kind, rest)) = bytes.split_first() else { return };
    let found = match kind % 7 {
        0 => har::read(rest, None),
        1 => of_file(rest, None),
        2 => {
            let found = flows::read(rest);
            let of = |flow: &flows::Flow| Shape::of_record("one", &flow.passed);
            found.into_iter().flat_map(|found| found.flows).for_each(|flow| drop(of(&flow)));
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

#[cfg(test)]
mod tests {
    use super::flows::tests::{capture, capture_at};
    use super::*;

    const ASK: &[u8] = &[1; 700];
    const ANSWER: &[u8] = &[2; 900];

    #[test]
    fn a_capture_without_a_connection_that_can_be_played_is_refused_with_its_reason() {
        let short = capture(&[(1, true, 1, b"ask"), (2, false, 1, ANSWER)]);
        let why = shapes_of(Path::new("a.pcap"), &*short).unwrap_err();
        assert!(
            why.starts_with(
                "no connection of the capture is usable: 1 of 1 connections cannot be imitated; "
            ),
            "{why}"
        );
        let none = shapes_of(Path::new("a.pcap"), &*capture(&[])).unwrap_err();
        assert_eq!(
            none,
            "the capture has no TCP connection (other packets, which were ignored: 0)"
        );
    }

    #[test]
    fn what_is_left_out_of_a_capture_is_named() {
        let good = capture(&[(1, true, 1, ASK), (2, false, 1, ANSWER)]);
        let (shapes, left_out) = shapes_of(Path::new("a.pcap"), &*good).unwrap();
        assert_eq!((shapes.len(), left_out.len()), (1, 0));
        let mut two = capture(&[(1, true, 1, ASK), (2, false, 1, ANSWER)]);
        two.extend(&capture_at(41_000, &[(3, true, 1, b"ask"), (4, false, 1, ANSWER)])[24..]);
        two.truncate(two.len() - 10);
        let (shapes, left_out) = shapes_of(Path::new("a.pcap"), &*two).unwrap();
        assert_eq!(shapes.len(), 1);
        assert!(left_out[0].starts_with("1 of 2 connections cannot be imitated; "), "{left_out:?}");
        assert_eq!(left_out[1..], [CUT.to_owned()]);
    }
}
