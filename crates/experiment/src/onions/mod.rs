//! Small onion networks on a stage: our authority, relays and clients, of ours or of C tor's, and
//! what programs fetch by them.

pub(super) mod fetch;
mod makers;
mod network;
mod node;

pub(super) use makers::{Makers, ONION, Seat};
pub(super) use network::{OnionNetwork, RelaySeat};
pub(super) use node::Node;

/// C tor, and what gives it.
pub(super) const TOR: (&str, &str) = ("tor", "package tor");
