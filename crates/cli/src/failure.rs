//! Failures of the program: one line of text, and an exit code that scripts can use.

use std::fmt::{self, Display};
use std::io::Write;
use std::process::ExitCode;

use anabranch_os::toml_keys::{hint, in_plain_words, without_codes};
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::Cli;
use crate::screen::journal::{Journal, Priority};

/// A failure of the program: the message for the user, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// Creates a failure for a request that is invalid or impossible on this machine. The exit
    /// code is 2.
    pub(crate) fn misuse(message: impl Display) -> Failure {
        Failure { code: 2, message: without_codes(&message.to_string()) }
    }

    /// Creates a failure for a valid request that did not succeed. The exit code is 1.
    pub(crate) fn trouble(message: impl Display) -> Failure {
        Failure { code: 1, message: without_codes(&message.to_string()) }
    }

    /// Creates a failure with the exit status `code` of another program, which has printed its own
    /// message.
    pub(crate) fn status(code: i32) -> Failure {
        Failure { code: u8::try_from(code).unwrap_or(1), message: String::new() }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<clap::Error> for Failure {
    /// Converts a clap error to a failure. If the user has asked for help or for the version,
    /// prints the text and ends the program.
    fn from(error: clap::Error) -> Failure {
        match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
            ErrorKind::InvalidSubcommand => Failure::misuse(unknown_command(&error)),
            ErrorKind::ArgumentConflict => Failure::misuse(conflict(&error)),
            _ => Failure::misuse(in_users_words(&one_line(&error.render().to_string()))),
        }
    }
}

/// Rewrites clap's `message` for users who do not know Rust. A range such as `1..=8` becomes "1 to
/// 8".
fn in_users_words(message: &str) -> String {
    let plain = in_plain_words(message);
    let Some((before, range)) = plain.rsplit_once(" is not in ") else { return plain };
    let Some((least, most)) = range.split_once("..=") else { return plain };
    let numbers = [least, most].iter().all(|end| end.parse::<i128>().is_ok());
    match before.rsplit_once(": ") {
        Some((flag, _)) if numbers => format!("{flag}: write {least} to {most}"),
        _ => plain,
    }
}

/// Returns clap's message about an unknown command, with a suggestion: the command that the user
/// probably meant. After `help`, clap itself suggests no command.
fn unknown_command(error: &clap::Error) -> String {
    let message = one_line(&error.render().to_string());
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return message;
    };
    if message.contains("tip:") {
        return message;
    }
    let commands = Cli::command();
    let names = commands.get_subcommands().filter(|command| !command.is_hide_set());
    message.clone() + &hint(word, names.map(clap::Command::get_name))
}

/// Returns a message with the flags that conflict with each other. If one flag excludes all
/// others, clap's own message names only that flag. The message then adds the other flags from the
/// command line.
fn conflict(error: &clap::Error) -> String {
    let message = one_line(&error.render().to_string());
    if error.get(ContextKind::PriorArg).is_some_and(|prior| *prior != ContextValue::None) {
        return message;
    }
    let alone = message.split('\'').nth(1).unwrap_or_default().to_owned();
    let bare = alone.split(' ').next().unwrap_or_default().to_owned();
    let flags = std::env::args().skip(2).filter(|word| word.starts_with('-'));
    let flags = flags.map(|word| word.split('=').next().unwrap_or_default().to_owned());
    let mut others: Vec<String> = Vec::new();
    for flag in flags.filter(|flag| *flag != bare) {
        if !others.contains(&flag) {
            others.push(flag);
        }
    }
    match others.is_empty() {
        true => message,
        false => {
            format!("'{alone}' cannot be combined with other options: remove {}", others.join(", "))
        }
    }
}

/// Prints the message of a failure to standard error. Returns the exit code of the program.
pub(crate) fn exit_code(result: Result<(), Failure>) -> ExitCode {
    let Err(Failure { code, message }) = result else { return ExitCode::SUCCESS };
    if !message.is_empty() {
        // A closed standard error is ignored, because it is no reason to panic.
        let text = Journal::of_stderr().line(Priority::Error, &format!("anabranch: {message}"));
        let _ = writeln!(std::io::stderr(), "{text}");
    }
    ExitCode::from(code)
}

/// Returns clap's message and its tip in one line, without the usage that follows. Drops the tip
/// on how to pass an unknown option as a value, because it misleads a user who misspelt an option.
fn one_line(rendered: &str) -> String {
    let parts = rendered.split("\n\n").map(str::trim).enumerate();
    let is_tip = |text: &str| text.starts_with("tip:") && !text.starts_with("tip: to pass ");
    let kept = parts.filter(|(place, text)| *place == 0 || is_tip(text));
    let message: Vec<_> =
        kept.map(|(_, text)| text.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    message.join("; ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_many_lines_becomes_one_that_keeps_its_tip() {
        let text = "error: unexpected argument '--evry' found\n\n  tip: a similar one: '--every'\n\n\
                    Usage: anabranch\n\nFor more, try '--help'.\n";
        assert_eq!(
            one_line(text),
            "unexpected argument '--evry' found; tip: a similar one: '--every'"
        );
    }

    #[test]
    fn an_unknown_option_is_not_offered_as_a_value() {
        let line = ["anabranch", "split", "--zzz"];
        let error = Cli::command().try_get_matches_from(line).unwrap_err();
        assert!(error.render().to_string().contains("to pass '--zzz' as a value"));
        assert_eq!(one_line(&error.render().to_string()), "unexpected argument '--zzz' found");
    }

    #[test]
    fn ranges_are_shown_as_they_are_written() {
        let message = "invalid value '0' for '--legs <N>': 0 is not in 1..=8";
        assert_eq!(in_users_words(message), "invalid value '0' for '--legs <N>': write 1 to 8");
        assert_eq!(in_users_words("what is not in a..=b"), "what is not in a..=b");
    }
}
