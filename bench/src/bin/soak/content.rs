//! Content of a stream. Both ends generate it from the stream's number, so neither has to trust the
//! other.

use std::io::{self, Read};

use anabranch_multipath::seed;
use rand_core::Rng;
use sha2::{Digest, Sha256};

/// Bytes generated, sent and read at once.
pub(crate) const PIECE: usize = 16 << 10;

/// A SHA-256 hash.
pub(crate) type Hash = [u8; 32];

/// Reader of the first bytes of a number's content, in pieces of any size.
pub(crate) struct Content {
    made: seed::Stream,
    piece: Box<[u8; PIECE]>,
    /// Bytes of `piece` already read.
    taken: usize,
    left: u64,
}

impl Content {
    /// Creates a reader of `length` bytes.
    pub(crate) fn new(number: u64, length: u64) -> Content {
        let made = seed::stream(number, 0, "soak content");
        Content { made, piece: Box::new([0; PIECE]), taken: PIECE, left: length }
    }

    /// Returns the SHA-256 hash of the rest.
    pub(crate) fn hash(mut self) -> Hash {
        let mut hasher = Sha256::new();
        let mut piece = [0; PIECE];
        while let Ok(count @ 1..) = self.read(&mut piece) {
            hasher.update(&piece[..count]);
        }
        hasher.finalize().into()
    }
}

impl Read for Content {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.taken == PIECE {
            self.made.fill_bytes(&mut *self.piece);
            self.taken = 0;
        }
        let there = &self.piece[self.taken..];
        let count = there.len().min(out.len()).min(self.left.try_into().unwrap_or(usize::MAX));
        out[..count].copy_from_slice(&there[..count]);
        self.taken += count;
        self.left -= count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_make_the_same_bytes_and_no_two_numbers_do() {
        let length = PIECE as u64 * 2 + 1;
        let hash = Content::new(7, length).hash();
        assert_ne!(Content::new(8, length).hash(), hash);
        assert_ne!(Content::new(7, length - 1).hash(), hash);
        let (mut small, mut content) = (Vec::new(), Content::new(7, length));
        while content.by_ref().take(1000).read_to_end(&mut small).unwrap() > 0 {}
        let again: Hash = Sha256::digest(&small).into();
        assert_eq!((small.len() as u64, again), (length, hash), "in smaller pieces");
    }
}
