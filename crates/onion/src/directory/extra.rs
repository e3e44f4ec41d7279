//! A relay's extra-info document: its statistics, for research on the network (dir-spec,
//! "Extra-info document format").

use std::net::SocketAddr;

use base64ct::{Base64Unpadded, Encoding as _};

use super::bandwidth::BandwidthHistory;
use super::civil::utc;
use crate::wire::keys::{KeyError, RelayKeys, sha256};
use crate::wire::text::{SIGNATURE_PREFIX, hex, line, object, signed_digest};

/// A pluggable transport of a bridge, as the bridge's extra-info document lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transport {
    /// The transport's name: letters, digits and underscores.
    pub name: String,
    /// The address on which the transport listens.
    pub address: SocketAddr,
    /// Arguments for clients, as in `SMETHOD` lines: `k=v,k=v`.
    pub args: String,
}

/// Returns the extra-info document, signed and dated `unix_now`. It contains the bandwidth
/// history, limited to `rate` bytes per second, and the transports of a bridge.
pub(super) fn sign(
    nickname: &str,
    (history, transports): (&BandwidthHistory, &[Transport]),
    rate: u64,
    keys: &RelayKeys,
    unix_now: u64,
) -> Result<String, KeyError> {
    let mut text = String::new();
    line(&mut text, &format!("extra-info {nickname} {}", hex(&keys.rsa_identity())));
    line(&mut text, "identity-ed25519");
    object(&mut text, "ED25519 CERT", keys.signing_cert());
    line(&mut text, &format!("published {}", utc(unix_now)));
    text.push_str(&history.lines(rate));
    for Transport { name, address, args } in transports {
        line(&mut text, format!("transport {name} {address} {args}").trim_end());
    }
    text.push_str("router-sig-ed25519 ");
    let signature = keys.sign_digest(SIGNATURE_PREFIX, text.as_bytes());
    line(&mut text, &Base64Unpadded::encode_string(&signature));
    line(&mut text, "router-signature");
    let signature = keys.sign_sha1(text.as_bytes())?;
    object(&mut text, "SIGNATURE", &signature);
    Ok(text)
}

/// The digests of an extra-info document, as in a descriptor: SHA-1 of the signed part, and
/// SHA-256 of the whole text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtraDigests {
    /// The digest that names the document in requests.
    pub sha1: [u8; 20],
    /// The SHA-256 of the whole text; `None` in descriptors from before 2015.
    pub sha256: Option<[u8; 32]>,
}

impl ExtraDigests {
    /// Computes the digests of a document.
    #[must_use]
    pub fn of(document: &str) -> ExtraDigests {
        let sha256 = Some(sha256(document.as_bytes()));
        ExtraDigests { sha1: signed_digest(document), sha256 }
    }

    /// Parses the digests after `extra-info-digest` in a descriptor. Returns `None` if the first
    /// digest is malformed.
    #[must_use]
    pub fn named(rest: &str) -> Option<ExtraDigests> {
        let mut words = rest.split(' ');
        let sha1 = crate::wire::text::twenty(words.next()?)?;
        let second = words.next().map(|word| Base64Unpadded::decode_vec(word).ok());
        let sha256 = second.flatten().and_then(|bytes| bytes.try_into().ok());
        Some(ExtraDigests { sha1, sha256 })
    }

    /// Returns whether these digests are the digests of `document`.
    #[must_use]
    pub fn fit(&self, document: &str) -> bool {
        let own = ExtraDigests::of(document);
        self.sha1 == own.sha1 && (self.sha256.is_none() || self.sha256 == own.sha256)
    }

    /// Returns the line with the digests for the relay's descriptor.
    pub(super) fn line(&self) -> String {
        let second =
            self.sha256.map(|sha256| format!(" {}", Base64Unpadded::encode_string(&sha256)));
        format!("extra-info-digest {}{}", hex(&self.sha1), second.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "extra-info one AA\npublished x\nrouter-signature\nsignature\n";

    #[test]
    fn a_document_is_known_by_both_digests() {
        let digests = ExtraDigests::of(TEXT);
        let line = digests.line();
        let named = ExtraDigests::named(line.strip_prefix("extra-info-digest ").unwrap()).unwrap();
        assert!(named == digests && named.fit(TEXT));
        // The first digest does not cover the signature.
        let other = TEXT.replace("\nsignature", "\nanother");
        assert!(ExtraDigests { sha256: None, ..digests }.fit(&other) && !digests.fit(&other));
        assert!(!digests.fit(&TEXT.replace("one", "two")));
        assert_eq!(ExtraDigests::named("not hex"), None);
        let old = ExtraDigests::named(&hex(&digests.sha1)).unwrap();
        assert!(old.sha256.is_none() && old.fit(TEXT));
    }
}
