//! The handshake: Noise IKpsk2 (noiseprotocol.org, revision 34), as WireGuard uses it, by `snow`.
//!
//! One round trip. The near end's static key is hidden, both ends are authenticated, keys are
//! forgotten with each handshake (forward secrecy), and the shared secret is mixed in by the second
//! message.

use rand_core::CryptoRng;
use snow::{Builder, HandshakeState};

use crate::keys::{KeyPair, Psk, PublicKey};
use crate::suite::{params, resolver};

/// Both ends mean this protocol, and this version of it.
const PROLOGUE: &[u8] = b"anabranch far end 1";

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
