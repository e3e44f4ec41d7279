//! Which measurements there are, and in which order they are made.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anabranch_multipath::seed;
use rand_chacha::rand_core::Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::runner;

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
    /// Seconds that one of them pauses between two fetches, in the mean: on loopback, over lines.
    pub pauses: [f64; 2],
    /// Of the order, and of the pauses.
    pub seed: u64,
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
        found.ok_or_else(|| format!("`{text}` is none of {names}"))
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
    /// Both.
    pub const ALL: [Place; 2] = [Place::Loopback, Place::Lines];

    /// Its name, as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Place::Loopback => "loopback",
            Place::Lines => "lines",
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let found = Place::ALL.into_iter().find(|place| place.name() == text);
        found.ok_or_else(|| format!("`{text}` is none of loopback, lines"))
    }
}

impl Settings {
    /// What must not change when a run goes on; the rest may grow.
    pub fn header(&self) -> Value {
        json!({
            "experiment": "circuits",
            "version": 2,
            "seed": self.seed,
            "repetitions": self.repetitions,
            "clients": self.clients,
            "bulk": self.bulk,
            "pauses": self.pauses,
        })
    }

    /// Seconds that a client pauses in the mean.
    pub(super) fn pause(&self, place: Place) -> f64 {
        self.pauses[usize::from(place == Place::Lines)]
    }
}

impl Unit {
    /// The seed of its dice: another for each unit.
    pub fn seed(&self, seed: u64) -> u64 {
        seed::stream(seed, 0, &runner::Unit::id(self)).next_u64()
    }
}

impl runner::Unit for Unit {
    fn id(&self) -> String {
        format!("{}/{}/{}/{}", self.design, self.legs, self.place.name(), self.round)
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
            let legs = design.legs(&settings.legs).into_iter();
            of_round.extend(legs.map(|legs| Unit { design, legs, place, round, lasts }));
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
            places: Place::ALL.to_vec(),
            rounds: 10,
            repetitions: 20,
            bulk: 1,
            clients: 30,
            pauses: [2.0, 4.0],
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
        assert!("tors".parse::<Design>().unwrap_err().contains("conflux-2013"));
    }
}
