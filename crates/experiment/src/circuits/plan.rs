//! Which measurements there are, and in which order they are made.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anabranch_multipath::seed;
use rand_chacha::rand_core::Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::runner;

/// Bytes of a web page, as in the paper.
pub const WEB: usize = 320 << 10;
/// Each guard's line in [`Place::Line`]: Mbit/s each way, and what it adds to the round trip in ms.
pub const LOADED: (u32, u32) = (20, 20);
/// Bytes on a guard's line for each byte of a page: cells of 514 bytes carry 498, and each has its
/// share of TLS records, TCP and IP headers.
const ON_THE_LINE: f64 = 514.0 / 498.0 * 1.04;

/// About what starting a network and its clients takes, of ours and of stock tors.
const STARTING: [Duration; 2] = [Duration::from_secs(20), Duration::from_secs(45)];

/// How the circuits of a client carry a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Design {
    /// One circuit, as Tor's, between our client and our relays.
    Tor,
    /// Conflux of today (proposal 329) between our client and our exit: what is fetched is dealt by
    /// the exit, `lowrtt`.
    Conflux,
    /// Conflux of 2013, as published, by the scheduler that it was published with.
    Conflux2013,
    /// The same, round robin, as the paper compared all designs.
    Conflux2013Turns,
    /// mTor, as published, by its own scheduler.
    MTor,
    /// The same, round robin.
    MTorTurns,
    /// Our own design, whose circuits may break, as its ends deal by themselves.
    Ours,
    /// The same, round robin.
    OursTurns,
    /// Ours, whose circuits join at a middle, from where one goes on to the exit.
    Merged,
    /// The same in runs of 50 to 70 cells, by weights that are drawn anew (TrafficSliver's
    /// `batched weighted`).
    MergedBatches,
    /// C tor at both ends and between them, without Conflux.
    Stock,
    /// C tor with Conflux.
    StockConflux,
}

/// Where relays and clients are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// All on loopback: no line is slower than the machine. The paper had an isolated LAN.
    Loopback,
    /// Guards behind lines of their own, of different rates and delays.
    Lines,
    /// Guards behind equal lines, which clients load to a share of their rate ([`Load`]).
    Line,
}

/// The circuits that the loading clients use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// Circuits of all relays: each client draws its own guards.
    #[default]
    Spread,
    /// Circuits of the relays that the measuring client uses (DBSec 2019, section 5.1).
    Employed,
}

/// Which measurements to make, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What is compared.
    pub designs: Vec<Design>,
    /// Over so many circuits, where a design takes several.
    pub legs: Vec<u32>,
    /// Where.
    pub places: Vec<Place>,
    /// Networks that each is measured in.
    pub rounds: u32,
    /// Repetitions in each network: a web page's and a bulk download's each, half of them with
    /// optimistic data.
    pub repetitions: u32,
    /// MiB of a bulk download; the paper's has one.
    pub bulk: u32,
    /// Clients that load the network.
    pub clients: u32,
    /// Mean pause of a client between two fetches in seconds: on loopback, over [`Place::Lines`].
    pub pauses: [f64; 2],
    /// The circuits of the clients that load the network.
    pub load: Load,
    /// Loads of [`Place::Line`], in per cent of the rate of one guard's line.
    pub levels: Vec<u32>,
    /// Of the order, and of the pauses.
    pub seed: u64,
}

/// When a loading client begins its next fetch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pace {
    /// Seconds from the end of one fetch to the next, in the mean (exponential).
    Pause(f64),
    /// Seconds from the start of one fetch to the next, in the mean (exponential); at once where a
    /// fetch takes longer.
    Period(f64),
}

/// One network in which a design is measured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unit {
    /// Of what.
    pub design: Design,
    /// Over so many circuits.
    pub legs: u32,
    /// Where.
    pub place: Place,
    /// Load in per cent of one guard's line, in [`Place::Line`].
    pub level: Option<u32>,
    /// The round, from 0.
    pub round: u32,
    lasts: Duration,
}

impl Design {
    /// All there are.
    pub const ALL: [Design; 12] = [
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
        Design::Stock,
        Design::StockConflux,
    ];

    /// Its name, as users write it.
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
            Design::Stock => "stock",
            Design::StockConflux => "stock-conflux",
        }
    }

    /// Whether C tor carries it.
    pub fn is_stock(self) -> bool {
        matches!(self, Design::Stock | Design::StockConflux)
    }

    /// How many circuits it takes of those that are asked for; C tor takes two.
    fn legs(self, asked: &[u32]) -> Vec<u32> {
        match self {
            Design::Tor | Design::Stock => vec![1],
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

impl Place {
    /// All there are.
    pub const ALL: [Place; 3] = [Place::Loopback, Place::Lines, Place::Line];
    /// Those that are measured unless others are named.
    pub const USUAL: [Place; 2] = [Place::Loopback, Place::Lines];

    /// Its name, as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Place::Loopback => "loopback",
            Place::Lines => "lines",
            Place::Line => "line",
        }
    }
}

