//! Bridges as first hops. The client's sample of guards contains all bridges that the user names,
//! in the user's order (guard-spec, "Bridges"). A bridge can be used once its descriptor is known.

use std::sync::Arc;

use rand_core::Rng;

use super::{CircuitManager, Order};
use crate::directory::network::{Network, Position, RelayRestrictions};
use crate::guards::Listing;
use crate::wire::netdoc::Bridge;

/// A client's bridges, in the user's order.
#[derive(Debug)]
pub(super) struct Bridges(Vec<NamedBridge>);

#[derive(Debug)]
struct NamedBridge {
    /// The bridge's identity, from the bridge line or from the bridge's descriptor; `None` before
    /// either is known.
    id: Option<[u8; 20]>,
    known: Option<Arc<Bridge>>,
}

impl Bridges {
    fn new(ids: Vec<Option<[u8; 20]>>) -> Bridges {
        Bridges(ids.into_iter().map(|id| NamedBridge { id, known: None }).collect())
    }

    /// Returns the number of bridges, whether or not their descriptors are known.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    fn learn(&mut self, place: usize, bridge: Bridge) {
        if let Some(entry) = self.0.get_mut(place) {
            entry.id = Some(bridge.status.rsa_identity);
            entry.known = Some(Arc::new(bridge));
        }
    }

    fn known(&self) -> impl Iterator<Item = &Arc<Bridge>> {
        self.0.iter().filter_map(|entry| entry.known.as_ref())
    }

    /// Returns the descriptor of the bridge with the RSA identity `id`, if it is known.
    pub(super) fn get(&self, id: &[u8; 20]) -> Option<&Bridge> {
        self.known().find(|bridge| bridge.status.rsa_identity == *id).map(|bridge| &**bridge)
    }
}

/// A list of possible guards that contains a client's bridges, with the user's restrictions.
pub(super) struct Nameable<'a> {
    pub(super) bridges: &'a Bridges,
    pub(super) restrictions: &'a RelayRestrictions,
}

impl Listing<[u8; 20]> for Nameable<'_> {
    fn count(&self) -> usize {
        self.bridges.count()
    }

    fn lists(&self, id: [u8; 20]) -> bool {
        self.bridges.0.iter().any(|entry| entry.id == Some(id))
    }

    fn allows(&self, id: [u8; 20]) -> bool {
        self.bridges.get(&id).is_some() && self.restrictions.allow(Position::Guard, &id)
    }

    fn draw(&self, taken: &dyn Fn([u8; 20]) -> bool, _: &mut dyn Rng) -> Option<[u8; 20]> {
        self.bridges.0.iter().filter_map(|entry| entry.id).find(|id| !taken(*id))
    }
}

impl CircuitManager {
    /// Restricts the first hop to these bridges. Each is given by its RSA identity, or by `None`
    /// if its bridge line contains no identity. Must be called before any other method.
    pub fn set_bridges(&mut self, ids: Vec<Option<[u8; 20]>>) {
        self.entry.set_bridges(Bridges::new(ids));
        self.entry.set_legs(self.legs());
    }

    /// Stores the descriptor of the bridge at index `place` of the user's list.
    pub fn learn_bridge(&mut self, place: usize, bridge: Bridge) {
        let Some(bridges) = self.entry.bridges_mut() else { return };
        bridges.learn(place, bridge);
        let base = self.network.take();
        self.network = base.map(|base| self.with_bridges(&base));
        self.hopeless.clear();
        self.entry.network_changed();
        self.retry_now();
    }

    /// Retries all bridges and begins the next circuit at once. The caller does this when the
    /// cause of earlier failures may be gone.
    pub fn retry_now(&mut self) {
        self.entry.guards().forgive();
        (self.failures, self.paused_until) = (0, anabranch_multipath::Time::ZERO);
    }

    /// Returns the nickname of a relay of the network, or of a bridge; `None` if neither has this
    /// identity.
    #[must_use]
    pub fn nickname(&self, id: &[u8; 20]) -> Option<&str> {
        let bridge = self.entry.bridges().and_then(|bridges| bridges.get(id));
        let listed = || self.network.as_ref()?.status(id);
        let status = bridge.map(|bridge| &bridge.status).or_else(listed)?;
        Some(&status.nickname)
    }

    /// Returns a copy of the network that also contains the known bridges.
    pub(super) fn with_bridges(&self, network: &Arc<Network>) -> Arc<Network> {
        match self.entry.bridges() {
            None => Arc::clone(network),
            Some(bridges) => {
                let known = bridges.known().cloned().collect();
                Arc::new(Network::clone(network).with_bridges(known))
            }
        }
    }

