//! Tests that compare how often each relay is drawn with the weights of path-spec 2.2 and dir-spec
//! 3.8.3.

use std::collections::BTreeMap;

use anabranch_multipath::seed::{Stream, stream};

use super::*;
use crate::directory::tests::{Sketch, network_of};
use crate::wire::text::hex;

const DRAWS: usize = 40_000;
const WEB: Position = Position::Exit(Target { port: 443, v6: false });
const MAIL: Position = Position::Exit(Target { port: 25, v6: false });
const CHAT: Position = Position::Exit(Target { port: 6667, v6: false });

fn id(place: usize) -> [u8; 20] {
    [u8::try_from(place).unwrap() + 1; 20]
}

/// Indices of the relays of one family. All of them are middles.
const KIN: [usize; 5] = [1, 6, 12, 35, 66];

/// Returns a network of 120 relays of all kinds. Five relays are a family. Every fourth relay
/// outside this family names relay 7 as its family, but relay 7 names no relay. Several relays
/// share each subnet. Relays 60 and 61 are the only ones that permit mail, and have little
/// bandwidth.
fn town() -> Network {
    let rows: Vec<(String, u32, String, String)> = (0..120).map(row).collect();
    let sketches: Vec<Sketch<'_>> = rows
        .iter()
        .map(|(flags, bandwidth, net, rest)| (&flags[..], *bandwidth, &net[..], &rest[..]))
        .collect();
    network_of(&sketches)
}

fn row(place: usize) -> (String, u32, String, String) {
    let family = |ids: &[usize]| {
        let ids: Vec<String> = ids.iter().map(|&place| format!("${}", hex(&id(place)))).collect();
        format!("family {}\n", ids.join(" "))
    };
    let (exit, guard) = (place.is_multiple_of(3), place.is_multiple_of(2));
    let flags = [
        ("Exit", exit),
        ("Fast", true),
        ("Guard", guard),
        ("Running", true),
        ("Stable", guard || place.is_multiple_of(5)),
        ("V2Dir", true),
        ("Valid", true),
    ];
    let flags: Vec<&str> = flags.iter().filter(|(_, is)| *is).map(|(flag, _)| *flag).collect();
    let few = place == 60 || place == 61;
    let policy = match place {
        _ if few => "p accept 25,443\n",
        _ if exit && place.is_multiple_of(4) => "p accept 80,443,6667\n",
        _ if exit => "p accept 1-24,26-6000\n",
        _ => "",
    };
    let claimed = match place {
        _ if KIN.contains(&place) => family(&KIN),
        _ if place.is_multiple_of(4) => family(&[place, 7]),
        _ => String::new(),
    };
    let bandwidth = if few { 3 } else { 20 + (place as u32 * 37) % 400 };
    let net = format!("{}.{}", 1 + place / 40, place % 29);
    (flags.join(" "), bandwidth, net, claimed + policy)
}

/// Returns the weight of each suitable relay, computed from the documents without tables.
fn exact(
    network: &Network,
    position: Position,
    alongside: &[[u8; 20]],
    restrictions: &RelayRestrictions,
) -> BTreeMap<[u8; 20], f64> {
    let others: Vec<Relay<'_>> = alongside.iter().filter_map(|id| network.relay(id)).collect();
    let letter = match position {
        Position::Guard => "g",
        Position::Middle => "m",
        Position::Exit(_) => "e",
        Position::Directory => "b",
    };
    let suits = |relay: &Relay<'_>| {
        network.fits(relay, position)
            && restrictions.allow(position, &relay.status.rsa_identity)
            && others.iter().all(|other| network.go_together(relay, other))
    };
    let weight = |relay: Relay<'_>| {
        let kind = match (relay.status.flags.guard, relay.status.flags.exit) {
            (true, true) => "d",
            (true, false) => "g",
            (false, true) => "e",
            (false, false) => "m",
        };
        let weight = network.consensus().weights[&format!("W{letter}{kind}")];
        (relay.status.rsa_identity, f64::from(relay.status.bandwidth) * f64::from(weight))
    };
    network.relays().filter(suits).map(weight).filter(|(_, weight)| *weight > 0.0).collect()
}

