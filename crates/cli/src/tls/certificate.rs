//! The far end's certificate: read, or made at the first start.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use time::{Duration, OffsetDateTime};

/// Days for which a made certificate is valid; near ends that pin it do not look.
const VALID: i64 = 3_650;

/// A certificate, those that sign it, and its key.
pub(super) struct Certificate {
    /// The own one first.
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    /// The file that the certificate is from.
    pub(super) name: String,
}

impl Certificate {
    /// Those in these PEM files.
    ///
    /// # Errors
    /// One cannot be read, or has not what it should.
    pub(super) fn read(certificate: &Path, key: &Path) -> Result<Certificate, String> {
        let name = certificate.display().to_string();
        let found = CertificateDer::pem_file_iter(certificate);
        let found = found.map_err(|error| format!("cannot read '{name}': {error}"))?;
        let chain = found.collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| format!("'{name}': {error}"))?;
        if chain.is_empty() {
            return Err(format!("'{name}' has no certificate: name a PEM file"));
        }
        let of = key.display();
        let key = PrivateKeyDer::from_pem_file(key);
        let key = key.map_err(|error| format!("'{of}' has no private key in PEM: {error}"))?;
        Ok(Certificate { chain, key, name })
    }
}

/// Makes a self-signed certificate and its key in a new file at `path`, for its owner alone.
///
/// # Errors
/// The file cannot be made.
pub(super) fn make(path: &Path) -> io::Result<()> {
    // A name that nobody has: one that all far ends share would show them to whoever looks.
    let mut letters = [0; 12];
    let filled = super::provider().secure_random.fill(&mut letters);
    filled.map_err(|_| io::Error::other("the system has no randomness"))?;
    let host: String = letters.iter().map(|byte| char::from(b'a' + byte % 26)).collect();
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(io::Error::other)?;
    let mut params = CertificateParams::new([format!("{host}.com")]).map_err(io::Error::other)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("{host}.com"));
    // Midnight, so that it does not tell when the program started.
    let today = OffsetDateTime::from(SystemTime::now()).replace_time(time::Time::MIDNIGHT);
    params.not_before = today - Duration::days(30);
    params.not_after = today + Duration::days(VALID);
    let certificate = params.self_signed(&key).map_err(io::Error::other)?;
    let text = format!("{}{}", certificate.pem(), key.serialize_pem());
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A certificate for this name that signs itself, and its key, in PEM.
    pub(in super::super) fn signed_for(name: &str) -> (String, String) {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }
}
