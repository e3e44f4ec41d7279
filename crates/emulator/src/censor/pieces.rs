//! Reassembly of the first bytes of a stream from pieces that arrive in any order.

use std::collections::BTreeMap;

/// Maximum number of reassembled bytes at the start of a stream. A ClientHello is much shorter,
/// even with all post-quantum key shares.
const LONGEST: usize = 16_384;
/// Maximum number of pieces of a stream that are stored while bytes before them are missing.
const WAITING: usize = 64;

/// The reassembled beginning of a stream: its bytes up to the first gap, and later pieces.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    front: Vec<u8>,
    /// Pieces after the first gap, by their offset in the stream.
    later: BTreeMap<u64, Vec<u8>>,
}

impl Pieces {
    /// Adds the piece of the stream that begins at offset `at`. Bytes before the first gap are
    /// never replaced. If pieces after the gap overlap, the piece with the smaller offset takes
    /// precedence or, at the same offset, the longer piece. Bytes beyond [`LONGEST`] are dropped,
    /// and so are pieces after the gap if [`WAITING`] are already stored.
    pub(super) fn take(&mut self, at: u64, bytes: &[u8]) {
        let inside = at < LONGEST as u64 && !bytes.is_empty();
        if inside && (at <= self.front.len() as u64 || self.later.len() < WAITING) {
            let kept = bytes.len().min(LONGEST - at as usize);
            let longer = self.later.get(&at).is_none_or(|there| there.len() < kept);
            if longer {
                self.later.insert(at, bytes[..kept].to_vec());
            }
        }
        while let Some((&at, _)) = self.later.first_key_value()
            && at <= self.front.len() as u64
        {
            let piece = self.later.remove(&at).unwrap_or_default();
            let known = self.front.len() - at as usize;
            self.front.extend(piece.get(known..).unwrap_or_default());
        }
    }

    /// Returns the bytes from the start of the stream to the first gap.
    pub(super) fn front(&self) -> &[u8] {
        &self.front
    }

    /// Returns whether the front of the stream has the maximum length ([`LONGEST`]).
    pub(super) fn is_full(&self) -> bool {
        self.front.len() >= LONGEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_together_in_any_order() {
        let whole: Vec<u8> = (0..100).collect();
        let mut pieces = Pieces::default();
        for at in [60, 20, 80, 40, 0, 20] {
            pieces.take(at as u64, &whole[at..at + 20]);
        }
        assert_eq!(pieces.front(), whole);
        let mut overlapping = Pieces::default();
        for (from, to) in [(10, 40), (5, 20), (30, 100), (0, 12)] {
            overlapping.take(from as u64, &whole[from..to]);
        }
        assert_eq!(overlapping.front(), whole);
    }

    #[test]
    fn a_flood_is_bounded() {
        let mut pieces = Pieces::default();
        for at in 1..1000u64 {
            pieces.take(at * 10, &[1; 9]);
        }
        pieces.take(u64::MAX, &[1; 9]);
        assert!(pieces.later.len() <= WAITING && pieces.front().is_empty());
        pieces.take(0, &[2; 100_000]);
        assert!(pieces.is_full() && pieces.front().len() == LONGEST);
    }
}
