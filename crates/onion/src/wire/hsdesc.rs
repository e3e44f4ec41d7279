//! Onion services' descriptors, as far as directories can read them: the outer wrapper
//! (rend-spec-v3 2.4). The content is encrypted for clients.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use base64ct::{Base64, Base64Unpadded, Encoding};
use tor_cert::{CertType, Ed25519Cert};
use tor_checkable::{SelfSigned, TimeBound};

use super::crypto::ed25519::{PublicKey, Signature};
use super::text::{line, object};

/// Maximum accepted length of a descriptor in bytes (the default of `HSV3MaxDescriptorSize`).
pub const LONGEST: usize = 50_000;
/// Range of the lifetimes that a descriptor may request, in minutes.
const LIFETIMES: std::ops::RangeInclusive<u16> = 30..=720;
/// Prefix of the signed bytes of a descriptor.
const SIGNED_FOR: &[u8] = b"Tor onion service descriptor sig v3";
/// Label of a certificate in a descriptor.
const CERT: &str = "ED25519 CERT";
/// Label of an encrypted part in a descriptor.
const MESSAGE: &str = "MESSAGE";

/// The reason why a descriptor is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HsDescError {
    /// The descriptor is longer than [`LONGEST`]. Contains its length in bytes.
    TooLong(usize),
    /// The descriptor's format is invalid. Contains the name of the invalid part.
    Malformed(&'static str),
    /// The certificate's signature is invalid, or the certified key did not sign the descriptor.
    BadSignature,
    /// The descriptor's certificate has expired.
    Expired,
}

impl fmt::Display for HsDescError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HsDescError::TooLong(length) => {
                write!(
                    out,
                    "the onion service's descriptor has {length} bytes, more than are allowed"
                )
            }
            HsDescError::Malformed(what) => {
                write!(out, "an invalid part of the onion service's descriptor: {what}")
            }
            HsDescError::BadSignature => {
                out.write_str("a signature in the onion service's descriptor is wrong")
            }
            HsDescError::Expired => {
                out.write_str("the certificate in the onion service's descriptor has expired")
            }
        }
    }
}

impl std::error::Error for HsDescError {}

/// A descriptor's outer wrapper, with verified signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HsDescOuter {
    /// The service's blinded key for a time period, which identifies the descriptor in requests.
    pub blinded_key: [u8; 32],
    /// The revision counter. Of two descriptors with the same blinded key, the one with the higher
    /// counter is newer.
    pub revision: u64,
    /// Minutes for which the directory should keep the descriptor.
    pub lifetime: u16,
    /// The certificate in which the blinded key certifies the signing key (cert-spec, type 8).
    pub cert: Vec<u8>,
    /// The content, encrypted for clients.
    pub encrypted: Vec<u8>,
    /// The signature over the part of the descriptor that precedes it.
    pub signature: [u8; 64],
}

impl HsDescOuter {
    /// Parses a descriptor, and verifies the parts that a directory can read, at the time
    /// `unix_now`.
    ///
    /// # Errors
    /// Returns an [`HsDescError`] if the descriptor is too long, malformed, expired or wrongly
    /// signed.
    pub fn check(text: &str, unix_now: u64) -> Result<HsDescOuter, HsDescError> {
        if text.len() > LONGEST {
            return Err(HsDescError::TooLong(text.len()));
        }
        let items = Items::read(text)?;
        if items.one("hs-descriptor")?.argument != "3" {
            return Err(HsDescError::Malformed("version, which must be 3"));
        }
        let lifetime = items.number("descriptor-lifetime", "lifetime")?;
        let lifetime = u16::try_from(lifetime).ok().filter(|minutes| LIFETIMES.contains(minutes));
        let cert = items.object("descriptor-signing-key-cert", CERT, "certificate")?;
        let signature = items.one("signature")?.argument;
        let signature: [u8; 64] = decoded(signature).ok_or(HsDescError::Malformed("signature"))?;
        let (blinded_key, key) = certified(&cert, unix_now)?;
        let signed = text.rfind("\nsignature ").map(|place| &text.as_bytes()[..=place]);
        let signed = [SIGNED_FOR, signed.ok_or(HsDescError::Malformed("signature"))?].concat();
        let key = PublicKey::from_bytes(&key).map_err(|_| HsDescError::BadSignature)?;
        key.verify(&signed, &Signature::from_bytes(&signature))
            .map_err(|_| HsDescError::BadSignature)?;
        Ok(HsDescOuter {
            blinded_key,
            revision: items.number("revision-counter", "revision counter")?,
            lifetime: lifetime.ok_or(HsDescError::Malformed("lifetime"))?,
            cert,
            encrypted: items.object("superencrypted", MESSAGE, "encrypted message")?,
            signature,
        })
    }

