//! TLS 1.3 links that begin without a handshake, with secrets that the test knows, and a peer that
//! encrypts any record with their keys.
//!
//! The peer's record layer follows RFC 8446 (sections 5.2, 7.1 to 7.3), and shares no code with
//! the links' record layer. A link that decrypts the peer's records is thus checked against a
//! second implementation.

use anabranch_links::tls::{AgreedSecrets, Tls};
use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use aws_lc_rs::hkdf::{self, HKDF_SHA256, HKDF_SHA384, KeyType, Prk};
use rustls::SupportedCipherSuite;
use rustls::crypto::aws_lc_rs::cipher_suite::{
    TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
};

/// Number of TLS 1.3 cipher suites that are tested.
pub const SUITE_COUNT: usize = 3;

/// TLS content type of handshake messages (RFC 8446, B.1).
const HANDSHAKE: u8 = 22;
/// TLS content type of application data (RFC 8446, B.1).
const DATA: u8 = 23;
/// Type of the handshake message KeyUpdate (RFC 8446, B.3).
const KEY_UPDATE: u8 = 24;
/// Size in bytes of a record's authentication tag, with all cipher suites.
const TAG: usize = 16;

/// The role of an object in a TLS connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that opened the connection.
    Client,
    /// The end that accepted the connection.
    Server,
}

/// Returns an open TLS 1.3 link with the cipher suite of index `suite`. The link changes its key
/// after `limit` records, or at the limit of the cipher suite if that is lower.
#[must_use]
pub fn open_link(role: Role, suite: usize, limit: Option<u64>) -> Tls {
    let length = Suite::of(suite).length;
    let (client, server) = (secret(Role::Client, length), secret(Role::Server, length));
    let exporter = vec![3; length];
    let agreed = AgreedSecrets {
        suite: Suite::of(suite).suite,
        client: &client,
        server: &server,
        exporter: &exporter,
    };
    Tls::after_handshake(&agreed, role == Role::Client, limit).expect("a suite of TLS 1.3")
}

fn secret(role: Role, length: usize) -> Vec<u8> {
    vec![if role == Role::Client { 1 } else { 2 }; length]
}

/// A cipher suite of TLS 1.3 and its primitives.
#[derive(Clone, Copy)]
struct Suite {
    suite: SupportedCipherSuite,
    aead: &'static Algorithm,
    hash: hkdf::Algorithm,
    /// Size in bytes of the output of the suite's hash function.
    length: usize,
}

impl Suite {
    fn of(number: usize) -> Suite {
        let (suite, aead, hash, length) = match number {
            0 => (TLS13_AES_256_GCM_SHA384, &AES_256_GCM, HKDF_SHA384, 48),
            1 => (TLS13_AES_128_GCM_SHA256, &AES_128_GCM, HKDF_SHA256, 32),
            2 => (TLS13_CHACHA20_POLY1305_SHA256, &CHACHA20_POLY1305, HKDF_SHA256, 32),
            _ => panic!("there are {SUITE_COUNT} suites"),
        };
        Suite { suite, aead, hash, length }
    }

    /// Computes HKDF-Expand-Label with an empty context (RFC 8446, section 7.1).
    fn expand(&self, secret: &[u8], label: &[u8], length: usize) -> Vec<u8> {
        let label = [b"tls13 ", label].concat();
        let info = [&[0, length as u8, label.len() as u8][..], &label, &[0]];
        let mut out = vec![0; length];
        let prk = Prk::new_less_safe(self.hash, secret);
        let expanded = prk.expand(&info, Length(length)).and_then(|okm| okm.fill(&mut out));
        expanded.expect("the length is below HKDF's limit of 255 hashes");
        out
    }
}

/// A length in bytes, in the type that the cryptographic library requires.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// A peer of [`open_link`] that can encrypt TLS records of any type and content, also invalid
/// ones.
pub struct RawTlsPeer {
    suite: Suite,
    secret: Vec<u8>,
    key: LessSafeKey,
    iv: Vec<u8>,
    /// Sequence number of the next record, from which its nonce is derived.
    number: u64,
    /// Minimum length of a KeyUpdate's content in bytes.
    update: usize,
}

impl RawTlsPeer {
    /// Creates a peer that plays the end `role`, with the cipher suite number `suite`.
    #[must_use]
    pub fn new(role: Role, suite: usize) -> RawTlsPeer {
        let suite = Suite::of(suite);
        RawTlsPeer::keyed(secret(role, suite.length), suite, 0)
    }

    /// Derives the keys for a traffic secret (RFC 8446, section 7.3).
    fn keyed(secret: Vec<u8>, suite: Suite, update: usize) -> RawTlsPeer {
        let key = suite.expand(&secret, b"key", suite.aead.key_len());
        let key = UnboundKey::new(suite.aead, &key).expect("a key of the suite's length");
        let iv = suite.expand(&secret, b"iv", 12);
        RawTlsPeer { suite, secret, key: LessSafeKey::new(key), iv, number: 0, update }
    }

    /// Encrypts a TLS record with at most 65,000 bytes of content, and `padding` zeros after the
    /// content type.
    pub fn record(&mut self, kind: u8, content: &[u8], padding: usize) -> Vec<u8> {
        let mut inner = [content, &[kind]].concat();
        inner.resize(inner.len() + padding, 0);
        let [high, low] = ((inner.len() + TAG) as u16).to_be_bytes();
        let header = [DATA, 3, 3, high, low];
        let sealed = self.key.seal_in_place_append_tag(self.nonce(), Aad::from(header), &mut inner);
        sealed.expect("a record is much shorter than the limit of an AEAD");
        self.number += 1;
        [&header[..], &inner].concat()
    }

    /// Returns the nonce of the next record: the IV XOR the record's sequence number (RFC 8446,
    /// section 5.3).
    fn nonce(&self) -> Nonce {
        let number = u128::from(self.number).to_be_bytes();
        Nonce::assume_unique_for_key(std::array::from_fn(|place| {
            self.iv[place] ^ number[4 + place]
        }))
    }

    /// Pads each KeyUpdate with zeros to at least `content` bytes.
    pub fn pad_updates(&mut self, content: usize) {
        self.update = content;
    }

    /// Seals a KeyUpdate message (RFC 8446, section 4.6.3). Later records use new keys. If
    /// `requested`, the message asks the other end for a KeyUpdate, too.
    pub fn update(&mut self, requested: bool) -> Vec<u8> {
        let content = [KEY_UPDATE, 0, 0, 1, u8::from(requested)];
        let record = self.record(HANDSHAKE, &content, self.update.saturating_sub(content.len()));
        let next = self.suite.expand(&self.secret, b"traffic upd", self.suite.length);
        *self = RawTlsPeer::keyed(next, self.suite, self.update);
        record
    }
}
