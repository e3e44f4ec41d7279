//! Keys that the two ends have before the handshake: a static X25519 key pair for each end, and a
//! shared secret.

use std::fmt;

use rand_core::CryptoRng;
use snow::Builder;

use crate::suite;

/// The secret that the two ends share before the handshake (pre-shared key; Noise, section 9). It
/// is all zeros if there is none.
pub type Psk = [u8; 32];

/// An end's public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; 32]);

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, ..] = self.0;
        write!(f, "PublicKey({a:02x}{b:02x}{c:02x}…)")
    }
}

/// An end's static key pair.
#[derive(Clone)]
pub struct KeyPair {
    secret: [u8; 32],
    /// The public key, which the other end has to know before the handshake.
    pub public: PublicKey,
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair").field("public", &self.public).finish_non_exhaustive()
    }
}

impl KeyPair {
    /// Generates a random key pair.
    #[must_use]
    pub fn generate(rng: &mut impl CryptoRng) -> KeyPair {
        let made = Builder::with_resolver(suite::params(), suite::resolver(rng)).generate_keypair();
        let pair = made.expect("the random number generator cannot fail");
        KeyPair { secret: whole(&pair.private), public: PublicKey(whole(&pair.public)) }
    }

    /// Returns the key pair that belongs to a secret key.
    #[must_use]
    pub fn of(secret: [u8; 32]) -> KeyPair {
        KeyPair { secret, public: PublicKey(suite::public_of(&secret)) }
    }

    /// Returns the secret key.
    #[must_use]
    pub fn secret(&self) -> &[u8; 32] {
        &self.secret
    }
}

fn whole(bytes: &[u8]) -> [u8; 32] {
    bytes.try_into().expect("X25519 keys have 32 bytes")
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed::stream;

    use super::*;

    #[test]
    fn a_pair_follows_from_its_secret_and_shows_none() {
        let pair = KeyPair::generate(&mut stream(1, 0, "keys"));
        assert_eq!(KeyPair::of(*pair.secret()).public, pair.public);
        let shown = format!("{pair:?}");
        assert!(!shown.contains("secret") && shown.len() < 60, "{shown}");
    }
}
