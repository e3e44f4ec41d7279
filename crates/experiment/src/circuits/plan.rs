//! The measurements of the circuits experiment, and their order.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anabranch_multipath::seed;
use rand_chacha::rand_core::Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::runner;

/// Size of a web page in bytes, as in the DBSec 2019 paper.
pub const WEB: usize = 320 << 10;
/// Emulated network line of each guard in the topology [`Layout::Line`]: rate in Mbit/s, and added
/// round-trip time in ms, as in [`LINES`](super::LINES).
pub const LOADED: (u32, u32) = (20, 20);
/// Number of bytes that a guard's network line carries for each byte of a web page. Cells of 514
/// bytes carry 498 bytes of data; TLS records, TCP and IP headers add 4 %.
const ON_THE_LINE: f64 = 514.0 / 498.0 * 1.04;

/// Ratio of two pauses of a load client (a client that only creates load): with MORE, and with
/// other designs. With the normal pauses, the cryptography of these clients' packets would keep
/// two cores busy, so the measured times would show the limits of the machine.
pub const MORE_PAUSES: f64 = 5.0;
/// Approximate time to start a network and its clients, for the estimate of the remaining time:
/// first with our programs, then with C tor.
const STARTING: [Duration; 2] = [Duration::from_secs(20), Duration::from_secs(45)];

/// Protocol and scheduler that transfer a client's stream over one or several circuits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Design {
    /// One circuit per stream as in Tor, between our client and our relays.
    Tor,
    /// Current Conflux (proposal 329) between our client and our exit. The exit distributes the
    /// downloaded data with `lowrtt`.
    Conflux,
    /// Conflux of 2013 as published, with the scheduler of that publication.
    Conflux2013,
    /// Conflux of 2013 with round robin, the scheduler with which the DBSec 2019 paper compared
    /// all designs.
    Conflux2013Turns,
    /// mTor as published, with the scheduler of that publication.
    MTor,
    /// mTor with the round-robin scheduler.
    MTorTurns,
    /// This project's own protocol with its default scheduler. Streams survive the loss of single
    /// circuits.
    Ours,
    /// This project's own protocol with the round-robin scheduler.
    OursTurns,
    /// This project's own protocol, with the circuits of a stream joined at a middle relay. From
    /// there one circuit leads to the exit.
    Merged,
    /// Circuits joined at a middle relay, with the `batched weighted` scheduler of TrafficSliver.
    /// It sends batches of 50 to 70 cells, each on a circuit that is drawn by random weights.
    MergedBatches,
    /// UDP-OR: a TCP connection between client and exit, over one circuit whose cells may get
    /// lost.
    UdpOr,
    /// mUDP-OR (TCP over several circuits whose cells may get lost) with a separate congestion
    /// window for each circuit.
    MudpOr,
    /// mUDP-OR (TCP over several circuits whose cells may get lost) as in the DBSec 2019 paper:
    /// CUBIC with one congestion window, and round robin.
    MudpOrTurns,
    /// MORE: each packet takes its own path. The DBSec 2019 paper has rows for 1, 2 and 3 paths,
    /// but does not explain how MORE has a number of paths. Our results therefore have one row.
    More,
    /// C tor as clients and relays, without Conflux.
    Stock,
    /// C tor as clients and relays, with Conflux.
    StockConflux,
}

/// Topology of the network between relays and clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// All programs on loopback: no emulated line limits the rate. The DBSec 2019 paper had an
    /// isolated LAN.
    Loopback,
    /// Guards whose network lines have different rates and delays.
    Lines,
    /// Guards with equal network lines. The clients that create load use a given part of the
    /// lines' rate (`levels` of [`Settings`]).
    Line,
}

/// Rule for the choice of relays by load clients (clients that only create load in the network).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// All relays: each load client chooses its own guards.
    #[default]
    Spread,
    /// Only the relays that the measuring client uses (DBSec 2019, section 5.1).
    #[serde(rename = "employed")]
    ClientRelays,
}

/// The settings of the circuits experiment: designs, topologies, load, and numbers of rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Protocols and schedulers to compare.
    pub designs: Vec<Design>,
    /// Numbers of circuits per stream to measure, for designs that can use several circuits.
    pub legs: Vec<u32>,
    /// Topologies in which to measure.
    pub places: Vec<Layout>,
    /// Number of rounds. A round measures each setting once, in its own network.
    pub rounds: u32,
    /// Number of repetitions in each network. Each repetition fetches a web page and a bulk
    /// download. Half of them send the HTTP request together with the SOCKS request (optimistic
    /// data).
    pub repetitions: u32,
    /// Size of a bulk download in MiB; the DBSec 2019 paper's is 1.
    pub bulk: u32,
    /// Number of load clients (clients that only create load in the network).
    pub clients: u32,
    /// Mean pause between two fetches of a load client, in seconds: first on loopback, then in
    /// [`Layout::Lines`].
    pub pauses: [f64; 2],
    /// Rule for the choice of relays by load clients (clients that only create load in the
    /// network).
    pub load: Load,
    /// Loads in the topology [`Layout::Line`], in percent of the rate of one guard's network line.
    pub levels: Vec<u32>,
    /// Seed of the order of the measurements and of the pauses.
    pub seed: u64,
}

