use anabranch_multipath::seed::{Stream, stream};

use super::*;
use crate::directory::network::Position;
use crate::directory::tests::{DUAL_EXIT, network_of, network_of_one_subnet, usual_network};
use crate::wire::message::DestroyReason;

mod selection;
mod unanswered;

const NOW: u64 = 1_800_000_000;

struct World {
    circmgr: CircuitManager,
    rng: Stream,
    now: Time,
}

impl World {
    fn new() -> World {
        let mut circmgr =
            CircuitManager::new(KeptGuards::default(), &[], RelayRestrictions::default());
        circmgr.set_network(Arc::new(usual_network()));
        World { circmgr, rng: stream(1, 0, "navigator"), now: Time::from_secs(1) }
    }

    /// Returns the next orders, without those to save state and without reports of few guards or
    /// circuits.
    fn orders(&mut self) -> Vec<Order> {
        self.circmgr.work(Moment { now: self.now, unix: NOW }, &mut self.rng);
        let mut orders = Vec::new();
        while let Some(order) = self.circmgr.poll() {
            let is_told = !matches!(order, Order::Keep | Order::FewGuards(_) | Order::FewLegs(..));
            orders.extend(is_told.then_some(order));
        }
        orders
    }

    fn begun(&mut self) -> Vec<CircuitKey> {
        let built = |order| match order {
            Order::Build(key, hops) => {
                assert_eq!(hops.len(), 3);
                Some(key)
            }
            _ => None,
        };
        self.orders().into_iter().filter_map(built).collect()
    }

    fn ask(&mut self, number: u64, who: &str) {
        self.ask_for(number, who, 443, &[]);
    }

    fn ask_for(&mut self, number: u64, who: &str, port: u16, avoid: &[[u8; 20]]) {
        let isolation = Isolation(who.as_bytes().to_vec());
        let target = Target { port, v6: false };
        let (since, avoid, failed_exits) = (self.now, avoid.to_vec(), Vec::new());
        let demand = Demand { number, target, isolation, since, avoid, failed_exits };
        self.circmgr.demand(self.now, demand);
    }

    /// Completes all circuits that are begun, until no order is left. Returns the other orders.
    fn settle(&mut self) -> Vec<Order> {
        let mut others = Vec::new();
        loop {
            let orders = self.orders();
            if orders.is_empty() {
                return others;
            }
            for order in orders {
                match order {
                    Order::Build(key, _) => {
                        self.circmgr.built(Moment { now: self.now, unix: NOW }, key, &mut self.rng);
                    }
                    other => others.push(other),
                }
            }
        }
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }
}

#[test]
fn circuits_are_built_ahead_and_one_is_replaced_when_it_is_used() {
    let mut world = World::new();
    assert_eq!(world.begun().len(), AHEAD);
    assert!(world.orders().is_empty(), "no more than these");
    let mut world = World::new();
    assert!(world.settle().is_empty());
    world.ask(1, "a");
    assert!(matches!(world.orders()[..], [Order::Attach(1, _), Order::Build(..)]));
    assert!(world.orders().is_empty());
}

#[test]
fn streams_share_a_circuit_only_with_their_own_kind() {
    let mut world = World::new();
    world.settle();
    (0..4).for_each(|number| world.ask(number, if number % 2 == 0 { "a" } else { "b" }));
    let attached: Vec<CircuitKey> = world
        .settle()
        .into_iter()
        .filter_map(|order| match order {
            Order::Attach(_, key) => Some(key),
            _ => None,
        })
        .collect();
    assert_eq!(attached.len(), 4);
    assert_eq!((attached[0], attached[1]), (attached[2], attached[3]));
    assert_ne!(attached[0], attached[1]);
}

#[test]
fn a_demand_waits_for_its_circuit_and_is_refused_in_the_end() {
    let mut world = World::new();
    world.ask(7, "a");
    assert!(world.orders().iter().all(|order| matches!(order, Order::Build(..))));
    let refused = Order::Refuse(7, Refusal::TimedOut);
    world.wait(119);
    assert!(!world.orders().contains(&refused));
    world.wait(1);
    assert!(world.orders().contains(&refused));
}

/// Returns the refusal of a demand for `port`, which no exit permits.
fn nobody_exits_to(port: u16) -> Refusal {
    Refusal::NoPath(NoRelay(Position::Exit(Target { port, v6: false })))
}

#[test]
fn a_demand_that_no_exit_takes_is_refused_at_once_and_keeps_nobody_waiting() {
    let mut world = World::new();
    world.ask_for(1, "a", 25, &[]);
    world.ask(2, "b");
    let orders = world.orders();
    assert!(orders.contains(&Order::Refuse(1, nobody_exits_to(25))), "{orders:?}");
    let builds = orders.iter().filter(|order| matches!(order, Order::Build(..))).count();
    assert_eq!(builds, 1 + AHEAD, "{orders:?}");
    assert_eq!(world.circmgr.paused_until, Time::ZERO);
}

