//! The anonymity analyses, and their division into units that take seconds.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use anabranch_anonymity::Workers;
use anabranch_anonymity::hostile::Spread;
use anabranch_anonymity::year::{Adversary, YearSettings};
use anabranch_os::threads::share_out;
use serde_json::{Value, json};

use super::super::runner;

/// Shares of the network's entry and exit weight that the adversary holds in the DBSec 2019
/// paper's formulas (section 6.1, footnote 14). Each share is followed by the maximum number of
/// circuits per stream to analyse with it.
pub const SHARES: [(f64, usize); 2] = [(0.2, 3), (0.1, 5)];
/// Share of the network's entry weight that the adversary holds in the simulation of a year (DBSec
/// 2019 paper, section 6.2).
const ENTRY_SHARE: f64 = 0.1;
/// Days of the simulated year for which the compromised clients are counted.
const DAYS: [u64; 13] = [7, 30, 60, 90, 120, 150, 182, 210, 240, 270, 300, 330, 365];
/// Number of random adversaries in one unit (a part of the analysis that takes seconds). Used if
/// clients must be simulated separately for each adversary: the adversaries are then divided into
/// units.
const DRAWS: usize = 5;
/// Number of units (parts that take seconds) for a year of [`Settings::clients`] clients. Used if
/// the same simulated clients serve for all random adversaries: the clients are then divided into
/// units.
const PIECES: usize = 20;
/// Approximate time, in seconds, to simulate a client's year three times: with one, two and three
/// circuits per stream.
const YEAR: f64 = 150e-6;
/// Approximate time to simulate one random circuit, in seconds.
const CIRCUIT: f64 = 100e-6;
/// Approximate time to simulate a client's choice of guards, in seconds.
const GUARDS: f64 = 40e-6;

/// An adversary in the simulation of a year.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variant {
    /// Name of the adversary in tables.
    pub name: &'static str,
    /// Description of the adversary, for the results page.
    pub about: &'static str,
    /// Origin of the adversary's relays.
    pub adversary: Adversary,
    /// Mean time, in days, that a relay stays in the network; `None` if relays never leave.
    pub churn: Option<f64>,
    /// True if hostile relays leave the network at the same rate as other relays.
    pub hostile_churn: bool,
}

const fn variant(
    name: &'static str,
    about: &'static str,
    adversary: Adversary,
    churn: Option<f64>,
) -> Variant {
    Variant { name, about, adversary, churn, hostile_churn: false }
}

const RANDOM: Adversary = Adversary::Replaces(Spread::Random);

/// All adversaries in the simulation of a year. The first is the adversary of the DBSec 2019
/// paper's Figure 5, which is applied to all consensuses. The others are applied only to the first
/// consensus.
pub const VARIANTS: [Variant; 9] = [
    variant(
        "by lot",
        "random relays of the consensus are hostile; relays stay all year",
        RANDOM,
        None,
    ),
    variant(
        "heaviest",
        "the heaviest relays of the consensus are hostile; relays stay all year",
        Adversary::Replaces(Spread::Heaviest),
        None,
    ),
    variant(
        "100 added",
        "100 hostile relays are added; relays stay all year",
        Adversary::Adds(100),
        None,
    ),
    variant(
        "4 added",
        "4 hostile relays are added; relays stay all year",
        Adversary::Adds(4),
        None,
    ),
    Variant {
        hostile_churn: true,
        ..variant(
            "by lot, all go",
            "random relays are hostile; all relays are replaced after 300 days on average",
            RANDOM,
            Some(300.0),
        )
    },
    variant(
        "by lot, honest go",
        "random relays are hostile; honest relays are replaced after 300 days on average",
        RANDOM,
        Some(300.0),
    ),
    variant(
        "100 added, honest go",
        "100 relays are added; honest relays are replaced after 300 days on average",
        Adversary::Adds(100),
        Some(300.0),
    ),
    variant(
        "100 added, honest go slowly",
        "100 relays are added; honest relays are replaced after 500 days on average",
        Adversary::Adds(100),
        Some(500.0),
    ),
    Variant {
        hostile_churn: true,
        ..variant(
            "100 added, all go",
            "100 relays are added; all relays are replaced after 300 days on average",
            Adversary::Adds(100),
            Some(300.0),
        )
    },
];

/// A consensus. Its name is the hour from which it is valid, such as `2015-10-10T02`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedConsensus {
    /// Hour from which the consensus is valid, which is its name.
    pub name: String,
    /// Path of the file with the consensus.
    pub file: PathBuf,
    /// Hour that selects the consensus if `file` is an archive; otherwise `None`.
    pub hour: Option<String>,
    /// First digits of the SHA-256 of the consensus document.
    pub hash: String,
    /// Number of guards that a client with one circuit per stream uses (consensus parameter
    /// `guard-n-primary-guards-to-use`).
    pub in_use: usize,
}

