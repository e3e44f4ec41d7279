//! Simulation of the network with emulated lines that `experiment circuits` measures. The module
//! also compares the simulated times with the measured ones.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_onion::conflux::LegScheduler;
use anabranch_sim::onion::{
    ClientHostSettings, ClientLoad, Common, Crypto, DownloadRecord, NetworkDocuments, OnionNetwork,
    Pause, RelayDescription, RequestTime, Scenario, WebTimes,
};
use anabranch_sim::{CoreImpairment, HostSettings, Latencies, LineSettings};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};

use super::super::onions::fetch::ACCEPT_INTERVAL;
use super::super::spread::middle;
use super::measured::MIB;
use super::place::{LINES, QUEUE_MS};
use super::plan::{Design, Layout, WEB};

/// Maximum deviation of a simulated median from the measured median, as a fraction of the measured
/// median.
pub const WITHIN: f64 = 0.15;
/// Number of load clients (clients that only create load) in the simulation.
const CLIENTS: usize = 30;
/// Mean pause between two fetches of a load client, in a network with emulated lines.
const PAUSE: Duration = Duration::from_secs(12);
/// Range of the random pause between two repetitions of the measuring client.
const BETWEEN: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(250)];
/// Simulated time at the start during which repetitions do not count. At the end of this time, the
/// clients have built all circuits.
const WARM_UP: Duration = Duration::from_secs(10);
/// Delay of the loopback interface of the core host, on which most programs run.
const LOOPBACK: Duration = Duration::from_micros(20);
/// Maximum length in bytes of an IPv4 packet, which is the MTU of Linux's loopback interface less
/// one.
const LOOPBACK_MTU: u16 = u16::MAX;
/// Maximum bytes of content in the TLS records of the program that was measured. Later versions of
/// the program send shorter records.
const MEASURED_RECORD: usize = 16 << 10;
/// Processing delays of the measured web servers. The servers look for new connections at
/// intervals, and compute each byte of a response. Computing a mebibyte takes 2.8 to 3.1 ms on a
/// core of an EPYC, measured alone.
const MEASURED_SERVERS: WebTimes =
    WebTimes { look: ACCEPT_INTERVAL, mebibyte: Duration::from_millis(3) };
/// Rate of the simulated network lines that stand for connections without a rate limit, in bits
/// per second.
const UNLIMITED: NonZeroU64 = NonZeroU64::new(10_000_000_000).expect("the rate is not zero");
/// Delay of the direct network line between the measuring client and the core host. Circuits do
/// not use this line.
const CORE_DELAY: Duration = Duration::from_millis(10);
/// Number of guards, and also number of middles.
const GUARDS: usize = 3;
/// Index of the exit in the list of relays.
const EXIT: usize = 2 * GUARDS;
/// Index of the core host's location in the simulated network.
const CORE: usize = 0;
/// Index of the measuring client's location in the simulated network.
const CLIENT: usize = 1;
/// Index of the first guard's location in the simulated network. The other guards have the next
/// indices.
const OF_GUARDS: usize = 2;

/// A time whose simulated and measured values are compared: from a request to a byte of its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    /// Time to the first byte of a page, if the HTTP request is sent after the SOCKS reply.
    FirstByte,
    /// Time to the first byte of a page whose request is sent together with the SOCKS request.
    OptimisticFirstByte,
    /// Time to the last byte of a page of 320 KiB.
    Web,
    /// Time to the last byte of a download of 1 MiB.
    Bulk,
}

impl Quantity {
    /// All times that are compared.
    pub const ALL: [Quantity; 4] =
        [Quantity::FirstByte, Quantity::OptimisticFirstByte, Quantity::Web, Quantity::Bulk];

    /// Returns the quantity's name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Quantity::FirstByte => "first byte",
            Quantity::OptimisticFirstByte => "first byte, optimistic",
            Quantity::Web => "320 KiB",
            Quantity::Bulk => "1 MiB",
        }
    }
}

/// Medians of the times in [`Quantity::ALL`], in seconds.
pub type Medians = [f64; 4];

