//! Tests of the selection of a stream's circuit among several that fit it, and of circuits that
//! are replaced while streams are open.

use super::*;

/// Two times in ms after the beginning of a circuit: when the extension to its last hop began, and
/// when the circuit was built.
type BuildTimings = (u64, u64);

impl World {
    /// Completes a circuit that was begun at `begun`. `built` contains the times of its last two
    /// steps after `begun`.
    fn complete(&mut self, begun: Time, key: CircuitKey, built: BuildTimings) {
        let after = |ms| begun + Duration::from_millis(ms);
        self.circmgr.extended(after(built.0), key, 2);
        let at = Moment { now: after(built.1), unix: NOW };
        self.circmgr.built(at, key, &mut self.rng);
    }

    /// Returns the circuit that the stream `number` gets, and the circuits that are begun at that
    /// time.
    fn circuit_of(&mut self, number: u64) -> (CircuitKey, Vec<CircuitKey>) {
        self.ask(number, "a");
        let (mut attached, mut begun) = (None, Vec::new());
        for order in self.orders() {
            match order {
                Order::Attach(of, key) if of == number => attached = Some(key),
                Order::Build(key, _) => begun.push(key),
                _ => panic!("neither an attachment nor a new circuit"),
            }
        }
        (attached.unwrap(), begun)
    }
}

/// Returns a client with two unused circuits, the older one first. Building them took these times.
fn with_two(selection: Selection, times: [BuildTimings; 2]) -> (World, [CircuitKey; 2]) {
    let mut world = World::new();
    world.circmgr.set_selection(selection);
    let begun = world.now;
    let keys: [CircuitKey; 2] = world.begun().try_into().unwrap();
    keys.into_iter().zip(times).for_each(|(key, built)| world.complete(begun, key, built));
    world.wait(5);
    (world, keys)
}

/// Times of two circuits. The first circuit takes longer to build, but its last hop answers
/// sooner.
const SLOW_THEN_QUICK: [BuildTimings; 2] = [(900, 1_000), (300, 800)];
const QUICK_THEN_SLOW: [BuildTimings; 2] = [(300, 800), (900, 1_000)];

#[test]
fn a_stream_takes_the_circuit_that_the_criterion_names() {
    let picked = |selection, times| {
        let (mut world, keys) = with_two(selection, times);
        let (picked, _) = world.circuit_of(1);
        keys.iter().position(|key| *key == picked).unwrap()
    };
    for (selection, expected) in [
        (Selection::Oldest, [0, 0]),
        (Selection::Newest, [1, 1]),
        (Selection::BuildTime, [1, 0]),
        (Selection::Rtt, [0, 1]),
    ] {
        let found = [SLOW_THEN_QUICK, QUICK_THEN_SLOW].map(|times| picked(selection, times));
        assert_eq!(found, expected, "{}", selection.name());
    }
}

#[test]
fn by_age_a_circuit_in_use_is_preferred_and_by_times_it_competes() {
    for (selection, is_kept) in [
        (Selection::Oldest, true),
        (Selection::Newest, true),
        (Selection::BuildTime, false),
        (Selection::Rtt, false),
    ] {
        let (mut world, _) = with_two(selection, SLOW_THEN_QUICK);
        let (first, begun) = world.circuit_of(1);
        // The circuit that is built in its place is the quickest by either time.
        let [ahead] = begun[..] else { panic!("one circuit is begun") };
        world.complete(world.now, ahead, (40, 50));
        world.wait(5);
        let (second, _) = world.circuit_of(2);
        let expected = if is_kept { first } else { ahead };
        assert_eq!(second, expected, "{}", selection.name());
    }
}

#[test]
fn circuits_with_equal_times_are_chosen_by_use_and_age() {
    for selection in [Selection::BuildTime, Selection::Rtt] {
        let (mut world, keys) = with_two(selection, [(300, 800); 2]);
        let (first, begun) = world.circuit_of(1);
        assert_eq!(first, keys[0], "{}", selection.name());
        world.complete(world.now, begun[0], (300, 800));
        world.wait(5);
        assert_eq!(world.circuit_of(2).0, first, "{}", selection.name());
    }
}

/// Age in seconds at which a circuit of a set is replaced.
const AGE: u64 = 30;

/// A circuit that was built, or a circuit that was destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Built(CircuitKey),
    Destroyed(CircuitKey),
}

impl World {
    /// Carries out all orders, and returns the circuits that are built and destroyed, in the order
    /// in which this happens.
    fn turnover(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        loop {
            let orders = self.orders();
            if orders.is_empty() {
                return changes;
            }
            self.linked(&orders);
            for order in orders {
                match order {
                    Order::Build(key, _) => {
                        self.built(key);
                        changes.push(Change::Built(key));
                    }
                    Order::Destroy(key) => {
                        self.gone(key, Cause::Wanted);
                        changes.push(Change::Destroyed(key));
                    }
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn legs_are_replaced_at_their_age_one_after_another_and_the_stream_stays() {
    let mut world = world_of("anabranch", 2);
    let age = Duration::from_secs(AGE);
    world.circmgr.set_leg_age(Some(age));
    let name = world.used();
    let legs = world.legs(name);
    assert!(world.circmgr.next_timeout().is_some_and(|due| due <= world.now + age));
    world.wait(AGE - 1);
    assert_eq!(world.turnover(), [], "no leg has the age");
    world.wait(1);
    // Both legs were begun at the same time. Each is destroyed after another one is built.
    let changes = world.turnover();
    let [Change::Built(one), Change::Destroyed(first), Change::Built(other), last] = changes[..]
    else {
        panic!("{} changes", changes.len())
    };
    assert_eq!((first, last), (legs[0], Change::Destroyed(legs[1])));
    let heads = [one, other].map(|key| world.circmgr.head(key).unwrap_or(key));
    assert_eq!(heads[0], heads[1], "they are legs of one set");
    let seen = world.circmgr.overview().find(|seen| seen.key == heads[0]).unwrap();
    assert_eq!((seen.streams, seen.stage), (1, Stage::Used));
    assert_eq!(world.turnover(), [], "the legs are new");
    world.circmgr.stream_ended(name);
    world.wait(AGE);
    assert_eq!(world.turnover(), [], "a set without streams keeps its legs");
}

#[test]
fn legs_of_sets_that_end_with_a_lost_leg_and_single_circuits_stay() {
    for (design, legs) in [("conflux", 2), ("anabranch", 1)] {
        let mut world = world_of(design, legs);
        world.circmgr.set_leg_age(Some(Duration::from_secs(AGE)));
        world.used();
        world.wait(AGE + 1);
        assert_eq!(world.turnover(), [], "{design} × {legs}");
    }
}
