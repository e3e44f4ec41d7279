//! Covers of connections: one module per file.
//!
//! A `Slot` converts between a connection's bytes and the chopper's hidden bytes. It returns how
//! many hidden bytes its next message takes, builds the message, and extracts the hidden bytes of
//! received messages. It knows nothing of blocks, links and keys.
//!
//! A connection carries one *exchange*, or several in turn. With each begins a stream of hidden
//! bytes in both directions; the client's begins with a token. A connection that is one long
//! exchange (`nosteg`) has one token. Where a proxy may forward each request separately (`http`),
//! each request is an exchange.

mod embed;
mod http;
mod nosteg;
mod profile;
mod rr;

use std::time::Duration;

use anabranch_multipath::Time;

use crate::keys::BridgeKey;

pub(crate) use embed::{Numbers, Wish};
pub use embed::{Passed, Shape, ShapeFault, Shapes, Step};
pub use http::{Hiding, NotPicture, Object, Pictures, Refusal, Site, Tier};
pub(crate) use http::{Names, Notes};
pub use profile::{Module, Profile, ProfileError};

/// Context that all connections of an end share.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    /// The words of this bridge.
    pub(crate) names: Names,
    /// The server's name in requests.
    pub(crate) host: String,
    /// Seconds from 1970 to the start of the run.
    pub(crate) wall: u64,
    /// Data that the covers are made from.
    pub(crate) covers: Covers,
    /// The mask of shape numbers.
    pub(crate) numbers: Numbers,
    /// The mask of a site's paths.
    pub(crate) notes: Notes,
}

/// Data that covers are made from, in addition to what the program itself has.
#[derive(Clone, Debug, Default)]
pub struct Covers {
    /// Pictures in which a server's answers hide bytes.
    pub pictures: Pictures,
    /// A site in whose objects a server's answers hide bytes.
    pub site: Site,
    /// Shapes of connections; both ends need the same ones.
    pub shapes: Shapes,
}

impl Scene {
    pub(crate) fn new(key: &BridgeKey, host: String, wall: u64, covers: Covers) -> Scene {
        let (names, numbers) = (Names::of(key), Numbers::of(key, &covers.shapes));
        Scene { names, host, wall, covers, numbers, notes: Notes::of(key) }
    }
}

/// Minimum number of bytes of padding.
pub(crate) const RESERVE: usize = 32;

/// Output of a slot that reads a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hidden<'a> {
    /// Hidden bytes of the current exchange.
    Bytes(&'a [u8]),
    /// The other end sends nothing more in this exchange.
    End,
}

/// Error: a connection's bytes are not of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotCover;

/// An end of a connection, as a certain kind of traffic.
pub(crate) trait Slot: Send {
    /// Receives the connection's bytes and passes the hidden ones to `each`.
    ///
    /// # Errors
    /// They are not of this kind of traffic: the connection is unusable.
    fn receive(
        &mut self,
        now: Time,
        bytes: &[u8],
        each: &mut dyn FnMut(Hidden<'_>),
    ) -> Result<(), NotCover>;

    /// Hidden bytes that the next message has room for, when the socket has room for `socket`
    /// bytes; 0 if it is not this end's turn.
    fn room(&self, socket: usize) -> usize;

    /// Bytes of [`Slot::room`] that are reserved for control frames and acknowledgements.
    fn spare(&self) -> usize {
        0
    }

    /// Returns the number of hidden bytes in the message for `hidden` of them: the same number, or
    /// at least [`RESERVE`] more, which are to be filled with padding.
    fn fit(&mut self, hidden: usize) -> usize;

    /// Appends the message with these `hidden` bytes, at most [`Slot::room`] and exactly
    /// [`Slot::fit`] of them. Returns whether this end's part of the exchange is over with it.
    fn send(&mut self, now: Time, hidden: &[u8], out: &mut Vec<u8>) -> bool;

    /// Time until which this end has to wait before it may send, though it is its turn.
    fn wait(&mut self, _now: Time) -> Option<Time> {
        None
    }

    /// Maximum time that the other end may hold back its part of an exchange.
    fn hold(&self) -> Duration {
        Duration::ZERO
    }

    /// Time at which this end has to send a message, even without data.
    fn due(&self) -> Option<Time> {
        None
    }

    /// Free bytes that the socket needs before [`Slot::due`] applies.
    fn needs(&self) -> usize {
        0
    }

    /// Shares the server's hint for the next request among connections. Stores this connection's
    /// hint in `lead`, or takes the one in `lead` if it has none.
    fn lead(&mut self, _lead: &mut Option<String>) {}

    /// Time since which a client has been waiting for this end's part of an exchange, in modules
    /// where several wait at a time and holding one of them is enough.
    fn since(&self) -> Option<Time> {
        None
    }

    /// Whether the next message of this end, a client's, begins an exchange.
    fn begins(&self) -> bool {
        false
    }

    /// Whether both ends may send at any time, so that a silent connection can be probed.
    fn streams(&self) -> bool {
        false
    }

    /// Whether this connection takes no further exchange.
    fn is_spent(&self) -> bool {
        false
    }
}
