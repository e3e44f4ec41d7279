//! Pages of results: HTML without scripts that needs no network and no other file.
//!
//! * This file has the frame and the style of every page.
//! * [`figures`]: lanes, axes, tables, and numbers that people can read.
//! * [`trace`]: the page of a trace, with what the observer of each path saw. [`tables`]: the same
//!   for terminals and for programs.
//!
//! HTML comes from maud, which escapes every text. The figures are SVG made here: chart libraries
//! fix colours and sizes of text in the picture, so that it would neither follow a dark theme nor
//! be legible on a phone.

pub mod figures;
pub mod tables;
pub mod trace;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use anabranch_capture::Draft;
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Program and version that made a page.
pub const GENERATOR: &str = concat!("anabranch ", env!("CARGO_PKG_VERSION"));

/// Tag that marks our pages.
const MARK: &str = r#"<meta name="generator" content="anabranch"#;

/// Nothing may be loaded and nothing run, whatever the data may hold.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

const STYLE: &str = include_str!("style.css");

/// A whole page around `body`.
pub fn page(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="generator" content=(GENERATOR);
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}

/// Writes a page whole or not at all.
///
/// # Errors
/// The system's, where the file cannot be made.
pub fn write(target: &Path, page: &str) -> io::Result<()> {
    let mut draft = Draft::begin(target)?;
    draft.write_all(page.as_bytes())?;
    draft.commit()
}

/// Checks that a file begins as our pages do.
pub fn is_ours(page: &Path) -> bool {
    let mut head = Vec::new();
    let read = File::open(page).and_then(|file| file.take(1024).read_to_end(&mut head));
    read.is_ok() && String::from_utf8_lossy(&head).contains(MARK)
}

/// A name from data, as a terminal or a page may show it: what controls either, or turns the
/// direction of writing, is spelt out, and what is too long is cut.
pub fn legible(name: &str) -> String {
    const LONGEST: usize = 60;
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let spelt = |c: char| match c.is_control() || turns(c) || matches!(c, '\u{2028}' | '\u{2029}') {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    let cut = name.chars().nth(LONGEST).is_some();
    let kept: String = name.chars().take(LONGEST).map(spelt).collect();
    if cut { kept + "…" } else { kept }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_play_tricks() {
        assert_eq!(legible("a\x1b[31mb\u{202e}c"), "a\\u{1b}[31mb\\u{202e}c");
        assert_eq!(legible("wlan ä"), "wlan ä");
        assert_eq!(legible(&"x".repeat(99)).chars().count(), 61);
    }
}
