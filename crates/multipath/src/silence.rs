//! The pause that separates one load (a burst of traffic, such as a page load) of a session from
//! the next.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::Every;

/// Minimum time without units, above zero, that separates two loads (bursts of traffic, such as
/// page loads).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence(Duration);

/// Error of parsing a [`Silence`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SilenceError(String);

impl Silence {
    /// Default: one second. It is longer than the pauses within a page load over a slow path, and
    /// shorter than a reader's pause between two page loads.
    pub const USUAL: Silence = Silence(Duration::from_secs(1));

    /// Returns the rule that pauses of at least `least` separate two loads (bursts of traffic);
    /// `None` if `least` is zero.
    pub fn new(least: Duration) -> Option<Silence> {
        (!least.is_zero()).then_some(Silence(least))
    }

    /// Returns the minimum length of a pause that separates two loads (bursts of traffic).
    pub const fn least(self) -> Duration {
        self.0
    }
}

impl FromStr for Silence {
    type Err = SilenceError;

    /// Parses a time such as `1s` or `500ms`.
    fn from_str(text: &str) -> Result<Silence, SilenceError> {
        match text.parse() {
            Ok(Every::Time { mean, random: false }) => Ok(Silence(mean)),
            _ => Err(SilenceError(text.into())),
        }
    }
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Every::Time { mean: self.0, random: false }.fmt(f)
    }
}

impl fmt::Display for SilenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is not a duration of silence: write a time above zero, such as 1s or 500ms",
            self.0
        )
    }
}

impl std::error::Error for SilenceError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_is_a_time_above_zero_and_nothing_else() {
        for text in ["1s", "500ms", "250us"] {
            assert_eq!(text.parse::<Silence>().unwrap().to_string(), text);
        }
        for text in ["", "0s", "-1s", "1", "5p", "~1s", "1-2s", "grow:1-2s", "never"] {
            let error = text.parse::<Silence>().unwrap_err().to_string();
            let starts = format!("'{text}' is not a duration of silence");
            assert!(error.starts_with(&starts), "{error}");
        }
        assert_eq!(Silence::new(Duration::ZERO), None);
    }
}
