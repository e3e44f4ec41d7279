//! A directory's responses and their encodings.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use miniz_oxide::deflate::compress_to_vec_zlib;

use super::civil::http_date;

/// Compression level for zlib and gzip: the default of zlib.
const EFFORT: u8 = 6;
/// Compression level for Zstandard: the default of Zstandard.
const ZSTD_EFFORT: i32 = 3;
/// Maximum length of the reason in a status line, in characters.
const LONGEST_REASON: usize = 200;

/// The encoding of a body (dir-spec, "Standard headers").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Encoding {
    /// The body is not compressed.
    #[default]
    Identity,
    /// zlib (RFC 1950).
    Deflate,
    /// gzip (RFC 1952).
    Gzip,
    /// Zstandard.
    Zstd,
}

impl Encoding {
    /// The encodings that compress, in order of preference (C tor's order).
    pub const PACKED: [Encoding; 3] = [Encoding::Zstd, Encoding::Deflate, Encoding::Gzip];

    /// Returns the name of the encoding in headers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Identity => "identity",
            Encoding::Deflate => "deflate",
            Encoding::Gzip => "gzip",
            Encoding::Zstd => "x-zstd",
        }
    }

    /// Returns the preferred encoding among those in `accepted`, the value of the
    /// `Accept-Encoding` header. `suffixed` is true for a path that ends in `.z`, which also
    /// accepts [`Encoding::Deflate`] (dir-spec, "Standard headers").
    #[must_use]
    pub fn best_of(accepted: &str, suffixed: bool) -> Encoding {
        let named = |one: &Encoding| {
            let says_so = accepted.split(',').any(|name| name.trim() == one.name());
            says_so || (suffixed && *one == Encoding::Deflate)
        };
        Encoding::PACKED.into_iter().find(named).unwrap_or_default()
    }

    /// Compresses `body` with this encoding. Returns `None` for [`Encoding::Identity`], or if the
    /// result is not shorter.
    #[must_use]
    pub fn pack(self, body: &[u8]) -> Option<Vec<u8>> {
        let packed = match self {
            Encoding::Identity => return None,
            Encoding::Deflate => compress_to_vec_zlib(body, EFFORT),
            Encoding::Gzip => gzip(body),
            Encoding::Zstd => zstd::encode_all(body, ZSTD_EFFORT).ok()?,
        };
        (packed.len() < body.len()).then_some(packed)
    }
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    status: u16,
    reason: String,
    headers: String,
    encoding: Encoding,
    body: Arc<[u8]>,
}

impl Reply {
    /// Creates a response without a body. Characters that are not printable ASCII are removed from
    /// `reason`.
    #[must_use]
    pub fn new(status: u16, reason: &str) -> Reply {
        let printable = reason.chars().filter(|one| one.is_ascii_graphic() || *one == ' ');
        let reason = printable.take(LONGEST_REASON).collect();
        let body = Arc::default();
        Reply { status, reason, headers: String::new(), encoding: Encoding::Identity, body }
    }

    /// Creates a response with status 200. Compresses the body if that makes it shorter.
    #[must_use]
    pub fn ok(body: &[u8], encoding: Encoding) -> Reply {
        match encoding.pack(body) {
            Some(packed) => Reply::packed(packed.into(), encoding),
            None => Reply::packed(body.into(), Encoding::Identity),
        }
    }

    /// Creates a response with status 200, whose body is already compressed.
    #[must_use]
    pub fn packed(body: Arc<[u8]>, encoding: Encoding) -> Reply {
        Reply { body, encoding, ..Reply::new(200, "OK") }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl std::fmt::Display) -> Reply {
        let _ = write!(self.headers, "{name}: {value}\r\n");
        self
    }

    /// Adds the headers of every directory response: the present time, and the client's address if
    /// the address is public.
    #[must_use]
    pub fn with_common_headers(self, unix_now: u64, peer: Option<IpAddr>) -> Reply {
        let reply = self.header("Date", http_date(unix_now));
        match peer.filter(|peer| crate::relay::is_public(*peer)) {
            Some(peer) => reply.header("X-Your-Address-Is", peer),
            None => reply,
        }
    }

