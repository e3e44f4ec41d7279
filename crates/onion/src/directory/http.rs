//! HTTP/1.0 for directory documents (dir-spec, "HTTP"): one request and one response, both limited
//! in size.
//!
//! The module only parses and produces bytes. The caller transfers them over a stream of a circuit
//! or over a TCP connection.

use std::fmt;
use std::io::Read;

use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;

use super::civil::from_http_date;
use super::reply::Encoding;
use crate::wire::text::bytes;

/// Maximum size in bytes of a message's head: its first line and its headers.
const LONGEST_HEAD: usize = 16 << 10;
/// Maximum number of a message's headers.
const MOST_HEADERS: usize = 64;
/// Maximum number of consensuses that one request may name.
const MOST_CONSENSUSES: usize = 16;

/// The reason why a request or a response is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpError {
    /// The message is longer than allowed. Contains the limit in bytes.
    TooLong(usize),
    /// The message is not valid HTTP. Contains the reason.
    Malformed(&'static str),
    /// The message ended before it was complete.
    Truncated,
    /// The message has an encoding that was not requested.
    Encoding(String),
}

impl fmt::Display for HttpError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HttpError::TooLong(limit) => {
                write!(out, "the HTTP message is longer than {limit} bytes")
            }
            HttpError::Malformed(what) => write!(out, "it is not HTTP: {what}"),
            HttpError::Truncated => out.write_str("the HTTP message ended before it was complete"),
            HttpError::Encoding(name) => {
                let name = name.escape_debug();
                write!(
                    out,
                    "the HTTP message has the Content-Encoding '{name}', which was not requested"
                )
            }
        }
    }
}

impl std::error::Error for HttpError {}

/// Returns the bytes of a GET request for `path`.
#[must_use]
pub fn get(path: &str) -> Vec<u8> {
    let encodings = "Accept-Encoding: x-zstd, deflate, identity";
    format!("GET {path} HTTP/1.0\r\n{encodings}\r\n\r\n").into_bytes()
}

/// Returns the bytes of a POST request with `body` to `path`.
#[must_use]
pub fn post(path: &str, host: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.0\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// A decoded response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status code; 200 for success.
    pub status: u16,
    /// The server's reason phrase.
    pub reason: String,
    /// The decoded body.
    pub body: Vec<u8>,
}

/// Parser of a response that arrives in parts.
#[derive(Debug)]
pub struct ResponseReader {
    bytes: Vec<u8>,
    limit: usize,
}

impl ResponseReader {
    /// Creates a reader of a response whose body has at most `limit` bytes, both encoded and
    /// decoded.
    #[must_use]
    pub fn new(limit: usize) -> ResponseReader {
        ResponseReader { bytes: Vec::new(), limit }
    }

    /// Appends received bytes.
    ///
    /// # Errors
    /// Returns [`HttpError::TooLong`] as soon as the response exceeds the limit.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), HttpError> {
        if self.bytes.len() + bytes.len() > LONGEST_HEAD + self.limit {
            self.bytes = Vec::new();
            return Err(HttpError::TooLong(self.limit));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns the number of bytes received so far.
    #[must_use]
    pub fn received(&self) -> usize {
        self.bytes.len()
    }

    /// Parses the response after the stream has ended.
    ///
    /// # Errors
    /// Returns an [`HttpError`] if the response is incomplete, malformed, too long, or has an
    /// encoding that was not requested.
    pub fn finish(self) -> Result<Response, HttpError> {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut head = httparse::Response::new(&mut headers);
        let length = head_length(head.parse(&self.bytes), self.bytes.len())?;
        let status = head.code.ok_or(HttpError::Malformed("it has no status code"))?;
        let reason = head.reason.unwrap_or_default().to_owned();
        let body = &self.bytes[length..];
        let body = match content_length(head.headers)? {
            Some(wanted) if body.len() < wanted => return Err(HttpError::Truncated),
            Some(wanted) => &body[..wanted],
            None => body,
        };
        let encoding = header(head.headers, "content-encoding").unwrap_or("identity");
        let body = decode(encoding, body, self.limit)?;
        Ok(Response { status, reason, body })
    }
}

/// A request from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// True if the method is GET, false if it is POST.
    pub get: bool,
    /// The requested path, such as `/tor/status-vote/current/consensus-microdesc`.
    pub path: String,
    /// The encoding of the response: the best encoding that the client accepts.
    pub encoding: Encoding,
    /// The time in `If-Modified-Since`, in seconds since 1970; `None` if the header is absent.
    pub since: Option<u64>,
    /// The consensuses that the client has, by the SHA3-256 of their signed parts
    /// (`X-Or-Diff-From-Consensus`).
    pub has: Vec<[u8; 32]>,
    /// The body of a POST request.
    pub body: Vec<u8>,
}

/// Parser of a request that arrives in parts.
#[derive(Debug)]
pub struct RequestReader {
    bytes: Vec<u8>,
    limit: usize,
}

