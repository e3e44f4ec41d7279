//! The Extended ORPort protocol (Tor's ext-orport-spec, `SAFE_COOKIE`). In this protocol, a
//! transport authenticates to its relay and reports the address of a connection's client.

use std::fmt;
use std::net::SocketAddr;

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign, verify};

/// First 32 bytes of a cookie file. The 32 bytes of the cookie follow.
pub const COOKIE_FILE: &[u8; 32] = b"! Extended ORPort Auth Cookie !\n";

/// Authentication type `SAFE_COOKIE` (ext-orport-spec).
const SAFE_COOKIE: u8 = 1;
/// List of authentication types that the relay offers: `SAFE_COOKIE`, then 0 as the end of the
/// list.
const TYPES: [u8; 2] = [SAFE_COOKIE, 0];
/// Prefix of the message whose HMAC proves that the relay knows the cookie (ext-orport-spec).
const BY_SERVER: &[u8] = b"ExtORPort authentication server-to-client hash";
/// Prefix of the message whose HMAC proves that the transport knows the cookie (ext-orport-spec).
const BY_CLIENT: &[u8] = b"ExtORPort authentication client-to-server hash";
/// Length in bytes of the HMAC-SHA-256 with which each side proves that it knows the cookie.
const HASH: usize = 32;
/// Length in bytes of the random nonce that each side sends (ext-orport-spec).
const NONCE: usize = 32;
/// Status of a successful authentication (ext-orport-spec).
const ACCEPTED: u8 = 1;

/// Command of a transport: all information was sent (ext-orport-spec).
const DONE: u16 = 0;
/// Command of a transport: the client's address (ext-orport-spec).
const USER_ADDRESS: u16 = 1;
/// Command of a transport: the transport's name (ext-orport-spec).
const TRANSPORT: u16 = 2;
/// Command of the relay: it accepts the connection (ext-orport-spec).
const OKAY: u16 = 0x1000;
/// Command of the relay: it refuses the connection (ext-orport-spec).
const DENY: u16 = 0x1001;
/// Command of the relay: an identifier that names the connection on Tor's control port
/// (ext-orport-spec).
const CONTROL: u16 = 0x1002;
/// Length of a command's header in bytes: the command's type and the length of its body.
const HEAD: usize = 4;
/// Maximum bytes of the body of a command, so that a peer cannot fill our memory. A body is a name
/// or an address.
const BODY: usize = 256;

/// Error: the dialogue between a transport and the relay's Extended ORPort has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtOrError {
    /// The two sides have no authentication type in common; only `SAFE_COOKIE` is supported.
    NoCommonProof,
    /// The other side's proof is wrong, so the two sides have different cookies.
    Proof,
    /// The relay refused the connection.
    Denied,
    /// The other side's bytes violate the Extended ORPort protocol.
    Nonsense,
}

impl fmt::Display for ExtOrError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            ExtOrError::NoCommonProof => {
                "the other side uses an unknown kind of authentication at the Extended ORPort"
            }
            ExtOrError::Proof => {
                "the other side uses a different cookie for the Extended ORPort: check \
                 TOR_PT_AUTH_COOKIE_FILE"
            }
            ExtOrError::Denied => "the relay refused the connection at its Extended ORPort",
            ExtOrError::Nonsense => "the other side broke the protocol of the Extended ORPort",
        })
    }
}

impl std::error::Error for ExtOrError {}

/// Information about a client's connection that a transport forwards to its relay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// Address of the client; `None` if it is not reported.
    pub user: Option<SocketAddr>,
    /// Name of the transport; `None` if it is not reported.
    pub transport: Option<String>,
}

/// Extracts the cookie from the content of a cookie file; `None` if the file contains no cookie.
#[must_use]
fn cookie(file: &[u8]) -> Option<[u8; 32]> {
    file.strip_prefix(COOKIE_FILE)?.try_into().ok()
}

fn message(label: &[u8], client: &[u8; NONCE], server: &[u8; NONCE]) -> Vec<u8> {
    [label, client, server].concat()
}

/// Received bytes of the dialogue that do not form a complete message yet.
#[derive(Debug, Default)]
struct Inbox(Vec<u8>);

impl Inbox {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let taken = self.0.first_chunk().copied()?;
        self.0.drain(..N);
        Some(taken)
    }

    /// Removes the first complete command, and returns its type and its body. Returns `None` if no
    /// command is complete.
    fn command(&mut self) -> Option<(u16, Vec<u8>)> {
        let [a, b, c, d] = *self.0.first_chunk::<HEAD>()?;
        let length = usize::from(u16::from_be_bytes([c, d]));
        let body = self.0.get(HEAD..HEAD + length)?.to_vec();
        self.0.drain(..HEAD + length);
        Some((u16::from_be_bytes([a, b]), body))
    }
}