/// Returns Pearson's chi-squared statistic, in standard deviations from its mean. Relays for which
/// fewer than eight draws are expected are counted together, as one bin.
fn deviation(counts: &BTreeMap<[u8; 20], usize>, exact: &BTreeMap<[u8; 20], f64>) -> f64 {
    let (total, draws) = (exact.values().sum::<f64>(), counts.values().sum::<usize>() as f64);
    let mut bins: Vec<(f64, f64)> = vec![(0.0, 0.0)];
    for (id, weight) in exact {
        let (expected, seen) =
            (draws * weight / total, counts.get(id).copied().unwrap_or(0) as f64);
        match expected < 8.0 {
            true => bins[0] = (bins[0].0 + expected, bins[0].1 + seen),
            false => bins.push((expected, seen)),
        }
    }
    bins.retain(|(expected, _)| *expected > 0.0);
    let freedom = bins.len() as f64 - 1.0;
    let statistic: f64 =
        bins.iter().map(|(expected, seen)| (seen - expected).powi(2) / expected).sum();
    if freedom == 0.0 { 0.0 } else { (statistic - freedom) / (2.0 * freedom).sqrt() }
}

fn assert_fair(
    network: &Network,
    position: Position,
    alongside: &[[u8; 20]],
    restrictions: &RelayRestrictions,
    rng: &mut Stream,
) {
    let exact = exact(network, position, alongside, restrictions);
    let mut counts = BTreeMap::new();
    for _ in 0..DRAWS {
        let relay = network.choose(position, alongside, restrictions, rng).unwrap();
        *counts.entry(relay.status.rsa_identity).or_insert(0) += 1;
    }
    let alien = counts.keys().find(|id| !exact.contains_key(*id));
    assert!(alien.is_none(), "{position:?}: {alien:?} does not suit");
    let deviation = deviation(&counts, &exact);
    // The seeds are fixed. With random seeds the bound would be exceeded in one of some thousand
    // tests.
    assert!(deviation < 4.0, "{position:?} beside {alongside:?}: {deviation:.1} deviations");
}

#[test]
fn relays_are_drawn_by_the_exact_weights_of_each_position() {
    let (network, mut rng) = (town(), stream(1, 0, "frequencies"));
    for position in [Position::Guard, Position::Middle, Position::Directory, WEB, CHAT] {
        assert_fair(&network, position, &[], &RelayRestrictions::default(), &mut rng);
    }
}

#[test]
fn a_port_that_few_exits_allow_is_shared_by_them_alone() {
    let (network, mut rng) = (town(), stream(2, 0, "frequencies"));
    assert_eq!(exact(&network, MAIL, &[], &RelayRestrictions::default()).len(), 2);
    assert_fair(&network, MAIL, &[], &RelayRestrictions::default(), &mut rng);
    assert_fair(&network, MAIL, &[id(60)], &RelayRestrictions::default(), &mut rng);
    let none = Position::Exit(Target { port: 443, v6: true });
    assert_eq!(
        network.choose(none, &[], &RelayRestrictions::default(), &mut rng).err(),
        Some(NoRelay(none))
    );
}

#[test]
fn beside_family_and_subnets_the_others_keep_their_shares() {
    let (network, mut rng) = (town(), stream(3, 0, "frequencies"));
    for alongside in [&[id(1), id(6)][..], &[id(12), id(60)], &[id(3), id(35), id(61)]] {
        let all = exact(&network, Position::Middle, &[], &RelayRestrictions::default()).len();
        let left =
            exact(&network, Position::Middle, alongside, &RelayRestrictions::default()).len();
        assert!(left < all - alongside.len(), "{left} of {all}: nobody is related or near");
        assert_fair(&network, Position::Middle, alongside, &RelayRestrictions::default(), &mut rng);
        assert_fair(&network, WEB, alongside, &RelayRestrictions::default(), &mut rng);
    }
}

