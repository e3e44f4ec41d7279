//! The handshake: Noise IKpsk2 (noiseprotocol.org, revision 34), as WireGuard uses it, implemented
//! by `snow`.
//!
//! The handshake takes one round trip. The near end's static key is hidden, and both ends are
//! authenticated. Each handshake replaces the keys of the previous handshake (forward secrecy).
//! The second message mixes in the shared secret.

use rand_core::CryptoRng;
use snow::{Builder, HandshakeState};

use crate::keys::{KeyPair, Psk, PublicKey};
use crate::suite::{params, resolver};

/// Noise prologue: bytes that both ends mix into the handshake. The handshake fails unless both
/// use this protocol in this version.
const PROLOGUE: &[u8] = b"anabranch far end 1";

/// Creates the near end's (initiator's) state of a handshake.
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
    built.expect("the builder has all keys that the Noise pattern needs")
}

/// Creates the far end's (responder's) state of a handshake. Its shared secret is set later, when
/// the first message has shown which client sent it.
pub(crate) fn responder(own: &KeyPair, rng: &mut impl CryptoRng) -> HandshakeState {
    let builder = Builder::with_resolver(params(), resolver(rng)).local_private_key(own.secret());
    let builder = builder.and_then(|builder| builder.prologue(PROLOGUE));
    let built = builder.and_then(|builder| builder.psk(2, &[0; 32])?.build_responder());
    built.expect("the builder has all keys that the Noise pattern needs")
}
