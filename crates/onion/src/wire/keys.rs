//! The long-term keys of a relay in C tor's files, and the certificates that they sign.
//!
//! An RSA identity (1024 bits by definition) and an Ed25519 master identity belong together
//! permanently: authorities remember the pair, and reject other combinations. The master key
//! certifies a signing key that is valid for a month. The signing key certifies keys that change
//! more often (cert-spec).

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use digest::Digest;
use rand_core::CryptoRng;
use rsa::pkcs1::{DecodeRsaPrivateKey, EncodeRsaPrivateKey};
use rsa::pkcs8::{DecodePrivateKey, LineEnding};
use tor_cert::rsa::EncodedRsaCrosscert;
use tor_cert::{CertType, CertifiedKey, Ed25519Cert};
use tor_llcrypto::d::{Sha1, Sha256};
use tor_llcrypto::pk::curve25519::{PublicKey as CurvePublic, StaticKeypair, StaticSecret};
use tor_llcrypto::pk::ed25519::{Ed25519Identity, ExpandedKeypair, Keypair};
use tor_llcrypto::pk::keymanip::convert_curve25519_to_ed25519_private;
use tor_llcrypto::pk::rsa::KeyPair as RsaKeys;

pub use super::key_error::KeyError;
use super::key_error::making;
use super::link::{Identity, RsaKey};
use super::x509::{self, Draft};
use crate::draw::below;

const HOUR: u64 = 3600;
/// Lifetime in seconds of a signing key (C tor's value).
const SIGNING_SECONDS: u64 = 30 * 24 * HOUR;
/// Lifetime in seconds of a link's certificates (C tor's value).
const LINK_SECONDS: u64 = 2 * 24 * HOUR;
/// Remaining lifetime in seconds below which a signing key is replaced.
const RENEW_SECONDS: u64 = 5 * 24 * HOUR;
/// Lifetime in seconds of a certificate of type 2, in which the RSA identity key certifies itself
/// (C tor's value).
const IDENTITY_SECONDS: u64 = 365 * DAY;
/// Minimum and maximum lifetime in seconds of a TLS certificate (C tor's values).
const TLS_SECONDS: [u64; 2] = [5 * DAY, 365 * DAY];
/// Seconds of a day.
const DAY: u64 = 24 * HOUR;
/// Alphabet of the host names in TLS certificates (C tor's value).
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// Minimum and maximum number of random letters in a TLS certificate's host name (C tor's values).
const NAME_LETTERS: [u64; 2] = [8, 20];
/// Lifetime in seconds of an onion key's cross certificate (dir-spec: at least a week).
const ONION_SECONDS: u64 = 28 * 24 * HOUR;

/// File name of the RSA identity key (C tor's name).
const RSA_ID: &str = "secret_id_key";
/// File name of the TAP onion key (C tor's name).
const TAP: &str = "secret_onion_key";
/// File name of the ntor onion key (C tor's name).
const NTOR: &str = "secret_onion_key_ntor";
/// File name of the Ed25519 identity key (C tor's name).
const MASTER: &str = "ed25519_master_id_secret_key";
/// File name of the public Ed25519 identity key (C tor's name).
const MASTER_PUBLIC: &str = "ed25519_master_id_public_key";
/// File name of the signing key (C tor's name).
const SIGNING: &str = "ed25519_signing_secret_key";
/// File name of the signing key's certificate (C tor's name).
const SIGNING_CERT: &str = "ed25519_signing_cert";

/// The names of all files that [`RelayKeys::from_files`] reads.
pub const FILES: [&str; 6] = [RSA_ID, TAP, NTOR, MASTER, SIGNING, SIGNING_CERT];

/// The names of the files with onion keys. The first one is for ntor.
pub const ONION_FILES: [&str; 2] = [NTOR, TAP];

/// All long-term keys of a relay.
pub struct RelayKeys {
    identity: RsaKeys,
    tap: RsaKeys,
    ntor: StaticKeypair,
    master: ExpandedKeypair,
    signing: ExpandedKeypair,
    signing_cert: Vec<u8>,
    signing_until: u64,
}

