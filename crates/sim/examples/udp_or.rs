//! Compares UDP-OR and mUDP-OR (streams over circuits whose cells may get lost, with single
//! circuits and with sets of circuits) with the designs over TCP in the same simulated networks:
//! times to first byte, and bulk downloads (`make bench AREA=udp-or`). Results depend only on the
//! seeds, not on the machine or its load. Each value is the median over the seeds, with the
//! minimum and the maximum. Each ratio compares two simulations with the same seed.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_onion::LossyCongestion;
use anabranch_onion::conflux::LegScheduler;
use anabranch_sim::onion::{
    ClientHostSettings, ClientLoad, Common, Crypto, NetworkDocuments, OnionNetwork, Pause,
    RelayDescription, RequestTime, Scenario,
};
use anabranch_sim::{HostId, HostSettings, Latencies, LineSettings};

const SEEDS: u64 = 5;
const MS: Duration = Duration::from_millis(1);
/// Number of relays that are not exits, followed by the number of exits. A set of three circuits
/// needs six relays that are not exits.
const RELAYS: [usize; 2] = [6, 2];
/// Size of a bulk download in bytes.
const BULK: u64 = 2 << 20;
/// Duration of the simulations with bulk downloads, in seconds.
const BULK_SECONDS: u64 = 40;

/// A design under test, with the number of circuits in each set.
#[derive(Clone, Copy)]
struct Arm {
    name: &'static str,
    legs: usize,
    congestion: Option<LossyCongestion>,
    schedule: Option<&'static str>,
}

const TOR: Arm = Arm { name: "tor", legs: 1, congestion: None, schedule: None };
const UDP_OR: Arm = Arm { name: "udp-or", congestion: Some(LossyCongestion::BBR), ..TOR };
const CONFLUX: Arm = Arm { name: "conflux", legs: 3, ..TOR };
const MUDP_OR: Arm = Arm { name: "mudp-or", legs: 3, schedule: Some("eta 1p"), ..UDP_OR };
const TURNS: Arm = Arm {
    name: "mudp-or, round robin",
    congestion: Some(LossyCongestion::CUBIC),
    schedule: Some("round-robin 1p"),
    ..MUDP_OR
};

impl Arm {
    fn common(&self, seed: u64) -> Common {
        let dealing = self.schedule.and_then(|text| LegScheduler::read(text, self.legs));
        let (legs, udp_or, crypto) = (self.legs, self.congestion, Crypto::Elided);
        Common { seed, legs, udp_or, dealing, crypto, ..Common::default() }
    }
}

/// Access lines of a network: rates in Mbit/s, and the share of packets that each line loses in
/// the direction to its host.
#[derive(Clone, Copy)]
struct Lines {
    /// Rates of the relays that are not exits. The list is repeated if there are more relays.
    relays: &'static [u64],
    /// Rate of exits and clients.
    others: u64,
    loss: f64,
}

/// Directory documents of the relays: first without support for lossy circuits (circuits whose
/// cells may get lost), then with it.
struct DocumentPair([NetworkDocuments; 2]);

impl DocumentPair {
    fn new() -> DocumentPair {
        DocumentPair([false, true].map(|lossy| {
            let describe =
                |place| RelayDescription { exit: place >= RELAYS[0], bandwidth: 1_000_000, lossy };
            let relays: Vec<_> = (0..RELAYS.iter().sum()).map(describe).collect();
            NetworkDocuments::new(&relays, &BTreeMap::new())
        }))
    }

    /// Simulates clients that download as `load` describes, for `seconds`.
    fn run(
        &self,
        (arm, seed): (&Arm, u64),
        lines: &Lines,
        (load, clients): (ClientLoad, usize),
        seconds: u64,
    ) -> OnionNetwork {
        let common = arm.common(seed);
        // A link between two hosts has the loss of the receiver's line.
        let host = |megabits: u64, loss| {
            let rate = NonZeroU64::new(megabits * 1_000_000).unwrap_or(NonZeroU64::MIN);
            let line = LineSettings::with_queue(rate, 50 * MS);
            HostSettings { down: LineSettings { loss, ..line }, ..HostSettings::symmetric(line) }
        };
        let inner = lines.relays.iter().cycle().take(RELAYS[0]).map(|rate| host(*rate, lines.loss));
        let exits = (0..RELAYS[1]).map(|_| host(lines.others, lines.loss));
        let client = || ClientHostSettings {
            host: host(lines.others, lines.loss),
            loads: vec![load],
            pins: None,
        };
        let mut network = OnionNetwork::new(&Scenario {
            documents: self.0[usize::from(common.udp_or.is_some())].clone(),
            common,
            relays: inner.chain(exits).collect(),
            servers: vec![host(1_000, 0.0)],
            clients: (0..clients).map(|_| client()).collect(),
            latencies: Latencies::uniform(20 * MS),
            paths: Vec::new(),
        });
        network.run_until(Time::from_secs(seconds));
        network
    }

