//! Tests of the rules of sets of circuits, and of the bugs that C tor had in this code (`TROVE-`
//! numbers and issues of C tor's tracker).

use std::time::Duration;

use anabranch_multipath::{PathId, Time};

use super::conformance::{self, Pair, Side};
use super::*;
use crate::wire::conflux::{ConfluxLink, DesiredUx, SetNonce, put_switch};
use crate::wire::message::{Message, RelayCommand};

const NOW: Time = Time::ZERO;
const NONCE: [u8; 32] = [9; 32];

fn counted() -> Box<dyn Numbering> {
    Box::new(CountedNumbering::new())
}

fn explicit() -> Box<dyn Numbering> {
    Box::new(ExplicitNumbering::new())
}

fn adaptive() -> Box<dyn Numbering> {
    Box::new(Adaptive::new())
}

fn runs() -> Box<dyn Numbering> {
    Box::new(Runs::new())
}

fn exit() -> ConfluxEnd {
    ConfluxEnd::exit(NONCE.into(), counted(), Limits::default())
}

fn client() -> ConfluxEnd {
    ConfluxEnd::client(NONCE.into(), counted(), Limits::default())
}

fn link(sent: u64, received: u64) -> ConfluxLink {
    ConfluxLink { nonce: NONCE.into(), sent, received, ux: DesiredUx::HighThroughput }
}

fn join(end: &mut ConfluxEnd) -> Result<PathId, ConfluxFault> {
    end.link(NOW, &link(0, 0), true, DesiredUx::HighThroughput).map(|(leg, _)| leg)
}

fn data(end: &mut ConfluxEnd, leg: PathId) -> Result<Arrival<'static>, ConfluxFault> {
    end.receive(leg, Message { command: RelayCommand::DATA, stream: 1, data: &[5; 498] })
}

fn switch(end: &mut ConfluxEnd, leg: PathId, by: u32) -> Result<(), ConfluxFault> {
    let data = &put_switch(by);
    let command = RelayCommand::CONFLUX_SWITCH;
    end.receive(leg, Message { command, stream: 0, data }).map(drop)
}

#[test]
fn every_numbering_passes_the_conformance_suite() {
    conformance::check(counted);
    conformance::check(explicit);
    conformance::check(adaptive);
    conformance::check(runs);
}

#[test]
fn a_set_links_and_each_end_measures_each_leg() {
    let mut pair = Pair::new(counted);
    let wire = pair.launch(NOW).unwrap();
    let at = Time::from_millis;
    pair.deliver(at(20), Side::Exit, wire).unwrap();
    let leg = PathId(0);
    assert_eq!(pair.end(Side::Exit).rtt(leg), None, "not before LINKED_ACK");
    assert_eq!(pair.end(Side::Exit).linked_legs(), 1, "but it may receive");
    pair.deliver(at(50), Side::Client, wire).unwrap();
    assert_eq!(pair.end(Side::Client).rtt(leg), Some(Duration::from_millis(50)));
    pair.deliver(at(75), Side::Exit, wire).unwrap();
    assert_eq!(pair.end(Side::Exit).rtt(leg), Some(Duration::from_millis(55)));
    assert_eq!(pair.end(Side::Exit).desired(), DesiredUx::HighThroughput);
}

#[test]
fn a_stream_may_begin_before_the_acknowledgement_that_it_overtook() {
    let mut pair = Pair::new(counted);
    pair.link(NOW, 1);
    let wire = pair.launch(NOW).unwrap();
    pair.deliver(NOW, Side::Exit, wire).unwrap();
    pair.deliver(NOW, Side::Client, wire).unwrap();
    pair.send(Side::Client, 0).unwrap();
    pair.deliver(NOW, Side::Exit, 0).unwrap();
    pair.send(Side::Client, wire).unwrap();
    pair.deliver(NOW, Side::Exit, wire).unwrap();
    while pair.deliver(NOW, Side::Exit, wire).unwrap() {}
    assert_eq!(pair.transferred(Side::Exit), (2, 2));
}

#[test]
fn a_leg_whose_other_end_is_silent_is_late() {
    let (mut client, mut exit) = (client(), exit());
    let (leg, _) = client.launch(NOW, DesiredUx::None).unwrap();
    join(&mut exit).unwrap();
    for end in [&mut client, &mut exit] {
        let due = end.next_timeout().unwrap();
        assert_eq!(due, Time::from_secs(60));
        assert_eq!(end.late(Time::from_millis(59_999)).count(), 0);
        assert_eq!(end.late(due).collect::<Vec<_>>(), [leg]);
    }
    exit.acknowledged(NOW, leg).unwrap();
    assert_eq!(exit.next_timeout(), None);
}