    /// Returns the descriptor's text, in the format that C tor's services use.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(self.encrypted.len() * 3 / 2 + 1000);
        line(&mut text, "hs-descriptor 3");
        line(&mut text, &format!("descriptor-lifetime {}", self.lifetime));
        line(&mut text, "descriptor-signing-key-cert");
        object(&mut text, CERT, &self.cert);
        line(&mut text, &format!("revision-counter {}", self.revision));
        line(&mut text, "superencrypted");
        object(&mut text, MESSAGE, &self.encrypted);
        line(&mut text, &format!("signature {}", Base64Unpadded::encode_string(&self.signature)));
        text
    }
}

/// Parses the blinded key in the path of a request (rend-spec-v3 2.2.6): base64 of 32 bytes.
/// Returns `None` if `text` has another form.
#[must_use]
pub fn read_blinded_key(text: &str) -> Option<[u8; 32]> {
    decoded(text.trim_end_matches('='))
}

/// Encodes a blinded key in the format of the requests for descriptors (base64).
#[must_use]
pub fn put_blinded_key(key: &[u8; 32]) -> String {
    Base64Unpadded::encode_string(key)
}

fn decoded<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let length = Base64Unpadded::decode(text, &mut bytes).ok()?.len();
    (length == N).then_some(bytes)
}

/// Verifies the certificate `cert`, and returns the public keys in it: first the signer's, then
/// the certified one.
fn certified(cert: &[u8], unix_now: u64) -> Result<([u8; 32], [u8; 32]), HsDescError> {
    let bad = HsDescError::Malformed("certificate");
    let cert = Ed25519Cert::decode(cert).map_err(|_| bad)?;
    if cert.peek_cert_type() != CertType::HS_BLINDED_ID_V_SIGNING {
        return Err(bad);
    }
    let cert = cert.should_have_signing_key().map_err(|_| bad)?;
    let signer = (*cert.peek_signing_key()).into();
    let subject = cert.peek_subject_key().as_ed25519().copied().ok_or(bad)?;
    let cert = cert.check_signature().map_err(|_| HsDescError::BadSignature)?;
    let now = UNIX_EPOCH + Duration::from_secs(unix_now);
    cert.check_valid_at(&now).map_err(|_| HsDescError::Expired)?;
    Ok((signer, subject.into()))
}

/// A line of a descriptor, and the object (a base64 block) that follows it, if any.
struct Item<'a> {
    keyword: &'a str,
    /// The text between the line's keyword and the next space.
    argument: &'a str,
    object: Option<(&'a str, Vec<u8>)>,
}

/// All lines of a descriptor in order, each with its object (a base64 block), if any.
struct Items<'a>(Vec<Item<'a>>);

