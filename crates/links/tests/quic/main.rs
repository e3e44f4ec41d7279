//! QUIC links in memory: two endpoints over lines that lose, delay, duplicate and change
//! datagrams, and datagrams from strangers.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy only knows the tests themselves")]

mod conformance;
mod hostile;
mod lossy;

use std::num::NonZeroU64;
use std::time::Duration;

use anabranch_links::quic::Congestion;
use anabranch_links::{Context, Fault, Link as _, State, StreamLink as _, Tls};
use anabranch_multipath::Time;
use anabranch_netem::{LinkSettings, Loss};

use anabranch_testkit::quic_pair::{
    CELL, CREATES, DATA, ENDS, NOW, QuicPair as World, address, cell, cells_of, line,
};

const DELAY: Duration = Duration::from_millis(50);

/// The datagram with a cell of the first of ten circuits is lost. The later cells of the nine other
/// circuits arrive after the one-way delay, the lost cell after its retransmission.
#[test]
fn a_lost_datagram_delays_its_own_circuit_alone() {
    let mut world = World::open(&line(DELAY), 5);
    for circuit in 1..=10 {
        world.write(0, &cell(circuit, CREATES, 0));
        world.run(Duration::from_millis(5));
    }
    world.run(Duration::from_secs(1));
    world.received[1].clear();
    let before = world.sent[0];
    world.lose.push((0, before));
    for circuit in 1..=10 {
        world.write(0, &cell(circuit, DATA, 1));
        world.run(Duration::from_millis(1));
    }
    assert_eq!(world.sent[0], before + 10, "a datagram each");
    world.run(DELAY);
    let received: Vec<u32> = cells_of(&world.received[1]).into_iter().map(|cell| cell.0).collect();
    assert_eq!(received, (2..=10).collect::<Vec<u32>>(), "all but the lost one");
    world.run(4 * DELAY);
    assert_eq!(cells_of(&world.received[1]).last(), Some(&(1, DATA, 1)), "sent again");
}

/// One call writes the cells of three circuits in turn. One circuit begins and one ends among them.
#[test]
fn cells_of_many_circuits_written_at_once_keep_the_order_of_each() {
    let mut world = World::open(&line(DELAY), 6);
    let opened = [cell(1, CREATES, 0), cell(2, CREATES, 0)].concat();
    world.write(0, &opened);
    world.run(Duration::from_secs(1));
    world.received[1].clear();
    let mut cells = cell(0, DATA, 0);
    for number in 1..=9 {
        cells.extend(cell(1, DATA, number));
        match number {
            1..=4 => cells.extend(cell(2, DATA, number)),
            5 => cells.extend([cell(2, ENDS, 5), cell(3, CREATES, 5)].concat()),
            _ => cells.extend([cell(3, DATA, number), cell(2, DATA, number)].concat()),
        }
    }
    world.write(0, &cells);
    world.run(Duration::from_secs(1));
    let received = cells_of(&world.received[1]);
    let of = |circuit| {
        let numbers = received.iter().filter(|cell| cell.0 == circuit).map(|cell| cell.2);
        numbers.collect::<Vec<u32>>()
    };
    assert_eq!([of(1), of(3)], [(1..=9).collect::<Vec<u32>>(), (5..=9).collect()]);
    assert_eq!(of(2), (1..=5).collect::<Vec<u32>>(), "nothing follows the end of a circuit");
    assert_eq!(of(0), [0]);
}

/// In comparison, the nine cells wait for the lost one over TLS.
#[test]
fn over_tls_all_circuits_wait_for_a_lost_segment() {
    let context = Context::new(NOW).unwrap();
    let mut ends: [Tls; 2] = [context.connect().unwrap(), context.accept().unwrap()];
    let carry = |ends: &mut [Tls; 2]| {
        for (from, to) in [(0, 1), (1, 0)].repeat(3) {
            let mut wire = Vec::new();
            ends[from].transmit(Time::ZERO, &mut wire);
            ends[to].receive(Time::ZERO, &wire).unwrap();
        }
    };
    carry(&mut ends);
    let mut segments = Vec::new();
    for circuit in 1..=10 {
        ends[0].write(&cell(circuit, DATA, 1)).unwrap();
        let mut wire = Vec::new();
        ends[0].transmit(Time::ZERO, &mut wire);
        segments.push(wire);
    }
    // The first segment is lost. The kernel delivers no later byte, so the link receives nothing.
    let mut received = Vec::new();
    ends[1].read(&mut received).unwrap();
    assert!(received.is_empty(), "nine circuits wait");
    segments.iter().for_each(|segment| ends[1].receive(Time::ZERO, segment).unwrap());
    ends[1].read(&mut received).unwrap();
    let circuits: Vec<u32> = cells_of(&received).into_iter().map(|cell| cell.0).collect();
    assert_eq!(circuits, (1..=10).collect::<Vec<u32>>());
    assert!(ends[1].receive(Time::ZERO, &segments[1]).is_err(), "no record comes out of turn");
}

