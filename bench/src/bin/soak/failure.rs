//! Failures of a stream.

use std::fmt;
use std::io::{self, ErrorKind};

/// Reason for which a stream was not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Refused with a SOCKS reply code.
    Refused(u8),
    /// Error of the socket.
    Socket(ErrorKind),
    /// Normal end before all bytes had arrived.
    Short,
    /// No end: nothing moved for too long. Never allowed.
    Hung,
    /// Wrong or too many bytes. Never allowed.
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
