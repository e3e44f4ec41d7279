//! Tests as in `tests/conformance.rs`, for links over datagrams. The lines deliver datagrams in
//! order, or lose, delay, duplicate and change them. In contrast to links over a stream, closing
//! does not wait for cells, and a changed datagram is lost.

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_links::{Fault, Link as _, State};
use anabranch_netem::{LinkSettings, Loss};

use anabranch_testkit::every_link::conforms;
use anabranch_testkit::quic_pair::{CREATES, DATA, QuicPair as World, cell, cells_of, line};

const DELAY: Duration = Duration::from_millis(50);
/// The circuits in use. Each end has created five.
const CIRCUITS: [u32; 10] =
    [1, 2, 3, 4, 5, 0x8000_0001, 0x8000_0002, 0x8000_0003, 0x8000_0004, 0x8000_0005];

/// A line between two ends.
pub(super) struct Carrier {
    pub(super) name: &'static str,
    pub(super) settings: LinkSettings,
    pub(super) duplicates: bool,
    /// Number of datagrams in a thousand in which a byte is changed.
    pub(super) changed: u32,
}

pub(super) fn carriers() -> Vec<Carrier> {
    let jitter = Duration::from_millis(20);
    let ordered = || line(DELAY);
    let lossy = |of_all| LinkSettings { loss: Loss::Bernoulli(of_all), ..line(DELAY) };
    let delaying = |settings| LinkSettings { jitter, reorder: true, ..settings };
    let carrier =
        |name, settings, duplicates, changed| Carrier { name, settings, duplicates, changed };
    vec![
        carrier("ordered", ordered(), false, 0),
        carrier("lossy", lossy(0.05), false, 0),
        carrier("delaying", delaying(ordered()), false, 0),
        carrier("doubling", ordered(), true, 0),
        carrier("changing", ordered(), false, 100),
        carrier("lossy, delaying and doubling", delaying(lossy(0.1)), true, 0),
        carrier("all of it", delaying(lossy(0.05)), true, 100),
    ]
}

impl Carrier {
    /// Creates a link with all circuits, and waits until their first cells have arrived.
    fn world(&self, seed: u64) -> World {
        let mut world = World::open(&self.settings, seed);
        (world.duplicates, world.changed) = (self.duplicates, self.changed);
        for circuit in CIRCUITS {
            world.write(maker(circuit), &cell(circuit, CREATES, 0));
        }
        world.write(0, &cell(0, DATA, 0));
        world.run(Duration::from_secs(5));
        world
    }
}

/// Returns the end that created a circuit.
fn maker(circuit: u32) -> usize {
    usize::from(circuit & 0x8000_0000 != 0)
}

/// Sends cells with these numbers from both ends on every circuit.
fn send_message(world: &mut World, numbers: std::ops::Range<u32>) {
    for number in numbers {
        for end in 0..2 {
            let batch: Vec<u8> =
                CIRCUITS.iter().flat_map(|circuit| cell(*circuit, DATA, number)).collect();
            world.write(end, &batch);
        }
        world.run(Duration::from_millis(10));
    }
}

/// Returns the number of cells of each circuit up to the last one that arrived at an end. Checks
/// that they arrived in order and once, and that only the first cell creates the circuit.
fn fronts(world: &World, end: usize, name: &str) -> Vec<u32> {
    let mut by_circuit: BTreeMap<u32, Vec<u32>> =
        CIRCUITS.map(|circuit| (circuit, Vec::new())).into();
    for (circuit, command, number) in
        cells_of(&world.received[end]).into_iter().filter(|u| u.0 != 0)
    {
        assert_eq!(
            command,
            if number == 0 { CREATES } else { DATA },
            "{name}: circuit {circuit:#x}"
        );
        by_circuit.get_mut(&circuit).unwrap().push(number);
    }
    let front = |(circuit, numbers): (u32, Vec<u32>)| {
        let first = u32::from(maker(circuit) == end);
        let next = first + numbers.len() as u32;
        assert!(numbers.into_iter().eq(first..next), "{name}: circuit {circuit:#x}");
        next
    };
    by_circuit.into_iter().map(front).collect()
}

