//! Dialogues with programs that use the proxy. The programs' bytes may arrive in pieces of any
//! length.

use std::net::{IpAddr, Ipv4Addr};

use crate::answer::{
    ProxyEnd, REJECTED_4, http_answer, socks_answer, socks_reply, socks4_answer, socks4_reply,
};
use crate::http::{self, Connect, HttpRequest};
use crate::names::name;
use crate::socks5::{CONNECT, LOGIN_VERSION, SocksAddress, UnknownType, VERSION, method};
use crate::{Family, Outcome, ProxyRequest, Reason, Service};

/// Maximum bytes of a user ID or of a host name in a SOCKS4 request.
const LONGEST_WORD: usize = 255;
/// Command that requests the address of a host name (Tor's SOCKS extension).
const RESOLVE: u8 = 0xf0;
/// Command that requests the host name of an address (Tor's SOCKS extension).
const RESOLVE_PTR: u8 = 0xf1;
/// Reply code of Tor's SOCKS5 extension for a missing descriptor of an onion service (proposal
/// 304).
const NO_DESCRIPTOR: u8 = 0xf0;
/// Prefix of SOCKS5 user names in a format that Tor defines. The number of the format follows the
/// prefix (proposal 351).
const MAGIC: &[u8] = b"<torS0X>";
/// Number of the only supported format of user names with the prefix [`MAGIC`]. Such a user name
/// ends after the number. Streams with different passwords never share a circuit.
const FORMAT_ISOLATION: &[u8] = b"0";
/// Status byte that reports a failed login (RFC 1929).
const REFUSED_LOGIN: u8 = 1;

/// The proxy's side of a dialogue with a program, up to the answer to the program's request.
#[derive(Debug, Default)]
pub struct Dialogue {
    inbox: Vec<u8>,
    stage: Stage,
    service: Service,
    isolation: Vec<u8>,
    family: Option<Family>,
    is_old_authorization: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Greeting,
    Login,
    Request,
    Request4,
    RequestHttp,
    Socks,
    Socks4,
    Http,
}

impl Dialogue {
    /// Starts a dialogue with a program that uses `service`.
    #[must_use]
    pub fn new(service: Service) -> Dialogue {
        Dialogue { service, ..Dialogue::default() }
    }

    /// Processes bytes from the program, and appends answers to `out`. Returns the request once it
    /// is complete, and `None` until then.
    ///
    /// # Errors
    /// The dialogue has ended, and no request will follow.
    pub fn take(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<ProxyRequest>, ProxyEnd> {
        self.inbox.extend_from_slice(bytes);
        loop {
            let before = (self.stage, self.inbox.len());
            let request = match self.stage {
                Stage::Greeting => self.greet(out).map(|()| None),
                Stage::Login => self.log_in(out).map(|()| None),
                Stage::Request => self.socks_request(),
                Stage::Request4 => self.socks4_request(),
                Stage::RequestHttp => self.http_request(out),
                Stage::Socks | Stage::Socks4 | Stage::Http => return Ok(None),
            }?;
            if request.is_some() || before == (self.stage, self.inbox.len()) {
                return Ok(request);
            }
        }
    }

    /// Returns the bytes received after the request. They are the first bytes of the stream.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.inbox
    }

    /// Returns the isolation value of the program's stream. Only streams with equal values may
    /// share a circuit. The value consists of the proxy protocol and the login. In HTTP, the
    /// isolation headers replace the login.
    #[must_use]
    pub fn isolation(&self) -> &[u8] {
        &self.isolation
    }

    /// Returns the IP versions that the program allows; `None` if it specified none.
    #[must_use]
    pub fn family(&self) -> Option<Family> {
        self.family
    }

