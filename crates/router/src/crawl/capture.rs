//! Captures of unencrypted HTTP/1 traffic: the requests of each connection with their responses.

use std::io::Read;

use super::flows::{Flow, read as read_flows};
use super::hosts::{Exchange, of_host, plain};
use super::{CUT, FetchedObject, SiteContent, is_of_transfer};

/// Maximum number of headers in an HTTP request or response.
const HEADERS: usize = 96;

/// Reads the responses with status 200 to GET requests from a packet capture. Uses only responses
/// of `host` or, if that is `None`, of the host that served the first page ([`of_host`]).
///
/// # Errors
/// The source is no capture, is damaged, or contains no such response.
pub(super) fn read(source: impl Read, host: Option<&str>) -> Result<SiteContent, String> {
    let capture = read_flows(source)?;
    let (count, mut found) = (capture.flows.len(), SiteContent::default());
    let cure = match capture.snapped {
        true => "; it has only the first bytes of each packet: record whole ones (tcpdump -s 0)",
        false => "",
    };
    if capture.cut {
        found.leave_out(CUT);
    }
    // Each connection is dropped after its bodies are extracted, to save memory.
    let all: Vec<Exchange> = capture.flows.into_iter().flat_map(|flow| exchanges(&flow)).collect();
    if all.is_empty() {
        let skipped = capture.skipped;
        return Err(format!(
            "the capture has no unencrypted HTTP request (TCP connections: {count}; other packets, \
             which were ignored: {skipped}){cure}"
        ));
    }
    of_host(all, host, found).map_err(|why| why + cure)
}

/// Returns the HTTP requests of `flow`, each with its response, up to the first request or
/// response that cannot be parsed.
fn exchanges(flow: &Flow) -> Vec<Exchange> {
    let (mut all, mut asked, mut answered) = (Vec::new(), 0, 0);
    while let Some(request) = Head::request(&flow.streams[0][asked..]) {
        let at = flow.at(0, asked);
        let sent = request.length.saturating_add(request.body.unwrap_or(0));
        asked = asked.saturating_add(sent).min(flow.streams[0].len());
        let Some(rest) = flow.streams[1].get(answered..) else { break };
        let parsed = Head::last_answer(rest).and_then(|(answer, before)| {
            let begins = before + answer.length;
            let (body, length) = answer.body_in(&rest[begins..], &request)?;
            answered += begins + length;
            Some(taken(&request, &answer, body))
        });
        let is_whole = parsed.is_some();
        let fetched = parsed.unwrap_or(Err("an incomplete answer"));
        let host = plain(request.value("host").unwrap_or_default());
        all.push(Exchange { host, at, request: request.headers, fetched });
        if !is_whole {
            break;
        }
    }
    all
}

fn taken(request: &Head, answer: &Head, body: Vec<u8>) -> Result<FetchedObject, &'static str> {
    (request.word == "GET").then_some(()).ok_or("not a GET request")?;
    (answer.word == "200").then_some(()).ok_or("not answered with 200")?;
    let packed = answer.value("content-encoding").is_some_and(|kind| kind != "identity");
    (!packed).then_some(()).ok_or("compressed")?;
    let path = request.target.split(['?', '#']).next().unwrap_or_default().to_owned();
    let own = |(name, _): &&(String, String)| !is_of_transfer(name);
    Ok(FetchedObject { path, headers: answer.headers.iter().filter(own).cloned().collect(), body })
}

/// Start line and headers of an HTTP request or response.
struct Head {
    /// The method of a request (such as `GET`), or the status code of a response.
    word: String,
    /// The target of a request; empty for a response.
    target: String,
    headers: Vec<(String, String)>,
    /// Length of the start line and the headers in bytes.
    length: usize,
    /// Length of the body in bytes, from the `Content-Length` header; `None` without this header.
    body: Option<usize>,
}

impl Head {
    fn request(bytes: &[u8]) -> Option<Head> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let httparse::Status::Complete(length) = request.parse(bytes).ok()? else { return None };
        let (word, target) = (request.method?.to_owned(), request.path?.to_owned());
        Some(Head::of(word, target, request.headers, length))
    }

    fn answer(bytes: &[u8]) -> Option<Head> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut answer = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(length) = answer.parse(bytes).ok()? else { return None };
        Some(Head::of(answer.code?.to_string(), String::new(), answer.headers, length))
    }

    /// Parses the final response in `bytes`, after any interim (1xx) responses (RFC 9110, section
    /// 15.2). Also returns the length of the interim responses in bytes. Returns `None` if there
    /// is no complete head of a final response.
    fn last_answer(bytes: &[u8]) -> Option<(Head, usize)> {
        let mut before = 0;
        loop {
            let head = Head::answer(&bytes[before..])?;
            if !head.word.starts_with('1') || head.word == "101" {
                return Some((head, before));
            }
            before += head.length;
        }
    }

    fn of(word: String, target: String, from: &[httparse::Header<'_>], length: usize) -> Head {
        let line = |header: &httparse::Header<'_>| {
            (header.name.to_owned(), String::from_utf8_lossy(header.value).into_owned())
        };
        let headers: Vec<(String, String)> = from.iter().map(line).collect();
        let mut head = Head { word, target, headers, length, body: None };
        head.body = head.value("content-length").and_then(|digits| digits.trim().parse().ok());
        head
    }

    fn value(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(one, _)| one.eq_ignore_ascii_case(name));
        found.map(|(_, value)| &**value)
    }

    /// Returns the body at the start of `rest`, and its length on the wire in bytes. Returns
    /// `None` if the body is incomplete. `self` is the head of the response, and `request` the
    /// head of its request.
    fn body_in(&self, rest: &[u8], request: &Head) -> Option<(Vec<u8>, usize)> {
        if request.word == "HEAD" || matches!(&*self.word, "204" | "304") {
            return Some((Vec::new(), 0));
        }
        if self.value("transfer-encoding").is_some_and(|how| how.eq_ignore_ascii_case("chunked")) {
            return chunks(rest);
        }
        let length = self.body.unwrap_or(rest.len());
        Some((rest.get(..length)?.to_vec(), length))
    }
}

