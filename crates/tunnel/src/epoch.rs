//! The keys that one handshake yields (an epoch). They encrypt and decrypt packets, and hide
//! packet numbers.
//!
//! ```text
//! packet = ID (4) · number (4) · AEAD(frame) · tag (16)
//! ```
//!
//! The AEAD is AES-256-GCM if both ends have instructions for it, else ChaCha20-Poly1305. The
//! nonce is the whole packet number (64 bits). The associated data are the ID and the packet
//! number before they are hidden.
//!
//! The ID and the packet number are then hidden as QUIC hides its packet numbers (RFC 9001,
//! section 5.4): with a mask from a sample of the ciphertext. The mask of the packet number uses a
//! key of this epoch. The mask of the ID uses a key derived from the far end's public key. Thus no
//! byte of a packet stays the same, or increases, from one packet to the next.
//!
//! The packets of all paths share one sequence of packet numbers. Each path has its own ID.

use anabranch_multipath::PathId;
use aws_lc_rs::aead::quic::HeaderProtectionKey;
use aws_lc_rs::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk};
use aws_lc_rs::hmac;

use crate::disguise::{Disguise, derived, mask, mask_key};

/// Number of bytes in a packet in addition to its content (the frame).
pub(crate) const OVERHEAD: usize = HEADER + TAG;
/// Length of a packet's header in bytes: the ID and the packet number.
const HEADER: usize = 8;
/// Length of an AEAD tag in bytes.
const TAG: usize = 16;
/// Length in bytes of the sample for header protection (RFC 9001, section 5.4.2).
const SAMPLE: usize = 16;

/// Identifier in a packet, from which the receiver finds the epoch (set of keys) and the path.
pub(crate) type Id = [u8; 4];

/// The keys that one handshake produces, for both directions.
pub(crate) struct Epoch {
    out: Direction,
    back: Direction,
}

struct Direction {
    aead: LessSafeKey,
    number: HeaderProtectionKey,
    ids: Vec<Id>,
}

impl Epoch {
    /// Creates an epoch from the two keys that a handshake yields: `out` encrypts packets that we
    /// send, `back` decrypts packets of the other end. IDs are derived for `paths` paths. If `aes`
    /// is true, packets are encrypted with AES-256-GCM, otherwise with ChaCha20-Poly1305.
    pub(crate) fn new(out: &[u8; 32], back: &[u8; 32], paths: u16, aes: bool) -> Epoch {
        Epoch { out: Direction::new(out, paths, aes), back: Direction::new(back, paths, aes) }
    }

    /// Returns the IDs of the other end's packets, one per path.
    pub(crate) fn ids(&self) -> &[Id] {
        &self.back.ids
    }

    /// Encrypts `frame` (the content of a packet), and appends the packet to `out`. Each `number`
    /// may be used only once with the keys of this epoch. Returns `None` if the epoch has no ID
    /// for `path`.
    pub(crate) fn seal(
        &self,
        disguise: &Disguise,
        path: PathId,
        number: u64,
        frame: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let id = self.out.ids.get(path.index())?;
        let start = out.len();
        out.reserve(OVERHEAD + frame.iter().map(|part| part.len()).sum::<usize>());
        out.extend_from_slice(id);
        out.extend_from_slice(&short(number));
        frame.iter().for_each(|part| out.extend_from_slice(part));
        let (header, body) = out[start..].split_at_mut(HEADER);
        let aad = Aad::from(&*header);
        let tag = self.out.aead.seal_in_place_separate_tag(nonce(number), aad, body).ok()?;
        out.extend_from_slice(tag.as_ref());
        self.out.hide(disguise, &mut out[start..]);
        Some(())
    }

