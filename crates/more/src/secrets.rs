//! The keys that a hop and a packet's sender derive from their shared secret.

use std::array;

use aws_lc_rs::cipher::{AES_128, DecryptingKey, DecryptionContext, UnboundCipherKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use aws_lc_rs::iv::FixedLength;
use sphinx_packet::constants::{
    BLINDING_FACTOR_SIZE, EXPANDED_SHARED_SECRET_HKDF_INFO, EXPANDED_SHARED_SECRET_HKDF_SALT,
    EXPANDED_SHARED_SECRET_LENGTH, HEADER_INTEGRITY_MAC_SIZE, IDENTIFIER_LENGTH,
    INTEGRITY_MAC_KEY_SIZE, PAYLOAD_KEY_SEED_SIZE, PAYLOAD_KEY_SIZE, REPLAY_TAG_SIZE,
    STREAM_CIPHER_OUTPUT_LENGTH,
};
use sphinx_packet::crypto::STREAM_CIPHER_KEY_SIZE;
use sphinx_packet::header::routing::ENCRYPTED_ROUTING_INFO_SIZE;
use sphinx_packet::payload::key::PayloadKeySeed;

/// Length of a reply block's identifier in bytes. The identifier shows the client which reply
/// block a reply uses.
pub(crate) const IDENTIFIER: usize = IDENTIFIER_LENGTH;
/// Length in bytes of the encrypted routing information at the end of a header.
pub(crate) const ROUTING: usize = ENCRYPTED_ROUTING_INFO_SIZE;
/// Length in bytes of a header's MAC.
pub(crate) const MAC: usize = HEADER_INTEGRITY_MAC_SIZE;
/// Length in bytes of the key stream that encrypts a header. It covers the routing information
/// ([`ROUTING`] bytes), and the bytes of one hop that a relay appends.
pub(crate) const KEY_STREAM: usize = STREAM_CIPHER_OUTPUT_LENGTH;

/// All keys of one hop for one packet, as the output bytes of a key derivation function.
pub(crate) struct Secrets([u8; EXPANDED_SHARED_SECRET_LENGTH]);

/// Position in [`Secrets`] of the key of the header's cipher.
const CIPHER_KEY: usize = 0;
/// Position in [`Secrets`] of the key of the header's MAC.
const MAC_KEY: usize = CIPHER_KEY + STREAM_CIPHER_KEY_SIZE;
/// Position in [`Secrets`] of the seed of the payload's key.
const PAYLOAD_KEY: usize = MAC_KEY + INTEGRITY_MAC_KEY_SIZE;
/// Position in [`Secrets`] of the factor that converts the header's X25519 point to the point for
/// the next hop.
const BLINDING_FACTOR: usize = PAYLOAD_KEY + PAYLOAD_KEY_SIZE;
/// Position in [`Secrets`] of the packet's tag, a hash that reveals replays.
const TAG: usize = BLINDING_FACTOR + BLINDING_FACTOR_SIZE;
const _: () = assert!(TAG + REPLAY_TAG_SIZE == EXPANDED_SHARED_SECRET_LENGTH);

impl Secrets {
    /// Derives all keys of a hop from its X25519 secret with the packet's sender. Returns `None`
    /// if the crate `aws-lc-rs` fails.
    pub(crate) fn expand(shared: &[u8]) -> Option<Secrets> {
        let mut expanded = [0; EXPANDED_SHARED_SECRET_LENGTH];
        let key = Salt::new(HKDF_SHA256, EXPANDED_SHARED_SECRET_HKDF_SALT).extract(shared);
        let info = [EXPANDED_SHARED_SECRET_HKDF_INFO];
        key.expand(&info, Length(expanded.len())).ok()?.fill(&mut expanded).ok()?;
        Some(Secrets(expanded))
    }

    fn part<const N: usize>(&self, from: usize) -> [u8; N] {
        array::from_fn(|at| self.0[from + at])
    }

    /// XORs `bytes`, at most [`KEY_STREAM`] bytes, with the header's key stream. Returns `None` if
    /// the crate `aws-lc-rs` fails.
    pub(crate) fn apply(&self, bytes: &mut [u8]) -> Option<()> {
        let key = self.part::<STREAM_CIPHER_KEY_SIZE>(CIPHER_KEY);
        let key = DecryptingKey::ctr(UnboundCipherKey::new(&AES_128, &key).ok()?).ok()?;
        let context = DecryptionContext::Iv128(FixedLength::from([0; 16]));
        key.decrypt(bytes, context).ok().map(drop)
    }

    /// Returns the MAC of a header's routing information.
    pub(crate) fn mac(&self, routing: &[u8; ROUTING]) -> [u8; MAC] {
        let key = hmac::Key::new(HMAC_SHA256, &self.part::<INTEGRITY_MAC_KEY_SIZE>(MAC_KEY));
        let mac = hmac::sign(&key, routing);
        array::from_fn(|at| mac.as_ref()[at])
    }

    /// Returns the seed from which the hop's payload key is derived.
    pub(crate) fn payload_seed(&self) -> PayloadKeySeed {
        self.part::<PAYLOAD_KEY_SEED_SIZE>(PAYLOAD_KEY)
    }

    /// Returns the factor that converts the header's X25519 point to the point for the next hop.
    pub(crate) fn blinding_factor(&self) -> [u8; BLINDING_FACTOR_SIZE] {
        self.part(BLINDING_FACTOR)
    }

    /// Returns the first 8 bytes of the packet's tag, a hash that reveals replays.
    pub(crate) fn tag(&self) -> u64 {
        u64::from_be_bytes(self.part(TAG))
    }
}

/// Requested output length of HKDF in bytes, in the form that `aws-lc-rs` expects.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}
