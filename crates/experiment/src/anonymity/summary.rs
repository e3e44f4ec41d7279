//! Summary of the results of all units (parts that take seconds) of the anonymity analysis.

use anabranch_anonymity::figures::{Band, Share};
use anabranch_anonymity::fingerprints::{FingerprintRow, Sharing};
use anabranch_anonymity::paths::{self, Chance, Holding, PathDraw, PathRow};
use anabranch_anonymity::year::{self, CompromisedShares, DrawTally, YearRow};
use anabranch_onion::guards::GuardParams;

use super::{Listing, Outcome, UnitResult, VARIANTS};

/// All results of the anonymity analysis, by kind of analysis and in the order of the plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Results about the compromise of random circuits.
    pub paths: Vec<PathTable>,
    /// Results about the compromise of clients over a year.
    pub years: Vec<YearTable>,
    /// Results about guard fingerprints (sets of guards that identify clients).
    pub fingerprints: Vec<FingerprintTable>,
}

/// Results about random circuits, for one consensus and one size of the adversary.
#[derive(Clone, Debug, PartialEq)]
pub struct PathTable {
    /// Properties of the analysed consensus.
    pub listing: Listing,
    /// Share of the network's entry weight and exit weight that was set for the adversary. The
    /// actual shares are in `holding`.
    pub share: f64,
    /// Shares of the network's weight (the relays' bandwidth weights) that the adversary's relays
    /// actually had.
    pub holding: Holding,
    /// Number of random adversaries.
    pub draws: usize,
    /// Results by number of circuits per stream.
    pub rows: Vec<PathRow>,
}

/// Compromise of clients over a year, for one consensus and one adversary.
#[derive(Clone, Debug, PartialEq)]
pub struct YearTable {
    /// Properties of the analysed consensus.
    pub listing: Listing,
    /// Name of the adversary.
    pub variant: String,
    /// Number of guards that a client with one circuit per stream uses.
    pub in_use: usize,
    /// Days of the year on which compromised clients were counted.
    pub days: Vec<u64>,
    /// Number of random adversaries.
    pub draws: usize,
    /// Number of clients for each random adversary and each number of circuits per stream.
    pub clients: u64,
    /// Results for clients with one, two and three circuits per stream, and for the DBSec 2019
    /// paper's "COMB": a mixture of such clients.
    pub rows: Vec<YearRow>,
}

/// Results about guard fingerprints (sets of guards that identify clients), for one consensus.
#[derive(Clone, Debug, PartialEq)]
pub struct FingerprintTable {
    /// Properties of the analysed consensus.
    pub listing: Listing,
    /// Number of guards that a client with one circuit per stream uses.
    pub in_use: usize,
    /// Results for clients with one, two and three circuits per stream.
    pub rows: Vec<FingerprintRow>,
}

impl Summary {
    /// Summarises the results in `records`, one for each unit (part) of the analysis.
    #[must_use]
    pub fn of(records: &[UnitResult]) -> Summary {
        let mut summary = Summary::default();
        let mut years: Vec<(&UnitResult, &str, usize, Vec<DrawTally>)> = Vec::new();
        for record in records {
            let listing = || record.listing.clone();
            match &record.outcome {
                Outcome::Paths { share, draws } => {
                    summary.paths.push(path_table(listing(), *share, draws));
                }
                Outcome::Fingerprints { in_use, rows } => {
                    let (in_use, rows) = (*in_use, rows.clone());
                    summary.fingerprints.push(FingerprintTable {
                        listing: listing(),
                        in_use,
                        rows,
                    });
                }
                Outcome::Year { variant, in_use, tallies, .. } => {
                    let key = (&record.listing.name, variant.as_str(), *in_use);
                    let same = years.iter_mut().find(|(first, variant, in_use, _)| {
                        (&first.listing.name, *variant, *in_use) == key
                    });
                    match same {
                        Some((.., sum)) => year::add(sum, tallies.clone()),
                        None => years.push((record, variant, *in_use, tallies.clone())),
                    }
                }
            }
        }
        summary.years = years.into_iter().map(year_table).collect();
        summary
    }