/// A file of the key directory, with the name that C tor uses.
pub struct KeyFile {
    /// The file's name within the directory.
    pub name: &'static str,
    /// The file's complete content.
    pub content: Vec<u8>,
}

/// The certificates and keys with which a relay proves its identity on its links. All of them
/// belong to one TLS certificate.
pub struct Credentials {
    /// The relay's identity.
    pub identity: Identity,
    /// SHA-256 of the relay's RSA identity key.
    pub rsa_sha256: [u8; 32],
    /// The relay's RSA identity key, as in
    /// [`VerifiedCerts::rsa`](super::link::VerifiedCerts::rsa).
    pub rsa: RsaKey,
    /// Certificates of the types 2, 4, 5 and 7 with their types, for links on which we are the
    /// responder.
    pub as_responder: Vec<(u8, Vec<u8>)>,
    /// Certificates of the types 2, 4, 6 and 7 with their types, for links on which we are the
    /// initiator.
    pub as_initiator: Vec<(u8, Vec<u8>)>,
    /// The key that signs AUTHENTICATE cells. The certificate of type 6 certifies it.
    pub auth_key: Keypair,
    /// SHA-256 of the TLS certificate that our links present.
    pub tls_certificate: [u8; 32],
}

impl RelayKeys {
    /// Generates all keys of a new relay.
    ///
    /// # Errors
    /// Returns [`KeyError::Making`] if a cryptography library fails, which happens only for key
    /// sizes that are not used here.
    pub fn generate<R: CryptoRng>(rng: &mut R, unix_now: u64) -> Result<RelayKeys, KeyError> {
        let secret = StaticSecret::random_from_rng(&mut *rng);
        let master = ExpandedKeypair::from(&Keypair::generate(rng));
        let (signing, signing_cert, signing_until) = new_signing(rng, &master, unix_now)?;
        Ok(RelayKeys {
            identity: RsaKeys::generate(rng).map_err(making)?,
            tap: RsaKeys::generate(rng).map_err(making)?,
            ntor: StaticKeypair { public: CurvePublic::from(&secret), secret },
            master,
            signing,
            signing_cert,
            signing_until,
        })
    }

    /// Returns the SHA-1 digest of the RSA identity key, the relay's fingerprint.
    #[must_use]
    pub fn rsa_identity(&self) -> [u8; 20] {
        self.identity.to_public_key().to_rsa_identity().to_bytes()
    }

    /// Returns the Ed25519 master identity.
    #[must_use]
    pub fn ed_identity(&self) -> [u8; 32] {
        *self.master.public().as_bytes()
    }

    /// Returns the onion key for ntor and ntor-v3: first the secret key, then the public key.
    #[must_use]
    pub fn ntor(&self) -> ([u8; 32], [u8; 32]) {
        (self.ntor.secret.to_bytes(), self.ntor.public.to_bytes())
    }

    /// Returns true if the signing key must be replaced ([`RelayKeys::renew_signing`]).
    #[must_use]
    pub fn signing_is_old(&self, unix_now: u64) -> bool {
        unix_now + RENEW_SECONDS > self.signing_until
    }

    /// Replaces the signing key and its certificate.
    ///
    /// # Errors
    /// Returns [`KeyError::Making`] if the certificate cannot be made.
    pub fn renew_signing<R: CryptoRng>(
        &mut self,
        rng: &mut R,
        unix_now: u64,
    ) -> Result<(), KeyError> {
        (self.signing, self.signing_cert, self.signing_until) =
            new_signing(rng, &self.master, unix_now)?;
        Ok(())
    }

    /// Replaces the onion keys.
    ///
    /// # Errors
    /// Returns [`KeyError::Making`] if the RSA key cannot be made.
    pub fn renew_onion<R: CryptoRng>(&mut self, rng: &mut R) -> Result<(), KeyError> {
        let secret = StaticSecret::random_from_rng(&mut *rng);
        self.ntor = StaticKeypair { public: CurvePublic::from(&secret), secret };
        self.tap = RsaKeys::generate(rng).map_err(making)?;
        Ok(())
    }