impl Load {
    /// All there are.
    pub const ALL: [Load; 2] = [Load::Spread, Load::Employed];

    /// Its name, as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Load::Spread => "spread",
            Load::Employed => "employed",
        }
    }
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Load, String> {
        let found = Load::ALL.into_iter().find(|load| load.name() == text);
        found.ok_or_else(|| {
            format!(
                "`{text}` is not a load: write spread (other clients use all \
                                     guards) or employed (they use the guards of the measured \
                                     circuits)"
            )
        })
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let found = Place::ALL.into_iter().find(|place| place.name() == text);
        found.ok_or_else(|| {
            format!(
                "`{text}` is not a network: write loopback, lines (three \
                                     guards with different lines) or line (three guards with equal \
                                     lines)"
            )
        })
    }
}

impl Settings {
    /// What must not change when a run goes on; the rest may grow.
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

    /// When the loading clients fetch; `None` if they do not.
    pub(super) fn pace(&self, unit: &Unit) -> Option<Pace> {
        match unit.level {
            None => Some(Pace::Pause(self.pauses[usize::from(unit.place == Place::Lines)])),
            Some(0) => None,
            Some(level) => {
                let bytes = f64::from(self.clients) * WEB as f64 * ON_THE_LINE;
                let rate = f64::from(LOADED.0) * 1e6 / 8.0 * f64::from(level) / 100.0;
                Some(Pace::Period(bytes / rate))
            }
        }
    }

    /// Loads of a place.
    fn levels(&self, place: Place) -> Vec<Option<u32>> {
        match place {
            Place::Line => self.levels.iter().copied().map(Some).collect(),
            Place::Loopback | Place::Lines => vec![None],
        }
    }
}

impl Unit {
    /// The order in which clients take guards and middles: another one in each round, and the same
    /// one for all designs of a round, so that their ratios are paired.
    pub(super) fn order(&self) -> [usize; 3] {
        [0, 1, 2].map(|place| (place + self.round as usize) % 3)
    }

    /// The seed of its dice: another for each unit.
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

/// All measurements in the order in which they are made: round after round, and in each of them all
/// settings in an order of their own, so that a machine that is busy for a while disturbs no
/// setting in all its rounds.
pub fn plan(settings: &Settings) -> Vec<Unit> {
    let mut units = Vec::new();
    for round in 0..settings.rounds {
        let mut of_round = Vec::new();
        for (&design, &place) in
            settings.designs.iter().flat_map(|d| settings.places.iter().map(move |p| (d, p)))
        {
            let starting = STARTING[usize::from(design.is_stock())];
            let one = Duration::from_millis(1_000 + u64::from(settings.bulk) * 500);
            let lasts = starting + settings.repetitions * one;
            for level in settings.levels(place) {
                let legs = design.legs(&settings.legs).into_iter();
                let unit = |legs| Unit { design, legs, place, level, round, lasts };
                of_round.extend(legs.map(unit));
            }
        }
        // By dice of each unit's own, so that further settings do not change the order of the
        // others.
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
            places: Place::USUAL.to_vec(),
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
        assert_eq!(units.len(), 10 * 2 * (1 + 9 * 2 + 1 + 1));
        let ids: BTreeSet<_> = units.iter().map(|unit| unit.id()).collect();
        assert_eq!(ids.len(), units.len(), "each id once");
        assert!(units.is_sorted_by_key(|unit| unit.round));
        assert_ne!(units[..42], plan(&Settings { seed: 2, ..settings() })[..42]);
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
        for place in Place::ALL {
            assert_eq!(place.name().parse(), Ok(place));
        }
        for load in Load::ALL {
            assert_eq!(load.name().parse(), Ok(load));
        }
        assert!("tors".parse::<Design>().unwrap_err().contains("conflux-2013"));
        assert!("moon".parse::<Place>().is_err() && "all".parse::<Load>().is_err());
    }

    #[test]
    fn a_line_is_measured_at_every_level_and_other_places_at_none() {
        let levels = vec![0, 30, 58, 90];
        let places = vec![Place::Loopback, Place::Line];
        let units = plan(&Settings { levels, places, rounds: 1, ..settings() });
        assert_eq!(units.len(), 21 * 5);
        assert!(units.iter().all(|unit| unit.level.is_some() == (unit.place == Place::Line)));
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
        assert_eq!(at(Place::Loopback, None), Some(Pace::Pause(2.0)));
        assert_eq!(at(Place::Lines, None), Some(Pace::Pause(4.0)));
        assert_eq!(at(Place::Line, Some(0)), None);
        let Some(Pace::Period(period)) = at(Place::Line, Some(58)) else { panic!("no period") };
        // 30 pages of 320 KiB take 4.2 s of the line's 20 Mbit/s, of 58 % of it 7.3 s.
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
