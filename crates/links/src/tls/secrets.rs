//! The secrets of a TLS 1.3 connection, and the keys derived from them (RFC 8446, section 7).
//!
//! The TLS library `rustls` performs the handshake. It passes both traffic secrets and the
//! exporter secret to the connection's own [`SecretKeeper`]. Keys, IVs, later secrets and exported
//! keying material are derived here.

use std::sync::{Mutex, PoisonError};

use aws_lc_rs::digest;
use aws_lc_rs::hkdf::{Algorithm, HKDF_SHA256, HKDF_SHA384, KeyType, Okm, Prk};
use rustls::KeyLog;

/// Prefix of every TLS 1.3 label.
const PREFIX: &[u8] = b"tls13 ";
/// Maximum length in bytes of a label without the prefix. One byte holds the length of prefix and
/// label together.
const LONGEST_LABEL: usize = 255 - PREFIX.len();

/// One secret of a connection, stored as a type of the crypto library `aws-lc-rs`, which erases
/// the secret from memory when it is dropped.
pub(super) struct Secret {
    prk: Prk,
    hash: Hash,
}

/// The hash of a cipher suite.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hash {
    Sha256,
    Sha384,
}

impl Hash {
    /// Returns the hash function whose output has the length of `secret`; `None` if there is none.
    /// All secrets of a suite have the same length.
    fn of(secret: &[u8]) -> Option<Hash> {
        match secret.len() {
            32 => Some(Hash::Sha256),
            48 => Some(Hash::Sha384),
            _ => None,
        }
    }

    fn hkdf(self) -> Algorithm {
        match self {
            Hash::Sha256 => HKDF_SHA256,
            Hash::Sha384 => HKDF_SHA384,
        }
    }

    fn digest(self, bytes: &[u8]) -> digest::Digest {
        let algorithm = match self {
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha384 => &digest::SHA384,
        };
        digest::digest(algorithm, bytes)
    }
}

impl Secret {
    /// Wraps a secret; returns `None` if no TLS 1.3 suite has secrets of its length.
    pub(super) fn new(secret: &[u8]) -> Option<Secret> {
        let hash = Hash::of(secret)?;
        Some(Secret { prk: Prk::new_less_safe(hash.hkdf(), secret), hash })
    }

    /// Returns the traffic secret that follows this one after a KeyUpdate (RFC 8446, section 7.2).
    pub(super) fn next(&self) -> Secret {
        let prk = self.derive(b"traffic upd", &[], self.hash.hkdf());
        Secret { prk, hash: self.hash }
    }

    /// Computes HKDF-Expand-Label (RFC 8446, section 7.1). Returns the result as a key of another
    /// algorithm.
    pub(super) fn derive<L, K>(&self, label: &[u8], context: &[u8], length: L) -> K
    where
        L: KeyType,
        K: for<'a> From<Okm<'a, L>>,
    {
        self.expand(label, context, length, |okm| okm.into())
    }

    /// Computes HKDF-Expand-Label (RFC 8446, section 7.1), and writes the result to `out`.
    pub(super) fn fill(&self, label: &[u8], context: &[u8], out: &mut [u8]) {
        let length = Length(out.len());
        let filled = self.expand(label, context, length, |okm| okm.fill(out));
        filled.expect("the buffer has the requested length");
    }

    /// Returns exported keying material (RFC 8446, section 7.5). `self` must be the exporter
    /// secret. Returns `None` if the label is longer than 249 bytes.
    pub(super) fn export(&self, label: &[u8], context: &[u8]) -> Option<[u8; 32]> {
        if label.len() > LONGEST_LABEL {
            return None;
        }
        let empty = self.hash.digest(&[]);
        let prk = self.derive(label, empty.as_ref(), self.hash.hkdf());
        let mut material = [0; 32];
        let own = Secret { prk, hash: self.hash };
        own.fill(b"exporter", self.hash.digest(context).as_ref(), &mut material);
        Some(material)
    }

