//! Clients that violate the protocol of sets whose legs (circuits) join at a middle relay
//! (`docs/spec/middle-merge.md`).

use super::legs::{Legs, breaks_legs_asking};
use super::*;
use anabranch_onion::wire::extend::Extend;

/// Returns the client's state of a handshake with relay 1, and the data of its EXTEND2.
fn beyond(world: &World, seed: u64) -> (ntor_v3::Client, Vec<u8>) {
    let (node, mut rng) = (&world.relays[1], seed::stream(seed, 0, "handshake"));
    let (identity, verification) = (node.target.ed25519.unwrap(), ntor_v3::CIRCUIT);
    let message = extension::request(HopRequest::Plain);
    let started =
        ntor_v3::Client::start(&mut rng, identity, node.onion_key, &message, verification);
    let (target, (client, handshake)) = (node.target.clone(), started.unwrap());
    (client, Extend { target, kind: Kind::NTOR_V3, handshake }.write())
}

/// Links two legs of a set that join at relay 0, with the serial numbers 1 and 2.
fn two_legs(world: &mut World) -> Legs {
    let mut legs = Legs::new(world, 10);
    (0..2).for_each(|leg| legs.merge(world, leg, 7, 1 + leg as u32));
    let (commands, gone, _) = legs.outcome(world);
    let linked = |leg| (leg, RelayCommand::ANCESTOR_LINKED);
    assert_eq!((commands, gone), (vec![linked(0), linked(1)], vec![]));
    legs
}

/// Extends the set to relay 1.
fn go_on(world: &mut World, legs: &mut Legs) {
    let (client, data) = beyond(world, 1);
    legs.say_early(world, 0, RelayCommand::EXTEND2, &data);
    let (commands, gone) = legs.wait(world);
    let answered = commands.iter().any(|(_, command)| *command == RelayCommand::EXTENDED2);
    assert!(answered && gone.is_empty(), "{commands:?} {gone:?}");
    legs.beyond = Some(agreed_layer(client, legs.extended(), HopRequest::Plain));
}

/// Checks that the legs `closes` are closed with the faults `expected` after `act`, and that an
/// honest client's download completes. The set has two legs, and is extended to relay 1 if
/// `extended` is true.
fn breaks(
    extended: bool,
    closes: &[usize],
    expected: &[CircuitFault],
    act: impl FnOnce(&mut World, &mut Legs),
) {
    let (mut world, stream) = honest_world();
    let mut legs = two_legs(&mut world);
    if extended {
        go_on(&mut world, &mut legs);
    }
    act(&mut world, &mut legs);
    let (_, gone) = legs.wait(&mut world);
    let faults: Vec<Violation> = expected.iter().map(|fault| (*fault).into()).collect();
    assert_eq!((&gone[..], &world.relays[0].violations), (closes, &faults));
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.received[&stream].len(), 1_000_000);
}

/// Checks messages that a client must not send (`docs/spec/middle-merge.md#hostile-ends`).
#[test]
fn what_may_not_be_said_of_merged_legs_closes_the_leg_that_says_it() {
    use ConfluxFault as Fault;
    use RelayCommand as Say;
    let switch = |singly, number| LegSwitch { singly, number }.write().to_vec();
    let own = |count| Received { answers_probe: false, count }.write().to_vec();
    let answer = Received { answers_probe: true, count: 0 }.write().to_vec();
    for (fault, command, data) in [
        (Fault::SwitchZero, Say::RESILIENT_SWITCH, switch(false, 1)),
        (Fault::Unreadable, Say::RESILIENT_SWITCH, switch(true, 9)),
        (Fault::Unreadable, Say::RESILIENT_SWITCH, vec![0; 4]),
        (Fault::Unreadable, Say::RESILIENT_SWITCH, vec![2, 0, 0, 0, 9]),
        (Fault::TooFar, Say::RESILIENT_SWITCH, switch(false, (1 << 24) + 2)),
        (Fault::Role, Say::CONFLUX_SWITCH, put_switch(9).to_vec()),
        (Fault::Unsent, Say::RESILIENT_RECEIVED, own(0)),
        (Fault::Unsent, Say::RESILIENT_RECEIVED, own(1)),
        (Fault::Unsent, Say::RESILIENT_RECEIVED, own(u32::MAX)),
        (Fault::Unsent, Say::RESILIENT_RECEIVED, answer),
        (Fault::Unreadable, Say::RESILIENT_RECEIVED, vec![0; 4]),
        (Fault::Unreadable, Say::RESILIENT_RECEIVED, vec![9; 5]),
        (Fault::NotLinked, Say::RESILIENT_GONE, put_gone(9).to_vec()),
        (Fault::NotLinked, Say::RESILIENT_GONE, put_gone(2).to_vec()),
        (Fault::Unreadable, Say::RESILIENT_GONE, vec![0; 3]),
        (Fault::Role, Say::ANCESTOR_LINKED, vec![3; 40]),
    ] {
        for extended in [false, true] {
            breaks(extended, &[1], &[fault.into()], |world, legs| {
                legs.send_message(world, 1, command, &data);
            });
        }
    }
    breaks(true, &[1], &[Fault::SwitchTwice.into()], |world, legs| {
        (3..5).for_each(|number| {
            legs.send_message(world, 1, Say::RESILIENT_SWITCH, &switch(false, number));
        });
    });
    breaks(true, &[1], &[Fault::Twice.into()], |world, legs| {
        (0..2).for_each(|_| legs.send_message(world, 1, Say::ANCESTOR_LINKED_ACK, &[]));
    });
    for command in [Say::EXTENDED2, Say::TRUNCATED] {
        breaks(true, &[1], &[CircuitFault::Message], |world, legs| {
            legs.send_message(world, 1, command, &[0; 60]);
        });
    }
    for command in [Say::BEGIN, Say::BEGIN_DIR, Say::RESOLVE, Say::DATA, Say::END] {
        breaks(true, &[1], &[Fault::Role.into()], |world, legs| {
            legs.say_on(world, 1, command, 5, b"known:80\0");
        });
    }
    breaks(true, &[1], &[Fault::Role.into()], |world, legs| {
        legs.send_message(world, 1, Say::SENDME, &[1, 0, 20]);
    });
}

