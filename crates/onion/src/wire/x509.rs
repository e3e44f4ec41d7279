//! X.509, as far as Tor still has it: the certificate in which a relay shows its RSA identity key (tor-spec, "CERTS cells", type 2).

use rsa::pkcs1v15::{Signature, VerifyingKey};
use rsa::signature::Verifier;
use tor_llcrypto::pk::rsa::PublicKey;
use x509_cert::Certificate;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::{Decode, Encode};

use super::crypto::Sha256;

/// What C tor signs with (RFC 4055).
const SHA256_WITH_RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11");

/// Whether the DER certificate is signed by `key` itself and holds at `unix_now`.
pub(super) fn is_self_signed(der: &[u8], key: &PublicKey, unix_now: u64) -> bool {
    let Ok(certificate) = Certificate::from_der(der) else { return false };
    let validity = certificate.tbs_certificate.validity;
    let [from, until] =
        [validity.not_before, validity.not_after].map(|time| time.to_unix_duration().as_secs());
    (from..=until).contains(&unix_now) && signed_by(&certificate, key).unwrap_or(false)
}

/// `None` if there is nothing that could be a signature.
fn signed_by(certificate: &Certificate, key: &PublicKey) -> Option<bool> {
    let content = certificate.tbs_certificate.to_der().ok()?;
    let signature = Signature::try_from(certificate.signature.as_bytes()?).ok()?;
    let key = key.as_key().clone();
    let algorithm = &certificate.signature_algorithm;
    // The outer name of the algorithm is not signed, so it must be that of the inner (RFC 5280, section 4.1.1.2).
    let is_signed = *algorithm == certificate.tbs_certificate.signature;
    let as_usual = is_signed && algorithm.oid == SHA256_WITH_RSA;
    as_usual.then(|| VerifyingKey::<Sha256>::new(key).verify(&content, &signature).is_ok())
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed::stream;

    use super::*;
    use crate::wire::keys::{LinkSide, RelayKeys};

    const NOW: u64 = 1_800_000_000;

    fn keys(seed: u64) -> (RelayKeys, PublicKey) {
        let keys = RelayKeys::generate(&mut stream(seed, 0, "x509"), NOW).unwrap();
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
        let der = certificate(&keys);
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
        let der = certificate(&keys);
        for at in 0..der.len() {
            let mut bent = der.clone();
            bent[at] ^= 1;
            assert!(!is_self_signed(&bent, &public, NOW), "byte {at}");
        }
        assert!(!is_self_signed(&der[..der.len() - 1], &public, NOW));
        assert!(!is_self_signed(&[], &public, NOW));
    }
}