#[test]
fn linked_mirrors_the_numbers_of_link() {
    let mut exit = exit();
    let first = join(&mut exit).unwrap();
    (0..9).for_each(|_| assert!(matches!(data(&mut exit, first), Ok(Arrival::Now(_)))));
    (0..5).for_each(|_| assert_eq!(exit.send(first), Ok(Mark::Nothing)));
    let (second, linked) = exit.link(NOW, &link(7, 3), true, DesiredUx::None).unwrap();
    assert_eq!((linked.sent, linked.received), (3, 7));
    switch(&mut exit, second, 2).unwrap();
    assert!(matches!(data(&mut exit, second), Ok(Arrival::Now(_))), "number 10");
    assert_eq!(exit.send(second), Ok(Mark::Switch(2)));
}

#[test]
fn messages_that_only_the_other_role_says_are_refused() {
    let (mut client, mut exit) = (client(), exit());
    let (leg, _) = client.launch(NOW, DesiredUx::None).unwrap();
    assert_eq!(join(&mut client), Err(ConfluxFault::Role));
    assert_eq!(client.acknowledged(NOW, leg), Err(ConfluxFault::Role));
    let leg = join(&mut exit).unwrap();
    assert_eq!(exit.linked(NOW, leg, &link(0, 0)), Err(ConfluxFault::Role));
    assert_eq!(exit.launch(NOW, DesiredUx::None).unwrap_err(), ConfluxFault::Role);
}

#[test]
fn what_is_said_once_is_refused_the_second_time() {
    let (mut client, mut exit) = (client(), exit());
    let (leg, _) = client.launch(NOW, DesiredUx::None).unwrap();
    client.linked(NOW, leg, &link(0, 0)).unwrap();
    assert_eq!(client.linked(NOW, leg, &link(0, 0)), Err(ConfluxFault::Twice));
    let leg = join(&mut exit).unwrap();
    exit.acknowledged(NOW, leg).unwrap();
    assert_eq!(exit.acknowledged(Time::from_secs(9), leg), Err(ConfluxFault::Twice));
    assert_eq!(exit.rtt(leg), Some(Duration::ZERO), "C tor lets a second one rewrite it");
}

#[test]
fn a_message_of_a_set_on_a_circuit_that_is_no_leg_is_refused() {
    let mut exit = exit();
    join(&mut exit).unwrap();
    let none = PathId(1);
    assert_eq!(exit.acknowledged(NOW, none), Err(ConfluxFault::NotLinked));
    assert_eq!(switch(&mut exit, none, 3), Err(ConfluxFault::NotLinked));
    assert_eq!(data(&mut exit, none), Err(ConfluxFault::NotLinked));
    let mut client = client();
    let (leg, _) = client.launch(NOW, DesiredUx::None).unwrap();
    assert_eq!(switch(&mut client, leg, 3), Err(ConfluxFault::NotLinked), "LINKED has not come");
    assert_eq!(client.send(leg), Err(ConfluxFault::NotLinked));
}

#[test]
fn data_loss_closes_the_set_and_all_else_the_leg() {
    let mut exit = exit();
    let answer = exit.link(NOW, &link(1, 0), true, DesiredUx::None);
    assert_eq!(answer.unwrap_err(), ConfluxFault::DataLoss, "an unknown set, and yet it was used");
    assert_eq!(ConfluxFault::DataLoss.closes(), Closes::Set);
    assert_eq!(ConfluxFault::Incoherent.closes(), Closes::Set);
    for fault in [ConfluxFault::Repeated, ConfluxFault::TooManyLegs, ConfluxFault::Nonce] {
        assert_eq!(fault.closes(), Closes::Leg);
    }
}

#[test]
fn a_number_that_was_there_before_closes_the_leg() {
    let mut exit = exit();
    let (first, second) = (join(&mut exit).unwrap(), join(&mut exit).unwrap());
    assert!(matches!(data(&mut exit, first), Ok(Arrival::Now(_))));
    assert_eq!(data(&mut exit, second), Err(ConfluxFault::Repeated), "number 1 again");
    switch(&mut exit, first, 4).unwrap();
    assert_eq!(data(&mut exit, first), Ok(Arrival::Later));
    switch(&mut exit, second, 4).unwrap();
    assert_eq!(data(&mut exit, second), Err(ConfluxFault::Repeated), "number 6 waits already");
}

#[test]
fn a_set_outlives_a_leg_that_it_does_not_need() {
    let mut pair = Pair::new(counted);
    pair.link(NOW, 3);
    for wire in [2, 0, 1] {
        pair.send(Side::Client, wire).unwrap();
        while pair.deliver(NOW, Side::Exit, wire).unwrap() {}
    }
    assert_eq!(pair.cut(0, [false; 2]), [Fate::Lives; 2]);
    pair.send(Side::Client, 2).unwrap();
    while pair.deliver(NOW, Side::Exit, 2).unwrap() {}
    assert_eq!(pair.transferred(Side::Exit), (4, 4));
}

