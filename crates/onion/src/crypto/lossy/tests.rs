use anabranch_multipath::seed;
use rand::RngExt;

use super::*;
use crate::wire::cell::BODY;

const COMMAND: Command = Command(76);
const CONTENT: usize = BODY - ZEROS;

/// Test vectors, computed by an implementation in Python. The head of the file describes them.
const VECTORS: &str = include_str!("../../../testdata/lossy.txt");

/// Returns the key material of a hop.
fn key_bytes(hop: u8) -> [u8; KEY_BYTES] {
    std::array::from_fn(|i| (67 * (hop + 1)).wrapping_add(i as u8))
}

/// Returns both sides of a circuit of three hops.
fn circuit() -> (LossyClient, Vec<LossyRelay>) {
    let keys: Vec<LossyKeys> = (0..3).map(|hop| LossyKeys::from(&key_bytes(hop))).collect();
    (LossyClient::new(&keys), keys.iter().map(LossyRelay::new).collect())
}

/// Passes a cell through all relays, away from the client.
fn pass(relays: &mut [LossyRelay], counter: u32, body: &mut Body) -> Result<(), Refusal> {
    let last = relays.len() - 1;
    for (at, relay) in relays.iter_mut().enumerate() {
        let found = relay.outward((COMMAND, counter), body, at == last)?;
        assert_eq!(found == Outward::Ours, at == last, "relay {at}");
    }
    Ok(())
}

/// Passes a cell that the last relay sent to the client.
fn pass_back(
    (client, relays): (&mut LossyClient, &mut [LossyRelay]),
    counter: u32,
    body: &mut Body,
) -> Result<(), Refusal> {
    let (_, others) = relays.split_last_mut().unwrap();
    for relay in others.iter_mut().rev() {
        relay.inward((COMMAND, counter), body)?;
    }
    client.inward((COMMAND, counter), body)
}

fn content(number: u32) -> [u8; CONTENT] {
    let mut content = [0; CONTENT];
    seed::stream(u64::from(number), 0, "content of a lossy cell").fill(&mut content[..]);
    content
}

fn body_of(number: u32) -> Body {
    let mut body = [0xff; BODY];
    body[ZEROS..].copy_from_slice(&content(number));
    body
}

/// Returns `cells` in a random order, each moved by up to 500 places. A fifth of the cells is
/// lost, and a fifth is duplicated.
fn disturbed(cells: Vec<(u32, Body)>, seed: u64) -> Vec<(u32, Body)> {
    let mut rng = seed::stream(seed, 0, "disturbed cells");
    let mut placed: Vec<(u32, (u32, Body))> = Vec::new();
    for (place, cell) in (0u32..).zip(cells) {
        for _ in 0..[0, 2, 1, 1, 1][rng.random_range(0..5)] {
            placed.push((place + rng.random_range(0..500), cell));
        }
    }
    placed.sort_by_key(|&(place, _)| place);
    placed.into_iter().map(|(_, cell)| cell).collect()
}

#[test]
fn cells_open_whatever_is_lost_doubled_or_out_of_order() {
    for seed in 0..4 {
        let (mut client, mut relays) = circuit();
        let cells = (0..1000).map(|number| {
            let mut body = body_of(number);
            (client.originate(COMMAND, &mut body).unwrap(), body)
        });
        let mut opened = std::collections::BTreeSet::new();
        for (counter, mut body) in disturbed(cells.collect(), seed) {
            let result = pass(&mut relays, counter, &mut body);
            if opened.insert(counter) {
                assert_eq!(result, Ok(()));
                assert_eq!(body[ZEROS..], content(counter));
            } else {
                assert_eq!(result, Err(Refusal::Replayed));
            }
        }
        assert!((700..900).contains(&opened.len()), "{} cells arrived", opened.len());
    }
}

