//! Simulation of the experiment's downloads in virtual time, with relays, client and network lines
//! of the crate `sim`.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_onion::circuitmux::Kind;
use anabranch_onion::wire::cell::NUMBERED_CELL;
use anabranch_sim::onion::{
    ClientHostSettings, ClientLoad, Common, Crypto, LinkLayer, NetworkDocuments, OnionNetwork,
    Pause, QuicCongestion, RelayDescription, Scenario,
};
use anabranch_sim::{
    Congestion as TcpCongestion, CoreImpairment, HostSettings, Latencies, LineSettings, TcpConfig,
};

use super::bench::{Outcome, timed};
use super::measured::{Download, Measured};
use super::place::{DELAY_MS, QUEUE_MS, RATE_MBIT};
use super::plan::{Arm, Congestion, Direction, Line, Settings, Unit, lengths};

/// Index of the client's host on the path.
const CLIENT: usize = 0;
/// Index of the middle relay's host on the path.
const MIDDLE: usize = 2;
/// Index of the host of the exit and the web server on the path.
const EXIT: usize = 3;
/// Number of hosts on the path.
const PLACES: usize = 4;

/// Start times of the three successive downloads that are simulated for each measured download.
/// The first two have one byte: the first opens the links, and the second builds the circuit that
/// the third uses.
const STARTS: [Duration; 3] =
    [Duration::from_secs(60), Duration::from_secs(120), Duration::from_secs(150)];
/// Time for which a circuit accepts new streams. It is long enough for the third download to use
/// the second one's circuit, but too short for the second to use the first one's. The first
/// circuits do not use QUIC links, because these are opened only after the TLS links.
const DIRTINESS: Duration = Duration::from_secs(40);
/// Delay of the loopback interface between the exit and the web server on its host.
const LOOPBACK: Duration = Duration::from_micros(20);
/// Largest MTU of a simulated host, in bytes. The MTU of Linux's loopback interface is one byte
/// larger.
const LOOPBACK_MTU: u16 = u16::MAX;
/// Rate of the simulated network lines that stand for connections without a rate limit, in bits
/// per second.
const UNLIMITED: NonZeroU64 = NonZeroU64::new(10_000_000_000).expect("the rate is not zero");

/// Executor that simulates this experiment's measurements instead of making them in an emulated
/// network.
pub struct Simulator {
    documents: NetworkDocuments,
    settings: Settings,
}

impl Simulator {
    /// Kinds of links that can be simulated.
    pub const ARMS: [Arm; 5] =
        [Arm::Ordered, Arm::OrderedKist, Arm::Unordered, Arm::UnorderedKist, Arm::Quic];

    /// Creates the relays with their keys and documents.
    #[must_use]
    pub fn new(settings: &Settings) -> Simulator {
        let describe =
            |place| RelayDescription { exit: place == 2, bandwidth: 10_000_000, lossy: false };
        let relays: Vec<RelayDescription> = (0..3).map(describe).collect();
        // Congestion control is Vegas (proposal 324), as in the measured network.
        let params = BTreeMap::from([("cc_alg".to_owned(), 2)]);
        let documents = NetworkDocuments::new(&relays, &params);
        Simulator { documents, settings: settings.clone() }
    }

    /// Simulates `unit`. If `stop` is set, the simulation ends soon, and its result is useless.
    ///
    /// # Errors
    /// The measurement is for QUIC links, and no circuit used one.
    pub fn measure(&self, unit: &Unit, stop: &AtomicBool) -> Result<Measured, String> {
        let measured = timed(unit, || self.simulate(unit, stop));
        measured.map_err(|error| error.to_string())
    }

    fn simulate(&self, unit: &Unit, stop: &AtomicBool) -> io::Result<Outcome> {
        let lengths = lengths(self.settings.downloads, self.settings.lengths);
        let start = Time::ZERO + STARTS[2];
        let end = start + Duration::from_secs(self.settings.cut.into());
        let mut network = OnionNetwork::new(&self.scenario(unit, &lengths));
        network.run_until(start);
        let before: Vec<Duration> = network.relays().map(|relay| relay.busy()).collect();
        let records = |network: &OnionNetwork| -> Vec<_> {
            network.downloads().filter(|download| download.asked == start).copied().collect()
        };
        while network.now() < end
            && records(&network).len() < lengths.len()
            && !stop.load(Ordering::Relaxed)
        {
            network.run_until(network.now() + Duration::from_secs(1));
        }
        let records = records(&network);
        let whole = |bytes: u32| {
            let found = records.iter().find(|record| record.received == u64::from(bytes));
            found.and_then(|record| record.ttlb()).map(|time| time.as_secs_f64())
        };
        let downloads: Vec<Download> =
            lengths.iter().map(|&bytes| Download { bytes, whole: whole(bytes) }).collect();
        let is_cut = downloads.iter().any(|download| download.whole.is_none());
        let mut cpu = [0.0; 3];
        for ((cpu, relay), before) in cpu.iter_mut().zip(network.relays()).zip(&before) {
            *cpu = (relay.busy() - *before).as_secs_f64();
        }
        let datagrams: u64 = network.relays().map(|relay| relay.received()[0]).sum();
        let payload = lengths.iter().map(|&bytes| u64::from(bytes)).sum::<u64>();
        if unit.arm == Arm::Quic && datagrams < payload {
            return Err(io::Error::other("no circuit uses a QUIC link"));
        }
        let early: u64 = network.relays().map(|relay| relay.early()).sum();
        let error = if is_cut { "a download was aborted" } else { "" }.to_owned();
        let early_records = early / NUMBERED_CELL as u64;
        Ok(Outcome { downloads, cells: None, early_records, cpu, error })
    }