#[test]
fn what_a_user_allows_and_excludes_keeps_its_shares() {
    let (network, mut rng) = (town(), stream(4, 0, "frequencies"));
    let set = |places: &[usize]| places.iter().map(|&place| id(place)).collect::<Vec<_>>();
    let few = RelayRestrictions {
        // A relay named twice counts once, and an unlisted one is ignored.
        exit: set(&[3, 6, 9, 3, 60, 119, 150]),
        middle: set(&[1, 5, 7, 11]),
        exclude: set(&[6]),
        ..RelayRestrictions::default()
    };
    assert_fair(&network, WEB, &[], &few, &mut rng);
    assert_fair(&network, Position::Middle, &[id(3)], &few, &mut rng);
    // Most draws are rejected, so the weights of the remaining relays are added up.
    let left =
        RelayRestrictions { exclude: (0..116).map(id).collect(), ..RelayRestrictions::default() };
    assert_fair(&network, Position::Middle, &[], &left, &mut rng);
}

#[test]
fn guards_that_are_taken_leave_the_others_their_shares() {
    let (network, mut rng) = (town(), stream(5, 0, "frequencies"));
    let taken = |id: &[u8; 20]| id[0] > 24;
    let restrictions =
        RelayRestrictions { exclude: (24..120).map(id).collect(), ..RelayRestrictions::default() };
    let exact = exact(&network, Position::Guard, &[], &restrictions);
    let mut counts = BTreeMap::new();
    for _ in 0..DRAWS {
        let guard = network.draw_guard(|id| !taken(id), &mut rng).unwrap();
        *counts.entry(guard).or_insert(0) += 1;
    }
    assert!(deviation(&counts, &exact) < 4.0 && counts.len() == exact.len());
    assert_eq!(network.draw_guard(|_| false, &mut rng), None);
}

#[test]
fn relays_without_weight_are_drawn_evenly_where_there_are_no_others() {
    let mut rng = stream(6, 0, "frequencies");
    let flags = "Fast Running Stable V2Dir Valid";
    let network =
        network_of(&[(flags, 0, "1.1", ""), (flags, 0, "2.2", ""), (flags, 9, "3.3", "")]);
    let draw = |alongside: &[[u8; 20]], rng: &mut Stream| {
        let relay = network
            .choose(Position::Middle, alongside, &RelayRestrictions::default(), rng)
            .unwrap();
        relay.status.rsa_identity
    };
    assert!((0..200).all(|_| draw(&[], &mut rng) == id(2)), "one has all the weight");
    let first = (0..4000).filter(|_| draw(&[id(2)], &mut rng) == id(0)).count();
    assert!((1800..2200).contains(&first), "{first} of 4000");
}

#[test]
fn what_is_learnt_later_is_drawn_too() {
    let (full, mut rng) = (town(), stream(7, 0, "frequencies"));
    let mut network = Network::new(full.consensus().clone());
    let known: Vec<Microdesc> = full.relays().map(|relay| relay.microdesc.clone()).collect();
    for (place, microdesc) in known.into_iter().enumerate() {
        assert!(network.learn(microdesc.clone()));
        let seen = (0..50).filter_map(|_| {
            network.choose(Position::Directory, &[], &RelayRestrictions::default(), &mut rng).ok()
        });
        assert!(seen.into_iter().all(|relay| relay.status.rsa_identity[0] as usize <= place + 1));
        assert_eq!(network.missing().count(), 119 - place);
        network.learn(microdesc);
    }
    assert_fair(&network, WEB, &[], &RelayRestrictions::default(), &mut rng);
    let copy = network.clone();
    assert!(std::ptr::eq(copy.consensus(), network.consensus()), "copies share their documents");
}