impl<'a> Items<'a> {
    /// Parses all lines of a descriptor, and the objects (base64 blocks) that follow them.
    ///
    /// # Errors
    /// Returns [`HsDescError::Malformed`] if an object has no end or is not base64. The text must
    /// begin with `hs-descriptor`, end with `signature`, and have a complete last line.
    fn read(text: &'a str) -> Result<Items<'a>, HsDescError> {
        let whole = text.strip_suffix('\n').ok_or(HsDescError::Malformed("last line"))?;
        let (mut items, mut lines) = (Vec::new(), whole.split('\n'));
        while let Some(line) = lines.next() {
            if let Some(kind) = boundary(line, "-----BEGIN ") {
                let object = Items::read_object(kind, &mut lines)?;
                let of: &mut Item = items.last_mut().ok_or(HsDescError::Malformed("first line"))?;
                if of.object.replace((kind, object)).is_some() {
                    return Err(HsDescError::Malformed("two base64 blocks after one line"));
                }
                continue;
            }
            let mut words = line.split(' ');
            let keyword = words.next().unwrap_or_default();
            items.push(Item { keyword, argument: words.next().unwrap_or_default(), object: None });
        }
        let starts = items.first().is_some_and(|item| item.keyword == "hs-descriptor");
        let ends = items.last().is_some_and(|item| item.keyword == "signature");
        if starts && ends {
            Ok(Items(items))
        } else {
            Err(HsDescError::Malformed("first or last line"))
        }
    }

    fn read_object(
        kind: &str,
        lines: &mut dyn Iterator<Item = &'a str>,
    ) -> Result<Vec<u8>, HsDescError> {
        let mut encoded = String::new();
        for line in lines {
            if boundary(line, "-----END ") == Some(kind) {
                let bytes = Base64::decode_vec(&encoded);
                return bytes.map_err(|_| HsDescError::Malformed("block that is not base64"));
            }
            encoded.push_str(line);
        }
        Err(HsDescError::Malformed("base64 block without an end"))
    }

    /// Returns the line with the keyword `keyword`, which must occur exactly once.
    fn one(&self, keyword: &'static str) -> Result<&Item<'a>, HsDescError> {
        let mut found = self.0.iter().filter(|item| item.keyword == keyword);
        match (found.next(), found.next()) {
            (Some(item), None) => Ok(item),
            _ => Err(HsDescError::Malformed(keyword)),
        }
    }

    fn number(&self, keyword: &'static str, what: &'static str) -> Result<u64, HsDescError> {
        self.one(keyword)?.argument.parse().map_err(|_| HsDescError::Malformed(what))
    }

    fn object(
        &self,
        keyword: &'static str,
        kind: &str,
        what: &'static str,
    ) -> Result<Vec<u8>, HsDescError> {
        let object = self.one(keyword)?.object.as_ref().filter(|(found, _)| *found == kind);
        object.map(|(_, bytes)| bytes.clone()).ok_or(HsDescError::Malformed(what))
    }
}

/// Returns the kind of the object (base64 block) that `line` begins or ends, such as `MESSAGE`.
/// `mark` is the text before the kind, such as `-----BEGIN `. Returns `None` for any other line.
fn boundary<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    line.strip_prefix(mark)?.strip_suffix("-----")
}

#[cfg(test)]
mod tests {
    use anabranch_testkit::onion_service::descriptor;

    use super::*;

    /// A descriptor published by an onion service of an unmodified tor 0.4.9.11. `THEN` is the
    /// time at which it was published.
    const STOCK: &str = include_str!("../../testdata/hs-descriptor.txt");
    const THEN: u64 = 1_795_541_696;

    #[test]
    fn a_stock_services_descriptor_is_read_and_written_again() {
        let read = HsDescOuter::check(STOCK, THEN).unwrap();
        assert_eq!((read.lifetime, read.encrypted.len() % 10_000), (180, 48));
        assert_eq!(read.text(), STOCK);
        let named = put_blinded_key(&read.blinded_key);
        assert_eq!(read_blinded_key(&named), Some(read.blinded_key));
        assert_eq!(read_blinded_key(&(named + "=")), Some(read.blinded_key));
        assert_eq!(read_blinded_key("abc"), None);
    }

    #[test]
    fn a_descriptor_of_the_wrong_time_is_refused() {
        let late = THEN + 10 * 86_400;
        assert_eq!(HsDescOuter::check(STOCK, late), Err(HsDescError::Expired));
    }

    #[test]
    fn a_changed_byte_anywhere_is_refused() {
        for place in (0..STOCK.len()).step_by(61) {
            let mut bytes = STOCK.as_bytes().to_vec();
            bytes[place] ^= 1;
            let Ok(text) = String::from_utf8(bytes) else { continue };
            assert!(HsDescOuter::check(&text, THEN).is_err(), "byte {place}");
        }
        for length in (0..STOCK.len()).step_by(97) {
            assert!(HsDescOuter::check(&STOCK[..length], THEN).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn what_is_too_long_comes_twice_or_is_missing_is_refused() {
        let text = descriptor([[1; 32], [2; 32]], THEN + 9_000, 7, &[3; 500]);
        let good = HsDescOuter::check(&text, THEN).unwrap();
        assert_eq!((good.revision, &good.encrypted[..]), (7, &[3; 500][..]));
        assert_eq!(good.text(), text);
        let long = descriptor([[1; 32], [2; 32]], THEN + 9_000, 7, &[3; 40_000]);
        assert_eq!(HsDescOuter::check(&long, THEN), Err(HsDescError::TooLong(long.len())));
        let twice =
            text.replace("revision-counter 7\n", "revision-counter 7\nrevision-counter 8\n");
        assert!(HsDescOuter::check(&twice, THEN).is_err());
        let none = text.replace("revision-counter 7\n", "");
        assert!(HsDescOuter::check(&none, THEN).is_err());
        let more = text.replace("revision-counter 7\n", "revision-counter 7\nhs-new-thing 1\n");
        assert_eq!(HsDescOuter::check(&more, THEN), Err(HsDescError::BadSignature));
    }
}
