//! What is refused, and what the relay's operator is told.

use std::fmt;
use std::net::IpAddr;

use crate::wire::netdoc::DocumentError;

/// Why an upload is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is no descriptor, or one whose signatures do not hold.
    Document(DocumentError),
    /// There is something else beside it than its extra-info document.
    Beside,
    /// It was published too long ago, or too far ahead.
    Time,
    /// A later one is known.
    Older,
    /// One of its two identities is known with another one.
    Identity,
    /// An address that is not of the public Internet.
    Private(IpAddr),
    /// The operator has banned the relay.
    Banned,
    /// There are too many relays, here or from there, and none that can make way.
    Full,
}

impl Refusal {
    /// Whether the relay need not mind: what it published is not newer than what is known.
    #[must_use]
    pub fn is_no_news(&self) -> bool {
        matches!(self, Refusal::Older)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Document(error) => write!(out, "the descriptor is refused: {error}"),
            Refusal::Beside => out.write_str(
                "the upload has more than a relay's descriptor and its extra-info document",
            ),
            Refusal::Time => out.write_str(
                "the descriptor is more than a day old, or its time is \
                                            in the future: is the relay's clock right?",
            ),
            Refusal::Older => out.write_str("a later descriptor is known"),
            Refusal::Identity => out.write_str(
                "one of its identity keys (RSA, Ed25519) was seen before together \
                               with another one: always keep both keys of a relay together",
            ),
            Refusal::Private(address) => write!(out, "{address} is a private address"),
            Refusal::Banned => out.write_str("the relay is banned here"),
            Refusal::Full => out.write_str(
                "too many relays are known with this address, or in \
                                            total: try again later",
            ),
        }
    }
}