    /// Returns advice for the program's author, if the program's request has a deprecated form;
    /// `None` otherwise.
    #[must_use]
    pub fn advice(&self) -> Option<&'static str> {
        self.is_old_authorization.then_some(
            "a program uses the header Proxy-Authorization to keep its streams on separate \
             circuits, which is an outdated form: let it send the header Tor-Stream-Isolation \
             instead, or Basic authorization with the user tor-iso",
        )
    }

    /// Returns user name and password of a SOCKS5 login; `None` if there was none.
    #[must_use]
    pub fn login(&self) -> Option<(&[u8], &[u8])> {
        let (&length, rest) = self.isolation.strip_prefix(b"socks")?.split_first()?;
        let (user, rest) = rest.split_at_checked(length.into())?;
        Some((user, rest.split_first()?.1))
    }

    /// Builds the answer that reports `outcome` in the protocol that the program uses.
    #[must_use]
    pub fn answer(&self, outcome: &Outcome) -> Vec<u8> {
        match (self.stage, outcome) {
            (Stage::Http | Stage::RequestHttp, _) => http_answer(self.service, outcome),
            (Stage::Socks4 | Stage::Request4, _) => socks4_answer(outcome),
            (_, Outcome::Failed(Reason::NoService)) if self.is_extended() => {
                socks_reply(NO_DESCRIPTOR)
            }
            _ => socks_answer(outcome),
        }
    }

    fn is_extended(&self) -> bool {
        self.service == Service::Tor { extended: true }
    }

    fn greet(&mut self, out: &mut Vec<u8>) -> Result<(), ProxyEnd> {
        match self.inbox.first() {
            None => Ok(()),
            Some(&VERSION) => self.choose_method(out),
            Some(byte) if byte.is_ascii_uppercase() => {
                self.stage = Stage::RequestHttp;
                Ok(())
            }
            Some(4) => {
                self.stage = Stage::Request4;
                Ok(())
            }
            Some(_) => Err(ProxyEnd(Vec::new())),
        }
    }

    fn choose_method(&mut self, out: &mut Vec<u8>) -> Result<(), ProxyEnd> {
        let Some(count) = self.inbox.get(1).map(|&count| usize::from(count)) else { return Ok(()) };
        let Some(methods) = self.inbox.get(2..2 + count) else { return Ok(()) };
        // A program that offers a login wants isolated streams.
        let offers = |method| methods.contains(&method);
        let (method, stage) = match (offers(method::PASSWORD), offers(method::NONE)) {
            (true, _) => (method::PASSWORD, Stage::Login),
            (_, true) => (method::NONE, Stage::Request),
            _ => return Err(ProxyEnd(vec![VERSION, method::NO_ACCEPTABLE])),
        };
        out.extend([VERSION, method]);
        self.inbox.drain(..2 + count);
        self.isolation = b"socks".to_vec();
        self.stage = stage;
        Ok(())
    }

    fn log_in(&mut self, out: &mut Vec<u8>) -> Result<(), ProxyEnd> {
        let byte = |at: usize| self.inbox.get(at).map(|&byte| usize::from(byte));
        if byte(0).is_some_and(|version| version != usize::from(LOGIN_VERSION)) {
            return Err(ProxyEnd(vec![LOGIN_VERSION, REFUSED_LOGIN]));
        }
        let Some(password) = byte(1).map(|user| 2 + user) else { return Ok(()) };
        let Some(end) = byte(password).map(|length| password + 1 + length) else { return Ok(()) };
        if self.inbox.len() < end {
            return Ok(());
        }
        if !self.understands(&self.inbox[2..password]) {
            return Err(ProxyEnd(vec![LOGIN_VERSION, REFUSED_LOGIN]));
        }
        out.extend([LOGIN_VERSION, 0]);
        self.isolation = [b"socks", &self.inbox[1..end]].concat();
        self.inbox.drain(..end);
        self.stage = Stage::Request;
        Ok(())
    }

    /// Returns whether this proxy supports a user name: either an ordinary name, or a name in a
    /// supported format of Tor. A name in another format may request features that this proxy
    /// lacks (proposal 351).
    fn understands(&self, user: &[u8]) -> bool {
        let format = user.strip_prefix(MAGIC).filter(|_| self.service != Service::Transport);
        format.is_none_or(|format| format == FORMAT_ISOLATION)
    }

    fn socks_request(&mut self) -> Result<Option<ProxyRequest>, ProxyEnd> {
        if self.inbox.first().is_some_and(|&version| version != VERSION) {
            return Err(ProxyEnd(socks_reply(1)));
        }
        let [_, command, _, rest @ ..] = &self.inbox[..] else { return Ok(None) };
        let read = SocksAddress::read(rest);
        let read = read.map_err(|UnknownType(_)| ProxyEnd(socks_reply(8)))?;
        let Some((address, length)) = read else { return Ok(None) };
        let (host, port) = host(address).ok_or_else(|| ProxyEnd(socks_reply(1)))?;
        let request = match (*command, host.parse::<IpAddr>()) {
            (CONNECT, _) if port != 0 => ProxyRequest::Connect { host, port },
            (RESOLVE, _) => ProxyRequest::Resolve(host),
            (RESOLVE_PTR, Ok(address)) => ProxyRequest::Name(address),
            (CONNECT | RESOLVE_PTR, _) => return Err(ProxyEnd(socks_reply(1))),
            // Tor does not support BIND and UDP ASSOCIATE.
            _ => return Err(ProxyEnd(socks_reply(7))),
        };
        self.inbox.drain(..3 + length);
        self.stage = Stage::Socks;
        Ok(Some(request))
    }

    fn socks4_request(&mut self) -> Result<Option<ProxyRequest>, ProxyEnd> {
        let nonsense = || ProxyEnd(socks4_reply(REJECTED_4, [0; 4]));
        let [_, command, high, low, a, b, c, d, words @ ..] = &self.inbox[..] else {
            return Ok(None);
        };
        let Some(user) = word(words).ok_or_else(nonsense)? else { return Ok(None) };
        let mut length = 8 + user.len() + 1;
        // In SOCKS4a, an address 0.0.0.x means that a name follows; no host has such an address.
        let host = if matches!((a, b, c), (0, 0, 0)) && *d != 0 {
            let Some(host) = word(&words[user.len() + 1..]).ok_or_else(nonsense)? else {
                return Ok(None);
            };
            length += host.len() + 1;
            name(host).ok_or_else(nonsense)?
        } else {
            Ipv4Addr::new(*a, *b, *c, *d).to_string()
        };
        let port = u16::from_be_bytes([*high, *low]);
        let request = match *command {
            CONNECT if port != 0 => ProxyRequest::Connect { host, port },
            RESOLVE => ProxyRequest::Resolve(host),
            _ => return Err(nonsense()),
        };
        self.isolation = [b"socks4", user].concat();
        self.inbox.drain(..length);
        self.stage = Stage::Socks4;
        Ok(Some(request))
    }

    fn http_request(&mut self, out: &mut Vec<u8>) -> Result<Option<ProxyRequest>, ProxyEnd> {
        let Some((length, request)) = http::read(&self.inbox, self.service)? else {
            return Ok(None);
        };
        self.inbox.drain(..length);
        let Connect { host, port, isolation, family, is_old_authorization } = match request {
            HttpRequest::Connect(connect) => connect,
            HttpRequest::Answered(answer) => {
                out.extend(answer);
                return Ok(None);
            }
        };
        self.isolation = [b"http", &isolation[..]].concat();
        (self.family, self.is_old_authorization) = (family, is_old_authorization);
        self.stage = Stage::Http;
        Ok(Some(ProxyRequest::Connect { host, port }))
    }
}