/// The settings of an anonymity analysis: consensuses, numbers of clients and circuits, and seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Consensuses to analyse. The first is the consensus of the DBSec 2019 paper's Figure 5: all
    /// adversaries are applied to it.
    pub consensuses: Vec<NamedConsensus>,
    /// Number of clients to simulate over a year, for each number of circuits per stream. If the
    /// same simulated clients serve for all random adversaries, the first consensus has this
    /// number, and each other consensus a tenth of it. If each adversary needs clients of its own,
    /// a fiftieth of this number is simulated per adversary.
    pub clients: usize,
    /// Number of random adversaries (random choices of the hostile relays) for each consensus.
    pub draws: usize,
    /// Number of sampled circuits, for each combination of a random adversary and a number of
    /// circuits per stream.
    pub circuits: u64,
    /// Number of clients whose sets of guards are compared.
    pub fingerprints: usize,
    /// Number of repetitions of the comparison of guard sets. Each repetition has `fingerprints`
    /// new clients.
    pub populations: usize,
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of threads to use; the results do not depend on it.
    pub threads: usize,
}

/// The analysis that one unit (a part of the work that takes seconds) makes.
#[derive(Clone, Debug, PartialEq)]
pub enum Analysis {
    /// Compromise of random circuits by an adversary with `share` of the network's entry weight
    /// and exit weight.
    Paths {
        /// The adversary's share of the network's entry weight and exit weight.
        share: f64,
        /// Maximum number of circuits per stream; each number from 1 to `legs` is analysed.
        legs: usize,
    },
    /// Compromise of clients over a simulated year.
    Year {
        /// The adversary.
        variant: Variant,
        /// Range of the indices of the clients that this unit simulates for each random adversary.
        clients: Range<usize>,
        /// Range of the indices of the random adversaries in this unit.
        draws: Range<usize>,
        /// Number of guards that a client with one circuit per stream uses.
        in_use: usize,
    },
    /// Comparison of clients' sets of guards. A rare set identifies a client.
    Fingerprints {
        /// Number of guards that a client with one circuit per stream uses.
        in_use: usize,
    },
}

/// One unit of the plan: an analysis of one consensus that takes seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// Name of the consensus.
    pub consensus: String,
    /// Analysis of that consensus.
    pub analysis: Analysis,
}

impl Settings {
    /// Returns the settings that must not change when the analysis is resumed. They are in the
    /// first line of the journal, the file with the results so far.
    pub fn header(&self) -> Value {
        let consensuses = self.consensuses.iter().map(|one| format!("{} {}", one.name, one.hash));
        json!({
            "experiment": "anonymity",
            "version": 1,
            "seed": self.seed,
            "consensuses": consensuses.collect::<Vec<String>>(),
            "clients": self.clients,
            "draws": self.draws,
            "circuits": self.circuits,
            "fingerprints": self.fingerprints,
            "populations": self.populations,
        })
    }

    /// Returns settings for the simulation of a year with `clients` clients for each random
    /// adversary.
    pub(super) fn year(&self, variant: &Variant, clients: usize) -> YearSettings {
        YearSettings {
            clients,
            draws: self.draws,
            share: ENTRY_SHARE,
            adversary: variant.adversary,
            churn: variant.churn,
            hostile_churn: variant.hostile_churn,
            days: DAYS.to_vec(),
            seed: self.seed,
            workers: Workers { threads: self.threads, run: share_out },
        }
    }

    fn years(&self, consensus: &NamedConsensus, is_first: bool) -> Vec<Unit> {
        let variants = if is_first { &VARIANTS[..] } else { &VARIANTS[..1] };
        let rules = rules(consensus);
        let each =
            variants.iter().flat_map(|variant| rules.iter().map(move |rule| (variant, rule)));
        let parts = each.flat_map(|(variant, &in_use)| {
            let parts = self.parts(variant, is_first);
            parts.into_iter().map(move |(clients, draws)| Analysis::Year {
                variant: *variant,
                clients,
                draws,
                in_use,
            })
        });
        parts.map(|analysis| Unit { consensus: consensus.name.clone(), analysis }).collect()
    }

    /// Divides the simulation of a year into units (parts that take seconds). Returns the range of
    /// clients and the range of random adversaries of each unit. `is_first` is true for the first
    /// consensus, that of the DBSec 2019 paper's Figure 5.
    fn parts(&self, variant: &Variant, is_first: bool) -> Vec<(Range<usize>, Range<usize>)> {
        let is_fixed = variant.adversary == Adversary::Replaces(Spread::Heaviest);
        let draws = if is_fixed { 1 } else { self.draws };
        match self.year(variant, self.clients).is_shared() {
            true => {
                let clients = if is_first { self.clients } else { self.clients.div_ceil(10) };
                let of = chunks(clients, self.clients.div_ceil(PIECES));
                of.into_iter().map(|clients| (clients, 0..draws)).collect()
            }
            false => {
                let clients = self.clients.div_ceil(50);
                chunks(draws, DRAWS).into_iter().map(|draws| (0..clients, draws)).collect()
            }
        }
    }
}

