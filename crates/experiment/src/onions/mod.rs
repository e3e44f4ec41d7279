//! Small onion networks on a stage: our authority, relays and clients, of ours or of C tor's, and
//! what programs fetch by them.

pub(super) mod fetch;
mod makers;
mod network;
mod node;

pub(super) use makers::{Makers, Seat};
pub(super) use network::{OnionNetwork, RelaySeat};
pub(super) use node::Node;

/// The port of a relay, of a client's programs, and of a web server.
pub(super) const ONION: u16 = 9_001;
pub(super) const SOCKS: u16 = 9_100;
pub(super) const WEB_PORT: u16 = 8_000;
/// C tor, and what gives it.
pub(super) const TOR: (&str, &str) = ("tor", "package tor");
