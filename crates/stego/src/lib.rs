#![doc = include_str!("../README.md")]
//!
//! # Tour
//!
//! Camouflage: one encrypted byte stream, cut into blocks that cross several connections out of
//! order and look like ordinary traffic (`docs/spec/camouflage.md`; after StegoTorus, CCS 2012).
//!
//! The parts, from the wire up:
//!
//! * [`BridgeKey`] is the public part of a bridge line. [`ServerKey`] is the server's secret.
//! * `elligator` encodes public keys as random bytes. `handshake` opens a link in one round trip.
//!   `secrets` derives keys. `token` lets later connections join a link.
//! * `block` encrypts blocks and hides their headers. `frame` encodes the content of a block.
//! * `outbox` stores data to send and data not yet acknowledged. `inbox` restores the order of
//!   received data, and has windows and acknowledgements. `budget` is the memory limit that both
//!   share. `recovery` detects the losses of one connection.
//! * `link` is the chopper of the StegoTorus paper. A scheduler of `multipath` chooses the
//!   connection of each chunk.
//! * [`slot`] has the cover modules, one per file. [`Profile`] names them.
//! * [`Client`] has one link and its connections. [`Server`] has the links of many clients.
//!
//! # Limits
//!
//! The `nosteg` modules provide no cover: all of their bytes look random, from the first byte on.
//! The `http` modules speak HTTP, but they do not look like a real site. One connection is enough
//! to distinguish any of them from a browser (`docs/results/covertness.md`).
//!
//! Deliberately absent: sockets, clocks, entropy, proxies, and any interpretation of the stream.
//!
//! The design and its reasons: `docs/design/camouflage.md`.

mod block;
mod budget;
mod client;
mod cover;
mod elligator;
mod frame;
mod handshake;
mod inbox;
mod keys;
mod link;
mod outbox;
mod recovery;
mod secrets;
mod server;
pub mod slot;
mod token;

pub use client::{Client, ClientConfig, ClientOutput, Ending};
pub use cover::{ConnId, Input};
pub use keys::{BridgeKey, BridgeKeyError, ServerKey};
pub use server::{LinkId, Server, ServerConfig, ServerOutput};
pub use slot::{
    Covers, Hiding, NotPicture, Object, Pictures, Profile, ProfileError, RecordedPacket, Refusal,
    Shape, ShapeFault, Shapes, Site,
};