#[test]
fn a_set_goes_on_once_and_only_where_a_circuit_may() {
    let fault = CircuitFault::Extend;
    for (extended, early) in [(false, false), (true, true)] {
        breaks(extended, &[1], &[fault], |world, legs| {
            let (_, data) = beyond(world, 2);
            match early {
                true => legs.say_early(world, 1, RelayCommand::EXTEND2, &data),
                false => legs.send_message(world, 1, RelayCommand::EXTEND2, &data),
            }
        });
    }
    breaks(false, &[1], &[fault], |world, legs| {
        legs.say_early(world, 1, RelayCommand::EXTEND2, &[0; 60]);
    });
    // This EXTEND2 names the relay itself as the next relay.
    breaks(false, &[1], &[fault], |world, legs| {
        let (target, kind) = (world.relays[0].target.clone(), Kind::NTOR_V3);
        let data = Extend { target, kind, handshake: vec![0; 100] }.write();
        legs.say_early(world, 1, RelayCommand::EXTEND2, &data);
    });
}

#[test]
fn cells_that_pass_where_nothing_lies_beyond_close_their_leg() {
    breaks(false, &[1], &[CircuitFault::Unrecognised], |world, legs| {
        legs.pass(world, 1, Command::RELAY);
    });
}

/// Checks the limit of eight RELAY_EARLY cells, which all legs of a set share
/// (`docs/spec/middle-merge.md#relay_early`).
#[test]
fn the_ninth_relay_early_cell_that_passes_ends_the_set() {
    breaks(true, &[0, 1], &[CircuitFault::RelayEarly], |world, legs| {
        // EXTEND2 was also a RELAY_EARLY cell on leg 0. It counts for the circuit, not the set.
        (0..5).for_each(|_| legs.pass(world, 0, Command::RELAY_EARLY));
        let switch = LegSwitch { singly: false, number: 6 }.write();
        legs.send_message(world, 1, RelayCommand::RESILIENT_SWITCH, &switch);
        (0..4).for_each(|_| legs.pass(world, 1, Command::RELAY_EARLY));
    });
}

/// Checks that at most about one MiB of cells waits for missing cells of the other leg. The other
/// leg continues.
#[test]
fn a_flood_of_cells_with_far_numbers_closes_the_leg_at_the_bound() {
    breaks(true, &[1], &[ConfluxFault::Full.into()], |world, legs| {
        let switch = LegSwitch { singly: false, number: 5 }.write();
        legs.send_message(world, 1, RelayCommand::RESILIENT_SWITCH, &switch);
        for _ in 0..1_800 {
            legs.pass(world, 1, Command::RELAY);
        }
        let waits = world.relays[0].core.stats().most_reordered;
        assert!((900_000..1_100_000).contains(&waits), "{waits}");
    });
}

/// Checks LINK messages that cannot be parsed, that the circuit does not support, or that are
/// late.
#[test]
fn what_does_not_begin_a_set_of_merged_legs_closes_its_circuit() {
    use ConfluxFault as Fault;
    let link = |first: [u8; 2]| [&first[..], &[9; 32], &[0, 0, 0, 1, 0]].concat();
    let dealing = [&link([3, 0])[..38], &[201; 300]].concat();
    let unknown = [&link([3, 0])[..38], &[3], b"off"].concat();
    for odd in [&link([3, 0])[..38], &link([3, 2]), &link([4, 0]), &dealing, &unknown] {
        breaks(false, &[2], &[Fault::Unreadable.into()], |world, legs| {
            legs.send_message(world, 2, RelayCommand::ANCESTOR_LINK, odd);
        });
    }
    breaks_legs_asking(&[HopRequest::Plain], &[0], &[Fault::Role], |world, legs| {
        legs.merge(world, 0, 7, 1);
    });
    // This leg resumes a set that does not exist. The set may have ended, so this is no violation.
    breaks(false, &[2], &[], |world, legs| {
        legs.send_message(world, 2, RelayCommand::ANCESTOR_LINK, &link([3, 1]));
    });
}