/// A design (protocol and scheduler) with a number of circuits per stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Combination {
    /// Protocol and scheduler that split streams over circuits.
    pub design: Design,
    /// Number of circuits over which a stream is split.
    pub legs: u32,
}

impl Combination {
    /// Returns all combinations that are compared: this project's designs over TCP links. The
    /// published measurements contain no other combinations yet.
    #[must_use]
    pub fn all() -> Vec<Combination> {
        let ours = Design::ALL.into_iter().filter(|design| in_simulator(*design).is_some());
        let with_legs = |design: Design| {
            let legs: &[u32] = if design == Design::Tor { &[1] } else { &[2, 3] };
            legs.iter().map(move |&legs| Combination { design, legs })
        };
        ours.flat_map(with_legs).collect()
    }

    /// Returns all sets of guards that the measuring client's circuits may use. Each set is a list
    /// of guard indices.
    #[must_use]
    pub fn guards(self) -> Vec<Vec<usize>> {
        match self.legs {
            1 => (0..GUARDS).map(|guard| vec![guard]).collect(),
            2 => (0..GUARDS)
                .map(|left_out| (0..GUARDS).filter(|it| *it != left_out).collect())
                .collect(),
            _ => vec![(0..GUARDS).collect()],
        }
    }

    /// Returns the settings of a simulation of this combination with `seed`. The simulated web
    /// servers have the processing delays of the measured ones.
    pub(in super::super) fn common(self, seed: u64) -> Common {
        let legs = self.legs as usize;
        let (name, schedule) =
            in_simulator(self.design).expect("the simulator has all designs of the plan");
        let dealing = schedule.map(|text| {
            LegScheduler::read(text, legs).expect("the simulator has the design's schedule")
        });
        Common {
            seed,
            design: name.parse().expect("the simulator has a design of this name"),
            legs,
            dealing,
            crypto: Crypto::Elided,
            web: MEASURED_SERVERS,
            ..Common::default()
        }
    }
}

/// Returns the simulator's name of `design`, and the name of its scheduler with the run length
/// (number of consecutive cells on one circuit). The scheduler is `None` for the design's default.
/// Returns `None` if the design is not compared.
fn in_simulator(design: Design) -> Option<(&'static str, Option<&'static str>)> {
    Some(match design {
        Design::Tor | Design::Conflux => ("conflux", None),
        Design::Conflux2013 => ("conflux-2013", None),
        Design::Conflux2013Turns => ("conflux-2013", Some("round-robin 1p")),
        Design::MTor => ("mtor", None),
        Design::MTorTurns => ("mtor", Some("round-robin 1p")),
        Design::Ours => ("anabranch", None),
        Design::OursTurns => ("anabranch", Some("round-robin 1p")),
        Design::Merged => ("merged", None),
        Design::MergedBatches => ("merged", Some("weighted:4 50-70p")),
        Design::UdpOr
        | Design::MudpOr
        | Design::MudpOrTurns
        | Design::More
        | Design::Stock
        | Design::StockConflux => return None,
    })
}

impl fmt::Display for Combination {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} × {}", self.design, self.legs)
    }
}

/// The simulated network. It has three guards with [`LINES`], three middles, the exit, four web
/// servers, the measuring client, and the load clients (clients that only create load).
///
/// As in the measured network, each guard has a line to the measuring client and a line to the
/// core host. All programs except the guards and the measuring client are on the core host. They
/// exchange packets of up to 65,535 bytes, as over a loopback interface.
pub struct Network {
    documents: NetworkDocuments,
}

impl Network {
    /// Creates the network's relays with their keys and documents. This takes seconds.
    #[must_use]
    pub fn new() -> Network {
        let describe =
            |place| RelayDescription { exit: place == EXIT, bandwidth: 10_000_000, lossy: false };
        let relays: Vec<RelayDescription> = (0..=EXIT).map(describe).collect();
        // Congestion control is Vegas (proposal 324), as in the measured network.
        let params = BTreeMap::from([("cc_alg".to_owned(), 2)]);
        Network { documents: NetworkDocuments::new(&relays, &params) }
    }

