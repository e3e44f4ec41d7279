//! The disguise of packets: keys derived from the far end's public key hide handshake messages and
//! packet IDs. Without that public key, nobody can recognise packets of this protocol.
//!
//! The disguise does not protect the content: every client of the far end knows the public key. It
//! hides fields at fixed offsets from observers. It also lets the far end ignore senders that do
//! not know its public key.

use aws_lc_rs::aead::quic::{AES_128, HeaderProtectionKey};
use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk, Salt};
use rand_core::CryptoRng;

use crate::keys::PublicKey;

/// Length of a nonce, in bytes.
pub(crate) const NONCE: usize = 12;
/// Length of an AEAD tag in bytes.
const TAG: usize = 16;
/// Maximum length of a packet with a handshake message, in bytes. Longer packets are ignored.
const LONGEST: usize = 512;

/// The keys that are derived from a far end's public key.
pub(crate) struct Disguise {
    ids: HeaderProtectionKey,
    handshakes: LessSafeKey,
}

impl Disguise {
    pub(crate) fn of(far: &PublicKey) -> Disguise {
        let prk = Salt::new(HKDF_SHA256, b"anabranch far end disguise").extract(&far.0);
        let handshakes = UnboundKey::new(&CHACHA20_POLY1305, &derived::<32>(&prk, b"handshakes"));
        Disguise {
            ids: mask_key(&prk, b"ids"),
            handshakes: LessSafeKey::new(handshakes.expect("a key of 32 bytes")),
        }
    }

    /// Returns the mask that hides a packet's ID. `sample` is 16 bytes of the packet's ciphertext
    /// (RFC 9001, section 5.4.2).
    pub(crate) fn id_mask(&self, sample: &[u8]) -> [u8; 4] {
        mask(&self.ids, sample)
    }

    /// Encrypts a handshake message with a random nonce, and returns the packet that contains
    /// both.
    pub(crate) fn hide(&self, message: &[u8], rng: &mut impl CryptoRng) -> Vec<u8> {
        let mut nonce = [0; NONCE];
        rng.fill_bytes(&mut nonce);
        let mut packet = [&nonce[..], message].concat();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let body = &mut packet[NONCE..];
        let tag = self.handshakes.seal_in_place_separate_tag(nonce, Aad::empty(), body);
        packet.extend_from_slice(
            tag.expect("a message is shorter than the limit of the AEAD").as_ref(),
        );
        packet
    }

    /// Decrypts the handshake message in `packet`. Returns `None` if the packet is no handshake,
    /// or if its sender does not know the far end's public key.
    pub(crate) fn find(&self, packet: &[u8]) -> Option<Vec<u8>> {
        let (nonce, body) = packet.split_first_chunk::<NONCE>()?;
        let (body, tag) = body.split_last_chunk::<TAG>().filter(|_| packet.len() <= LONGEST)?;
        let (nonce, mut message) = (Nonce::assume_unique_for_key(*nonce), vec![0; body.len()]);
        let opened =
            self.handshakes.open_separate_gather(nonce, Aad::empty(), body, tag, &mut message);
        opened.ok().map(|()| message)
    }
}

/// Derives a key that hides header fields, for the purpose `label`.
pub(crate) fn mask_key(prk: &Prk, label: &[u8]) -> HeaderProtectionKey {
    HeaderProtectionKey::new(&AES_128, &derived::<16>(prk, label)).expect("a key of 16 bytes")
}

/// Returns the four bytes that hide a field, computed from `sample`.
pub(crate) fn mask(key: &HeaderProtectionKey, sample: &[u8]) -> [u8; 4] {
    let [a, b, c, d, _] = key.new_mask(sample).expect("a sample has 16 bytes");
    [a, b, c, d]
}

/// Derives a key of `N` bytes for the purpose `label`.
pub(crate) fn derived<const N: usize>(prk: &Prk, label: &[u8]) -> [u8; N] {
    struct Length(usize);
    impl aws_lc_rs::hkdf::KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let (mut key, label) = ([0; N], [label]);
    let filled = prk.expand(&label, Length(N)).and_then(|okm| okm.fill(&mut key));
    filled.expect("the length of a key is below HKDF's limit");
    key
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed::stream;

    use super::*;

    #[test]
    fn who_knows_the_public_key_reads_and_others_do_not() {
        let (ours, other) = (Disguise::of(&PublicKey([1; 32])), Disguise::of(&PublicKey([2; 32])));
        let packet = ours.hide(b"hello", &mut stream(1, 0, "disguise"));
        assert_eq!(packet.len(), NONCE + 5 + 16);
        assert_eq!(ours.find(&packet), Some(b"hello".to_vec()));
        assert_eq!(other.find(&packet), None);
        for place in 0..packet.len() {
            let mut changed = packet.clone();
            changed[place] ^= 1;
            assert_eq!(ours.find(&changed), None, "byte {place}");
        }
        assert_eq!(ours.find(&[0; 5]), None);
        let long = ours.hide(&[0; LONGEST], &mut stream(1, 0, "disguise"));
        assert_eq!(ours.find(&long), None);
    }
}
