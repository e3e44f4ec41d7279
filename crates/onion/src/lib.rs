//! The Tor protocol as cores without I/O: what a relay and a client do with the bytes of their links, and when.
//!
//! The tour:
//!
//! * [`authority`] judges relays and signs what is said of them.
//! * [`directory`]: what relays and authorities say of relays, and how it is asked for.
//! * [`wire`] turns bytes into cells and messages, and back. It alone knows the `tor-*` crates.
//! * [`front`] is what programs ask a client for.
//! * [`handshake`] agrees on a circuit's keys, [`crypto`] uses them.
//! * [`congestion`] says how many cells may be under way, [`padding`] when a silent link has one to carry.
//!
//! Time is given, random generators are given, bytes are given; what is to be done outside comes back.

pub mod authority;
mod base;
pub mod bucket;
pub mod channel;
pub mod claims;
pub mod client;
pub mod congestion;
pub mod crypto;
pub mod directory;
mod end;
mod event;
pub mod front;
pub mod guards;
pub mod handshake;
mod hub;
mod leg;
pub mod navigator;
mod node;
pub mod padding;
mod queue;
pub mod relay;
pub mod schedule;
mod stream;
mod table;
mod tail;
pub mod wire;

pub use event::{Event, Violation};
pub use hub::LinkId;
pub use node::{Core, LinkInput, LinkOutput, StreamOutput};
pub use stream::StreamKey;
