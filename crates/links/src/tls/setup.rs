//! The error of creating a TLS context or link.

use std::fmt;

/// Error of the TLS or QUIC library for refused settings, such as a key that does not belong to
/// its certificate.
#[derive(Debug)]
pub struct SetupError(pub(crate) String);

impl fmt::Display for SetupError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "TLS cannot be set up: {}", self.0)
    }
}

impl std::error::Error for SetupError {}

pub(crate) fn setup(error: impl fmt::Display) -> SetupError {
    SetupError(error.to_string())
}