#[test]
fn a_demand_that_no_known_exit_takes_waits_a_while_for_relays_that_are_not_known_yet() {
    let mut world = World::new();
    let mut network = Network::new(usual_network().consensus().clone());
    let known = usual_network();
    known.relays().skip(1).for_each(|relay| assert!(network.learn(relay.microdesc.clone())));
    world.circmgr.set_network(Arc::new(network));
    world.ask_for(1, "a", 25, &[]);
    let refused = Order::Refuse(1, nobody_exits_to(25));
    assert!(!world.orders().contains(&refused));
    assert!(world.circmgr.next_timeout().unwrap() <= world.now + SLUGGISH);
    world.wait(5);
    assert!(world.orders().contains(&refused));
    world.ask_for(2, "a", 25, &[]);
    world.circmgr.set_network(Arc::new(usual_network()));
    assert!(world.orders().contains(&Order::Refuse(2, nobody_exits_to(25))), "all are known");
}

#[test]
fn an_exit_that_refused_a_demand_is_not_asked_for_it_again() {
    let mut world = World::new();
    let (all, other) = ([[5; 20], DUAL_EXIT], [5; 20]);
    for number in 0..20 {
        world.ask_for(number, "a", 443, &[DUAL_EXIT]);
        for order in world.settle() {
            let Order::Attach(_, circuit) = order else { panic!("{order:?}") };
            assert_eq!(world.circmgr.path(circuit).unwrap()[2], other);
        }
    }
    world.ask_for(20, "a", 443, &all);
    world.ask(21, "b");
    let orders = world.settle();
    assert!(orders.contains(&Order::Refuse(20, nobody_exits_to(443))), "{orders:?}");
    assert!(orders.iter().any(|order| matches!(order, Order::Attach(21, _))), "{orders:?}");
}

#[test]
fn where_all_relays_are_near_each_other_demands_are_refused_with_the_reason() {
    let mut world = World::new();
    world.circmgr.set_network(Arc::new(network_of_one_subnet()));
    world.ask(1, "a");
    let none = Refusal::NoPath(NoRelay(Position::Guard));
    assert_eq!(world.orders(), [Order::Refuse(1, none)]);
    assert!(world.orders().is_empty(), "nothing is built ahead in vain");
}

#[test]
fn a_consensus_of_the_day_before_is_used_and_an_older_one_is_not() {
    let mut world = World::new();
    let until = usual_network().consensus().valid_until;
    for (late, builds) in [(86_400, AHEAD), (86_401, 0)] {
        let mut circmgr =
            CircuitManager::new(KeptGuards::default(), &[], RelayRestrictions::default());
        circmgr.set_network(Arc::new(usual_network()));
        circmgr.work(Moment { now: world.now, unix: until + late }, &mut world.rng);
        let orders = std::iter::from_fn(|| circmgr.poll());
        let begun = orders.filter(|order| matches!(order, Order::Build(..))).count();
        assert_eq!(begun, builds, "{late}");
    }
}

#[test]
fn a_circuit_that_is_too_slow_is_not_waited_for() {
    let mut world = World::new();
    let slow = world.begun();
    world.wait(60);
    let orders = world.orders();
    assert!(slow.iter().all(|key| orders.contains(&Order::Destroy(*key))), "{orders:?}");
    assert!(orders.iter().any(|order| matches!(order, Order::Build(..))), "others are tried");
}

#[test]
fn a_demand_has_another_circuit_begun_beside_one_that_is_sluggish() {
    let mut world = World::new();
    world.ask(1, "a");
    assert_eq!(world.begun().len(), 1 + AHEAD);
    assert_eq!(world.circmgr.next_timeout(), Some(world.now + SLUGGISH));
    world.wait(4);
    assert!(world.begun().is_empty(), "it still waits");
    world.wait(1);
    assert_eq!(world.begun().len(), 1);
    assert!(world.begun().is_empty(), "one is enough");
    assert_eq!(world.circmgr.next_timeout(), Some(world.now + SLUGGISH));
}

#[test]
fn a_circuit_grows_old_takes_no_more_streams_and_is_dropped_when_it_is_idle() {
    let mut world = World::new();
    world.ask(1, "a");
    let used = match world.settle()[..] {
        [Order::Attach(1, key)] => key,
        ref other => panic!("{other:?}"),
    };
    world.circmgr.answered(1);
    world.wait(601);
    world.ask(2, "a");
    let orders = world.settle();
    assert!(matches!(orders[..], [Order::Attach(2, key)] if key != used), "{orders:?}");
    world.circmgr.stream_ended(used);
    assert!(world.orders().contains(&Order::Destroy(used)));
}

#[test]
fn a_guard_that_cannot_be_reached_is_left_for_another_after_a_pause() {
    let mut world = World::new();
    let first = world.begun();
    let guard = world.circmgr.path(first[0]).unwrap()[0];
    let now = world.now;
    first.iter().for_each(|key| world.circmgr.closed(Moment { now, unix: NOW }, *key, Cause::Link));
    assert!(world.begun().is_empty(), "it pauses");
    assert!(world.circmgr.next_timeout().unwrap() <= now + Duration::from_millis(200));
    world.wait(1);
    let next = world.begun();
    assert_ne!(world.circmgr.path(next[0]).unwrap()[0], guard);
    assert_eq!(world.circmgr.guards().default.len(), 2);
}

