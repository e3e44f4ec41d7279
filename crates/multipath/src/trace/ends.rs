//! Settings for splitting a trace: which end chooses each packet's path, and when a schedule draws
//! new random path probabilities.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::{Every, Silence};

/// Default of `after` in [`Mode::Follow`]: the round-trip time of a nearby server.
const NEAR: Duration = Duration::from_millis(20);

/// The relation between the schedule of the client's packets and the schedule of the server's
/// packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One schedule chooses the paths of both directions: the server answers at once on the
    /// client's last path. Packets of both directions count towards a run. The delay from a
    /// request to its answer is ignored.
    Together,
    /// A schedule chooses the paths of the client's packets. The server sends on the path of the
    /// newest client packet that has reached it. An unmodified WireGuard, Mosh or QUIC server
    /// behaves in this way if its client uses a splitter. While the client is silent, the server
    /// does not change its path.
    Follow {
        /// Time after a client packet is sent until the server uses this packet's path, in
        /// addition to the path's delay from client to server.
        after: Duration,
    },
    /// Each direction has a schedule with its own random numbers, as if client and server both had
    /// several paths.
    Independent,
}

impl Default for Mode {
    fn default() -> Mode {
        Mode::Follow { after: NEAR }
    }
}

impl FromStr for Mode {
    type Err = EndsError;

    /// Parses `together`, `follow`, `follow:20ms` or `independent`.
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

/// The rule for when a schedule draws new random path probabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Draw {
    /// The probabilities are drawn for each page load.
    #[default]
    Load,
    /// The probabilities are the same for this number of consecutive page loads of a repetition
    /// ([`Entity::run`](super::Entity::run)), as for a session of the splitter. Each load still
    /// draws the path of each of its runs of packets.
    Session(u32),
    /// The probabilities are drawn again after each pause of the scheduled packets that has at
    /// least this length.
    Silence(Silence),
}

impl FromStr for Draw {
    type Err = EndsError;

    /// Parses `load`, `session:20` (number of page loads) or `silence:1s`.
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

/// Parses a time such as `20ms` or `1s`. Returns `None` if `text` does not have this form.
fn span(text: &str) -> Option<Duration> {
    match text.parse() {
        Ok(Every::Time { mean, random: false }) => Some(mean),
        _ => None,
    }
}

/// Error of parsing a [`Mode`] or a [`Draw`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndsError {
    /// The text names no mode.
    Mode(String),
    /// The text is not a valid rule for when probabilities are drawn ([`Draw`]).
    Draw(String),
}

impl fmt::Display for EndsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndsError::Mode(text) => {
                write!(
                    f,
                    "'{text}' is not a rule for the paths of the two directions: write together, \
                     follow, follow:DELAY such as follow:20ms, or independent"
                )
            }
            EndsError::Draw(text) => {
                write!(
                    f,
                    "'{text}' is not a rule for choosing the path probabilities again: write load \
                     (at every page load), session:N (after N page loads, 1 or more) or \
                     silence:DURATION (after a pause in the traffic), such as silence:1s"
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
            assert!(error.starts_with(&format!("'{text}' is not a rule for")), "{error}");
        }
        for text in ["", "session", "session:0", "session:x", "silence", "silence:0s", "load:1"] {
            let error = text.parse::<Draw>().unwrap_err().to_string();
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
