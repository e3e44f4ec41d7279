//! How far the start of a connection was heard, and what became of it.

use super::hello::ServerName;
use super::pieces::Pieces;

/// Names of hosts, each standing for all names below it.
#[derive(Debug)]
pub(super) struct Names(Vec<String>);

/// The start of one connection.
#[derive(Debug)]
pub(super) enum Start {
    /// It is not known yet what it asks for.
    Coming(Pieces),
    /// It asked for something else, or for nothing that can be read.
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

/// As names are compared: small letters, and without the dot of the root, which servers ignore.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

impl Default for Start {
    fn default() -> Start {
        Start::Coming(Pieces::default())
    }
}

impl Start {
    /// A piece of what the client says first.
    pub(super) fn take(&mut self, at: u64, bytes: &[u8]) {
        if let Start::Coming(pieces) = self {
            pieces.take(at, bytes);
        }
    }

    /// Decides, if what came is enough for `read`. Nothing more is expected of a start that has
    /// grown too long.
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
