//! How a stream may fail.

use std::fmt;
use std::io::{self, ErrorKind};

/// How a stream ended that was not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// By an answer of SOCKS.
    Refused(u8),
    /// By an error of the socket.
    Socket(ErrorKind),
    /// By an end like any other, before all bytes were there.
    Short,
    /// Not at all: nothing moved for too long. Never allowed.
    Hung,
    /// With bytes that are not those that were sent, or more. Never allowed.
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
