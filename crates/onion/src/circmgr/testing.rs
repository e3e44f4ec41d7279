//! A relay's testing circuit: it leads through other relays back to the relay itself.

use rand_core::Rng;

use super::hop;
use crate::client::Hop;
use crate::directory::network::{Network, Position, RelayRestrictions};

/// Maximum number of other relays in a relay's testing circuit.
const OTHERS: usize = 2;

/// Returns a path to the relay `own` through two other relays. Uses one other relay if no two
/// compatible relays are found. Returns `None` if there is no other relay. `own` need not be in
/// the consensus: a relay tests itself before it is listed.
pub fn testing_path(network: &Network, own: Hop, rng: &mut impl Rng) -> Option<Vec<Hop>> {
    let others =
        RelayRestrictions { exclude: vec![own.target.rsa], ..RelayRestrictions::default() };
    let mut path: Vec<Hop> = Vec::new();
    let mut chosen = Vec::new();
    while path.len() < OTHERS {
        let Ok(relay) = network.choose(Position::Middle, &chosen, &others, rng) else { break };
        chosen.push(relay.status.rsa_identity);
        path.push(hop(&relay, false));
    }
    if path.is_empty() {
        return None;
    }
    path.push(own);
    Some(path)
}