#[test]
fn a_set_dies_with_the_leg_that_sends_that_leads_or_that_has_data_under_way() {
    let cut = |wire: usize, unacknowledged: bool| {
        let mut pair = Pair::new(counted);
        pair.link(NOW, 3);
        for wire in [0, 1] {
            pair.send(Side::Client, wire).unwrap();
            while pair.deliver(NOW, Side::Exit, wire).unwrap() {}
        }
        pair.cut(wire, [unacknowledged; 2])
    };
    assert_eq!(cut(0, false), [Fate::Lives; 2]);
    assert_eq!(cut(2, false), [Fate::Lives; 2]);
    assert_eq!(cut(0, true), [Fate::Dies; 2], "as many under way as a SENDME covers");
    assert_eq!(cut(1, false), [Fate::Dies; 2], "the highest number sent, and received");
}

#[test]
fn a_message_that_was_lost_with_its_leg_ends_the_set_instead_of_hanging_it() {
    let mut pair = Pair::new(counted);
    pair.link(NOW, 3);
    // Number 1 is lost with the first leg; fewer than a SENDME's were under way.
    pair.send(Side::Client, 0).unwrap();
    pair.send(Side::Client, 1).unwrap();
    assert_eq!(pair.cut(0, [false; 2]), [Fate::Lives; 2], "by the rules of C tor");
    pair.deliver(NOW, Side::Exit, 1).unwrap();
    pair.deliver(NOW, Side::Exit, 1).expect("the third leg might still bring it");
    pair.send(Side::Client, 2).unwrap();
    pair.deliver(NOW, Side::Exit, 2).unwrap();
    assert_eq!(pair.deliver(NOW, Side::Exit, 2), Err(ConfluxFault::DataLoss));
}

#[test]
fn trove_2026_004_every_byte_of_a_nonce_is_compared() {
    for at in 0..32 {
        let mut nonce = NONCE;
        nonce[at] ^= 1;
        let other = ConfluxLink { nonce: SetNonce::from(nonce), ..link(0, 0) };
        let mut client = client();
        let (leg, _) = client.launch(NOW, DesiredUx::None).unwrap();
        assert_eq!(client.linked(NOW, leg, &other), Err(ConfluxFault::Nonce), "byte {at}");
        assert_eq!(client.lose(leg, false), Fate::Lives, "the client may launch another");
        let refused = exit().link(NOW, &other, true, DesiredUx::None);
        assert_eq!(refused.unwrap_err(), ConfluxFault::Nonce);
    }
}

#[test]
fn trove_2026_008_legs_carry_no_directory_streams_and_are_not_extended() {
    let refused: Vec<u8> = (0..=255).filter(|n| !may_carry(RelayCommand(*n))).collect();
    assert_eq!(refused, [6, 13, 14], "EXTEND, BEGIN_DIR, EXTEND2");
}

#[test]
fn trove_2026_010_nothing_is_accounted_for_after_teardown() {
    let mut exit = exit();
    let (first, second) = (join(&mut exit).unwrap(), join(&mut exit).unwrap());
    switch(&mut exit, second, 1).unwrap();
    let mut refused = Ok(Arrival::Later);
    while refused.is_ok() {
        refused = data(&mut exit, second);
    }
    assert_eq!(refused, Err(ConfluxFault::Full));
    assert!(exit.bytes() > (1 << 20) - 600 && exit.bytes() <= exit.queue().budget());
    assert_eq!(exit.lose(second, false), Fate::Dies);
    assert_eq!((exit.bytes(), exit.linked_legs()), (0, 0));
    assert_eq!(data(&mut exit, first), Err(ConfluxFault::Gone));
}

#[test]
fn trove_2026_014_and_41162_a_set_may_be_closed_from_inside_a_message_of_it() {
    let mut exit = exit();
    let (first, second) = (join(&mut exit).unwrap(), join(&mut exit).unwrap());
    switch(&mut exit, second, 1).unwrap();
    (0..9).for_each(|_| assert_eq!(data(&mut exit, second), Ok(Arrival::Later)));
    assert!(matches!(data(&mut exit, first), Ok(Arrival::Now(_))), "the gap is filled");
    assert!(exit.pop().is_some());
    // That message was bad: the set is closed while others wait.
    exit.die();
    assert_eq!((exit.pop(), exit.bytes()), (None, 0));
    assert_eq!(data(&mut exit, first), Err(ConfluxFault::Gone));
}

