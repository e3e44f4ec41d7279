//! The censor's decision about a connection: undecided, allowed or blocked.

use super::hello::ServerName;
use super::pieces::Pieces;

/// A list of blocked host names. Each name includes all of its subdomains.
#[derive(Debug)]
pub(super) struct Names(Vec<String>);

/// The censor's decision about a connection, made from the connection's first bytes.
#[derive(Debug)]
pub(super) enum Start {
    /// The connection is undecided: the server name in its ClientHello is not complete yet.
    Coming(Pieces),
    /// The connection is allowed: its server name is not blocked, or no server name could be
    /// parsed.
    Free,
    Blocked,
}

impl Names {
    pub(super) fn new(names: impl IntoIterator<Item = String>) -> Names {
        Names(names.into_iter().map(|name| plain(&name)).collect())
    }

    fn hold(&self, name: &str) -> bool {
        let name = plain(name);
        let below = |blocked: &String| {
            name.strip_suffix(blocked.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        self.0.iter().any(below)
    }
}

/// Normalises a host name for comparison: lower case, without the trailing dot, which servers
/// ignore.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

impl Default for Start {
    fn default() -> Start {
        Start::Coming(Pieces::default())
    }
}

impl Start {
    /// Adds the piece of the client's stream that begins at offset `at`. Does nothing once the
    /// decision is made.
    pub(super) fn take(&mut self, at: u64, bytes: &[u8]) {
        if let Start::Coming(pieces) = self {
            pieces.take(at, bytes);
        }
    }

    /// Searches the received bytes for the server name with the parser `read`. If the bytes
    /// suffice, decides whether the connection is blocked. A connection without a server name in
    /// the maximum number of bytes is allowed.
    pub(super) fn decide(&mut self, names: &Names, read: fn(&[u8]) -> ServerName) {
        let Start::Coming(pieces) = self else { return };
        match read(pieces.front()) {
            ServerName::Name(name) if names.hold(&name) => *self = Start::Blocked,
            ServerName::NotYet if !pieces.is_full() => {}
            _ => *self = Start::Free,
        }
    }

    pub(super) fn is_blocked(&self) -> bool {
        matches!(self, Start::Blocked)
    }
}
