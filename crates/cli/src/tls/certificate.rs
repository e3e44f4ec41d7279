//! The far end's certificate. It is read from a file, or created at the first start.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use time::{Duration, OffsetDateTime};

/// Validity of a created certificate in days. A splitter that identifies the certificate by its
/// fingerprint also accepts it after this time.
const VALID: i64 = 3_650;

/// A certificate with its chain and its key.
pub(super) struct Certificate {
    /// The far end's own certificate, followed by the certificates of the CAs that sign it.
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    /// File name of the certificate, for error messages.
    pub(super) name: String,
}

impl Certificate {
    /// Reads certificate and key from PEM files.
    ///
    /// # Errors
    /// A file cannot be read, or lacks a certificate or key.
    pub(super) fn read(certificate: &Path, key: &Path) -> Result<Certificate, String> {
        let name = certificate.display().to_string();
        let found = CertificateDer::pem_file_iter(certificate);
        let found = found.map_err(|error| format!("cannot read '{name}': {error}"))?;
        let chain = found.collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| format!("'{name}': {error}"))?;
        if chain.is_empty() {
            return Err(format!(
                "the file '{name}' contains no certificate in PEM format: choose another file"
            ));
        }
        let of = key.display();
        let key = PrivateKeyDer::from_pem_file(key);
        let key = key.map_err(|error| format!("'{of}' has no private key in PEM: {error}"))?;
        Ok(Certificate { chain, key, name })
    }
}

/// Creates a self-signed certificate and its key in a new file at `path`, which only its owner may
/// read.
///
/// # Errors
/// The file cannot be created.
pub(super) fn make(path: &Path) -> io::Result<()> {
    // The name is random, because a name shared by all far ends would reveal them to a scanner.
    let mut letters = [0; 12];
    let filled = super::provider().secure_random.fill(&mut letters);
    filled.map_err(|_| io::Error::other("cannot read random bytes from the system"))?;
    let host: String = letters.iter().map(|byte| char::from(b'a' + byte % 26)).collect();
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(io::Error::other)?;
    let mut params = CertificateParams::new([format!("{host}.com")]).map_err(io::Error::other)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("{host}.com"));
    // The time is midnight, so that it does not reveal when the program started.
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

    /// Returns a self-signed certificate for `name`, and its key, in PEM.
    pub(in super::super) fn signed_for(name: &str) -> (String, String) {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }
}