    /// Returns the certificates of a CERTS cell, each with its type: 2, 4 and 7 (tor-spec, "CERTS
    /// cells"). For a responder they include type 5, which certifies the responder's TLS
    /// certificate. For an initiator they include type 6, which certifies the key that signs
    /// AUTHENTICATE.
    ///
    /// # Errors
    /// Returns [`KeyError::Making`] if a certificate cannot be made.
    pub fn certs<R: CryptoRng>(
        &self,
        rng: &mut R,
        link: LinkSide<'_>,
        unix_now: u64,
    ) -> Result<Vec<(u8, Vec<u8>)>, KeyError> {
        let until = at(unix_now + LINK_SECONDS);
        let (kind, certified) = match link {
            LinkSide::Responder { tls_certificate } => {
                let digest = Sha256::digest(tls_certificate).into();
                (CertType::SIGNING_V_TLS_CERT, CertifiedKey::X509Sha256Digest(digest))
            }
            LinkSide::Initiator { authentication_key } => {
                let key = Ed25519Identity::new(*authentication_key);
                (CertType::SIGNING_V_LINK_AUTH, CertifiedKey::Ed25519(key))
            }
        };
        let link_cert = certificate(kind, certified, until, &self.signing, None)?;
        let master = Ed25519Identity::new(self.ed_identity());
        let shown = match link {
            LinkSide::Responder { tls_certificate } => x509::issuer(tls_certificate),
            LinkSide::Initiator { .. } => None,
        };
        let name = shown.unwrap_or_else(|| hostname(rng, "com"));
        let rsa = self.identity_certificate(rng, &name, unix_now)?;
        let cross = EncodedRsaCrosscert::encode_and_sign(&self.identity, &master, until);
        Ok(vec![
            (u8::from(CertType::RSA_ID_X509), rsa),
            (u8::from(CertType::IDENTITY_V_SIGNING), self.signing_cert.clone()),
            (u8::from(kind), link_cert),
            (u8::from(CertType::RSA_ID_V_IDENTITY), cross.map_err(making)?.into()),
        ])
    }

    /// Returns the credentials for links that present `tls_certificate` (DER), with fresh
    /// certificates that are valid for two days.
    ///
    /// # Errors
    /// Returns [`KeyError::Making`] if a certificate cannot be made.
    pub fn credentials<R: CryptoRng>(
        &self,
        rng: &mut R,
        tls_certificate: &[u8],
        unix_now: u64,
    ) -> Result<Credentials, KeyError> {
        let auth_key = Keypair::generate(rng);
        let public = auth_key.verifying_key().to_bytes();
        let initiator = LinkSide::Initiator { authentication_key: &public };
        let responder = LinkSide::Responder { tls_certificate };
        Ok(Credentials {
            identity: Identity { rsa: self.rsa_identity(), ed25519: self.ed_identity() },
            rsa_sha256: Sha256::digest(self.rsa_public()).into(),
            rsa: self
                .rsa_public()
                .try_into()
                .map_err(|_| making("an identity of the wrong size"))?,
            as_responder: self.certs(rng, responder, unix_now)?,
            as_initiator: self.certs(rng, initiator, unix_now)?,
            auth_key,
            tls_certificate: Sha256::digest(tls_certificate).into(),
        })
    }

    /// Makes the TLS certificate of a relay's links for `key` (PKCS#8 in DER). The certificate's
    /// visible properties are those of C tor's certificates, whose key has 2,048 bits. The key is
    /// an RSA key, because C tor closes links to relays with other TLS keys (C tor's issue 41226).
    ///
    /// # Errors
    /// Returns [`KeyError::Making`] if `key` is invalid, or the X.509 library cannot make a
    /// certificate.
    pub fn link_key<R: CryptoRng>(
        &self,
        rng: &mut R,
        key: Vec<u8>,
        unix_now: u64,
    ) -> Result<LinkKey, KeyError> {
        let public = rsa::RsaPrivateKey::from_pkcs8_der(&key).map_err(making)?.to_public_key();
        let (subject, issuer) = (hostname(rng, "net"), hostname(rng, "com"));
        let life = lifetime(rng);
        let holds = span(rng, unix_now, life);
        let draft = Draft { subject: &subject, issuer: &issuer, holds, key: &public };
        let certificate = x509::certificate(rng, &draft, self.identity.as_key())?;
        Ok(LinkKey { certificate, key })
    }

