//! A SOCKS5 client that asks a transport for a connection to a bridge. The bridge's arguments are
//! sent as user name and password (pt-spec, "Client"; RFC 1928 and 1929).

use std::fmt;
use std::net::SocketAddr;

use crate::args::{Args, ArgsError};

/// Version of SOCKS (RFC 1928, section 3).
const VERSION: u8 = 5;
/// Authentication method of SOCKS5: none required (RFC 1928, section 3).
const NO_LOGIN: u8 = 0;
/// Authentication method of SOCKS5: user name and password (RFC 1928, section 3).
const LOGIN: u8 = 2;
/// Version of the user name and password negotiation (RFC 1929, section 2).
const LOGIN_VERSION: u8 = 1;
/// Command CONNECT (RFC 1928, section 4).
const CONNECT: u8 = 1;
/// Address type: IPv4 (RFC 1928, section 4).
const IPV4: u8 = 1;
/// Address type: host name (RFC 1928, section 4).
const NAME: u8 = 3;
/// Address type: IPv6 (RFC 1928, section 4).
const IPV6: u8 = 4;
/// Number of bytes in a SOCKS5 reply before the address that it contains.
const HEAD: usize = 4;

/// Error: a transport refused, or failed, to connect to a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SocksRefusal {
    /// The transport's bytes are not SOCKS5, or it demands an authentication method that we do not
    /// offer.
    Nonsense,
    /// The transport refused the arguments.
    Arguments,
    /// The transport could not reach the bridge, and gave this SOCKS reply code.
    Unreached(u8),
}

impl fmt::Display for SocksRefusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SocksRefusal::Nonsense => out.write_str("the transport does not speak SOCKS5"),
            SocksRefusal::Arguments => out.write_str(
                "the transport refused the arguments (KEY=VALUE) of the bridge line: check them",
            ),
            SocksRefusal::Unreached(code) => {
                write!(out, "the transport cannot reach the bridge (SOCKS code {code})")
            }
        }
    }
}

impl std::error::Error for SocksRefusal {}

/// A SOCKS5 dialogue with a transport, which requests one connection to a bridge.
#[derive(Clone, Debug)]
pub struct SocksClient {
    /// The encoded SOCKS5 user name and password, which contain the bridge's arguments; `None` if
    /// there are no arguments.
    login: Option<Vec<u8>>,
    request: Vec<u8>,
    inbox: Vec<u8>,
    stage: SocksStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocksStage {
    Method,
    Login,
    Answer,
    Open,
}

impl SocksClient {
    /// Begins the request for a connection to the bridge at `to`. `args` are the bridge's
    /// arguments. Appends the first message to `out`.
    ///
    /// # Errors
    /// The arguments are too long.
    pub fn new(to: SocketAddr, args: &Args, out: &mut Vec<u8>) -> Result<SocksClient, ArgsError> {
        let login = match args.is_empty() {
            true => None,
            false => {
                let (user, password) = args.to_socks()?;
                let field = |field: &[u8]| [&[field.len() as u8], field].concat();
                Some([&[LOGIN_VERSION][..], &field(&user), &field(&password)].concat())
            }
        };
        out.extend([VERSION, 1, if login.is_some() { LOGIN } else { NO_LOGIN }]);
        let mut request = vec![VERSION, CONNECT, 0];
        match to {
            SocketAddr::V4(four) => {
                request.push(IPV4);
                request.extend(four.ip().octets());
            }
            SocketAddr::V6(six) => {
                request.push(IPV6);
                request.extend(six.ip().octets());
            }
        }
        request.extend(to.port().to_be_bytes());
        Ok(SocksClient { login, request, inbox: Vec::new(), stage: SocksStage::Method })
    }

    /// Receives bytes from the transport and appends answers to `out`. Returns true once the
    /// connection is open and carries the bridge's data. [`SocksClient::rest`] then returns bytes
    /// received after the dialogue.
    ///
    /// # Errors
    /// After a [`SocksRefusal`], the connection has to be closed.
    pub fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<bool, SocksRefusal> {
        self.inbox.extend_from_slice(bytes);
        while self.stage != SocksStage::Open && self.step(out)? {}
        Ok(self.stage == SocksStage::Open)
    }

