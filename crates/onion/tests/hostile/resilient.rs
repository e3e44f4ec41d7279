//! Clients that violate the protocol of sets with resilient legs (circuits that may fail without
//! loss of data, `docs/spec/resilient-legs.md`).

use super::legs::{Legs, breaks_legs, breaks_legs_asking, numbered};
use super::*;

/// Links two resilient legs with the serial numbers 1 and 2, and checks like [`breaks_legs`].
fn breaks_our_legs(
    closes: &[usize],
    expected: &[ConfluxFault],
    act: impl FnOnce(&mut World, &mut Legs),
) {
    breaks_legs(closes, expected, |world, legs| {
        (0..2).for_each(|leg| legs.link_ours(world, leg, 1 + leg as u32, false));
        let (commands, gone, _) = legs.outcome(world);
        let linked = |leg| (leg, RelayCommand::ANCESTOR_LINKED);
        assert_eq!((commands, gone), (vec![linked(0), linked(1)], vec![]));
        act(world, legs);
    });
}

/// Checks messages that a client must not send (`docs/spec/resilient-legs.md#violations`).
#[test]
fn what_may_not_be_said_of_legs_that_may_die_closes_the_leg_that_says_it() {
    use ConfluxFault as Fault;
    use RelayCommand as Say;
    let link = |first: [u8; 2]| [&first[..], &[7; 32], &[0, 0, 0, 1, 0]].concat();
    for odd in [&link([2, 0])[..38], &link([2, 2]), &[&link([2, 0])[..38], &[201; 300]].concat()] {
        breaks_legs(&[0], &[Fault::Unreadable], |world, legs| {
            legs.send_message(world, 0, Say::ANCESTOR_LINK, odd);
        });
    }
    breaks_legs_asking(&[HopRequest::Plain], &[0], &[Fault::Role], |world, legs| {
        legs.link_ours(world, 0, 1, false);
    });
    breaks_our_legs(&[2], &[Fault::Twice], |world, legs| legs.link_ours(world, 2, 1, false));
    breaks_our_legs(&[1], &[Fault::Twice], |world, legs| legs.link_ours(world, 1, 3, true));
    breaks_our_legs(&[2], &[Fault::Design], |world, legs| legs.link(world, 2, 7, 0));
    let switch = |singly, number| LegSwitch { singly, number }.write().to_vec();
    let own = |count| Received { answers_probe: false, count }.write().to_vec();
    let answer = |count| Received { answers_probe: true, count }.write().to_vec();
    for (fault, command, data) in [
        (Fault::SwitchZero, Say::RESILIENT_SWITCH, switch(true, 1)),
        (Fault::TooFar, Say::RESILIENT_SWITCH, switch(false, (1 << 24) + 2)),
        (Fault::Unreadable, Say::RESILIENT_SWITCH, vec![0; 4]),
        (Fault::Unreadable, Say::RESILIENT_SWITCH, vec![2, 0, 0, 0, 1]),
        (Fault::Role, Say::CONFLUX_SWITCH, put_switch(9).to_vec()),
        (Fault::Unsent, Say::RESILIENT_RECEIVED, own(0)),
        (Fault::Unsent, Say::RESILIENT_RECEIVED, own(1)),
        (Fault::Unsent, Say::RESILIENT_RECEIVED, own(u32::MAX)),
        (Fault::Unsent, Say::RESILIENT_RECEIVED, answer(0)),
        (Fault::Unreadable, Say::RESILIENT_RECEIVED, vec![0; 4]),
        (Fault::Unreadable, Say::RESILIENT_RECEIVED, vec![9; 5]),
        (Fault::NotLinked, Say::RESILIENT_GONE, put_gone(2).to_vec()),
        (Fault::NotLinked, Say::RESILIENT_GONE, put_gone(3).to_vec()),
        (Fault::Unreadable, Say::RESILIENT_GONE, vec![0; 3]),
        (Fault::Twice, Say::ANCESTOR_LINKED_ACK, vec![]),
        (Fault::Role, Say::EXTEND2, vec![0; 60]),
    ] {
        breaks_our_legs(&[1], &[fault], |world, legs| {
            if command == Say::ANCESTOR_LINKED_ACK {
                legs.send_message(world, 1, command, &data);
            }
            legs.send_message(world, 1, command, &data);
        });
    }
    breaks_our_legs(&[1], &[Fault::SwitchTwice], |world, legs| {
        (3..5).for_each(|number| {
            legs.send_message(world, 1, Say::RESILIENT_SWITCH, &switch(false, number));
        });
    });
}

