//! The cryptographic primitives of Tor's protocols, each under one name.

use rand_core::CryptoRng;

pub use tor_llcrypto::cipher::aes::{Aes128Ctr, Aes256Ctr};
pub use tor_llcrypto::d::{Sha1, Sha3_256, Sha256, Shake256, Shake256Reader};
pub use tor_llcrypto::pk::{curve25519, ed25519, rsa};

/// Generates a curve25519 key pair from the randomness of `rng`.
pub fn new_curve_keys(rng: &mut dyn CryptoRng) -> CurveKeys {
    CurveKeys::from(random(rng))
}

/// Returns `N` random bytes from `rng`.
pub fn random<const N: usize>(rng: &mut dyn CryptoRng) -> [u8; N] {
    let mut bytes = [0; N];
    rng.fill_bytes(&mut bytes);
    bytes
}

/// A curve25519 key pair: an onion key, or a key for a single handshake.
#[derive(Clone)]
pub struct CurveKeys {
    secret: curve25519::StaticSecret,
    pub(crate) public: [u8; 32],
}

impl CurveKeys {
    /// Returns the public half.
    pub fn public(&self) -> &[u8; 32] {
        &self.public
    }

    /// Returns the secret half, for storage.
    pub fn secret(&self) -> &[u8; 32] {
        self.secret.as_bytes()
    }

    /// Returns the secret shared with the owner of the public key `peer`. Returns `None` if `peer`
    /// has low order, so that the secret would be predictable.
    pub fn agree(&self, peer: &[u8; 32]) -> Option<[u8; 32]> {
        let shared = self.secret.diffie_hellman(&(*peer).into());
        shared.was_contributory().then(|| *shared.as_bytes())
    }
}

impl From<[u8; 32]> for CurveKeys {
    /// Computes the key pair from its secret half.
    fn from(secret: [u8; 32]) -> CurveKeys {
        let secret = curve25519::StaticSecret::from(secret);
        let public = curve25519::PublicKey::from(&secret).to_bytes();
        CurveKeys { secret, public }
    }
}

impl std::fmt::Debug for CurveKeys {
    /// Prints the pair without its secret half.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CurveKeys").field("public", &self.public).finish_non_exhaustive()
    }
}
