//! How the program ends when it cannot do what it was asked: one line, and an exit code that means
//! something.

use std::fmt::{self, Display};
use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::screen::journal::{Journal, Priority};

/// One message for the user and the exit code for their script.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// What was asked makes no sense or cannot be had here: exit code 2.
    pub(crate) fn misuse(message: impl Display) -> Failure {
        Failure { code: 2, message: message.to_string() }
    }

    /// It made sense, but did not work: exit code 1.
    pub(crate) fn trouble(message: impl Display) -> Failure {
        Failure { code: 1, message: message.to_string() }
    }

    /// The exit status of another program, which has said itself what went wrong.
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
    /// Help and version are no failures: they are printed, and the program ends.
    fn from(error: clap::Error) -> Failure {
        match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
            _ => Failure::misuse(one_line(&error.render().to_string())),
        }
    }
}

/// Prints the message of a failure to standard error, and gives the exit code.
pub(crate) fn exit_code(result: Result<(), Failure>) -> ExitCode {
    let Err(Failure { code, message }) = result else { return ExitCode::SUCCESS };
    if !message.is_empty() {
        // Nobody may be there to read it: that is no reason to panic.
        let text = Journal::of_stderr().line(Priority::Error, &format!("anabranch: {message}"));
        let _ = writeln!(std::io::stderr(), "{text}");
    }
    ExitCode::from(code)
}

/// clap's message and its tip, without the usage that follows them.
fn one_line(rendered: &str) -> String {
    let parts = rendered.split("\n\n").map(str::trim).enumerate();
    let kept = parts.filter(|(place, text)| *place == 0 || text.starts_with("tip:"));
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
}
