//! Heads (start line and headers) of HTTP requests and answers, which look like those of a browser
//! and a web server. The parser is strict about the start line, the query, and the headers that
//! determine the body. Any other head is treated as a stranger's.

use std::sync::Arc;

use anabranch_multipath::Time;
use base64ct::{Base64UrlUnpadded, Encoding};

use super::date::http_date;
use super::{GETS, LARGEST, Names, NotCover, Notes, Pictures, SharedContext, Site, Tier};

/// Maximum bytes of a received HTTP head (start line and headers).
const HEAD: usize = 8 << 10;
/// Maximum number of headers in a received HTTP request or answer.
const HEADERS: usize = 48;
/// Value of a client's `User-Agent` header.
const AGENT: &str = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
    Chrome/138.0.0.0 Safari/537.36";
/// Maximum bytes of the head (request line and headers) that a client writes, without the host
/// name and the query.
const REQUEST_MOST: usize = 520;
/// Maximum bytes of the head (status line and headers) that a server writes for a generated
/// answer.
pub(super) const ANSWER_MOST: usize = 256;
/// Duration in seconds of a segment of the live stream that requests pretend to fetch. The segment
/// number in URL paths changes after this time.
const SEGMENT_SECONDS: u64 = 4;

/// The head of a client's request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestHead {
    /// A GET, with its URL path and the hidden bytes of its query.
    Get(String, Vec<u8>),
    /// A POST, with the length of its body.
    Post(usize),
}

/// The head of a server's answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AnswerHead {
    pub(super) length: usize,
    pub(super) closes: bool,
    /// Content type of the answer.
    pub(super) kind: String,
}

/// The writer and parser of the heads (start lines and headers) of a connection's messages.
#[derive(Debug)]
pub(super) struct Heads {
    context: Arc<SharedContext>,
    pub(super) tier: Tier,
}

/// Collects a head (start line and headers) from received bytes in `inbox`, and removes its bytes
/// from `bytes`. Returns `None` if the head is not complete yet.
///
/// # Errors
/// The head is longer than any valid head, or does not begin with an uppercase letter.
pub(super) fn gather(inbox: &mut Vec<u8>, bytes: &mut &[u8]) -> Result<Option<Vec<u8>>, NotCover> {
    let (before, from) = (inbox.len(), inbox.len().saturating_sub(3));
    inbox.extend_from_slice(&bytes[..bytes.len().min((HEAD + 1).saturating_sub(before))]);
    if inbox.first().is_some_and(|byte| !byte.is_ascii_uppercase()) {
        return Err(NotCover);
    }
    let end = inbox[from..].windows(4).position(|four| four == b"\r\n\r\n");
    let Some(end) = end.map(|at| from + at + 4).filter(|&end| end <= HEAD) else {
        *bytes = &[];
        return if inbox.len() > HEAD { Err(NotCover) } else { Ok(None) };
    };
    *bytes = &bytes[end - before..];
    inbox.truncate(end);
    Ok(Some(std::mem::take(inbox)))
}

impl Heads {
    pub(super) fn new(context: Arc<SharedContext>, tier: Tier) -> Heads {
        Heads { context, tier }
    }

    /// Returns the pictures in which answers hide bytes.
    pub(super) fn pictures(&self) -> &Pictures {
        &self.context.covers.pictures
    }

    /// Returns the name of the JSON member whose strings hide bytes.
    pub(super) fn words(&self) -> &str {
        self.context.names.list()
    }

    /// Returns the maximum length in bytes of a request's head, not counting the query of the URL.
    pub(super) fn request_most(&self) -> usize {
        REQUEST_MOST + 3 * self.context.host.len()
    }

