//! Parser for the server name in a TLS ClientHello (RFC 8446, section 4.1.2; RFC 6066, section 3).

/// The result of a search for the server name in the first bytes of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServerName {
    /// The bytes are a ClientHello for this host name.
    Name(String),
    /// The bytes are not a ClientHello, or are a ClientHello without a server name.
    None,
    /// The bytes end before the server name is found or excluded; more bytes are needed.
    NotYet,
}

/// Content type of a TLS record with handshake messages (RFC 8446, section 5.1).
const HANDSHAKE_RECORD: u8 = 22;
/// Type of the TLS handshake message ClientHello (RFC 8446, section 4).
const CLIENT_HELLO: u8 = 1;
/// Type of the TLS extension server_name (RFC 6066, section 1.1).
const SERVER_NAME: u16 = 0;
/// Type of a host name in the TLS extension server_name (RFC 6066, section 3).
const HOST_NAME: u8 = 0;

/// Searches the beginning of a TLS stream for the server name. The last TLS record may be
/// incomplete.
pub(super) fn of_records(mut stream: &[u8]) -> ServerName {
    let mut message = Vec::new();
    loop {
        match stream {
            [] => return server_name(&message),
            [HANDSHAKE_RECORD, ..] => {}
            _ if message.is_empty() => return ServerName::None,
            _ => return server_name(&message),
        }
        let [_, _, _, high, low, rest @ ..] = stream else { return server_name(&message) };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        message.extend(&rest[..length.min(rest.len())]);
        stream = rest.get(length..).unwrap_or_default();
    }
}

/// Searches the beginning of the TLS handshake messages for the server name. Can find the name
/// before the ClientHello is complete.
pub(super) fn server_name(message: &[u8]) -> ServerName {
    let Some(&kind) = message.first() else { return ServerName::NotYet };
    if kind != CLIENT_HELLO {
        return ServerName::None;
    }
    let Some(length) = message.get(1..4) else { return ServerName::NotYet };
    let length = u32::from_be_bytes([0, length[0], length[1], length[2]]) as usize;
    let body = &message[4..];
    let whole = body.len() >= length;
    let body = &body[..length.min(body.len())];
    match search(body) {
        Some(reply) => reply,
        None if whole => ServerName::None,
        None => ServerName::NotYet,
    }
}

/// Searches the body of a ClientHello for the server name. Returns `None` if the body ends before
/// the name is found or excluded.
fn search(body: &[u8]) -> Option<ServerName> {
    let mut rest = Reader(body);
    rest.skip(2 + 32)?; // version and random
    let session = rest.byte()?;
    rest.skip(session.into())?;
    let suites = rest.number()?;
    rest.skip(suites.into())?;
    let compressions = rest.byte()?;
    rest.skip(compressions.into())?;
    let mut left = usize::from(rest.number()?);
    while left >= 4 {
        let (kind, length) = (rest.number()?, usize::from(rest.number()?));
        let content = rest.take(length)?;
        if kind == SERVER_NAME {
            return Some(host(content).map_or(ServerName::None, ServerName::Name));
        }
        left = left.saturating_sub(4 + length);
    }
    Some(ServerName::None)
}

/// Returns the host name in the TLS extension server_name; `None` if the extension is malformed or
/// has no host name.
fn host(extension: &[u8]) -> Option<String> {
    let mut rest = Reader(extension);
    rest.number()?;
    while let Some(kind) = rest.byte() {
        let length = rest.number()?;
        let name = rest.take(length.into())?;
        if kind == HOST_NAME {
            return String::from_utf8(name.to_vec()).ok();
        }
    }
    None
}

/// A cursor over a slice of bytes, starting at the front. Its methods return `None` if too few
/// bytes are left.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn skip(&mut self, length: usize) -> Option<()> {
        self.take(length).map(drop)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn number(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }
}