/// Returns the numbers of guards that a client with one circuit per stream uses in the analyses:
/// the number in the consensus parameters, and 1 as in the DBSec 2019 paper.
fn rules(consensus: &NamedConsensus) -> Vec<usize> {
    let mut rules = vec![consensus.in_use, 1];
    rules.dedup();
    rules
}

fn chunks(all: usize, size: usize) -> Vec<Range<usize>> {
    (0..all).step_by(size.max(1)).map(|start| start..(start + size).min(all)).collect()
}

/// Returns all units (parts of the analysis that take seconds) in the order of execution. Fast
/// units come first, so that the results page soon has results of each kind.
#[must_use]
pub fn plan(settings: &Settings) -> Vec<Unit> {
    let unit =
        |consensus: &NamedConsensus, analysis| Unit { consensus: consensus.name.clone(), analysis };
    let mut units = Vec::new();
    for (place, consensus) in settings.consensuses.iter().enumerate() {
        let shares = if place == 0 { &SHARES[..] } else { &SHARES[..1] };
        let paths = shares.iter().map(|&(share, legs)| Analysis::Paths { share, legs });
        units.extend(paths.map(|analysis| unit(consensus, analysis)));
        let fingerprints =
            rules(consensus).into_iter().map(|in_use| Analysis::Fingerprints { in_use });
        units.extend(fingerprints.map(|analysis| unit(consensus, analysis)));
    }
    for (place, consensus) in settings.consensuses.iter().enumerate() {
        units.extend(settings.years(consensus, place == 0));
    }
    units
}

impl runner::Unit for Unit {
    fn id(&self) -> String {
        let what = match &self.analysis {
            Analysis::Paths { share, .. } => format!("paths/{share}"),
            Analysis::Fingerprints { in_use } => format!("fingerprints/{in_use} in use"),
            Analysis::Year { variant, clients, draws, in_use } => format!(
                "year/{}/{in_use} in use/clients {}-{} draws {}-{}",
                variant.name, clients.start, clients.end, draws.start, draws.end
            ),
        };
        format!("{}/{what}", self.consensus)
    }

    fn lasts(&self) -> Duration {
        let seconds = match &self.analysis {
            Analysis::Paths { legs, .. } => (legs * 100_000) as f64 * CIRCUIT,
            Analysis::Fingerprints { .. } => 6.0 * 830_000.0 * GUARDS,
            Analysis::Year { clients, draws, .. } => {
                let alone = if clients.start == 0 { draws.len() } else { 1 };
                (clients.len() * alone) as f64 * YEAR
            }
        };
        Duration::from_secs_f64(seconds)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;

    use super::super::super::runner::Unit as _;
    use super::*;

    pub(in super::super) fn settings(consensuses: Vec<NamedConsensus>) -> Settings {
        Settings {
            consensuses,
            clients: 1000,
            draws: 6,
            circuits: 50,
            fingerprints: 500,
            populations: 2,
            seed: 1,
            threads: 2,
        }
    }

    fn named(name: &str, in_use: usize) -> NamedConsensus {
        NamedConsensus {
            name: name.to_owned(),
            file: PathBuf::new(),
            hour: None,
            hash: "0a".to_owned(),
            in_use,
        }
    }

    #[test]
    fn each_unit_has_a_name_of_its_own_and_years_have_all_clients_and_draws() {
        let units = plan(&settings(vec![named("a", 1), named("b", 2)]));
        let ids: BTreeSet<String> = units.iter().map(runner::Unit::id).collect();
        assert_eq!(ids.len(), units.len());
        let of = |consensus: &str, name: &str| -> (usize, BTreeSet<usize>) {
            let parts = units.iter().filter(|unit| unit.consensus == consensus);
            let parts = parts.filter_map(|unit| match &unit.analysis {
                Analysis::Year { variant, clients, draws, in_use: 1 } if variant.name == name => {
                    Some((clients.len(), draws.clone()))
                }
                _ => None,
            });
            let parts: Vec<_> = parts.collect();
            (
                parts.iter().map(|part| part.0).sum(),
                parts.into_iter().flat_map(|part| part.1).collect(),
            )
        };
        assert_eq!(of("a", "by lot"), (1000, (0..6).collect()));
        assert_eq!(of("b", "by lot"), (100, (0..6).collect()));
        assert_eq!(of("a", "heaviest"), (1000, [0].into()));
        assert_eq!(of("a", "4 added"), (2 * 20, (0..6).collect()), "in two units of 20 clients");
        assert_eq!(of("b", "4 added"), (0, BTreeSet::new()));
        let two = |unit: &&Unit| matches!(unit.analysis, Analysis::Fingerprints { in_use: 2 });
        assert!(units.iter().filter(two).all(|unit| unit.consensus == "b"));
        assert!(units.iter().all(|unit| unit.lasts() > Duration::ZERO));
    }
}
