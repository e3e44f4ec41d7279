//! The primitives that Tor's constructions are made of, by one name each.

use rand_core::CryptoRng;

pub use tor_llcrypto::cipher::aes::{Aes128Ctr, Aes256Ctr};
pub use tor_llcrypto::d::{Sha1, Sha3_256, Sha256, Shake256, Shake256Reader};
pub use tor_llcrypto::pk::{curve25519, ed25519, rsa};

/// A curve25519 key pair from the caller's generator.
pub fn new_curve_keys(rng: &mut dyn CryptoRng) -> CurveKeys {
    CurveKeys::from(random(rng))
}

/// As many random bytes as the caller's type holds.
pub fn random<const N: usize>(rng: &mut dyn CryptoRng) -> [u8; N] {
    let mut bytes = [0; N];
    rng.fill_bytes(&mut bytes);
    bytes
}

/// A curve25519 key pair: an onion key, or one for a single handshake.
#[derive(Clone)]
pub struct CurveKeys {
    secret: curve25519::StaticSecret,
    pub(crate) public: [u8; 32],
}

impl CurveKeys {
    /// The public half.
    pub fn public(&self) -> &[u8; 32] {
        &self.public
    }

    /// The secret half, for keeping on disk.
    pub fn secret(&self) -> &[u8; 32] {
        self.secret.as_bytes()
    }

    /// What both ends of an exchange compute; `None` if the peer's key forces a degenerate result.
    pub fn agree(&self, peer: &[u8; 32]) -> Option<[u8; 32]> {
        let shared = self.secret.diffie_hellman(&(*peer).into());
        shared.was_contributory().then(|| *shared.as_bytes())
    }
}

impl From<[u8; 32]> for CurveKeys {
    /// The pair with this secret half.
    fn from(secret: [u8; 32]) -> CurveKeys {
        let secret = curve25519::StaticSecret::from(secret);
        let public = curve25519::PublicKey::from(&secret).to_bytes();
        CurveKeys { secret, public }
    }
}

impl std::fmt::Debug for CurveKeys {
    /// Without the secret half.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CurveKeys").field("public", &self.public).finish_non_exhaustive()
    }
}
