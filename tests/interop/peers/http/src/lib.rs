//! The bytes that every test server sends, so that the harness can compute the hash itself, and as
//! much of HTTP/0.9 and HTTP/3 as one request needs, for a server and for a client.

use octets::{Octets, varint_len};
use sha2::{Digest, Sha256};

/// Content of a control stream with empty SETTINGS, thus without a dynamic table of fields (RFC
/// 9114, sections 6.2.1 and 7.2.4).
pub const CONTROL_STREAM: [u8; 3] = [0, 4, 0];
/// Number of digests in a piece, which thus has 16 KiB.
const DIGESTS_IN_A_PIECE: u64 = 512;
/// Types of frames (RFC 9114, section 7.2).
const DATA: u64 = 0;
const HEADERS: u64 = 1;
/// Index of `:path` in the static table (RFC 9204, appendix A).
const PATH: u64 = 1;

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

fn digests(seed: u64, first: u64) -> Vec<u8> {
    (first..first + DIGESTS_IN_A_PIECE)
        .flat_map(|block| {
            let input = [b"anabranch".as_slice(), &seed.to_be_bytes(), &block.to_be_bytes()];
            Sha256::digest(input.concat())
        })
        .collect()
}

/// Returns the N of `/bytes/N`.
pub fn length_asked_for(path: &str) -> Option<u64> {
    path.trim_end().strip_prefix("/bytes/")?.parse().ok()
}

/// Returns the path of a GET, over HTTP/3 if `h3`, otherwise over HTTP/0.9.
pub fn path_of(request: &[u8], h3: bool) -> Option<String> {
    let path = match h3 {
        true => path_in_frames(request)?,
        false => request.strip_prefix(b"GET ")?.to_vec(),
    };
    String::from_utf8(path).ok()
}

/// Returns what precedes a body of `length` bytes in a response: HEADERS with the status 200, and
/// the head of the DATA frame.
pub fn response_head(length: u64) -> Vec<u8> {
    // Indexed: ":status: 200" is 25 in the static table.
    let fields = [0, 0, 0xc0 | 25];
    let mut head = [&[HEADERS as u8, fields.len() as u8][..], &fields, &[DATA as u8]].concat();
    let mut number = [0; 8];
    let number = &mut number[..varint_len(length)];
    octets::OctetsMut::with_slice(number).put_varint(length).expect("a slice of this length");
    head.extend_from_slice(number);
    head
}

/// Returns the path in the first HEADERS frame of a request.
fn path_in_frames(request: &[u8]) -> Option<Vec<u8>> {
    let mut frames = Octets::with_slice(request);
    loop {
        let kind = frames.get_varint().ok()?;
        let length = usize::try_from(frames.get_varint().ok()?).ok()?;
        let payload = frames.get_bytes(length).ok()?;
        if kind == HEADERS {
            return path_in_fields(payload);
        }
    }
}

/// Returns `:path` of a field section without references to a dynamic table (RFC 9204, section
/// 4.5).
fn path_in_fields(mut fields: Octets<'_>) -> Option<Vec<u8>> {
    // The prefix: the required insert count and the base, both of a dynamic table, so 0.
    fields.get_bytes(2).ok()?;
    loop {
        match fields.peek_u8().ok()? {
            // Indexed field line.
            0x80.. => drop(prefixed(&mut fields, 6)?),
            // Literal field line with name reference.
            0x40.. => {
                let name = prefixed(&mut fields, 4)?;
                let value = string(&mut fields, 7)?;
                if name == PATH {
                    return Some(value);
                }
            }
            // Literal field line with literal name.
            0x20.. => drop((string(&mut fields, 3)?, string(&mut fields, 7)?)),
            _ => return None,
        }
    }
}

/// Reads an integer with a prefix of `bits` bits (RFC 7541, section 5.1).
fn prefixed(fields: &mut Octets<'_>, bits: u32) -> Option<u64> {
    let most = (1 << bits) - 1;
    let mut value = u64::from(fields.get_u8().ok()?) & most;
    if value < most {
        return Some(value);
    }
    for shift in (0..56).step_by(7) {
        let byte = fields.get_u8().ok()?;
        value += u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Reads a string whose length has a prefix of `bits` bits, after the bit that marks Huffman's code
/// (RFC 9204, section 4.1.2).
fn string(fields: &mut Octets<'_>, bits: u32) -> Option<Vec<u8>> {
    let is_coded = fields.peek_u8().ok()? >> bits & 1 == 1;
    let length = usize::try_from(prefixed(fields, bits)?).ok()?;
    let mut content = fields.get_bytes(length).ok()?;
    match is_coded {
        true => content.get_huffman_decoded().ok(),
        false => Some(content.to_vec()),
    }
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
    [&[HEADERS as u8, fields.len() as u8][..], &fields].concat()
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
        let mut head = Octets::with_slice(&self.head);
        let (Ok(kind), Ok(length)) = (head.get_varint(), head.get_varint()) else { return };
        (self.is_data, self.left) = (kind == DATA, length);
        self.head.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_plain_and_in_huffmans_code() {
        let plain = request("localhost:4433", "/bytes/7");
        assert_eq!(path_of(&plain, true).as_deref(), Some("/bytes/7"));
        // As nghttp3 sends it: ":path: /bytes/7" in Huffman's code, after a frame of another type.
        let mut coded = [0; 8];
        let mut writer = octets::OctetsMut::with_slice(&mut coded);
        writer.put_huffman_encoded::<false>(b"/bytes/7").expect("room");
        let length = writer.off();
        let fields = [&[0, 0, 0xc0 | 17, 0x51, 0x80 | length as u8], &coded[..length]].concat();
        let frames = [&[0x21, 1, 0, HEADERS as u8, fields.len() as u8], &fields[..]].concat();
        assert_eq!(path_of(&frames, true).as_deref(), Some("/bytes/7"));
        assert_eq!(path_of(b"GET /bytes/7\r\n", false).as_deref(), Some("/bytes/7\r\n"));
    }

    #[test]
    fn a_response_is_read_in_any_pieces() {
        for length in [0_u64, 63, 64, 70_000] {
            let body: Vec<u8> = pieces(1, length).flatten().collect();
            let response = [response_head(length), body.clone()].concat();
            let (mut frames, mut read) = (Frames::default(), Vec::new());
            for piece in response.chunks(7) {
                frames.data(piece, |data| read.extend_from_slice(data));
            }
            assert_eq!(read, body);
        }
    }
}
