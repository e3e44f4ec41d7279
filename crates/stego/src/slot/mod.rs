//! What connections look like: one module a file.
//!
//! A `Slot` stands between a connection's bytes and the hidden bytes of the chopper. It says how
//! many hidden bytes its next message takes, makes the message, and finds the hidden bytes of the
//! messages that come. It knows nothing of blocks, links and keys.
//!
//! A connection carries one *exchange* or several, one after the other. With each begins a stream
//! of hidden bytes in either direction; the client's begins with a token. Where a connection is one
//! long exchange (`nosteg`), it has one token; where a proxy stands between that hands on each
//! request by itself (`http`), each request is an exchange.

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

/// What the ends of a connection know.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    /// The words of this bridge.
    pub(crate) names: Names,
    /// What requests call the server.
    pub(crate) host: String,
    /// Seconds since 1970 when the run began.
    pub(crate) wall: u64,
    /// What hides bytes.
    pub(crate) covers: Covers,
    /// What hides the numbers of shapes.
    pub(crate) numbers: Numbers,
    /// What hides paths of a site.
    pub(crate) notes: Notes,
}

/// What connections look like beside what the program knows of itself.
#[derive(Clone, Debug, Default)]
pub struct Covers {
    /// What a server's answers hide bytes in, where they are pictures.
    pub pictures: Pictures,
    /// The site whose objects they are.
    pub site: Site,
    /// The shapes of connections: both ends have to have the same.
    pub shapes: Shapes,
}

impl Scene {
    pub(crate) fn new(key: &BridgeKey, host: String, wall: u64, covers: Covers) -> Scene {
        let (names, numbers) = (Names::of(key), Numbers::of(key, &covers.shapes));
        Scene { names, host, wall, covers, numbers, notes: Notes::of(key) }
    }
}

/// Bytes that padding has at least.
pub(crate) const RESERVE: usize = 32;

/// What a slot finds in the bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hidden<'a> {
    /// Hidden bytes of the present exchange.
    Bytes(&'a [u8]),
    /// The other end says nothing more in this exchange.
    End,
}

/// The bytes of a connection are none of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotCover;

/// One end of a connection, as a certain kind of traffic.
pub(crate) trait Slot: Send {
    /// Takes the connection's bytes and gives what is hidden in them to `each`.
    ///
    /// # Errors
    /// They are none of this kind of traffic: the connection is of no use.
    fn receive(
        &mut self,
        now: Time,
        bytes: &[u8],
        each: &mut dyn FnMut(Hidden<'_>),
    ) -> Result<(), NotCover>;

    /// Hidden bytes that the next message takes, where the socket takes `socket` bytes; 0 if it is
    /// not this end's turn.
    fn room(&self, socket: usize) -> usize;

    /// Bytes of [`Slot::room`] that are not for the stream, but for what keeps a link going.
    fn spare(&self) -> usize {
        0
    }

    /// The hidden bytes of the message that carries so many: as many, or at least [`RESERVE`] more,
    /// which are to be filled with padding.
    fn fit(&mut self, hidden: usize) -> usize;

    /// Makes the message with these hidden bytes, at most [`Slot::room`], as many as
    /// [`Slot::fit`] said. Whether the exchange is over with it, as far as this end is concerned.
    fn send(&mut self, now: Time, hidden: &[u8], out: &mut Vec<u8>) -> bool;

    /// Until when this end has to wait before it may speak, though it is its turn.
    fn wait(&mut self, _now: Time) -> Option<Time> {
        None
    }

    /// How long the other end may keep its part of an exchange back.
    fn hold(&self) -> Duration {
        Duration::ZERO
    }

    /// When this end has to send a message even if it has nothing to say.
    fn due(&self) -> Option<Time> {
        None
    }

    /// Bytes that the socket has to take before [`Slot::due`] means anything.
    fn needs(&self) -> usize {
        0
    }

    /// Hands on what the server said to be asked for next: to `lead` what it said here, and from
    /// there what it said by another connection, if it has said nothing here.
    fn lead(&mut self, _lead: &mut Option<String>) {}

    /// Since when the other end (a client) waits for this one's part of an exchange, where several
    /// wait at a time and one is enough to be kept back.
    fn since(&self) -> Option<Time> {
        None
    }

    /// Whether the next message of this end (a client's) begins an exchange.
    fn begins(&self) -> bool {
        false
    }

    /// Whether both ends may speak at any time, and a silent connection can be asked.
    fn streams(&self) -> bool {
        false
    }

    /// Whether no more exchange goes by this connection.
    fn is_spent(&self) -> bool {
        false
    }
}
