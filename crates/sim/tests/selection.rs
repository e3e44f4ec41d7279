//! Circuits that clients select for their streams, and legs that are replaced while a stream lives.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_onion::circmgr::Selection;
use anabranch_sim::onion::{
    ClientHostSettings, ClientLoad, Common, Crypto, NetworkDocuments, OnionNetwork, Pause,
    RelayDescription, Scenario,
};
use anabranch_sim::{HostId, HostSettings, Latencies, LineSettings};

const MS: Duration = Duration::from_millis(1);
/// The near exit and the far one, by their index among the relays.
const EXITS: [usize; 2] = [4, 5];

fn host(megabits: u64, place: usize) -> HostSettings {
    let rate = NonZeroU64::new(megabits * 1_000_000).unwrap();
    HostSettings { place, ..HostSettings::symmetric(LineSettings::with_queue(rate, 50 * MS)) }
}

fn documents() -> NetworkDocuments {
    static MADE: OnceLock<NetworkDocuments> = OnceLock::new();
    let describe = |place: usize| RelayDescription {
        exit: EXITS.contains(&place),
        bandwidth: 10_000_000,
        lossy: false,
    };
    let relays: Vec<RelayDescription> = (0..6).map(describe).collect();
    MADE.get_or_init(|| NetworkDocuments::new(&relays, &BTreeMap::new())).clone()
}

/// Returns a scenario of four relays and two exits. The second exit is 150 ms away from all other
/// hosts; the others are 10 ms apart.
fn scenario(common: Common, megabits: u64, loads: &[ClientLoad]) -> Scenario {
    let place = |relay: usize| usize::from(relay == EXITS[1]);
    let client = |load: &ClientLoad| ClientHostSettings {
        host: host(50, 0),
        loads: vec![*load],
        pins: None,
    };
    let rows = [vec![10 * MS, 150 * MS], vec![150 * MS, 10 * MS]];
    Scenario {
        common: Common { crypto: Crypto::Elided, ..common },
        documents: documents(),
        relays: (0..6).map(|relay| host(megabits, place(relay))).collect(),
        servers: vec![host(1000, 0)],
        clients: loads.iter().map(client).collect(),
        latencies: Latencies::matrix(&rows).unwrap(),
        paths: Vec::new(),
    }
}

/// Returns the share of the exits' bytes that the far exit sent.
fn far_share(selection: Selection) -> f64 {
    let common = Common { selection, ..Common::default() };
    // Circuits are built in advance during the first pause.
    let pause = Pause::Between(4000 * MS, 8000 * MS);
    let load = ClientLoad { bytes: 50_000, pause, ..ClientLoad::web() };
    let mut network = OnionNetwork::new(&scenario(common, 80, &[load; 24]));
    network.run_until(Time::from_secs(60));
    let failed = network.downloads().filter(|download| !download.complete).count();
    assert!(failed == 0 && network.downloads().count() > 100, "{selection:?}");
    let [near, far] =
        EXITS.map(|exit| network.simulation().stats(HostId(exit as u32))[0].bytes as f64);
    far / (near + far)
}

/// Checks how often clients use the far exit. A client builds two circuits in advance, each to
/// either exit with equal probability. Selection by age uses the far exit for half of the bytes;
/// selection by time only if both circuits end there, which is so for a quarter of the clients.
#[test]
fn streams_avoid_a_far_exit_by_build_time_and_by_round_trip_time() {
    let [oldest, newest] = [Selection::Oldest, Selection::Newest].map(far_share);
    let [build, rtt] = [Selection::BuildTime, Selection::Rtt].map(far_share);
    println!("far exit: {oldest:.2} {newest:.2} {build:.2} {rtt:.2}");
    for share in [oldest, newest] {
        assert!((0.3..0.7).contains(&share), "by age: {share}");
    }
    for share in [build, rtt] {
        assert!(share < 0.6 * oldest.min(newest), "by time: {share}, by age {oldest}, {newest}");
    }
}

/// A download that outlives all circuits of its set arrives in full.
#[test]
fn a_stream_outlives_the_circuits_on_which_it_began() {
    let whole = 24 << 20;
    let run = |leg_age: Option<u64>| {
        let common = Common {
            legs: 2,
            design: "anabranch".parse().unwrap(),
            leg_age: leg_age.map(Duration::from_secs),
            ..Common::default()
        };
        let pause = Pause::Between(3000 * MS, 3001 * MS);
        let timeout = Duration::from_secs(300);
        let load = ClientLoad { bytes: whole, pause, timeout, ..ClientLoad::web() };
        let mut network = OnionNetwork::new(&scenario(common, 8, &[load]));
        network.run_until(Time::from_secs(120));
        let first = *network.downloads().next().expect("a download ended");
        let made: u64 = network.relays().map(|relay| relay.stats().circuits_made).sum();
        assert_eq!(network.relays().map(|relay| relay.violations()).sum::<u64>(), 0);
        (first, made, network.trace().hash())
    };
    let (fixed, few, _) = run(None);
    let (dynamic, many, hash) = run(Some(4));
    for download in [fixed, dynamic] {
        assert!(download.complete && download.received == whole, "{download:?}");
        // At 8 Mbit/s on each leg.
        assert!(download.ttlb().unwrap() > Duration::from_secs(12), "{download:?}");
    }
    // Each leg of three hops is replaced several times.
    assert!(many > few + 9, "{few} circuits, with replacement {many}");
    assert_eq!(run(Some(4)).2, hash);
}