impl RequestReader {
    /// Creates a reader of a request whose body has at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> RequestReader {
        RequestReader { bytes: Vec::new(), limit }
    }

    /// Appends received bytes. Returns the request once it is complete. Further bytes are ignored.
    ///
    /// # Errors
    /// Returns an [`HttpError`] if the request is malformed or exceeds the limit.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Option<Request>, HttpError> {
        if self.bytes.len() + bytes.len() > LONGEST_HEAD + self.limit {
            self.bytes = Vec::new();
            return Err(HttpError::TooLong(self.limit));
        }
        self.bytes.extend_from_slice(bytes);
        match self.parse() {
            Err(HttpError::Truncated) => Ok(None),
            other => other.map(Some),
        }
    }

    fn parse(&self) -> Result<Request, HttpError> {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut head = httparse::Request::new(&mut headers);
        let length = head_length(head.parse(&self.bytes), self.bytes.len())?;
        let get = match head.method {
            Some("GET") => true,
            Some("POST") => false,
            _ => return Err(HttpError::Malformed("the method is neither GET nor POST")),
        };
        let wanted = if get { 0 } else { content_length(head.headers)?.unwrap_or(0) };
        if wanted > self.limit {
            return Err(HttpError::TooLong(self.limit));
        }
        let body = self.bytes.get(length..length + wanted).ok_or(HttpError::Truncated)?.to_vec();
        let path = head.path.unwrap_or_default();
        let accepted = header(head.headers, "accept-encoding").unwrap_or_default();
        let encoding = Encoding::best_of(accepted, path.ends_with(".z"));
        let since = header(head.headers, "if-modified-since").and_then(from_http_date);
        let named = header(head.headers, "x-or-diff-from-consensus").unwrap_or_default();
        let named = named.split([',', ' ']).filter(|name| !name.is_empty());
        let has = named.take(MOST_CONSENSUSES).filter_map(bytes).collect();
        let path = path.strip_suffix(".z").unwrap_or(path).to_owned();
        Ok(Request { get, path, encoding, since, has, body })
    }
}

/// Returns the length in bytes of the message's head: its first line and its headers. The body
/// follows.
fn head_length(
    parsed: Result<httparse::Status<usize>, httparse::Error>,
    there: usize,
) -> Result<usize, HttpError> {
    match parsed {
        Ok(httparse::Status::Complete(length)) if length <= LONGEST_HEAD => Ok(length),
        Ok(httparse::Status::Partial) if there <= LONGEST_HEAD => Err(HttpError::Truncated),
        Ok(_) => Err(HttpError::TooLong(LONGEST_HEAD)),
        Err(_) => Err(HttpError::Malformed("its header is invalid")),
    }
}

fn header<'a>(headers: &[httparse::Header<'a>], name: &str) -> Option<&'a str> {
    let found = headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
    std::str::from_utf8(found.value).ok().map(str::trim)
}

