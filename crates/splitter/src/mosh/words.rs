//! Commands in the user's notation: words, quoted as in a shell. They are run without a shell.

use std::fmt;
use std::str::FromStr;

/// A command with its arguments, such as `ssh -p 2222`. There is at least one word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words(Vec<String>);

/// Error: a text is not a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordsError(String);

impl fmt::Display for WordsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is not a command: it is empty, or a quotation mark is not closed",
            self.0.escape_debug()
        )
    }
}

impl std::error::Error for WordsError {}

impl FromStr for Words {
    type Err = WordsError;

    fn from_str(text: &str) -> Result<Words, WordsError> {
        let words = shlex::split(text).filter(|words| !words.is_empty());
        let good = words.filter(|words| !words.iter().any(|word| word.contains('\0')));
        good.map(Words).ok_or_else(|| WordsError(text.to_owned()))
    }
}

impl Words {
    /// Returns the program.
    pub fn program(&self) -> &str {
        &self.0[0]
    }

    /// Returns the arguments.
    pub fn arguments(&self) -> &[String] {
        &self.0[1..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_words_and_quotes() {
        let words: Words = "ssh -p 2222 -i 'my key'".parse().unwrap();
        assert_eq!((words.program(), words.arguments()[3].as_str()), ("ssh", "my key"));
        for text in ["", "  ", "ssh 'open", "a\0b"] {
            assert!(text.parse::<Words>().is_err(), "{text:?}");
        }
    }
}