    /// Makes the certificate of type 2, in which the RSA identity key certifies itself. `name` is
    /// an arbitrary host name.
    fn identity_certificate<R: CryptoRng>(
        &self,
        rng: &mut R,
        name: &str,
        unix_now: u64,
    ) -> Result<Vec<u8>, KeyError> {
        let key = self.identity.as_key().to_public_key();
        let holds = span(rng, unix_now, IDENTITY_SECONDS);
        let draft = Draft { subject: name, issuer: name, holds, key: &key };
        x509::certificate(rng, &draft, self.identity.as_key())
    }

    /// Returns the key files to store, in C tor's formats. Both [`RelayKeys::from_files`] and C
    /// tor can read them.
    ///
    /// # Errors
    /// Returns [`KeyError::Making`] if a key cannot be encoded.
    pub fn files(&self) -> Result<Vec<KeyFile>, KeyError> {
        let (secret, public) = self.ntor();
        let file = |name, content| KeyFile { name, content };
        Ok(vec![
            file(RSA_ID, pem(&self.identity)?),
            file(TAP, pem(&self.tap)?),
            file(NTOR, tagged("c25519v1", "onion", &[&secret[..], &public].concat())),
            file(MASTER, tagged("ed25519v1-secret", "type0", &self.master.to_secret_key_bytes())),
            file(MASTER_PUBLIC, tagged("ed25519v1-public", "type0", &self.ed_identity())),
            file(SIGNING, tagged("ed25519v1-secret", "type0", &self.signing.to_secret_key_bytes())),
            file(SIGNING_CERT, tagged("ed25519v1-cert", "type4", &self.signing_cert)),
        ])
    }

    /// Loads the keys from their files. `read` returns a file's content, or `None` if the file
    /// does not exist.
    ///
    /// # Errors
    /// Returns an error with the name of the file that is missing or invalid. Keys that do not
    /// match each other are invalid too.
    pub fn from_files(
        read: impl Fn(&'static str) -> Option<Vec<u8>>,
    ) -> Result<RelayKeys, KeyError> {
        let file = |name| read(name).ok_or(KeyError::Missing(name));
        let (identity, tap) = (from_pem(RSA_ID, &file(RSA_ID)?)?, from_pem(TAP, &file(TAP)?)?);
        let ntor = from_ntor(&file(NTOR)?)?;
        let master = from_expanded(MASTER, &file(MASTER)?)?;
        let signing = from_expanded(SIGNING, &file(SIGNING)?)?;
        let content = file(SIGNING_CERT)?;
        let signing_cert = untag(SIGNING_CERT, "ed25519v1-cert", "type4", &content)?.to_vec();
        let signing_until = certified_until(&signing_cert, &master, &signing)?;
        Ok(RelayKeys { identity, tap, ntor, master, signing, signing_cert, signing_until })
    }

    /// Returns the public RSA identity key in DER (PKCS#1).
    #[must_use]
    pub fn rsa_public(&self) -> Vec<u8> {
        self.identity.to_public_key().to_der()
    }

    /// Returns the public TAP onion key in DER (PKCS#1). Authorities still require it; clients do
    /// not.
    #[must_use]
    pub fn tap_public(&self) -> Vec<u8> {
        self.tap.to_public_key().to_der()
    }

    /// Returns the certificate with which the master key certifies the signing key.
    #[must_use]
    pub fn signing_cert(&self) -> &[u8] {
        &self.signing_cert
    }

    /// Signs `SHA-256(prefix || text)` with the Ed25519 signing key.
    #[must_use]
    pub fn sign_digest(&self, prefix: &[u8], text: &[u8]) -> [u8; 64] {
        let digest = Sha256::new().chain_update(prefix).chain_update(text).finalize();
        self.signing.sign(&digest).to_bytes()
    }

    /// Signs `SHA-1(text)` with the RSA identity key.
    ///
    /// # Errors
    /// Returns [`KeyError::Making`] if the cryptography library fails, which happens only for
    /// unusual key sizes.
    pub fn sign_sha1(&self, text: &[u8]) -> Result<Vec<u8>, KeyError> {
        self.identity.sign(&Sha1::digest(text)).map_err(making)
    }

    /// Signs `text` itself (not a digest of it) with the signing key, as in an AUTHENTICATE cell.
    #[must_use]
    pub fn sign(&self, text: &[u8]) -> [u8; 64] {
        self.signing.sign(text).to_bytes()
    }

    /// Returns a signature over both identities of the relay, made with the TAP key (dir-spec,
    /// `onion-key-crosscert`).
    pub(crate) fn tap_cross_cert(&self) -> Result<Vec<u8>, KeyError> {
        let both = [&self.rsa_identity()[..], &self.ed_identity()].concat();
        self.tap.sign(&both).map_err(making)
    }

    /// Returns the sign bit that converts the public ntor key to an Ed25519 key, and the
    /// certificate in which the ntor key certifies the master identity (dir-spec,
    /// `ntor-onion-key-crosscert`).
    pub(crate) fn ntor_cross_cert(&self, unix_now: u64) -> Result<(u8, Vec<u8>), KeyError> {
        let (key, bit) = convert_curve25519_to_ed25519_private(&self.ntor.secret)
            .ok_or_else(|| making("an ntor key that is not an ed25519 key"))?;
        let master = CertifiedKey::Ed25519(Ed25519Identity::new(self.ed_identity()));
        let until = at(unix_now + ONION_SECONDS);
        let cert = certificate(CertType::NTOR_CC_IDENTITY, master, until, &key, None)?;
        Ok((bit, cert))
    }
}

impl fmt::Debug for RelayKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Print no keys, so that they are never logged.
        out.debug_struct("RelayKeys").finish_non_exhaustive()
    }
}

