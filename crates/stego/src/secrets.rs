//! Derivation of the handshake's and the link's keys as a chain, with HKDF-SHA256 (RFC 5869).

use aws_lc_rs::digest;
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};

/// A key of 32 bytes.
pub(crate) type Key = [u8; 32];

/// The secrets that a link's handshake produces.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct LinkSecrets {
    /// Secret from which the keys of the blocks that the client sends are derived.
    pub(crate) up: Key,
    /// Secret from which the keys of the blocks that the server sends are derived.
    pub(crate) down: Key,
    /// Secret from which tokens are derived, the first bytes with which later connections join the
    /// link.
    pub(crate) tokens: Key,
    /// Whether blocks are encrypted with AES-256-GCM; otherwise with ChaCha20-Poly1305.
    pub(crate) aes: bool,
}

/// The key derivation of a handshake: the hash of all messages so far, and a key that depends on
/// all Diffie-Hellman secrets so far.
#[derive(Clone)]
pub(crate) struct Chain {
    transcript: Key,
    key: Key,
}

impl Chain {
    /// Begins the key derivation of a handshake, with the protocol's name and the server's public
    /// key.
    pub(crate) fn new(name: &[u8], server: &Key) -> Chain {
        Chain { transcript: hash(&[name, server]), key: [0; 32] }
    }

    /// Adds `bytes` of a message to the hash of the handshake's transcript.
    pub(crate) fn absorb(&mut self, bytes: &[u8]) {
        self.transcript = hash(&[&self.transcript, bytes]);
    }

    /// Mixes a shared secret into the key.
    pub(crate) fn learn(&mut self, shared: &Key) {
        let prk = Salt::new(HKDF_SHA256, &self.key).extract(shared);
        self.key = expand(&prk, b"chain", &self.transcript);
    }

    /// Returns the hash of the transcript.
    pub(crate) fn transcript(&self) -> &Key {
        &self.transcript
    }

    /// Derives a key for the named `purpose` from the handshake's shared secrets and its
    /// transcript.
    pub(crate) fn derive(&self, purpose: &[u8]) -> Key {
        expand(&Prk::new_less_safe(HKDF_SHA256, &self.key), purpose, &self.transcript)
    }
}

/// Derives a key for the named `purpose` from another key.
pub(crate) fn follow<const N: usize>(key: &Key, purpose: &[u8]) -> [u8; N] {
    expand(&Prk::new_less_safe(HKDF_SHA256, key), purpose, &[])
}

fn hash(parts: &[&[u8]]) -> Key {
    let mut context = digest::Context::new(&digest::SHA256);
    parts.iter().for_each(|part| context.update(part));
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

fn expand<const N: usize>(prk: &Prk, purpose: &[u8], context: &[u8]) -> [u8; N] {
    struct Length(usize);
    impl KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let (mut key, info) = ([0; N], [purpose, &[0], context]);
    let filled = prk.expand(&info, Length(N)).and_then(|okm| okm.fill(&mut key));
    filled.expect("the length of a key is below HKDF's limit");
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_tells_apart_what_was_said_what_is_known_and_what_for() {
        let chain = |name: &[u8], message: &[u8], known: u8| {
            let mut chain = Chain::new(name, &[1; 32]);
            chain.absorb(message);
            chain.learn(&[known; 32]);
            chain.derive(b"up")
        };
        let base = chain(b"a", b"x", 1);
        assert_eq!(chain(b"a", b"x", 1), base);
        for other in [chain(b"b", b"x", 1), chain(b"a", b"y", 1), chain(b"a", b"x", 2)] {
            assert_ne!(other, base);
        }
        assert_ne!(follow::<32>(&base, b"one"), follow::<32>(&base, b"two"));
    }
}