#[test]
fn the_other_direction_too() {
    for seed in 0..4 {
        let (mut client, mut relays) = circuit();
        let cells = (0..1000).map(|number| {
            let mut body = body_of(number);
            (relays[2].originate(COMMAND, &mut body).unwrap(), body)
        });
        let mut opened = std::collections::BTreeSet::new();
        for (counter, mut body) in disturbed(cells.collect(), seed) {
            let result = pass_back((&mut client, &mut relays), counter, &mut body);
            if opened.insert(counter) {
                assert_eq!(result, Ok(()));
                assert_eq!(body[ZEROS..], content(counter));
            } else {
                assert_eq!(result, Err(Refusal::Replayed));
            }
        }
    }
}

#[test]
fn a_change_on_the_way_destroys_that_cell_and_no_other() {
    for change in [0, ZEROS, 300, BODY - 1] {
        let (mut client, mut relays) = circuit();
        let mut body = body_of(0);
        let counter = client.originate(COMMAND, &mut body).unwrap();
        relays[0].outward((COMMAND, counter), &mut body, false).unwrap();
        body[change] ^= 1;
        let refused = pass(&mut relays[1..], counter, &mut body);
        assert_eq!(refused, Err(Refusal::Garbage), "byte {change}");
        let same = body[ZEROS..].iter().zip(content(0)).filter(|(a, b)| *a == b).count();
        assert!(same < 20, "{same} bytes of {CONTENT} survived");
        let mut body = body_of(1);
        let counter = client.originate(COMMAND, &mut body).unwrap();
        assert_eq!(pass(&mut relays, counter, &mut body), Ok(()), "the next cell");
    }
}

#[test]
fn a_relay_cannot_change_counter_or_command() {
    for (counter, command) in [(1, COMMAND), (0, Command(77))] {
        let (mut client, mut relays) = circuit();
        let mut body = body_of(0);
        assert_eq!(client.originate(COMMAND, &mut body), Some(0));
        relays[0].outward((COMMAND, 0), &mut body, false).unwrap();
        let _ = relays[1].outward((command, counter), &mut body, false);
        let refused = relays[2].outward((command, counter), &mut body, true);
        assert_eq!(refused, Err(Refusal::Garbage));
    }
}

#[test]
fn only_the_last_relay_reaches_the_client() {
    for hop in [0, 1] {
        let (mut client, mut relays) = circuit();
        let mut body = body_of(0);
        let counter = relays[hop].originate(COMMAND, &mut body).unwrap();
        let refused = pass_back((&mut client, &mut relays[..=hop]), counter, &mut body);
        assert_eq!(refused, Err(Refusal::Garbage));
    }
    let (mut client, _) = circuit();
    assert_eq!(client.inward((COMMAND, 0), &mut [0; BODY]), Err(Refusal::Garbage), "made up");
}

#[test]
fn a_client_reaches_only_the_last_relay() {
    let (mut client, mut relays) = circuit();
    let mut body = body_of(0);
    client.hops[0].at(0).originate(COMMAND, &mut body);
    let refused = relays[0].outward((COMMAND, 0), &mut body, false);
    assert_eq!(refused, Err(Refusal::Garbage));
}

#[test]
fn a_cell_of_one_direction_is_garbage_in_the_other() {
    let (mut client, mut relays) = circuit();
    let mut body = body_of(0);
    let counter = relays[2].originate(COMMAND, &mut body).unwrap();
    let refused = relays[2].outward((COMMAND, counter), &mut body, true);
    assert_eq!(refused, Err(Refusal::Garbage));
    let counter = client.originate(COMMAND, &mut body).unwrap();
    assert_eq!(client.inward((COMMAND, counter), &mut body), Err(Refusal::Garbage));
}

#[test]
fn a_leap_is_dropped_and_moves_nothing() {
    let (mut client, mut relays) = circuit();
    let mut body = body_of(0);
    let leap = u32::try_from(LEAP).unwrap();
    for counter in [leap, u32::MAX] {
        let refused = relays[0].outward((COMMAND, counter), &mut body.clone(), false);
        assert_eq!(refused, Err(Refusal::TooFarAhead));
    }
    let counter = client.originate(COMMAND, &mut body).unwrap();
    assert_eq!(pass(&mut relays, counter, &mut body), Ok(()));
}

