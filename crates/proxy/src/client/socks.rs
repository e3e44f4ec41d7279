//! A client of a SOCKS5 proxy (RFC 1928), with user name and password (RFC 1929).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{ClientFault, Credentials, Destination};
use crate::socks5::{
    ASSOCIATE, CONNECT, LOGIN_VERSION, SocksAddress, UnknownType, VERSION, method,
};

/// Texts for the reply codes 0 to 8 of a SOCKS5 proxy (RFC 1928, section 6).
const REPLIES: [&str; 9] = [
    "succeeded",
    "general failure",
    "not allowed by its rules",
    "network unreachable",
    "host unreachable",
    "connection refused",
    "TTL expired",
    "command not supported",
    "address type not supported",
];
/// Reply code: succeeded (RFC 1928, section 6).
const SUCCEEDED: u8 = 0;
/// Reply code: command not supported (RFC 1928, section 6).
const COMMAND_NOT_SUPPORTED: u8 = 7;
/// Maximum length of a SOCKS5 reply in bytes: 4 bytes (version, reply code, reserved byte, address
/// type), a name of 255 bytes after its length, and the port.
const LONGEST: usize = 4 + 1 + 255 + 2;

/// A request to a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocksRequest {
    /// Requests a stream to a host.
    Connect(Destination),
    /// Requests a relay for UDP datagrams (UDP ASSOCIATE). The request contains an unspecified
    /// client address (RFC 1928, section 7), because a NAT may replace the client's address before
    /// the proxy sees it.
    Associate {
        /// True if the unspecified address is `::` rather than 0.0.0.0, because the client reaches
        /// the proxy over IPv6.
        v6: bool,
    },
}

/// The client's side of a dialogue with a SOCKS5 proxy.
#[derive(Debug)]
pub struct SocksDialogue {
    request: SocksRequest,
    login: Option<Credentials>,
    inbox: Vec<u8>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Method,
    Login,
    Reply,
    Done,
}

impl SocksDialogue {
    /// Begins a dialogue, and appends its first message to `out`. If `login` is `None`, the
    /// message offers only the method without authentication.
    #[must_use]
    pub fn new(
        request: SocksRequest,
        login: Option<Credentials>,
        out: &mut Vec<u8>,
    ) -> SocksDialogue {
        match login {
            Some(_) => out.extend([VERSION, 2, method::PASSWORD, method::NONE]),
            None => out.extend([VERSION, 1, method::NONE]),
        }
        SocksDialogue { request, login, inbox: Vec::new(), stage: Stage::Method }
    }

    /// Processes bytes from the proxy, and appends bytes to send to `out`. When the proxy grants
    /// the request, returns the address in the proxy's reply: that of the proxy's UDP relay, or of
    /// the proxy's end of the stream. Returns `None` until the proxy grants the request.
    ///
    /// # Errors
    /// The proxy refuses, or does not speak SOCKS5.
    pub fn take(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<SocksGrant>, ClientFault> {
        self.inbox.extend_from_slice(bytes);
        loop {
            let before = self.stage;
            let grant = match before {
                Stage::Method => self.choose(out).map(|()| None),
                Stage::Login => self.logged_in(out).map(|()| None),
                Stage::Reply => self.reply(),
                Stage::Done => return Ok(None),
            }?;
            if grant.is_some() || before == self.stage {
                return Ok(grant);
            }
        }
    }

    /// Returns the bytes received after the proxy's last message. They are the first bytes of the
    /// stream.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.inbox
    }

    /// Returns the minimum number of bytes that the expected message still lacks; 0 at the end of
    /// the dialogue. A caller that reads no more bytes than this leaves the bytes of the stream
    /// unread.
    #[must_use]
    pub fn missing(&self) -> usize {
        match self.stage {
            Stage::Method | Stage::Login => 2_usize.saturating_sub(self.inbox.len()).max(1),
            Stage::Reply => self.missing_of_reply(),
            Stage::Done => 0,
        }
    }

    fn choose(&mut self, out: &mut Vec<u8>) -> Result<(), ClientFault> {
        self.check_version()?;
        let Some([_, chosen]) = self.inbox.first_chunk() else { return Ok(()) };
        match (*chosen, &self.login) {
            (method::NONE, _) => self.ask(out),
            (method::PASSWORD, Some(login)) => {
                write_login(login, out)?;
                self.stage = Stage::Login;
            }
            (method::PASSWORD | method::NO_ACCEPTABLE, None) => {
                return Err(ClientFault::LoginWanted);
            }
            (method::NO_ACCEPTABLE, Some(_)) => return Err(ClientFault::NoMethod),
            _ => {
                let what = "it chose a login method that the client did not offer";
                return Err(ClientFault::Garbage(what.into()));
            }
        }
        self.inbox.drain(..2);
        Ok(())
    }

    /// Processes the answer to a login (RFC 1929, section 2). Ignores the version in the answer,
    /// because some proxies send the version of SOCKS there.
    fn logged_in(&mut self, out: &mut Vec<u8>) -> Result<(), ClientFault> {
        match self.inbox.first_chunk() {
            Some([_, 0]) => {
                self.inbox.drain(..2);
                self.ask(out);
                Ok(())
            }
            Some(_) => Err(ClientFault::LoginRefused),
            None => Ok(()),
        }
    }

