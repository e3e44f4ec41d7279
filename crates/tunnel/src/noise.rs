//! The handshake: Noise IKpsk2 (noiseprotocol.org, revision 34), as WireGuard uses it, by `snow`.
//!
//! One round trip. The near end's static key is hidden, both ends are authenticated, keys are
//! forgotten with each handshake (forward secrecy), and the shared secret is mixed in by the second
//! message.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rand_core::CryptoRng;
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{BoxedCryptoResolver, CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};

use crate::keys::{KeyPair, Psk, PublicKey};

const PATTERN: &str = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";
/// Both ends mean this protocol, and this version of it.
const PROLOGUE: &[u8] = b"anabranch far end 1";

/// What the pattern's text says.
pub(crate) fn params() -> NoiseParams {
    PATTERN.parse().expect("the pattern is well formed")
}

/// The library's primitives with a generator of ours: a core draws no entropy.
pub(crate) fn resolver(rng: &mut impl CryptoRng) -> BoxedCryptoResolver {
    let mut seed = [0; 32];
    rng.fill_bytes(&mut seed);
    Box::new(Seeded { seed })
}

/// The public key of a secret one.
pub(crate) fn public_of(secret: &[u8; 32]) -> [u8; 32] {
    let mut dh = DefaultResolver.resolve_dh(&DHChoice::Curve25519).expect("X25519 is built in");
    dh.set(secret);
    dh.pubkey().try_into().expect("X25519 keys have 32 bytes")
}

/// The near end's side.
pub(crate) fn initiator(
    own: &KeyPair,
    far: &PublicKey,
    psk: &Psk,
    rng: &mut impl CryptoRng,
) -> HandshakeState {
    let builder = Builder::with_resolver(params(), resolver(rng)).local_private_key(own.secret());
    let builder = builder.and_then(|builder| builder.remote_public_key(&far.0));
    let builder = builder.and_then(|builder| builder.prologue(PROLOGUE));
    let built = builder.and_then(|builder| builder.psk(2, psk)?.build_initiator());
    built.expect("all that the pattern needs is there")
}

/// The far end's side. The secret is set once the first message has told who speaks.
pub(crate) fn responder(own: &KeyPair, rng: &mut impl CryptoRng) -> HandshakeState {
    let builder = Builder::with_resolver(params(), resolver(rng)).local_private_key(own.secret());
    let builder = builder.and_then(|builder| builder.prologue(PROLOGUE));
    let built = builder.and_then(|builder| builder.psk(2, &[0; 32])?.build_responder());
    built.expect("all that the pattern needs is there")
}

struct Seeded {
    seed: [u8; 32],
}

impl CryptoResolver for Seeded {
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
