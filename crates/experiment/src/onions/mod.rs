//! Small onion networks on an emulated network, and fetches through them. The authority is ours;
//! relays and clients are ours or C tor's.

pub(super) mod fetch;
mod makers;
mod more;
mod network;
mod node;

pub(super) use makers::{HostSlot, TestPrograms};
pub(super) use more::{MoreNetwork, MoreSlot};
pub(super) use network::{OnionNetwork, RelaySlot};
pub(super) use node::{Node, own_cpu};

/// OR port of a relay.
pub(super) const ONION: u16 = 9_001;
/// Port of a client's SOCKS proxy.
pub(super) const SOCKS: u16 = 9_100;
/// Port of a web server.
pub(super) const WEB_PORT: u16 = 8_000;
/// The program C tor, and the package that contains it.
pub(super) const TOR: (&str, &str) = ("tor", "package tor");
