//! The bytes that every test server sends, so that the harness can compute the hash itself, and as
//! much of HTTP/3 as one request of a client needs.

use sha2::{Digest, Sha256};

/// Number of digests in a piece, which thus has 16 KiB.
const DIGESTS_IN_A_PIECE: u64 = 512;

/// Returns the first `length` bytes of the stream of `seed`, SHA-256("anabranch" || seed || i) for
/// i = 0, 1, 2, …, in pieces of 16 KiB. The last piece may be shorter.
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

/// Returns the N of `/bytes/N`.
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

/// Returns a HEADERS frame of a GET with only static names and literal values (RFC 9204, section
/// 4.5 and appendix A). Authority and path together must be shorter than 50 bytes.
pub fn request(authority: &str, path: &str) -> Vec<u8> {
    // Indexed: ":method: GET" is 17, ":scheme: https" 23; named: ":authority" is 0, ":path" 1.
    let mut fields = vec![0, 0, 0xc0 | 17, 0xc0 | 23];
    for (name, value) in [(0x50, authority), (0x51, path)] {
        fields.extend([name, value.len() as u8]);
        fields.extend(value.as_bytes());
    }
    assert!(fields.len() < 64, "a length of one byte");
    [&[1, fields.len() as u8][..], &fields].concat()
}

/// Reader of the frames of a response (RFC 9114, section 7.1), which may arrive in any pieces.
#[derive(Default)]
pub struct Frames {
    head: Vec<u8>,
    is_data: bool,
    left: u64,
}

impl Frames {
    /// Reads the next bytes of the stream. Passes those in DATA frames to `take`.
    pub fn data(&mut self, mut piece: &[u8], mut take: impl FnMut(&[u8])) {
        while !piece.is_empty() {
            if self.left == 0 {
                self.head.push(piece[0]);
                piece = &piece[1..];
                self.read_head();
                continue;
            }
            let length = piece.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            let (payload, rest) = piece.split_at(length);
            if self.is_data {
                take(payload);
            }
            self.left -= length as u64;
            piece = rest;
        }
    }

    /// Parses the type and the length of a frame, if both have arrived.
    fn read_head(&mut self) {
        let Some((kind, after)) = varint(&self.head) else { return };
        let Some((length, _)) = varint(after) else { return };
        (self.is_data, self.left) = (kind == 0, length);
        self.head.clear();
    }
}

/// Parses a variable-length integer (RFC 9000, section 16). Also returns the bytes after it; `None`
/// if it is incomplete.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_at_checked(1 << (bytes.first()? >> 6))?;
    let first = u64::from(number[0] & 0x3f);
    Some((number[1..].iter().fold(first, |value, byte| value << 8 | u64::from(*byte)), rest))
}
