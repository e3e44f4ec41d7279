//! Encryption of blocks (sequences of frames), and decryption of the blocks in a connection's byte
//! stream.
//!
//! ```text
//! block = tag (16) · masked(number (3) · length (2)) · AEAD(frames)
//! ```
//!
//! Lengths in parentheses are in bytes. The blocks of each direction have 64-bit sequence numbers.
//! A block's sequence number is the AEAD's nonce, so a nonce never repeats. Its lowest 24 bits and
//! the length are masked as QUIC masks packet numbers (RFC 9001, section 5.4), with the tag as the
//! sample. The key changes after 65,536 blocks, which contain at most about 1 GiB. Each key is
//! derived from a secret, and each secret from its predecessor, which is then discarded.

use std::collections::VecDeque;

use anabranch_multipath::Replay;
use aws_lc_rs::aead::quic::{AES_128, HeaderProtectionKey};
use aws_lc_rs::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

use crate::secrets::{Key, follow};

/// Overhead of a block (a sequence of frames, encrypted together) in bytes: authentication tag and
/// header.
pub(crate) const OVERHEAD: usize = TAG + HEADER;
/// Maximum total length in bytes of the frames in one block (the unit of encryption).
pub(crate) const MOST: usize = 16_640;
/// Length of an AEAD tag in bytes.
const TAG: usize = 16;
/// Length of a block's header in bytes.
const HEADER: usize = 5;
/// Number of blocks (encrypted sequences of frames) that one key encrypts.
const ROUND: u64 = 1 << 16;
/// Number of recent keys that are kept, to decrypt blocks that arrive late.
const KEPT: usize = 2;
/// Maximum number of keys to derive for one received block. A block that needs more is treated as
/// forged.
const AHEAD: u64 = 4;

/// Error: a received block (the unit of encryption) cannot be decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadBlock {
    /// The block's length exceeds [`MOST`].
    TooLong,
    /// The authentication tag does not match: the block is not from the other end, or its key is
    /// no longer kept.
    Forged,
    /// The block was opened before, or is too old for the replay check.
    Replayed,
}

/// Encryption state of one direction: it encrypts the blocks that this end sends.
pub(crate) struct Sealer {
    mask: HeaderProtectionKey,
    aes: bool,
    ratchet: Ratchet,
    key: LessSafeKey,
    number: u64,
}

/// Decryption state of one direction: it decrypts the blocks that the other end sends.
pub(crate) struct Opener {
    mask: HeaderProtectionKey,
    aes: bool,
    /// The newest keys, at most [`KEPT`], each with its index in the sequence of keys.
    keys: VecDeque<(u64, LessSafeKey)>,
    /// The chain of secrets from which the next key is derived.
    ratchet: Ratchet,
    replay: Replay,
}

/// A chain of secrets, from which the keys of one direction are derived, one after the other.
#[derive(Clone)]
struct Ratchet {
    secret: Key,
    /// Index of `secret` in the chain: the number of secrets before it.
    round: u64,
}

impl Ratchet {
    fn key(&self, aes: bool) -> LessSafeKey {
        let algorithm = if aes { &AES_256_GCM } else { &CHACHA20_POLY1305 };
        let key = UnboundKey::new(algorithm, &follow::<32>(&self.secret, b"blocks"));
        LessSafeKey::new(key.expect("a key of 32 bytes"))
    }

    fn turn(&mut self) {
        self.secret = follow(&self.secret, b"ratchet");
        self.round += 1;
    }
}

