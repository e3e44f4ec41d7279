//! Peers that violate the protocol, and strangers that send any datagrams.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anabranch_links::quic::{
    Arrival, Congestion, Endpoint, EndpointInput, EndpointOutput, Head, UnitReader, Units,
};
use anabranch_links::{Context, Fault, Link as _, State};
use anabranch_multipath::Core as _;
use anabranch_multipath::seed::stream;
use anabranch_netem::LinkSettings;
use rand::{Rng, RngExt};

use anabranch_testkit::quic_pair::{
    self as world, DATA, ENDS, MAKES, NOW, QuicPair as World, UNIT, UNITS, head, line, unit,
    units_of,
};

const DELAY: Duration = Duration::from_millis(50);

/// Parser of a peer for which every unit creates its lane.
fn all_make(bytes: &[u8], first: bool) -> Option<Head> {
    head(bytes, first).map(|head| Head { makes: true, ..head })
}

/// Parser of a peer that sends all lanes in one stream.
fn all_one(bytes: &[u8], first: bool) -> Option<Head> {
    head(bytes, first).map(|head| Head { lane: head.lane.min(1), ..head })
}

/// Parser of a peer whose units exceed the maximum length.
fn all_long(bytes: &[u8], first: bool) -> Option<Head> {
    let length = |head: Head| if bytes[4] > 127 { 7 + 60_000 } else { head.length };
    head(bytes, first).map(|head| Head { length: length(head), ..head })
}

/// Parser of a peer that ends each lane after its second unit.
fn none_ends(bytes: &[u8], first: bool) -> Option<Head> {
    head(bytes, first).map(|head| Head { ends: bytes[4] == DATA, ..head })
}