fn put(command: u16, body: &[u8], out: &mut Vec<u8>) {
    out.extend(command.to_be_bytes());
    out.extend((body.len() as u16).to_be_bytes());
    out.extend(body);
}

/// The transport's side of a dialogue with a relay's Extended ORPort.
#[derive(Debug)]
pub struct ExtOrClient {
    key: [u8; 32],
    nonce: [u8; NONCE],
    info: ConnectionInfo,
    inbox: Inbox,
    stage: ClientStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientStage {
    Types,
    Proof,
    Status,
    Answer,
    Open,
}

impl ExtOrClient {
    /// Begins a dialogue. `cookie_file` is the content of a cookie file, and `nonce` must be
    /// unpredictable. Returns `None` if the file holds no cookie.
    #[must_use]
    pub fn new(cookie_file: &[u8], nonce: [u8; 32], info: ConnectionInfo) -> Option<ExtOrClient> {
        let key = cookie(cookie_file)?;
        let (inbox, stage) = (Inbox::default(), ClientStage::Types);
        Some(ExtOrClient { key, nonce, info, inbox, stage })
    }

    /// Receives bytes from the relay and appends answers to `out`. Returns true once the dialogue
    /// is over and the connection carries the client's data. [`ExtOrClient::rest`] then returns
    /// bytes received after the dialogue.
    ///
    /// # Errors
    /// After an [`ExtOrError`], the connection has to be closed.
    pub fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<bool, ExtOrError> {
        self.inbox.0.extend_from_slice(bytes);
        while self.stage != ClientStage::Open && self.step(out)? {}
        match self.stage != ClientStage::Open && self.inbox.0.len() > HEAD + BODY {
            true => Err(ExtOrError::Nonsense),
            false => Ok(self.stage == ClientStage::Open),
        }
    }

    /// Removes and returns the bytes received after the relay's last message of the dialogue.
    pub fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.inbox.0)
    }

    /// Processes one message of the relay. Returns false if the message is not complete yet.
    fn step(&mut self, out: &mut Vec<u8>) -> Result<bool, ExtOrError> {
        match self.stage {
            ClientStage::Types => {
                let Some(end) = self.inbox.0.iter().position(|kind| *kind == 0) else {
                    return Ok(false);
                };
                let types: Vec<u8> = self.inbox.0.drain(..=end).collect();
                if !types[..end].contains(&SAFE_COOKIE) {
                    return Err(ExtOrError::NoCommonProof);
                }
                out.push(SAFE_COOKIE);
                out.extend(self.nonce);
                self.stage = ClientStage::Proof;
            }
            ClientStage::Proof => {
                let Some(both) = self.inbox.take::<{ HASH + NONCE }>() else { return Ok(false) };
                let (hash, nonce) = both.split_at(HASH);
                let nonce =
                    nonce.try_into().expect("the remaining bytes have the length of a nonce");
                let key = Key::new(HMAC_SHA256, &self.key);
                verify(&key, &message(BY_SERVER, &self.nonce, nonce), hash)
                    .map_err(|_| ExtOrError::Proof)?;
                out.extend(sign(&key, &message(BY_CLIENT, &self.nonce, nonce)).as_ref());
                self.stage = ClientStage::Status;
            }
            ClientStage::Status => {
                let Some([status]) = self.inbox.take() else { return Ok(false) };
                if status != ACCEPTED {
                    return Err(ExtOrError::Proof);
                }
                self.introduce(out);
                self.stage = ClientStage::Answer;
            }
            ClientStage::Answer => {
                let Some((command, _)) = self.inbox.command() else { return Ok(false) };
                match command {
                    OKAY => self.stage = ClientStage::Open,
                    DENY => return Err(ExtOrError::Denied),
                    // The relay's CONTROL command concerns the relay's control port, which our
                    // transports do not use.
                    CONTROL => {}
                    _ => return Err(ExtOrError::Nonsense),
                }
            }
            ClientStage::Open => return Ok(false),
        }
        Ok(true)
    }

    fn introduce(&self, out: &mut Vec<u8>) {
        if let Some(user) = self.info.user {
            // A dual-stack listener reports IPv4 addresses in IPv6 form, for which relays cannot
            // find the country. Relays also do not parse the scope of a link-local address.
            let user = SocketAddr::new(user.ip().to_canonical(), user.port());
            put(USER_ADDRESS, user.to_string().as_bytes(), out);
        }
        if let Some(transport) = &self.info.transport {
            put(TRANSPORT, transport.as_bytes(), out);
        }
        put(DONE, &[], out);
    }
}

