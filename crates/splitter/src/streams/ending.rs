//! Why a stream ends.

use std::fmt;
use std::io;

use anabranch_tunnel::carrier::LengthError;

use super::tls::TlsError;

/// Why a stream is of no use any more.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The other end closed it.
    Closed,
    /// It broke.
    Broken(io::Error),
    /// It announced a packet of a length that no packet has.
    Length(LengthError),
    /// The peer breaks TLS, or is not the one that was expected.
    Tls(TlsError),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Closed => f.write_str("its other end closed it"),
            Ending::Broken(error) => error.fmt(f),
            Ending::Tls(error) => error.fmt(f),
            Ending::Length(error) => {
                write!(f, "what answers there is not 'anabranch merge': it {error}")
            }
        }
    }
}
