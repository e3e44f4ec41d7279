//! Parsers of numbers and addresses in flags. Unlike clap's parsers, they name no Rust types in
//! their error messages. A word such as `-5` is parsed as the value of the flag before it, not as
//! a flag.

use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::str::FromStr;

use clap::builder::{TypedValueParser, ValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Command};

use crate::split::values::address;

/// Returns `command` with this program's parsers for whole numbers and addresses, in all
/// sub-commands.
pub(crate) fn values(command: Command) -> Command {
    let command = command.mut_args(value);
    command.mut_subcommands(values)
}

/// Parses the command line `words`. If clap takes a value such as `-5` or `-5ms` for an unknown
/// flag, parses `--flag -5` as `--flag=-5`. The flag's parser then accepts the value, or reports
/// which values are allowed.
///
/// # Errors
/// The command line is invalid, or asks for help.
pub(crate) fn matches(
    command: &Command,
    mut words: Vec<OsString>,
) -> Result<ArgMatches, clap::Error> {
    loop {
        let result = command.clone().try_get_matches_from(&words);
        let Some(place) = result.as_ref().err().and_then(|error| negative(error, &words)) else {
            return result;
        };
        let value = words.remove(place);
        words[place - 1].push("=");
        words[place - 1].push(value);
    }
}

/// Returns the index of the word that `error` reports as an unknown flag. The word must begin as a
/// negative number and follow a long flag without `=`; otherwise returns `None`.
fn negative(error: &clap::Error, words: &[OsString]) -> Option<usize> {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let is_number = unknown.strip_prefix('-')?.starts_with(|first: char| first.is_ascii_digit());
    if error.kind() != ErrorKind::UnknownArgument || !is_number {
        return None;
    }
    let bytes = |word: &OsString| word.as_encoded_bytes().to_vec();
    let is_value = |pair: &[OsString]| {
        let flag = bytes(&pair[0]);
        let is_flag = flag.len() > 2 && flag.starts_with(b"--") && !flag.contains(&b'=');
        is_flag && bytes(&pair[1]).starts_with(unknown.as_bytes())
    };
    // The words after `--` are not flags.
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words[..end].windows(2).position(is_value).map(|place| place + 1)
}

/// Replaces the parser of a flag whose value is an address, or an integer of 64 bits or pointer
/// size. Smaller integers keep clap's parser, because its messages name the valid range.
fn value(arg: Arg) -> Arg {
    use std::any::TypeId;
    let kind = arg.get_value_parser().type_id();
    let readers: [(TypeId, fn() -> ValueParser); 6] = [
        (TypeId::of::<u64>(), || {
            FromStrParser::<u64>::parser("a whole number from 0 to 18446744073709551615")
        }),
        (TypeId::of::<usize>(), || FromStrParser::<usize>::parser("a whole number, 0 or more")),
        (TypeId::of::<NonZeroUsize>(), || FromStrParser::<NonZeroUsize>::parser("1 or more")),
        (TypeId::of::<SocketAddr>(), || ValueParser::from(address)),
        (TypeId::of::<IpAddr>(), || {
            FromStrParser::<IpAddr>::parser("an address, such as 192.0.2.7")
        }),
        (TypeId::of::<Ipv4Addr>(), || {
            FromStrParser::<Ipv4Addr>::parser("an IPv4 address, such as 192.0.2.7")
        }),
    ];
    match readers.into_iter().find(|(reads, _)| kind == *reads) {
        Some((_, reader)) => arg.value_parser(reader()),
        None => arg,
    }
}

/// Parser that uses the `FromStr` of `T`. Its error message shows `form`, the expected notation.
#[derive(Clone, Debug)]
struct FromStrParser<T> {
    form: &'static str,
    read: fn(&str) -> Option<T>,
}

