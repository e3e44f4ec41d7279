//! X.509 certificates of the two types that Tor uses, in C tor's format. One type certifies a
//! relay's RSA identity key (tor-spec, "CERTS cells", type 2). The other is the certificate of the
//! relay's TLS links.

use std::str::FromStr;
use std::time::Duration;

use rand_core::CryptoRng;
use rsa::pkcs1v15::{Signature, SigningKey, VerifyingKey};
use rsa::signature::{SignatureEncoding, Signer, Verifier};
use rsa::{RsaPrivateKey, RsaPublicKey};
use tor_llcrypto::pk::rsa::PublicKey;
use x509_cert::der::asn1::{Any, BitString, GeneralizedTime, UtcTime};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::{self, Decode, Encode};
use x509_cert::name::Name;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};
use x509_cert::time::{Time, Validity};
use x509_cert::{Certificate, TbsCertificate, Version};

use super::crypto::Sha256;
use super::key_error::{KeyError, making};

/// The signature algorithm of C tor (RFC 4055).
const SHA256_WITH_RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11");

/// Number of random bytes in a serial number, as in C tor.
const SERIAL: usize = 8;

/// The contents of an X.509 certificate that [`certificate`] makes.
pub(super) struct Draft<'d> {
    /// The host name of the subject.
    pub(super) subject: &'d str,
    /// The host name of the issuer.
    pub(super) issuer: &'d str,
    /// The start and the end of the certificate's validity, in seconds since 1970.
    pub(super) holds: [u64; 2],
    /// The certified key.
    pub(super) key: &'d RsaPublicKey,
}

/// Makes a certificate in DER, signed by `signer`, as C tor does: version 3, no extensions, a
/// random serial number, signed with SHA-256 and RSA.
///
/// # Errors
/// Returns [`KeyError::Making`] if the cryptography library fails.
pub(super) fn certificate<R: CryptoRng>(
    rng: &mut R,
    draft: &Draft<'_>,
    signer: &RsaPrivateKey,
) -> Result<Vec<u8>, KeyError> {
    let mut serial = [0; SERIAL];
    rng.fill_bytes(&mut serial);
    let tbs_certificate = content(draft, &serial).map_err(making)?;
    let signed = tbs_certificate.to_der().map_err(making)?;
    let signature = SigningKey::<Sha256>::new(signer.clone()).try_sign(&signed).map_err(making)?;
    let signature = BitString::from_bytes(&signature.to_vec()).map_err(making)?;
    let signature_algorithm = tbs_certificate.signature.clone();
    Certificate { tbs_certificate, signature_algorithm, signature }.to_der().map_err(making)
}

fn content(draft: &Draft<'_>, serial: &[u8; SERIAL]) -> Result<TbsCertificate, der::Error> {
    let name = |host: &str| Name::from_str(&format!("CN={host}"));
    let [not_before, not_after] = draft.holds.map(time);
    let key = SubjectPublicKeyInfoOwned::from_key(draft.key.clone());
    Ok(TbsCertificate {
        version: Version::V3,
        serial_number: SerialNumber::new(serial)?,
        signature: AlgorithmIdentifierOwned { oid: SHA256_WITH_RSA, parameters: Some(Any::null()) },
        issuer: name(draft.issuer)?,
        validity: Validity { not_before: not_before?, not_after: not_after? },
        subject: name(draft.subject)?,
        subject_public_key_info: key.map_err(|_| der::ErrorKind::Failed)?,
        issuer_unique_id: None,
        subject_unique_id: None,
        extensions: None,
    })
}

/// Converts `unix`, in seconds since 1970, to a time in a certificate. The format for years up to
/// 2049 differs from that for later years (RFC 5280, section 4.1.2.5).
fn time(unix: u64) -> Result<Time, der::Error> {
    let since = Duration::from_secs(unix);
    let early = UtcTime::from_unix_duration(since).map(Time::UtcTime);
    early.or_else(|_| GeneralizedTime::from_unix_duration(since).map(Time::GeneralTime))
}

/// Returns the host name of the issuer of a certificate in DER; `None` if the certificate is
/// malformed or the text form of the issuer's name does not begin with `CN=`.
pub(super) fn issuer(der: &[u8]) -> Option<String> {
    let name = Certificate::from_der(der).ok()?.tbs_certificate.issuer.to_string();
    name.strip_prefix("CN=").map(str::to_owned)
}

/// Returns true if a DER certificate is signed with `key`, the key that it certifies, and is valid
/// at `unix_now`.
pub(super) fn is_self_signed(der: &[u8], key: &PublicKey, unix_now: u64) -> bool {
    let Ok(certificate) = Certificate::from_der(der) else { return false };
    let validity = certificate.tbs_certificate.validity;
    let [from, until] =
        [validity.not_before, validity.not_after].map(|time| time.to_unix_duration().as_secs());
    (from..=until).contains(&unix_now) && signed_by(&certificate, key).unwrap_or(false)
}

/// Returns true if `key` signed the certificate, and false if another key did. Returns `None` if
/// the signature is malformed, or if its algorithm is not [`SHA256_WITH_RSA`].
fn signed_by(certificate: &Certificate, key: &PublicKey) -> Option<bool> {
    let content = certificate.tbs_certificate.to_der().ok()?;
    let signature = Signature::try_from(certificate.signature.as_bytes()?).ok()?;
    let key = key.as_key().clone();
    let algorithm = &certificate.signature_algorithm;
    // The outer algorithm identifier is not signed, so it must equal the inner one (RFC 5280,
    // section 4.1.1.2).
    let is_signed = *algorithm == certificate.tbs_certificate.signature;
    let as_usual = is_signed && algorithm.oid == SHA256_WITH_RSA;
    as_usual.then(|| VerifyingKey::<Sha256>::new(key).verify(&content, &signature).is_ok())
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed::stream;

    use super::*;
    use crate::test_keys::relay_keys;
    use crate::wire::keys::{LinkSide, RelayKeys};

    const NOW: u64 = 1_800_000_000;

    fn keys(seed: u64) -> (&'static RelayKeys, PublicKey) {
        let keys = relay_keys(seed, "x509");
        let public = PublicKey::from_der(&keys.rsa_public()).unwrap();
        (keys, public)
    }

    fn certificate(keys: &RelayKeys) -> Vec<u8> {
        let side = LinkSide::Responder { tls_certificate: b"any" };
        let certs = keys.certs(&mut stream(1, 0, "name"), side, NOW).unwrap();
        certs.into_iter().find(|(kind, _)| *kind == 2).unwrap().1
    }

    #[test]
    fn a_certificate_proves_its_own_key_in_its_own_time() {
        let (keys, public) = keys(1);
        let der = certificate(keys);
        assert!(is_self_signed(&der, &public, NOW));
        let (_, other) = self::keys(2);
        assert!(!is_self_signed(&der, &other, NOW));
        let years = 365 * 86_400;
        assert!(!is_self_signed(&der, &public, NOW - 10 * years), "not yet");
        assert!(!is_self_signed(&der, &public, NOW + 10 * years), "not any more");
    }

    #[test]
    fn no_byte_of_it_may_change() {
        let (keys, public) = keys(1);
        let der = certificate(keys);
        for at in 0..der.len() {
            let mut bent = der.clone();
            bent[at] ^= 1;
            assert!(!is_self_signed(&bent, &public, NOW), "byte {at}");
        }
        assert!(!is_self_signed(&der[..der.len() - 1], &public, NOW));
        assert!(!is_self_signed(&[], &public, NOW));
    }
}