/// A hostile peer: a name, the parser of its own units, and the units that it sends.
type Case = (&'static str, fn(&[u8], bool) -> Option<Head>, Vec<Vec<u8>>);

fn against(head: fn(&[u8], bool) -> Option<Head>) -> World {
    let units = [Units { head, longest: 100_000, ..UNITS }, UNITS];
    World::with_units(units, &line(DELAY), 1).opened()
}

#[test]
fn a_peer_that_breaks_the_rules_of_lanes_loses_its_link() {
    let mut long = vec![0; 7 + 60_000];
    long[4..7].copy_from_slice(&[200, 0xea, 0x60]);
    let mut long_for_a_lane = vec![0; 7 + 600];
    long_for_a_lane[..7].copy_from_slice(&[0, 0, 0, 5, 129, 2, 88]);
    let cases: [Case; 5] = [
        ("nothing made it", all_make, vec![unit(5, DATA, 0)]),
        ("another lane's", all_one, vec![unit(1, MAKES, 0), unit(7, DATA, 1)]),
        ("made again", all_one, vec![unit(1, MAKES, 0), unit(1, MAKES, 1)]),
        ("too long", all_long, vec![long]),
        ("too long for a lane", head, vec![unit(5, MAKES, 0), long_for_a_lane]),
    ];
    for (name, head, units) in cases {
        let mut world = against(head);
        units.iter().for_each(|unit| world.write(0, unit));
        world.run(Duration::from_secs(3));
        assert_eq!(world.state(0), Some(State::Ended), "{name}");
        assert_eq!(world.state(1), None, "{name}: closed");
    }
}

#[test]
fn a_lane_whose_stream_breaks_off_has_ended() {
    let mut world = against(none_ends);
    world.write(0, &unit(1, MAKES, 0));
    world.write(0, &unit(1, DATA, 1));
    world.run(Duration::from_secs(1));
    assert_eq!(units_of(&world.received[1]), [(1, MAKES, 0), (1, DATA, 1), (1, ENDS, 0)]);
    assert_eq!(world.state(1), Some(State::Open), "others go on");
    assert_eq!(world.link(1).lanes(), 0);
}

#[test]
fn garbage_makes_no_link_and_no_answer_larger_than_itself() {
    let mut world = World::open(&LinkSettings::default(), 1);
    let mut dice = stream(1, 0, "garbage");
    let (mut sent, mut answered) = (0, 0);
    for number in 0..20_000u32 {
        let mut bytes = vec![0; dice.random_range(0..1_500)];
        dice.fill_bytes(&mut bytes);
        if let Some(first) = bytes.first_mut().filter(|_| number % 2 == 0) {
            // The first byte marks a long header, and the next four bytes are version 1.
            *first |= 0xc0;
            bytes.iter_mut().skip(1).zip([0, 0, 0, 1]).for_each(|(byte, version)| *byte = version);
        }
        sent += bytes.len();
        let from = SocketAddr::from((Ipv4Addr::new(198, 51, 100, 7), 1_000));
        world.deliver(1, from, &bytes);
        while let Some(output) = world.ends[1].poll(world.now) {
            let EndpointOutput::Answer(packets, answer) = output else { continue };
            assert_eq!(packets.to, from);
            assert!(answer.len() <= bytes.len(), "it amplifies");
            answered += answer.len();
        }
    }
    assert!(answered <= sent);
    assert_eq!((world.ends[1].len(), world.state(1)), (1, Some(State::Open)));
}

/// Returns first datagrams of clients that send nothing more, as with forged addresses.
fn initials(count: u64) -> Vec<Vec<u8>> {
    let context = Context::new(NOW).unwrap();
    let first = |number: u64| {
        let seed = [number.to_le_bytes(); 4].concat().try_into().unwrap();
        let mut client = Endpoint::new(&context, UNITS, seed, None, Congestion::default()).unwrap();
        let id = client.connect(anabranch_multipath::Time::ZERO, world::address(1), None).unwrap();
        let mut bytes = Vec::new();
        client.transmit(anabranch_multipath::Time::ZERO, id, &mut bytes).unwrap();
        bytes
    };
    (0..count).map(first).collect()
}

#[test]
fn a_flood_is_asked_for_its_address_and_an_honest_peer_still_comes_in() {
    let mut world = World::new(&line(DELAY), 1);
    let mut taken = 0;
    for (number, bytes) in initials(200).iter().enumerate() {
        let from = SocketAddr::from((Ipv4Addr::new(198, 51, 100, number as u8), 1_000));
        let arrival = Arrival { from, to: None, ecn: 0, bytes };
        let admit = &mut |_, _| {
            taken += 1;
            true
        };
        world.ends[1].handle(world.now, EndpointInput { arrival, admit });
        let mut sent = 0;
        while let Some(output) = world.ends[1].poll(world.now) {
            match output {
                EndpointOutput::Answer(_, answer) => sent += answer.len(),
                EndpointOutput::Touched(id) => {
                    let mut out = Vec::new();
                    while world.ends[1].transmit(world.now, id, &mut out).is_some() {
                        sent += out.len();
                    }
                }
            }
        }
        assert!(sent <= 3 * bytes.len(), "RFC 9000, 8.1: {sent} for {}", bytes.len());
    }
    assert_eq!((taken, world.ends[1].counts().retried), (16, 184));
    assert_eq!(world.ends[1].len(), 16, "no state for the others");
    // A client at its real address still gets a link, after a Retry.
    let id = world.ends[0].connect(world.now, world::address(1), None).unwrap();
    let mut out = Vec::new();
    for _ in 0..20 {
        while world.ends[0].transmit(world.now, id, &mut out).is_some() {
            world.deliver(1, world::address(0), &out.clone());
        }
        let mut answers = Vec::new();
        while let Some(output) = world.ends[1].poll(world.now) {
            let there = match output {
                EndpointOutput::Touched(there) => there,
                EndpointOutput::Answer(packets, answer) => {
                    answers.extend((packets.to == world::address(0)).then_some(answer));
                    continue;
                }
            };
            while let Some(packets) = world.ends[1].transmit(world.now, there, &mut out) {
                let stride = if packets.stride == 0 { out.len() } else { packets.stride };
                answers.extend(
                    out.chunks(stride)
                        .map(<[u8]>::to_vec)
                        .filter(|_| packets.to == world::address(0)),
                );
            }
        }
        answers.iter().for_each(|bytes| world.deliver(0, world::address(1), bytes));
        while world.ends[0].poll(world.now).is_some() {}
    }
    assert_eq!(world.ends[0].link(id).unwrap().state(), State::Open);
    // The handshakes of the flood time out.
    world.run(Duration::from_secs(120));
    assert!(world.ends[1].counts().broken >= 16);
}

#[test]
fn who_is_not_admitted_gets_no_link() {
    let mut world = World::new(&line(DELAY), 1);
    let bytes = initials(1).remove(0);
    let arrival = Arrival { from: world::address(0), to: None, ecn: 0, bytes: &bytes };
    world.ends[1].handle(world.now, EndpointInput { arrival, admit: &mut |_, _| false });
    assert_eq!((world.ends[1].len(), world.ends[1].counts().refused), (0, 1));
    let output = world.ends[1].poll(world.now);
    assert!(matches!(output, Some(EndpointOutput::Answer(..))), "it is told");
}

#[test]
fn nobody_opens_links_at_an_endpoint_that_takes_none() {
    let mut world = World::new(&line(DELAY), 1);
    let bytes = initials(1).remove(0);
    world.deliver(0, world::address(1), &bytes);
    assert!(world.ends[0].is_empty());
}

#[test]
fn units_come_back_from_any_pieces() {
    let mut dice = stream(2, 0, "pieces");
    for round in 0..200u32 {
        let mut bytes = unit(3, MAKES, 0);
        (1..20).for_each(|number| bytes.extend(unit(3, DATA, number)));
        let (mut reader, mut received) = (UnitReader::unnamed(), Vec::new());
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let most = if round % 2 == 0 { 3 } else { 3 * UNIT };
            let (mut piece, tail) = rest.split_at(dice.random_range(0..=most.min(rest.len())));
            rest = tail;
            while reader.next(&UNITS, &mut piece, &mut received).unwrap().is_some() {
                if round % 4 < 2 {
                    reader.next_run(&UNITS, &mut piece, &mut received);
                }
            }
            assert!(piece.is_empty());
        }
        assert_eq!(received, bytes);
        assert!(!reader.is_within());
    }
}

