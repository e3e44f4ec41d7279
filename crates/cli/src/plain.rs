//! Parsers of numbers and addresses in flags. Unlike clap's parsers, they name no Rust types in
//! their error messages.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::str::FromStr;

use clap::builder::{TypedValueParser, ValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command};

use crate::split::values::address;

/// Returns `command` with this program's parsers for whole numbers and addresses, in all
/// sub-commands.
pub(crate) fn values(command: Command) -> Command {
    let command = command.mut_args(value);
    command.mut_subcommands(values)
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

/// Parser that uses the `FromStr` of `T`. Its error message shows `form`.
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
