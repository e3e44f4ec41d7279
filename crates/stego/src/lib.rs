#![doc = include_str!("../README.md")]
//!
//! # Tour
//!
//! Camouflage: one encrypted byte stream cut into blocks that go, out of order, by many connections
//! of an innocent look (`docs/spec/camouflage.md`; after StegoTorus, CCS 2012).
//!
//! The tour, from the wire up:
//!
//! * [`BridgeKey`], [`ServerKey`]: what a bridge line says, and what only the server has.
//! * `elligator`: public keys that look like random bytes. `handshake`: a new link in one round
//!   trip. `secrets`: keys from keys. `token`: what later connections join a link by.
//! * `block`: sealed units with hidden headers. `frame`: what is in them.
//! * `outbox`: what is to be sent, and what has not come yet. `inbox`: order again, windows and
//!   acknowledgements. `budget`: memory that these share. `carrier`: what one connection owes.
//! * `link`: the chopper that joins these; a scheduler of `multipath` names the connection that
//!   takes the next chunk.
//! * [`slot`]: what connections look like, one module a file; [`Profile`] names them.
//! * [`Client`] has one link and the connections that it needs; [`Server`] has the links of many.
//!
//! # Limits
//!
//! The `nosteg` modules are no covers: each shows random bytes from the first one on. What `http`
//! shows is HTTP, but no site's. All of it is told from a browser, by one connection
//! (`docs/results/covertness.md`).
//!
//! Deliberately absent: sockets, clocks, entropy, proxies, and what is carried.
//!
//! The design, with its reasons: `docs/design/camouflage.md`.

mod block;
mod budget;
mod carrier;
mod client;
mod cover;
mod elligator;
mod frame;
mod handshake;
mod inbox;
mod keys;
mod link;
mod outbox;
mod secrets;
mod server;
pub mod slot;
mod token;

pub use client::{Client, ClientConfig, ClientOutput, Ending};
pub use cover::{ConnId, Input};
pub use keys::{BridgeKey, BridgeKeyError, ServerKey};
pub use server::{LinkId, Server, ServerConfig, ServerOutput};
pub use slot::{
    Covers, Hiding, NotPicture, Object, Passed, Pictures, Profile, ProfileError, Refusal, Shape,
    ShapeFault, Shapes, Site,
};
