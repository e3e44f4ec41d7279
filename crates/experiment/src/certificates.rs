//! Certificates for test web servers, generated at each start of the program and kept in memory.

use base64ct::{Base64, Encoding};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    PKCS_ECDSA_P256_SHA256, PublicKeyData as _,
};
use sha2::{Digest, Sha256};

/// A certificate for each host, signed by a new certificate authority. All certificates share one
/// key, so that a browser can be configured to trust all of them by the hash of that key.
pub(super) struct Certificates {
    /// Private key of all certificates, in PEM format.
    pub(super) key: String,
    /// Certificate chains in the order of the hosts, in PEM format: the host's own certificate,
    /// then the authority's.
    pub(super) chains: Vec<String>,
    /// Base64 of the SHA-256 of the certificates' SubjectPublicKeyInfo, with which a browser can
    /// be configured to trust them (a pin, RFC 7469).
    pub(super) pin: String,
}

impl Certificates {
    /// Generates a certificate for each of `hosts`.
    ///
    /// # Errors
    /// A name is not a host name, or there is no entropy.
    pub(super) fn new(hosts: &[String]) -> Result<Certificates, rcgen::Error> {
        let generate = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name = name("Anabranch experiment");
        let authority_key = generate()?;
        let top = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);
        let key = generate()?;
        let chain = |host: &String| {
            let mut params = CertificateParams::new(vec![host.clone()])?;
            params.distinguished_name = name(host);
            Ok(params.signed_by(&key, &issuer)?.pem() + &top)
        };
        let chains = hosts.iter().map(chain).collect::<Result<_, rcgen::Error>>()?;
        let pin = Base64::encode_string(&Sha256::digest(key.subject_public_key_info()));
        Ok(Certificates { key: key.serialize_pem(), chains, pin })
    }
}

fn name(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_a_chain_and_all_have_one_pin() {
        let hosts = ["a.example".to_owned(), "b.example".to_owned()];
        let made = Certificates::new(&hosts).unwrap();
        assert_eq!(made.chains.len(), 2);
        assert_ne!(made.chains[0], made.chains[1]);
        for chain in &made.chains {
            assert_eq!(chain.matches("BEGIN CERTIFICATE").count(), 2);
        }
        assert_eq!(Base64::decode_vec(&made.pin).unwrap().len(), 32);
        assert!(made.key.contains("PRIVATE KEY"));
    }
}