/// Decodes the chunked HTTP body at the start of `bytes` (RFC 9112, section 7.1). Returns the
/// body, and its length on the wire in bytes; `None` if the body is incomplete or malformed.
fn chunks(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0_usize);
    loop {
        let rest = bytes.get(at..)?;
        let httparse::Status::Complete((head, length)) = httparse::parse_chunk_size(rest).ok()?
        else {
            return None;
        };
        let length = usize::try_from(length).ok()?;
        let data = rest.get(head..head.checked_add(length)?)?;
        body.extend_from_slice(data);
        at += head + length;
        // The last chunk is followed by an empty line; trailers are not supported.
        (bytes.get(at..at + 2)? == b"\r\n").then_some(())?;
        at += 2;
        if length == 0 {
            return Some((body, at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::flows::tests::capture;
    use super::*;
    use pcap_file::pcap::{PcapPacket, PcapReader, PcapWriter};

    fn read(source: impl Read) -> Result<SiteContent, String> {
        super::read(source, None)
    }

    /// Returns a capture with only the first `length` bytes of each packet.
    fn snapped(file: &[u8], length: usize) -> Vec<u8> {
        let mut reader = PcapReader::new(file).unwrap();
        let mut writer = PcapWriter::with_header(Vec::new(), reader.header()).unwrap();
        while let Some(packet) = reader.next_packet() {
            let packet = packet.unwrap();
            let kept = &packet.data[..packet.data.len().min(length)];
            let packet = PcapPacket::new(packet.timestamp, packet.orig_len, kept);
            writer.write_packet(&packet).unwrap();
        }
        writer.into_writer()
    }

    const ASK: &[u8] = b"GET /a.json?x=1 HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n";

    #[test]
    fn requests_and_answers_are_found_however_bodies_end() {
        let page = b"HTTP/1.1 200 OK\r\nServer: Caddy\r\nContent-Type: text/html\r\n\
            Content-Length: 3\r\nSet-Cookie: a=b\r\n\r\none";
        let json = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
            Transfer-Encoding: chunked\r\n\r\n3\r\n[1,\r\n2;x=y\r\n2]\r\n0\r\n\r\n";
        let ask = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let all = [&page[..], json].concat();
        let mut segments = vec![
            (1_000, true, 1, &ask[..]),
            (1_100, false, 1, &all[..60]),
            (1_150, true, 1 + ask.len() as u32, ASK),
            (1_200, false, 61, &all[60..]),
        ];
        let found = read(&*capture(&segments)).unwrap();
        assert_eq!(found.objects.len(), 2);
        assert_eq!((&*found.objects[0].path, &*found.objects[0].body), ("/", &b"one"[..]));
        assert_eq!((&*found.objects[1].path, &*found.objects[1].body), ("/a.json", &b"[1,2]"[..]));
        assert_eq!(found.objects[0].headers.len(), 3, "no cookie");
        assert_eq!(found.request, [("Host".to_owned(), "a".to_owned())]);
        assert_eq!(found.pages.len(), 1);
        segments.pop();
        let cut = read(&*capture(&segments)).unwrap_err();
        assert!(cut.ends_with(": 1 × an incomplete answer"), "{cut}");
    }

    #[test]
    fn what_is_said_before_an_answer_is_none_and_no_length_is_too_long() {
        let ask = [b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\none", ASK].concat();
        let streams =
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok\
            HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n\
            Content-Type: application/json\r\nContent-Length: 5\r\n\r\n[1,2]";
        let found = read(&*capture(&[(1, true, 1, &ask), (2, false, 1, streams)])).unwrap();
        assert_eq!((found.objects.len(), found.left_out["not a GET request"]), (1, 1));
        assert_eq!(found.objects[0].body, b"[1,2]");
        let longest = format!("GET / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", usize::MAX);
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let file = capture(&[(1, true, 1, longest.as_bytes()), (2, false, 1, answer)]);
        assert_eq!(read(&*file).unwrap().objects.len(), 1);
    }

    #[test]
    fn a_snap_length_is_named_where_it_hides_all() {
        let answer = [b"HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n", &[b'x'; 60][..]].concat();
        let whole = capture(&[(1, true, 1, ASK), (2, false, 1, &answer)]);
        assert_eq!(read(&*whole).unwrap().objects.len(), 1);
        // The first snap length ends in the request's head, the second in the answer's body.
        for snap_length in [45, 92] {
            let why = read(&*snapped(&whole, snap_length)).unwrap_err();
            assert!(why.ends_with("record whole ones (tcpdump -s 0)"), "{why}");
        }
    }

    #[test]
    fn what_is_no_http_is_told() {
        let why =
            read(&*capture(&[(1, true, 1, b"\x16\x03\x01"), (2, false, 1, b"x")])).unwrap_err();
        assert!(why.contains("no unencrypted HTTP request (TCP connections: 1;"), "{why}");
        for (answer, why) in [
            (&b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"[..], "not answered with 200"),
            (
                b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx",
                "compressed",
            ),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz", "an incomplete answer"),
            (b"nothing\r\n\r\n", "an incomplete answer"),
        ] {
            let error = read(&*capture(&[(1, true, 1, ASK), (2, false, 1, answer)])).unwrap_err();
            assert!(error.ends_with(&format!(": 1 × {why}")), "{why}: {error}");
        }
    }
}
