//! The choice of the path for a session's handshakes. It depends on the QUIC connections that are
//! pinned (kept on one path), and on the cookies of a WireGuard server.

use std::time::Duration;

use anabranch_multipath::{PathId, Time};

use super::cookie::{self, Cookie};
use super::paths::Paths;
use super::pins::Pins;
use crate::{Batch, Renumbering, TupleId};

/// Time after which a handshake without an answer continues on another path: the first probe
/// timeout of QUIC, 333 + 4 x 166.5 ms (RFC 9002, section 6.2.2).
const FIRST_PTO: Duration = Duration::from_millis(999);

/// The QUIC connections whose handshakes are in progress, and the path that handshakes use.
#[derive(Debug)]
pub(super) struct Handshakes {
    pub(super) pins: Pins,
    /// The last cookie of a WireGuard server, with the path and source port on which it arrived;
    /// `None` if no cookie arrived.
    cookie: Option<Cookie>,
    /// The path and source port (tuple) that all handshakes use; `None` if no choice was made yet.
    /// This port stays the same while the schedule rotates the ports of other datagrams.
    pinned_to: Option<(PathId, TupleId)>,
    /// Time at which the path in `pinned_to` was chosen.
    pinned_at: Time,
}

impl Handshakes {
    pub(super) fn new(now: Time) -> Handshakes {
        Handshakes { pins: Pins::default(), cookie: None, pinned_to: None, pinned_at: now }
    }

    /// Forgets the QUIC connections whose handshakes are under way. The caller does this when the
    /// session turns out not to carry QUIC.
    pub(super) fn forget_pins(&mut self) {
        (self.pins, self.pinned_to) = (Pins::default(), None);
    }

    pub(super) fn renumber(&mut self, numbers: &Renumbering) {
        self.pinned_to = self.pinned_to.and_then(|(_, tuple)| numbers.tuple(tuple));
        self.cookie = self.cookie.and_then(|cookie| cookie.renumbered(numbers));
    }

    /// Returns the path and source port (tuple) that handshakes use; `None` if no choice was made
    /// yet.
    pub(super) fn pinned_to(&self) -> Option<(PathId, TupleId)> {
        self.pinned_to
    }

    /// Returns whether the handshake of a QUIC connection is in progress on `path`.
    pub(super) fn uses(&self, path: PathId) -> bool {
        self.pins.any() && self.pinned_to.is_some_and(|(pin, _)| pin == path)
    }

    /// Sets the path and source port (tuple) that handshakes use to `to`. If the path is the same
    /// as before, the old port is kept. Returns the new path if a handshake in progress changes to
    /// it.
    pub(super) fn pin_to(&mut self, now: Time, to: Option<(PathId, TupleId)>) -> Option<PathId> {
        let same = |pin: &(PathId, TupleId)| Some(pin.0) == to.map(|to| to.0);
        let kept = self.pinned_to.filter(same);
        self.pinned_to = kept.or(to);
        let (path, _) = self.pinned_to.filter(|_| kept.is_none() && self.pins.any())?;
        self.pinned_at = now;
        Some(path)
    }

    /// Returns the path for handshakes. This is the pinned path (the path that handshakes use now)
    /// if an answer has arrived on it. Otherwise it is a path on which an answer has arrived
    /// meanwhile or, after [`FIRST_PTO`], the next usable path. If there is no such path, it is
    /// the pinned path.
    pub(super) fn next_path(&self, now: Time, paths: &Paths) -> Option<PathId> {
        let (pinned, _) = self.pinned_to?;
        Some(self.beyond_silence(now, pinned, paths).unwrap_or(pinned))
    }

    fn beyond_silence(&self, now: Time, pinned: PathId, paths: &Paths) -> Option<PathId> {
        let has_arrival = |index: usize| {
            paths.health[index].last_arrival().is_some_and(|at| at >= self.pinned_at)
        };
        if has_arrival(pinned.index()) {
            return None;
        }
        let count = paths.views().len();
        let mut usable = (1..count)
            .map(|step| (pinned.index() + step) % count)
            .filter(|index| paths.is_usable(*index));
        let is_over = now.since(self.pinned_at) >= FIRST_PTO;
        let next = usable.clone().next().filter(|_| is_over);
        usable.find(|index| has_arrival(*index)).or(next).map(PathId::at)
    }

    /// Forgets the path of handshakes once no QUIC connection is pinned (bound to one path) any
    /// more. Returns true if this happened since the previous call.
    pub(super) fn release(&mut self) -> bool {
        let released = self.pins.take_release();
        if released {
            self.pinned_to = None;
        }
        released
    }

    /// Learns a cookie from datagrams of a WireGuard server that arrived on `path` at the source
    /// port `tuple`.
    pub(super) fn learn_cookie(
        &mut self,
        now: Time,
        (path, tuple): (PathId, TupleId),
        batch: &Batch<'_>,
    ) {
        cookie::learn(&mut self.cookie, now, (path, tuple), batch);
    }

    pub(super) fn has_cookie(&self) -> bool {
        self.cookie.is_some()
    }

    /// Returns the path and source port (tuple) on which a WireGuard handshake must be sent so
    /// that the server accepts its cookie. Returns `None` if there is no usable cookie, or if the
    /// user `named` another path for handshakes.
    pub(super) fn cookie_route(
        &self,
        now: Time,
        named: Option<PathId>,
    ) -> Option<(PathId, TupleId)> {
        let way = self.cookie.as_ref()?.way(now)?;
        named.is_none_or(|named| named == way.0).then_some(way)
    }

    /// Records that a handshake is sent on the path and source port of the cookie.
    pub(super) fn use_up_cookie(&mut self) {
        self.cookie.iter_mut().for_each(Cookie::use_up);
    }
}
