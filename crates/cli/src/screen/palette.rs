//! What colours mean in a view; there are none where the user wants none.

use std::ffi::OsStr;

use ratatui::style::{Color, Modifier, Style};

/// The styles of a view. What they say stands in words too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Palette {
    colours: bool,
}

impl Palette {
    /// Without colours where `NO_COLOR` is set and not empty (<https://no-color.org>).
    pub(crate) fn of_environment() -> Palette {
        Palette::for_wish(std::env::var_os("NO_COLOR").as_deref())
    }

    fn for_wish(no_color: Option<&OsStr>) -> Palette {
        Palette { colours: no_color.is_none_or(OsStr::is_empty) }
    }

    #[cfg(test)]
    pub(crate) const fn new(colours: bool) -> Palette {
        Palette { colours }
    }

    fn ink(self, colour: Color) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new() }
    }

    /// It works.
    pub(crate) fn good(self) -> Style {
        self.ink(Color::Green)
    }

    /// It deserves a look.
    pub(crate) fn doubtful(self) -> Style {
        self.ink(Color::Yellow)
    }

    /// It does not work.
    pub(crate) fn bad(self) -> Style {
        self.ink(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// Shares of a whole.
    pub(crate) fn share(self) -> Style {
        self.ink(Color::Cyan)
    }

    /// What was in the last seconds.
    pub(crate) fn past(self) -> Style {
        self.ink(Color::Magenta)
    }

    /// Heads of tables, and what else is to be found first.
    pub(crate) fn head(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// What matters less.
    pub(crate) fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// What must not be overlooked.
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
        let colours = wishes.map(|wish| Palette::for_wish(wish.map(OsStr::new)).colours);
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