    fn expand<L: KeyType, T>(
        &self,
        label: &[u8],
        context: &[u8],
        length: L,
        made: impl FnOnce(Okm<'_, L>) -> T,
    ) -> T {
        // All lengths are below 256, because they are lengths of keys, hashes and labels.
        let bytes = [0, length.len() as u8, (PREFIX.len() + label.len()) as u8];
        let info = [&bytes[..], PREFIX, label, &[context.len() as u8], context];
        made(
            self.prk.expand(&info, length).expect("the length is below HKDF's limit of 255 hashes"),
        )
    }
}

/// A length in bytes, as a type that the crypto library `aws-lc-rs` requires.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// The secrets that a handshake yields.
pub(super) struct TrafficSecrets {
    pub(super) client: Secret,
    pub(super) server: Secret,
    pub(super) exporter: Secret,
}

/// Store for the secrets of one connection, in memory only. The TLS library `rustls` passes the
/// secrets to it.
#[derive(Default)]
pub(super) struct SecretKeeper(Mutex<StoredKeys>);

#[derive(Default)]
struct StoredKeys {
    client: Option<Secret>,
    server: Option<Secret>,
    exporter: Option<Secret>,
}

impl StoredKeys {
    fn place(&mut self, label: &str) -> Option<&mut Option<Secret>> {
        match label {
            "CLIENT_TRAFFIC_SECRET_0" => Some(&mut self.client),
            "SERVER_TRAFFIC_SECRET_0" => Some(&mut self.server),
            "EXPORTER_SECRET" => Some(&mut self.exporter),
            _ => None,
        }
    }
}

impl SecretKeeper {
    /// Returns all three secrets at the first call. Returns `None` at later calls, before the
    /// handshake is done, and for TLS 1.2.
    pub(super) fn take(&self) -> Option<TrafficSecrets> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let StoredKeys { client, server, exporter } = std::mem::take(&mut *kept);
        Some(TrafficSecrets { client: client?, server: server?, exporter: exporter? })
    }
}

impl KeyLog for SecretKeeper {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = kept.place(label) {
            *place = Secret::new(secret);
        }
    }

    fn will_log(&self, label: &str) -> bool {
        StoredKeys::default().place(label).is_some()
    }
}

impl std::fmt::Debug for SecretKeeper {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("SecretKeeper")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 32] = [7; 32];

    #[test]
    fn only_hashes_of_tls_13_are_secrets() {
        for length in 0..65 {
            let secret = vec![1; length];
            assert_eq!(Secret::new(&secret).is_some(), length == 32 || length == 48, "{length}");
        }
    }

    #[test]
    fn a_keeper_gives_all_three_secrets_once_and_keeps_no_others() {
        let keeper = SecretKeeper::default();
        for label in ["CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0", "CLIENT_RANDOM"] {
            keeper.log(label, &[], &SECRET);
        }
        assert!(keeper.take().is_none(), "one is missing");
        for label in ["CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0", "EXPORTER_SECRET"] {
            assert!(keeper.will_log(label));
            keeper.log(label, &[], &SECRET);
        }
        assert!(!keeper.will_log("CLIENT_RANDOM"));
        assert!(keeper.take().is_some());
        assert!(keeper.take().is_none());
    }

    #[test]
    fn a_label_too_long_for_its_length_byte_exports_nothing() {
        let secret = Secret::new(&SECRET).unwrap();
        assert!(secret.export(&[b'a'; LONGEST_LABEL], b"").is_some());
        assert!(secret.export(&[b'a'; LONGEST_LABEL + 1], b"").is_none());
    }

    #[test]
    fn a_debug_form_shows_no_secret() {
        let keeper = SecretKeeper::default();
        keeper.log("EXPORTER_SECRET", &[], &SECRET);
        assert_eq!(format!("{keeper:?}"), "SecretKeeper");
    }
}