    /// Decrypts a packet with the identifier `id`, one of [`Epoch::ids`]. Writes the packet's
    /// content to the start of `frame`. Returns the packet number, and the length of the content.
    /// `near` is a number close to the expected packet number. Returns `None` if the other end did
    /// not send this packet.
    pub(crate) fn open(
        &self,
        id: Id,
        near: u64,
        packet: &[u8],
        frame: &mut Vec<u8>,
    ) -> Option<(u64, usize)> {
        let mask = mask(&self.back.number, sample(packet)?);
        let (header, body) = packet.split_first_chunk::<HEADER>()?;
        let (body, tag) = body.split_last_chunk::<TAG>()?;
        let short: [u8; 4] = std::array::from_fn(|place| header[4 + place] ^ mask[place]);
        let number = whole(near, short);
        let shown = [id, short];
        // The buffer may be longer than the frame, because reused memory is not filled with zeros
        // again.
        if frame.len() < body.len() {
            frame.resize(body.len(), 0);
        }
        let (aad, frame) = (Aad::from(shown.as_flattened()), &mut frame[..body.len()]);
        let opened = self.back.aead.open_separate_gather(nonce(number), aad, body, tag, frame);
        opened.ok().map(|()| (number, frame.len()))
    }
}

/// Returns the ID of `packet`, or `None` if the packet is too short to have one.
pub(crate) fn id_of(disguise: &Disguise, packet: &[u8]) -> Option<Id> {
    let (id, mask) = (packet.first_chunk::<4>()?, disguise.id_mask(sample(packet)?));
    Some(std::array::from_fn(|place| id[place] ^ mask[place]))
}

impl Direction {
    fn new(key: &[u8; 32], paths: u16, aes: bool) -> Direction {
        let prk = Prk::new_less_safe(HKDF_SHA256, key);
        let algorithm = if aes { &AES_256_GCM } else { &CHACHA20_POLY1305 };
        let aead = UnboundKey::new(algorithm, &derived::<32>(&prk, b"packets"));
        let named = hmac::Key::new(hmac::HMAC_SHA256, &derived::<32>(&prk, b"ids"));
        let id = |path: u16| -> Id {
            let tag = hmac::sign(&named, &path.to_be_bytes());
            std::array::from_fn(|place| tag.as_ref()[place])
        };
        Direction {
            aead: LessSafeKey::new(aead.expect("a key of 32 bytes")),
            number: mask_key(&prk, b"numbers"),
            ids: (0..paths).map(id).collect(),
        }
    }

    /// Hides the ID and the packet number of `packet` with masks.
    fn hide(&self, disguise: &Disguise, packet: &mut [u8]) {
        let Some(sample) = sample(packet) else { return };
        let masks = [disguise.id_mask(sample), mask(&self.number, sample)];
        packet.iter_mut().zip(masks.as_flattened()).for_each(|(byte, mask)| *byte ^= mask);
    }
}

