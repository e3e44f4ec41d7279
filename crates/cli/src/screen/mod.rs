//! Parts that all screens (outputs for the user) share: lines for a reader that may be slow, a
//! live view on a terminal, and the latest events.

use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use anabranch_multipath::Time;
use ratatui::text::{Line, Text};
use rustix::termios::tcgetwinsize;

use self::palette::Palette;
use crate::text::wrapped;

#[cfg(test)]
pub(crate) mod earlier;
pub(crate) mod frame;
#[cfg(test)]
pub(crate) mod golden;
pub(crate) mod journal;
mod keys;
pub(crate) mod lines;
pub(crate) mod live;
pub(crate) mod meter;
pub(crate) mod palette;
mod quiet_terminal;

pub(crate) mod table;
mod view;
pub(crate) mod waiting;

/// Maximum number of recent events that a view can show.
const RECENT: usize = 32;

/// Returns whether standard output is a terminal that supports a live view.
pub(crate) fn has_terminal() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    !dumb && io::stdout().is_terminal()
}

/// Wraps `text` between words to the width of the terminal `to`. If `to` is not a terminal, `text`
/// is not changed.
pub(crate) fn folded(text: &str, to: impl AsFd) -> String {
    let columns = tcgetwinsize(to).map_or(0, |size| usize::from(size.ws_col));
    match columns {
        0 => text.to_owned(),
        _ => text.lines().flat_map(|line| wrapped(line, columns)).collect::<Vec<_>>().join("\n"),
    }
}

/// The latest events as texts, the newest last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent(VecDeque<EventLine>);

/// One event: its time, its text, and whether it is a warning.
#[derive(Clone, Debug)]
struct EventLine {
    time: Time,
    words: String,
    is_warning: bool,
}

impl Recent {
    /// Adds an event. If there are too many events, the oldest is dropped.
    pub(crate) fn keep(&mut self, time: Time, words: String) {
        self.push(EventLine { time, words, is_warning: false });
    }

    /// Adds a warning. If there are too many events, the oldest is dropped.
    pub(crate) fn warn(&mut self, time: Time, words: String) {
        self.push(EventLine { time, words, is_warning: true });
    }

    fn push(&mut self, line: EventLine) {
        self.0.push_back(line);
        if self.0.len() > RECENT {
            self.0.pop_front();
        }
    }

    /// Returns the newest event.
    #[cfg(test)]
    pub(crate) fn last(&self) -> Option<&str> {
        self.0.back().map(|line| line.words.as_str())
    }

    /// Returns the newest events as text, at most `room` lines.
    pub(crate) fn text(&self, room: u16, palette: Palette) -> Text<'_> {
        let skip = self.0.len().saturating_sub(usize::from(room));
        let newest = self.0.iter().skip(skip);
        let styled = |line: &EventLine| {
            let style = if line.is_warning { palette.doubtful() } else { palette.faint() };
            Line::styled(format!("{:9.3}  {}", line.time.secs_f64(), line.words), style)
        };
        newest.map(styled).collect()
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
        assert_eq!(recent.text(3, Palette::new(true)).lines.len(), 3);
    }
}
