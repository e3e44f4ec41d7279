//! Errors in a wg-quick configuration file.

use std::fmt;

/// A mistake in a configuration file, shown as `FILE:LINE: MESSAGE`. It contains no secret: the
/// message quotes only names of keys, endpoints, numbers and public keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfError {
    /// The file, as the user named it.
    pub file: String,
    /// Number of the line, counted from 1; `None` if the mistake concerns the file as a whole.
    pub line: Option<usize>,
    /// Description of the mistake, in one line.
    pub message: String,
}

impl ConfError {
    pub(super) fn new(file: &str, line: Option<usize>, message: impl Into<String>) -> ConfError {
        ConfError { file: file.to_owned(), line, message: plain(&message.into()) }
    }
}

impl fmt::Display for ConfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConfError { file, line, message } = self;
        match line {
            Some(line) => write!(f, "{file}:{line}: {message}"),
            None => write!(f, "{file}: {message}"),
        }
    }
}

impl std::error::Error for ConfError {}

/// Returns `text` in one line, without control characters that would affect a terminal.
fn plain(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    text.chars().map(shown).collect()
}