#[test]
fn the_window_has_the_edges_of_the_specification() {
    let mut arrivals = Arrivals::default();
    assert_eq!(arrivals.accept(65_536), Err(Refusal::TooFarAhead));
    assert_eq!(arrivals.accept(50_000), Ok(()));
    assert_eq!(arrivals.accept(50_000 - 16_384), Err(Refusal::Replayed));
    assert_eq!(arrivals.accept(50_000 - 16_383), Ok(()));
    assert_eq!(arrivals.accept(50_000 - 16_383), Err(Refusal::Replayed));
    assert_eq!(arrivals.accept(50_000 + 65_537), Err(Refusal::TooFarAhead));
    assert_eq!(arrivals.accept(50_000 + 65_536), Ok(()));
}

/// Sets the counters of the client, and the replay windows of the relays, to the value just before
/// `counter`.
fn move_to(counter: u32, (client, relays): (&mut LossyClient, &mut [LossyRelay])) {
    client.sent.next = counter.into();
    for relay in relays {
        let steps = (0..counter - 1).step_by(LEAP as usize - 1).chain([counter - 1]);
        steps.for_each(|step| assert_eq!(relay.outward.accept(step), Ok(())));
        assert_eq!(relay.outward.window.as_ref().unwrap().next(), counter.into());
    }
}

#[test]
fn keys_change_with_the_epoch_and_the_former_ones_open_late_cells_for_a_while() {
    let (mut client, mut relays) = circuit();
    move_to(EPOCH - 2, (&mut client, &mut relays));
    let mut cells: Vec<(u32, Body)> = (0..OVERLAP + 10)
        .map(|number| {
            let mut body = body_of(number);
            (client.originate(COMMAND, &mut body).unwrap(), body)
        })
        .collect();
    let (_, mut late) = cells.remove(0);
    for (counter, body) in &mut cells[..20] {
        assert_eq!(pass(&mut relays, *counter, body), Ok(()));
        assert_eq!(body[ZEROS..], content(*counter - (EPOCH - 2)));
    }
    assert_eq!(pass(&mut relays, EPOCH - 2, &mut late), Ok(()));
    assert_eq!(late[ZEROS..], content(0));
    let is_kept = |relay: &LossyRelay| relay.layer.out.previous.is_some();
    assert!(relays.iter().all(is_kept));
    let (counter, body) = cells.last_mut().unwrap();
    assert_eq!(pass(&mut relays, *counter, body), Ok(()));
    assert!(!relays.iter().any(is_kept), "erased once no window accepts their cells");
    assert!(!client.hops.iter().any(|hop| hop.out.previous.is_some()));
}

#[test]
fn no_counter_is_used_twice() {
    let (mut client, mut relays) = circuit();
    (client.sent.next, relays[2].sent.next) = (u32::MAX.into(), u32::MAX.into());
    assert_eq!(client.originate(COMMAND, &mut body_of(0)), Some(u32::MAX));
    assert_eq!(client.originate(COMMAND, &mut body_of(0)), None);
    assert_eq!(relays[2].originate(COMMAND, &mut body_of(0)), Some(u32::MAX));
    assert_eq!(relays[2].originate(COMMAND, &mut body_of(0)), None);
}

#[test]
fn the_vectors_of_another_implementation() {
    let bytes = |hex: &str| -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digit).collect()
    };
    let mut found = 0;
    for line in VECTORS.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(' ').collect();
        let [way, counter, content, cell] = fields[..] else { panic!("four fields: {line}") };
        let (counter, content) = (counter.parse::<u32>().unwrap(), bytes(content));
        let (mut client, mut relays) = circuit();
        let mut body = [0; BODY];
        body[ZEROS..].copy_from_slice(&content);
        if way == "out" {
            client.sent.next = counter.into();
            assert_eq!(client.originate(COMMAND, &mut body), Some(counter));
        } else {
            relays[2].sent.next = counter.into();
            assert_eq!(relays[2].originate(COMMAND, &mut body), Some(counter));
            relays[1].layer.at(counter).inbound(COMMAND, &mut body);
            relays[0].layer.at(counter).inbound(COMMAND, &mut body);
        }
        assert_eq!(body, bytes(cell)[..], "{way} {counter}");
        found += 1;
    }
    assert_eq!(found, 8);
}
