//! Test of views against golden files at 80, 100 and 160 columns. Whenever these files change, a
//! person inspects them.

use std::fmt::Write;
use std::path::PathBuf;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

use super::frame::tests::seen;
use super::frame::{Picture, ViewState};
use super::palette::Palette;

/// Environment variable that makes the tests regenerate the files (`make screens`).
const REGENERATE: &str = "ANABRANCH_SCREENS";

/// Compares a view at three widths with the files `testdata/screens/NAME-WIDTH.txt`.
pub(crate) fn check(name: &str, picture: &impl Picture) {
    check_look(name, picture, &ViewState::new(Palette::new(true)));
}

/// Compares a view as [`check`] does, with the choices of the user in `look`.
pub(crate) fn check_look(name: &str, picture: &impl Picture, look: &ViewState) {
    for width in [80, 100, 160] {
        let now = styled_text(&seen(picture, width, look));
        let file = folder().join(format!("{name}-{width}.txt"));
        if std::env::var_os(REGENERATE).is_some() {
            std::fs::create_dir_all(folder()).unwrap();
            std::fs::write(&file, now).unwrap();
            continue;
        }
        let before = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(before == now, "{} is not what is drawn (make screens):\n{now}", file.display());
    }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/screens")
}

/// Returns the text on a screen, without spaces at the ends of lines.
pub(crate) fn text(buffer: &Buffer) -> String {
    lines(buffer, |cell| cell.symbol().to_owned())
}

/// Returns the text on a screen, and below it the style of each character: `g`reen, `y`ellow,
/// `r`ed, `c`yan, `m`agenta. Characters without a colour are `b`old, `d`im, or in`v`erse.
fn styled_text(buffer: &Buffer) -> String {
    let styles = lines(buffer, |cell| style(cell).to_string());
    format!("{}\n{}\n{styles}", text(buffer), "-".repeat(usize::from(buffer.area.width)))
}

fn lines(buffer: &Buffer, letter: fn(&Cell) -> String) -> String {
    let mut text = String::new();
    for row in buffer.content.chunks(usize::from(buffer.area.width).max(1)) {
        let line: String = row.iter().map(letter).collect();
        writeln!(text, "{}", line.trim_end()).unwrap();
    }
    text
}

fn style(cell: &Cell) -> char {
    let letter = match cell.fg {
        Color::Green => 'g',
        Color::Yellow => 'y',
        Color::Red => 'r',
        Color::Cyan => 'c',
        Color::Magenta => 'm',
        Color::Reset if cell.modifier.contains(Modifier::BOLD) => 'b',
        Color::Reset if cell.modifier.contains(Modifier::DIM) => 'd',
        Color::Reset if cell.modifier.contains(Modifier::REVERSED) => 'v',
        Color::Reset => ' ',
        other => panic!("no letter for {other}"),
    };
    // The colour of a space is visible only in inverse text.
    if cell.symbol() == " " && letter != 'v' { ' ' } else { letter }
}
