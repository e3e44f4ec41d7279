//! Simulation of the same network that runs in the emulator, host by host.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_sim::onion::{
    ClientHostSettings, ClientLoad, DownloadRecord, NetworkDocuments, OnionNetwork, Pause,
    RelayDescription, Scenario,
};
use anabranch_sim::{HostId, HostSettings, Latencies, LineSettings};

use super::super::circuits::simulated::Combination;
use super::measured::{RelayUse, Transfer, relay_use};
use super::plan::Settings;
use super::scenario::{DrawnClient, HostLine, WideNetwork};

/// Downloads and use of the relays' lines in one simulation.
pub(super) struct SimulatedRun {
    pub(super) transfers: Vec<Transfer>,
    pub(super) failed: u32,
    pub(super) relays: Vec<RelayUse>,
}

/// Simulates the downloads in `network` with the design `arm` and the seed `seed`. Returns `None`
/// if `stop` was set before the end.
pub(super) fn simulate(
    settings: &Settings,
    network: &WideNetwork,
    (arm, seed): (Combination, u64),
    stop: &AtomicBool,
) -> Option<SimulatedRun> {
    let mut run = OnionNetwork::new(&scenario(settings, network, (arm, seed)));
    let mut before = Vec::new();
    for second in 1..=settings.warm_up + settings.seconds {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        run.run_until(Time::ZERO + Duration::from_secs(second.into()));
        if second == settings.warm_up {
            before = carried(&run, network.relays.len());
        }
    }
    let after = carried(&run, network.relays.len());
    let used = (0..network.relays.len()).map(|relay| {
        let earlier = before.get(relay).copied().unwrap_or_default();
        let bytes = [0, 1].map(|way| after[relay][way] - earlier[way]);
        relay_use(network, relay, (bytes, f64::from(settings.seconds)), 0.0)
    });
    let (transfers, failed) = transfers(&run, network, settings.warm_up.into());
    Some(SimulatedRun { transfers, failed, relays: used.collect() })
}

/// Returns the bytes that each relay's line has carried so far, in both directions.
fn carried(run: &OnionNetwork, relays: usize) -> Vec<[u64; 2]> {
    let bytes = |relay| run.simulation().stats(HostId(relay)).map(|line| line.bytes);
    (0..relays as u32).map(bytes).collect()
}

/// Returns the completed downloads that ended after the warm-up, and the number of failed ones.
fn transfers(run: &OnionNetwork, network: &WideNetwork, warm_up: f64) -> (Vec<Transfer>, u32) {
    let (mut found, mut failed) = (Vec::new(), 0);
    for (number, (host, client)) in run.clients().zip(&network.clients).enumerate() {
        let counted = |one: &&DownloadRecord| one.ended.secs_f64() >= warm_up;
        for download in host.downloads().iter().filter(counted) {
            let times = download.ttfb().zip(download.ttlb());
            let Some((first, last)) = times else {
                failed += 1;
                continue;
            };
            let times = [first, last].map(|time| time.as_secs_f64());
            found.push(Transfer::new((number, client.is_bulk), download.asked.secs_f64(), times));
        }
    }
    (found, failed)
}

fn scenario(
    settings: &Settings,
    network: &WideNetwork,
    (arm, seed): (Combination, u64),
) -> Scenario {
    let mut lines = Vec::new();
    let mut host = |line: &HostLine| {
        lines.push(*line);
        let queue = usize::try_from(line.queue()).unwrap_or(usize::MAX);
        let settings = LineSettings { rate: line.rate, queue, loss: 0.0 };
        HostSettings { place: lines.len() - 1, ..HostSettings::symmetric(settings) }
    };
    let relays = network.relays.iter().map(&mut host).collect();
    let servers = network.servers.iter().map(&mut host).collect();
    let client = |client: &DrawnClient| ClientHostSettings {
        host: host(&client.line),
        loads: vec![load(settings, client.is_bulk)],
        pins: Some(client.pins(arm.legs)),
    };
    let clients = network.clients.iter().map(client).collect();
    Scenario {
        common: arm.common(seed),
        documents: documents(network),
        relays,
        servers,
        clients,
        latencies: latencies(&lines),
        paths: Vec::new(),
    }
}

/// Returns the simulated behaviour of a bulk client or a web client.
pub(super) fn load(settings: &Settings, is_bulk: bool) -> ClientLoad {
    let pause = Pause::Exponential(Duration::from_secs_f64(settings.pause));
    if is_bulk { ClientLoad::bulk() } else { ClientLoad { pause, ..ClientLoad::web() } }
}

/// Creates the relays' keys and directory documents. The onion network's congestion control is
/// Vegas (proposal 324), as in the measured network. The relays' weights have no effect, because
/// each client has fixed relays.
fn documents(network: &WideNetwork) -> NetworkDocuments {
    let describe = |relay| RelayDescription {
        exit: network.position(relay) == "exit",
        bandwidth: network.relays[relay].rate.get() / 8,
        lossy: false,
    };
    let relays: Vec<RelayDescription> = (0..network.relays.len()).map(describe).collect();
    NetworkDocuments::new(&relays, &BTreeMap::from([("cc_alg".to_owned(), 2)]))
}

/// Returns the delay between each two hosts: the sum of the delays of the two hosts' lines.
fn latencies(lines: &[HostLine]) -> Latencies {
    let row = |from: &HostLine| lines.iter().map(|to| from.delay + to.delay).collect();
    let rows: Vec<Vec<Duration>> = lines.iter().map(row).collect();
    Latencies::matrix(&rows).expect("the matrix has as many rows as columns")
}

#[cfg(test)]
mod tests {
    use super::super::super::circuits::Design;
    use super::super::plan::tests::settings;
    use super::super::scenario::Counts;
    use super::*;

    /// Simulates a small network for a short time.
    fn run(design: Design, legs: u32) -> SimulatedRun {
        let counts = Counts::of(6, [2, 4, 1]);
        let small = Settings { counts, warm_up: 10, seconds: 30, pause: 2.0, ..settings() };
        let arm = Combination { design, legs };
        simulate(&small, &small.network(), (arm, 1), &AtomicBool::new(false)).unwrap()
    }

    #[test]
    fn clients_of_both_kinds_download_over_the_drawn_lines() {
        for (design, legs) in [(Design::Tor, 1), (Design::Ours, 2)] {
            let found = run(design, legs);
            let count = |is_bulk| found.transfers.iter().filter(|one| one.bulk == is_bulk).count();
            assert!(count(false) > 3 && count(true) > 0, "{design}: {}", found.transfers.len());
            assert!(found.transfers.iter().all(|one| 0.0 < one.first && one.first <= one.last));
            assert!(found.relays.iter().any(|relay| relay.used > 0.05), "{:?}", found.relays);
            assert!(found.relays.iter().all(|relay| relay.used < 1.05), "{:?}", found.relays);
        }
    }

    #[test]
    fn a_stopped_simulation_has_no_result() {
        let (settings, stop) = (settings(), AtomicBool::new(true));
        let arm = Combination { design: Design::Tor, legs: 1 };
        assert!(simulate(&settings, &settings.network(), (arm, 1), &stop).is_none());
    }
}
