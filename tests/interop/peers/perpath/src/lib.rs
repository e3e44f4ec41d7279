//! The bytes that every test server hands out, so that the harness knows the right hash without
//! asking.

use sha2::{Digest, Sha256};

/// Digests gathered in a piece, so that a piece is 16 KiB and not 32 bytes.
const DIGESTS_IN_A_PIECE: u64 = 512;

/// The first `length` bytes of the stream of `seed`, SHA-256("anabranch" || seed || i) for i = 0,
/// 1, 2, …, in pieces of 16 KiB (the last may be shorter).
pub fn pieces(seed: u64, length: u64) -> impl Iterator<Item = Vec<u8>> {
    let mut left = length;
    let firsts = (0..).step_by(DIGESTS_IN_A_PIECE as usize);
    firsts.map_while(move |first| {
        let mut piece = (left > 0).then(|| digests(seed, first))?;
        piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        left -= piece.len() as u64;
        Some(piece)
    })
}

/// The N of `/bytes/N`.
pub fn length_asked_for(path: &str) -> Option<u64> {
    path.trim_end().strip_prefix("/bytes/")?.parse().ok()
}

fn digests(seed: u64, first: u64) -> Vec<u8> {
    (first..first + DIGESTS_IN_A_PIECE)
        .flat_map(|block| {
            let input = [b"anabranch".as_slice(), &seed.to_be_bytes(), &block.to_be_bytes()];
            Sha256::digest(input.concat())
        })
        .collect()
}