    fn ask(&mut self, out: &mut Vec<u8>) {
        let (command, address) = match &self.request {
            SocksRequest::Associate { v6 } => (ASSOCIATE, SocksAddress::Socket(anywhere(*v6))),
            SocksRequest::Connect(to) => (CONNECT, address_of(to)),
        };
        out.extend([VERSION, command, 0]);
        address.write(out);
        self.stage = Stage::Reply;
    }

    fn reply(&mut self) -> Result<Option<SocksGrant>, ClientFault> {
        self.check_version()?;
        let [_, reply, reserved, rest @ ..] = &self.inbox[..] else { return Ok(None) };
        if *reserved != 0 {
            return Err(ClientFault::Garbage("a malformed message".into()));
        }
        let Some(words) = REPLIES.get(usize::from(*reply)) else {
            return Err(ClientFault::Refused(format!("the unknown reason 0x{reply:02x}")));
        };
        let read = SocksAddress::read(rest).map_err(|UnknownType(kind)| {
            ClientFault::Garbage(format!("a SOCKS5 address of the unknown type 0x{kind:02x}"))
        })?;
        let Some((address, length)) = read else { return Ok(None) };
        match *reply {
            SUCCEEDED => {}
            COMMAND_NOT_SUPPORTED => return Err(ClientFault::NoCommand),
            _ => return Err(ClientFault::Refused((*words).into())),
        }
        let grant = match address {
            SocksAddress::Socket(socket) => SocksGrant::Socket(socket),
            SocksAddress::Name(..) => SocksGrant::Name,
        };
        self.inbox.drain(..3 + length);
        self.stage = Stage::Done;
        Ok(Some(grant))
    }

    fn check_version(&self) -> Result<(), ClientFault> {
        match self.inbox.first() {
            Some(&byte) if byte != VERSION => Err(ClientFault::Foreign(byte)),
            _ => Ok(()),
        }
    }

    /// Returns the minimum number of bytes that the proxy's reply still lacks. The reply's total
    /// length follows from the address type and, for a name, from the name's length.
    fn missing_of_reply(&self) -> usize {
        let whole = match (self.inbox.get(3), self.inbox.get(4)) {
            (Some(1), _) => 4 + 4 + 2,
            (Some(4), _) => 4 + 16 + 2,
            (Some(3), Some(&length)) => 4 + 1 + usize::from(length) + 2,
            (Some(_), _) => 5,
            (None, _) => 4,
        };
        whole.min(LONGEST).saturating_sub(self.inbox.len()).max(1)
    }
}

/// The address in a proxy's reply that grants a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocksGrant {
    /// An IP address and a port. Both may be unspecified.
    Socket(SocketAddr),
    /// A host's name.
    Name,
}

fn anywhere(v6: bool) -> SocketAddr {
    match v6 {
        true => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        false => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
    }
}

fn address_of(to: &Destination) -> SocksAddress<'_> {
    match to.address() {
        Some(ip) => SocksAddress::Socket(SocketAddr::new(ip, to.port)),
        None => SocksAddress::Name(to.host.as_bytes(), to.port),
    }
}

