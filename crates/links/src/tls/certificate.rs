//! The self-signed certificate of a link, with random names and the form of C tor's certificates.

use rcgen::{
    CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use time::{Duration, OffsetDateTime};

use super::setup::{SetupError, setup};

/// Alphabet of a random host name: base32. Like C tor, this crate draws 4 to 25 letters.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// Minimum number of letters of a random host name (C tor's value).
const SHORTEST: usize = 4;
/// Maximum number of letters of a random host name (C tor's value).
const LONGEST: usize = 25;
/// First bytes of an Ed25519 key in PKCS#8. The 32 bytes of the key follow (RFC 8410, section 7).
const ED25519_PKCS8: [u8; 16] =
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// Returns a new certificate and its private key.
pub(super) fn self_signed(
    provider: &CryptoProvider,
    unix_now: u64,
) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), SetupError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(setup)?;
    certificate(&key, hostname(provider)?, unix_now)
}

/// Returns a certificate and its private key (Ed25519), which depend only on the arguments.
pub(super) fn from_seed(
    seed: &[u8; 32],
    unix_now: u64,
) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), SetupError> {
    let secret = PrivatePkcs8KeyDer::from([&ED25519_PKCS8[..], seed].concat());
    let key = KeyPair::from_pkcs8_der_and_sign_algo(&secret, &PKCS_ED25519).map_err(setup)?;
    certificate(&key, "www.example.com".to_owned(), unix_now)
}

/// Returns a certificate for `key` with the name `name`, and the key.
fn certificate(
    key: &KeyPair,
    name: String,
    unix_now: u64,
) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), SetupError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = i64::try_from(unix_now).map_err(setup)?;
    let now = OffsetDateTime::from_unix_timestamp(now).map_err(setup)?;
    // The certificate begins at midnight, so that it does not reveal when the process started.
    let today = now.replace_time(time::Time::MIDNIGHT);
    params.not_before = today - Duration::days(30);
    params.not_after = today + Duration::days(335);
    let certificate = params.self_signed(key).map_err(setup)?;
    let secret = PrivatePkcs8KeyDer::from(key.serialize_der());
    Ok((certificate.der().clone(), secret.into()))
}

/// Returns a random name such as `www.q3xk7ahv.com`.
pub(super) fn hostname(provider: &CryptoProvider) -> Result<String, SetupError> {
    let mut bytes = [0; 1 + LONGEST];
    provider
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| setup("cannot read random bytes from the system"))?;
    let length = SHORTEST + usize::from(bytes[0]) % (LONGEST - SHORTEST + 1);
    let letters = bytes[1..=length].iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)]));
    Ok(format!("www.{}.com", letters.collect::<String>()))
}
