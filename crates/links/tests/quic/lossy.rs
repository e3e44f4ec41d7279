//! Lossy cells: their arrival over lines that lose, delay, duplicate and change datagrams, their
//! congestion control, and peers that violate their protocol.

use std::collections::BTreeSet;
use std::time::Duration;

use anabranch_links::quic::{CellFormat, LossyCounts};
use anabranch_links::{Fault, Link as _, State};
use anabranch_multipath::Time;
use anabranch_netem::LinkSettings;

use anabranch_testkit::quic_pair::{
    CREATES, DATA, FORMAT, LOSSY, QuicPair as World, WITH_LOSSY, cell, cells_of, line, lossy_cell,
    lossy_cells_of,
};

use super::conformance::carriers;

const DELAY: Duration = Duration::from_millis(50);

/// Opens a link that carries lossy cells.
fn open(settings: &LinkSettings, seed: u64) -> World {
    World::with_formats([WITH_LOSSY, WITH_LOSSY], settings, seed).opened()
}

/// Returns the numbers of the lossy cells that an end received. Checks that each arrived once.
fn distinct(world: &World, end: usize) -> BTreeSet<u32> {
    let received = lossy_cells_of(&world.received_lossy[end]);
    let distinct: BTreeSet<u32> = received.iter().copied().collect();
    assert_eq!(distinct.len(), received.len(), "a cell that came twice");
    distinct
}

#[test]
fn lossy_cells_come_at_most_once_and_are_not_sent_again() {
    for carrier in carriers() {
        let mut world = open(&carrier.settings, 7);
        (world.duplicates, world.changed) = (carrier.duplicates, carrier.changed);
        world.write(0, &cell(1, CREATES, 0));
        for number in 0..1_000 {
            (0..2).for_each(|end| world.write_lossy(end, number));
            // Streams continue alongside the lossy cells.
            world.write(0, &cell(1, DATA, number + 1));
            world.run(Duration::from_millis(10));
        }
        world.run(Duration::from_secs(30));
        let name = carrier.name;
        for end in 0..2 {
            assert_eq!(world.state(end), Some(State::Open), "{name}");
            let received = distinct(&world, end).len();
            let LossyCounts { sent, dropped, .. } = world.link(1 - end).lossy_counts();
            let counts = world.link(end).lossy_counts();
            assert_eq!(sent + dropped, 1_000, "{name}: nothing waits");
            assert_eq!(
                counts,
                LossyCounts { received: received as u64, unread: 0, early: 0, ..counts }
            );
            let is_lossless = matches!(name, "ordered" | "delaying" | "doubling");
            assert_eq!(received as u64 == sent, is_lossless, "{name}: {received} of {sent} came");
            // Of a thousand datagrams, at most 145 are lost or changed.
            assert!(received as u64 > sent * 4 / 5, "{name}: {received} of {sent} came");
            // Lost datagrams, and datagrams declared lost, reduce the rate that congestion control
            // allows.
            assert!(sent == 1_000 || !matches!(name, "ordered" | "doubling"), "{name}: {sent}");
        }
        let commands: Vec<u32> = cells_of(&world.received[1]).iter().map(|cell| cell.2).collect();
        assert!(commands.into_iter().eq(0..=1_000), "{name}: the circuit is whole and in order");
    }
}

#[test]
fn a_lost_datagram_holds_up_no_lossy_cell() {
    let mut world = open(&line(DELAY), 5);
    world.lose.push((0, world.sent[0]));
    for number in 0..10 {
        world.write_lossy(0, number);
        world.run(Duration::from_millis(1));
    }
    world.run(DELAY);
    assert_eq!(lossy_cells_of(&world.received_lossy[1]), (1..10).collect::<Vec<u32>>());
    world.run(Duration::from_secs(5));
    assert_eq!(distinct(&world, 1).len(), 9, "never sent again");
}

#[test]
fn two_cells_share_a_datagram() {
    let mut world = open(&line(DELAY), 5);
    let (before, now) = (world.sent[0], world.now);
    let batch: Vec<u8> = (0..10).flat_map(lossy_cell).collect();
    world.link(0).write_lossy(now, &batch).unwrap();
    let id = world.ids[0].unwrap();
    world.send(0, id);
    assert_eq!(world.sent[0] - before, 5);
    world.run(2 * DELAY);
    assert_eq!(lossy_cells_of(&world.received_lossy[1]), (0..10).collect::<Vec<u32>>());
}

