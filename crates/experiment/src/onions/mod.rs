//! Small onion networks on a stage: our authority, relays and clients of ours or of C tor, and
//! fetches through them.

pub(super) mod fetch;
mod makers;
mod network;
mod node;

pub(super) use makers::{Makers, Seat};
pub(super) use network::{OnionNetwork, RelaySeat};
pub(super) use node::Node;

/// Port of a relay; below it, the port of a client's SOCKS proxy and the port of a web server.
pub(super) const ONION: u16 = 9_001;
pub(super) const SOCKS: u16 = 9_100;
pub(super) const WEB_PORT: u16 = 8_000;
/// Program C tor, and its source.
pub(super) const TOR: (&str, &str) = ("tor", "package tor");