    fn scenario(&self, combination: Combination, guards: &[usize], seed: u64) -> Scenario {
        let host = |place| HostSettings { place, ..HostSettings::symmetric(unlimited()) };
        let core = || HostSettings { mtu: LOOPBACK_MTU, ..host(CORE) };
        let second = Some(MIB as u64);
        let [least, most] = BETWEEN;
        let page = ClientLoad { bytes: WEB as u64, ..ClientLoad::web() };
        let (pause, request) = (Pause::Between(least, most), RequestTime::Alternating);
        let middles = guards.iter().map(|guard| GUARDS + guard).collect();
        let measuring = ClientHostSettings {
            host: host(CLIENT),
            loads: vec![ClientLoad { second, pause, request, ..page }],
            pins: Some([guards.to_vec(), middles, vec![EXIT]]),
        };
        let loading = ClientHostSettings {
            host: core(),
            loads: vec![ClientLoad { pause: Pause::Exponential(PAUSE), ..page }],
            pins: Some([(0..GUARDS).collect(), (GUARDS..EXIT).collect(), vec![EXIT]]),
        };
        Scenario {
            common: Common { record: MEASURED_RECORD, ..combination.common(seed) },
            documents: self.documents.clone(),
            relays: (0..=EXIT)
                .map(|relay| if relay < GUARDS { host(OF_GUARDS + relay) } else { core() })
                .collect(),
            servers: vec![core(); 4],
            clients: std::iter::once(measuring)
                .chain(std::iter::repeat_n(loading, CLIENTS))
                .collect(),
            latencies: latencies(),
            paths: lines(),
        }
    }

    /// Simulates the downloads of the measuring client for `duration`, with circuits through
    /// `guards`. Returns the repetitions after the warm-up in which both downloads succeeded.
    #[must_use]
    pub fn simulate(
        &self,
        combination: Combination,
        guards: &[usize],
        (seed, duration): (u64, Duration),
    ) -> Vec<Repetition> {
        let mut network = OnionNetwork::new(&self.scenario(combination, guards, seed));
        network.run_until(Time::ZERO + WARM_UP + duration);
        let client = network.clients().next().expect("the network has a client that measures");
        let pairs = client.downloads().chunks_exact(2).enumerate();
        pairs
            .filter(|(_, pair)| pair[0].asked >= Time::ZERO + WARM_UP)
            .filter_map(|(number, pair)| Repetition::of(number % 2 == 1, pair))
            .collect()
    }
}

impl Default for Network {
    fn default() -> Network {
        Network::new()
    }
}

/// Returns the properties of simulated network lines that do not limit the rate.
fn unlimited() -> LineSettings {
    LineSettings::with_queue(UNLIMITED, Duration::from_millis(QUEUE_MS.into()))
}

/// Returns the delays between the locations of the hosts: the core, the measuring client and the
/// guards. A guard's added round-trip time is divided equally between its two lines.
fn latencies() -> Latencies {
    let quarter = |guard: usize| Duration::from_millis(LINES[guard].1.into()) / 4;
    let between = |from: usize, to: usize| match (from.min(to), from.max(to)) {
        (CORE, CORE) => LOOPBACK,
        (CORE, CLIENT) => CORE_DELAY,
        (CORE | CLIENT, guard) if guard >= OF_GUARDS => quarter(guard - OF_GUARDS),
        (one, other) if one >= OF_GUARDS && other >= OF_GUARDS => {
            quarter(one - OF_GUARDS) + quarter(other - OF_GUARDS)
        }
        _ => Duration::ZERO,
    };
    let places = OF_GUARDS + GUARDS;
    let rows: Vec<Vec<Duration>> =
        (0..places).map(|from| (0..places).map(|to| between(from, to)).collect()).collect();
    Latencies::matrix(&rows).expect("the matrix has as many rows as columns")
}