/// Rule for the times at which a load client (a client that only creates load) starts its fetches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) enum Pace {
    /// Random pauses with an exponential distribution. The field is the mean time in seconds from
    /// the end of a fetch to the start of the next.
    Pause(f64),
    /// Random start times with an exponential distribution. The field is the mean time in seconds
    /// from the start of a fetch to the start of the next. If a fetch takes longer, the next one
    /// starts at once.
    Period(f64),
}

/// One measurement: a design (protocol and scheduler) in its own network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unit {
    /// Design (protocol and scheduler) to measure.
    pub design: Design,
    /// Number of circuits over which the measuring client splits a stream.
    pub legs: u32,
    /// Topology in which to measure.
    pub place: Layout,
    /// Load in the topology [`Layout::Line`], in percent of the rate of one guard's network line;
    /// `None` in other topologies.
    pub level: Option<u32>,
    /// Index of the round (a pass over all settings), from 0.
    pub round: u32,
    lasts: Duration,
}

impl Design {
    /// All designs that can be measured.
    pub const ALL: [Design; 16] = [
        Design::Tor,
        Design::Conflux,
        Design::Conflux2013,
        Design::Conflux2013Turns,
        Design::MTor,
        Design::MTorTurns,
        Design::Ours,
        Design::OursTurns,
        Design::Merged,
        Design::MergedBatches,
        Design::UdpOr,
        Design::MudpOr,
        Design::MudpOrTurns,
        Design::More,
        Design::Stock,
        Design::StockConflux,
    ];

    /// Returns the design's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Design::Tor => "tor",
            Design::Conflux => "conflux",
            Design::Conflux2013 => "conflux-2013",
            Design::Conflux2013Turns => "conflux-2013-turns",
            Design::MTor => "mtor",
            Design::MTorTurns => "mtor-turns",
            Design::Ours => "anabranch",
            Design::OursTurns => "anabranch-turns",
            Design::Merged => "merged",
            Design::MergedBatches => "merged-batches",
            Design::UdpOr => "udp-or",
            Design::MudpOr => "mudp-or",
            Design::MudpOrTurns => "mudp-or-turns",
            Design::More => "more",
            Design::Stock => "stock",
            Design::StockConflux => "stock-conflux",
        }
    }

    /// Returns whether this design runs on clients and relays of C tor.
    pub fn is_stock(self) -> bool {
        matches!(self, Design::Stock | Design::StockConflux)
    }

    /// Returns whether the design is a variant of another design, with round robin or batches
    /// instead of that design's scheduler.
    pub fn is_variant(self) -> bool {
        matches!(
            self,
            Design::Conflux2013Turns
                | Design::MTorTurns
                | Design::OursTurns
                | Design::MergedBatches
                | Design::MudpOrTurns
        )
    }

    /// Returns the additional command-line arguments that a relay needs to support this design.
    pub(super) fn relay_words(self) -> &'static [&'static str] {
        match self {
            Design::UdpOr | Design::MudpOr => &["--udp-or"],
            Design::MudpOrTurns => &["--udp-or", "--udp-or-congestion", "cubic"],
            _ => &[],
        }
    }

    /// Returns whether the design can be measured in the topology `place`. MORE fits only
    /// loopback: its relays send packets to the addresses of clients, and other topologies have no
    /// routes to these addresses.
    fn fits(self, place: Layout) -> bool {
        self != Design::More || place == Layout::Loopback
    }

    /// Returns the numbers of circuits with which to measure the design. They are chosen from the
    /// requested numbers `asked`, but C tor's Conflux always uses two circuits, and some designs
    /// always use one circuit.
    fn legs(self, asked: &[u32]) -> Vec<u32> {
        match self {
            Design::Tor | Design::UdpOr | Design::More | Design::Stock => vec![1],
            Design::StockConflux => vec![2],
            _ => asked.iter().copied().filter(|legs| *legs > 1).collect(),
        }
    }
}

impl fmt::Display for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Design {
    type Err = String;

    fn from_str(text: &str) -> Result<Design, String> {
        let names = Design::ALL.map(Design::name).join(", ");
        let found = Design::ALL.into_iter().find(|design| design.name() == text);
        found.ok_or_else(|| format!("`{text}` is not a design: write one of {names}"))
    }
}

