//! Who decides on the path of which packet, and for how long chances that were drawn are kept.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::{Every, Silence};

/// How late a server follows where nothing else is said: the round-trip time of a near one.
const NEAR: Duration = Duration::from_millis(20);

/// Who schedules which direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One schedule for both directions: the server answers at once where it was last asked.
    /// Packets of both directions count towards a run; that an answer trails the question is left
    /// out.
    Together,
    /// A schedule for the client's packets; the server sends where the newest packet of the client
    /// came from that had reached it, a round-trip time of `after` before: an unaltered WireGuard,
    /// Mosh or QUIC server behind a splitter. While the client is silent, the server stays where it
    /// is.
    Follow {
        /// The round-trip time of paths without a delay of their own.
        after: Duration,
    },
    /// A schedule for each direction with chance of its own, as two multi-path ends have.
    Independent,
}

impl Default for Mode {
    fn default() -> Mode {
        Mode::Follow { after: NEAR }
    }
}

impl FromStr for Mode {
    type Err = EndsError;

    /// Reads `together`, `follow`, `follow:20ms` or `independent`.
    fn from_str(text: &str) -> Result<Mode, EndsError> {
        let refused = || EndsError::Mode(text.into());
        match text.split_once(':') {
            None if text == "together" => Ok(Mode::Together),
            None if text == "independent" => Ok(Mode::Independent),
            None if text == "follow" => Ok(Mode::default()),
            Some(("follow", time)) => Ok(Mode::Follow { after: span(time).ok_or_else(refused)? }),
            _ => Err(refused()),
        }
    }
}

/// How long a schedule keeps the chances that it drew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Draw {
    /// Each load has its own.
    #[default]
    Load,
    /// So many loads of a run that follow each other by number have the same, as the splitter's
    /// session has for all its life. Which path each run of packets takes is drawn for each load
    /// all the same.
    Session(u32),
    /// They are drawn anew after each silence of the scheduled packets that is at least so long.
    Silence(Silence),
}

impl FromStr for Draw {
    type Err = EndsError;

    /// Reads `load`, `session:20` (loads) or `silence:1s`.
    fn from_str(text: &str) -> Result<Draw, EndsError> {
        let refused = || EndsError::Draw(text.into());
        match text.split_once(':') {
            None if text == "load" => Ok(Draw::Load),
            Some(("session", loads)) => match loads.parse() {
                Ok(loads) if loads > 0 => Ok(Draw::Session(loads)),
                _ => Err(refused()),
            },
            Some(("silence", time)) => Ok(Draw::Silence(time.parse().map_err(|_| refused())?)),
            _ => Err(refused()),
        }
    }
}

/// A time as run lengths have it: `20ms`, `1s`.
fn span(text: &str) -> Option<Duration> {
    match text.parse() {
        Ok(Every::Time { mean, random: false }) => Some(mean),
        _ => None,
    }
}

/// Why a text is no mode, or no rule for chances.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndsError {
    /// There is no such mode.
    Mode(String),
    /// There is no such rule.
    Draw(String),
}

impl fmt::Display for EndsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndsError::Mode(text) => {
                write!(
                    f,
                    "'{text}' does not say how the two directions choose paths: write \
                           together, follow, follow:DELAY such as follow:20ms, or independent"
                )
            }
            EndsError::Draw(text) => {
                write!(
                    f,
                    "'{text}' is not a time to draw again: write load, session:N (after N \
                           page loads, 1 or more) or silence:DURATION, such as silence:1s"
                )
            }
        }
    }
}

impl std::error::Error for EndsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_draws_are_read_as_users_write_them() {
        let after = Duration::from_millis(60);
        assert_eq!("follow:60ms".parse(), Ok(Mode::Follow { after }));
        assert_eq!("follow".parse(), Ok(Mode::default()));
        assert_eq!("session:20".parse(), Ok(Draw::Session(20)));
        assert_eq!("silence:2s".parse(), Ok(Draw::Silence("2s".parse().unwrap())));
        assert_eq!("load".parse(), Ok(Draw::default()));
    }

    #[test]
    fn others_are_refused_in_one_line() {
        for text in ["", "follow:", "follow:0ms", "follow:5p", "follow:~5ms", "together:1s"] {
            let error = text.parse::<Mode>().unwrap_err().to_string();
            assert!(error.contains(&format!("not '{text}'")), "{error}");
        }
        for text in ["", "session", "session:0", "session:x", "silence", "silence:0s", "load:1"] {
            let error = text.parse::<Draw>().unwrap_err().to_string();
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