/// The side of a link for which certificates are made, responder or initiator.
#[derive(Clone, Copy, Debug)]
pub enum LinkSide<'a> {
    /// The TLS server, with its TLS certificate in DER.
    Responder {
        /// The TLS certificate.
        tls_certificate: &'a [u8],
    },
    /// The TLS client, with the Ed25519 key that signs its AUTHENTICATE cell.
    Initiator {
        /// The public half of the authentication key.
        authentication_key: &'a [u8; 32],
    },
}

/// A TLS certificate in DER, and its key in PKCS#8 (DER).
pub struct LinkKey {
    /// The certificate in DER.
    pub certificate: Vec<u8>,
    /// The private key in PKCS#8 (DER).
    pub key: Vec<u8>,
}

/// Returns the SHA-256 of `text`, such as a TLS certificate in DER.
#[must_use]
pub fn sha256(text: &[u8]) -> [u8; 32] {
    Sha256::digest(text).into()
}

/// Returns the SHA-1 of `text`, such as a server descriptor.
#[must_use]
pub fn sha1(text: &[u8]) -> [u8; 20] {
    Sha1::digest(text).into()
}

/// Converts `unix`, in seconds since 1970, to a `SystemTime`.
pub(super) fn at(unix: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(unix)
}

type Signing = (ExpandedKeypair, Vec<u8>, u64);

fn new_signing<R: CryptoRng>(
    rng: &mut R,
    master: &ExpandedKeypair,
    unix_now: u64,
) -> Result<Signing, KeyError> {
    let key = ExpandedKeypair::from(&Keypair::generate(rng));
    let certified = CertifiedKey::Ed25519(Ed25519Identity::new(*key.public().as_bytes()));
    let until = unix_now + SIGNING_SECONDS;
    let by = Some(Ed25519Identity::new(*master.public().as_bytes()));
    let cert = certificate(CertType::IDENTITY_V_SIGNING, certified, at(until), master, by)?;
    Ok((key, cert, until))
}

/// Makes a certificate in the format of cert-spec, signed with the key `signer`. If `by` is given,
/// the certificate also contains this identity of the signer.
pub(super) fn certificate(
    kind: CertType,
    certified: CertifiedKey,
    until: SystemTime,
    signer: &ExpandedKeypair,
    by: Option<Ed25519Identity>,
) -> Result<Vec<u8>, KeyError> {
    let mut builder = Ed25519Cert::builder();
    builder.expiration(until).cert_type(kind).cert_key(certified);
    if let Some(by) = by {
        builder.signing_key(by);
    }
    Ok(builder.encode_and_sign(signer).map_err(making)?.into())
}

