//! A drawing of the setup: the client, the server, the paths between them, and an observer on each
//! path.

use anabranch_capture::{PathSummary, Summary, TraceFacts};
use maud::{Markup, html};

use crate::figures::{colour, number, percent};
use crate::legible;

/// Maximum number of paths in the drawing, because lines of more paths could not be distinguished.
const PATHS: usize = 6;

/// Height of a path's row, in the drawing's units.
const ROW: f64 = 56.0;

/// Maximum length of a name in the drawing, in characters. Longer names are truncated.
const ROOM: usize = 13;

/// Renders the client, the server, the paths between them, and an observer on each path.
pub(super) fn sketch(facts: &TraceFacts, summary: &Summary) -> Markup {
    let paths = &summary.paths[..summary.paths.len().min(PATHS)];
    let height = ROW * paths.len() as f64 + 14.0;
    let middle = height / 2.0;
    let title =
        format!("{} paths between client and server, an observer at each", summary.paths.len());
    html! {
        svg.sketch role="img" viewBox={ "0 0 560 " (number(height)) } {
            title { (title) }
            (end(4.0, middle, "client"))
            (end(486.0, middle, "server"))
            @for (at, path) in paths.iter().enumerate() {
                (row(&legible(&facts.path_name(path.path)), path, ROW * (at as f64 + 0.6) + 7.0, middle))
            }
        }
        @if summary.paths.len() > PATHS {
            p.muted { "The drawing shows the first " (PATHS) " of " (summary.paths.len()) " paths." }
        }
    }
}

fn end(x: f64, middle: f64, name: &str) -> Markup {
    html! {
        rect.end x=(number(x)) y=(number(middle - 20.0)) width="70" height="40" rx="6" {}
        text x=(number(x + 35.0)) y=(number(middle + 6.0)) text-anchor="middle" { (name) }
    }
}

/// Renders a path with a symbol (an eye) for its observer, and the share of each direction's
/// packets that this observer saw. `y` is the vertical position of the path, and `middle` that of
/// the client and the server.
fn row(name: &str, path: &PathSummary, y: f64, middle: f64) -> Markup {
    let short: String = match name.chars().nth(ROOM) {
        Some(_) => name.chars().take(ROOM - 1).chain(['…']).collect(),
        None => name.to_owned(),
    };
    let (middle, y_text) = (number(middle), number(y - 12.0));
    let line = format!(
        "M74 {middle}C116 {middle} 90 {0} 140 {0}H430C474 {0} 450 {middle} 486 {middle}",
        number(y)
    );
    let saw = format!("↓ {} ↑ {}", percent(path.down.share), percent(path.up.share));
    html! {
        path.line.(colour(path.path)) d=(line) {}
        g.eye transform={ "translate(270 " (number(y)) ")" } {
            path.white d="M-17 0Q0 -17 17 0Q0 17 -17 0Z" {}
            circle.(colour(path.path)) r="6" {}
        }
        text.isolate x="248" y=(y_text) text-anchor="end" { (short) }
        text.muted x="292" y=(y_text) { (saw) }
    }
}
