//! Why keys cannot be made or used.

use std::fmt;

/// Keys that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// This file is missing while others are there.
    Missing(&'static str),
    /// This file does not hold what its name says; what is wrong with it.
    Bad(&'static str, &'static str),
    /// A key or a certificate could not be made.
    Making(String),
}

impl fmt::Display for KeyError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Missing(name) => {
                write!(out, "{name} is missing, but other keys are there: restore it from a backup")
            }
            KeyError::Bad(name, what) => write!(out, "{name}: {what}"),
            KeyError::Making(what) => write!(out, "keys cannot be made: {what}"),
        }
    }
}

impl std::error::Error for KeyError {}

/// What a library says that cannot make a key or a certificate.
pub(super) fn making(error: impl fmt::Display) -> KeyError {
    KeyError::Making(error.to_string())
}
