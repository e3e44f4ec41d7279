//! Types of values in flags and files that the other crates cannot parse from text.

use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use anabranch_comps::protocol::{FAMILIES, Family};
use anabranch_comps::{Guess, Protocol};
use anabranch_multipath::schedule::{Spec, SpecError};
use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;

use super::uplinks::PathChoice;

/// Error for a text that is not a valid value; the message shows the valid form.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ValueError(String);

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ValueError {}

/// A duration greater than zero: `500ms`, `180s`, `3m`, `1h`.
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
                "'{text}' is not a length of time above zero: write 500ms, 180s, 3m or 1h"
            ))),
        }
    }
}

/// A firewall mark, decimal or with `0x`. It is never 0, because 0 means "no mark".
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
                "'{text}' is not a firewall mark: write a number from 1 to 4294967295, or 0x1 to \
                 0xffffffff"
            ))),
        }
    }
}

/// Value of `--protocol` that lets the splitter recognise the protocol.
pub(crate) const AUTO: &str = "auto";
/// Value of `--protocol` with which sessions of every protocol are split.
pub(crate) const ANY: &str = "any";

/// Protocol of the sessions, as declared by the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traffic(pub(crate) Guess);

impl FromStr for Traffic {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Traffic, ValueError> {
        let guess = match text {
            AUTO => Some(Guess::Look),
            ANY => Some(Guess::Is(Protocol::Other)),
            name => selectable()
                .find(|family| family.name == name)
                .map(|family| Guess::Is(family.protocol)),
        };
        let known = || Traffic::names().collect::<Vec<_>>().join(", ");
        let error =
            || ValueError(format!("'{text}' is not a known protocol: choose one of {}", known()));
        guess.map(Traffic).ok_or_else(error)
    }
}

impl Traffic {
    /// Returns the valid names of protocols.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        [AUTO].into_iter().chain(selectable().map(|family| family.name)).chain([ANY])
    }
}

/// Returns the protocols that a user can declare.
fn selectable() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter().filter(|family| family.selectable)
}

/// Parses an IP address with a port.
///
/// # Errors
/// The text is not an address with a port; the message shows the form.
pub(crate) fn address(text: &str) -> Result<SocketAddr, ValueError> {
    let form = || {
        let port = text.rsplit(':').next().unwrap_or_default();
        let too_large = port.parse::<u64>().is_ok_and(|port| port > u64::from(u16::MAX));
        let example = match port.parse::<u16>() {
            Ok(port) => format!("127.0.0.1:{port}"),
            Err(_) => "127.0.0.1:51820".to_owned(),
        };
        let why = if too_large { "; ports end at 65535" } else { "" };
        ValueError(format!(
            "'{text}' is not an address with a port: write ADDRESS:PORT, such as {example}{why}"
        ))
    };
    text.parse().map_err(|_| form())
}

/// Parser that uses the `FromStr` of `T`, and offers `names` for completion in shells.
#[derive(Clone, Debug)]
pub(crate) struct NamedParser<T> {
    names: Vec<&'static str>,
    value: PhantomData<T>,
}

/// A schedule of any kind. Some kinds need congestion windows, which only paths to a far end have.
#[derive(Clone, Debug)]
pub(crate) struct AnySchedule(pub(crate) Spec);

impl FromStr for AnySchedule {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<AnySchedule, SpecError> {
        Spec::over_windows(text).map(AnySchedule)
    }
}

impl<T> NamedParser<T> {
    pub(crate) fn of(names: impl IntoIterator<Item = &'static str>) -> NamedParser<T> {
        NamedParser { names: names.into_iter().collect(), value: PhantomData }
    }
}

impl<T> TypedValueParser for NamedParser<T>
where
    T: FromStr<Err: Display> + Clone + Send + Sync + 'static,
{
    type Value = T;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        let text = value.to_string_lossy();
        text.parse().map_err(|error| invalid(command, argument, &text, &error))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.names.iter().map(PossibleValue::new)))
    }
}

/// Returns clap's error for the invalid value `shown`.
fn invalid(
    command: &clap::Command,
    argument: Option<&clap::Arg>,
    shown: &str,
    error: &impl Display,
) -> clap::Error {
    let flag = argument.map(ToString::to_string).unwrap_or_default();
    let message = format!("invalid value '{shown}' for '{flag}': {error}");
    clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
}

/// Parser of a path. Unlike clap's own messages, its error messages do not repeat text that may be
/// a password.
#[derive(Clone, Debug)]
pub(crate) struct PathParser;

impl TypedValueParser for PathParser {
    type Value = PathChoice;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<PathChoice, clap::Error> {
        let text = value.to_str().unwrap_or_default();
        text.parse().map_err(|error| {
            let shown = text
                .rsplit_once('@')
                .map_or_else(|| text.to_owned(), |(_, at)| format!("...@{at}"));
            invalid(command, argument, &shown, &error)
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
    fn an_address_without_its_port_or_with_none_that_exists_is_shown_the_form() {
        assert_eq!(address("127.0.0.1:1"), Ok("127.0.0.1:1".parse().unwrap()));
        let message = |text| address(text).unwrap_err().to_string();
        assert!(message("51820").ends_with("write ADDRESS:PORT, such as 127.0.0.1:51820"));
        assert!(message("9464").ends_with("as 127.0.0.1:9464"));
        assert!(message("127.0.0.1:80000").ends_with("as 127.0.0.1:51820; ports end at 65535"));
        assert!(message("localhost:1").ends_with("as 127.0.0.1:1"));
    }

    #[test]
    fn every_protocol_that_is_named_can_be_said_and_help_names_it() {
        let names: Vec<_> = Traffic::names().collect();
        assert_eq!(names, ["auto", "wireguard", "quic", "mosh", "any"]);
        assert!(names.iter().all(|name| name.parse::<Traffic>().is_ok()));
        let options = <crate::split::Options as clap::Args>::augment_args(clap::Command::new("x"));
        let argument = options.get_arguments().find(|argument| argument.get_id() == "protocol");
        let help = argument.unwrap().get_help().unwrap().to_string();
        assert!(names.iter().all(|name| help.contains(name)), "{help}");
        let error = "kcp".parse::<Traffic>().unwrap_err().to_string();
        assert!(error.ends_with("choose one of auto, wireguard, quic, mosh, any"), "{error}");
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
