//! Test worlds, peers and conformance suites that several crates share. No program depends on it.
//!
//! * `silent_port` keeps ports at which nobody listens.
//! * `every_link` has the rules that every link keeps; `mock_link` is a link without keys.
//! * `tls_peer` has links without a handshake, and a peer that seals any record under their keys.
//! * `tcp` models a bulk transfer by TCP.
//! * `quic_pair` joins two QUIC endpoints by lines in memory.
//! * `authority` signs consensuses of any relays; `onion_service` writes descriptors, and what
//!   services and their clients send.
//! * `onion_world` has a client and relays, with links in memory between them; `comps_world` a
//!   splitter and its peers; `tunnel_world` a near and a far end; `stego_world` a client and a
//!   server of camouflage.
//!
//! Each module except `silent_port` and `tcp` needs the feature of its crate.

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
