//! The reasons for refusing an upload, and their messages for the relay's operator.

use std::fmt;
use std::net::IpAddr;

use crate::wire::netdoc::DocumentError;

/// The reason why an upload is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The upload is not a descriptor, or its signatures are invalid.
    Document(DocumentError),
    /// The upload has text in addition to one descriptor and, optionally, the extra-info document
    /// of this descriptor.
    ExtraText,
    /// The descriptor was published too long ago, or too far in the future.
    Time,
    /// A later descriptor of the relay is known.
    Older,
    /// One of the relay's two identities is already paired with a different identity.
    Identity,
    /// This address of the relay is not public.
    Private(IpAddr),
    /// The authority's operator has banned the relay.
    Banned,
    /// The limit on known relays is reached, in total or for the origin of this upload, and none
    /// of the known relays can be removed.
    Full,
}

impl Refusal {
    /// Returns true if the relay can ignore the refusal, because the authority already has this
    /// descriptor or a newer one.
    #[must_use]
    pub fn is_no_news(&self) -> bool {
        matches!(self, Refusal::Older)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Document(error) => write!(out, "the descriptor is refused: {error}"),
            Refusal::ExtraText => out.write_str(
                "the upload is not exactly one relay descriptor, alone or with the extra-info \
                 document that belongs to it",
            ),
            Refusal::Time => out.write_str(
                "the descriptor is more than a day old, or its time is in the future: check the \
                 relay's clock",
            ),
            Refusal::Older => {
                out.write_str("this authority already has a later descriptor of the relay")
            }
            Refusal::Identity => out.write_str(
                "this authority knows one of the relay's identity keys (RSA, Ed25519) with a \
                 different second key: restore both keys from the same backup",
            ),
            Refusal::Private(address) => write!(
                out,
                "the relay's address {address} is private, and this authority accepts only public \
                 addresses"
            ),
            Refusal::Banned => out.write_str("this authority has banned the relay"),
            Refusal::Full => out.write_str(
                "this authority knows too many relays with this address, or in total: try again \
                 later",
            ),
        }
    }
}
