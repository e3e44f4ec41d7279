//! What the tests of several crates share. No program depends on it.
//!
//! * [`silent_port`] keeps ports at which nobody listens.
//! * [`every_link`] has the rules that every link keeps.
//! * [`quic_pair`] joins two QUIC endpoints by lines in memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

pub mod every_link;
pub mod quic_pair;
pub mod silent_port;
