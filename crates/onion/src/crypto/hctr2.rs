//! HCTR2 with AES-128: a tweakable wide-block cipher that keeps the length of its input (Crowley,
//! Huckleberry and Biggers, "Length-preserving encryption with HCTR2", eprint 2021/1441).
//!
//! A change of any bit of the input or of the tweak changes the whole output, in both directions.
//! Variables have the names of the paper's figure 1.
//!
//! `docs/design/libraries.md` explains why no library is used.

use aes::cipher::{BlockDecrypt, BlockEncrypt, KeyInit};
use aes::{Aes128Dec, Aes128Enc};
use polyval::Polyval;
use polyval::universal_hash::UniversalHash;

use super::counter;

/// Length of a key in bytes.
pub const KEY: usize = 16;
/// Maximum length of a message: 33 blocks. A cell has 32 blocks.
pub const LONGEST: usize = 33 * BLOCK;
/// Maximum length of a tweak in bytes.
pub const LONGEST_TWEAK: usize = 3 * BLOCK;

const BLOCK: usize = 16;
/// Number of blocks in the longest key stream, which encrypts all blocks of a message but the
/// first.
const STREAM: usize = LONGEST / BLOCK - 1;
/// Maximum length of the hash input, in bytes: one block with the tweak's length, the tweak, and
/// the message.
const HASHED: usize = BLOCK + LONGEST_TWEAK + STREAM * BLOCK;

/// A key that is prepared either for encryption (`C` is [`Aes128Enc`]) or for decryption (`C` is
/// [`Aes128Dec`]).
pub struct Hctr2<C> {
    /// The block cipher that is applied to the first block of a message.
    middle: C,
    /// The block cipher that generates the key stream for the other blocks of a message.
    stream: Aes128Enc,
    /// POLYVAL with the hash key.
    hash: Polyval,
    /// Mask that is XORed into the start of each key stream: the number 1 encrypted as a block
    /// (`L` in the paper).
    mask: u128,
}

impl<C: From<Aes128Enc>> Hctr2<C>
where
    Aes128Enc: Clone,
{
    /// Prepares `key` for encryption or for decryption, as the type `C` determines.
    #[must_use]
    pub fn new(key: &[u8; KEY]) -> Hctr2<C> {
        let stream = Aes128Enc::new(&(*key).into());
        let [hash_key, mask] = [0, 1].map(|number: u128| {
            let mut block = aes::Block::from(number.to_le_bytes());
            stream.encrypt_block(&mut block);
            <[u8; BLOCK]>::from(block)
        });
        Hctr2 {
            middle: C::from(stream.clone()),
            hash: Polyval::new(&hash_key.into()),
            mask: u128::from_le_bytes(mask),
            stream,
        }
    }
}

impl Hctr2<Aes128Enc> {
    /// Encrypts `message` in place.
    ///
    /// # Panics
    /// If the message is shorter than 16 bytes or longer than [`LONGEST`], or the tweak longer than
    /// [`LONGEST_TWEAK`].
    pub fn encrypt(&self, tweak: &[u8], message: &mut [u8]) {
        self.apply(tweak, message, |cipher, block| cipher.encrypt_block(block));
    }
}

impl Hctr2<Aes128Dec> {
    /// Decrypts `message` in place.
    ///
    /// # Panics
    /// Under the same conditions as [`Hctr2::encrypt`].
    pub fn decrypt(&self, tweak: &[u8], message: &mut [u8]) {
        self.apply(tweak, message, |cipher, block| cipher.decrypt_block(block));
    }
}

impl<C> Hctr2<C> {
    /// Encrypts or decrypts. The two directions differ only in the middle block cipher.
    fn apply(&self, tweak: &[u8], message: &mut [u8], middle: fn(&C, &mut aes::Block)) {
        assert!((BLOCK..=LONGEST).contains(&message.len()), "the message must have a valid length");
        let (first, rest) =
            message.split_first_chunk_mut::<BLOCK>().expect("the message has at least one block");
        let before = u128::from_le_bytes(*first) ^ self.hash(tweak, rest);
        let mut block = aes::Block::from(before.to_le_bytes());
        middle(&self.middle, &mut block);
        let after = u128::from_le_bytes(block.into());
        self.cover(before ^ after ^ self.mask, rest);
        *first = (after ^ self.hash(tweak, rest)).to_le_bytes();
    }

    /// Returns `H` of the HCTR2 paper: POLYVAL over the tweak's length, the tweak, and the
    /// message.
    fn hash(&self, tweak: &[u8], message: &[u8]) -> u128 {
        let is_whole = message.len().is_multiple_of(BLOCK);
        let length = 2 * 8 * tweak.len() as u128 + if is_whole { 2 } else { 3 };
        let mut bytes = [0; HASHED];
        bytes[..BLOCK].copy_from_slice(&length.to_le_bytes());
        bytes[BLOCK..][..tweak.len()].copy_from_slice(tweak);
        let start = BLOCK + tweak.len().next_multiple_of(BLOCK);
        let end = start + message.len();
        bytes[start..end].copy_from_slice(message);
        if !is_whole {
            bytes[end] = 1;
        }
        let mut hash = self.hash.clone();
        // A single call is faster, because the library processes four blocks at a time.
        hash.update_padded(&bytes[..end.next_multiple_of(BLOCK)]);
        u128::from_le_bytes(hash.finalize().into())
    }

    /// XORs `bytes` with the key stream of `start` (XCTR in the HCTR2 paper).
    fn cover(&self, start: u128, bytes: &mut [u8]) {
        let mut blocks = [aes::Block::default(); STREAM];
        let blocks = &mut blocks[..bytes.len().div_ceil(BLOCK)];
        for (number, block) in (1..).zip(blocks.iter_mut()) {
            *block = (start ^ number).to_le_bytes().into();
        }
        self.stream.encrypt_blocks(blocks);
        counter::xor_blocks(bytes, blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vectors published with the paper. The head of the file describes them.
    const VECTORS: &str = include_str!("../../testdata/hctr2.txt");

    fn bytes(hex: &str) -> Vec<u8> {
        let digits = hex.strip_prefix("0x").expect("a number in hexadecimal");
        let digit = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        (0..digits.len()).step_by(2).map(digit).collect()
    }

    #[test]
    fn the_papers_vectors_in_both_directions() {
        let mut found = 0;
        for line in VECTORS.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<Vec<u8>> = line.split(' ').map(bytes).collect();
            let [key, tweak, plain, cipher] = &fields[..] else { panic!("four fields: {line}") };
            let key = key[..].try_into().unwrap();
            let mut message = plain.clone();
            Hctr2::<Aes128Enc>::new(key).encrypt(tweak, &mut message);
            assert_eq!(message, *cipher, "{line}");
            Hctr2::<Aes128Dec>::new(key).decrypt(tweak, &mut message);
            assert_eq!(message, *plain, "{line}");
            found += 1;
        }
        assert_eq!(found, 60);
    }

    #[test]
    fn each_length_of_message_and_tweak_comes_back() {
        let key = [9; KEY];
        let (one, other) = (Hctr2::<Aes128Enc>::new(&key), Hctr2::<Aes128Dec>::new(&key));
        for length in BLOCK..=LONGEST {
            let tweak = vec![3; length % (LONGEST_TWEAK + 1)];
            let mut message = vec![length as u8; length];
            one.encrypt(&tweak, &mut message);
            assert_ne!(message, vec![length as u8; length]);
            other.decrypt(&tweak, &mut message);
            assert_eq!(message, vec![length as u8; length]);
        }
    }
}
