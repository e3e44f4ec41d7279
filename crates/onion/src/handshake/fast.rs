//! CREATE_FAST: a handshake without public keys, protected only by the link's encryption
//! (tor-spec, "CREATE_FAST/CREATED_FAST cells").

use digest::Digest;
use rand_core::CryptoRng;
use subtle::ConstantTimeEq;

use super::{Accepted, HandshakeError};
use crate::crypto::{KEY_BYTES, KeyMaterial};
use crate::wire::crypto::{Sha1, random};

/// Length in bytes of the random value of each side, and of the relay's proof.
const HALF: usize = 20;

/// A client's side of the handshake while it waits for the answer.
pub struct Client {
    ours: [u8; HALF],
}

impl Client {
    /// Starts a handshake. Returns the client's side, and the body of its CREATE_FAST cell.
    pub fn start(rng: &mut dyn CryptoRng) -> (Client, Vec<u8>) {
        let ours = random(rng);
        (Client { ours }, ours.to_vec())
    }

    /// Handles the body of CREATED_FAST.
    ///
    /// # Errors
    /// [`HandshakeError`] if `created` is truncated, or does not prove that its sender knows our
    /// random value.
    pub fn finish(self, created: &[u8]) -> Result<KeyMaterial, HandshakeError> {
        let (theirs, rest) =
            created.split_first_chunk::<HALF>().ok_or(HandshakeError::Malformed)?;
        let (proof, keys) = derive(&self.ours, theirs);
        let claimed = rest.get(..HALF).ok_or(HandshakeError::Malformed)?;
        if bool::from(claimed.ct_eq(&proof)) { Ok(keys) } else { Err(HandshakeError::NotAuthentic) }
    }
}

/// Performs the relay's side of the handshake.
///
/// # Errors
/// [`HandshakeError::Malformed`] if the client's random value is truncated.
pub fn accept(rng: &mut dyn CryptoRng, create: &[u8]) -> Result<Accepted, HandshakeError> {
    let theirs = create.first_chunk::<HALF>().ok_or(HandshakeError::Malformed)?;
    let ours: [u8; HALF] = random(rng);
    let (proof, keys) = derive(theirs, &ours);
    Ok(Accepted { reply: [ours, proof].concat(), keys, nonce: proof })
}

/// Derives the proof and the keys by KDF-TOR: SHA-1 over the random values of both sides and a
/// counter.
fn derive(client: &[u8; HALF], relay: &[u8; HALF]) -> ([u8; HALF], KeyMaterial) {
    let mut stream = [0; HALF + KEY_BYTES + 8];
    for (counter, block) in (0u8..).zip(stream.chunks_mut(HALF)) {
        let digest = Sha1::new().chain_update(client).chain_update(relay).chain_update([counter]);
        block.copy_from_slice(&digest.finalize());
    }
    let (proof, keys) =
        stream.split_first_chunk().expect("the key material is longer than the proof");
    (*proof, KeyMaterial::from(keys.first_chunk().expect("enough key material follows the proof")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_multipath::seed;

    #[test]
    fn both_sides_agree() {
        let mut rng = seed::stream(1, 0, "fast");
        let (client, create) = Client::start(&mut rng);
        let accepted = accept(&mut rng, &create).unwrap();
        assert!(client.finish(&accepted.reply).unwrap() == accepted.keys);
    }

    #[test]
    fn a_wrong_proof_is_refused() {
        let mut rng = seed::stream(2, 0, "fast");
        let (client, create) = Client::start(&mut rng);
        let mut reply = accept(&mut rng, &create).unwrap().reply;
        reply[30] ^= 1;
        assert!(client.finish(&reply).is_err_and(|e| e == HandshakeError::NotAuthentic));
    }
}
