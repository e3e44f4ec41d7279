//! Tests of streams that are attached to a circuit and get no answer from the exit.

use super::super::unanswered::SUSPICION;
use super::*;

/// Returns the circuit to which `orders` attach the demand `number`, if any.
fn attached(orders: &[Order], number: u64) -> Option<CircuitKey> {
    orders.iter().find_map(|order| match order {
        Order::Attach(of, key) if *of == number => Some(*key),
        _ => None,
    })
}

impl World {
    /// Waits for `seconds`. Returns the new circuit of the demand `number`, if the demand was
    /// moved from its old circuit.
    fn moves_after(&mut self, seconds: u64, number: u64) -> Option<CircuitKey> {
        self.wait(seconds);
        let orders = self.settle();
        self.linked(&orders);
        let detached = orders.contains(&Order::Detach(number));
        let attached = attached(&orders, number);
        assert_eq!(detached, attached.is_some());
        attached
    }

    fn exit(&self, circuit: CircuitKey) -> [u8; 20] {
        self.circmgr.path(circuit).unwrap()[2]
    }
}

#[test]
fn a_stream_without_an_answer_is_given_up_after_10_10_and_15_seconds() {
    let mut world = World::new();
    let first = world.demanded();
    let first_exit = world.exit(first);
    assert_eq!(world.circmgr.next_timeout(), Some(world.now + Duration::from_secs(10)));
    assert_eq!(world.moves_after(9, 1), None);
    let second = world.moves_after(1, 1).unwrap();
    assert_ne!(world.exit(second), first_exit, "there is another exit");
    assert_eq!(world.moves_after(9, 1), None);
    let mut before = second;
    for patience in [1, 15, 15, 15, 15, 15] {
        assert_eq!(world.moves_after(patience - 1, 1), None);
        let next = world.moves_after(1, 1);
        assert!(next.is_some_and(|next| next != before), "tried again where all exits failed");
        before = next.unwrap();
    }
    world.wait(15);
    world.settle();
    world.wait(15);
    let orders = world.settle();
    let refused = Order::Refuse(1, Refusal::Unanswered);
    assert!(orders.contains(&refused), "it is 120 s since it was asked for");
}

#[test]
fn a_silent_circuit_takes_no_new_streams_and_keeps_those_that_are_open() {
    let mut world = World::new();
    let silent = world.demanded();
    world.circmgr.answered(1);
    world.ask(2, "a");
    assert_eq!(attached(&world.settle(), 2), Some(silent));
    let other = world.moves_after(10, 2).unwrap();
    for number in 3..18 {
        world.ask(number, "a");
        assert_eq!(attached(&world.settle(), number), Some(other), "at once, by the other");
        world.circmgr.answered(number);
    }
    let old = world.circmgr.overview().find(|seen| seen.key == silent).unwrap();
    assert_eq!((old.streams, old.stage), (1, Stage::Ending), "what is open stays");
}

#[test]
fn a_stream_that_was_answered_or_has_ended_stays_where_it_is() {
    for ends in [CircuitManager::answered, CircuitManager::withdraw] {
        let mut world = World::new();
        world.demanded();
        ends(&mut world.circmgr, 1);
        world.wait(100);
        assert!(!world.settle().contains(&Order::Detach(1)));
    }
}

#[test]
fn spare_circuits_by_the_same_middle_or_exit_are_replaced_and_others_are_kept() {
    let mut kept = 0;
    for seed in 0..20 {
        let mut world = World::new();
        world.rng = stream(seed, 0, "spares");
        let silent = world.demanded();
        let suspects = world.circmgr.path(silent).unwrap()[1..].to_vec();
        let shares = |path: &Path| path[1..].iter().any(|id| suspects.contains(id));
        let spare = |seen: &Overview| seen.stage == Stage::Spare;
        let before: Vec<Overview> = world.circmgr.overview().filter(spare).collect();
        world.wait(10);
        let orders = world.orders();
        for one in before {
            let is_dropped = orders.contains(&Order::Destroy(one.key));
            assert_eq!(is_dropped, shares(&one.path));
            kept += usize::from(!is_dropped);
        }
    }
    assert!(kept > 0, "no spare was without the relays of the silent circuit");
}

#[test]
fn a_set_of_several_legs_that_does_not_answer_takes_no_new_streams_either() {
    let mut world = world_of_legs(2);
    let silent = world.demanded();
    assert_eq!(world.legs(silent).len(), 2);
    let other = world.moves_after(10, 1).unwrap();
    assert_ne!(other, silent);
    world.circmgr.answered(1);
    world.ask(2, "a");
    assert_eq!(attached(&world.settle(), 2), Some(other));
}

