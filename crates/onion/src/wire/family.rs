//! The key of a family of relays (proposal 321). It signs a certificate for each relay of the
//! family, which the relay publishes. Clients never put two relays of one family into one path.

use std::fmt;
use std::sync::Arc;

use base64ct::{Base64Unpadded, Encoding};
use tor_cert::{CertType, CertifiedKey};
use tor_llcrypto::pk::ed25519::{Ed25519Identity, ExpandedKeypair};

use super::keys::{KeyError, at, certificate, untag};

/// Suffix of the names of family key files, as in C tor.
pub const FAMILY_KEY_SUFFIX: &str = ".secret_family_key";
/// Lifetime in seconds of the certificate that the family key signs for a relay (C tor's value).
/// Each new descriptor has a new certificate. Descriptors are renewed within 18 hours, long before
/// their certificates expire.
const CERT_SECONDS: u64 = 30 * 86_400;

/// A family's secret key.
#[derive(Clone)]
pub struct FamilyKey(Arc<ExpandedKeypair>);

impl FamilyKey {
    /// Parses a file made by `tor --keygen-family`.
    ///
    /// # Errors
    /// Returns [`KeyError::Bad`] if `content` contains no family key.
    pub fn from_file(content: &[u8]) -> Result<FamilyKey, KeyError> {
        const NAME: &str = "a family's key";
        let bytes = untag(NAME, "ed25519v1-secret", "fmly-id", content)?;
        let bytes = bytes.try_into().map_err(|_| KeyError::Bad(NAME, "it has the wrong length"))?;
        let key = ExpandedKeypair::from_secret_key_bytes(bytes);
        key.map(|key| FamilyKey(Arc::new(key)))
            .ok_or(KeyError::Bad(NAME, "it is not an ed25519 key"))
    }

    /// Returns the family's identity, as in the option `FamilyId` of torrc.
    #[must_use]
    pub fn id(&self) -> String {
        Base64Unpadded::encode_string(self.0.public().as_bytes())
    }

    /// Returns a certificate of the family for the relay with the master identity `relay`. The
    /// certificate contains the family's public key.
    ///
    /// # Errors
    /// Returns [`KeyError::Making`] if the certificate cannot be made.
    pub(crate) fn certify(&self, relay: [u8; 32], unix_now: u64) -> Result<Vec<u8>, KeyError> {
        let relay = CertifiedKey::Ed25519(Ed25519Identity::new(relay));
        let by = Some(Ed25519Identity::new(*self.0.public().as_bytes()));
        let until = at(unix_now + CERT_SECONDS);
        certificate(CertType::FAMILY_V_IDENTITY, relay, until, &self.0, by)
    }
}

impl PartialEq for FamilyKey {
    fn eq(&self, other: &FamilyKey) -> bool {
        self.0.public().as_bytes() == other.0.public().as_bytes()
    }
}

impl Eq for FamilyKey {}

impl fmt::Debug for FamilyKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Print no secret, so that it is never logged.
        write!(out, "FamilyKey({})", self.id())
    }
}

/// Returns the content of the file with a family key generated from `seed`, for tests.
#[cfg(test)]
pub(crate) fn file_of(seed: u64) -> Vec<u8> {
    use tor_llcrypto::pk::ed25519::Keypair;
    let mut rng = anabranch_multipath::seed::stream(seed, 0, "family");
    let key = ExpandedKeypair::from(&Keypair::generate(&mut rng));
    super::keys::tagged("ed25519v1-secret", "fmly-id", &key.to_secret_key_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_c_tors_is_read_and_has_the_id_that_it_printed() {
        // Made by tor 0.4.9.11 --keygen-family.
        let hex = concat!(
            "801befb3806e7f7e96bdf11cbbd909ecec264a9fabd77d1580365e296c722240",
            "b8cf296ea54f0a14eacc1cb96e22c074bb767f9cc60a4a0908748f87cf6c2d44"
        );
        let secret: Vec<u8> = (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect();
        let file = super::super::keys::tagged("ed25519v1-secret", "fmly-id", &secret);
        let key = FamilyKey::from_file(&file).unwrap();
        assert_eq!(key.id(), "K7PKsrAF0bbviLI4GvaD0mtxfDPX7w+Oa2eMkSJ3W4U");
        assert!(!format!("{key:?}").contains(&hex[..16]));
    }

    #[test]
    fn what_is_no_familys_key_is_told() {
        let whole = file_of(1);
        let other = super::super::keys::tagged("ed25519v1-secret", "type0", &whole[32..]);
        for file in [&b""[..], &whole[..95], &[&whole[..], b"x"].concat(), &other] {
            let error = FamilyKey::from_file(file).unwrap_err().to_string();
            assert!(error.contains("a family's key"), "{error}");
        }
    }
}