impl TryFrom<String> for Design {
    type Error = String;

    fn try_from(text: String) -> Result<Design, String> {
        text.parse()
    }
}

impl From<Design> for String {
    fn from(design: Design) -> String {
        design.name().to_owned()
    }
}

impl Layout {
    /// All topologies.
    pub const ALL: [Layout; 3] = [Layout::Loopback, Layout::Lines, Layout::Line];
    /// Default topologies of the experiment.
    pub const USUAL: [Layout; 2] = [Layout::Loopback, Layout::Lines];

    /// Returns the topology's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Loopback => "loopback",
            Layout::Lines => "lines",
            Layout::Line => "line",
        }
    }
}

impl Load {
    /// All rules for the choice of relays by load clients.
    pub const ALL: [Load; 2] = [Load::Spread, Load::ClientRelays];

    /// Returns the rule's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Load::Spread => "spread",
            Load::ClientRelays => "employed",
        }
    }
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Load, String> {
        let found = Load::ALL.into_iter().find(|load| load.name() == text);
        found.ok_or_else(|| {
            format!(
                "`{text}` is not a kind of load: write spread (other clients use all \
                                     guards) or employed (they use the guards of the measured \
                                     circuits)"
            )
        })
    }
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Layout, String> {
        let found = Layout::ALL.into_iter().find(|place| place.name() == text);
        found.ok_or_else(|| {
            format!(
                "`{text}` is not a network: write loopback, lines (three guards, whose connections \
                 differ in rate and delay) or line (three guards with equal connections)"
            )
        })
    }
}

impl Settings {
    /// Returns the settings that must not change when the experiment is resumed. Other settings
    /// may be extended: designs, numbers of circuits, topologies, levels of load and rounds.
    pub fn header(&self) -> Value {
        json!({
            "experiment": "circuits",
            "version": 3,
            "seed": self.seed,
            "repetitions": self.repetitions,
            "clients": self.clients,
            "bulk": self.bulk,
            "pauses": self.pauses,
            "load": self.load.name(),
        })
    }

    /// Returns the rule for the times at which load clients (clients that only create load) fetch;
    /// `None` if there are no such clients.
    pub(super) fn pace(&self, unit: &Unit) -> Option<Pace> {
        match unit.level {
            None => {
                let factor = if unit.design == Design::More { MORE_PAUSES } else { 1.0 };
                Some(Pace::Pause(factor * self.pauses[usize::from(unit.place == Layout::Lines)]))
            }
            Some(0) => None,
            Some(level) => {
                let bytes = f64::from(self.clients) * WEB as f64 * ON_THE_LINE;
                let rate = f64::from(LOADED.0) * 1e6 / 8.0 * f64::from(level) / 100.0;
                Some(Pace::Period(bytes / rate))
            }
        }
    }

    /// Returns the levels of load to measure in the topology `place`. The list is a single `None`
    /// if the topology has no levels of load.
    fn levels(&self, place: Layout) -> Vec<Option<u32>> {
        match place {
            Layout::Line => self.levels.iter().copied().map(Some).collect(),
            Layout::Loopback | Layout::Lines => vec![None],
        }
    }
}

impl Unit {
    /// Returns the order in which clients take the three guards, and the three middles, for their
    /// circuits. The order differs between rounds. Within a round all designs have the same order,
    /// so that their results can be compared in pairs.
    pub(super) fn order(&self) -> [usize; 3] {
        [0, 1, 2].map(|place| (place + self.round as usize) % 3)
    }

    /// Returns the seed of this measurement's random numbers, derived from `seed`. Each
    /// measurement has another seed.
    pub fn seed(&self, seed: u64) -> u64 {
        seed::stream(seed, 0, &runner::Unit::id(self)).next_u64()
    }
}

impl runner::Unit for Unit {
    fn id(&self) -> String {
        let level = self.level.map(|level| format!("/{level}")).unwrap_or_default();
        format!("{}/{}/{}{level}/{}", self.design, self.legs, self.place.name(), self.round)
    }

    fn lasts(&self) -> Duration {
        self.lasts
    }
}