/// Parses the certificate `cert`, and returns its expiry in seconds since 1970.
///
/// # Errors
/// Returns [`KeyError::Bad`] if `cert` is malformed or expired before 1970, if the key `master`
/// did not sign it, or if it does not certify the key `signing`.
fn certified_until(
    cert: &[u8],
    master: &ExpandedKeypair,
    signing: &ExpandedKeypair,
) -> Result<u64, KeyError> {
    let bad = |what| KeyError::Bad(SIGNING_CERT, what);
    let cert = Ed25519Cert::decode(cert).map_err(|_| bad("it is not a certificate"))?;
    let by = Ed25519Identity::new(*master.public().as_bytes());
    let unchecked = cert
        .should_be_signed_with(&by)
        .map_err(|_| bad("this relay's master key did not sign it"))?;
    let checked = tor_checkable::SelfSigned::check_signature(unchecked);
    let timed = checked.map_err(|_| bad("its signature is wrong"))?;
    let cert = tor_checkable::Timebound::dangerously_assume_timely(timed);
    let own = Ed25519Identity::new(*signing.public().as_bytes());
    if cert.subject_key().as_ed25519() != Some(&own) {
        return Err(bad("it certifies a signing key other than this relay's"));
    }
    let until =
        cert.expiry().duration_since(UNIX_EPOCH).map_err(|_| bad("it expired before 1970"))?;
    Ok(until.as_secs())
}

fn pem(key: &RsaKeys) -> Result<Vec<u8>, KeyError> {
    let text = key.as_key().to_pkcs1_pem(LineEnding::LF).map_err(making)?;
    Ok(text.as_bytes().to_vec())
}

fn from_pem(name: &'static str, content: &[u8]) -> Result<RsaKeys, KeyError> {
    let bad = || KeyError::Bad(name, "the file contains no RSA key of 1024 bits in PEM form");
    let text = std::str::from_utf8(content).map_err(|_| bad())?;
    let key = rsa::RsaPrivateKey::from_pkcs1_pem(text).map_err(|_| bad())?;
    let key = RsaKeys::from(key);
    let public = key.to_public_key();
    if public.bits() != 1024 || !public.exponent_is(65_537) { Err(bad()) } else { Ok(key) }
}

fn from_expanded(name: &'static str, content: &[u8]) -> Result<ExpandedKeypair, KeyError> {
    let bytes = untag(name, "ed25519v1-secret", "type0", content)?;
    let bytes = bytes.try_into().map_err(|_| KeyError::Bad(name, "it has the wrong length"))?;
    ExpandedKeypair::from_secret_key_bytes(bytes)
        .ok_or(KeyError::Bad(name, "it is not an ed25519 key"))
}

/// Parses a file with an ntor onion key, and returns the secret key.
///
/// # Errors
/// Returns [`KeyError::Bad`] if the file contains no such key.
pub fn ntor_of_file(content: &[u8]) -> Result<[u8; 32], KeyError> {
    Ok(from_ntor(content)?.secret.to_bytes())
}

fn from_ntor(content: &[u8]) -> Result<StaticKeypair, KeyError> {
    let bytes = untag(NTOR, "c25519v1", "onion", content)?;
    let (secret, public) = bytes.split_at_checked(32).unwrap_or((bytes, &[]));
    let secret: [u8; 32] =
        secret.try_into().map_err(|_| KeyError::Bad(NTOR, "it has the wrong length"))?;
    let secret = StaticSecret::from(secret);
    let own = CurvePublic::from(&secret);
    if own.as_bytes()[..] != *public {
        return Err(KeyError::Bad(NTOR, "its public and secret halves do not match"));
    }
    Ok(StaticKeypair { secret, public: own })
}

/// Encodes a file in C tor's tagged format: the line `== type: tag ==`, padded to 32 bytes, then
/// the content.
pub(super) fn tagged(kind: &str, tag: &str, content: &[u8]) -> Vec<u8> {
    let mut file = format!("== {kind}: {tag} ==").into_bytes();
    file.resize(32, 0);
    file.extend_from_slice(content);
    file
}

