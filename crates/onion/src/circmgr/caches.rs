//! Directory caches: guards from which the client fetches documents over one-hop circuits. The
//! caller of the [`CircuitManager`] builds and uses these circuits.

use rand_core::Rng;

use super::{CircuitManager, Order, hop};
use crate::client::{CircuitKey, Hop, HopKey};
use crate::directory::network::{Network, Relay};
use crate::wire::extend;
use crate::wire::netdoc::Bridge;

impl CircuitManager {
    /// Returns an unused identifier for a circuit that the caller builds itself.
    pub fn key(&mut self) -> CircuitKey {
        self.last_key += 1;
        CircuitKey(self.last_key)
    }

    /// Chooses a guard to ask for documents. Returns the key of the circuit to that guard, and its
    /// hop. The caller reports the outcome with [`CircuitManager::cache_reached`] or
    /// [`CircuitManager::cache_failed`], and the circuit's end with
    /// [`CircuitManager::cache_left`]. Returns `None` while no relay is known (or no bridge, if
    /// the client uses bridges).
    pub fn cache(&mut self, unix_now: u64, rng: &mut impl Rng) -> Option<(CircuitKey, Hop)> {
        let network = self.network.clone();
        let network = network.as_deref();
        self.renew(unix_now, network, rng);
        let key = self.key();
        let id = self.entry.choose_cache(unix_now, key.0, network, &self.restrictions, rng)?;
        let bridge = self.entry.bridges().and_then(|bridges| bridges.get(&id));
        let bridge = bridge.map(|Bridge { status, microdesc }| Relay { status, microdesc });
        let hop = bridge.map(|bridge| hop(&bridge, false));
        Some((key, hop.or_else(|| only_hop(network?, &id))?))
    }

    /// Records that the circuit `key` to a directory cache is built.
    pub fn cache_reached(&mut self, unix_now: u64, key: CircuitKey, rng: &mut impl Rng) {
        self.entry.guards().succeeded(unix_now, key.0, rng);
        self.orders.push_back(Order::Keep);
    }

    /// Records that the directory cache of the circuit `key` could not be reached.
    pub fn cache_failed(&mut self, unix_now: u64, key: CircuitKey) {
        self.entry.guards().failed(unix_now, key.0);
    }

    /// Records that the circuit `key` to a directory cache is closed.
    pub fn cache_left(&mut self, key: CircuitKey) {
        self.entry.guards().closed(key.0);
    }
}

/// Returns the relay `id` as the only hop of a circuit. Without the relay's microdescriptor, its
/// onion key is unknown, and the circuit is created by CREATE_FAST. Returns `None` if the
/// consensus does not list the relay.
fn only_hop(network: &Network, id: &[u8; 20]) -> Option<Hop> {
    if let Some(relay) = network.relay(id) {
        return Some(hop(&relay, false));
    }
    let status = network.status(id)?;
    let target = extend::Target {
        addresses: status.addresses.clone(),
        rsa: status.rsa_identity,
        ed25519: None,
    };
    Some(Hop { target, key: HopKey::Fast })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use anabranch_multipath::seed::stream;

    use super::*;
    use crate::circmgr::KeptGuards;
    use crate::directory::network::RelayRestrictions;
    use crate::directory::tests::usual_network;

    const NOW: u64 = 1_800_000_000;

    fn circmgr() -> CircuitManager {
        let mut circmgr =
            CircuitManager::new(KeptGuards::default(), &[], RelayRestrictions::default());
        circmgr.set_network(Arc::new(usual_network()));
        circmgr
    }

    #[test]
    fn without_a_network_nobody_is_asked() {
        let mut circmgr =
            CircuitManager::new(KeptGuards::default(), &[], RelayRestrictions::default());
        assert!(circmgr.cache(NOW, &mut stream(1, 0, "caches")).is_none());
    }

    #[test]
    fn guards_are_asked_and_one_that_cannot_be_reached_is_not_asked_again_at_once() {
        let (mut circmgr, mut rng) = (circmgr(), stream(2, 0, "caches"));
        let mut ask = |circmgr: &mut CircuitManager| {
            let (key, hop) = circmgr.cache(NOW, &mut rng).unwrap();
            assert!(matches!(hop.key, HopKey::NtorV3 { .. } | HopKey::Ntor(_)));
            (key, hop.target.rsa)
        };
        let (key, dead) = ask(&mut circmgr);
        circmgr.cache_failed(NOW, key);
        let mut others = BTreeSet::new();
        for _ in 0..20 {
            let (key, other) = ask(&mut circmgr);
            others.insert(other);
            circmgr.cache_left(key);
        }
        let kept = circmgr.guards().default;
        assert!(!others.contains(&dead) && !others.is_empty());
        assert!(others.iter().all(|id| kept.iter().any(|guard| guard.id == *id)), "guards alone");
    }

    #[test]
    fn a_cache_that_answers_is_a_guard_that_can_be_reached() {
        let (mut circmgr, mut rng) = (circmgr(), stream(3, 0, "caches"));
        let (key, hop) = circmgr.cache(NOW, &mut rng).unwrap();
        circmgr.cache_reached(NOW, key, &mut rng);
        let kept = circmgr.guards().default;
        let confirmed = kept.iter().find(|guard| guard.confirmed.is_some()).unwrap();
        assert_eq!(confirmed.id, hop.target.rsa);
    }
}