fn write_login(login: &Credentials, out: &mut Vec<u8>) -> Result<(), ClientFault> {
    let fields = [login.user.as_bytes(), login.password.as_bytes()];
    if fields.iter().any(|field| !(1..=255).contains(&field.len())) {
        return Err(ClientFault::UnfitLogin);
    }
    out.push(LOGIN_VERSION);
    for field in fields {
        out.push(u8::try_from(field.len()).expect("the length of the field was checked above"));
        out.extend(field);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dialogue, Outcome, ProxyRequest, Reason, Service};

    const OPEN: &[u8] = b"\x05\0\0\x01\0\0\0\0\0\0";

    fn anna() -> Credentials {
        Credentials { user: "anna".into(), password: "secret".into() }
    }

    fn connect() -> SocksRequest {
        SocksRequest::Connect(Destination::new("far.example.net", 443).unwrap())
    }

    /// Runs a dialogue in which the proxy sends `says` in pieces. Returns the result, the client's
    /// messages, and the bytes left.
    fn with(
        says: &[&[u8]],
        piece: usize,
        login: Option<Credentials>,
    ) -> (Result<Option<SocksGrant>, ClientFault>, Vec<u8>, Vec<u8>) {
        let mut received = Vec::new();
        let mut client = SocksDialogue::new(connect(), login, &mut received);
        let mut outcome = Ok(None);
        for piece in says.concat().chunks(piece) {
            match client.take(piece, &mut received) {
                Ok(None) => {}
                Ok(grant) => outcome = Ok(grant),
                Err(fault) => return (Err(fault), received, Vec::new()),
            }
        }
        (outcome, received, client.rest().to_vec())
    }

    #[test]
    fn a_stream_is_asked_for_by_name_and_what_follows_is_the_streams() {
        for piece in [1, 2, 3, 100] {
            let (grant, received, rest) = with(&[b"\x05\0", OPEN, b"rest"], piece, None);
            assert_eq!(grant, Ok(Some(SocksGrant::Socket("0.0.0.0:0".parse().unwrap()))));
            assert_eq!(received, b"\x05\x01\0\x05\x01\0\x03\x0ffar.example.net\x01\xbb");
            assert_eq!(rest, b"rest");
        }
    }

    #[test]
    fn a_login_goes_to_those_alone_who_want_it() {
        let (grant, received, _) = with(&[b"\x05\x02\x01\0", OPEN], 3, Some(anna()));
        assert!(grant.unwrap().is_some());
        assert!(received.starts_with(b"\x05\x02\x02\0\x01\x04anna\x06secret\x05\x01\0\x03"));
        let (grant, received, _) = with(&[b"\x05\0", OPEN], 3, Some(anna()));
        assert!(grant.unwrap().is_some());
        assert!(!received.windows(6).any(|part| part == b"secret"));
    }

    #[test]
    fn each_refusal_has_its_own_fault() {
        let refused = |why: &str| ClientFault::Refused(why.into());
        let garbage = |what: &str| ClientFault::Garbage(what.into());
        let cases: [(&[u8], Option<Credentials>, ClientFault); 11] = [
            (b"HTTP/1.1 400", None, ClientFault::Foreign(b'H')),
            (b"\x05\xff", None, ClientFault::LoginWanted),
            (b"\x05\x02", None, ClientFault::LoginWanted),
            (b"\x05\xff", Some(anna()), ClientFault::NoMethod),
            (b"\x05\x01", None, garbage("it chose a login method that the client did not offer")),
            (b"\x05\x02\x01\x01", Some(anna()), ClientFault::LoginRefused),
            (b"\x05\0\x05\x07\0\x01\0\0\0\0\0\0", None, ClientFault::NoCommand),
            (b"\x05\0\x05\x05\0\x01\0\0\0\0\0\0", None, refused("connection refused")),
            (b"\x05\0\x05\x2a\0\x01\0\0\0\0\0\0", None, refused("the unknown reason 0x2a")),
            (b"\x05\0\x05\0\0\x07", None, garbage("a SOCKS5 address of the unknown type 0x07")),
            (b"\x05\0SSH-2.0", None, ClientFault::Foreign(b'S')),
        ];
        for (says, login, fault) in cases {
            for piece in [1, 100] {
                let found = with(&[says], piece, login.clone()).0;
                assert_eq!(found, Err(fault.clone()), "{says:?}");
            }
        }
    }

    #[test]
    fn half_an_answer_is_no_grant_and_never_asks_for_more_than_a_reply() {
        let whole = [b"\x05\x02\x01\0", OPEN].concat();
        for length in 0..whole.len() {
            assert_eq!(with(&[&whole[..length]], 1, Some(anna())).0, Ok(None), "{length}");
        }
        for reply in [OPEN, b"\x05\0\0\x03\x0ffar.example.net\0\x09", b"\x05\0\0\x04"] {
            let mut out = Vec::new();
            let mut client = SocksDialogue::new(connect(), None, &mut out);
            let mut says = [b"\x05\0", reply, &[0; 30]].concat();
            while client.missing() > 0 {
                let piece: Vec<u8> = says.drain(..client.missing()).collect();
                client.take(&piece, &mut out).unwrap();
            }
            assert_eq!(client.rest(), b"", "nothing of the stream was taken");
        }
    }

    #[test]
    fn a_login_that_no_message_holds_is_refused_here() {
        for user in [String::new(), "x".repeat(256)] {
            let login = Credentials { user, password: "secret".into() };
            assert_eq!(with(&[b"\x05\x02"], 2, Some(login)).0, Err(ClientFault::UnfitLogin));
        }
    }

    /// The two sides of a SOCKS5 dialogue in this crate work together.
    #[test]
    fn our_proxy_reads_what_our_client_asks() {
        for (host, login) in [("far.example.net", None), ("2001:db8::1", Some(anna()))] {
            let to = Destination::new(host, 443).unwrap();
            let mut there = Vec::new();
            let mut client =
                SocksDialogue::new(SocksRequest::Connect(to), login.clone(), &mut there);
            let mut proxy = Dialogue::new(Service::Tor { extended: false });
            let mut request = None;
            while request.is_none() {
                let mut back = Vec::new();
                request = proxy.take(&std::mem::take(&mut there), &mut back).unwrap();
                assert!(request.is_some() || !back.is_empty(), "neither side goes on");
                assert_eq!(client.take(&back, &mut there), Ok(None));
            }
            let expected = ProxyRequest::Connect { host: host.into(), port: 443 };
            assert_eq!(request, Some(expected));
            let received_login = proxy.login().filter(|login| !login.0.is_empty());
            assert_eq!(received_login.is_some(), login.is_some());
            let granted = client.take(&proxy.answer(&Outcome::Connected), &mut there);
            assert!(granted.unwrap().is_some());
            let answer = proxy.answer(&Outcome::Failed(Reason::Refused));
            assert_eq!(answer[1], 5);
        }
    }
}