/// The relay's side of a dialogue with a transport at the Extended ORPort.
#[derive(Debug)]
pub struct ExtOrServer {
    key: [u8; 32],
    nonce: [u8; NONCE],
    inbox: Inbox,
    stage: ServerStage,
    info: ConnectionInfo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerStage {
    Nonce,
    Proof([u8; NONCE]),
    Commands,
    Open,
}

impl ExtOrServer {
    /// Begins a dialogue, and appends the first message to `out`. `cookie` is the part of the
    /// cookie file after [`COOKIE_FILE`]. `nonce` must be unpredictable.
    #[must_use]
    pub fn new(cookie: [u8; 32], nonce: [u8; 32], out: &mut Vec<u8>) -> ExtOrServer {
        out.extend(TYPES);
        let (inbox, stage) = (Inbox::default(), ServerStage::Nonce);
        ExtOrServer { key: cookie, nonce, inbox, stage, info: ConnectionInfo::default() }
    }

    /// Processes bytes from the transport and appends answers to `out`. Returns the information
    /// about the connection once the dialogue is over, and `None` until then.
    /// [`ExtOrServer::rest`] then returns bytes received after the dialogue.
    ///
    /// # Errors
    /// After an [`ExtOrError`], the connection has to be closed once `out` was sent.
    pub fn take(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<ConnectionInfo>, ExtOrError> {
        self.inbox.0.extend_from_slice(bytes);
        while self.stage != ServerStage::Open && self.step(out)? {}
        match self.stage {
            ServerStage::Open => Ok(Some(self.info.clone())),
            _ if self.inbox.0.len() > HEAD + BODY => Err(ExtOrError::Nonsense),
            _ => Ok(None),
        }
    }

    /// Removes and returns the bytes received after the transport's last message of the dialogue.
    pub fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.inbox.0)
    }

    fn step(&mut self, out: &mut Vec<u8>) -> Result<bool, ExtOrError> {
        let key = Key::new(HMAC_SHA256, &self.key);
        match self.stage {
            ServerStage::Nonce => {
                if self.inbox.0.first().is_some_and(|kind| *kind != SAFE_COOKIE) {
                    return Err(ExtOrError::NoCommonProof);
                }
                let Some([_, theirs @ ..]) = self.inbox.take::<{ 1 + NONCE }>() else {
                    return Ok(false);
                };
                out.extend(sign(&key, &message(BY_SERVER, &theirs, &self.nonce)).as_ref());
                out.extend(self.nonce);
                self.stage = ServerStage::Proof(theirs);
            }
            ServerStage::Proof(theirs) => {
                let Some(hash) = self.inbox.take::<HASH>() else { return Ok(false) };
                let proven = verify(&key, &message(BY_CLIENT, &theirs, &self.nonce), &hash);
                out.push(u8::from(proven.is_ok()));
                proven.map_err(|_| ExtOrError::Proof)?;
                self.stage = ServerStage::Commands;
            }
            ServerStage::Commands => {
                let Some((command, body)) = self.inbox.command() else { return Ok(false) };
                self.execute(command, &body, out)?;
            }
            ServerStage::Open => return Ok(false),
        }
        Ok(true)
    }