/// Returns a client with two users, and the heads (circuits that represent a set) of their two
/// sets of two circuits. A circuit of one set has the same middle relay as a circuit of the other
/// set. Returns `None` if this `seed` does not lead to such sets.
fn two_users(seed: u64) -> Option<(World, [CircuitKey; 2])> {
    let mut world = world_of_legs(2);
    world.rng = stream(seed, 0, "suspects");
    let first = world.used();
    world.ask(2, "b");
    let orders = world.settle();
    world.linked(&orders);
    let second = attached(&orders, 2)?;
    world.circmgr.answered(2);
    let legs = [first, second].map(|head| world.legs(head));
    let [ours, theirs] = legs.map(|legs| -> Vec<Path> {
        legs.iter().map(|key| world.circmgr.circuits[key].path).collect()
    });
    let shared = ours.iter().any(|own| theirs.iter().any(|other| own[1] == other[1]));
    (shared && ours[0][2] != theirs[0][2]).then_some((world, [first, second]))
}

#[test]
fn a_used_set_with_a_leg_by_a_relay_that_may_be_silent_takes_no_new_streams() {
    let mut found = 0;
    for (mut world, [first, second]) in (0..200).filter_map(two_users) {
        found += 1;
        world.ask(3, "a");
        assert_eq!(attached(&world.settle(), 3), Some(first));
        assert!(world.moves_after(10, 3).is_some_and(|next| ![first, second].contains(&next)));
        // The first request of the second user was answered by its other leg.
        world.ask(4, "b");
        let orders = world.settle();
        assert!(attached(&orders, 4).is_some_and(|next| next != second));
        let suspects = world.circmgr.suspects.at(world.now);
        let fresh = world.circmgr.circuits.values().filter(|one| one.begun == world.now);
        assert!(fresh.clone().count() > 0);
        let mut fresh = fresh.flat_map(|one| &one.path[1..]);
        assert!(fresh.all(|id| !suspects.contains(id)), "there are others");
    }
    assert!(found > 5, "{found}");
}

#[test]
fn a_relay_by_which_something_was_heard_meanwhile_is_not_suspected() {
    for (mut world, [first, second]) in (0..200).filter_map(two_users) {
        world.ask(3, "a");
        world.settle();
        world.wait(5);
        for key in [world.legs(first), world.legs(second)].concat() {
            world.circmgr.note_all_answered(world.now, key);
        }
        assert!(world.moves_after(5, 3).is_some_and(|next| next != first), "it was not answered");
        assert!(world.circmgr.suspects.at(world.now).is_empty());
        world.ask(4, "b");
        assert_eq!(attached(&world.settle(), 4), Some(second));
    }
}

#[test]
fn suspicion_ends_with_an_answer_or_after_a_minute() {
    let mut world = World::new();
    let silent = world.demanded();
    let [_, middle, exit] = world.circmgr.path(silent).unwrap();
    world.moves_after(10, 1);
    assert!(world.circmgr.suspects.at(world.now).contains(&exit));
    world.circmgr.suspects.record_answers(world.now, &[exit]);
    assert!(!world.circmgr.suspects.at(world.now).contains(&exit));
    assert!(world.circmgr.suspects.at(world.now + SUSPICION - LOOK).contains(&middle));
    assert!(world.circmgr.suspects.at(world.now + SUSPICION).is_empty());
}

#[test]
fn exits_that_failed_a_demand_are_shunned_as_long_as_there_are_others() {
    let shunning = |failed_exits: &[[u8; 20]]| {
        let mut world = World::new();
        world.settle();
        let isolation = Isolation(b"a".to_vec());
        let (target, since) = (Target { port: 443, v6: false }, world.now);
        let (avoid, failed_exits) = (Vec::new(), failed_exits.to_vec());
        world
            .circmgr
            .demand(world.now, Demand { number: 1, target, isolation, since, avoid, failed_exits });
        let mut orders = world.settle();
        world.wait(1);
        orders.extend(world.settle());
        attached(&orders, 1).map(|key| world.exit(key))
    };
    assert_eq!(shunning(&[DUAL_EXIT]), Some([5; 20]));
    assert_eq!(shunning(&[[5; 20]]), Some(DUAL_EXIT));
    assert!(shunning(&[[5; 20], DUAL_EXIT]).is_some(), "better than none");
}