/// Returns the bytes before the first zero byte, which terminates user IDs and host names in
/// SOCKS4. Returns `Some(None)` if there is no zero byte yet. Returns `None` if more than
/// [`LONGEST_WORD`] bytes precede the zero byte.
#[expect(clippy::option_option, reason = "the outer `None` is an error")]
fn word(bytes: &[u8]) -> Option<Option<&[u8]>> {
    match bytes.iter().position(|&byte| byte == 0) {
        Some(length) if length <= LONGEST_WORD => Some(Some(&bytes[..length])),
        None if bytes.len() <= LONGEST_WORD => Some(None),
        _ => None,
    }
}

/// Returns the host of a SOCKS address as text, and the port; `None` if the name is invalid.
fn host(address: SocksAddress<'_>) -> Option<(String, u16)> {
    match address {
        SocksAddress::Socket(socket) => Some((socket.ip().to_string(), socket.port())),
        SocksAddress::Name(host, port) => Some((name(host)?, port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOR: Service = Service::Tor { extended: false };

    /// Runs a dialogue in which `bytes` arrive in pieces of `piece` bytes. Returns the request,
    /// the answers and the dialogue.
    fn converse(
        bytes: &[u8],
        piece: usize,
    ) -> (Result<Option<ProxyRequest>, ProxyEnd>, Vec<u8>, Dialogue) {
        let (mut dialogue, mut out, mut request) = (Dialogue::new(TOR), Vec::new(), None);
        for piece in bytes.chunks(piece) {
            match dialogue.take(piece, &mut out) {
                Ok(found) => request = request.or(found),
                Err(nonsense) => return (Err(nonsense), out, dialogue),
            }
        }
        (Ok(request), out, dialogue)
    }

    fn connect(host: &str, port: u16) -> ProxyRequest {
        ProxyRequest::Connect { host: host.to_owned(), port }
    }

    #[test]
    fn a_socks_request_is_read_however_it_is_cut() {
        let bytes = b"\x05\x01\0\x05\x01\0\x03\x0bexample.com\x01\xbbGET";
        for piece in [1, 2, 5, 100] {
            let (request, out, dialogue) = converse(bytes, piece);
            assert_eq!(request, Ok(Some(connect("example.com", 443))));
            assert_eq!(out, [5, 0]);
            assert_eq!(dialogue.rest(), b"GET");
            assert_eq!(dialogue.answer(&Outcome::Connected)[..2], [5, 0]);
        }
        let v4 = converse(b"\x05\x01\0\x05\x01\0\x01\x7f\0\0\x01\0\x50", 3).0;
        assert_eq!(v4, Ok(Some(connect("127.0.0.1", 80))));
        let v6 = [&b"\x05\x01\0\x05\x01\0\x04"[..], &[0; 15], b"\x01\0\x50"].concat();
        assert_eq!(converse(&v6, 3).0, Ok(Some(connect("::1", 80))));
    }

    #[test]
    fn users_are_isolated_and_all_are_let_in() {
        let with = |user: &[u8], password: &[u8]| {
            let lengths = (user.len() as u8, password.len() as u8);
            let login = [&[1, lengths.0], user, &[lengths.1], password].concat();
            let bytes =
                [b"\x05\x02\0\x02", &login[..], b"\x05\x01\0\x01\x7f\0\0\x01\0\x50"].concat();
            let (request, out, dialogue) = converse(&bytes, 2);
            assert_eq!(
                (request, &out[..]),
                (Ok(Some(connect("127.0.0.1", 80))), &[5, 2, 1, 0][..])
            );
            dialogue.isolation().to_vec()
        };
        assert_eq!(with(b"a", b"b"), with(b"a", b"b"));
        assert_ne!(with(b"a", b"b"), with(b"a", b"c"));
        assert_ne!(with(b"ab", b""), with(b"a", b"b"));
        assert_ne!(with(b"", b""), b"socks");
    }

    /// Returns the proxy's answers to a login with the name `user`. They are an error if the
    /// dialogue has ended.
    fn log_in(service: Service, user: &[u8]) -> Result<Vec<u8>, Vec<u8>> {
        let (mut dialogue, mut out) = (Dialogue::new(service), Vec::new());
        let login = [&b"\x05\x01\x02\x01"[..], &[user.len() as u8], user, b"\x01p"].concat();
        match dialogue.take(&login, &mut out) {
            Ok(_) => Ok(out),
            Err(ProxyEnd(answer)) => Err([out, answer].concat()),
        }
    }

    #[test]
    fn user_names_in_a_format_that_is_not_known_are_refused() {
        for user in ["<torS0X>0", "<torS1X>1", "<torS0X", "<tors0x>1", "torS0X>1", ""] {
            assert_eq!(log_in(TOR, user.as_bytes()), Ok(vec![5, 2, 1, 0]), "{user}");
        }
        for user in ["<torS0X>", "<torS0X>1", "<torS0X>1object", "<torS0X>0object", "<torS0X>00"] {
            assert_eq!(log_in(TOR, user.as_bytes()), Err(vec![5, 2, 1, 1]), "{user}");
            // In a transport's user name, the prefix has no special meaning.
            assert_eq!(log_in(Service::Transport, user.as_bytes()), Ok(vec![5, 2, 1, 0]), "{user}");
        }
    }

    #[test]
    fn capabilities_are_asked_for_before_the_request_by_the_same_connection() {
        let words = b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n\
            CONNECT example.com:443 HTTP/1.1\r\nTor-Stream-Isolation: a\r\n\r\nrest";
        for piece in [1, 11, 1000] {
            let (request, out, dialogue) = converse(words, piece);
            assert_eq!(request, Ok(Some(connect("example.com", 443))));
            let out = String::from_utf8(out).unwrap();
            assert!(out.starts_with("HTTP/1.1 200 OK\r\n") && out.ends_with("\r\n\r\n"), "{out}");
            assert_eq!(dialogue.rest(), b"rest");
        }
    }

    #[test]
    fn names_and_addresses_are_asked_for_as_tor_does() {
        let ask = |command: u8, rest: &[u8]| {
            converse(&[&[5, 1, 0, 5, command, 0][..], rest, &[0, 0]].concat(), 9).0
        };
        assert_eq!(ask(0xf0, b"\x03\x01x"), Ok(Some(ProxyRequest::Resolve("x".to_owned()))));
        let address = "192.0.2.1".parse().unwrap();
        assert_eq!(ask(0xf1, b"\x01\xc0\0\x02\x01"), Ok(Some(ProxyRequest::Name(address))));
        assert!(ask(0xf1, b"\x03\x01x").is_err());
        let dialogue = converse(b"\x05\x01\0\x05\xf0\0\x03\x01x\0\0", 9).2;
        assert_eq!(dialogue.answer(&Outcome::Address(address)), b"\x05\0\0\x01\xc0\0\x02\x01\0\0");
        assert_eq!(dialogue.answer(&Outcome::Name("a.b".into())), b"\x05\0\0\x03\x03a.b\0\0");
    }

    #[test]
    fn an_http_connect_is_read_however_it_is_cut() {
        let head =
            "CONNECT example.com:443 HTTP/1.1\r\nProxy-Authorization: Basic YTpi\r\n\r\nrest";
        for piece in [1, 7, 1000] {
            let (request, out, dialogue) = converse(head.as_bytes(), piece);
            assert_eq!(request, Ok(Some(connect("example.com", 443))));
            assert!(out.is_empty());
            assert_eq!(dialogue.rest(), b"rest");
            assert_eq!(dialogue.isolation(), b"http\0\nBasic YTpi\xff\xff\xff\xff");
            assert!(dialogue.answer(&Outcome::Connected).starts_with(b"HTTP/1.1 200"));
            let failed = String::from_utf8(dialogue.answer(&Outcome::Failed(Reason::ExitPolicy)));
            let failed = failed.unwrap();
            assert!(failed.starts_with("HTTP/1.1 503 Service Unavailable (EXITPOLICY)\r\n"));
            assert!(failed.contains("\r\nTor-Request-Failed: end/EXITPOLICY\r\n"), "{failed}");
            assert!(failed.contains("\r\nVia: tor/1.0 tor-network (Anabranch "), "{failed}");
        }
        let v6 = converse(b"CONNECT [2001:db8::1]:80 HTTP/1.1\r\n\r\n", 9).0;
        assert_eq!(v6, Ok(Some(connect("2001:db8::1", 80))));
    }

    #[test]
    fn socks4_takes_addresses_and_4a_names() {
        let address = b"\x04\x01\x01\xbb\xc0\0\x02\x01me\0GET";
        let named = b"\x04\x01\0\x50\0\0\0\x07\0example.com\0GET";
        for piece in [1, 3, 100] {
            let cases = [
                (&address[..], "192.0.2.1", 443, &b"socks4me"[..]),
                (named, "example.com", 80, b"socks4"),
            ];
            for (words, host, port, isolation) in cases {
                let (request, out, dialogue) = converse(words, piece);
                assert_eq!((request, out), (Ok(Some(connect(host, port))), vec![]));
                assert_eq!((dialogue.rest(), dialogue.isolation()), (&b"GET"[..], isolation));
                assert_eq!(dialogue.answer(&Outcome::Connected), [0, 0x5a, 0, 0, 0, 0, 0, 0]);
                let refused = Outcome::Failed(Reason::ExitPolicy);
                assert_eq!(dialogue.answer(&refused), [0, 0x5b, 0, 0, 0, 0, 0, 0]);
            }
        }
    }

    #[test]
    fn an_address_in_brackets_in_a_names_place_is_that_address() {
        for (length, text) in [(5, "[::1]"), (13, "[2001:DB8::1]")] {
            let words = [&b"\x05\x01\0\x05\x01\0\x03"[..], &[length], text.as_bytes(), b"\0\x50"];
            let (request, ..) = converse(&words.concat(), 99);
            let host = text[1..text.len() - 1].to_ascii_lowercase();
            assert_eq!(request, Ok(Some(connect(&host, 80))));
        }
        for text in ["[x]", "[192.0.2.1]", "[::1", "::1]", "[]"] {
            assert_eq!(name(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn socks4a_resolves_names_to_addresses_that_it_has_room_for() {
        let (request, _, dialogue) = converse(b"\x04\xf0\0\0\0\0\0\x01\0x.example\0", 4);
        assert_eq!(request, Ok(Some(ProxyRequest::Resolve("x.example".to_owned()))));
        let answer = |text: &str| dialogue.answer(&Outcome::Address(text.parse().unwrap()));
        assert_eq!(answer("192.0.2.1"), [0, 0x5a, 0, 0, 192, 0, 2, 1]);
        assert_eq!(answer("2001:db8::1")[..2], [0, 0x5b]);
    }

    #[test]
    fn an_onion_service_is_refused_in_tors_own_code_where_the_user_wants_that() {
        let refused = Outcome::Failed(Reason::NoService);
        for (extended, code) in [(false, 1), (true, 0xf0)] {
            let mut dialogue = Dialogue::new(Service::Tor { extended });
            let words = b"\x05\x01\0\x05\x01\0\x03\x07x.onion\0\x50";
            assert!(dialogue.take(words, &mut Vec::new()).unwrap().is_some());
            assert_eq!(dialogue.answer(&refused)[..2], [5, code]);
        }
        let http = converse(b"CONNECT x.onion:80 HTTP/1.1\r\n\r\n", 99).2;
        assert!(http.answer(&refused).starts_with(b"HTTP/1.1 501"));
    }

    #[test]
    fn a_browser_that_takes_it_for_a_web_server_is_shown_what_it_is() {
        let page = |request: &[u8]| match converse(request, 50).0 {
            Err(ProxyEnd(answer)) => String::from_utf8(answer).unwrap(),
            other => panic!("{other:?}"),
        };
        for request in ["GET / HTTP/1.1", "POST http://a.example/ HTTP/1.0"] {
            let answer = page(format!("{request}\r\nHost: localhost\r\n\r\n").as_bytes());
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(
                head.starts_with("HTTP/1.1 405") && head.contains("Allow: OPTIONS, CONNECT"),
                "{head}"
            );
            assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
            assert!(body.contains("SOCKS5") && body.contains("onion"), "{body}");
        }
        assert!(
            page(b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n").ends_with("\r\n\r\n"),
            "no body"
        );
    }

    #[test]
    fn what_no_protocol_has_is_refused_with_an_answer() {
        let answered = |bytes: &[u8], answer: &[u8]| match converse(bytes, 50).0 {
            Err(ProxyEnd(message)) => assert!(message.starts_with(answer), "{message:?}"),
            other => panic!("{other:?}"),
        };
        answered(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 405");
        answered(b"CONNECT nowhere HTTP/1.1\r\n\r\n", b"HTTP/1.1 400");
        answered(b"CONNECT a/b:80 HTTP/1.1\r\n\r\n", b"HTTP/1.1 400");
        answered(&[&b"CONNECT "[..], &[b'x'; 9000]].concat(), b"HTTP/1.1 400");
        answered(b"\x04\x02\0\x50\x7f\0\0\x01\0", &[0, 0x5b]);
        answered(b"\x04\x01\0\0\x7f\0\0\x01\0", &[0, 0x5b]);
        answered(b"\x04\x01\0\x50\0\0\0\x01\0a@b\0", &[0, 0x5b]);
        answered(&[&b"\x04\x01\0\x50\x7f\0\0\x01"[..], &[b'x'; 256]].concat(), &[0, 0x5b]);
        answered(&[&b"\x04\x01\0\x50\0\0\0\x01\0"[..], &[b'x'; 256], b"\0"].concat(), &[0, 0x5b]);
        answered(b"\x05\x01\x01", &[5, 0xff]);
        answered(b"\x05\x01\0\x05\x03\0\x01\x7f\0\0\x01\0\x50", &[5, 7]);
        answered(b"\x05\x01\0\x05\x01\0\x03\x03a@b\0\x50", &[5, 1]);
        answered(b"\x05\x01\0\x05\x01\0\x01\x7f\0\0\x01\0\0", &[5, 1]);
        answered(b"\x16\x03\x01", b"");
    }
}
