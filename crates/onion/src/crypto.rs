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

    /// Encrypts a cell for this hop, and adds its authentication.
    fn originate(&mut self, command: Command, body: &mut Body) -> Tag;
    /// Encrypts a cell for a hop farther away, with this hop's key.
    fn outbound(&mut self, command: Command, body: &mut Body);
    /// Decrypts a cell that arrives from the network, with this hop's key. Returns `Some` if the
    /// cell was sent by this hop.
    fn inbound(&mut self, command: Command, body: &mut Body) -> Option<Tag>;
}

/// Keys of a circuit's hop, which both ends have after a handshake (tor-spec, "Setting circuit
/// keys").
#[derive(Clone, PartialEq, Eq)]
pub struct KeyMaterial {
    /// Seed of the digest over cells that travel away from the client.
    pub digest_out: [u8; 20],
    /// Seed of the digest over cells that travel to the client.
    pub digest_in: [u8; 20],
    /// Encryption key of cells that travel away from the client.
    pub key_out: [u8; 16],
    /// Encryption key of cells that travel to the client.
    pub key_in: [u8; 16],
}

/// Number of bytes of key material for `tor1`.
pub const KEY_BYTES: usize = 72;

impl From<&[u8; KEY_BYTES]> for KeyMaterial {
    /// Splits key material in the order of tor-spec: both digests, then both keys.
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