    /// Reports, once, that the user names fewer bridges than `wanted`, the number of circuits
    /// (legs) in a set.
    pub(super) fn report_few_bridges(&mut self, wanted: usize) {
        let Some(count) = self.entry.bridges().map(Bridges::count) else { return };
        if wanted > count && !std::mem::replace(&mut self.warned_few_bridges, true) {
            self.orders.push_back(Order::FewBridges(count, wanted));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddrV4;

    use anabranch_multipath::Time;
    use anabranch_multipath::seed::{Stream, stream};

    use super::*;
    use crate::circmgr::{KeptGuards, Moment};
    use crate::client::HopKey;
    use crate::directory::bridges::BridgeIdentity;
    use crate::directory::descriptor::Description;
    use crate::directory::tests::usual_network;
    use crate::test_keys::relay_keys;

    const NOW: u64 = 1_800_000_000;

    /// Returns a bridge whose address and identity depend on `number`.
    fn bridge(number: u8) -> Bridge {
        let keys = relay_keys(number.into(), "bridge");
        let at = SocketAddrV4::new([100 + number, 1, 1, 1].into(), 443);
        let description = Description::new(format!("bridge{number}"), at, "ours".to_owned());
        let text = description.sign(keys, NOW).unwrap();
        let identity = BridgeIdentity { addresses: vec![at.into()], rsa: None, ed25519: None };
        identity.check(&text, NOW).unwrap()
    }

    fn id(number: u8) -> [u8; 20] {
        bridge(number).status.rsa_identity
    }

    struct World {
        circmgr: CircuitManager,
        rng: Stream,
    }

    impl World {
        /// Creates a client with bridges of these numbers.
        fn new(numbers: &[u8], kept: KeptGuards) -> World {
            let mut circmgr = CircuitManager::new(kept, &[], RelayRestrictions::default());
            circmgr.set_bridges(numbers.iter().map(|&number| Some(id(number))).collect());
            circmgr.set_legs(Some(2));
            World { circmgr, rng: stream(1, 0, "bridges") }
        }

        fn orders(&mut self) -> Vec<Order> {
            self.circmgr.work(Moment { now: Time::from_secs(1), unix: NOW }, &mut self.rng);
            std::iter::from_fn(|| self.circmgr.poll()).collect()
        }

        /// Returns the first hops of the circuits that are begun.
        fn entries(&mut self) -> Vec<[u8; 20]> {
            let first = |order| match order {
                Order::Build(_, hops) => Some(hops[0].target.rsa),
                _ => None,
            };
            self.orders().into_iter().filter_map(first).collect()
        }
    }

    #[test]
    fn circuits_enter_by_the_first_bridge_once_it_is_known_and_by_nobody_else() {
        let mut world = World::new(&[1, 2], KeptGuards::default());
        world.circmgr.set_network(Arc::new(usual_network()));
        assert_eq!(world.entries(), [] as [[u8; 20]; 0]);
        world.circmgr.learn_bridge(1, bridge(2));
        assert_eq!(world.entries(), [id(2); 2]);
        let mut world = World::new(&[1, 2], KeptGuards::default());
        world.circmgr.learn_bridge(1, bridge(2));
        world.circmgr.learn_bridge(0, bridge(1));
        world.circmgr.set_network(Arc::new(usual_network()));
        assert_eq!(world.entries(), [id(1); 2]);
        assert_eq!(world.circmgr.nickname(&id(1)), Some("bridge1"));
        let kept = world.circmgr.guards();
        assert_eq!(kept.bridges.iter().map(|one| one.id).collect::<Vec<_>>(), [id(1), id(2)]);
        assert_eq!((kept.default, kept.restricted), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_bridge_is_asked_for_documents_before_there_is_any_network() {
        let mut world = World::new(&[1], KeptGuards::default());
        assert!(world.circmgr.cache(NOW, &mut world.rng).is_none(), "it is not known");
        world.circmgr.learn_bridge(0, bridge(1));
        let (key, hop) = world.circmgr.cache(NOW, &mut world.rng).unwrap();
        assert_eq!(hop.target.rsa, id(1));
        assert!(matches!(hop.key, HopKey::NtorV3 { .. }));
        world.circmgr.cache_reached(NOW, key, &mut world.rng);
        assert!(world.circmgr.guards().bridges[0].confirmed.is_some());
    }

    #[test]
    fn a_bridge_that_fails_is_left_for_the_next_and_one_that_its_user_gave_up_is_not_used() {
        let mut world = World::new(&[1, 2], KeptGuards::default());
        world.circmgr.learn_bridge(0, bridge(1));
        world.circmgr.learn_bridge(1, bridge(2));
        let (key, _) = world.circmgr.cache(NOW, &mut world.rng).unwrap();
        let failed = world.circmgr.entry.guards().primary().to_vec();
        assert_eq!(failed, [id(1), id(2)]);
        world.circmgr.cache_failed(NOW, key);
        let (_, hop) = world.circmgr.cache(NOW, &mut world.rng).unwrap();
        let kept = world.circmgr.guards();
        world.circmgr.retry_now();
        let reached = world.circmgr.entries();
        assert!(reached.iter().all(|(_, reach)| *reach == crate::guards::GuardReachability::Maybe));
        let other = if hop.target.rsa == id(1) { 2 } else { 1 };
        let mut world = World::new(&[other], kept);
        world.circmgr.learn_bridge(0, bridge(other));
        let (_, hop) = world.circmgr.cache(NOW, &mut world.rng).unwrap();
        assert_eq!(hop.target.rsa, id(other));
    }

    #[test]
    fn with_one_bridge_sets_have_one_leg_and_that_is_said_once() {
        let mut world = World::new(&[1], KeptGuards::default());
        world.circmgr.learn_bridge(0, bridge(1));
        let mut orders = Vec::new();
        for _ in 0..3 {
            world.circmgr.set_network(Arc::new(usual_network()));
            orders.extend(world.orders());
        }
        let few = orders.iter().filter(|order| matches!(order, Order::FewBridges(1, 2)));
        assert_eq!(few.count(), 1, "{orders:?}");
        assert!(!orders.iter().any(|order| matches!(order, Order::FewLegs(..))));
        assert_eq!(world.circmgr.legs(), 1);
        assert_eq!(World::new(&[1, 2], KeptGuards::default()).circmgr.legs(), 2);
    }
}