pub(super) fn untag<'a>(
    name: &'static str,
    kind: &str,
    tag: &str,
    file: &'a [u8],
) -> Result<&'a [u8], KeyError> {
    let head = tagged(kind, tag, &[]);
    file.strip_prefix(&head[..])
        .ok_or(KeyError::Bad(name, "the file contains no key, or a key of another type"))
}

/// Returns a random host name like `www.q3xk7ahv.com`.
fn hostname<R: CryptoRng>(rng: &mut R, domain: &str) -> String {
    let length = NAME_LETTERS[0] + below(NAME_LETTERS[1] - NAME_LETTERS[0] + 1, rng);
    let letter = |_| char::from(LETTERS[below(LETTERS.len() as u64, rng) as usize]);
    let letters: String = (0..length).map(letter).collect();
    format!("www.{letters}.{domain}")
}

/// Returns a random lifetime in seconds for a TLS certificate: a whole number of days, reduced by
/// one second in half of all cases.
fn lifetime<R: CryptoRng>(rng: &mut R) -> u64 {
    let [least, most] = TLS_SECONDS;
    let life = least + below(most - least, rng);
    life - life % DAY - below(2, rng)
}

/// Returns the start and the end of a validity period of `life` seconds, in seconds since 1970.
/// The start is the beginning of a random past day, so that it does not reveal when the
/// certificate was made. At least one day of the validity is left.
fn span<R: CryptoRng>(rng: &mut R, now: u64, life: u64) -> [u64; 2] {
    let earliest = (now + 2 * DAY).saturating_sub(life).min(now);
    let from = earliest + below((now - earliest).max(1), rng);
    let from = from - from % DAY;
    [from, from + life]
}

