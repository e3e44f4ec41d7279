//! The path on which a WireGuard server's cookie arrived.
//!
//! A WireGuard server under load answers a handshake with a cookie. The server accepts the cookie
//! only from the source address of that handshake (boringtun), or from its source address and port
//! (wireguard-go). So the next handshake uses the same path and port. On another path the server
//! would answer with another cookie, and the client would retry only after 5 s.

use std::time::Duration;

use anabranch_multipath::{PathId, Time};

use crate::protocol::wireguard::Message;
use crate::{Batch, Renumbering, TupleId};

/// Lifetime of a cookie: `Cookie-Refresh-Time` (WireGuard's paper, section 5.4.7).
const LIFE: Duration = Duration::from_secs(120);

/// The path and the tuple (the path's source port) on which the newest cookie of a session
/// arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cookie {
    path: PathId,
    tuple: TupleId,
    until: Time,
    /// Whether a handshake was sent on this path and source port, and nothing has arrived there
    /// since.
    waits: bool,
}

impl Cookie {
    /// Returns the path and the tuple (the path's source port) on which the next handshake has to
    /// be sent. Returns `None` if the cookie has expired, or if the last handshake with it got no
    /// answer.
    pub(super) fn way(&self, now: Time) -> Option<(PathId, TupleId)> {
        (now < self.until && !self.waits).then_some((self.path, self.tuple))
    }

    /// Records that a handshake is sent on the path and source port where the cookie arrived.
    pub(super) fn use_up(&mut self) {
        self.waits = true;
    }

    /// Returns the cookie with the indices that its path and source port have in new settings;
    /// `None` if the path or the port was removed.
    pub(super) fn renumbered(self, numbers: &Renumbering) -> Option<Cookie> {
        let (path, tuple) = numbers.tuple(self.tuple)?;
        Some(Cookie { path, tuple, ..self })
    }
}

/// Updates `cookie` from datagrams of the server that arrived on the path `path` and the tuple
/// `tuple` (the path's source port).
pub(super) fn learn(
    cookie: &mut Option<Cookie>,
    now: Time,
    (path, tuple): (PathId, TupleId),
    batch: &Batch<'_>,
) {
    let is_cookie = |index| Message::of(batch.datagram(index)) == Some(Message::CookieReply);
    if (0..batch.count()).any(is_cookie) {
        *cookie = Some(Cookie { path, tuple, until: now + LIFE, waits: false });
    } else if let Some(cookie) = cookie.as_mut().filter(|cookie| cookie.tuple == tuple) {
        cookie.waits = false;
    }
}