#[test]
fn a_stream_may_go_to_ipv6_where_the_exit_lets_it_out() {
    let mut world = World::new();
    let mut seen = Vec::new();
    for number in 0..20 {
        world.ask(number, &number.to_string());
        for order in world.settle() {
            let Order::Attach(_, circuit) = order else { continue };
            let exit = world.circmgr.path(circuit).unwrap()[2];
            let flags = [443, 25].map(|port| world.circmgr.begin_flags(circuit, port));
            seen.push((exit == DUAL_EXIT, flags));
        }
    }
    assert!(seen.contains(&(true, [5, 0])) && seen.contains(&(false, [0, 0])), "{seen:?}");
    assert!(seen.iter().all(|(dual, flags)| *flags == if *dual { [5, 0] } else { [0, 0] }));
    assert_eq!(world.circmgr.begin_flags(CircuitKey(999), 443), 0);
}

#[test]
fn what_there_is_to_see_follows_a_circuit_from_its_first_hop_to_its_last_stream() {
    let mut world = World::new();
    let begun = world.begun();
    world.circmgr.extended(world.now, begun[0], 2);
    let seen: Vec<Overview> = world.circmgr.overview().collect();
    assert_eq!(
        (seen[0].key, seen[0].stage, seen[0].begun),
        (begun[0], Stage::Building(2), world.now)
    );
    assert_eq!(Some(seen[1].path), world.circmgr.path(begun[1]));
    for key in begun {
        world.circmgr.built(Moment { now: world.now, unix: NOW }, key, &mut world.rng);
    }
    world.ask(1, "a");
    world.orders();
    let stages: Vec<(Stage, usize)> =
        world.circmgr.overview().map(|seen| (seen.stage, seen.streams)).collect();
    assert_eq!(stages, [(Stage::Used, 1), (Stage::Spare, 0), (Stage::Building(0), 0)]);
    let guards = world.circmgr.entries();
    assert!(guards.iter().any(|(_, reach)| *reach == GuardReachability::Yes), "{guards:?}");
}

#[test]
fn other_wishes_leave_streams_where_they_are_and_hold_for_all_that_comes() {
    let mut world = World::new();
    world.ask(1, "a");
    let used = match world.settle()[..] {
        [Order::Attach(1, key)] => key,
        ref other => panic!("{other:?}"),
    };
    let exit = world.circmgr.path(used).unwrap()[2];
    let exclude = vec![exit];
    world.circmgr.set_restrictions(RelayRestrictions { exclude, ..RelayRestrictions::default() });
    assert!(world.circmgr.path(used).is_some(), "its stream goes on");
    world.ask(2, "a");
    let orders = world.settle();
    assert!(matches!(orders.last(), Some(Order::Attach(2, key)) if *key != used), "{orders:?}");
    let others = world.circmgr.overview().filter(|seen| seen.key != used);
    let others: Vec<Overview> = others.collect();
    assert!(!others.is_empty() && others.iter().all(|seen| !seen.path.contains(&exit)));
    world.circmgr.stream_ended(used);
    assert!(world.orders().contains(&Order::Destroy(used)), "it is of no more use");
}

#[test]
fn what_was_learnt_is_kept() {
    let mut world = World::new();
    world.settle();
    let guards = world.circmgr.guards();
    let times: Vec<u32> = world.circmgr.build_times().collect();
    assert_eq!((guards.default.len(), times.len()), (2, AHEAD));
    assert_eq!(guards.default.iter().filter(|one| one.confirmed.is_some()).count(), 1);
    let mut again = CircuitManager::new(guards.clone(), &times, RelayRestrictions::default());
    again.set_network(Arc::new(usual_network()));
    again.work(Moment { now: world.now, unix: NOW }, &mut stream(99, 0, "navigator"));
    assert_eq!(again.guards(), guards);
}

/// Returns a client whose sets have `legs` circuits each, in a network of many subnets.
fn world_of_legs(legs: usize) -> World {
    let subnets: Vec<String> = (1..20).map(|n| format!("{n}.1")).collect();
    let sketch = |(place, net): (usize, &'static str)| match place % 3 {
        0 => ("Fast Guard Running Stable V2Dir Valid", 100, net, ""),
        1 => ("Fast Running Stable V2Dir Valid", 100, net, ""),
        _ => ("Exit Fast Running Stable V2Dir Valid", 100, net, "p accept 80,443\n"),
    };
    let subnets = subnets.into_iter().map(|net| &*net.leak());
    let sketches: Vec<_> = subnets.enumerate().map(sketch).collect();
    let mut world = World::new();
    world.circmgr.set_legs(Some(legs));
    world.circmgr.set_network(Arc::new(network_of(&sketches)));
    world
}

impl World {
    fn built(&mut self, key: CircuitKey) {
        self.circmgr.built(Moment { now: self.now, unix: NOW }, key, &mut self.rng);
    }

    fn linked(&mut self, orders: &[Order]) {
        for order in orders {
            if let Order::Link(key, _) = order {
                self.circmgr.linked(self.at(), *key, &mut self.rng);
            }
        }
    }

    fn at(&self) -> Moment {
        Moment { now: self.now, unix: NOW }
    }

    fn gone(&mut self, key: CircuitKey, cause: Cause) {
        self.circmgr.closed(Moment { now: self.now, unix: NOW }, key, cause);
    }