/// Returns a link's private key, for tests of this crate.
#[cfg(test)]
pub(crate) fn private_key(seed: u64) -> Vec<u8> {
    use rsa::pkcs8::EncodePrivateKey;
    use tor_llcrypto::util::rng::RngCompat;
    let mut rng = anabranch_multipath::seed::stream(seed, 0, "a link's key");
    let key = rsa::RsaPrivateKey::new(&mut RngCompat::new(&mut rng), 2048)
        .expect("an RSA key can be generated");
    key.to_pkcs8_der().expect("an RSA key can be encoded").as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use anabranch_multipath::seed::stream;
    use x509_cert::der::Decode;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn keys(seed: u64) -> RelayKeys {
        RelayKeys::generate(&mut stream(seed, 0, "keys"), NOW).unwrap()
    }

    fn files(keys: &RelayKeys) -> BTreeMap<&'static str, Vec<u8>> {
        keys.files().unwrap().into_iter().map(|file| (file.name, file.content)).collect()
    }

    #[test]
    fn keys_are_a_function_of_the_generator_and_survive_their_files() {
        let (one, same) = (keys(1), keys(1));
        assert_eq!(files(&one), files(&same));
        let kept = files(&one);
        let back = RelayKeys::from_files(|name| kept.get(name).cloned()).unwrap();
        assert_eq!(files(&back), kept);
        assert_eq!(back.signing_until, one.signing_until);
        assert_eq!(back.rsa_identity(), one.rsa_identity());
    }

    #[test]
    fn a_file_that_is_missing_cut_or_anothers_is_named() {
        let (kept, others) = (files(&keys(1)), files(&keys(2)));
        for name in FILES {
            let read = |asked| (asked != name).then(|| kept[asked].clone());
            assert_eq!(RelayKeys::from_files(read).unwrap_err(), KeyError::Missing(name));
            let cut = |asked| {
                let whole = &kept[asked];
                Some(whole[..whole.len() - usize::from(asked == name) * 9].to_vec())
            };
            assert!(matches!(RelayKeys::from_files(cut), Err(KeyError::Bad(at, _)) if at == name));
        }
        for name in [MASTER, SIGNING] {
            let mixed = |asked| Some(if asked == name { &others } else { &kept }[asked].clone());
            assert!(matches!(RelayKeys::from_files(mixed), Err(KeyError::Bad(SIGNING_CERT, _))));
        }
    }

    #[test]
    fn an_old_signing_key_is_replaced_under_the_same_identity() {
        let mut keys = keys(3);
        let identity = keys.ed_identity();
        assert!(!keys.signing_is_old(NOW));
        let later = NOW + SIGNING_SECONDS - RENEW_SECONDS + 1;
        assert!(keys.signing_is_old(later));
        keys.renew_signing(&mut stream(4, 0, "keys"), later).unwrap();
        assert!(!keys.signing_is_old(later));
        assert_eq!(keys.ed_identity(), identity);
        let kept = files(&keys);
        assert!(RelayKeys::from_files(|name| kept.get(name).cloned()).is_ok());
    }

    #[test]
    fn both_sides_of_a_link_have_their_certificates() {
        let keys = keys(5);
        let mut rng = stream(6, 0, "links");
        let responder = LinkSide::Responder { tls_certificate: b"a certificate" };
        let initiator = LinkSide::Initiator { authentication_key: &keys.ed_identity() };
        let kinds = |link, rng: &mut _| {
            let certs = keys.certs(rng, link, NOW).unwrap();
            certs.into_iter().map(|(kind, _)| kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds(responder, &mut rng), [2, 4, 5, 7]);
        assert_eq!(kinds(initiator, &mut rng), [2, 4, 6, 7]);
    }

    #[test]
    fn a_tls_certificate_holds_now_for_whole_days_of_some_length() {
        let mut rng = stream(8, 0, "links");
        let (mut lives, mut lesser) = (Vec::new(), 0);
        for _ in 0..2000 {
            let life = lifetime(&mut rng);
            let [from, until] = span(&mut rng, NOW + 12_345, life);
            assert!(from <= NOW + 12_345 && until >= NOW + 12_345 + DAY);
            assert_eq!((from % DAY, until - from), (0, life));
            let lacks = life.next_multiple_of(DAY) - life;
            assert!(lacks <= 1);
            lesser += lacks as usize;
            lives.push(life.div_ceil(DAY));
        }
        let ends = [*lives.iter().min().unwrap(), *lives.iter().max().unwrap()];
        assert_eq!(ends, [5, 364]);
        assert!((900..1100).contains(&lesser), "half of them end a second before midnight");
    }

    #[test]
    fn a_links_certificate_has_the_form_of_c_tors() {
        let keys = keys(5);
        let made = keys.link_key(&mut stream(9, 0, "links"), private_key(9), NOW).unwrap();
        let parsed = x509_cert::Certificate::from_der(&made.certificate).unwrap();
        let content = &parsed.tbs_certificate;
        assert_eq!(content.version, x509_cert::Version::V3);
        assert_eq!(content.extensions, None);
        assert!(content.serial_number.as_bytes().len() <= 9);
        let names = [&content.subject, &content.issuer].map(ToString::to_string);
        for (name, domain) in names.iter().zip([".net", ".com"]) {
            let letters = name.strip_prefix("CN=www.").and_then(|name| name.strip_suffix(domain));
            let letters = letters.unwrap();
            assert!((8..=20).contains(&letters.len()), "{name}");
            assert!(letters.bytes().all(|letter| LETTERS.contains(&letter)), "{name}");
        }
        // After the object identifier of commonName comes a UTF8String (0x0c), in both names.
        let typed = made.certificate.windows(6).filter(|all| *all == b"\x06\x03\x55\x04\x03\x0c");
        assert_eq!(typed.count(), 2);
        // The RSA identity key of 1,024 bits makes the signature.
        assert_eq!(parsed.signature.raw_bytes().len(), 128);
        let side = LinkSide::Responder { tls_certificate: &made.certificate };
        let certs = keys.certs(&mut stream(1, 0, "name"), side, NOW).unwrap();
        let identity = x509_cert::Certificate::from_der(&certs[0].1).unwrap().tbs_certificate;
        assert_eq!(identity.subject, content.issuer, "the same signs both");
    }

    #[test]
    fn a_debug_form_shows_no_secret() {
        assert_eq!(format!("{:?}", keys(7)), "RelayKeys { .. }");
    }
}