/// Returns the bytes of cells that arrive in 20 s over a line of 20 Mbit/s with a round-trip time
/// of 100 ms and 5 % loss.
fn carried(congestion: Congestion) -> usize {
    let (rate, loss) = (NonZeroU64::new(20_000_000), Loss::Bernoulli(0.05));
    let settings = LinkSettings { rate, loss, queue: 250_000, ..line(DELAY) };
    let mut world = World::by(congestion, &settings, 6).opened();
    world.write(0, &cell(1, CREATES, 0));
    let (batch, mut received) = ((0..20).flat_map(|n| cell(1, DATA, n)).collect::<Vec<u8>>(), 0);
    for _ in 0..2_000 {
        while world.link(0).room() >= batch.len() {
            world.write(0, &batch);
        }
        world.run(Duration::from_millis(10));
        received += std::mem::take(&mut world.received[1]).len();
    }
    received
}

#[test]
fn by_bbr_losses_cost_little_of_the_rate_and_by_cubic_most_of_it() {
    let [bbr, cubic] = [Congestion::Bbr, Congestion::Cubic].map(carried);
    println!("bbr {bbr}, cubic {cubic} bytes of 50,000,000");
    assert!(bbr > 25_000_000 && bbr > 4 * cubic, "bbr {bbr}, cubic {cubic}");
}

/// Returns the number of datagrams that the receiver of a bulk transfer sends for each datagram
/// that it receives.
fn acknowledged(congestion: Congestion) -> f64 {
    let rate = NonZeroU64::new(50_000_000);
    let settings = LinkSettings { rate, queue: 300_000, ..line(Duration::from_millis(10)) };
    let mut world = World::by(congestion, &settings, 6).opened();
    world.write(0, &cell(1, CREATES, 0));
    let batch: Vec<u8> = (0..20).flat_map(|n| cell(1, DATA, n)).collect();
    let mut before = world.sent;
    for step in 0..3_000 {
        if step == 1_000 {
            before = world.sent;
        }
        while world.link(0).room() >= batch.len() {
            world.write(0, &batch);
        }
        world.run(Duration::from_millis(1));
    }
    let [data, back] = [0, 1].map(|end| (world.sent[end] - before[end]) as f64);
    assert!(data > 5_000.0, "{data}");
    back / data
}

#[test]
fn by_cubic_a_fast_transfer_takes_few_acknowledgements_and_by_bbr_the_usual_number() {
    let [bbr, cubic] = [Congestion::Bbr, Congestion::Cubic].map(acknowledged);
    println!("datagrams back: bbr {bbr}, cubic {cubic}");
    assert!(cubic < 0.25 && bbr > 0.35, "bbr {bbr}, cubic {cubic}");
}

#[test]
fn the_end_that_opens_a_link_is_shown_the_others_certificate() {
    let mut world = World::open(&line(DELAY), 1);
    let shown = world.link(0).peer_certificate().map(<[u8]>::to_vec);
    assert_eq!(shown.as_deref(), Some(world.link(1).own_certificate()));
    assert_eq!(world.link(1).peer_certificate(), None, "a client shows none");
}