    /// Returns the circuits of a set, its head (the circuit that represents the set) first.
    fn legs(&self, head: CircuitKey) -> Vec<CircuitKey> {
        let of = self.circmgr.overview().filter(|seen| seen.set == Some(head));
        of.map(|seen| seen.key).collect()
    }

    /// Attaches a demand, and reports that the exit answered it. Returns the demand's circuit,
    /// once the circuits of its set are linked.
    fn used(&mut self) -> CircuitKey {
        let circuit = self.demanded();
        self.circmgr.answered(1);
        circuit
    }

    /// Attaches a demand that the exit does not answer. Returns the demand's circuit, once the
    /// circuits of its set are linked.
    fn demanded(&mut self) -> CircuitKey {
        let orders = self.settle();
        self.linked(&orders);
        self.ask(1, "a");
        let orders = self.settle();
        self.linked(&orders);
        let attached = orders.iter().find_map(|order| match order {
            Order::Attach(1, key) => Some(*key),
            _ => None,
        });
        attached.unwrap()
    }
}

#[test]
fn a_circuit_is_linked_when_it_is_built_and_gets_its_legs_when_it_is_used() {
    let mut world = world_of_legs(3);
    let orders = world.settle();
    let links = |orders: &[Order]| {
        orders.iter().filter(|order| matches!(order, Order::Link(_, None))).count()
    };
    assert_eq!(links(&orders), AHEAD);
    assert_eq!(world.circmgr.overview().count(), AHEAD, "an idle client builds no further legs");
    world.linked(&orders);
    let head = world.used();
    assert_eq!(world.legs(head).len(), 3);
    let others =
        world.circmgr.overview().filter(|seen| seen.key != head && seen.set == Some(seen.key));
    assert_eq!(others.count(), AHEAD, "what is kept ready has legs, too, once somebody came");
}

#[test]
fn eight_legs_find_their_relays_where_every_relay_may_be_a_guard() {
    let subnets = (1..=19).map(|n| &*format!("{n}.1").leak());
    let sketch = |net: &'static str| match net {
        "19.1" => ("Exit Fast Running Stable V2Dir Valid", 100, net, "p accept 80,443\n"),
        net => ("Fast Guard Running Stable V2Dir Valid", 100, net, ""),
    };
    let network = Arc::new(network_of(&subnets.map(sketch).collect::<Vec<_>>()));
    for seed in 0..40 {
        let mut world = World::new();
        world.rng = stream(seed, 0, "circmgr");
        world.circmgr.set_legs(Some(8));
        world.circmgr.set_network(Arc::clone(&network));
        let head = world.used();
        assert_eq!(world.legs(head).len(), 8, "seed {seed}");
    }
}

#[test]
fn legs_share_their_exit_and_nothing_else_and_use_few_guards() {
    let mut guards = std::collections::BTreeSet::new();
    for legs in [2, 3] {
        for seed in 0..40 {
            let mut world = world_of_legs(legs);
            world.rng = stream(seed, 0, "circmgr");
            let head = world.used();
            let paths: Vec<Path> =
                world.legs(head).iter().map(|key| world.circmgr.path(*key).unwrap()).collect();
            assert_eq!(paths.len(), legs);
            let relays: std::collections::BTreeSet<[u8; 20]> =
                paths.iter().flat_map(|[guard, middle, _]| [*guard, *middle]).collect();
            assert_eq!(relays.len(), 2 * legs, "no relay twice, in whatever position");
            assert!(paths.iter().all(|path| path[2] == paths[0][2] && !relays.contains(&path[2])));
            let entries: Vec<[u8; 20]> = world.circmgr.entries().iter().map(|one| one.0).collect();
            assert!(paths.iter().all(|path| entries[..legs].contains(&path[0])));
            guards.extend(paths.iter().map(|path| path[0]));
        }
    }
    assert!(guards.len() > 3, "the samples differ");
}

#[test]
fn a_leg_that_fails_is_begun_again_a_second_later_and_not_for_ever() {
    let mut world = world_of_legs(2);
    let orders = world.settle();
    world.linked(&orders);
    world.ask(1, "a");
    let mut begun = 0;
    for second in 0..200 {
        let before = begun;
        // Other circuits are built meanwhile.
        for _ in 0..5 {
            for order in world.orders() {
                match order {
                    Order::Build(key, _) if world.circmgr.circuits[&key].leg.head.is_some() => {
                        begun += 1;
                        // Its guard is not to blame.
                        world.circmgr.extended(world.now, key, 1);
                        world.gone(key, Cause::Destroyed(DestroyReason::CONNECT_FAILED));
                    }
                    Order::Build(key, _) => world.built(key),
                    Order::Attach(number, _) => world.circmgr.answered(number),
                    _ => {}
                }
            }
        }
        assert!(begun - before <= 3, "second {second}: at most one a set");
        world.now += Duration::from_secs(1);
    }
    // The set that is used, and two that are ready.
    assert_eq!(begun, 3 * (1 + world.circmgr.conflux.retries));
}

