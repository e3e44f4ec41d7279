//! Simulated networks, peers and conformance suites for the tests of several crates. No program
//! depends on this crate.
//!
//! * `silent_port` reserves ports on which no program listens.
//! * `every_link` has the rules that every OR link must follow; `mock_link` is a link without
//!   keys.
//! * `tls_peer` has TLS links without a handshake, and a peer that seals any record with the
//!   links' keys.
//! * `tcp` models a bulk transfer by TCP.
//! * `quic_pair` connects two QUIC endpoints in memory.
//! * `authority` signs consensuses of any relays; `onion_service` writes descriptors, and messages
//!   of services and their clients.
//! * `onion_world` has a client and relays with links in memory. `comps_world` has a splitter and
//!   its peers. `tunnel_world` has both ends of a tunnel. `stego_world` has a client and a server
//!   of the camouflage transport.
//!
//! Each module except `silent_port` and `tcp` needs the feature with the name of the crate that it
//! tests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[cfg(feature = "onion")]
pub mod authority;
#[cfg(feature = "comps")]
pub mod comps_world;
#[cfg(feature = "links")]
pub mod every_link;
#[cfg(feature = "links")]
pub mod mock_link;
#[cfg(feature = "onion")]
mod netdoc;
#[cfg(feature = "onion")]
pub mod onion_service;
#[cfg(feature = "onion")]
pub mod onion_world;
#[cfg(feature = "links")]
pub mod quic_pair;
pub mod silent_port;
#[cfg(feature = "stego")]
pub mod stego_world;
pub mod tcp;
#[cfg(feature = "links")]
pub mod tls_peer;
#[cfg(feature = "tunnel")]
pub mod tunnel_world;