    /// Returns the median and the 90th percentile of the times to first byte, in ms. For designs
    /// over TCP, `is_optimistic` selects the downloads: if true, only downloads whose request was
    /// sent without waiting for the exit's answer, otherwise only the others.
    fn first_bytes(&self, arm: &Arm, seed: u64, loss: f64, is_optimistic: bool) -> [f64; 2] {
        let load = ClientLoad {
            bytes: 50_000,
            pause: Pause::Between(500 * MS, 1500 * MS),
            request: RequestTime::Alternating,
            ..ClientLoad::web()
        };
        let lines = Lines { relays: &[80], others: 80, loss };
        let network = self.run((arm, seed), &lines, (load, 4), 120);
        let counts = |place: &usize| arm.congestion.is_some() || (place % 2 == 1) == is_optimistic;
        let times = network.clients().flat_map(|client| {
            // The first downloads wait for circuits.
            let warm = client.downloads().iter().enumerate().skip(4);
            let counted = warm.filter(|(place, _)| counts(place));
            counted.map(|(_, download)| download.ttfb().unwrap_or(Duration::MAX))
        });
        let mut times: Vec<Duration> = times.collect();
        times.sort_unstable();
        [0.5, 0.9].map(|share| {
            let place = (share * times.len() as f64) as usize;
            times[place.min(times.len() - 1)].as_secs_f64() * 1e3
        })
    }

    /// Simulates a client that makes bulk downloads for [`BULK_SECONDS`].
    fn bulk(&self, arm: &Arm, seed: u64, lines: &Lines) -> OnionNetwork {
        let load = ClientLoad { bytes: BULK, ..ClientLoad::bulk() };
        self.run((arm, seed), lines, (load, 1), BULK_SECONDS)
    }

    /// Returns the goodput of a client's bulk downloads in Mbit/s.
    fn goodput(&self, arm: &Arm, seed: u64, lines: &Lines) -> f64 {
        let network = self.bulk(arm, seed, lines);
        let mut rates: Vec<f64> = network
            .downloads()
            .filter_map(|download| Some(BULK as f64 * 8e-6 / download.ttlb()?.as_secs_f64()))
            .collect();
        spread(&mut rates)[0]
    }
}

/// Uses of the access lines of relays that are not exits: shares of the lines' total capacity, in
/// percent.
struct Account {
    /// Bytes of downloads that the client received.
    payload: f64,
    /// Cells that carry only acknowledgements, and no bytes of a stream.
    bare: f64,
    /// Headers of the other cells, repeated or lost bytes of streams, and the handshakes of links.
    rest: f64,
    idle: f64,
}

/// Returns the uses of the access lines of relays that are not exits, in the direction from the
/// relay. Relays without a circuit do not count.
fn account(network: &OnionNetwork, lines: &Lines) -> Account {
    let rates = lines.relays.iter().cycle().take(RELAYS[0]);
    let capacity = |rate: &u64| (rate * 125_000 * BULK_SECONDS) as f64;
    let sent = |place| network.simulation().stats(HostId(place)).map(|line| line.bytes)[0] as f64;
    let used = rates.enumerate().map(|(place, rate)| (capacity(rate), sent(place as u32)));
    let used = used.filter(|(capacity, sent)| *sent > capacity / 20.0);
    let (capacity, wire) = used.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let exits = network.relays().map(|relay| relay.lossy_traffic());
    let ends = exits.chain(network.clients().map(|client| client.lossy_traffic()));
    let (bare, cells) = ends.fold((0, 0), |sum, end| (sum.0 + end.bare, sum.1 + end.data));
    let received: u64 = network.clients().map(|client| client.received()).sum();
    // Each byte of a stream passes two inner relays.
    let payload = 2.0 * received as f64;
    let bare = wire * bare as f64 / (bare + cells) as f64;
    let share = |bytes: f64| 100.0 * bytes / capacity;
    Account {
        payload: share(payload),
        bare: share(bare),
        rest: share(wire - payload - bare),
        idle: share(capacity - wire),
    }
}