#[test]
fn where_no_relays_are_left_there_are_fewer_legs_and_the_user_is_told_once() {
    let mut world = World::new();
    world.circmgr.set_legs(Some(4));
    world.circmgr.set_network(Arc::new(usual_network()));
    world.ask(1, "a");
    let mut count = 0;
    for _ in 0..20 {
        world.circmgr.work(Moment { now: world.now, unix: NOW }, &mut world.rng);
        while let Some(order) = world.circmgr.poll() {
            match order {
                Order::Build(key, _) => world.built(key),
                Order::FewLegs(found, wanted) => {
                    assert!(found < wanted && wanted == 4);
                    count += 1;
                }
                _ => {}
            }
        }
        world.now += Duration::from_secs(1);
    }
    assert_eq!(count, 1);
}

#[test]
fn a_set_that_goes_on_without_its_first_circuit_keeps_its_streams() {
    let mut world = world_of_legs(2);
    let head = world.used();
    let successor = world.legs(head)[1];
    world.gone(head, Cause::Link);
    assert_eq!(world.legs(successor).len(), 1);
    let seen = world.circmgr.overview().find(|seen| seen.key == successor).unwrap();
    assert_eq!((seen.streams, seen.stage), (1, Stage::Ending));
    assert!(world.circmgr.path(head).is_some(), "its streams ask by the old name");
    world.ask(2, "a");
    let orders = world.settle();
    let attached = |order: &Order| matches!(order, Order::Attach(2, key) if *key != successor);
    assert!(orders.iter().any(attached), "the exit may not have noticed what is gone");
    world.circmgr.stream_ended(head);
    let orders = world.orders();
    assert!(orders.contains(&Order::Destroy(successor)), "with its last stream it is over");
    assert!(world.circmgr.successors.is_empty());
}

#[test]
fn a_set_that_lost_a_further_leg_takes_no_new_streams() {
    let mut world = world_of_legs(2);
    let head = world.used();
    let leg = world.legs(head)[1];
    world.gone(leg, Cause::Link);
    world.ask(2, "a");
    let orders = world.settle();
    let attached = |order: &Order| matches!(order, Order::Attach(2, key) if *key != head);
    assert!(orders.iter().any(attached), "{orders:?}");
}

#[test]
fn an_exit_that_does_not_answer_is_not_asked_to_link_again() {
    let mut world = world_of_legs(2);
    let orders = world.settle();
    let Some(Order::Link(key, None)) = orders.first() else { panic!("{orders:?}") };
    let exit = world.circmgr.path(*key).unwrap()[2];
    world.gone(*key, Cause::Unlinked);
    for number in 0..30 {
        world.ask(number, &number.to_string());
    }
    for order in world.settle() {
        if let Order::Link(key, _) = order {
            assert_ne!(world.circmgr.path(key).unwrap()[2], exit);
        }
    }
}

/// Returns a client in the same network, whose sets have the design `design` and `legs` circuits
/// each.
fn world_of(design: &str, legs: usize) -> World {
    let mut world = world_of_legs(legs);
    let network = world.circmgr.network.clone().unwrap();
    world.circmgr.set_design(design.parse().unwrap());
    world.circmgr.set_network(network);
    world
}

#[test]
fn sets_of_an_older_design_end_at_exits_that_link_them_and_are_asked_for_its_windows() {
    for (design, controlled) in [("conflux-2013", false), ("mtor", false), ("mtor-vegas", true)] {
        let mut world = world_of(design, 3);
        world.ask(1, "a");
        let mut legs = 0;
        for order in (0..20).flat_map(|_| world.orders()).collect::<Vec<_>>() {
            let Order::Build(key, hops) = order else { continue };
            let exit = world.circmgr.path(key).unwrap()[2];
            assert!([12, 15, 18].contains(&exit[0]), "relay {} lists nothing of ours", exit[0]);
            let HopKey::NtorV3 { wish, .. } = hops[2].key else { panic!("ntor-v3 is spoken") };
            assert_eq!(wish == HopRequest::CongestionControl, controlled, "{design}: {wish:?}");
            legs += 1;
        }
        assert!(legs > 0);
    }
    let mut world = world_of("mtor", 3);
    let head = world.used();
    assert_eq!(world.legs(head).len(), 3);
    let paths: Vec<Path> =
        world.legs(head).iter().map(|key| world.circmgr.path(*key).unwrap()).collect();
    assert!(paths.iter().all(|path| path[2] == paths[0][2]));
}

fn hops_of(order: &Order) -> Option<&Vec<Hop>> {
    match order {
        Order::Build(_, hops) => Some(hops),
        _ => None,
    }
}

/// A network without congestion control gets plain, single circuits. Counter Galois Onion and sets
/// of circuits need congestion control, and a relay would refuse a circuit that requests them
/// without it.
#[test]
fn without_congestion_control_in_the_network_circuits_are_plain_and_single() {
    for (design, legs) in [("conflux", 1), ("mtor", 3)] {
        let mut world = world_of(design, 3);
        world.circmgr.congestion_control = false;
        assert_eq!(world.circmgr.legs(), legs, "{design}");
        world.ask(1, "a");
        let orders: Vec<Order> = (0..20).flat_map(|_| world.orders()).collect();
        let hops: Vec<_> = orders.iter().filter_map(hops_of).collect();
        assert!(!hops.is_empty());
        for hop in hops.into_iter().flatten() {
            assert!(matches!(hop.key, HopKey::NtorV3 { wish: HopRequest::Plain, .. }), "{design}");
        }
    }
}

