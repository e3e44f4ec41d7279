//! Links that agreed on known secrets without a handshake, and a peer that says under its keys
//! whatever a test wants: for tests, fuzzing and measurements alone.

use rustls::SupportedCipherSuite;
use rustls::crypto::aws_lc_rs::cipher_suite;
use rustls::pki_types::CertificateDer;

use super::keys::Cipher;
use super::records::{Handover, Records};
use super::sealer::Sealer;
use super::secrets::{Secret, TrafficSecrets};
use super::{Phase, Tls};

/// The suites of TLS 1.3, each with the bytes of its hash.
const SUITES: [(SupportedCipherSuite, usize); 3] = [
    (cipher_suite::TLS13_AES_256_GCM_SHA384, 48),
    (cipher_suite::TLS13_AES_128_GCM_SHA256, 32),
    (cipher_suite::TLS13_CHACHA20_POLY1305_SHA256, 32),
];

/// How many suites there are to choose among.
pub const SUITE_COUNT: usize = SUITES.len();

/// Which of two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Who opened the connection.
    Client,
    /// Who accepted it.
    Server,
}

/// An open link of TLS 1.3 with the suite of this number, whose key changes after `limit` records
/// if that is fewer than the suite's own limit.
#[must_use]
pub fn open_link(role: Role, suite: usize, limit: Option<u64>) -> Tls {
    let cipher = cipher(suite, limit);
    let secrets = TrafficSecrets {
        client: secret(Role::Client, suite),
        server: secret(Role::Server, suite),
        exporter: secret(Role::Client, suite).next(),
    };
    let is_client = role == Role::Client;
    let handover =
        Handover { secrets, cipher, is_client, sent: 0, received: 0, read: 0, out: Vec::new() };
    let own = CertificateDer::from(Vec::new());
    Tls::of(Phase::Records(Box::new(Records::new(handover))), own)
}

/// The peer of [`open_link`]: it seals records of any type and content.
pub struct Forger(Sealer);

impl Forger {
    /// The peer in this role.
    #[must_use]
    pub fn new(role: Role, suite: usize) -> Forger {
        Forger(Sealer::new(secret(role, suite), cipher(suite, None), 0, Vec::new()))
    }

    /// One record: its content of at most 65,000 bytes, and behind its type so many zeros.
    pub fn record(&mut self, kind: u8, content: &[u8], padding: usize) -> Vec<u8> {
        self.0.padded(kind, content, padding);
        self.taken()
    }

    /// From now on KeyUpdates have so many bytes of content, with zeros, if that is more.
    pub fn pad_updates(&mut self, content: usize) {
        self.0.send_fixed(content);
    }

    /// A KeyUpdate; what follows has new keys.
    pub fn update(&mut self, requested: bool) -> Vec<u8> {
        self.0.update(requested);
        self.taken()
    }

    fn taken(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.0.transmit(&mut out);
        out
    }
}

fn cipher(suite: usize, limit: Option<u64>) -> Cipher {
    let mut cipher = Cipher::of(SUITES[suite].0).expect("a suite of TLS 1.3");
    cipher.limit = limit.unwrap_or(cipher.limit).min(cipher.limit);
    cipher
}

fn secret(role: Role, suite: usize) -> Secret {
    let byte = if role == Role::Client { 1 } else { 2 };
    Secret::new(&vec![byte; SUITES[suite].1]).expect("as long as a hash")
}
