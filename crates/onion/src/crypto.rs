//! Relay crypto: the layers of a circuit. A relay has one for each circuit, a client one for each
//! hop.
//!
//! Layers work on a cell's body where it lies. `tor1` is the construction that all relays speak;
//! [`cgo`] has the same two traits. Both need cells in order and without losses. [`lossy`] does
//! not; it is experimental.

use crate::wire::cell::{Body, Command};
use crate::wire::message::Format;

pub mod cgo;
pub mod counter;
pub mod hctr2;
pub mod lossy;
#[cfg(any(test, feature = "elide"))]
mod null;
mod tor1;

pub use crate::wire::tag::Tag;
pub use cgo::{CgoClient, CgoRelay};
#[cfg(any(test, feature = "elide"))]
pub use null::{NullClient, NullRelay};
pub use tor1::{Tor1Client, Tor1Relay};

/// The keys that a handshake ends in, and with them the construction that both ends use.
#[derive(Clone, PartialEq, Eq)]
pub enum Keys {
    /// Of [`Tor1Relay`] and [`Tor1Client`].
    Tor1(KeyMaterial),
    /// Of [`CgoRelay`] and [`CgoClient`].
    Cgo(Box<[u8; cgo::KEY_BYTES]>),
    /// None, in a simulation: of [`NullRelay`] and [`NullClient`]. No handshake ends in them.
    #[cfg(any(test, feature = "elide"))]
    Null {
        /// Whether they stand for those of Counter Galois Onion.
        cgo: bool,
    },
}

impl From<KeyMaterial> for Keys {
    fn from(keys: KeyMaterial) -> Keys {
        Keys::Tor1(keys)
    }
}

impl Keys {
    /// The layer of the relay that made the handshake.
    #[must_use]
    pub fn relay_layer(&self) -> Box<dyn RelayLayer> {
        match self {
            Keys::Tor1(keys) => Box::new(Tor1Relay::new(keys)),
            Keys::Cgo(seed) => Box::new(CgoRelay::new(seed)),
            #[cfg(any(test, feature = "elide"))]
            Keys::Null { cgo } => Box::new(NullRelay::new(*cgo)),
        }
    }

    /// The client's layer for that relay.
    #[must_use]
    pub fn client_layer(&self) -> Box<dyn ClientLayer> {
        match self {
            Keys::Tor1(keys) => Box::new(Tor1Client::new(keys)),
            Keys::Cgo(seed) => Box::new(CgoClient::new(seed)),
            #[cfg(any(test, feature = "elide"))]
            Keys::Null { cgo } => Box::new(NullClient::new(*cgo)),
        }
    }

    /// Keys of layers without cryptography that stand for those of these keys.
    #[cfg(any(test, feature = "elide"))]
    #[must_use]
    pub(crate) fn elided(self) -> Keys {
        Keys::Null { cgo: matches!(self, Keys::Cgo(_)) }
    }
}

/// A relay's layer of one circuit. `command` is the cell's own, RELAY or RELAY_EARLY.
pub trait RelayLayer: Send {
    /// How messages lie in the cells that this layer opens.
    fn format(&self) -> Format {
        Format::V0
    }

    /// A cell that goes away from the client: takes our layer off. Some if the cell is for us.
    fn outbound(&mut self, command: Command, body: &mut Body) -> Option<Tag>;
    /// A cell of a farther relay, on its way to the client: puts our layer on.
    fn inbound(&mut self, command: Command, body: &mut Body);
    /// A cell of our own to the client: authenticates it and puts our layer on.
    fn originate(&mut self, command: Command, body: &mut Body) -> Tag;
}

/// A client's layer for one hop of a circuit.
pub trait ClientLayer: Send {
    /// How messages lie in the cells that this layer opens.
    fn format(&self) -> Format {
        Format::V0
    }

    /// A cell for this hop: authenticates it and puts the hop's layer on.
    fn originate(&mut self, command: Command, body: &mut Body) -> Tag;
    /// A cell for a farther hop: puts this hop's layer on.
    fn outbound(&mut self, command: Command, body: &mut Body);
    /// A cell that comes in: takes this hop's layer off. Some if the cell is of this hop.
    fn inbound(&mut self, command: Command, body: &mut Body) -> Option<Tag>;
}

/// What a handshake leaves both ends with (tor-spec, "Setting circuit keys").
#[derive(Clone, PartialEq, Eq)]
pub struct KeyMaterial {
    /// Seed of the digest, away from the client.
    pub digest_out: [u8; 20],
    /// Seed of the digest, to the client.
    pub digest_in: [u8; 20],
    /// Key, away from the client.
    pub key_out: [u8; 16],
    /// Key, to the client.
    pub key_in: [u8; 16],
}

/// Bytes of key material for tor1.
pub const KEY_BYTES: usize = 72;

impl From<&[u8; KEY_BYTES]> for KeyMaterial {
    /// In the order of tor-spec: both digests, both keys.
    fn from(bytes: &[u8; KEY_BYTES]) -> KeyMaterial {
        let mut material = KeyMaterial {
            digest_out: [0; 20],
            digest_in: [0; 20],
            key_out: [0; 16],
            key_in: [0; 16],
        };
        material.digest_out.copy_from_slice(&bytes[..20]);
        material.digest_in.copy_from_slice(&bytes[20..40]);
        material.key_out.copy_from_slice(&bytes[40..56]);
        material.key_in.copy_from_slice(&bytes[56..]);
        material
    }
}
