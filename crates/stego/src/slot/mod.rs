//! The covers, kinds of ordinary-looking traffic that hide a connection's data. Each cover is a
//! module in its own file.
//!
//! A `Slot` converts between the bytes of a connection and the bytes that a link hides in them. It
//! returns how many hidden bytes its next message can carry, builds the message, and extracts the
//! hidden bytes of received messages. It does not know the encryption, or the links whose bytes it
//! hides.
//!
//! A connection carries one *exchange*, or several, one after the other. In each exchange, there
//! is a stream of hidden bytes in each direction. The client's stream begins with a token, from
//! which the server recognises the client's link. If a connection is one long exchange (`nosteg`),
//! it has one token. If a proxy may forward each request separately (`http`), each request is an
//! exchange.

mod embed;
mod family;
mod http;
mod nosteg;
mod profile;
mod rr;

use std::time::Duration;

use anabranch_multipath::Time;

use crate::keys::BridgeKey;

pub(crate) use embed::{LoadHint, ShapeIndexMask};
pub use embed::{RecordedPacket, Shape, ShapeFault, Shapes, Step};
pub use family::Family;
pub use http::{Hiding, NotPicture, Object, Pictures, Refusal, Site, Tier};
pub(crate) use http::{Names, Notes};
pub use profile::{FAMILIES, Profile, ProfileError};

/// The settings that all connections of a client, or of a server, share to build their covers.
#[derive(Clone, Debug)]
pub(crate) struct SharedContext {
    /// The words in the URLs and JSON bodies of this bridge, for the covers `http-*`.
    pub(crate) names: Names,
    /// The server's name, as requests contain it.
    pub(crate) host: String,
    /// Wall-clock time at the start of the program (time zero), in seconds since 1970.
    pub(crate) wall: u64,
    /// Data from which the covers (ordinary-looking traffic that hides the data) are made.
    pub(crate) covers: Covers,
    /// The key that masks the indices of traffic patterns (shapes), for the cover `embed`.
    pub(crate) shape_mask: ShapeIndexMask,
    /// The key that masks, in a site's answers, the URL paths that clients should request next.
    /// For the cover `http-site`.
    pub(crate) notes: Notes,
}

/// Data from which covers (ordinary-looking traffic that hides the data) are made, in addition to
/// data in the program itself.
#[derive(Clone, Debug, Default)]
pub struct Covers {
    /// Pictures in which the answers of a server hide bytes.
    pub pictures: Pictures,
    /// A web site. Answers of a server hide bytes in its objects (files).
    pub site: Site,
    /// Traffic patterns (recorded sizes and pauses) that connections imitate. Both ends need the
    /// same patterns.
    pub shapes: Shapes,
}

impl SharedContext {
    pub(crate) fn new(key: &BridgeKey, host: String, wall: u64, covers: Covers) -> SharedContext {
        let (names, shape_mask) = (Names::of(key), ShapeIndexMask::of(key, &covers.shapes));
        SharedContext { names, host, wall, covers, shape_mask, notes: Notes::of(key) }
    }
}

/// Minimum number of padding bytes in a message, if there is any padding. Padding is a block of
/// its own, which has a minimum length.
pub(crate) const RESERVE: usize = 32;

/// An output of [`Slot::receive`], which extracts the hidden bytes of received traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hidden<'a> {
    /// Hidden bytes of the current exchange (usually a request and its answer).
    Bytes(&'a [u8]),
    /// The other end sends nothing more in this exchange (usually a request and its answer).
    End,
}

/// Error: the bytes of a connection are not of the expected kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotCover;

/// One end of a connection: converts between hidden bytes and traffic that looks like a certain
/// kind of traffic.
pub(crate) trait Slot: Send {
    /// Processes received bytes of the connection, and passes the hidden ones to `each`.
    ///
    /// # Errors
    /// The bytes are not of this kind of traffic, so the connection is unusable.
    fn receive(
        &mut self,
        now: Time,
        bytes: &[u8],
        each: &mut dyn FnMut(Hidden<'_>),
    ) -> Result<(), NotCover>;

    /// Returns how many hidden bytes the next message can carry if its length is at most `socket`,
    /// the free bytes in the socket's send buffer. Returns 0 if this end must first receive a
    /// message.
    fn room(&self, socket: usize) -> usize;

    /// Returns how many of the bytes that the next message can hide ([`Slot::room`]) are reserved
    /// for control frames and acknowledgements.
    fn spare(&self) -> usize {
        0
    }

    /// Returns how many bytes the message that carries `hidden` bytes has to hide: `hidden`, or a
    /// number that is greater by at least [`RESERVE`]. The caller fills the difference with
    /// padding.
    fn fit(&mut self, hidden: usize) -> usize;

    /// Appends the message that contains the `hidden` bytes. Their number must equal the result of
    /// [`Slot::fit`], and must not exceed [`Slot::room`].
    fn send(&mut self, now: Time, hidden: &[u8], out: &mut Vec<u8>);

    /// Returns the time until which this end has to wait before it may send, because the imitated
    /// traffic has a pause; `None` if it need not wait.
    fn wait(&mut self, _now: Time) -> Option<Time> {
        None
    }

    /// Returns the time at which this end has to send a message, even without data; `None` if it
    /// need not.
    fn due(&self) -> Option<Time> {
        None
    }

    /// Returns whether this connection can carry no further exchange (usually a request and its
    /// answer).
    fn is_spent(&self) -> bool;
}

/// The client's end of a connection, which begins the exchanges (usually requests with their
/// answers).
pub(crate) trait ClientEnd: Slot {
    /// Returns whether the next message may begin an exchange (usually a request and its answer).
    fn begins(&self) -> bool;

    /// Returns the maximum time for which the server may delay its part of an exchange (usually a
    /// request and its answer).
    fn hold(&self) -> Duration {
        Duration::ZERO
    }

    /// Shares, among connections, the URL path that the server suggests for the next request. A
    /// connection with such a path stores it in `next_path`; a connection without one takes it
    /// from there.
    fn share_hint(&mut self, _next_path: &mut Option<String>) {}
}

/// The server's end of a connection, which answers the client's exchanges.
pub(crate) trait ServerEnd: Slot {
    /// Returns whether this end's last message completed its part of the exchange (usually a
    /// request and its answer).
    fn has_answered(&self) -> bool;

    /// Returns the time since which a request on this connection has been waiting for its answer;
    /// `None` if none waits. A server with several waiting requests of a link answers all but the
    /// oldest, even without data. Always returns `None` in kinds of traffic whose answers must not
    /// come early.
    fn holds_since(&self) -> Option<Time> {
        None
    }
}
