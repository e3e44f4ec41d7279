//! Relay crypto: the layers of encryption of a circuit. A relay has one layer for each circuit,
//! and a client has one layer for each hop.
//!
//! Layers change a cell's body in place. All relays support the construction `tor1`; [`cgo`]
//! implements the same two traits. With both constructions, a layer must process all cells of a
//! circuit, in order. The experimental construction [`lossy`] permits lost and reordered cells.

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

/// The keys of a hop that result from a handshake. The variant is the construction (the kind of
/// encryption) that both ends use.
#[derive(Clone, PartialEq, Eq)]
pub enum Keys {
    /// Keys of [`Tor1Relay`] and [`Tor1Client`].
    Tor1(KeyMaterial),
    /// Key material of [`CgoRelay`] and [`CgoClient`].
    Cgo(Box<[u8; cgo::KEY_BYTES]>),
    /// No keys, for the layers [`NullRelay`] and [`NullClient`] of simulations. No handshake
    /// results in this variant.
    #[cfg(any(test, feature = "elide"))]
    Null {
        /// True if the layers replace those of Counter Galois Onion, false if they replace those
        /// of `tor1`.
        cgo: bool,
    },
}

impl From<KeyMaterial> for Keys {
    fn from(keys: KeyMaterial) -> Keys {
        Keys::Tor1(keys)
    }
}

impl Keys {
    /// Returns the layer of the relay that took part in the handshake.
    #[must_use]
    pub fn relay_layer(&self) -> Box<dyn RelayLayer> {
        match self {
            Keys::Tor1(keys) => Box::new(Tor1Relay::new(keys)),
            Keys::Cgo(seed) => Box::new(CgoRelay::new(seed)),
            #[cfg(any(test, feature = "elide"))]
            Keys::Null { cgo } => Box::new(NullRelay::new(*cgo)),
        }
    }

    /// Returns the client's layer for the relay that took part in the handshake.
    #[must_use]
    pub fn client_layer(&self) -> Box<dyn ClientLayer> {
        match self {
            Keys::Tor1(keys) => Box::new(Tor1Client::new(keys)),
            Keys::Cgo(seed) => Box::new(CgoClient::new(seed)),
            #[cfg(any(test, feature = "elide"))]
            Keys::Null { cgo } => Box::new(NullClient::new(*cgo)),
        }
    }

    /// Returns keys of layers without encryption. These layers replace the layers that `self`
    /// would create.
    #[cfg(any(test, feature = "elide"))]
    #[must_use]
    pub(crate) fn elided(self) -> Keys {
        Keys::Null { cgo: matches!(self, Keys::Cgo(_)) }
    }
}

/// A relay's layer of encryption on one circuit. `command` is the cell's command, RELAY or
/// RELAY_EARLY.
pub trait RelayLayer: Send {
    /// Returns the format of messages in the cells that this layer decrypts.
    fn format(&self) -> Format {
        Format::V0
    }

    /// Removes our layer from a cell that travels away from the client. Returns the cell's tag if
    /// the cell is addressed to us, else `None`.
    fn outbound(&mut self, command: Command, body: &mut Body) -> Option<Tag>;
    /// Adds our layer to a cell from a farther relay to the client.
    fn inbound(&mut self, command: Command, body: &mut Body);
    /// Authenticates a cell that we send to the client, and adds our layer. Returns the cell's
    /// tag.
    fn originate(&mut self, command: Command, body: &mut Body) -> Tag;
}

/// A client's layer of encryption for one hop of a circuit.
pub trait ClientLayer: Send {
    /// Returns the format of messages in the cells that this layer decrypts.
    fn format(&self) -> Format {
        Format::V0
    }

    /// Authenticates a cell for this hop, and adds this hop's layer. Returns the cell's tag.
    fn originate(&mut self, command: Command, body: &mut Body) -> Tag;
    /// Adds this hop's layer to a cell for a farther hop.
    fn outbound(&mut self, command: Command, body: &mut Body);
    /// Removes this hop's layer from a cell that travels to the client. Returns the cell's tag if
    /// this hop sent the cell, else `None`.
    fn inbound(&mut self, command: Command, body: &mut Body) -> Option<Tag>;
}

/// Keys of a circuit's hop, which both ends derive from a handshake (tor-spec, "Setting circuit
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
