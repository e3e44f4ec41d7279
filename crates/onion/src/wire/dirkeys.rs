//! A directory authority's keys: the identity key, which may be stored elsewhere, and the signing
//! key. The identity key certifies the signing key (dir-spec 3.1).

use std::fmt;

use digest::Digest;
use rand_core::CryptoRng;
use rsa::pkcs1::{DecodeRsaPrivateKey, EncodeRsaPrivateKey};
use rsa::pkcs8::LineEnding;
use tor_llcrypto::d::{Sha1, Sha256};
use tor_llcrypto::pk::rsa::KeyPair;
use tor_llcrypto::util::rng::RngCompat;

use super::netdoc::{AuthorityCert, parse_certs};
use super::text::{hex, line, object};
use crate::directory::civil::utc;

/// Size in bits of an authority's RSA identity key (C tor's value).
const IDENTITY_BITS: usize = 3072;
/// Size in bits of an authority's RSA signing key (C tor's value).
const SIGNING_BITS: usize = 2048;

/// The reason why a signature cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignatureError {
    /// The certificate is not valid yet.
    TooEarly,
    /// The certificate has expired.
    Expired,
    /// The cryptography library failed. Contains its message.
    Library(String),
}

impl fmt::Display for SignatureError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SignatureError::TooEarly => out.write_str(
                "the certificate of this authority's signing key is not valid yet: check this \
                 machine's clock",
            ),
            SignatureError::Expired => {
                out.write_str("the certificate of this authority's signing key has expired")
            }
            SignatureError::Library(error) => write!(out, "the key cannot sign: {error}"),
        }
    }
}

impl std::error::Error for SignatureError {}

/// The reason why an authority's key files are invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadKeys(pub &'static str);

impl fmt::Display for BadKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0)
    }
}

impl std::error::Error for BadKeys {}

/// An authority's identity key, which certifies its signing keys.
pub struct IdentityKey(KeyPair);

/// An authority's signing key and its certificate.
pub struct AuthorityKeys {
    signing: KeyPair,
    certificate: AuthorityCert,
}

impl IdentityKey {
    /// Generates an identity key. This takes seconds.
    ///
    /// # Errors
    /// Returns [`SignatureError::Library`] if the cryptography library fails.
    pub fn generate(rng: &mut impl CryptoRng) -> Result<IdentityKey, SignatureError> {
        key(rng, IDENTITY_BITS).map(IdentityKey)
    }

    /// Parses an identity key in PEM (PKCS#1), the format of C tor's unencrypted
    /// `authority_identity_key`.
    ///
    /// # Errors
    /// Returns [`BadKeys`] if `text` is not such a key.
    pub fn from_pem(text: &str) -> Result<IdentityKey, BadKeys> {
        from_pem(text).map(IdentityKey)
    }

    /// Returns the identity key in PEM.
    ///
    /// # Errors
    /// Returns [`SignatureError::Library`] if the cryptography library fails.
    pub fn to_pem(&self) -> Result<String, SignatureError> {
        to_pem(&self.0)
    }

    /// Returns the authority's identity (`v3ident`), as in `DirAuthority` lines.
    #[must_use]
    pub fn identity(&self) -> [u8; 20] {
        identity(&self.0)
    }

    /// Generates a signing key with a certificate that is valid from `from` to `until`, in seconds
    /// since 1970.
    ///
    /// # Errors
    /// Returns [`SignatureError::Library`] if the cryptography library fails.
    pub fn certify(
        &self,
        rng: &mut impl CryptoRng,
        from: u64,
        until: u64,
    ) -> Result<AuthorityKeys, SignatureError> {
        let signing = key(rng, SIGNING_BITS)?;
        let text = certificate(&self.0, &signing, from, until)?;
        AuthorityKeys::of(signing, &text).map_err(|bad| SignatureError::Library(bad.0.to_owned()))
    }
}

impl AuthorityKeys {
    /// Parses the contents of C tor's files `authority_signing_key` (PEM) and
    /// `authority_certificate`.
    ///
    /// # Errors
    /// Returns [`BadKeys`] if the contents are invalid or do not match.
    pub fn from_files(signing: &str, certificate: &str) -> Result<AuthorityKeys, BadKeys> {
        AuthorityKeys::of(from_pem(signing)?, certificate)
    }

    /// Returns the signing key in PEM.
    ///
    /// # Errors
    /// Returns [`SignatureError::Library`] if the cryptography library fails.
    pub fn to_pem(&self) -> Result<String, SignatureError> {
        to_pem(&self.signing)
    }

    /// Returns the certificate's text.
    #[must_use]
    pub fn certificate(&self) -> &str {
        self.certificate.text()
    }

    /// Returns the parsed certificate.
    #[must_use]
    pub fn cert(&self) -> &AuthorityCert {
        &self.certificate
    }