    /// Writes a GET that contains the `hidden` bytes. It requests the URL path `path`; if that is
    /// `None`, a path derived from the bridge's key.
    pub(super) fn get(
        &self,
        now: Time,
        (path, hidden): (Option<String>, &[u8]),
        out: &mut Vec<u8>,
    ) {
        let names = &self.context.names;
        let number = self.unix(now) / SEGMENT_SECONDS;
        let path = path.unwrap_or_else(|| names.media(self.tier, number));
        let query = names.query();
        let (hidden, host) = (Base64UrlUnpadded::encode_string(hidden), &self.context.host);
        let head = format!(
            "GET {path}?{query}={hidden} HTTP/1.1\r\nHost: {host}\r\nConnection: keep-alive\r\n\
             User-Agent: {AGENT}\r\nAccept: */*\r\nReferer: http://{host}/\r\n\
             Accept-Encoding: gzip, deflate\r\nAccept-Language: en-US,en;q=0.9\r\n\r\n"
        );
        out.extend_from_slice(head.as_bytes());
    }

    /// Writes the head of a POST with a body of `length` bytes.
    pub(super) fn post(&self, length: usize, out: &mut Vec<u8>) {
        let (path, host) = (self.context.names.upload(), &self.context.host);
        let kind = self.tier.upload_type();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: keep-alive\r\n\
             Content-Length: {length}\r\nUser-Agent: {AGENT}\r\nContent-Type: {kind}\r\n\
             Accept: */*\r\nOrigin: http://{host}\r\nReferer: http://{host}/\r\n\
             Accept-Encoding: gzip, deflate\r\nAccept-Language: en-US,en;q=0.9\r\n\r\n"
        );
        out.extend_from_slice(head.as_bytes());
    }

    /// Writes the head of an answer whose body has `length` bytes. `closes` is whether the
    /// connection closes after the answer. With `modified` (seconds since 1970), the head looks
    /// like nginx's answer with a file last modified at that time. Without it, the head looks like
    /// the answer of a web application.
    ///
    /// If a cache stores the file, no client ever gets the stored copy, because each request has
    /// another query.
    pub(super) fn ok(
        &self,
        now: Time,
        (length, closes): (usize, bool),
        modified: Option<u64>,
        out: &mut Vec<u8>,
    ) {
        let date = self.date(now);
        let (kind, connection) =
            (self.tier.content_type(), if closes { "close" } else { "keep-alive" });
        let begin = format!(
            "HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: {date}\r\nContent-Type: {kind}\r\n\
             Content-Length: {length}\r\n"
        );
        let rest = match modified {
            Some(at) => format!(
                "Last-Modified: {}\r\nConnection: {connection}\r\nETag: \"{at:x}-{length:x}\"\r\n\
                 Accept-Ranges: bytes\r\n\r\n",
                http_date(at)
            ),
            None => format!("Connection: {connection}\r\nCache-Control: no-store\r\n\r\n"),
        };
        out.extend_from_slice(begin.as_bytes());
        out.extend_from_slice(rest.as_bytes());
    }

    /// Returns the modification time to report for the file at the URL path `path`, in seconds
    /// since 1970. The file imitates a segment of a live stream. If `path` contains the segment's
    /// number, the time is the start of that segment, but at most now, as the client's clock may
    /// be fast. Otherwise it is the start of the current segment.
    pub(super) fn modified(&self, now: Time, path: &str) -> u64 {
        let unix = self.unix(now);
        let number = Names::number(path).unwrap_or(unix / SEGMENT_SECONDS);
        number.saturating_mul(SEGMENT_SECONDS).min(unix)
    }

    fn unix(&self, now: Time) -> u64 {
        self.context.wall + now.since(Time::ZERO).as_secs()
    }

    fn date(&self, now: Time) -> String {
        http_date(self.unix(now))
    }

    /// Returns the web site whose files are sent as answers.
    pub(super) fn site(&self) -> &Site {
        &self.context.covers.site
    }

    /// Returns the key that masks notes. A note is the URL path of the next request, hidden in an
    /// answer.
    pub(super) fn notes(&self) -> &Notes {
        &self.context.notes
    }

    /// Writes the head of an answer that contains an object of the site. The answer's body has
    /// `length` bytes. `closes` is whether the connection closes after the answer.
    pub(super) fn object(
        &self,
        now: Time,
        object: usize,
        (length, closes): (usize, bool),
        out: &mut Vec<u8>,
    ) {
        if let Some(object) = self.site().objects().get(object) {
            object.head(&self.date(now), (length, closes), out);
        }
    }

    /// Parses the head of a request.
    ///
    /// # Errors
    /// The head does not belong to a valid request.
    pub(super) fn request(&self, head: &[u8]) -> Result<RequestHead, NotCover> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let read = request.parse(head).map_err(|_| NotCover)?;
        let whole = read == httparse::Status::Complete(head.len());
        let (Some(1), Some(method), Some(target), true) =
            (request.version, request.method, request.path, whole)
        else {
            return Err(NotCover);
        };
        once(request.headers, "host").ok_or(NotCover)?;
        match method {
            "GET" if !has(request.headers, "content-length") => self.query(target),
            "POST" if target == self.context.names.upload() => {
                Ok(RequestHead::Post(length(request.headers)?))
            }
            _ => Err(NotCover),
        }
    }

    fn query(&self, target: &str) -> Result<RequestHead, NotCover> {
        let names = &self.context.names;
        let (path, query) = target.split_once('?').ok_or(NotCover)?;
        let hidden = query.strip_prefix(names.query()).and_then(|rest| rest.strip_prefix('='));
        let mut buffer = [0; GETS[GETS.len() - 1]];
        let read = Base64UrlUnpadded::decode(hidden.ok_or(NotCover)?, &mut buffer);
        let hidden = read.map_err(|_| NotCover)?;
        // With a site, any path is allowed. Only the query shows whether the request is from a
        // client of this bridge.
        let asked = self.tier == Tier::Site || names.is_media(self.tier, path);
        let ours = asked && !hidden.is_empty();
        ours.then(|| RequestHead::Get(path.to_owned(), hidden.to_vec())).ok_or(NotCover)
    }

    /// Parses the head of an answer.
    ///
    /// # Errors
    /// The head does not belong to a valid answer.
    pub(super) fn answer(&self, head: &[u8]) -> Result<AnswerHead, NotCover> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut answer = httparse::Response::new(&mut headers);
        let read = answer.parse(head).map_err(|_| NotCover)?;
        let ok = answer.version == Some(1) && answer.code == Some(200);
        let kind = once(answer.headers, "content-type").ok_or(NotCover)?;
        let typed = self.tier == Tier::Site || kind == self.tier.content_type().as_bytes();
        if read != httparse::Status::Complete(head.len()) || !ok || !typed {
            return Err(NotCover);
        }
        let closes = once(answer.headers, "connection")
            .is_some_and(|value| value.eq_ignore_ascii_case(b"close"));
        let kind = String::from_utf8_lossy(kind).into_owned();
        Ok(AnswerHead { length: length(answer.headers)?, closes, kind })
    }
}

fn has(headers: &[httparse::Header<'_>], name: &str) -> bool {
    headers.iter().any(|header| header.name.eq_ignore_ascii_case(name))
}

/// Returns the value of the header `name` if it occurs exactly once, else `None`.
fn once<'a>(headers: &[httparse::Header<'a>], name: &str) -> Option<&'a [u8]> {
    let mut found = headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
    let value = found.next()?.value;
    found.next().is_none().then_some(value)
}

/// Parses the `Content-Length` header. It has to occur once and consist of digits, and there must
/// be no `Transfer-Encoding` header.
fn length(headers: &[httparse::Header<'_>]) -> Result<usize, NotCover> {
    let digits = once(headers, "content-length").ok_or(NotCover)?;
    if has(headers, "transfer-encoding") || digits.len() > 7 {
        return Err(NotCover);
    }
    let digit = |length: usize, byte: &u8| {
        byte.is_ascii_digit().then(|| length * 10 + usize::from(byte - b'0'))
    };
    let length = digits.iter().try_fold(0, digit).filter(|_| !digits.is_empty());
    length.filter(|&length| length <= LARGEST).ok_or(NotCover)
}