#[test]
fn what_a_link_says_before_others_are_admitted_waits() {
    let mut world = World::new(&line(DELAY), 1);
    world.ids[0] = Some(world.ends[0].connect(world.now, address(1), None).unwrap());
    assert!(matches!(world.link(0).write(&cell(0, DATA, 1)), Err(Fault::Misuse(_))));
    assert!(world.link(0).export(b"label", b"").is_err());
    world.run(Duration::from_secs(1));
    // A variable-length cell of circuit 0, which spans several datagrams.
    let mut certs = vec![7; 7 + 3_000];
    certs[..7].copy_from_slice(&[0, 0, 0, 0, 129, 0x0b, 0xb8]);
    world.write(0, &certs);
    world.write(0, &cell(1, CREATES, 0));
    world.run(Duration::from_secs(1));
    assert_eq!(world.received[1], certs, "the circuit waits");
    world.link(1).admit_circuits();
    world.write(0, &cell(0, DATA, 2));
    world.run(Duration::from_secs(1));
    assert_eq!(cells_of(&world.received[1][certs.len()..]), [(0, DATA, 2), (1, CREATES, 0)]);
    assert!(matches!(world.link(0).write(&certs[..9]), Err(Fault::Misuse(_))), "no whole cell");
}

#[test]
fn a_circuit_of_a_number_that_has_not_ended_waits_until_it_has() {
    for lost in 0..6 {
        let mut world = World::open(&line(DELAY), 4);
        world.write(0, &cell(9, CREATES, 0));
        world.run(Duration::from_secs(1));
        world.write(1, &cell(9, DATA, 100));
        world.received[1].clear();
        // One of the next datagrams is lost. They carry the end of the circuit, and the next
        // circuit with the same number.
        world.lose.push((0, world.sent[0] + lost));
        for bytes in [cell(9, DATA, 1), cell(9, ENDS, 2), cell(9, CREATES, 3), cell(9, DATA, 4)] {
            world.write(0, &bytes);
        }
        world.run(Duration::from_secs(5));
        let commands: Vec<u32> = cells_of(&world.received[1]).iter().map(|cell| cell.2).collect();
        assert_eq!(commands, [1, 2, 3, 4], "{lost}");
        // Data for the first circuit does not reach the second circuit.
        assert!(world.received[0].is_empty(), "{lost}");
        world.write(1, &cell(9, DATA, 101));
        world.write(1, &cell(9, ENDS, 102));
        world.run(Duration::from_secs(1));
        let numbers: Vec<u32> = cells_of(&world.received[0]).iter().map(|cell| cell.2).collect();
        assert_eq!(numbers, [101, 102], "{lost}");
        assert_eq!([0, 1].map(|end| world.link(end).circuits()), [0, 0], "{lost}");
    }
}

#[test]
fn thousands_of_circuits_are_made_and_end() {
    let mut world = World::open(&line(Duration::from_millis(5)), 6);
    let many = 3_000;
    for circuit in 1..=many {
        world.write(0, &cell(circuit, CREATES, 0));
        world.run(Duration::from_millis(1));
    }
    world.run(Duration::from_secs(5));
    assert_eq!([0, 1].map(|end| world.link(end).circuits()), [many as usize; 2]);
    let made = cells_of(&world.received[1]);
    assert_eq!(made.iter().filter(|cell| cell.1 == CREATES).count(), many as usize);
    for circuit in 1..=many {
        world.write((circuit % 2) as usize, &cell(circuit, ENDS, 1));
        world.run(Duration::from_millis(1));
    }
    world.run(Duration::from_secs(5));
    assert_eq!([0, 1].map(|end| world.link(end).circuits()), [0; 2]);
    assert_eq!([0, 1].map(|end| world.state(end)), [Some(State::Open); 2]);
}

/// The end that has created a circuit also ends it, as for most circuits.
#[test]
fn circuits_that_their_maker_ends_make_room_for_others() {
    let mut world = World::open(&line(Duration::from_millis(5)), 6);
    let many = 3_000;
    for circuit in 1..=many {
        let by = (circuit % 3 == 0).into();
        world.write(by, &cell(circuit, CREATES, 0));
        world.run(Duration::from_millis(20));
        // A cell is in flight in the other direction when the circuit ends.
        world.write(1 - by, &cell(circuit, DATA, 1));
        world.write(by, &cell(circuit, ENDS, 2));
    }
    world.run(Duration::from_secs(5));
    let made =
        |end: usize| cells_of(&world.received[end]).iter().filter(|cell| cell.1 == CREATES).count();
    assert_eq!([made(0), made(1)], [many as usize / 3, many as usize - many as usize / 3]);
    assert_eq!([0, 1].map(|end| world.link(end).circuits()), [0; 2]);
}