#[test]
fn quic_is_a_link() {
    for carrier in carriers() {
        let mut seed = 0;
        conforms(carrier.name, || {
            seed += 1;
            let mut pair = World::open(&carrier.settings, seed);
            (pair.duplicates, pair.changed) = (carrier.duplicates, carrier.changed);
            // The first cell of circuit 0, the link's own circuit, opens that circuit.
            pair.write(0, &cell(0, DATA, 0));
            pair.run(Duration::from_secs(5));
            pair.received = [Vec::new(), Vec::new()];
            pair
        });
    }
}

#[test]
fn cells_of_all_circuits_come_once_and_those_of_a_circuit_in_order() {
    for carrier in carriers() {
        let mut world = carrier.world(3);
        send_message(&mut world, 1..60);
        world.run(Duration::from_secs(60));
        for end in 0..2 {
            assert_eq!(fronts(&world, end, carrier.name), [60; 10], "{}", carrier.name);
            assert_eq!(world.state(end), Some(State::Open), "{}", carrier.name);
        }
    }
}

/// The line is cut in one direction. All cells that arrive were sent, and no end closes the link
/// before its timeout.
#[test]
fn a_cut_line_gives_nothing_false() {
    for carrier in carriers() {
        let mut world = carrier.world(4);
        send_message(&mut world, 1..20);
        world.ways[0].change(world.now, |settings| settings.down = true);
        send_message(&mut world, 20..40);
        world.run(Duration::from_secs(5));
        let received = fronts(&world, 1, carrier.name);
        assert!(
            received.iter().all(|front| (1..40).contains(front)),
            "{}: {received:?}",
            carrier.name
        );
        assert_eq!(world.state(1), Some(State::Open), "{}", carrier.name);
        world.run(Duration::from_secs(120));
        assert_eq!(fronts(&world, 1, carrier.name), received, "{}", carrier.name);
        for end in 0..2 {
            fronts(&world, end, carrier.name);
            assert_eq!(world.state(end), Some(State::Ended), "{}", carrier.name);
            assert!(matches!(world.link(end).fault(), Some(Fault::Peer(_))), "{}", carrier.name);
        }
    }
}

/// While a line changes every datagram, nothing arrives. Afterwards, all sent cells arrive.
#[test]
fn changed_datagrams_bring_nothing_and_end_no_link() {
    for carrier in carriers() {
        let mut world = carrier.world(5);
        send_message(&mut world, 1..10);
        world.run(Duration::from_secs(30));
        let before = [0, 1].map(|end| fronts(&world, end, carrier.name));
        assert_eq!(before, [[10; 10], [10; 10]], "{}", carrier.name);
        world.changed = 1_000;
        send_message(&mut world, 10..20);
        world.run(Duration::from_secs(4));
        for end in 0..2 {
            assert_eq!(fronts(&world, end, carrier.name), [10; 10], "{}", carrier.name);
            assert_eq!(world.state(end), Some(State::Open), "{}", carrier.name);
        }
        world.changed = 0;
        world.run(Duration::from_secs(60));
        for end in 0..2 {
            assert_eq!(fronts(&world, end, carrier.name), [20; 10], "{}", carrier.name);
        }
    }
}

#[test]
fn a_goodbye_ends_the_link_behind_what_came() {
    for carrier in carriers() {
        let mut world = carrier.world(6);
        send_message(&mut world, 1..10);
        world.run(Duration::from_secs(30));
        let id = world.ids[0].unwrap();
        send_message(&mut world, 10..15);
        world.ends[0].close(world.now, id);
        world.run(Duration::from_secs(120));
        assert_eq!(world.state(1), Some(State::Ended), "{}", carrier.name);
        let received = fronts(&world, 1, carrier.name);
        assert!(
            received.iter().all(|front| (10..=15).contains(front)),
            "{}: {received:?}",
            carrier.name
        );
    }
}

#[test]
fn keys_are_the_same_at_both_ends_and_anothers_are_others() {
    let label = b"EXPORTER FOR TOR TLS CLIENT BINDING AUTH0003";
    let export = |world: &mut World, end| world.link(end).export(label, b"id").unwrap();
    let mut secrets = Vec::new();
    for (seed, carrier) in carriers().into_iter().enumerate() {
        let mut world = carrier.world(seed as u64);
        let secret = export(&mut world, 0);
        assert_eq!(secret, export(&mut world, 1), "{}", carrier.name);
        assert!(!secrets.contains(&secret), "{}", carrier.name);
        secrets.push(secret);
    }
}
