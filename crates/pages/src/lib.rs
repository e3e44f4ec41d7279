//! Result pages in HTML. A page has no scripts, and needs no network and no other file.
//!
//! * This module renders the HTML frame and the style of every page.
//! * [`figures`]: rows, axes, tables, and readable numbers.
//! * [`trace`]: the page of a trace, with what the observer of each path saw. [`tables`]: the
//!   summary of a trace for terminals and for programs.
//!
//! HTML is written with maud, which escapes all text. This crate draws the figures as SVG itself,
//! because chart libraries fix colours and text sizes. Their figures would not follow a dark
//! theme, and would not be legible on a phone.

pub mod figures;
pub mod tables;
pub mod trace;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use anabranch_capture::Draft;
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Program and version that generated a page.
pub const GENERATOR: &str = concat!("anabranch ", env!("CARGO_PKG_VERSION"));

/// Start of the HTML tag that marks the pages of this program for [`is_ours`].
const MARK: &str = r#"<meta name="generator" content="anabranch"#;

/// Content security policy of pages: a browser loads and runs nothing, even if untrusted names in
/// the data contain HTML.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

const STYLE: &str = include_str!("style.css");

/// Renders a complete page around `body`.
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

/// Writes `page` to the file `target`, completely or not at all.
///
/// # Errors
/// The file cannot be created or written.
pub fn write(target: &Path, page: &str) -> io::Result<()> {
    let mut draft = Draft::begin(target)?;
    draft.write_all(page.as_bytes())?;
    draft.commit()
}

/// Checks whether the file at `page` starts like a page of this program.
pub fn is_ours(page: &Path) -> bool {
    let mut head = Vec::new();
    let read = File::open(page).and_then(|file| file.take(1024).read_to_end(&mut head));
    read.is_ok() && String::from_utf8_lossy(&head).contains(MARK)
}

/// Makes a name from untrusted data safe to display in a terminal or on a page. Control characters
/// and characters that change the direction of writing are escaped. Names over 60 characters are
/// truncated.
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
