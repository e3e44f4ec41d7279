//! The cryptographic primitives of the handshake. They come from the `snow` library, except for
//! the random generator: this crate has no source of entropy of its own.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rand_core::CryptoRng;
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{BoxedCryptoResolver, CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};

const PATTERN: &str = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";

/// Returns the parameters of the Noise protocol that [`PATTERN`] names.
pub(crate) fn params() -> NoiseParams {
    PATTERN.parse().expect("the name of the Noise pattern is valid")
}

/// Returns the primitives of `snow`, with a random generator seeded from `rng`.
pub(crate) fn resolver(rng: &mut impl CryptoRng) -> BoxedCryptoResolver {
    let mut seed = [0; 32];
    rng.fill_bytes(&mut seed);
    Box::new(SeededRng { seed })
}

/// Returns the public key that belongs to a secret key.
pub(crate) fn public_of(secret: &[u8; 32]) -> [u8; 32] {
    let mut dh = DefaultResolver
        .resolve_dh(&DHChoice::Curve25519)
        .expect("the Noise library includes X25519");
    dh.set(secret);
    dh.pubkey().try_into().expect("X25519 keys have 32 bytes")
}

struct SeededRng {
    seed: [u8; 32],
}

impl CryptoResolver for SeededRng {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Generator(ChaCha20Rng::from_seed(self.seed))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

struct Generator(ChaCha20Rng);

impl Random for Generator {
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), snow::Error> {
        self.0.fill_bytes(bytes);
        Ok(())
    }
}