/// Returns a client whose sets have `legs` circuits that join at a middle relay.
fn merged_world(legs: usize) -> World {
    let mut world = world_of("merged", legs);
    world.now += Duration::from_secs(1);
    world
}

impl World {
    /// Carries out the orders for sets whose circuits join at middle relays, until no order is
    /// left. Returns the circuits that were built with their numbers of hops, then the circuits
    /// that began a set, then the circuits that joined one.
    fn merged(&mut self) -> (Vec<(CircuitKey, usize)>, Vec<CircuitKey>, Vec<CircuitKey>) {
        let (mut built, mut heads, mut joined) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let orders = self.orders();
            if orders.is_empty() {
                return (built, heads, joined);
            }
            for order in orders {
                match order {
                    Order::Build(key, hops) => {
                        self.built(key);
                        built.push((key, hops.len()));
                    }
                    Order::Merge(key, beyond) => {
                        assert_eq!(beyond.len(), 1);
                        self.circmgr.linked(self.at(), key, &mut self.rng);
                        heads.push(key);
                    }
                    Order::Link(key, Some(_)) => {
                        self.circmgr.linked(self.at(), key, &mut self.rng);
                        joined.push(key);
                    }
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn merged_legs_have_two_hops_and_share_the_middle_and_the_exit() {
    let mut world = merged_world(2);
    world.ask(1, "a");
    let (built, heads, joined) = world.merged();
    assert!(built.iter().all(|(_, hops)| *hops == 2), "{built:?}");
    assert!(!heads.is_empty() && joined.len() == heads.len(), "{heads:?} {joined:?}");
    for head in heads {
        let legs = world.legs(head);
        assert_eq!(legs.len(), 2);
        let paths: Vec<Path> = legs.iter().map(|leg| world.circmgr.path(*leg).unwrap()).collect();
        assert_eq!(paths[0][1..], paths[1][1..]);
        assert_ne!(paths[0][0], paths[1][0]);
        assert!(paths[0][1][0] >= 10, "it says that legs can join there");
    }
}

#[test]
fn a_merged_set_takes_streams_once_it_leads_to_the_exit() {
    let mut world = merged_world(2);
    world.ask(1, "a");
    let orders = world.orders();
    let Some(Order::Build(key, _)) = orders.first() else { panic!("{orders:?}") };
    world.built(*key);
    let orders = world.orders();
    assert!(orders.iter().any(|order| matches!(order, Order::Merge(of, _) if of == key)));
    assert!(!orders.iter().any(|order| matches!(order, Order::Attach(..))), "{orders:?}");
    world.circmgr.linked(world.at(), *key, &mut world.rng);
    assert!(world.orders().contains(&Order::Attach(1, *key)));
    // A circuit that cannot begin a set is dropped.
    let mut world = merged_world(2);
    let orders = world.orders();
    let Some(Order::Build(key, _)) = orders.first() else { panic!("{orders:?}") };
    world.built(*key);
    world.circmgr.not_linked(*key);
    assert!(world.orders().contains(&Order::Destroy(*key)));
}

#[test]
fn a_merged_leg_that_dies_is_replaced_by_another_to_the_same_middle() {
    let mut world = merged_world(2);
    world.ask(1, "a");
    world.merged();
    let head = world.circmgr.overview().find(|seen| seen.streams == 1).unwrap().key;
    let path = world.circmgr.path(head).unwrap();
    world.gone(head, Cause::Link);
    let (built, heads, joined) = world.merged();
    let of_it: Vec<CircuitKey> = joined
        .into_iter()
        .filter(|key| world.circmgr.path(*key).is_some_and(|other| other[1..] == path[1..]))
        .collect();
    assert_eq!(of_it.len(), 1, "{built:?} {heads:?}");
    assert_eq!(world.circmgr.overview().filter(|seen| seen.streams == 1).count(), 1);
}

#[test]
fn where_legs_can_join_nowhere_or_at_few_relays_the_user_hears_it_once() {
    let mut world = World::new();
    world.circmgr.set_legs(Some(2));
    world.circmgr.set_design(Design::Merged);
    world.circmgr.set_network(Arc::new(usual_network()));
    world.ask(1, "a");
    let orders = world.orders();
    assert!(orders.contains(&Order::NoAbleRelay(Design::Merged)), "{orders:?}");
    let none = NoRelay(Position::Middle);
    assert!(orders.contains(&Order::Refuse(1, Refusal::NoPath(none))), "{orders:?}");
    let mut world = merged_world(2);
    let few = |order: &&Order| matches!(order, Order::FewJoining(3));
    assert_eq!(world.orders().iter().filter(few).count(), 0, "ten are enough");
    let exclude = (13..=19).map(|id| [id; 20]).collect();
    world.circmgr.set_restrictions(RelayRestrictions { exclude, ..RelayRestrictions::default() });
    assert_eq!(world.orders().iter().filter(few).count(), 1);
    world.circmgr.set_network(world.circmgr.network.clone().unwrap());
    assert_eq!(world.orders().iter().filter(few).count(), 0, "once");
}

#[test]
fn where_no_exit_links_sets_of_the_design_the_user_hears_at_once_and_programs_are_refused() {
    let mut world = World::new();
    world.circmgr.set_legs(Some(2));
    world.circmgr.set_design("conflux-2013".parse().unwrap());
    world.circmgr.set_network(Arc::new(usual_network()));
    world.ask(1, "a");
    let is_reported = |order: &&Order| matches!(order, Order::NoAbleRelay(_));
    let orders = world.orders();
    assert_eq!(orders.iter().filter(is_reported).count(), 1);
    let none = NoRelay(Position::Exit(Target { port: 443, v6: false }));
    assert!(orders.contains(&Order::Refuse(1, Refusal::NoPath(none))), "{orders:?}");
    assert!(!orders.iter().any(|order| matches!(order, Order::Build(..))));
    world.circmgr.set_network(Arc::new(usual_network()));
    assert_eq!(world.orders().iter().filter(is_reported).count(), 0, "once");
    // One circuit alone needs nobody's consent.
    world.circmgr.set_legs(Some(1));
    world.ask(2, "a");
    assert!(world.orders().iter().any(|order| matches!(order, Order::Build(..))));
    world.circmgr.set_legs(None);
    assert_eq!(world.orders().iter().filter(is_reported).count(), 1, "two legs, if nobody says");
}

/// Circuits that were built, and circuits that were linked. Each linked circuit comes with the set
/// that it joined.
type BuiltAndLinked = (Vec<CircuitKey>, Vec<(CircuitKey, Option<CircuitKey>)>);

impl World {
    /// Carries out the orders to build and to link circuits, until no order is left.
    fn built_and_linked(&mut self) -> BuiltAndLinked {
        let (mut built, mut linked) = (Vec::new(), Vec::new());
        loop {
            let orders = self.orders();
            if orders.is_empty() {
                return (built, linked);
            }
            self.linked(&orders);
            for order in orders {
                match order {
                    Order::Build(key, _) => {
                        self.built(key);
                        built.push(key);
                    }
                    Order::Link(key, with) => linked.push((key, with)),
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn a_leg_that_dies_is_replaced_at_once_where_sets_outlive_their_legs() {
    let mut world = world_of("anabranch", 2);
    let head = world.used();
    let exit = world.circmgr.path(head).unwrap()[2];
    // The further leg, then the head, then again, more often than a set may fail.
    let (name, mut now_head) = (head, head);
    for turn in 0..20 {
        let legs = world.legs(now_head);
        assert_eq!(legs.len(), 2, "turn {turn}");
        let gone = legs[turn % 2];
        world.gone(gone, Cause::Silent);
        if gone == now_head {
            now_head = legs[1 - turn % 2];
        }
        let (built, linked) = world.built_and_linked();
        assert_eq!(built.len(), 1, "turn {turn}");
        assert_eq!(linked, [(built[0], Some(name))], "the core knows it by its first circuit");
        assert_eq!(world.circmgr.path(built[0]).unwrap()[2], exit);
        let seen = world.circmgr.overview().find(|seen| seen.key == now_head).unwrap();
        assert_eq!((seen.streams, seen.stage), (1, Stage::Used), "it takes new streams");
    }
    world.circmgr.stream_ended(name);
    let seen = world.circmgr.overview().find(|seen| seen.key == now_head).unwrap();
    assert_eq!(seen.streams, 0);
}

#[test]
fn a_set_that_has_lost_all_circuits_goes_on_by_the_first_that_is_built() {
    let mut world = world_of("anabranch", 2);
    let head = world.used();
    let exit = world.circmgr.path(head).unwrap()[2];
    for leg in world.legs(head) {
        world.gone(leg, Cause::Link);
    }
    // The first attempt hangs; another is begun a second later, through another guard.
    let first = world.begun();
    assert!(world.circmgr.next_timeout().is_some_and(|due| due <= world.now + AGAIN_AT));
    world.wait(1);
    let second = world.begun();
    assert_eq!((first.len(), second.len()), (1, 1));
    let paths = [first[0], second[0]].map(|key| world.circmgr.path(key).unwrap());
    assert!(paths[0][0] != paths[1][0] && paths.iter().all(|path| path[2] == exit));
    world.built(second[0]);
    let (_, linked) = world.built_and_linked();
    assert_eq!(linked[0], (second[0], Some(head)));
    let seen = world.circmgr.overview().find(|seen| seen.key == second[0]).unwrap();
    assert_eq!((seen.streams, seen.stage), (1, Stage::Used));
    // The one that hung joins as the second leg.
    world.built(first[0]);
    let (_, linked) = world.built_and_linked();
    assert!(linked.contains(&(first[0], Some(head))), "{linked:?}");
    world.circmgr.stream_ended(head);
    let seen = world.circmgr.overview().find(|seen| seen.key == second[0]).unwrap();
    assert_eq!(seen.streams, 0, "its streams ask by the old name");
}

/// Delay between the loss of all circuits of a set and the beginning of another circuit for it.
const AGAIN_AT: Duration = Duration::from_secs(1);

#[test]
fn a_set_without_circuits_is_given_up_after_ten_seconds_and_one_that_nobody_used_at_once() {
    let mut world = world_of("anabranch", 3);
    let head = world.used();
    for leg in world.legs(head) {
        world.gone(leg, Cause::Link);
    }
    let mut attempts = 0;
    for _ in 0..10 {
        attempts += world.begun().len();
        world.wait(1);
    }
    assert_eq!(attempts, 3, "no more hang at a time");
    let orders = world.orders();
    let destroyed = orders.iter().filter(|order| matches!(order, Order::Destroy(_))).count();
    assert_eq!(destroyed, 3, "{orders:?}");
    let mut world = world_of("anabranch", 2);
    let (built, linked) = world.built_and_linked();
    assert_eq!((built.len(), linked.len()), (AHEAD, AHEAD));
    built.into_iter().for_each(|head| world.gone(head, Cause::Link));
    let (_, linked) = world.built_and_linked();
    assert!(linked.iter().all(|(_, with)| with.is_none()), "nobody used them: {linked:?}");
}

#[test]
fn a_circuit_for_a_set_that_the_core_has_ended_is_of_no_use() {
    let mut world = world_of("anabranch", 2);
    let head = world.used();
    world.legs(head).into_iter().for_each(|leg| world.gone(leg, Cause::Link));
    let (built, linked) = world.built_and_linked();
    assert_eq!(linked[0], (built[0], Some(head)));
    world.circmgr.not_linked(built[0]);
    assert!(world.orders().contains(&Order::Destroy(built[0])));
    assert_eq!(world.circmgr.path(built[0]), None);
}

#[test]
fn a_leg_is_begun_beside_silent_ones() {
    let mut world = world_of("anabranch", 2);
    let head = world.used();
    let legs = world.legs(head);
    legs.iter().for_each(|leg| world.circmgr.silent(*leg));
    let (built, linked) = world.built_and_linked();
    assert!(!built.is_empty() && linked.iter().all(|(_, with)| *with == Some(head)));
    // The core closes the silent legs when the new one is linked.
    legs.iter().for_each(|leg| world.gone(*leg, Cause::Silent));
    let seen = world.circmgr.overview().find(|seen| seen.streams == 1).unwrap();
    assert_eq!(seen.key, built[0]);
}

/// Returns a client whose circuits are lossy, in a network whose relays `granting` grant such
/// circuits.
fn lossy_world(granting: std::ops::Range<usize>, legs: Option<usize>) -> World {
    let sketch = |place: usize| {
        let first = if granting.contains(&place) { 20 } else { 1 };
        let net: &'static str = format!("{}.1", first + place).leak();
        match place % 3 {
            0 => ("Fast Guard Running Stable V2Dir Valid", 100, net, ""),
            1 => ("Fast Running Stable V2Dir Valid", 100, net, ""),
            _ => ("Exit Fast Running Stable V2Dir Valid", 100, net, "p accept 80,443\n"),
        }
    };
    let sketches: Vec<_> = (0..9).map(sketch).collect();
    let mut world = World::new();
    world.circmgr.set_legs(legs);
    world.circmgr.set_lossy(true);
    world.circmgr.set_network(Arc::new(network_of(&sketches)));
    world
}

#[test]
fn lossy_circuits_are_alone_and_use_relays_that_grant_them() {
    let mut world = lossy_world(3..9, None);
    world.ask(1, "a");
    let orders = world.orders();
    let mut built = 0;
    for order in &orders {
        let Order::Build(key, hops) = order else { continue };
        assert!(hops.iter().all(|hop| hop.key.wants_lossy()), "{hops:?}");
        let path = world.circmgr.path(*key).unwrap();
        assert!(path.iter().all(|id| id[0] > 3), "{path:?}");
        world.built(*key);
        built += 1;
    }
    assert!(built > 0 && !orders.contains(&Order::NoLossyRelay), "{orders:?}");
    let orders = world.settle();
    assert!(orders.iter().any(|order| matches!(order, Order::Attach(1, _))), "{orders:?}");
    assert!(!orders.iter().any(|order| matches!(order, Order::Link(..))), "{orders:?}");
}

#[test]
fn where_a_position_has_no_relay_with_lossy_circuits_the_user_hears_it_once() {
    for granting in [0..0, 0..1, 0..2, 1..3] {
        let mut world = lossy_world(granting.clone(), None);
        world.ask(1, "a");
        let orders = world.orders();
        let is_reported = |order: &&Order| matches!(order, Order::NoLossyRelay);
        assert_eq!(orders.iter().filter(is_reported).count(), 1, "{granting:?}");
        assert!(!orders.iter().any(|order| matches!(order, Order::Build(..))), "{granting:?}");
        let refused = |order: &&Order| matches!(order, Order::Refuse(1, Refusal::NoPath(_)));
        assert_eq!(orders.iter().filter(refused).count(), 1, "{granting:?}");
        world.circmgr.set_network(world.circmgr.network.clone().unwrap());
        assert_eq!(world.orders().iter().filter(is_reported).count(), 0, "once");
    }
}

#[test]
fn several_lossy_circuits_end_at_one_exit_and_are_linked() {
    let mut world = lossy_world(0..9, Some(2));
    let head = world.used();
    let legs = world.legs(head);
    assert_eq!(legs.len(), 2);
    let paths: Vec<Path> = legs.iter().map(|key| world.circmgr.path(*key).unwrap()).collect();
    assert_eq!(paths[0][2], paths[1][2]);
    assert!(paths[0][0] != paths[1][0] && paths[0][1] != paths[1][1], "{paths:?}");
}