impl<T: FromStr + Clone + Send + Sync + 'static> FromStrParser<T> {
    fn parser(form: &'static str) -> ValueParser {
        ValueParser::new(FromStrParser::<T> { form, read: |text| text.parse().ok() })
    }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for FromStrParser<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        let text = value.to_string_lossy();
        (self.read)(&text).ok_or_else(|| {
            let flag = argument.map(ToString::to_string).unwrap_or_default();
            let message = format!("invalid value '{text}' for '{flag}': write {}", self.form);
            clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    /// Collects all flags with a value, each with the sub-commands that lead to it.
    fn flags(command: &Command, words: &[String], found: &mut Vec<(Vec<String>, String)>) {
        for arg in command.get_arguments().filter(|arg| arg.get_action().takes_values()) {
            found.extend(arg.get_long().map(|long| (words.to_vec(), format!("--{long}"))));
        }
        for inner in command.get_subcommands() {
            flags(inner, &[words, &[inner.get_name().to_owned()]].concat(), found);
        }
    }

    fn parsed(line: impl IntoIterator<Item = impl AsRef<str>>) -> Result<ArgMatches, String> {
        let words = line.into_iter().map(|word| OsString::from(word.as_ref())).collect();
        let result = matches(&values(Cli::command()), words);
        result.map_err(|error| crate::failure::Failure::from(error).to_string())
    }

    #[test]
    fn a_negative_number_after_a_flag_is_its_value() {
        let mut found = Vec::new();
        flags(&values(Cli::command()), &["anabranch".to_owned()], &mut found);
        for (words, flag) in found {
            for value in ["-5", "-5ms", "-0.5"] {
                let apart = parsed(words.iter().map(String::as_str).chain([&*flag, value]));
                let joined = format!("{flag}={value}");
                let joined = parsed(words.iter().map(String::as_str).chain([&*joined]));
                assert_eq!(apart.err(), joined.err(), "{words:?} {flag} {value}");
            }
        }
        let refused = |line: &str| parsed(line.split(' ')).unwrap_err();
        let message = refused("anabranch split --max-sessions -5 --quic-tuples -4");
        assert_eq!(message, "invalid value '-5' for '--max-sessions <N>': write 1 or more");
        let message = refused("anabranch split --idle -5ms");
        assert!(message.starts_with("invalid value '-5ms' for '--idle <TIME>': "), "{message}");
    }

    #[test]
    fn negative_numbers_elsewhere_stay_what_they_are() {
        let refused = |line: &str| parsed(line.split(' ')).unwrap_err();
        assert_eq!(refused("anabranch split -5"), "unexpected argument '-5' found");
        assert_eq!(refused("anabranch split t.toml -5 -- x -5"), "unexpected argument '-5' found");
        let line = "anabranch emulate t.toml --in a -- head --lines -5";
        let matches = parsed(line.split(' ')).unwrap();
        let words = matches.subcommand_matches("emulate").unwrap().get_many::<String>("command");
        assert_eq!(words.unwrap().collect::<Vec<_>>(), ["head", "--lines", "-5"]);
    }

    #[test]
    fn no_flag_refuses_a_value_in_a_programmers_words() {
        let command = values(Cli::command());
        let mut found = Vec::new();
        flags(&command, &["anabranch".to_owned()], &mut found);
        assert!(found.len() > 150, "{}", found.len());
        let raw = [
            "target type",
            "non-zero type",
            "digit found",
            "float literal",
            "address syntax",
            "usize",
            "u64",
            "invalid utf-8",
            "..",
            "empty string",
            "os error",
        ];
        for (words, flag) in found {
            for value in ["99999999999999999999999", "-5", "x", "0", ""] {
                let given = format!("{flag}={value}");
                let line = words.iter().chain([&given]);
                let Err(error) = command.clone().try_get_matches_from(line) else { continue };
                if error.kind() != ErrorKind::ValueValidation {
                    continue;
                }
                let message = crate::failure::Failure::from(error).to_string();
                // Names of values may end in dots: `<BYTES,...>`.
                let message = message.replace(&given, "").replace("...", "");
                let bad = raw.iter().find(|raw| message.to_lowercase().contains(**raw));
                assert_eq!(bad, None, "{words:?} {given}: {message}");
            }
        }
    }
}