/// Returns the network lines: for each guard one to the measuring client and one to the core host,
/// each with both directions.
fn lines() -> Vec<([usize; 2], CoreImpairment)> {
    let queue = Duration::from_millis(QUEUE_MS.into());
    let of_guard = |guard: usize| {
        let rate = NonZeroU64::new(u64::from(LINES[guard].0) * 1_000_000);
        let line = rate.map(|rate| LineSettings::with_queue(rate, queue));
        let (place, settings) = (OF_GUARDS + guard, CoreImpairment { line, ..Default::default() });
        [CLIENT, CORE]
            .into_iter()
            .flat_map(move |end| [([place, end], settings), ([end, place], settings)])
    };
    (0..GUARDS).flat_map(of_guard).collect()
}

/// One simulated repetition (a page and a bulk download); times are in seconds since the request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repetition {
    optimistic: bool,
    first_byte: f64,
    web: f64,
    bulk: f64,
}

impl Repetition {
    /// Converts a pair of simulated downloads, a page and a bulk file, into a repetition. Returns
    /// `None` if a download failed. `optimistic` states whether the page's request was sent with
    /// the SOCKS request.
    fn of(optimistic: bool, pair: &[DownloadRecord]) -> Option<Repetition> {
        let seconds = |time: Option<Duration>| Some(time?.as_secs_f64());
        Some(Repetition {
            optimistic,
            first_byte: seconds(pair[0].ttfb())?,
            web: seconds(pair[0].ttlb())?,
            bulk: seconds(pair[1].ttlb())?,
        })
    }

    fn read(row: &Row) -> Option<Repetition> {
        Some(Repetition {
            optimistic: field(row, "optimistic").and_then(|it| match it {
                Field::Bool(is) => Some(*is),
                _ => None,
            })?,
            first_byte: number(row, "first_byte")?,
            web: number(row, "web")?,
            bulk: number(row, "bulk")?,
        })
    }
}

/// Returns the medians of the compared times over `repetitions`; `None` if a time has no value.
#[must_use]
pub fn medians(repetitions: &[Repetition]) -> Option<Medians> {
    let of = |quantity: Quantity| {
        let values: Vec<f64> = repetitions
            .iter()
            .filter_map(|one| match quantity {
                Quantity::FirstByte => (!one.optimistic).then_some(one.first_byte),
                Quantity::OptimisticFirstByte => one.optimistic.then_some(one.first_byte),
                Quantity::Web => Some(one.web),
                Quantity::Bulk => Some(one.bulk),
            })
            .collect();
        middle(&values)
    };
    let [a, b, c, d] = Quantity::ALL.map(of);
    Some([a?, b?, c?, d?])
}

/// Medians of each measured round in one topology, by design and number of circuits. A round
/// measures each setting once.
pub type Rounds = BTreeMap<Combination, Vec<Medians>>;

fn field<'a>(row: &'a Row, name: &str) -> Option<&'a Field> {
    row.get_column_iter().find(|(column, _)| *column == name).map(|(_, field)| field)
}

fn number(row: &Row, name: &str) -> Option<f64> {
    match field(row, name)? {
        Field::Double(value) => Some(*value),
        Field::Int(value) => Some(f64::from(*value)),
        _ => None,
    }
}

fn text<'a>(row: &'a Row, name: &str) -> Option<&'a str> {
    match field(row, name)? {
        Field::Str(value) => Some(value),
        _ => None,
    }
}