fn content_length(headers: &[httparse::Header<'_>]) -> Result<Option<usize>, HttpError> {
    let parse = |text: &str| {
        text.parse().map_err(|_| HttpError::Malformed("its Content-Length is not a number"))
    };
    header(headers, "content-length").map(parse).transpose()
}

/// Decodes a body. Stops with an error when the result exceeds `limit` bytes.
fn decode(encoding: &str, body: &[u8], limit: usize) -> Result<Vec<u8>, HttpError> {
    let decoded = match encoding {
        "identity" => body.to_vec(),
        "deflate" => {
            decompress_to_vec_zlib_with_limit(body, limit).map_err(|error| match error.status {
                miniz_oxide::inflate::TINFLStatus::HasMoreOutput => HttpError::TooLong(limit),
                miniz_oxide::inflate::TINFLStatus::FailedCannotMakeProgress => HttpError::Truncated,
                _ => HttpError::Malformed("its body cannot be decompressed (deflate)"),
            })?
        }
        "x-zstd" => unzstd(body, limit)?,
        other => return Err(HttpError::Encoding(other.to_owned())),
    };
    if decoded.len() > limit { Err(HttpError::TooLong(limit)) } else { Ok(decoded) }
}

fn unzstd(body: &[u8], limit: usize) -> Result<Vec<u8>, HttpError> {
    let malformed = |_| HttpError::Malformed("its body cannot be decompressed (zstd)");
    let mut decoder = zstd::stream::read::Decoder::new(body).map_err(malformed)?;
    // A frame may request a window of 2 GiB; C tor compresses with at most 8 MiB.
    decoder.window_log_max(23).map_err(malformed)?;
    let mut plain = Vec::new();
    let room = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    decoder.take(room).read_to_end(&mut plain).map_err(malformed)?;
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::super::reply::Reply;
    use super::*;

    fn answer(body: &[u8], deflate: bool) -> Vec<u8> {
        let encoding = if deflate { Encoding::Deflate } else { Encoding::Identity };
        Reply::ok(body, encoding).bytes()
    }

    fn read(bytes: &[u8], limit: usize, piece: usize) -> Result<Response, HttpError> {
        let mut reader = ResponseReader::new(limit);
        bytes.chunks(piece).try_for_each(|piece| reader.push(piece))?;
        reader.finish()
    }

    fn asked(bytes: &[u8], piece: usize) -> Result<Option<Request>, HttpError> {
        let mut reader = RequestReader::new(1000);
        for piece in bytes.chunks(piece) {
            if let Some(request) = reader.push(piece)? {
                return Ok(Some(request));
            }
        }
        Ok(None)
    }

    #[test]
    fn answers_come_back_however_they_are_cut_and_packed() {
        let body = b"a directory says the same thing often. ".repeat(50);
        for deflate in [false, true] {
            let bytes = answer(&body, deflate);
            assert_eq!(bytes.len() < body.len(), deflate);
            for piece in [1, 7, 5000] {
                let back = read(&bytes, 10_000, piece).unwrap();
                assert_eq!((back.status, &back.reason[..], &back.body), (200, "OK", &body));
            }
        }
        let packed = zstd::encode_all(&body[..], 3).unwrap();
        let head = b"HTTP/1.0 200 OK\r\nContent-Encoding: x-zstd\r\n\r\n";
        assert_eq!(read(&[&head[..], &packed].concat(), 10_000, 9).unwrap().body, body);
    }

    #[test]
    fn requests_come_back_however_they_are_cut() {
        for piece in [1, 11, 4000] {
            let got = asked(&get("/tor/micro/d/abc.z"), piece).unwrap().unwrap();
            assert_eq!((got.get, &got.path[..]), (true, "/tor/micro/d/abc"));
            assert_eq!((got.encoding, got.since), (Encoding::Zstd, None));
            let put = asked(&post("/tor/", "127.0.0.1", b"router x"), piece).unwrap().unwrap();
            assert_eq!((put.get, &put.body[..]), (false, &b"router x"[..]));
        }
        assert_eq!(asked(b"GET /tor/ HTTP/1.0\r\n", 3), Ok(None));
        let since =
            b"GET /x.z HTTP/1.0\r\nIf-Modified-Since: Fri, 15 Jan 2027 08:00:00 GMT\r\n\r\n";
        let got = asked(since, 9).unwrap().unwrap();
        assert_eq!((got.encoding, got.since), (Encoding::Deflate, Some(1_800_000_000)));
        // With the suffix `.z`, deflate is always accepted.
        for (path, accepted, best) in [
            ("/x.z", "identity", Encoding::Deflate),
            ("/x.z", "gzip, identity", Encoding::Deflate),
            ("/x.z", "x-zstd", Encoding::Zstd),
            ("/x", "identity", Encoding::Identity),
        ] {
            let text = format!("GET {path} HTTP/1.0\r\nAccept-Encoding: {accepted}\r\n\r\n");
            let got = asked(text.as_bytes(), 50).unwrap().unwrap();
            assert_eq!((got.encoding, &got.path[..]), (best, "/x"), "{path} {accepted}");
        }
    }

    #[test]
    fn an_answer_that_inflates_to_more_than_the_limit_is_refused() {
        let bomb = vec![0; 2_000_000];
        let packed = answer(&bomb, true);
        assert!(packed.len() < 10_000);
        assert_eq!(read(&packed, 100_000, 999), Err(HttpError::TooLong(100_000)));
        let head = b"HTTP/1.0 200 OK\r\nContent-Encoding: x-zstd\r\n\r\n";
        let packed = [&head[..], &zstd::encode_all(&bomb[..], 3).unwrap()].concat();
        assert_eq!(read(&packed, 100_000, 999), Err(HttpError::TooLong(100_000)));
        let plain = answer(&bomb, false);
        assert_eq!(read(&plain, 100_000, 999), Err(HttpError::TooLong(100_000)));
    }

    #[test]
    fn an_answer_that_is_cut_is_refused() {
        for deflate in [false, true] {
            let whole = answer(&b"some text, and more of it. ".repeat(9), deflate);
            for length in 0..whole.len() {
                assert_eq!(read(&whole[..length], 1000, 64), Err(HttpError::Truncated), "{length}");
            }
        }
    }

    #[test]
    fn what_is_not_http_is_refused() {
        for bytes in [&b"\x16\x03\x01\x02\0"[..], b"HTTP/1.0 abc\r\n\r\n", b"SSH-2.0-x\r\n\r\n"] {
            assert!(matches!(read(bytes, 100, 9), Err(HttpError::Malformed(_))));
        }
        let odd = b"HTTP/1.0 200 OK\r\nContent-Encoding: br\r\n\r\nx";
        assert_eq!(read(odd, 100, 9), Err(HttpError::Encoding("br".to_owned())));
        assert!(matches!(asked(b"PUT / HTTP/1.0\r\n\r\n", 5), Err(HttpError::Malformed(_))));
        let long = [&b"GET /"[..], &[b'x'; 20_000]].concat();
        assert!(matches!(asked(&long, 500), Err(HttpError::TooLong(_))));
        let huge = b"POST /tor/ HTTP/1.0\r\nContent-Length: 99999\r\n\r\n";
        assert_eq!(asked(huge, 5), Err(HttpError::TooLong(1000)));
    }
}
