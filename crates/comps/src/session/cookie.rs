//! A WireGuard server under load answers a handshake with a cookie, which it then takes from the
//! address that the handshake came from (boringtun), or from address and port (wireguard-go). The
//! next handshake leaves the same way; elsewhere it would earn another cookie, 5 s later.

use std::time::Duration;

use anabranch_multipath::{PathId, Time};

use crate::protocol::wireguard::Message;
use crate::{Batch, Renumbering, TupleId};

/// The life of a cookie: `Cookie-Refresh-Time`, WireGuard's paper, section 5.4.7.
const LIFE: Duration = Duration::from_secs(120);

/// The way by which the newest cookie of a session came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cookie {
    path: PathId,
    tuple: TupleId,
    until: Time,
    /// A handshake has left by it, and nothing has come since.
    waits: bool,
}

impl Cookie {
    /// The way to go by now. A handshake that went unanswered is not followed by another.
    pub(super) fn way(&self, now: Time) -> Option<(PathId, TupleId)> {
        (now < self.until && !self.waits).then_some((self.path, self.tuple))
    }

    /// A handshake leaves by it.
    pub(super) fn use_up(&mut self) {
        self.waits = true;
    }

    /// The cookie under new settings; `None` where its path or port is gone.
    pub(super) fn renumbered(self, numbers: &Renumbering) -> Option<Cookie> {
        let (path, tuple) = numbers.tuple(self.tuple)?;
        Some(Cookie { path, tuple, ..self })
    }
}

/// Learns from what the server sends by a way.
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