/// Sends 10 Mbit/s of lossy cells over a line of 2 Mbit/s.
#[test]
fn congestion_control_is_a_ceiling_and_the_queue_stays_short() {
    let slow = LinkSettings { queue: 20_000, ..LinkSettings::with_rate(2_000_000) };
    let mut world = open(&LinkSettings { delay: DELAY, ..slow }, 8);
    world.write(0, &cell(1, CREATES, 0));
    let (interval, written) = (Duration::from_micros(414), 48_000);
    let mut waits = Vec::new();
    let start = world.now;
    for number in 0..written {
        world.write_lossy(0, number);
        if number % 4_800 == 0 {
            world.write(0, &cell(1, DATA, 1 + number / 4_800));
        }
        world.run(interval);
        for received in lossy_cells_of(&std::mem::take(&mut world.received_lossy[1])) {
            waits.push(world.now.since(start + interval * received));
        }
    }
    world.run(Duration::from_secs(5));
    let LossyCounts { sent, dropped, .. } = world.link(0).lossy_counts();
    assert_eq!(sent + dropped, u64::from(written));
    // At 2 Mbit/s, the line carries 9,650 cells in 20 s.
    let received = world.link(1).lossy_counts().received;
    assert!((5_000..9_650).contains(&received), "{received} came");
    waits.sort();
    let (half, most) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    println!("{received} came; half waited {half:?}, the longest {most:?}");
    // The longest delay is the one-way delay, the 80 ms of the line's queue, and the time of 256
    // cells at 2 Mbit/s.
    assert!(most < DELAY + Duration::from_millis(80 + 531 + 50), "{most:?}");
    let commands: Vec<u32> = cells_of(&world.received[1]).iter().map(|cell| cell.2).collect();
    assert!(commands.into_iter().eq(0..=10), "streams are not held up");
}

#[test]
fn a_link_whose_peer_accepts_no_datagrams_carries_no_lossy_cells() {
    for cells in [[WITH_LOSSY, FORMAT], [FORMAT, WITH_LOSSY]] {
        let mut world = World::with_formats(cells, &line(DELAY), 1).opened();
        for end in 0..2 {
            assert!(!world.link(end).takes_lossy());
            let refused = world.link(end).write_lossy(Time::ZERO, &lossy_cell(0));
            assert!(matches!(refused, Err(Fault::Misuse(_))));
        }
    }
    let mut world = open(&line(DELAY), 1);
    assert!(world.link(0).takes_lossy());
    let refused = world.link(0).write_lossy(Time::ZERO, &lossy_cell(0)[1..]);
    assert!(matches!(refused, Err(Fault::Misuse(_))), "no whole cell");
    world.link(0).close();
    assert!(!world.link(0).takes_lossy());
}

#[test]
fn a_datagram_that_is_not_of_whole_cells_ends_the_link() {
    for lossy in [LOSSY - 1, LOSSY / 2, 2 * LOSSY + 1] {
        let peers = CellFormat { lossy, ..FORMAT };
        let mut world = World::with_formats([peers, WITH_LOSSY], &line(DELAY), 1).opened();
        let now = world.now;
        world.link(0).write_lossy(now, &vec![1; lossy]).unwrap();
        let id = world.ids[0].unwrap();
        world.send(0, id);
        world.run(Duration::from_secs(3));
        assert_eq!(world.state(0), Some(State::Ended), "{lossy}");
        assert_eq!(world.state(1), None, "{lossy}: closed");
        assert!(world.received_lossy[1].is_empty());
    }
}

#[test]
fn a_flood_that_nobody_reads_is_dropped_and_counted() {
    let mut world = open(&line(Duration::from_millis(5)), 1);
    world.is_unread = true;
    for number in 0..4_000 {
        world.write_lossy(0, number);
        world.run(Duration::from_millis(1));
    }
    world.is_unread = false;
    world.write(0, &cell(1, CREATES, 0));
    world.run(Duration::from_secs(1));
    let counts = world.link(1).lossy_counts();
    assert_eq!(counts.received + counts.unread, 4_000);
    // The connection keeps the newest 256 KiB.
    assert!((400..=506).contains(&counts.received), "{counts:?}");
    assert!(distinct(&world, 1).into_iter().eq(4_000 - counts.received as u32..4_000));
}

#[test]
fn what_comes_before_circuits_are_admitted_is_dropped_and_counted() {
    let mut world = World::with_formats([WITH_LOSSY, WITH_LOSSY], &line(DELAY), 1);
    let to = anabranch_testkit::quic_pair::address(1);
    world.ids[0] = Some(world.ends[0].connect(world.now, to, None).unwrap());
    world.run(Duration::from_secs(1));
    world.write_lossy(0, 1);
    world.run(Duration::from_secs(1));
    assert_eq!(world.link(1).lossy_counts().early, 1);
    world.link(1).admit_circuits();
    world.write_lossy(0, 2);
    world.run(Duration::from_secs(1));
    assert_eq!(lossy_cells_of(&world.received_lossy[1]), [2]);
}