    /// Returns the properties of the first consensus. All adversaries are applied to it. Returns
    /// `None` if there are no results.
    #[must_use]
    pub fn first(&self) -> Option<&Listing> {
        let years = self.years.iter().map(|table| &table.listing);
        self.paths.iter().map(|table| &table.listing).chain(years).next()
    }

    /// Returns the results that correspond to the DBSec 2019 paper's Figure 5. These are the
    /// results for the first consensus and the first adversary in which a client with one circuit
    /// per stream uses one guard. Returns `None` if they are missing.
    #[must_use]
    pub fn figure_5(&self) -> Option<&YearTable> {
        let first = &self.first()?.name;
        let here = |table: &&YearTable| {
            table.listing.name == *first && table.variant == VARIANTS[0].name && table.in_use == 1
        };
        self.years.iter().find(here)
    }
}

fn path_table(listing: Listing, share: f64, draws: &[PathDraw]) -> PathTable {
    let (holding, rows) = paths::summary(draws);
    PathTable { listing, share, holding, draws: draws.len(), rows }
}

fn year_table(
    (record, variant, in_use, mut tallies): (&UnitResult, &str, usize, Vec<DrawTally>),
) -> YearTable {
    tallies.sort_by_key(|tally| tally.draw);
    let params = GuardParams { primary_to_use: in_use, ..GuardParams::default() };
    let days = match &record.outcome {
        Outcome::Year { days, .. } => days.clone(),
        _ => Vec::new(),
    };
    YearTable {
        listing: record.listing.clone(),
        variant: variant.to_owned(),
        in_use,
        days,
        draws: tallies.len(),
        clients: tallies.iter().map(|tally| tally.clients).min().unwrap_or(0),
        rows: year::rows(&params, &tallies),
    }
}

/// A measured number, as a row of the table of all values.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Name of the consensus.
    pub consensus: String,
    /// Kind of analysis: `paths`, `year` or `fingerprints`.
    pub analysis: &'static str,
    /// The adversary. For `paths`, it is the share of weight that was set for the adversary. For
    /// `year`, it is the adversary's name. Empty for `fingerprints`.
    pub adversary: String,
    /// Number of circuits per stream; 0 for a mixture of clients with one, two and three circuits,
    /// which the DBSec 2019 paper calls COMB.
    pub legs: usize,
    /// Number of guards that a client uses; 0 for a mixture of clients with different numbers (the
    /// DBSec 2019 paper's COMB).
    pub in_use: usize,
    /// Day of the simulated year; 0 for the analyses `paths` and `fingerprints`, which simulate no
    /// time.
    pub day: u64,
    /// Name of the measured quantity.
    pub measure: &'static str,
    /// The value. If adversaries or clients were drawn at random, it is the mean over the `draws`
    /// repetitions.
    pub mean: f64,
    /// Lower bound of the value. For `paths`, it is the lower end of the 95 % interval of `mean`;
    /// otherwise the 5 % quantile of the `draws` repetitions. Equals `mean` if nothing was drawn
    /// at random.
    pub low: f64,
    /// Upper bound of the value. For `paths`, it is the upper end of the 95 % interval of `mean`;
    /// otherwise the 95 % quantile of the `draws` repetitions. Equals `mean` if nothing was drawn
    /// at random.
    pub high: f64,
    /// Number of clients for each random adversary; for `paths`, the number of all circuits that
    /// were built.
    pub clients: u64,
    /// Number of random adversaries; for `fingerprints`, the number of repetitions with new
    /// clients.
    pub draws: usize,
}

/// Returns all values of `summary`, as rows of the table of values.
#[must_use]
pub fn values(summary: &Summary) -> Vec<Value> {
    let paths = summary.paths.iter().flat_map(path_values);
    let years = summary.years.iter().flat_map(year_values);
    paths.chain(years).chain(summary.fingerprints.iter().flat_map(fingerprint_values)).collect()
}