#[test]
fn what_is_said_of_legs_that_may_die_is_of_no_other_circuit() {
    use ConfluxFault as Fault;
    use RelayCommand as Say;
    for command in
        [Say::RESILIENT_SWITCH, Say::RESILIENT_RECEIVED, Say::RESILIENT_GONE, Say::RESILIENT_PROBE]
    {
        breaks_legs(&[0], &[Fault::NotLinked], |world, legs| {
            legs.send_message(world, 0, command, &[0, 0, 0, 0, 1]);
        });
        let fault = if command == Say::RESILIENT_SWITCH { Fault::Role } else { Fault::Design };
        breaks_legs(&[0], &[fault], |world, legs| {
            (0..2).for_each(|leg| legs.link(world, leg, 7, 0));
            legs.send_message(world, 0, command, &[0, 0, 0, 0, 1]);
        });
    }
    // This leg resumes a set that does not exist. The set may have ended, so this is no violation.
    breaks_legs(&[0], &[], |world, legs| legs.link_ours(world, 0, 5, true));
}

/// Checks that the violation closes leg 1, and that the set continues on leg 0. Messages with
/// numbers that were received before are dropped.
#[test]
fn numbers_of_legs_that_may_die_that_are_far_ahead_or_cut_close_one_leg() {
    use ConfluxFault as Fault;
    for (fault, data) in
        [(Fault::TooFar, numbered((1 << 24) + 2, &[0; 20])), (Fault::Unreadable, vec![0; 3])]
    {
        breaks_our_legs(&[1], &[fault], |world, legs| {
            legs.say_on(world, 1, RelayCommand::DATA, 5, &data);
            (1..5).for_each(|number| {
                let data = numbered(number, &[0; 20]);
                (0..2).for_each(|_| legs.say_on(world, 0, RelayCommand::DATA, 5, &data));
            });
        });
    }
}

/// Creates a set of two legs on which a stream was refused. The relay stores END until it is
/// acknowledged. Also returns the leg on which END arrived.
fn with_an_end(world: &mut World) -> (Legs, usize) {
    let mut legs = Legs::new(world, 3);
    (0..2).for_each(|leg| legs.link_ours(world, leg, 1 + leg as u32, false));
    legs.outcome(world);
    (0..2).for_each(|leg| legs.send_message(world, leg, RelayCommand::ANCESTOR_LINKED_ACK, &[]));
    let begin = Begin { host: "sink".into(), port: 80, flags: 0 }.write().unwrap();
    legs.say_on(world, 0, RelayCommand::BEGIN, 3, &numbered(1, &begin));
    let (commands, ..) = legs.outcome(world);
    let ends = commands.iter().filter(|(_, command)| *command == RelayCommand::END);
    let ends: Vec<usize> = ends.map(|(leg, _)| *leg).collect();
    assert_eq!(ends.len(), 1, "a client of one hop gets no stream");
    assert!(world.relays[0].core.stats().reordered > 0, "it is kept");
    (legs, ends[0])
}

#[test]
fn what_went_by_a_leg_that_is_said_to_be_gone_comes_by_the_other() {
    let (mut world, _) = honest_world();
    let (mut legs, by) = with_an_end(&mut world);
    let other = 1 - by;
    legs.send_message(&mut world, other, RelayCommand::RESILIENT_GONE, &put_gone(1 + by as u32));
    let (commands, gone, violations) = legs.outcome(&mut world);
    assert!(commands.contains(&(other, RelayCommand::END)), "{commands:?}");
    assert_eq!((gone, violations), (vec![by], vec![]));
    let received = Received { answers_probe: false, count: 1 }.write();
    legs.send_message(&mut world, other, RelayCommand::RESILIENT_RECEIVED, &received);
    let (_, gone, violations) = legs.outcome(&mut world);
    assert_eq!((gone, violations), (vec![], vec![]));
    assert_eq!(world.relays[0].core.stats().reordered, 0, "it is kept no longer");
    // The relay answers a probe at once, even if few messages have arrived.
    legs.send_message(&mut world, other, RelayCommand::RESILIENT_PROBE, &[]);
    let (commands, ..) = legs.outcome(&mut world);
    assert_eq!(commands, [(other, RelayCommand::RESILIENT_RECEIVED)]);
}

#[test]
fn a_client_that_acknowledges_nothing_loses_its_set_after_twenty_seconds() {
    let (mut world, stream) = honest_world();
    let (mut legs, _) = with_an_end(&mut world);
    let mut gone = Vec::new();
    for _ in 1..=22 {
        world.now += Duration::from_secs(1);
        let (_, closed, violations) = legs.outcome(&mut world);
        assert_eq!(violations, []);
        gone.extend(closed);
    }
    assert_eq!(gone, [0, 1]);
    let stats = world.relays[0].core.stats();
    assert_eq!((stats.reordered, stats.sets), (0, 0), "what was kept went with it");
    _ = stream;
}