fn sample(packet: &[u8]) -> Option<&[u8]> {
    packet.get(HEADER..HEADER + SAMPLE)
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn short(number: u64) -> [u8; 4] {
    (number as u32).to_be_bytes()
}

/// Restores a packet number from its last four bytes `short`: returns the number with these bytes
/// that is nearest to `near` (RFC 9000, section A.3).
fn whole(near: u64, short: [u8; 4]) -> u64 {
    const ROUND: u64 = 1 << 32;
    let candidate = near & !(ROUND - 1) | u64::from(u32::from_be_bytes(short));
    if candidate + ROUND / 2 <= near {
        candidate + ROUND
    } else if candidate > near + ROUND / 2 && candidate >= ROUND {
        candidate - ROUND
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::PublicKey;

    fn pair_by(aes: bool) -> (Disguise, Epoch, Epoch) {
        let disguise = Disguise::of(&PublicKey([3; 32]));
        let near = Epoch::new(&[1; 32], &[2; 32], 3, aes);
        (disguise, near, Epoch::new(&[2; 32], &[1; 32], 3, aes))
    }

    fn pair() -> (Disguise, Epoch, Epoch) {
        pair_by(false)
    }

    fn sealed(disguise: &Disguise, epoch: &Epoch, path: u16, number: u64) -> Vec<u8> {
        let mut packet = Vec::new();
        epoch.seal(disguise, PathId(path), number, &[b"in", b"ner"], &mut packet).unwrap();
        packet
    }

    #[test]
    fn what_one_end_seals_the_other_opens_by_the_ids_that_it_awaits() {
        for aes in [false, true] {
            opens(&pair_by(aes));
        }
    }

    fn opens((disguise, near, far): &(Disguise, Epoch, Epoch)) {
        for (path, number) in [(0, 0), (1, 1), (2, u64::from(u32::MAX) + 7)] {
            let packet = sealed(disguise, near, path, number);
            assert_eq!(packet.len(), 5 + OVERHEAD);
            assert_eq!(id_of(disguise, &packet), Some(far.ids()[usize::from(path)]));
            let (id, mut frame) = (far.ids()[usize::from(path)], Vec::new());
            let opened = far.open(id, number.saturating_sub(100), &packet, &mut frame);
            assert_eq!(opened, Some((number, 5)));
            assert_eq!(frame, b"inner");
        }
        assert!(near.seal(disguise, PathId(3), 0, &[], &mut Vec::new()).is_none());
    }

    #[test]
    fn one_cipher_does_not_open_what_the_other_sealed() {
        let ((disguise, near, _), (_, _, far)) = (pair_by(true), pair_by(false));
        let packet = sealed(&disguise, &near, 0, 9);
        assert_eq!(far.open(far.ids()[0], 9, &packet, &mut Vec::new()), None);
    }

    #[test]
    fn a_changed_packet_is_not_opened() {
        let (disguise, near, far) = pair_by(true);
        let packet = sealed(&disguise, &near, 0, 9);
        let open = |packet: &[u8]| {
            let id = id_of(&disguise, packet)?;
            far.open(id, 9, packet, &mut Vec::new())
        };
        assert_eq!(open(&packet), Some((9, 5)));
        for place in 0..packet.len() {
            let mut changed = packet.clone();
            changed[place] ^= 0x40;
            assert_eq!(open(&changed), None, "byte {place}");
        }
        for length in 0..packet.len() {
            assert_eq!(open(&packet[..length]), None);
        }
    }

    #[test]
    fn a_long_buffer_that_is_used_again_holds_the_frame_first() {
        let (disguise, near, far) = pair();
        let (packet, mut frame) = (sealed(&disguise, &near, 0, 9), vec![7; 64]);
        assert_eq!(far.open(far.ids()[0], 9, &packet, &mut frame), Some((9, 5)));
        assert_eq!((&frame[..5], frame.len()), (&b"inner"[..], 64));
    }

    #[test]
    fn no_byte_of_the_packets_of_a_path_tells_of_numbers() {
        [false, true].into_iter().for_each(tells_nothing);
    }

    fn tells_nothing(aes: bool) {
        let (disguise, near, _) = pair_by(aes);
        let packets: Vec<Vec<u8>> =
            (0..4096).map(|number| sealed(&disguise, &near, 0, number)).collect();
        for place in 0..packets[0].len() {
            let mut counts = [0u32; 256];
            packets.iter().for_each(|packet| counts[usize::from(packet[place])] += 1);
            // 255 degrees of freedom: 99.99 % of uniform bytes stay below 348.
            let chi: f64 = counts.iter().map(|&n| (f64::from(n) - 16.0).powi(2) / 16.0).sum();
            assert!(chi < 380.0, "byte {place}: {chi}");
            let rising = packets.windows(2).filter(|two| two[0][place] < two[1][place]).count();
            assert!((1850..2250).contains(&rising), "byte {place} rises {rising} times");
        }
    }

    #[test]
    fn numbers_are_made_whole_around_what_came_last() {
        let round = 1u64 << 32;
        for near in [0, 5, round - 1, round, round + 3, 7 * round - 2] {
            for number in near.saturating_sub(20_000)..near + 20_000 {
                assert_eq!(whole(near, short(number)), number);
            }
        }
    }
}