fn mask_key(secret: &Key) -> HeaderProtectionKey {
    HeaderProtectionKey::new(&AES_128, &follow::<16>(secret, b"headers"))
        .expect("a key of 16 bytes")
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn header(number: u64, length: usize) -> [u8; HEADER] {
    let [.., a, b, c] = number.to_be_bytes();
    let [.., d, e] = length.to_be_bytes();
    [a, b, c, d, e]
}

impl Sealer {
    /// Creates the encryption state of one direction from the direction's `secret`. If `aes` is
    /// true, the cipher is AES-256-GCM, otherwise ChaCha20-Poly1305.
    pub(crate) fn new(secret: &Key, aes: bool) -> Sealer {
        let ratchet = Ratchet { secret: *secret, round: 0 };
        Sealer { mask: mask_key(secret), aes, key: ratchet.key(aes), ratchet, number: 0 }
    }

    /// Appends an encrypted block to `out`. The block's frames are the bytes that `write` appends,
    /// at most [`MOST`].
    pub(crate) fn seal(&mut self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        let start = out.len();
        out.resize(start + OVERHEAD, 0);
        write(out);
        let (number, length) = (self.number, out.len() - start - OVERHEAD);
        debug_assert!(length <= MOST, "a block of {length} bytes");
        if number / ROUND > self.ratchet.round {
            self.ratchet.turn();
            self.key = self.ratchet.key(self.aes);
        }
        self.number += 1;
        let (head, body) = out[start..].split_at_mut(OVERHEAD);
        let header = header(number, length);
        let tag = self.key.seal_in_place_separate_tag(nonce(number), Aad::from(header), body);
        head[..TAG]
            .copy_from_slice(tag.expect("a block is shorter than the limit of the AEAD").as_ref());
        let mask = mask(&self.mask, &head[..TAG]);
        let hidden = header.iter().zip(mask).map(|(byte, mask)| byte ^ mask);
        head[TAG..].iter_mut().zip(hidden).for_each(|(byte, hidden)| *byte = hidden);
    }

    /// Makes `number` the number of the next block, as if all earlier blocks had been sealed.
    #[cfg(test)]
    pub(crate) fn leap_to(&mut self, number: u64) {
        self.number = number;
        while self.ratchet.round < number / ROUND {
            self.ratchet.turn();
        }
        self.key = self.ratchet.key(self.aes);
    }
}

fn mask(key: &HeaderProtectionKey, tag: &[u8]) -> [u8; HEADER] {
    key.new_mask(tag).expect("a tag has 16 bytes")
}

impl Opener {
    /// Creates the decryption state of one direction from the direction's `secret`. If `aes` is
    /// true, the cipher is AES-256-GCM, otherwise ChaCha20-Poly1305.
    pub(crate) fn new(secret: &Key, aes: bool) -> Opener {
        let ratchet = Ratchet { secret: *secret, round: 0 };
        let keys = VecDeque::from([(0, ratchet.key(aes))]);
        Opener { mask: mask_key(secret), aes, keys, ratchet, replay: Replay::new() }
    }

    /// Decrypts the first block of `bytes`, puts its frames into `frames` and returns the block's
    /// length. Returns `None` if the block is not complete yet.
    ///
    /// # Errors
    /// The block is not from the other end, or it is too long or a replay.
    pub(crate) fn open(
        &mut self,
        bytes: &[u8],
        frames: &mut Vec<u8>,
    ) -> Result<Option<usize>, BadBlock> {
        let Some((tag, rest)) = bytes.split_first_chunk::<TAG>() else { return Ok(None) };
        let Some((hidden, rest)) = rest.split_first_chunk::<HEADER>() else { return Ok(None) };
        let mask = mask(&self.mask, tag);
        let shown: [u8; HEADER] = std::array::from_fn(|place| hidden[place] ^ mask[place]);
        let [a, b, c, d, e] = shown;
        let length = usize::from(u16::from_be_bytes([d, e]));
        if length > MOST {
            return Err(BadBlock::TooLong);
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let number = whole(self.replay.next(), u64::from(u32::from_be_bytes([0, a, b, c])));
        frames.resize(length, 0);
        self.decrypt(number, shown, (body, tag), frames).ok_or(BadBlock::Forged)?;
        if !self.replay.accept(number) {
            return Err(BadBlock::Replayed);
        }
        Ok(Some(OVERHEAD + length))
    }

    /// Decrypts a block. If its tag does not match, returns `None` and changes no state.
    fn decrypt(
        &mut self,
        number: u64,
        header: [u8; HEADER],
        (body, tag): (&[u8], &[u8; TAG]),
        frames: &mut [u8],
    ) -> Option<()> {
        let (round, newest) = (number / ROUND, self.ratchet.round);
        let mut open = |key: &LessSafeKey| {
            key.open_separate_gather(nonce(number), Aad::from(header), body, tag, frames).ok()
        };
        if round <= newest {
            return self.keys.iter().find(|(of, _)| *of == round).and_then(|(_, key)| open(key));
        }
        (round <= newest + AHEAD).then_some(())?;
        let mut ratchet = self.ratchet.clone();
        (newest..round).for_each(|_| ratchet.turn());
        let key = ratchet.key(self.aes);
        open(&key)?;
        self.keys.push_back((round, key));
        self.ratchet = ratchet;
        if self.keys.len() > KEPT {
            self.keys.pop_front();
        }
        Some(())
    }
}

/// Reconstructs a block's full sequence number: the number nearest to `near` whose lowest 24 bits
/// are `short` (RFC 9000, section A.3).
fn whole(near: u64, short: u64) -> u64 {
    const CYCLE: u64 = 1 << 24;
    let candidate = near & !(CYCLE - 1) | short;
    if candidate + CYCLE / 2 <= near {
        candidate + CYCLE
    } else if candidate > near + CYCLE / 2 && candidate >= CYCLE {
        candidate - CYCLE
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(aes: bool) -> (Sealer, Opener) {
        (Sealer::new(&[1; 32], aes), Opener::new(&[1; 32], aes))
    }

    fn block(sealer: &mut Sealer, frames: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        sealer.seal(&mut out, |out| out.extend_from_slice(frames));
        out
    }

    #[test]
    fn blocks_are_opened_however_they_are_cut_and_in_any_order() {
        for aes in [false, true] {
            let (mut sealer, mut opener) = pair(aes);
            let blocks: Vec<_> = (0..9u8).map(|n| block(&mut sealer, &[n; 40])).collect();
            let mut frames = Vec::new();
            for place in [3, 0, 8, 1, 2, 7, 6, 5, 4usize] {
                let block = &blocks[place];
                for cut in 0..block.len() {
                    assert_eq!(opener.open(&block[..cut], &mut frames), Ok(None), "{cut}");
                }
                assert_eq!(opener.open(block, &mut frames), Ok(Some(40 + OVERHEAD)));
                assert_eq!(frames, [place as u8; 40]);
                assert_eq!(opener.open(block, &mut frames), Err(BadBlock::Replayed));
            }
        }
    }

    #[test]
    fn a_changed_block_is_forged_or_never_whole() {
        let (mut sealer, mut opener) = pair(true);
        let block = block(&mut sealer, &[7; 10]);
        for place in 0..block.len() {
            let mut changed = block.clone();
            changed[place] ^= 0x20;
            let opened = opener.open(&changed, &mut Vec::new());
            let causes = [Err(BadBlock::Forged), Err(BadBlock::TooLong), Ok(None)];
            assert!(causes.contains(&opened), "byte {place}: {opened:?}");
        }
        assert!(opener.open(&block, &mut Vec::new()).is_ok());
    }

    #[test]
    fn keys_change_and_what_was_under_way_is_still_opened() {
        for aes in [false, true] {
            let (mut sealer, mut opener) = pair(aes);
            sealer.leap_to(ROUND - 2);
            // The opener behaves as if all earlier blocks had arrived.
            let early = block(&mut sealer, b"a");
            let late = block(&mut sealer, b"b");
            let next = block(&mut sealer, b"c");
            let mut frames = Vec::new();
            for block in [&early, &next, &late] {
                assert!(matches!(opener.open(block, &mut frames), Ok(Some(_))));
            }
            assert_eq!(opener.ratchet.round, 1);
            sealer.leap_to(3 * ROUND);
            let leap = block(&mut sealer, b"d");
            assert!(matches!(opener.open(&leap, &mut frames), Ok(Some(_))));
            assert_eq!((opener.ratchet.round, opener.keys.len()), (3, KEPT));
        }
    }

    #[test]
    fn a_forged_header_does_not_move_the_keys() {
        let (mut sealer, mut opener) = pair(true);
        sealer.leap_to(2 * ROUND);
        let mut block = block(&mut sealer, b"x");
        *block.last_mut().unwrap() ^= 1;
        assert_eq!(opener.open(&block, &mut Vec::new()), Err(BadBlock::Forged));
        assert_eq!((opener.ratchet.round, opener.keys.len()), (0, 1));
    }

    #[test]
    fn no_byte_of_blocks_tells_of_numbers_or_lengths() {
        let (mut sealer, _) = pair(true);
        let blocks: Vec<_> =
            (0..4096usize).map(|n| block(&mut sealer, &vec![0; 16 + n % 3])).collect();
        for place in 0..OVERHEAD + 16 {
            let mut counts = [0u32; 256];
            blocks.iter().for_each(|block| counts[usize::from(block[place])] += 1);
            // 255 degrees of freedom: 99.99 % of uniform bytes stay below 348.
            let chi: f64 = counts.iter().map(|&n| (f64::from(n) - 16.0).powi(2) / 16.0).sum();
            assert!(chi < 380.0, "byte {place}: {chi}");
        }
    }

    #[test]
    fn numbers_are_made_whole_around_what_came_last() {
        const CYCLE: u64 = 1 << 24;
        for near in [0, 5, CYCLE - 1, CYCLE, 7 * CYCLE - 2] {
            for number in near.saturating_sub(20_000)..near + 20_000 {
                assert_eq!(whole(near, number % CYCLE), number);
            }
        }
    }
}
