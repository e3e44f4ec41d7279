//! AES-128 in counter mode, one cell at a time.
//!
//! All blocks of a cell are passed to the cipher in one call, and the cipher processes eight at a
//! time. Other implementations of counter mode process larger groups, and then the remaining
//! blocks one by one. For the 32 blocks of a cell they need twice as long
//! (`docs/notes/relay-performance.md`).

use aes::cipher::{BlockEncrypt, KeyInit};
use aes::{Aes128Enc, Block};

use crate::wire::cell::BODY;

const BLOCK: usize = 16;
/// Maximum number of blocks computed in one call: enough for the body of a cell.
const BATCH: usize = BODY.div_ceil(BLOCK);

/// A key stream (AES-128 in counter mode), read from its start.
pub struct KeyStream {
    cipher: Aes128Enc,
    /// Index of the next block of the key stream.
    counter: u128,
    /// The last computed block of the key stream; its first `used` bytes are consumed.
    last: [u8; BLOCK],
    used: usize,
}

impl KeyStream {
    /// Returns the key stream of `key` with the counter at 0.
    pub fn new(key: &[u8; 16]) -> KeyStream {
        let cipher = Aes128Enc::new(&(*key).into());
        KeyStream { cipher, counter: 0, last: [0; BLOCK], used: BLOCK }
    }

    /// XORs `bytes` with the next bytes of the key stream.
    pub fn apply(&mut self, bytes: &mut [u8]) {
        let left = &self.last[self.used..];
        let (head, rest) = bytes.split_at_mut(left.len().min(bytes.len()));
        xor(head, left);
        self.used += head.len();
        rest.chunks_mut(BATCH * BLOCK).for_each(|chunk| self.apply_blocks(chunk));
    }

    /// XORs `bytes` with the key stream. The caller must have used all bytes of the last computed
    /// block.
    fn apply_blocks(&mut self, bytes: &mut [u8]) {
        let mut blocks = [Block::default(); BATCH];
        let blocks = &mut blocks[..bytes.len().div_ceil(BLOCK)];
        for block in blocks.iter_mut() {
            *block = self.counter.to_be_bytes().into();
            self.counter = self.counter.wrapping_add(1);
        }
        self.cipher.encrypt_blocks(blocks);
        xor_blocks(bytes, blocks);
        self.last = blocks.last().map_or(self.last, |block| (*block).into());
        self.used = BLOCK - (blocks.len() * BLOCK - bytes.len());
    }
}

/// XORs `bytes` with the first bytes of `blocks`, which are at least as long as `bytes`.
pub(super) fn xor_blocks(bytes: &mut [u8], blocks: &[Block]) {
    let (whole, rest) = bytes.as_chunks_mut::<BLOCK>();
    for (bytes, block) in whole.iter_mut().zip(blocks) {
        let both = u128::from_ne_bytes(*bytes) ^ u128::from_ne_bytes((*block).into());
        *bytes = both.to_ne_bytes();
    }
    if let Some(last) = blocks.get(whole.len()) {
        xor(rest, last);
    }
}

/// XORs `bytes` with `stream`, up to the length of the shorter one.
fn xor(bytes: &mut [u8], stream: &[u8]) {
    bytes.iter_mut().zip(stream).for_each(|(byte, key)| *byte ^= key);
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed;
    use cipher::{KeyIvInit, StreamCipher};
    use rand::RngExt;

    use super::*;
    use crate::wire::crypto::Aes128Ctr;

    #[test]
    fn pieces_of_any_length_are_covered_as_the_librarys_counter_mode_does() {
        let mut rng = seed::stream(1, 0, "counter mode");
        for key in [[0; 16], [7; 16]] {
            let (mut ours, mut theirs) =
                (KeyStream::new(&key), Aes128Ctr::new(&key.into(), &[0; 16].into()));
            for length in [0, 1, 15, 16, 17, BODY, BODY, 0, BODY, 511, 512, 513, 1500] {
                let mut bytes = vec![0; length + rng.random_range(0..40)];
                rng.fill(&mut bytes[..]);
                let mut other = bytes.clone();
                ours.apply(&mut bytes);
                theirs.apply_keystream(&mut other);
                assert!(bytes == other, "{length}");
            }
        }
    }

    #[test]
    fn the_counter_has_sixteen_bytes() {
        let mut stream = KeyStream { counter: u128::MAX, ..KeyStream::new(&[3; 16]) };
        let iv = [0xff; 16].into();
        let mut theirs = Aes128Ctr::new(&[3; 16].into(), &iv);
        let (mut bytes, mut other) = ([0; 100], [0; 100]);
        stream.apply(&mut bytes);
        theirs.apply_keystream(&mut other);
        assert_eq!(bytes, other);
    }
}
