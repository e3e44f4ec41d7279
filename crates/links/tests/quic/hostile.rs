//! Peers that violate the protocol, and strangers that send any datagrams.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anabranch_links::quic::{
    Arrival, CellFormat, CellReader, Congestion, Endpoint, EndpointInput, EndpointOutput, Head,
};
use anabranch_links::{Context, Fault, Link as _, State};
use anabranch_multipath::Core as _;
use anabranch_multipath::seed::stream;
use anabranch_netem::LinkSettings;
use rand::{Rng, RngExt};

use anabranch_testkit::quic_pair::{
    self as world, CELL, CREATES, DATA, ENDS, FORMAT, NOW, QuicPair as World, cell, cells_of, head,
    line,
};

const DELAY: Duration = Duration::from_millis(50);

/// Parser of a peer for which every cell creates its circuit.
fn all_make(bytes: &[u8], first: bool) -> Option<Head> {
    head(bytes, first).map(|head| Head { creates: true, ..head })
}

/// Parser of a peer that sends all circuits in one stream.
fn all_one(bytes: &[u8], first: bool) -> Option<Head> {
    head(bytes, first).map(|head| Head { circuit: head.circuit.min(1), ..head })
}

/// Parser of a peer whose cells exceed the maximum length.
fn all_long(bytes: &[u8], first: bool) -> Option<Head> {
    let length = |head: Head| if bytes[4] > 127 { 7 + 60_000 } else { head.length };
    head(bytes, first).map(|head| Head { length: length(head), ..head })
}

/// Parser of a peer that ends each circuit after its second cell.
fn none_ends(bytes: &[u8], first: bool) -> Option<Head> {
    head(bytes, first).map(|head| Head { ends: bytes[4] == DATA, ..head })
}

/// A hostile peer: a name, the parser of its own cells, and the cells that it sends.
type Case = (&'static str, fn(&[u8], bool) -> Option<Head>, Vec<Vec<u8>>);

fn against(head: fn(&[u8], bool) -> Option<Head>) -> World {
    let cells = [CellFormat { head, longest: 100_000, ..FORMAT }, FORMAT];
    World::with_formats(cells, &line(DELAY), 1).opened()
}

#[test]
fn a_peer_that_breaks_the_rules_of_circuits_loses_its_link() {
    let mut long = vec![0; 7 + 60_000];
    long[4..7].copy_from_slice(&[200, 0xea, 0x60]);
    let mut long_for_a_circuit = vec![0; 7 + 600];
    long_for_a_circuit[..7].copy_from_slice(&[0, 0, 0, 5, 129, 2, 88]);
    let cases: [Case; 5] = [
        ("nothing made it", all_make, vec![cell(5, DATA, 0)]),
        ("another circuit's", all_one, vec![cell(1, CREATES, 0), cell(7, DATA, 1)]),
        ("made again", all_one, vec![cell(1, CREATES, 0), cell(1, CREATES, 1)]),
        ("too long", all_long, vec![long]),
        ("too long for a circuit", head, vec![cell(5, CREATES, 0), long_for_a_circuit]),
    ];
    for (name, head, cells) in cases {
        let mut world = against(head);
        cells.iter().for_each(|cell| world.write(0, cell));
        world.run(Duration::from_secs(3));
        assert_eq!(world.state(0), Some(State::Ended), "{name}");
        assert_eq!(world.state(1), None, "{name}: closed");
    }
}

#[test]
fn a_circuit_whose_stream_breaks_off_has_ended() {
    let mut world = against(none_ends);
    world.write(0, &cell(1, CREATES, 0));
    world.write(0, &cell(1, DATA, 1));
    world.run(Duration::from_secs(1));
    assert_eq!(cells_of(&world.received[1]), [(1, CREATES, 0), (1, DATA, 1), (1, ENDS, 0)]);
    assert_eq!(world.state(1), Some(State::Open), "others go on");
    assert_eq!(world.link(1).circuits(), 0);
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
        let mut client =
            Endpoint::new(&context, FORMAT, seed, None, Congestion::default()).unwrap();
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
fn cells_come_back_from_any_pieces() {
    let mut dice = stream(2, 0, "pieces");
    for round in 0..200u32 {
        let mut bytes = cell(3, CREATES, 0);
        (1..20).for_each(|number| bytes.extend(cell(3, DATA, number)));
        let (mut reader, mut received) = (CellReader::unnamed(), Vec::new());
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let most = if round % 2 == 0 { 3 } else { 3 * CELL };
            let (mut piece, tail) = rest.split_at(dice.random_range(0..=most.min(rest.len())));
            rest = tail;
            while reader.next(&FORMAT, &mut piece, &mut received).unwrap().is_some() {
                if round % 4 < 2 {
                    reader.next_run(&FORMAT, &mut piece, &mut received);
                }
            }
            assert!(piece.is_empty());
        }
        assert_eq!(received, bytes);
        assert!(!reader.is_within());
    }
}

#[test]
fn a_run_ends_before_a_cell_that_does_not_continue_the_circuit() {
    let run = |reader: &mut CellReader, last: &[u8]| {
        let bytes = [&cell(3, DATA, 1)[..], &cell(3, DATA, 2), last].concat();
        let (mut rest, mut received) = (&bytes[..], Vec::new());
        reader.next_run(&FORMAT, &mut rest, &mut received);
        assert_eq!([&received[..], rest].concat(), bytes);
        received.len()
    };
    let whole = cell(3, DATA, 3);
    assert_eq!(run(&mut CellReader::of(3), &whole), 3 * CELL);
    assert_eq!(run(&mut CellReader::of(3), &whole[..CELL - 1]), 2 * CELL, "incomplete");
    for (circuit, command) in [(3, ENDS), (3, CREATES), (4, DATA)] {
        assert_eq!(run(&mut CellReader::of(3), &cell(circuit, command, 3)), 2 * CELL);
    }
    let too_long = [0, 0, 0, 3, 200, 2, 0];
    let too_long = [&too_long[..], &[0; CELL]].concat();
    assert_eq!(run(&mut CellReader::of(3), &too_long), 2 * CELL);
    assert_eq!(run(&mut CellReader::own(), &whole), 0, "the link's own circuit has no runs");
    assert_eq!(run(&mut CellReader::unnamed(), &whole), 0, "the circuit is not known yet");
    let (mut reader, mut part) = (CellReader::of(3), &whole[..1]);
    assert_eq!(reader.next(&FORMAT, &mut part, &mut Vec::new()).unwrap(), None);
    assert_eq!(run(&mut reader, &whole), 0, "within a cell");
}

#[test]
fn cells_out_of_place_are_faults() {
    let refuses = |mut reader: CellReader, bytes: &[u8]| {
        let mut rest = bytes;
        matches!(reader.next(&FORMAT, &mut rest, &mut Vec::new()), Err(Fault::Peer(_)))
    };
    assert!(
        refuses(CellReader::own(), &cell(1, CREATES, 0)),
        "a circuit's in the link's own stream"
    );
    assert!(refuses(CellReader::unnamed(), &cell(0, CREATES, 0)), "the link's in a circuit's");
    assert!(refuses(CellReader::unnamed(), &cell(1, DATA, 0)), "made by nothing");
    assert!(refuses(CellReader::of(1), &cell(2, DATA, 0)), "another's");
    assert!(refuses(CellReader::of(1), &cell(1, CREATES, 0)), "made twice");
    assert!(refuses(CellReader::own(), &[0, 0, 0, 0, 200, 0xff, 0xff]), "too long");
}
