//! Networks that are planned by numbers of hosts, with lines and delays drawn from tables.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anabranch_onion::circmgr::Selection;
use anabranch_onion::conflux::{Design, LegScheduler};
use anabranch_sim::onion::{
    Common, ConsensusRelays, Crypto, Keyring, LineRates, NetworkDocuments, NetworkPlan,
    PublicRates, QuantileTable, RelaySample, planetlab_delays,
};

fn plan() -> NetworkPlan {
    let [relays, exits] = PublicRates::Tor2018.tables();
    let one = QuantileTable::one;
    NetworkPlan {
        common: Common { crypto: Crypto::Elided, ..Common::default() },
        relays: 8,
        exits: 2,
        sample: None,
        servers: 2,
        web: 1,
        bulk: 1,
        network: 1,
        rates: LineRates { relays, exits, servers: one(1_000_000_000), clients: one(50_000_000) },
        queue: Duration::from_millis(50),
        delays: planetlab_delays(),
        congestion_control: true,
        duration: Duration::from_secs(20),
        warm_up: Duration::ZERO,
    }
}

/// The plan has the numbers of hosts in paper 001, section 5: 315 in total.
#[test]
fn the_paper_s_network_has_315_hosts_with_lines_of_their_own() {
    let plan = NetworkPlan { relays: 59, exits: 14, servers: 14, web: 206, bulk: 22, ..plan() };
    let documents = plan.documents(&plan.keyring());
    let scenario = plan.scenario(1, &documents);
    let counts = [scenario.relays.len(), scenario.servers.len(), scenario.clients.len()];
    assert_eq!(counts, [73, 14, 228]);
    assert_eq!(scenario.latencies.places(), 315);
    let rates: BTreeSet<u64> = scenario.relays.iter().map(|host| host.up.rate.get()).collect();
    // 73 draws from two tables of 100 values.
    assert!(rates.len() > 40, "{rates:?}");
    let bulk = scenario.clients.iter().filter(|client| client.loads[0].bytes == 1 << 20);
    assert_eq!(bulk.count(), 22);
    let listed = documents.network().consensus().relays.len();
    assert_eq!(listed, 73);
    // Another seed of the network changes the lines; fewer clients do not.
    let lines = |plan: &NetworkPlan| plan.scenario(1, &documents).relays;
    assert_ne!(lines(&NetworkPlan { network: 2, ..plan.clone() }), scenario.relays);
    assert_eq!(lines(&NetworkPlan { web: 10, bulk: 1, ..plan.clone() }), scenario.relays);
}

/// An authority refuses more than 256 relays that it has not probed yet.
#[test]
fn a_network_may_have_more_relays_than_an_authority_takes_at_once() {
    let plan = NetworkPlan { relays: 250, exits: 20, ..plan() };
    let documents = plan.documents(&plan.keyring());
    assert_eq!(documents.network().consensus().relays.len(), 270);
}

/// Returns the keys of the relays of [`plan`].
fn keys() -> &'static Keyring {
    static MADE: OnceLock<Keyring> = OnceLock::new();
    MADE.get_or_init(|| plan().keyring())
}

fn run(plan: &NetworkPlan) -> (u64, usize) {
    let run = plan.run(1, &plan.documents(keys()), &mut |_| {});
    let violations: u64 = run.network.relays().map(|relay| relay.violations()).sum();
    assert_eq!(violations, 0, "{:?}", plan.common);
    let [relays, exits] = run.loads();
    assert!(relays > 0.0 && exits > 0.0 && relays < 1.0 && exits < 1.0, "{relays} {exits}");
    let complete = run.downloads().filter(|(_, _, download)| download.complete).count();
    (run.network.trace().hash(), complete)
}

#[test]
fn every_design_downloads_and_with_one_path_is_tor() {
    let with = |design: Design, legs| {
        let common = Common { design, legs, ..plan().common };
        run(&NetworkPlan { common, ..plan() })
    };
    let (tor, complete) = with(Design::Conflux, 1);
    assert!(complete > 1, "{complete}");
    for name in ["conflux", "conflux-2013", "mtor", "merged", "anabranch"] {
        let design: Design = name.parse().unwrap();
        let (hash, complete) = with(design, 2);
        assert!(complete > 1, "{name}: {complete}");
        assert_ne!(hash, tor, "{name}: two paths are another run");
        if design.has_congestion_control() {
            assert_eq!(with(design, 1).0, tor, "{name}");
        }
    }
}

