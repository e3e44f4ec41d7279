//! The reasons why keys cannot be made or used.

use std::fmt;

/// The reason why keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The key file with this name is missing, but other key files exist.
    Missing(&'static str),
    /// A key file is invalid. Contains the file's name and the error.
    Bad(&'static str, &'static str),
    /// A key or a certificate could not be made.
    Making(String),
}

impl fmt::Display for KeyError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Missing(name) => {
                write!(
                    out,
                    "the key file {name} is missing, but other key files are there: restore the \
                     missing file from a backup"
                )
            }
            KeyError::Bad(name, what) => write!(out, "{name}: {what}"),
            KeyError::Making(what) => write!(out, "keys cannot be made: {what}"),
        }
    }
}

impl std::error::Error for KeyError {}

/// Converts the error of a cryptography library into [`KeyError::Making`].
pub(super) fn making(error: impl fmt::Display) -> KeyError {
    KeyError::Making(error.to_string())
}