impl Value {
    fn with(&self, measure: &'static str, (mean, low, high): (f64, f64, f64)) -> Value {
        Value { measure, mean, low, high, ..self.clone() }
    }

    fn of(listing: &Listing, analysis: &'static str, adversary: String, draws: usize) -> Value {
        Value {
            consensus: listing.name.clone(),
            analysis,
            adversary,
            legs: 0,
            in_use: 0,
            day: 0,
            measure: "",
            mean: 0.0,
            low: 0.0,
            high: 0.0,
            clients: 0,
            draws,
        }
    }
}

fn band(band: Band) -> (f64, f64, f64) {
    (band.mean, band.low, band.high)
}

fn path_values(table: &PathTable) -> Vec<Value> {
    let of = Value::of(&table.listing, "paths", table.share.to_string(), table.draws);
    let row = |row: &PathRow| {
        let in_use = table.listing.in_use.max(row.legs);
        let one = Value { legs: row.legs, in_use, clients: row.circuits, ..of.clone() };
        let same = |measure, value| one.with(measure, (value, value, value));
        let chances: [(&str, &str, Chance); 4] = [
            ("any", "any_closed", row.any),
            ("all", "all_closed", row.all),
            ("merge", "merge_closed", row.merge_point),
            ("entries", "entries_closed", row.entries),
        ];
        let chances = chances.into_iter().flat_map(|(drawn, closed, chance)| {
            let Share { value, low, high } = chance.drawn;
            [one.with(drawn, (value, low, high)), same(closed, chance.closed)]
        });
        chances.chain([same("bytes", row.bytes)]).collect::<Vec<Value>>()
    };
    table.rows.iter().flat_map(row).collect()
}

fn year_values(table: &YearTable) -> Vec<Value> {
    let of = Value::of(&table.listing, "year", table.variant.clone(), table.draws);
    let row = |row: &YearRow| {
        let (legs, in_use) = (row.legs.unwrap_or(0), row.in_use.unwrap_or(0));
        let one = Value { legs, in_use, clients: table.clients, ..of.clone() };
        let days = table.days.iter().zip(&row.at);
        let at = days.flat_map(|(&day, at): (&u64, &CompromisedShares)| {
            let one = Value { day, ..one.clone() };
            [
                one.with("any_ever", band(at.any_ever)),
                one.with("all_ever", band(at.all_ever)),
                one.with("any_now", band(at.any_now)),
                one.with("all_now", band(at.all_now)),
            ]
        });
        let guards = one.with("guards", (row.guards, row.guards, row.guards));
        at.chain([guards]).collect::<Vec<Value>>()
    };
    table.rows.iter().flat_map(row).collect()
}

fn fingerprint_values(table: &FingerprintTable) -> Vec<Value> {
    let of = Value::of(&table.listing, "fingerprints", String::new(), 0);
    let row = |row: &FingerprintRow| {
        let one = Value { legs: row.legs, in_use: row.in_use, ..of.clone() };
        let measures = |sharing: &Sharing, names: [&'static str; 6]| {
            let bands = [
                sharing.over_sets,
                sharing.over_clients,
                sharing.median,
                sharing.unique,
                sharing.largest,
                sharing.effective,
            ];
            names.into_iter().zip(bands).map(|(name, of)| one.with(name, band(of))).collect()
        };
        let own: Vec<Value> = measures(
            &row.own,
            ["over_sets", "over_clients", "median", "unique", "largest", "effective"],
        );
        let fixed: Vec<Value> = measures(
            &row.fixed,
            [
                "fixed_over_sets",
                "fixed_over_clients",
                "fixed_median",
                "fixed_unique",
                "fixed_largest",
                "fixed_effective",
            ],
        );
        let formula = one.with("formula", (row.formula, row.formula, row.formula));
        own.into_iter().chain(fixed).chain([formula]).collect::<Vec<Value>>()
    };
    table.rows.iter().flat_map(row).collect()
}