#[test]
fn schedules_and_congestion_control_change_the_run() {
    let with = |schedule: Option<&str>, name: &str, congestion_control| {
        let dealing = schedule.map(|text| LegScheduler::read(text, 2).unwrap());
        let common = Common { dealing, legs: 2, design: name.parse().unwrap(), ..plan().common };
        run(&NetworkPlan { common, congestion_control, ..plan() })
    };
    let mut hashes = BTreeSet::new();
    for schedule in [None, Some("round-robin 1p"), Some("eta 1p")] {
        let (hash, complete) = with(schedule, "anabranch", true);
        assert!(complete > 1, "{schedule:?}: {complete}");
        hashes.insert(hash);
    }
    for controlled in [true, false] {
        let (hash, complete) = with(None, "mtor", controlled);
        assert!(complete > 1, "{controlled}: {complete}");
        hashes.insert(hash);
    }
    // mTor's circuits have fixed windows in either network.
    assert!(hashes.len() >= 4, "{hashes:?}");
}

/// The plan is like Tor of 2019: one circuit with fixed windows of 1,000 cells.
#[test]
fn a_single_circuit_with_fixed_windows_downloads() {
    let (fixed, complete) = run(&NetworkPlan { congestion_control: false, ..plan() });
    assert!(complete > 1, "{complete}");
    assert_ne!(fixed, run(&plan()).0);
}

/// Returns the relays of [`plan`], as a consensus lists them.
fn consensus() -> Arc<ConsensusRelays> {
    Arc::new(ConsensusRelays::new(plan().documents(keys()).network()))
}

#[test]
fn relays_sampled_from_a_consensus_keep_its_flags_policies_and_weights() {
    let all = consensus();
    assert_eq!((all.count(), all.counts(10), all.counts(5)), (10, [8, 2], [4, 1]));
    let with = |network, lines_by_weight| {
        let sample = Some(RelaySample { consensus: consensus(), lines_by_weight });
        NetworkPlan { relays: 4, exits: 1, sample, network, ..plan() }
    };
    let sampled = with(1, true).documents(keys());
    let original = plan().documents(keys());
    let weights = |documents: &NetworkDocuments| -> BTreeSet<u32> {
        documents.network().consensus().relays.iter().map(|relay| relay.bandwidth).collect()
    };
    assert!(weights(&sampled).is_subset(&weights(&original)));
    assert_eq!(sampled.network().consensus().weights, original.network().consensus().weights);
    let exits: Vec<bool> =
        sampled.network().relays().map(|relay| relay.microdesc.exits_to(80, false)).collect();
    assert_eq!(exits.iter().filter(|exits| **exits).count(), 1);
    let flagged = sampled.network().consensus().relays.iter().filter(|relay| relay.flags.exit);
    assert_eq!(flagged.count(), 1);
    // The rates of lines are the relays' weights, or drawn from the plan's tables.
    let rates = |plan: &NetworkPlan| -> Vec<u64> {
        let scenario = plan.scenario(1, &sampled);
        scenario.relays.iter().map(|host| host.up.rate.get()).collect()
    };
    let weighed: BTreeSet<u64> =
        weights(&sampled).iter().map(|weight| u64::from(*weight) * 8000).collect();
    assert_eq!(rates(&with(1, true)).into_iter().collect::<BTreeSet<_>>(), weighed);
    assert_ne!(rates(&with(1, true)), rates(&with(1, false)));
    assert_ne!(rates(&with(1, true)), rates(&with(2, true)), "another network, other relays");
}

#[test]
fn clients_download_in_a_sampled_network() {
    let sample = Some(RelaySample { consensus: consensus(), lines_by_weight: true });
    let sampled = NetworkPlan { relays: 6, exits: 2, sample, ..plan() };
    let (hash, complete) = run(&sampled);
    assert!(complete > 1, "{complete}");
    assert_eq!(run(&sampled).0, hash);
    assert_ne!(run(&NetworkPlan { network: 2, ..sampled }).0, hash);
}

/// Checks that the selection of a stream's circuit, and its attachment, have an effect on the run.
#[test]
fn selection_and_attachment_of_streams_change_the_run() {
    let with = |selection, leg_age: Option<u64>| {
        let design = "anabranch".parse().unwrap();
        let leg_age = leg_age.map(Duration::from_secs);
        // There are several circuits when the first stream requests one.
        let first_pause = Duration::from_secs(5);
        let common = Common { selection, leg_age, first_pause, legs: 2, design, ..plan().common };
        run(&NetworkPlan { common, web: 0, bulk: 2, ..plan() })
    };
    let mut hashes = BTreeSet::new();
    for (selection, leg_age) in [
        (Selection::Oldest, None),
        (Selection::Newest, None),
        (Selection::Oldest, Some(4)),
        (Selection::Oldest, Some(8)),
    ] {
        let (hash, complete) = with(selection, leg_age);
        assert!(complete > 1, "{selection:?}, {leg_age:?}: {complete}");
        hashes.insert(hash);
    }
    assert_eq!(hashes.len(), 4, "{hashes:?}");
}