#[test]
fn trove_2026_017_a_leg_may_be_lost_between_a_switch_and_what_follows_it() {
    let mut pair = Pair::new(counted);
    pair.link(NOW, 2);
    pair.send(Side::Client, 0).unwrap();
    pair.deliver(NOW, Side::Exit, 0).unwrap();
    pair.send(Side::Client, 1).unwrap();
    pair.deliver(NOW, Side::Exit, 1).expect("the SWITCH");
    // Each end judges alone: the exit has not got what followed.
    assert_eq!(pair.cut(1, [false; 2]), [Fate::Dies, Fate::Lives]);
    assert_eq!(pair.send(Side::Client, 0), Err(ConfluxFault::Gone));
    assert_eq!(pair.send(Side::Exit, 0), Ok(()));
}

#[test]
fn trove_2026_025_a_circuit_that_had_a_stream_cannot_be_linked() {
    let mut exit = exit();
    let refused = exit.link(NOW, &link(0, 0), false, DesiredUx::None);
    assert_eq!(refused.unwrap_err(), ConfluxFault::Streams);
    assert_eq!(exit.linked_legs(), 0);
}

#[test]
fn trove_2026_026_no_leg_revives_a_set_whose_last_linked_leg_has_closed() {
    let mut client = client();
    let legs = [(); 3].map(|()| client.launch(NOW, DesiredUx::None).unwrap().0);
    legs[..2].iter().for_each(|leg| client.linked(NOW, *leg, &link(0, 0)).unwrap());
    assert_eq!(client.lose(legs[0], false), Fate::Lives);
    assert_eq!(client.lose(legs[1], false), Fate::Dies);
    assert_eq!(client.linked(NOW, legs[2], &link(0, 0)), Err(ConfluxFault::Gone));
    assert_eq!(client.launch(NOW, DesiredUx::None).unwrap_err(), ConfluxFault::Gone);
    assert_eq!(client.lose(legs[2], false), Fate::Dies);
}

#[test]
fn trove_2023_007_both_ends_agree_that_a_ninth_leg_is_none() {
    let (mut client, mut exit) = (client(), exit());
    for _ in 0..8 {
        client.launch(NOW, DesiredUx::None).unwrap();
        join(&mut exit).unwrap();
    }
    for _ in 8..300 {
        assert_eq!(join(&mut exit), Err(ConfluxFault::TooManyLegs));
    }
    assert_eq!(client.launch(NOW, DesiredUx::None).unwrap_err(), ConfluxFault::TooManyLegs);
    assert_eq!(exit.linked_legs(), 8);
    assert_eq!(exit.lose(PathId(3), false), Fate::Lives);
    assert_eq!(join(&mut exit), Ok(PathId(3)), "a place that is free again");
}

#[test]
fn issue_41155_numbers_beyond_all_bounds_are_refused() {
    let mut exit = exit();
    let first = join(&mut exit).unwrap();
    for (sent, received) in [(0, 1 << 63), (0, 1), (u64::MAX, u64::MAX)] {
        let refused = exit.link(NOW, &link(sent, received), true, DesiredUx::None);
        assert_eq!(refused.unwrap_err(), ConfluxFault::DataLoss, "{sent} {received}");
    }
    for _ in 0..2 {
        assert_eq!(switch(&mut exit, first, u32::MAX), Err(ConfluxFault::TooFar));
    }
    assert!(matches!(data(&mut exit, first), Ok(Arrival::Now(_))), "and nothing has moved");
}

#[test]
fn issue_40842_a_set_that_is_gone_has_no_leg_to_send_by() {
    let mut pair = Pair::new(counted);
    pair.link(NOW, 2);
    for side in [Side::Client, Side::Exit] {
        pair.end(side).die();
        assert_eq!(pair.send(side, 0), Err(ConfluxFault::Gone));
        assert_eq!(pair.end(side).next_timeout(), None);
        assert_eq!(pair.end(side).linked_legs(), 0);
    }
}

#[test]
fn a_flood_of_switches_is_none_and_injected_ones_are_refused() {
    let mut exit = exit();
    let leg = join(&mut exit).unwrap();
    switch(&mut exit, leg, 1).unwrap();
    for by in 1..1_000 {
        assert_eq!(switch(&mut exit, leg, by), Err(ConfluxFault::SwitchTwice));
    }
    assert_eq!(switch(&mut exit, leg, 0), Err(ConfluxFault::SwitchZero));
}

#[test]
fn what_has_no_number_passes_and_moves_nothing() {
    let mut exit = exit();
    let leg = join(&mut exit).unwrap();
    let cases = [
        (RelayCommand::SENDME, 0),
        (RelayCommand::DROP, 0),
        (RelayCommand::BEGIN, 0),
        (RelayCommand::END, 0),
        (RelayCommand::BEGIN_DIR, 1),
    ];
    for (command, stream) in cases {
        let message = Message { command, stream, data: &[1] };
        assert_eq!(exit.receive(leg, message), Ok(Arrival::Now(&[1][..])));
    }
    assert_eq!(exit.queue().next_number(), 1);
}