    /// Removes and returns the bytes received after the transport's last SOCKS message. They are
    /// the bridge's first bytes.
    pub fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.inbox)
    }

    /// Processes one SOCKS message of the transport. Returns false if the message is not complete
    /// yet.
    fn step(&mut self, out: &mut Vec<u8>) -> Result<bool, SocksRefusal> {
        let length = match self.stage {
            SocksStage::Method | SocksStage::Login => 2,
            SocksStage::Answer => match answer_length(&self.inbox)? {
                Some(length) => length,
                None => return Ok(false),
            },
            SocksStage::Open => return Ok(false),
        };
        let Some(message) = self.inbox.get(..length) else { return Ok(false) };
        match (self.stage, message, &self.login) {
            (SocksStage::Method, [VERSION, LOGIN], Some(login)) => {
                out.extend_from_slice(login);
                self.stage = SocksStage::Login;
            }
            (SocksStage::Method, [VERSION, NO_LOGIN], None) | (SocksStage::Login, [_, 0], _) => {
                out.extend_from_slice(&self.request);
                self.stage = SocksStage::Answer;
            }
            (SocksStage::Login, ..) => return Err(SocksRefusal::Arguments),
            (SocksStage::Answer, [_, 0, ..], _) => self.stage = SocksStage::Open,
            (SocksStage::Answer, [_, code, ..], _) => return Err(SocksRefusal::Unreached(*code)),
            _ => return Err(SocksRefusal::Nonsense),
        }
        self.inbox.drain(..length);
        Ok(true)
    }
}

/// Returns the number of bytes in a SOCKS5 reply; `None` if too few have arrived to determine it.
fn answer_length(inbox: &[u8]) -> Result<Option<usize>, SocksRefusal> {
    if inbox.first().is_some_and(|version| *version != VERSION) {
        return Err(SocksRefusal::Nonsense);
    }
    let &[_, code, _, kind, ref rest @ ..] = inbox else { return Ok(None) };
    let address = match kind {
        IPV4 => 4,
        IPV6 => 16,
        NAME => match rest.first() {
            Some(&length) => 1 + usize::from(length),
            None => return Ok(None),
        },
        // A reply that refuses the request may omit the address.
        _ if code != 0 => return Err(SocksRefusal::Unreached(code)),
        _ => return Err(SocksRefusal::Nonsense),
    };
    Ok(Some(HEAD + address + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BRIDGE: &str = "192.0.2.1:443";

    fn args(pairs: &[(&str, &str)]) -> Args {
        Args(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    /// Runs a dialogue in which the transport sends `message` in pieces of `step` bytes. Returns
    /// the client's messages, its result, and the bytes left.
    fn converse(
        args: &Args,
        message: &[u8],
        step: usize,
    ) -> (Vec<u8>, Result<bool, SocksRefusal>, Vec<u8>) {
        let mut out = Vec::new();
        let mut client = SocksClient::new(BRIDGE.parse().unwrap(), args, &mut out).unwrap();
        let mut open = Ok(false);
        for piece in message.chunks(step) {
            open = client.take(piece, &mut out);
            if open.is_err() {
                break;
            }
        }
        (out, open, client.rest())
    }

    #[test]
    fn arguments_go_by_user_and_password_and_what_comes_behind_is_the_bridges() {
        let message = [&[5, 2, 1, 0][..], &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0], b"hello"].concat();
        for step in [1, 3, 100] {
            let (out, open, rest) = converse(&args(&[("k", "v")]), &message, step);
            assert_eq!((open, &*rest), (Ok(true), &b"hello"[..]));
            let login = b"\x01\x03k=v\x01\0";
            let request = [5, 1, 0, 1, 192, 0, 2, 1, 1, 187];
            assert_eq!(out, [&[5, 1, 2][..], login, &request].concat());
        }
        for address in
            [&[1, 0, 0, 0, 0][..], &[3, 2, b'a', b'b'], &[[4].as_slice(), &[0; 16]].concat()]
        {
            let message = [&[5, 0, 5, 0, 0][..], address, &[0, 0]].concat();
            let (out, open, _) = converse(&Args::default(), &message, 1);
            assert_eq!((open, &out[..3]), (Ok(true), &[5, 1, 0][..]));
        }
    }

    #[test]
    fn who_refuses_and_who_is_no_transport_is_told() {
        let some = args(&[("k", "v")]);
        let refused = |args: &Args, message: &[u8]| converse(args, message, 1).1;
        assert_eq!(refused(&some, &[5, 2, 1, 1]), Err(SocksRefusal::Arguments));
        assert_eq!(refused(&some, &[5, 0]), Err(SocksRefusal::Nonsense));
        assert_eq!(refused(&some, b"HTTP/1.0"), Err(SocksRefusal::Nonsense));
        assert_eq!(refused(&Args::default(), &[5, 255]), Err(SocksRefusal::Nonsense));
        assert_eq!(refused(&Args::default(), &[5, 0, 4]), Err(SocksRefusal::Nonsense));
        let answer = [5, 0, 5, 4, 0, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(refused(&Args::default(), &answer), Err(SocksRefusal::Unreached(4)));
        assert_eq!(refused(&Args::default(), &[5, 0, 5, 1, 0, 0]), Err(SocksRefusal::Unreached(1)));
        assert_eq!(refused(&Args::default(), &[5, 0, 5, 0, 0, 9]), Err(SocksRefusal::Nonsense));
        let long = args(&[("k", &"x".repeat(600))]);
        let none = SocksClient::new(BRIDGE.parse().unwrap(), &long, &mut Vec::new());
        assert!(matches!(none, Err(ArgsError::TooLong(_))));
    }
}
