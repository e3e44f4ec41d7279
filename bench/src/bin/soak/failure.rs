//! Failures of a stream.

use std::fmt;
use std::io::{self, ErrorKind};

/// Reason for which a stream was not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The proxy refused the stream with this SOCKS reply code.
    Refused(u8),
    /// The socket reported an error.
    Socket(ErrorKind),
    /// The stream ended normally before all bytes had arrived.
    Short,
    /// No data arrived for too long, and the stream did not end. This is never allowed.
    Hung,
    /// Wrong or too many bytes arrived. This is never allowed.
    Wrong,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused(reply) => write!(out, "socks reply {reply}"),
            Failure::Socket(kind) => write!(out, "socket: {kind}"),
            Failure::Short => write!(out, "ended early"),
            Failure::Hung => write!(out, "hung"),
            Failure::Wrong => write!(out, "wrong bytes"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Failure::Hung,
            ErrorKind::UnexpectedEof => Failure::Short,
            kind => Failure::Socket(kind),
        }
    }
}