    /// Checks that the certificate is valid at `unix_now`.
    ///
    /// # Errors
    /// Returns [`SignatureError::TooEarly`] or [`SignatureError::Expired`].
    pub fn holds(&self, unix_now: u64) -> Result<(), SignatureError> {
        let (from, until) = self.certificate.holds();
        match unix_now {
            now if now < from => Err(SignatureError::TooEarly),
            now if now > until => Err(SignatureError::Expired),
            _ => Ok(()),
        }
    }

    /// Returns the signature item to append to the consensus `unsigned`. The signed digest is
    /// SHA-1 for the flavour `ns` (`is_ns` is true), and SHA-256 for other flavours (dir-spec,
    /// `directory-signature`).
    ///
    /// # Errors
    /// Returns [`SignatureError::Library`] if the cryptography library fails.
    pub fn signature(&self, unsigned: &str, is_ns: bool) -> Result<String, SignatureError> {
        let (id, _) = self.certificate.keys();
        signature(&self.signing, &id, unsigned, is_ns)
    }

    fn of(signing: KeyPair, text: &str) -> Result<AuthorityKeys, BadKeys> {
        let (mut certs, _) = parse_certs(text).map_err(|_| BadKeys("it is not a certificate"))?;
        let wrong = BadKeys("the signature of the certificate is wrong");
        let certificate = certs.pop().ok_or(wrong)?;
        if certificate.keys().1 != identity(&signing) {
            return Err(BadKeys("the certificate is for another signing key"));
        }
        Ok(AuthorityKeys { signing, certificate })
    }
}

impl fmt::Debug for AuthorityKeys {
    /// Prints the digests of the keys, without the private key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthorityKeys")
            .field("ids", &self.certificate.keys())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for IdentityKey {
    /// Prints the authority's identity, without the private key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentityKey").field("identity", &self.identity()).finish_non_exhaustive()
    }
}

/// Returns the SHA-1 digest of a public key, which identifies the key.
fn identity(key: &KeyPair) -> [u8; 20] {
    key.to_public_key().to_rsa_identity().to_bytes()
}

/// Returns the text of a certificate (dir-spec 3.1).
fn certificate(
    identity_key: &KeyPair,
    signing: &KeyPair,
    from: u64,
    until: u64,
) -> Result<String, SignatureError> {
    let id = identity(identity_key);
    let mut text = "dir-key-certificate-version 3\n".to_owned();
    line(&mut text, &format!("fingerprint {}", hex(&id)));
    line(&mut text, &format!("dir-key-published {}", utc(from)));
    line(&mut text, &format!("dir-key-expires {}", utc(until)));
    line(&mut text, "dir-identity-key");
    object(&mut text, "RSA PUBLIC KEY", &identity_key.to_public_key().to_der());
    line(&mut text, "dir-signing-key");
    object(&mut text, "RSA PUBLIC KEY", &signing.to_public_key().to_der());
    line(&mut text, "dir-key-crosscert");
    object(&mut text, "ID SIGNATURE", &sign(signing, &id)?);
    line(&mut text, "dir-key-certification");
    let digest = Sha1::digest(text.as_bytes());
    object(&mut text, "SIGNATURE", &sign(identity_key, &digest)?);
    Ok(text)
}

/// Makes the signature item that [`AuthorityKeys::signature`] returns.
fn signature(
    signing: &KeyPair,
    id: &[u8; 20],
    unsigned: &str,
    is_ns: bool,
) -> Result<String, SignatureError> {
    let signed = format!("{unsigned}directory-signature ");
    let keys = format!("{} {}", hex(id), hex(&identity(signing)));
    let (digest, algorithm) = match is_ns {
        true => (Sha1::digest(signed).to_vec(), ""),
        false => (Sha256::digest(signed).to_vec(), "sha256 "),
    };
    let mut text = format!("directory-signature {algorithm}{keys}\n");
    object(&mut text, "SIGNATURE", &sign(signing, &digest)?);
    Ok(text)
}

fn sign(key: &KeyPair, digest: &[u8]) -> Result<Vec<u8>, SignatureError> {
    key.sign(digest).map_err(to_error)
}

fn key(rng: &mut impl CryptoRng, bits: usize) -> Result<KeyPair, SignatureError> {
    rsa::RsaPrivateKey::new(&mut RngCompat::new(rng), bits).map(KeyPair::from).map_err(to_error)
}

fn from_pem(text: &str) -> Result<KeyPair, BadKeys> {
    let key = rsa::RsaPrivateKey::from_pkcs1_pem(text);
    key.map(KeyPair::from).map_err(|_| BadKeys("it holds no RSA key in PEM form (PKCS#1)"))
}

fn to_pem(key: &KeyPair) -> Result<String, SignatureError> {
    key.as_key().to_pkcs1_pem(LineEnding::LF).map(|text| text.to_string()).map_err(to_error)
}

fn to_error(error: impl fmt::Display) -> SignatureError {
    SignatureError::Library(error.to_string())
}