#[test]
fn a_run_ends_before_a_unit_that_does_not_continue_the_lane() {
    let run = |reader: &mut UnitReader, last: &[u8]| {
        let bytes = [&unit(3, DATA, 1)[..], &unit(3, DATA, 2), last].concat();
        let (mut rest, mut received) = (&bytes[..], Vec::new());
        reader.next_run(&UNITS, &mut rest, &mut received);
        assert_eq!([&received[..], rest].concat(), bytes);
        received.len()
    };
    let whole = unit(3, DATA, 3);
    assert_eq!(run(&mut UnitReader::of(3), &whole), 3 * UNIT);
    assert_eq!(run(&mut UnitReader::of(3), &whole[..UNIT - 1]), 2 * UNIT, "incomplete");
    for (lane, command) in [(3, ENDS), (3, MAKES), (4, DATA)] {
        assert_eq!(run(&mut UnitReader::of(3), &unit(lane, command, 3)), 2 * UNIT);
    }
    let too_long = [0, 0, 0, 3, 200, 2, 0];
    let too_long = [&too_long[..], &[0; UNIT]].concat();
    assert_eq!(run(&mut UnitReader::of(3), &too_long), 2 * UNIT);
    assert_eq!(run(&mut UnitReader::own(), &whole), 0, "the link's own lane has no runs");
    assert_eq!(run(&mut UnitReader::unnamed(), &whole), 0, "the lane is not known yet");
    let (mut reader, mut part) = (UnitReader::of(3), &whole[..1]);
    assert_eq!(reader.next(&UNITS, &mut part, &mut Vec::new()).unwrap(), None);
    assert_eq!(run(&mut reader, &whole), 0, "within a unit");
}

#[test]
fn units_out_of_place_are_faults() {
    let refuses = |mut reader: UnitReader, bytes: &[u8]| {
        let mut rest = bytes;
        matches!(reader.next(&UNITS, &mut rest, &mut Vec::new()), Err(Fault::Peer(_)))
    };
    assert!(refuses(UnitReader::own(), &unit(1, MAKES, 0)), "a lane's in the link's own stream");
    assert!(refuses(UnitReader::unnamed(), &unit(0, MAKES, 0)), "the link's in a lane's");
    assert!(refuses(UnitReader::unnamed(), &unit(1, DATA, 0)), "made by nothing");
    assert!(refuses(UnitReader::of(1), &unit(2, DATA, 0)), "another's");
    assert!(refuses(UnitReader::of(1), &unit(1, MAKES, 0)), "made twice");
    assert!(refuses(UnitReader::own(), &[0, 0, 0, 0, 200, 0xff, 0xff]), "too long");
}
