//! Values that flags and files share and that no other crate has a text form for.

use std::ffi::OsStr;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anabranch_comps::{Guess, Protocol};
use anabranch_drive::paths::PathSpec;
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;

/// A text that is no value of the kind asked for; the message says what would be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ValueError(String);

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ValueError {}

/// A length of time above zero: `500ms`, `180s`, `3m`, `1h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl FromStr for Span {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Span, ValueError> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let millis = match unit {
            "ms" => Some(1),
            "s" => Some(1_000),
            "m" => Some(60_000),
            "h" => Some(3_600_000),
            _ => None,
        };
        let total = millis.and_then(|millis| number.parse::<u64>().ok()?.checked_mul(millis));
        match total {
            Some(total) if total > 0 => Ok(Span(Duration::from_millis(total))),
            _ => Err(ValueError(format!(
                "'{text}' is no length of time above zero: write 500ms, 180s, 3m or 1h"
            ))),
        }
    }
}

/// A firewall mark, decimal or with `0x`; never 0, which means "no mark".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(pub(crate) u32);

impl FromStr for Mark {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Mark, ValueError> {
        let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => text.parse(),
        };
        match number {
            Ok(mark) if mark > 0 => Ok(Mark(mark)),
            _ => Err(ValueError(format!(
                "'{text}' is no mark: write a number from 1 to 4294967295, or 0x1 to 0xffffffff"
            ))),
        }
    }
}

/// What the sessions carry, as the user says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traffic(pub(crate) Guess);

impl FromStr for Traffic {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Traffic, ValueError> {
        let guess = match text {
            "auto" => Guess::Look,
            "wireguard" => Guess::Is(Protocol::WireGuard),
            "quic" => Guess::Is(Protocol::Quic),
            "mosh" => Guess::Is(Protocol::Mosh),
            "any" => Guess::Is(Protocol::Other),
            _ => {
                return Err(ValueError(format!(
                    "'{text}' is no protocol: there are auto, wireguard, quic, mosh and any"
                )));
            }
        };
        Ok(Traffic(guess))
    }
}

/// Reads a path. Unlike clap's own words about a bad value, its message does not repeat what may be
/// a password.
#[derive(Clone, Debug)]
pub(crate) struct PathParser;

impl TypedValueParser for PathParser {
    type Value = PathSpec;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<PathSpec, clap::Error> {
        let text = value.to_str().unwrap_or_default();
        text.parse().map_err(|error| {
            let shown = text
                .rsplit_once('@')
                .map_or_else(|| text.to_owned(), |(_, at)| format!("...@{at}"));
            let flag = argument.map(ToString::to_string).unwrap_or_default();
            let message = format!("invalid value '{shown}' for '{flag}': {error}");
            clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_have_a_unit_and_are_above_zero() {
        let seconds = |text: &str| text.parse::<Span>().map(|span| span.0.as_secs_f64());
        assert_eq!(seconds("500ms"), Ok(0.5));
        assert_eq!(seconds("3m"), Ok(180.0));
        for text in ["", "0s", "180", "-1s", "1.5s", "s", "99999999999999999999h"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn marks_are_decimal_or_hexadecimal_and_never_zero() {
        assert_eq!("51820".parse(), Ok(Mark(51820)));
        assert_eq!("0xCA6C".parse(), Ok(Mark(51820)));
        for text in ["", "0", "0x", "0x0", "4294967296", "-1"] {
            assert!(text.parse::<Mark>().is_err(), "{text}");
        }
    }
}
