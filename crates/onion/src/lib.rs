//! The Tor protocol as cores without I/O: what a relay and a client do with the bytes of their links, and when.
//!
//! The tour:
//!
//! * [`wire`] turns bytes into cells and messages, and back. It alone knows the `tor-*` crates.
//! * [`handshake`] agrees on a circuit's keys, [`crypto`] uses them.
//! * [`congestion`] says how many cells may be under way.
//!
//! Time is given, random generators are given, bytes are given; what is to be done outside comes back.

pub mod congestion;
pub mod crypto;
pub mod handshake;
pub mod wire;
