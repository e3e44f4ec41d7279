//! What all screens are made of: lines for a reader who may be slow, a view on a terminal, the last
//! events on it.

use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use anabranch_multipath::Time;
use ratatui::style::Stylize;
use ratatui::text::{Line, Text};
use rustix::termios::tcgetwinsize;

use crate::text::wrapped;

pub(crate) mod hush;
pub(crate) mod journal;
pub(crate) mod keys;
pub(crate) mod lines;
pub(crate) mod view;

/// Events that are kept for a view.
const RECENT: usize = 32;

/// Whether stdout leads to a terminal that can show a view.
pub(crate) fn has_terminal() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    !dumb && io::stdout().is_terminal()
}

/// `text` as a terminal shows it whole, broken between words; as it is where `to` is none.
pub(crate) fn folded(text: &str, to: impl AsFd) -> String {
    let columns = tcgetwinsize(to).map_or(0, |size| usize::from(size.ws_col));
    match columns {
        0 => text.to_owned(),
        _ => text.lines().flat_map(|line| wrapped(line, columns)).collect::<Vec<_>>().join("\n"),
    }
}

/// How many of a table's columns fit, with a space between them, the most important first; always
/// the first, even where it is cut.
pub(crate) fn fitting(columns: &[(&str, u16)], width: u16) -> usize {
    let ends = columns.iter().scan(0, |end, (_, width)| {
        *end += width + 1;
        Some(*end - 1)
    });
    ends.take_while(|end| *end <= width).count().max(1)
}

/// The last events in words, the newest last.
#[derive(Debug, Default)]
pub(crate) struct Recent(VecDeque<(Time, String)>);

impl Recent {
    /// Keeps one more; the oldest goes when there are too many.
    pub(crate) fn keep(&mut self, now: Time, words: String) {
        self.0.push_back((now, words));
        if self.0.len() > RECENT {
            self.0.pop_front();
        }
    }

    /// The newest.
    pub(crate) fn last(&self) -> Option<&str> {
        self.0.back().map(|(_, words)| words.as_str())
    }

    /// As many as there is room for.
    pub(crate) fn text(&self, room: u16) -> Text<'_> {
        let skip = self.0.len().saturating_sub(usize::from(room));
        let newest = self.0.iter().skip(skip);
        newest
            .map(|(time, words)| Line::raw(format!("{:9.3}  {words}", time.secs_f64())).dim())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_events_is_bounded() {
        let mut recent = Recent::default();
        (0..1000).for_each(|number| recent.keep(Time::ZERO, number.to_string()));
        assert_eq!((recent.0.len(), recent.last()), (RECENT, Some("999")));
        assert_eq!(recent.text(3).lines.len(), 3);
    }

    #[test]
    fn columns_that_fit_are_shown_and_the_first_always() {
        let columns = [("a", 4), ("b", 4), ("c", 4)];
        let shown = [1, 4, 8, 9, 13, 14, 99].map(|width| fitting(&columns, width));
        assert_eq!(shown, [1, 1, 1, 2, 2, 3, 3]);
    }
}