/// Reads the median times of each round in the topology `place` from a table that `experiment
/// circuits` wrote. Skips rounds with C tor.
///
/// # Errors
/// The file cannot be read, or lacks the columns of such a table.
pub fn rounds(table: &Path, place: Layout) -> io::Result<Rounds> {
    let reader =
        SerializedFileReader::new(std::fs::File::open(table)?).map_err(io::Error::other)?;
    let mut found = BTreeMap::<(Combination, u32), Vec<Repetition>>::new();
    for row in reader.get_row_iter(None).map_err(io::Error::other)? {
        let row = row.map_err(io::Error::other)?;
        let read = || {
            let design = text(&row, "design")?.parse::<Design>().ok()?;
            let combination = Combination { design, legs: number(&row, "legs")? as u32 };
            let round = number(&row, "round")? as u32;
            Some((text(&row, "place")?.to_owned(), combination, round, Repetition::read(&row)?))
        };
        let Some((at, combination, round, repetition)) = read() else {
            let problem = "the file is not a table of `anabranch experiment circuits`";
            return Err(io::Error::other(problem));
        };
        if at == place.name() && !combination.design.is_stock() {
            found.entry((combination, round)).or_default().push(repetition);
        }
    }
    let mut rounds = Rounds::new();
    for ((combination, _), repetitions) in found {
        rounds.entry(combination).or_default().extend(medians(&repetitions));
    }
    Ok(rounds)
}

/// Comparison of one simulated time with the measured time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeComparison {
    /// Design and number of circuits that were simulated.
    pub combination: Combination,
    /// The time that is compared.
    pub quantity: Quantity,
    /// Measured time in seconds: the median of the rounds' median times.
    pub measured: f64,
    /// Smallest and largest median of any measured round, in seconds.
    pub range: [f64; 2],
    /// Simulated time in seconds: the median of the simulated median times that correspond to the
    /// measured rounds.
    pub simulated: f64,
}

impl TimeComparison {
    /// Returns the simulated time divided by the measured time.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.simulated / self.measured
    }

    /// Returns whether the simulated time differs from the measured time by at most the fraction
    /// [`WITHIN`].
    #[must_use]
    pub fn is_within(&self) -> bool {
        (self.ratio() - 1.0).abs() <= WITHIN
    }
}