/// Returns all measurements in the order of execution: round by round, each round shuffled.
/// Without the shuffle, a temporarily busy machine could disturb the same setting in all rounds.
pub fn plan(settings: &Settings) -> Vec<Unit> {
    let mut units = Vec::new();
    for round in 0..settings.rounds {
        let mut of_round = Vec::new();
        let pairs =
            settings.designs.iter().flat_map(|d| settings.places.iter().map(move |p| (d, p)));
        for (&design, &place) in pairs.filter(|(design, place)| design.fits(**place)) {
            let starting = STARTING[usize::from(design.is_stock())];
            let by_bulk = if design == Design::More { 2_000 } else { 500 };
            let one = Duration::from_millis(1_000 + u64::from(settings.bulk) * by_bulk);
            let lasts = starting + settings.repetitions * one;
            for level in settings.levels(place) {
                let legs = design.legs(&settings.legs).into_iter();
                let unit = |legs| Unit { design, legs, place, level, round, lasts };
                of_round.extend(legs.map(unit));
            }
        }
        // Each measurement has its own random number, so that adding settings does not change the
        // order of the others.
        of_round.sort_by_cached_key(|unit| unit.seed(settings.seed));
        units.extend(of_round);
    }
    units
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::super::runner::Unit as _;
    use super::*;

    fn settings() -> Settings {
        Settings {
            designs: Design::ALL.to_vec(),
            legs: vec![2, 3],
            places: Layout::USUAL.to_vec(),
            rounds: 10,
            repetitions: 20,
            bulk: 1,
            clients: 30,
            pauses: [2.0, 4.0],
            load: Load::Spread,
            levels: vec![58],
            seed: 1,
        }
    }

    #[test]
    fn the_usual_plan_has_every_design_over_every_number_of_circuits_in_every_round() {
        let units = plan(&settings());
        // MORE is measured on loopback only.
        assert_eq!(units.len(), 10 * (2 * (1 + 1 + 11 * 2 + 1 + 1) + 1));
        let ids: BTreeSet<_> = units.iter().map(|unit| unit.id()).collect();
        assert_eq!(ids.len(), units.len(), "each id once");
        assert!(units.is_sorted_by_key(|unit| unit.round));
        assert_ne!(units[..53], plan(&Settings { seed: 2, ..settings() })[..53]);
        let one = plan(&Settings { designs: vec![Design::MTor], ..settings() });
        let mut all = units;
        all.retain(|unit| unit.design == Design::MTor);
        assert_eq!(all, one, "further designs leave the others in their order");
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for design in Design::ALL {
            assert_eq!(design.name().parse(), Ok(design));
        }
        for place in Layout::ALL {
            assert_eq!(place.name().parse(), Ok(place));
        }
        for load in Load::ALL {
            assert_eq!(load.name().parse(), Ok(load));
        }
        assert!("tors".parse::<Design>().unwrap_err().contains("conflux-2013"));
        assert!("moon".parse::<Layout>().is_err() && "all".parse::<Load>().is_err());
    }

    #[test]
    fn a_line_is_measured_at_every_level_and_other_places_at_none() {
        let levels = vec![0, 30, 58, 90];
        let places = vec![Layout::Loopback, Layout::Line];
        let units = plan(&Settings { levels, places, rounds: 1, ..settings() });
        // MORE has one row, on loopback.
        assert_eq!(units.len(), 26 * 5 + 1);
        assert!(units.iter().all(|unit| unit.level.is_some() == (unit.place == Layout::Line)));
        let ids: BTreeSet<_> = units.iter().map(|unit| unit.id()).collect();
        assert!(ids.contains("mtor/2/line/58/0") && ids.contains("mtor/2/loopback/0"));
        assert_eq!(ids.len(), units.len());
    }

    #[test]
    fn clients_load_a_line_to_the_share_that_is_asked_for() {
        let settings = settings();
        let at = |place, level| {
            let lasts = Duration::ZERO;
            let unit = Unit { design: Design::Tor, legs: 1, place, level, round: 0, lasts };
            settings.pace(&unit)
        };
        assert_eq!(at(Layout::Loopback, None), Some(Pace::Pause(2.0)));
        assert_eq!(at(Layout::Lines, None), Some(Pace::Pause(4.0)));
        assert_eq!(at(Layout::Line, Some(0)), None);
        let Some(Pace::Period(period)) = at(Layout::Line, Some(58)) else { panic!("no period") };
        // 30 pages of 320 KiB take 4.2 s at 20 Mbit/s, the rate of the line, and 7.3 s at 58 % of
        // it.
        assert!((7.0..7.6).contains(&period), "{period} s");
    }

    #[test]
    fn all_designs_of_a_round_use_the_same_guards_and_rounds_take_turns() {
        let units = plan(&settings());
        let orders = |round: u32| -> BTreeSet<[usize; 3]> {
            units.iter().filter(|unit| unit.round == round).map(Unit::order).collect()
        };
        assert_eq!(orders(0), BTreeSet::from([[0, 1, 2]]));
        assert_eq!(orders(1), BTreeSet::from([[1, 2, 0]]));
        assert_eq!(orders(3), orders(0));
    }
}
