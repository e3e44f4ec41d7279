//! A client of an HTTP proxy. It uses CONNECT (RFC 9110, section 9.3.6) with basic authentication
//! (RFC 7617).

use base64ct::{Base64, Encoding};

use super::{ClientFault, Credentials, Destination};

/// Maximum total bytes of the heads of a proxy's answers.
const LONGEST: usize = 8192;
/// Maximum number of header lines in an answer.
const MOST_HEADERS: usize = 64;
/// Maximum number of characters of the proxy's reason phrase that an error message displays.
const SHOWN: usize = 60;
/// First bytes of every answer of an HTTP proxy.
const NAME: &[u8] = b"HTTP/1.";

/// The client's side of a dialogue with an HTTP proxy.
#[derive(Debug)]
pub struct HttpDialogue {
    inbox: Vec<u8>,
    /// Total bytes of interim answers (status 1xx) so far.
    skipped: usize,
    has_login: bool,
    is_open: bool,
}

impl HttpDialogue {
    /// Begins a dialogue and appends the request to `out`. The first request already contains
    /// `login`, if it is given, because some proxies close the connection after they refused a
    /// request without a login.
    ///
    /// # Errors
    /// The login does not fit into a request.
    pub fn new(
        to: &Destination,
        login: Option<&Credentials>,
        out: &mut Vec<u8>,
    ) -> Result<HttpDialogue, ClientFault> {
        let mut head = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n");
        if let Some(login) = login {
            let Credentials { user, password } = login;
            let fits = |text: &str| (1..=255).contains(&text.len());
            if !fits(user) || !fits(password) || user.contains(':') {
                return Err(ClientFault::UnfitLogin);
            }
            let token = Base64::encode_string(format!("{user}:{password}").as_bytes());
            head.extend(["Proxy-Authorization: Basic ", &token, "\r\n"]);
        }
        head.push_str("\r\n");
        out.extend(head.bytes());
        let has_login = login.is_some();
        Ok(HttpDialogue { inbox: Vec::new(), skipped: 0, has_login, is_open: false })
    }

    /// Processes bytes from the proxy. Returns whether the proxy has opened the stream to the
    /// destination.
    ///
    /// # Errors
    /// The proxy refuses, or does not speak HTTP/1.
    pub fn take(&mut self, bytes: &[u8]) -> Result<bool, ClientFault> {
        self.inbox.extend_from_slice(bytes);
        while !self.is_open {
            let Some((length, status)) = self.head()? else { break };
            self.inbox.drain(..length);
            match status {
                // A further answer follows an interim one (RFC 9110, section 15.2).
                100 | 102..=199 => self.skipped += length,
                _ => self.is_open = true,
            }
        }
        Ok(self.is_open)
    }

    /// Returns the bytes received after the proxy's answer. They are the first bytes of the
    /// stream.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.inbox
    }

    /// Parses the head of the answer. Returns the head's length and the status code; `None` while
    /// the head is incomplete. The status code is 2xx if the stream is open, or 1xx for an interim
    /// answer. Any other status code, and also 101, is an error.
    fn head(&self) -> Result<Option<(usize, u16)>, ClientFault> {
        let known = self.inbox.len().min(NAME.len());
        if self.inbox[..known] != NAME[..known] {
            return Err(ClientFault::Foreign(self.inbox[0]));
        }
        let room = LONGEST.saturating_sub(self.skipped);
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut head = httparse::Response::new(&mut headers);
        let length = match head.parse(&self.inbox) {
            Ok(httparse::Status::Complete(length)) if length <= room => length,
            Ok(httparse::Status::Partial) if self.inbox.len() <= room => return Ok(None),
            Ok(_) => return Err(ClientFault::Endless(LONGEST)),
            Err(error) => return Err(ClientFault::Garbage(error.to_string())),
        };
        let status = head.code.unwrap_or_default();
        match status {
            100 | 102..=199 | 200..=299 => Ok(Some((length, status))),
            407 if self.has_login => Err(ClientFault::LoginRefused),
            407 => Err(ClientFault::LoginWanted),
            _ => Err(ClientFault::Refused(reason(status, head.reason.unwrap_or_default()))),
        }
    }
}