/// A circuit reuses the number of a circuit that has not ended at the receiver. Its cells,
/// including retransmissions of the first, are not delivered before the earlier circuit has ended.
#[test]
fn more_of_a_circuit_that_waits_does_not_bring_it_forward() {
    let mut world = World::open(&line(DELAY), 4);
    world.write(0, &cell(9, CREATES, 0));
    world.run(Duration::from_secs(1));
    world.received[1].clear();
    world.lose.push((0, world.sent[0]));
    world.write(0, &cell(9, ENDS, 1));
    world.write(0, &cell(9, CREATES, 2));
    for number in 3..8 {
        world.run(Duration::from_millis(3));
        world.write(0, &cell(9, DATA, number));
    }
    world.run(Duration::from_secs(5));
    let numbers: Vec<u32> = cells_of(&world.received[1]).iter().map(|cell| cell.2).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn circuits_for_which_there_are_no_streams_end_at_once_or_wait() {
    let mut world = World::open(&line(Duration::from_millis(5)), 6);
    for circuit in 1..=2_000 {
        world.link(0).write(&cell(circuit, CREATES, 0)).unwrap();
    }
    // 255 circuits have streams, in addition to circuit 0, and 1,024 circuits wait.
    let mut refused = Vec::new();
    world.link(0).read(&mut refused).unwrap();
    let ended = cells_of(&refused);
    assert_eq!(ended.len(), 2_000 - 255 - 1_024);
    assert!(ended.iter().all(|cell| cell.1 == ENDS && cell.0 > 1_279));
    // A circuit that waits for a stream can end before it gets one.
    world.write(0, &cell(1_000, ENDS, 1));
    world.run(Duration::from_secs(20));
    assert_eq!(world.link(1).circuits(), 1_278);
}

#[test]
fn a_link_takes_no_more_than_its_window_and_then_goes_on() {
    let slow = LinkSettings { queue: 20_000, ..LinkSettings::with_rate(2_000_000) };
    let mut world = World::open(&LinkSettings { delay: DELAY, ..slow }, 8);
    world.write(0, &cell(1, CREATES, 0));
    let (mut sent, mut most) = (1, 0);
    while sent < 2_000 {
        let room = world.link(0).room() / CELL;
        let batch: Vec<u8> =
            (0..room.min(2_000 - sent)).flat_map(|n| cell(1, DATA, (sent + n) as u32)).collect();
        sent += batch.len() / CELL;
        if batch.is_empty() {
            world.run(Duration::from_millis(1));
        } else {
            world.write(0, &batch);
        }
        let come = cells_of(&world.received[1]).len();
        most = most.max(sent - come);
        assert!(world.now < Time::from_secs(60), "it stands still: {sent} said, {come} came");
    }
    world.run(Duration::from_secs(20));
    let numbers: Vec<u32> = cells_of(&world.received[1]).into_iter().map(|cell| cell.2).collect();
    assert!(numbers.into_iter().eq(0..2_000));
    // The limit is the capacity of a path of 50 ms and 2 Mbit/s, its queue, and the bytes accepted
    // beyond the window.
    assert!(most * CELL < 160_000, "{most} cells were under way");
}

#[test]
fn a_goodbye_ends_a_link_and_silence_does() {
    let mut world = World::open(&line(DELAY), 1);
    let id = world.ids[0].unwrap();
    world.ends[0].close(world.now, id);
    world.run(Duration::from_secs(1));
    assert_eq!(world.state(1), Some(State::Ended));
    assert_eq!(world.link(1).fault(), None);
    assert!(world.ends[0].link(id).is_none());
    let there = world.ids[1].unwrap();
    world.ends[1].close(world.now, there);
    world.run(Duration::from_secs(10));
    assert_eq!([0, 1].map(|end: usize| world.ends[end].len()), [0, 0], "nothing is left");

    let mut world = World::open(&line(DELAY), 1);
    world.run(Duration::from_secs(300));
    assert_eq!(world.state(1), Some(State::Open), "it is kept alive");
    world.ways[0].change(world.now, |settings| settings.down = true);
    world.run(Duration::from_secs(20));
    assert_eq!(world.state(1), Some(State::Ended), "it hears nothing");
    assert_eq!(world.state(0), Some(State::Open), "it heard of that one until then");
    world.run(Duration::from_secs(80));
    for end in 0..2 {
        assert_eq!(world.state(end), Some(State::Ended));
        assert!(matches!(world.link(end).fault(), Some(Fault::Peer(_))));
        assert_eq!(world.ends[end].counts().broken, 1);
    }
}
