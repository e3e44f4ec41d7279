//! Reasons for the end of a stream.

use std::fmt;
use std::io;

use anabranch_tunnel::carrier::LengthError;

use super::tls::TlsError;

/// Reason why a stream has ended or must be closed.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The peer closed the stream.
    Closed,
    /// The connection failed.
    Broken(io::Error),
    /// The peer announced a packet of an invalid length.
    Length(LengthError),
    /// The peer violated the TLS protocol, or is not the expected peer.
    Tls(TlsError),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Closed => f.write_str("the other end closed the connection"),
            Ending::Broken(error) => error.fmt(f),
            Ending::Tls(error) => error.fmt(f),
            Ending::Length(error) => {
                write!(f, "the program at the other end is not 'anabranch merge': it {error}")
            }
        }
    }
}