    fn execute(&mut self, command: u16, body: &[u8], out: &mut Vec<u8>) -> Result<(), ExtOrError> {
        let text = || std::str::from_utf8(body).map_err(|_| ExtOrError::Nonsense);
        match command {
            DONE => {
                put(OKAY, &[], out);
                self.stage = ServerStage::Open;
            }
            USER_ADDRESS => {
                let user = text()?.parse().map_err(|_| ExtOrError::Nonsense)?;
                self.info.user = Some(user);
            }
            TRANSPORT => {
                let name = Some(text()?).filter(|name| crate::is_name(name));
                self.info.transport = Some(name.ok_or(ExtOrError::Nonsense)?.to_owned());
            }
            // Commands of later versions are ignored.
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddrV6;

    use super::*;

    fn file(cookie: [u8; 32]) -> Vec<u8> {
        [&COOKIE_FILE[..], &cookie].concat()
    }

    fn info() -> ConnectionInfo {
        ConnectionInfo { user: "192.0.2.1:5".parse().ok(), transport: Some("x".to_owned()) }
    }

    /// Runs a dialogue in which both sides pass at most `step` bytes at a time. Returns both
    /// results.
    fn meet(
        cookies: [[u8; 32]; 2],
        step: usize,
    ) -> (Result<bool, ExtOrError>, Result<Option<ConnectionInfo>, ExtOrError>) {
        let mut down = Vec::new();
        let mut server = ExtOrServer::new(cookies[1], [2; 32], &mut down);
        let mut client = ExtOrClient::new(&file(cookies[0]), [1; 32], info()).unwrap();
        let (mut is_open, mut up, mut result) = (Ok(false), Vec::new(), Ok(None));
        while !down.is_empty() || !up.is_empty() {
            let part: Vec<u8> = down.drain(..step.min(down.len())).collect();
            is_open = client.take(&part, &mut up);
            let part: Vec<u8> = up.drain(..step.min(up.len())).collect();
            if result.is_ok() {
                result = server.take(&part, &mut down);
            }
            if is_open.is_err() {
                break;
            }
        }
        (is_open, result)
    }

    #[test]
    fn who_has_the_cookie_is_let_in_and_says_whose_connection_it_is() {
        for step in [1, 7, 1_000] {
            assert_eq!(meet([[7; 32]; 2], step), (Ok(true), Ok(Some(info()))));
        }
    }

    #[test]
    fn who_has_another_cookie_is_not() {
        let (client, server) = meet([[7; 32], [8; 32]], 1_000);
        assert_eq!(client, Err(ExtOrError::Proof));
        assert_eq!(server, Ok(None));
        let mut out = Vec::new();
        let mut server = ExtOrServer::new([8; 32], [2; 32], &mut out);
        let guessed = [&[SAFE_COOKIE][..], &[1; NONCE], &[0; HASH]].concat();
        assert_eq!(server.take(&guessed, &mut out), Err(ExtOrError::Proof));
        assert_eq!(out.last(), Some(&0), "it is told");
    }

    #[test]
    fn nonsense_is_bounded_and_told() {
        assert!(ExtOrClient::new(b"short", [0; 32], ConnectionInfo::default()).is_none());
        let mut client = ExtOrClient::new(&file([7; 32]), [1; 32], info()).unwrap();
        assert_eq!(client.take(&[2, 3, 0], &mut Vec::new()), Err(ExtOrError::NoCommonProof));
        let mut client = ExtOrClient::new(&file([7; 32]), [1; 32], info()).unwrap();
        assert_eq!(client.take(&[9; 300], &mut Vec::new()), Err(ExtOrError::Nonsense));
        let mut server = ExtOrServer::new([8; 32], [2; 32], &mut Vec::new());
        assert_eq!(server.take(&[2], &mut Vec::new()), Err(ExtOrError::NoCommonProof));
    }

    #[test]
    fn a_relay_is_told_addresses_as_it_knows_them() {
        let text_of = |user: SocketAddr| {
            let info = ConnectionInfo { user: Some(user), transport: None };
            let mut out = Vec::new();
            ExtOrClient::new(&file([7; 32]), [1; 32], info).unwrap().introduce(&mut out);
            String::from_utf8(out[HEAD..out.len() - HEAD].to_vec()).unwrap()
        };
        assert_eq!(text_of("[::ffff:192.0.2.1]:5".parse().unwrap()), "192.0.2.1:5");
        let local = SocketAddrV6::new("fe80::1".parse().unwrap(), 5, 0, 3);
        assert_eq!(text_of(local.into()), "[fe80::1]:5");
    }

    #[test]
    fn what_comes_behind_is_the_clients() {
        let mut out = Vec::new();
        let mut server = ExtOrServer::new([7; 32], [2; 32], &mut out);
        let key = Key::new(HMAC_SHA256, &[7; 32]);
        let hash = sign(&key, &message(BY_CLIENT, &[1; 32], &[2; 32]));
        let all =
            [&[SAFE_COOKIE][..], &[1; 32], hash.as_ref(), &[0, 99, 0, 1, 5, 0, 0, 0, 0], b"tls"];
        let result = server.take(&all.concat(), &mut out);
        assert_eq!(result, Ok(Some(ConnectionInfo::default())), "a later command is passed over");
        assert_eq!(server.rest(), b"tls");
        assert!(out.ends_with(&[0x10, 0, 0, 0]));
    }
}
