//! The encoding of bytes and digests in directory documents, and the digest of a document's signed
//! part.

use base64ct::{Base64, Encoding};
use digest::Digest;

use super::crypto::Sha1;

/// Prefix of the bytes that are signed with Ed25519 in a descriptor.
pub(crate) const SIGNATURE_PREFIX: &[u8] = b"Tor router descriptor signature v1";

/// Appends `content` to `text` as a line.
pub(crate) fn line(text: &mut String, content: &str) {
    text.push_str(content);
    text.push('\n');
}

/// Appends `content` to `text` as an object with the label `kind` in PEM format: base64 in lines
/// of 64 characters.
pub(crate) fn object(text: &mut String, kind: &str, content: &[u8]) {
    line(text, &format!("-----BEGIN {kind}-----"));
    let encoded = Base64::encode_string(content);
    for start in (0..encoded.len()).step_by(64) {
        line(text, &encoded[start..encoded.len().min(start + 64)]);
    }
    line(text, &format!("-----END {kind}-----"));
}

/// Returns `bytes` in upper-case hex, as in fingerprints.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// Parses 40 hexadecimal digits, the format of fingerprints and digests, into 20 bytes. Returns
/// `None` if `text` has another form.
#[must_use]
pub fn twenty(text: &str) -> Option<[u8; 20]> {
    bytes(text)
}

/// Parses `2 * N` hexadecimal digits, in upper or lower case, into `N` bytes. Returns `None` if
/// `text` has another form.
#[must_use]
pub fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.len() == 2 * N && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let byte = |place: usize| u8::from_str_radix(&text[2 * place..2 * place + 2], 16);
    digits.then(|| {
        std::array::from_fn(|place| byte(place).expect("the text has only hexadecimal digits"))
    })
}

/// Returns the SHA-1 of the signed part of a server descriptor or an extra-info document. This
/// digest identifies the document. The signed part is everything before the RSA signature itself
/// (dir-spec, "router-signature").
#[must_use]
pub fn signed_digest(document: &str) -> [u8; 20] {
    const MARK: &str = "\nrouter-signature\n";
    let end = document.find(MARK).map_or(document.len(), |place| place + MARK.len());
    Sha1::digest(&document.as_bytes()[..end]).into()
}