/// Formats the status of an HTTP answer and its reason phrase `text`, reduced to printable ASCII.
fn reason(status: u16, text: &str) -> String {
    let plain = text.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(SHOWN);
    format!("{status} {}", plain.collect::<String>()).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dialogue, Outcome, ProxyRequest, Reason, Service};

    fn to() -> Destination {
        Destination::new("far.example.net", 443).unwrap()
    }

    fn anna() -> Credentials {
        Credentials { user: "anna".into(), password: "sec:ret".into() }
    }

    /// Runs a dialogue in which the proxy sends `says` in pieces. Returns whether the stream is
    /// open, and the bytes left.
    fn with(says: &[u8], piece: usize, login: bool) -> (Result<bool, ClientFault>, Vec<u8>) {
        let login = login.then(anna);
        let mut client = HttpDialogue::new(&to(), login.as_ref(), &mut Vec::new()).unwrap();
        let mut outcome = Ok(false);
        for piece in says.chunks(piece) {
            outcome = client.take(piece);
            if outcome.is_err() {
                break;
            }
        }
        (outcome, client.rest().to_vec())
    }

    #[test]
    fn the_request_names_the_host_twice_and_the_login_once() {
        let mut out = Vec::new();
        HttpDialogue::new(&to(), None, &mut out).unwrap();
        let plain = "CONNECT far.example.net:443 HTTP/1.1\r\nHost: far.example.net:443\r\n\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), plain);
        let mut out = Vec::new();
        HttpDialogue::new(&to(), Some(&anna()), &mut out).unwrap();
        let head = String::from_utf8(out).unwrap();
        assert!(head.contains("\r\nProxy-Authorization: Basic YW5uYTpzZWM6cmV0\r\n"), "{head}");
    }

    #[test]
    fn a_stream_opens_however_the_answer_is_cut() {
        let heads = [
            "HTTP/1.1 200 Connection established\r\n\r\n",
            "HTTP/1.0 200 OK\r\nProxy-agent: tinyproxy\r\nContent-Length: 7\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204\r\n\r\n",
        ];
        for head in heads {
            for piece in [1, 2, 7, 1_000] {
                let whole = [head.as_bytes(), b"rest"].concat();
                assert_eq!(with(&whole, piece, false), (Ok(true), b"rest".to_vec()), "{head}");
                let part = &head.as_bytes()[..head.len() - 1];
                assert_eq!(with(part, piece, false).0, Ok(false), "half of {head}");
            }
        }
    }

    #[test]
    fn each_refusal_has_its_own_fault() {
        let refused = |why: &str| ClientFault::Refused(why.into());
        let cases = [
            ("SSH-2.0-OpenSSH_9.2p1\r\n", false, ClientFault::Foreign(b'S')),
            ("\x05\0", false, ClientFault::Foreign(5)),
            ("HTTP/1.1 407 Proxy\r\n\r\n", false, ClientFault::LoginWanted),
            ("HTTP/1.1 407 Proxy\r\n\r\n", true, ClientFault::LoginRefused),
            ("HTTP/1.1 403 Filtered\r\n\r\n", false, refused("403 Filtered")),
            ("HTTP/1.1 503\r\n\r\n", false, refused("503")),
            ("HTTP/1.1 101 Switching Protocols\r\n\r\n", false, refused("101 Switching Protocols")),
        ];
        for (says, login, fault) in cases {
            for piece in [1, 1_000] {
                assert_eq!(with(says.as_bytes(), piece, login).0, Err(fault.clone()), "{says}");
            }
        }
        let garbage = with(b"HTTP/1.1 abc\r\n\r\n", 1, false).0;
        assert!(matches!(garbage, Err(ClientFault::Garbage(_))), "{garbage:?}");
    }

    #[test]
    fn an_endless_banner_is_cut_off() {
        let header = "X-Padding: 0123456789\r\n".repeat(2_000);
        for head in ["HTTP/1.1 200 OK\r\n", "HTTP/1.1 100 Continue\r\n\r\n"] {
            let says = match head.ends_with("\r\n\r\n") {
                true => head.repeat(1_000),
                false => format!("{head}{header}"),
            };
            let found = with(says.as_bytes(), 500, false).0;
            let ends = matches!(found, Err(ClientFault::Endless(_) | ClientFault::Garbage(_)));
            assert!(ends, "{found:?}");
        }
        let long = format!("HTTP/1.1 200 {}", "x".repeat(20_000));
        assert_eq!(with(long.as_bytes(), 100, false).0, Err(ClientFault::Endless(LONGEST)));
    }

    #[test]
    fn a_reason_is_one_plain_line() {
        assert_eq!(reason(502, "Bad\u{1b}[31m Gate\u{e4}way"), "502 Bad[31m Gateway");
        assert_eq!(reason(502, &"x".repeat(100)).len(), 4 + SHOWN);
    }

    #[test]
    fn a_login_with_a_colon_in_its_user_is_refused_here() {
        for user in ["a:b", ""] {
            let login = Credentials { user: user.into(), password: "x".into() };
            let made = HttpDialogue::new(&to(), Some(&login), &mut Vec::new());
            assert_eq!(made.err(), Some(ClientFault::UnfitLogin));
        }
    }

    #[test]
    fn our_proxy_reads_what_our_client_asks() {
        let mut there = Vec::new();
        let mut client = HttpDialogue::new(&to(), Some(&anna()), &mut there).unwrap();
        let mut proxy = Dialogue::new(Service::Tor { extended: false });
        let request = proxy.take(&there, &mut Vec::new());
        let expected = ProxyRequest::Connect { host: "far.example.net".into(), port: 443 };
        assert_eq!(request, Ok(Some(expected)));
        let refusal = proxy.answer(&Outcome::Failed(Reason::Refused));
        let mut other = HttpDialogue::new(&to(), None, &mut Vec::new()).unwrap();
        assert!(matches!(other.take(&refusal), Err(ClientFault::Refused(_))));
        assert_eq!(client.take(&proxy.answer(&Outcome::Connected)), Ok(true));
    }
}