/// Starts a download from relay 1 over two legs.
fn downloading(world: &mut World) -> Legs {
    let mut legs = two_legs(world);
    (0..2).for_each(|leg| legs.send_message(world, leg, RelayCommand::ANCESTOR_LINKED_ACK, &[]));
    go_on(world, &mut legs);
    legs.begin_beyond(world, 0, "source-5000000");
    let (_, gone) = legs.wait(world);
    assert_eq!((gone, &world.relays[0].violations[..]), (vec![], &[][..]));
    legs
}

/// Checks that the relay stores at most the cells that an exit's window allows. It frees them when
/// the set closes.
#[test]
fn who_acknowledges_nothing_of_a_download_loses_its_set_after_twenty_seconds() {
    let (mut world, stream) = honest_world();
    let mut legs = downloading(&mut world);
    let kept = world.relays[0].core.stats().reordered;
    assert!((100_000..400_000).contains(&kept), "{kept}");
    world.run_for(Duration::from_secs(22));
    let (_, gone) = legs.wait(&mut world);
    assert_eq!((gone, &world.relays[0].violations[..]), (vec![0, 1], &[][..]));
    let stats = world.relays[0].core.stats();
    assert_eq!((stats.reordered, stats.sets, stats.legs), (0, 0, 0), "{stats:?}");
    assert_eq!(world.relays[1].core.stats().streams, 0, "its exit knows");
    assert_eq!(world.received[&stream].len(), 1_000_000);
}

/// Checks the limit of a circuit's queue. The exit cooperates with the hostile client, and ignores
/// its window.
#[test]
fn a_flood_from_beyond_that_nobody_takes_ends_the_set_at_the_bound_of_a_queue() {
    let (mut world, stream) = honest_world();
    let mut legs = downloading(&mut world);
    let message = Message { command: RelayCommand::DROP, stream: 0, data: &[] };
    for _ in 0..60_000 {
        assert!(world.relays[1].core.send_message(world.now, 1, message));
    }
    let mut most = 0;
    while world.relays[0].core.stats().sets > 0 {
        world.run_for(Duration::from_millis(50));
        most = most.max(world.relays[0].core.stats().reordered);
    }
    let (_, gone) = legs.wait(&mut world);
    assert_eq!(gone, [0, 1]);
    assert_eq!(world.relays[0].violations, [CircuitFault::Flood.into()]);
    assert!((20_000_000..40_000_000).contains(&most), "{most}");
    assert_eq!(world.relays[0].core.stats().reordered, 0);
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.received[&stream].len(), 1_000_000);
}

/// Checks that a set without legs ends after its timeout. Each circuit is the only leg of its set.
#[test]
fn sets_of_strangers_are_one_for_each_circuit_and_end_after_twenty_seconds() {
    let (mut world, stream) = honest_world();
    let mut legs = Legs::new(&mut world, 100);
    (0..100).for_each(|leg| legs.merge(&mut world, leg, leg as u8, 1));
    let (commands, gone, violations) = legs.outcome(&mut world);
    assert_eq!((commands.len(), gone, violations), (100, vec![], vec![]));
    let count = |world: &World| {
        let stats = world.relays[0].core.stats();
        (stats.sets, stats.legs)
    };
    assert_eq!(count(&world), (100, 100));
    legs.hang_up(&mut world);
    assert_eq!(count(&world), (100, 0));
    world.run_for(Duration::from_secs(21));
    assert_eq!(count(&world), (0, 0));
    assert_eq!(world.received[&stream].len(), 1_000_000);
}

#[test]
fn strangers_and_other_designs_join_no_set() {
    // A leg with another nonce belongs to another set. Each leg of a set needs its own serial
    // number. All legs of a set have the same design.
    breaks(true, &[], &[], |world, legs| legs.merge(world, 2, 8, 1));
    breaks(true, &[2], &[ConfluxFault::Twice.into()], |world, legs| legs.merge(world, 2, 7, 1));
    breaks(true, &[2], &[ConfluxFault::Design.into()], |world, legs| {
        legs.link_ours(world, 2, 5, false);
    });
    breaks(true, &[1], &[ConfluxFault::Twice.into()], |world, legs| legs.merge(world, 1, 7, 5));
    breaks(true, &[8], &[ConfluxFault::TooManyLegs.into()], |world, legs| {
        (2..9).for_each(|leg| legs.merge(world, leg, 7, 1 + leg as u32));
    });
}