/// Returns the median, the minimum and the maximum of `values`; zeros if `values` is empty.
fn spread(values: &mut [f64]) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let at = |place: usize| values.get(place).copied().unwrap_or_default();
    [at(values.len() / 2), at(0), at(values.len().saturating_sub(1))]
}

fn show(values: impl Iterator<Item = f64>, digits: usize) -> String {
    let [median, least, most] = spread(&mut values.collect::<Vec<f64>>());
    format!("{median:.digits$} ({least:.digits$}–{most:.digits$})")
}

/// Returns the ratio of each value in `of` to the value with the same seed in `to`.
fn ratios<'v>(of: &'v [f64], to: &'v [f64]) -> impl Iterator<Item = f64> + 'v {
    of.iter().zip(to).map(|(of, to)| of / to)
}

fn first_bytes(papers: &DocumentPair) {
    println!("| loss of a link | design | median, ms | 90th percentile, ms | ratio of both |");
    println!("|---|---|---|---|---|");
    let arms = [
        ("tor, optimistic data", TOR, true),
        ("tor", TOR, false),
        ("udp-or", UDP_OR, true),
        ("mudp-or", MUDP_OR, true),
        ("mudp-or, round robin", TURNS, true),
    ];
    for loss in [0.0, 0.02] {
        let mut baseline: [Vec<f64>; 2] = Default::default();
        for (name, arm, is_optimistic) in arms {
            let found: Vec<[f64; 2]> = (1..=SEEDS)
                .map(|seed| papers.first_bytes(&arm, seed, loss, is_optimistic))
                .collect();
            let found: [Vec<f64>; 2] = [0, 1].map(|at| found.iter().map(|one| one[at]).collect());
            if baseline[0].is_empty() {
                baseline = found.clone();
            }
            let [median, tail] = [0, 1].map(|at| show(found[at].iter().copied(), 0));
            let [first, second] = [0, 1].map(|at| show(ratios(&found[at], &baseline[at]), 2));
            println!("| {loss} | {name} | {median} | {tail} | {first}; {second} |");
        }
    }
}

fn bulk(papers: &DocumentPair) {
    println!("| relays' lines, Mbit/s | loss of a link | design | Mbit/s | ratio to conflux |");
    println!("|---|---|---|---|---|");
    let places: [&[u64]; 2] = [&[4], &[2, 4, 8]];
    for (relays, loss) in places.into_iter().flat_map(|place| [(place, 0.0), (place, 0.01)]) {
        let lines = Lines { relays, others: 100, loss };
        let mut baseline = Vec::new();
        for arm in [CONFLUX, MUDP_OR, TURNS, TOR, UDP_OR] {
            let found: Vec<f64> =
                (1..=SEEDS).map(|seed| papers.goodput(&arm, seed, &lines)).collect();
            if baseline.is_empty() {
                baseline.clone_from(&found);
            }
            let (rate, ratio) = (show(found.iter().copied(), 1), ratios(&found, &baseline));
            let name = format!("{} × {}", arm.name, arm.legs);
            println!("| {relays:?} | {loss} | {name} | {rate} | {} |", show(ratio, 2));
        }
    }
}

fn accounts(papers: &DocumentPair) {
    println!("Shares of the capacity of the inner relays' lines, in percent, without loss:");
    println!("| relays' lines, Mbit/s | design | payload | acknowledgements | rest | idle |");
    println!("|---|---|---|---|---|---|");
    for (relays, arm) in [(&[4][..], UDP_OR), (&[4], MUDP_OR), (&[2, 4, 8], MUDP_OR)] {
        let lines = Lines { relays, others: 100, loss: 0.0 };
        let of = |seed| account(&papers.bulk(&arm, seed, &lines), &lines);
        let accounts: Vec<Account> = (1..=SEEDS).map(of).collect();
        let uses: [fn(&Account) -> f64; 4] =
            [|it| it.payload, |it| it.bare, |it| it.rest, |it| it.idle];
        let uses = uses.map(|of| show(accounts.iter().map(of), 0));
        let name = format!("{} × {}", arm.name, arm.legs);
        println!("| {relays:?} | {name} | {} |", uses.join(" | "));
    }
}

fn main() {
    let papers = DocumentPair::new();
    let parts: Vec<String> = std::env::args().skip(1).collect();
    let has = |part: &str| parts.is_empty() || parts.iter().any(|asked| asked == part);
    if has("first-bytes") {
        first_bytes(&papers);
    }
    if has("bulk") {
        bulk(&papers);
    }
    if has("account") {
        accounts(&papers);
    }
}