/// Compares the measured rounds of `combination` with simulated medians. `simulated` has an entry
/// for each set of guards that the measuring client may have used.
///
/// The table does not contain the guards of a round. A round is therefore compared with the set of
/// guards whose simulated download times are nearest. The distance is the sum of the squared
/// logarithms of two ratios, simulated to measured time, for the page and the bulk download. Times
/// to the first byte do not affect this choice.
#[must_use]
pub fn compare(
    combination: Combination,
    measured: &[Medians],
    simulated: &[Medians],
) -> Vec<TimeComparison> {
    let nearest = |round: &Medians| {
        let distance = |candidate: &&Medians| -> f64 {
            let downloads = candidate.iter().zip(round).skip(2);
            downloads.map(|(ours, theirs)| (ours / theirs).ln().powi(2)).sum()
        };
        simulated.iter().min_by(|a, b| distance(a).total_cmp(&distance(b))).copied()
    };
    let pairs: Vec<(Medians, Medians)> =
        measured.iter().filter_map(|round| Some((*round, nearest(round)?))).collect();
    let compared = |(place, quantity): (usize, Quantity)| {
        let theirs: Vec<f64> = pairs.iter().map(|(round, _)| round[place]).collect();
        let ours: Vec<f64> = pairs.iter().map(|(_, run)| run[place]).collect();
        let bound = |pick: fn(f64, f64) -> f64| theirs.iter().copied().reduce(pick);
        Some(TimeComparison {
            combination,
            quantity,
            measured: middle(&theirs)?,
            range: [bound(f64::min)?, bound(f64::max)?],
            simulated: middle(&ours)?,
        })
    };
    Quantity::ALL.into_iter().enumerate().filter_map(compared).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::table;
    use super::super::measured;
    use super::super::measured::tests::measured;
    use super::*;

    #[test]
    fn guards_are_all_sets_of_the_right_size() {
        let of = |legs| Combination { design: Design::MTor, legs }.guards();
        assert_eq!(of(1), [vec![0], vec![1], vec![2]]);
        assert_eq!(of(2), [vec![1, 2], vec![0, 2], vec![0, 1]]);
        assert_eq!(of(3), [vec![0, 1, 2]]);
        assert_eq!(Combination::all().len(), 1 + 9 * 2);
    }

    #[test]
    fn a_round_is_compared_with_the_nearest_set_of_guards() {
        let combination = Combination { design: Design::Tor, legs: 1 };
        let (near, far) = ([0.05, 0.03, 0.2, 0.5], [0.15, 0.1, 0.45, 1.4]);
        let measured = [[0.05, 0.03, 0.2, 0.4], near, [0.14, 0.1, 0.45, 1.4]];
        let cells = compare(combination, &measured, &[far, near]);
        let names: Vec<Quantity> = cells.iter().map(|cell| cell.quantity).collect();
        assert_eq!(names, Quantity::ALL);
        let bulk = cells[3];
        assert_eq!((bulk.measured, bulk.simulated, bulk.range), (0.5, 0.5, [0.4, 1.4]));
        assert!(bulk.is_within());
        let off = TimeComparison { simulated: 0.58, ..bulk };
        assert!(!off.is_within() && (off.ratio() - 1.16).abs() < 1e-9);
    }

    #[test]
    fn rounds_are_read_from_the_table_of_the_experiment() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("circuits.parquet");
        let on_lines = |design, legs, round, web| {
            let one = measured(design, legs, round, web);
            measured::Measured { place: Layout::Lines, ..one }
        };
        let records = [
            on_lines(Design::MTor, 2, 0, 0.2),
            on_lines(Design::MTor, 2, 1, 0.4),
            on_lines(Design::Stock, 1, 0, 0.4),
            measured(Design::MTor, 2, 0, 9.0),
        ];
        table::write(&file, &measured::columns(&records), &[]).unwrap();
        let found = rounds(&file, Layout::Lines).unwrap();
        let mtor = Combination { design: Design::MTor, legs: 2 };
        let expected = vec![[0.05, 0.05, 0.2, 0.4], [0.1, 0.1, 0.4, 0.8]];
        assert_eq!(found, Rounds::from([(mtor, expected)]));
        table::write(&file, &[("x".to_owned(), table::Values::Int(vec![1]))], &[]).unwrap();
        assert!(rounds(&file, Layout::Lines).unwrap_err().to_string().contains("not a table"));
    }

    /// Checks that the simulated lines are those of the measured network ([`LINES`]), and that no
    /// two guards share a line to the measuring client or to the core.
    #[test]
    fn each_guard_has_a_line_to_the_client_and_one_to_the_core() {
        let lines = lines();
        assert_eq!(lines.len(), 4 * GUARDS);
        for (guard, (rate, _)) in LINES.iter().enumerate() {
            let place = OF_GUARDS + guard;
            for places in [[CLIENT, place], [place, CLIENT], [CORE, place], [place, CORE]] {
                let (_, of) = lines.iter().find(|(between, _)| *between == places).unwrap();
                let line = of.line.unwrap();
                assert_eq!(line.rate.get(), u64::from(*rate) * 1_000_000, "{places:?}");
                assert_eq!(line.queue, *rate as usize * QUEUE_MS as usize * 125, "{places:?}");
            }
        }
    }

    /// Checks that faster lines lead to shorter times, and that two runs with the same seed are
    /// equal.
    #[test]
    fn downloads_over_a_faster_guard_are_faster() {
        let (network, combination) = (Network::new(), Combination { design: Design::Tor, legs: 1 });
        let run =
            |guard: usize| network.simulate(combination, &[guard], (1, Duration::from_secs(8)));
        let found = [0, 1, 2].map(|guard| medians(&run(guard)).unwrap());
        for place in 0..4 {
            let times = found.map(|medians| medians[place]);
            assert!(times.is_sorted(), "{}: {times:?}", Quantity::ALL[place].name());
        }
        // A normal request takes at least two round trips, and an optimistic request at least one.
        for (medians, (_, rtt)) in found.iter().zip(LINES) {
            let rtt = f64::from(rtt) / 1e3;
            assert!(medians[0] >= 2.0 * rtt && medians[1] >= rtt, "{medians:?}");
        }
        assert_eq!(run(2), run(2));
    }
}