    /// Returns the HTTP status code.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the length of the body in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.body.len()
    }

    /// Returns true if this response and `other` share one body in memory.
    #[must_use]
    pub fn shares(&self, other: &Reply) -> bool {
        Arc::ptr_eq(&self.body, &other.body)
    }

    /// Returns the address of the body in memory, which identifies the body as long as it exists.
    #[must_use]
    pub fn body_number(&self) -> usize {
        self.body.as_ptr().addr()
    }

    /// Returns all bytes of the response.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        [self.head().as_bytes(), &self.body].concat()
    }

    /// Converts the response to a [`ResponseStream`], which is sent in parts. Copies of a response
    /// share its body.
    #[must_use]
    pub fn into_stream(self) -> ResponseStream {
        ResponseStream { head: self.head(), body: self.body, sent: 0 }
    }

    fn head(&self) -> String {
        let Reply { status, reason, headers, encoding, body } = self;
        let (encoding, length) = (encoding.name(), body.len());
        format!(
            "HTTP/1.0 {status} {reason}\r\n{headers}Content-Type: text/plain\r\n\
             Content-Encoding: {encoding}\r\nContent-Length: {length}\r\n\r\n"
        )
    }
}

/// A response that is being sent.
#[derive(Clone, Debug)]
pub struct ResponseStream {
    head: String,
    body: Arc<[u8]>,
    sent: usize,
}

impl ResponseStream {
    /// Returns the next bytes to send: the rest of the head, then the rest of the body. They are
    /// empty at the end.
    #[must_use]
    pub fn next(&self) -> &[u8] {
        match self.sent.checked_sub(self.head.len()) {
            None => &self.head.as_bytes()[self.sent..],
            Some(sent) => &self.body[sent..],
        }
    }

    /// Records that the next `bytes` bytes were sent.
    pub fn advance(&mut self, bytes: usize) {
        self.sent += bytes;
    }
}

/// Compresses `body` with gzip: deflated bytes, as in zlib, between gzip's header and trailer.
fn gzip(body: &[u8]) -> Vec<u8> {
    const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let deflated = miniz_oxide::deflate::compress_to_vec(body, EFFORT);
    // The length field is modulo 2³² (RFC 1952, 2.3.1).
    let (sum, length) = (crc32fast::hash(body), body.len() as u32);
    [&HEAD[..], &deflated, &sum.to_le_bytes(), &length.to_le_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_that_is_accepted_is_taken() {
        for (accepted, best) in [
            ("x-tor-lzma, x-zstd, deflate, gzip, identity", Encoding::Zstd),
            ("deflate, gzip", Encoding::Deflate),
            (" gzip", Encoding::Gzip),
            ("identity", Encoding::Identity),
            ("", Encoding::Identity),
        ] {
            assert_eq!(Encoding::best_of(accepted, false), best, "{accepted}");
        }
    }

    #[test]
    fn gzip_is_what_its_checksum_says() {
        let packed = Encoding::Gzip.pack(&b"again and ".repeat(30)).unwrap();
        let (deflated, tail) = packed[10..].split_at(packed.len() - 18);
        let plain = miniz_oxide::inflate::decompress_to_vec(deflated).unwrap();
        assert_eq!(plain, b"again and ".repeat(30));
        assert_eq!(tail[4..], 300_u32.to_le_bytes());
        assert_eq!(tail[..4], crc32fast::hash(&plain).to_le_bytes());
    }

    #[test]
    fn what_would_break_a_status_line_is_left_out() {
        let reply = Reply::new(400, "no\r\nSet-Cookie: x").header("X-One", 1);
        let text = String::from_utf8(reply.bytes()).unwrap();
        assert!(text.starts_with("HTTP/1.0 400 noSet-Cookie: x\r\nX-One: 1\r\n"), "{text}");
    }

    #[test]
    fn private_addresses_are_told_to_nobody() {
        let text_of = |peer: &str| {
            let reply = Reply::new(200, "OK")
                .with_common_headers(1_800_000_000, Some(peer.parse().unwrap()));
            String::from_utf8(reply.bytes()).unwrap()
        };
        assert!(text_of("9.9.9.9").contains("X-Your-Address-Is: 9.9.9.9\r\n"));
        assert!(text_of("9.9.9.9").contains("Date: Fri, 15 Jan 2027 08:00:00 GMT\r\n"));
        assert!(!text_of("10.1.1.1").contains("X-Your"));
    }
}
