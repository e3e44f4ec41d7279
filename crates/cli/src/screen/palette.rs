//! Styles of the parts of a live view. The user can disable colours.

use std::ffi::OsStr;

use ratatui::style::{Color, Modifier, Style};

/// Styles of the parts of a live view. A style never carries information that is not also in the
/// text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Palette {
    colours: bool,
}

impl Palette {
    /// Creates the styles. If the environment variable `NO_COLOR` is set and not empty, they have
    /// no colours (<https://no-color.org>).
    pub(crate) fn of_environment() -> Palette {
        Palette::from_environment(std::env::var_os("NO_COLOR").as_deref())
    }

    fn from_environment(no_color: Option<&OsStr>) -> Palette {
        Palette { colours: no_color.is_none_or(OsStr::is_empty) }
    }

    #[cfg(test)]
    pub(crate) const fn new(colours: bool) -> Palette {
        Palette { colours }
    }

    fn ink(self, colour: Color) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new() }
    }

    /// Returns the style of a state without problems, such as a working path.
    pub(crate) fn good(self) -> Style {
        self.ink(Color::Green)
    }

    /// Returns the style of warnings, losses and unfinished work.
    pub(crate) fn doubtful(self) -> Style {
        self.ink(Color::Yellow)
    }

    /// Returns the style of failures, such as a path that does not work.
    pub(crate) fn bad(self) -> Style {
        self.ink(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// Returns the style of shares, such as a path's share of the traffic.
    pub(crate) fn share(self) -> Style {
        self.ink(Color::Cyan)
    }

    /// Returns the style of graphs that show the rates of the last seconds.
    pub(crate) fn past(self) -> Style {
        self.ink(Color::Magenta)
    }

    /// Returns the style of column headings and of other headings.
    pub(crate) fn head(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Returns the style of less important things.
    pub(crate) fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Returns the style of labels about the state of the whole view, such as `PAUSED`.
    pub(crate) fn striking(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wants_no_colours_gets_none() {
        let wishes = [None, Some(""), Some("1"), Some("0")];
        let colours = wishes.map(|wish| Palette::from_environment(wish.map(OsStr::new)).colours);
        assert_eq!(colours, [true, true, false, false]);
        let plain = Palette::new(false);
        let styles = [
            plain.good(),
            plain.doubtful(),
            plain.bad(),
            plain.share(),
            plain.past(),
            plain.head(),
        ];
        assert!(styles.iter().all(|style| style.fg.is_none() && style.bg.is_none()));
        assert_eq!(Palette::new(true).bad().fg, Some(Color::Red));
    }
}