    fn scenario(&self, unit: &Unit, lengths: &[u32]) -> Scenario {
        let load = |&bytes: &u32| ClientLoad {
            bytes: bytes.into(),
            pause: Pause::At(&STARTS),
            timeout: Duration::from_secs(self.settings.cut.into()),
            warm_ups: 2,
            ..ClientLoad::web()
        };
        Scenario {
            common: common(unit, unit.seed(self.settings.seed)),
            documents: self.documents.clone(),
            relays: (1..PLACES).map(host).collect(),
            servers: vec![server()],
            clients: vec![ClientHostSettings {
                host: host(CLIENT),
                loads: lengths.iter().map(load).collect(),
                pins: Some([vec![0], vec![1], vec![2]]),
            }],
            latencies: latencies(),
            paths: paths(unit.line),
        }
    }
}

fn common(unit: &Unit, seed: u64) -> Common {
    let (link, policy) = match unit.arm {
        Arm::Unordered => (LinkLayer::Utls, Kind::Ewma),
        Arm::UnorderedKist => (LinkLayer::Utls, Kind::Kist),
        Arm::OrderedKist => (LinkLayer::Tls, Kind::Kist),
        Arm::Quic => (LinkLayer::Quic, Kind::Ewma),
        _ => (LinkLayer::Tls, Kind::Ewma),
    };
    let (congestion, quic_congestion) = match unit.line.congestion {
        Congestion::Cubic => (TcpCongestion::CUBIC, QuicCongestion::Cubic),
        Congestion::Bbr => (TcpCongestion::BBR, QuicCongestion::Bbr),
    };
    Common {
        seed,
        link,
        quic_congestion,
        policy,
        dirtiness: Some(DIRTINESS),
        crypto: Crypto::Elided,
        tcp: TcpConfig { congestion, ..TcpConfig::default() },
        ..Common::default()
    }
}

/// Returns the settings of the host with the index `place` on the path. Only the direction from
/// the host has a limited rate: each emulated line between two hosts is thus limited once, by the
/// sending host.
fn host(place: usize) -> HostSettings {
    let queue = Duration::from_millis(QUEUE_MS.into());
    let rate = NonZeroU64::new(u64::from(RATE_MBIT) * 1_000_000).expect("a line has a rate");
    let mtu = if place == EXIT { LOOPBACK_MTU } else { 1500 };
    let limited = LineSettings::with_queue(rate, queue);
    let down = LineSettings::with_queue(UNLIMITED, queue);
    HostSettings { up: limited, down, place, mtu }
}

/// Returns the settings of the web server on the exit's host.
fn server() -> HostSettings {
    let host = host(EXIT);
    HostSettings { up: host.down, ..host }
}

fn latencies() -> Latencies {
    let delay = |from: usize, to: usize| match from.abs_diff(to) {
        0 => LOOPBACK,
        lines => Duration::from_millis(DELAY_MS.into()) * lines as u32,
    };
    let row = |from| (0..PLACES).map(|to| delay(from, to)).collect();
    let rows: Vec<Vec<Duration>> = (0..PLACES).map(row).collect();
    Latencies::matrix(&rows).expect("the matrix has as many rows as columns")
}

/// Returns the loss and the deviation of the delay of each line of the path, in both directions.
fn paths(line: Line) -> Vec<([usize; 2], CoreImpairment)> {
    let deviation = Duration::from_millis(line.deviation.into());
    let lossy = match line.direction {
        Direction::ToExit => [MIDDLE, EXIT],
        Direction::FromExit => [EXIT, MIDDLE],
    };
    let ways = (0..PLACES - 1).flat_map(|place| [[place, place + 1], [place + 1, place]]);
    let settings = |way: [usize; 2]| {
        let loss = if way == lossy { f64::from(line.loss) / 100.0 } else { 0.0 };
        (way, CoreImpairment { loss, deviation, line: None })
    };
    ways.map(settings).collect()
}

#[cfg(test)]
mod tests {
    use super::super::plan::SegmentOrder;
    use super::super::plan::plan;
    use super::super::plan::tests::settings;
    use super::*;

    fn measured(arm: Arm, congestion: Congestion) -> Measured {
        let settings = Settings {
            arms: vec![arm],
            losses: vec![5],
            directions: vec![Direction::FromExit],
            deviations: vec![5],
            congestions: vec![congestion],
            orders: vec![SegmentOrder::Kept],
            rounds: 1,
            downloads: 10,
            ..settings()
        };
        let [unit] = &plan(&settings)[..] else { panic!("one unit") };
        Simulator::new(&settings).measure(unit, &AtomicBool::new(false)).unwrap()
    }

    #[test]
    fn all_downloads_over_each_kind_of_link_are_complete() {
        for arm in Simulator::ARMS {
            let one = measured(arm, Congestion::Bbr);
            assert!(one.times().len() == 10 && one.error.is_empty(), "{arm}: {one:?}");
            let is_unordered = matches!(arm, Arm::Unordered | Arm::UnorderedKist);
            assert_eq!(one.early_records > 0, is_unordered, "{arm}: {}", one.early_records);
            // Request and answer take three lines of 50 ms each.
            let fastest = one.times()[0];
            assert!((0.6..5.0).contains(&fastest), "{arm}: {fastest}");
            assert_eq!(one.downloads, measured(arm, Congestion::Bbr).downloads, "{arm}");
        }
    }
}
