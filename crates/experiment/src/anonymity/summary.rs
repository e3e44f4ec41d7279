//! Summary of all units' results.

use anabranch_anonymity::figures::{Band, Share};
use anabranch_anonymity::fingerprints::{FingerprintRow, Sharing};
use anabranch_anonymity::paths::{self, Chance, Holding, PathDraw, PathRow};
use anabranch_anonymity::year::{self, Compromised, DrawTally, YearRow};
use anabranch_onion::guards::GuardParams;

use super::{Analysed, Listing, Outcome, VARIANTS};

/// All results, in the order of the plan for each kind of analysis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Results of drawn circuits.
    pub paths: Vec<PathTable>,
    /// Results of simulated years.
    pub years: Vec<YearTable>,
    /// Results about guard fingerprints.
    pub fingerprints: Vec<FingerprintTable>,
}

/// Results of drawn circuits, for one consensus and one share.
#[derive(Clone, Debug, PartialEq)]
pub struct PathTable {
    /// Properties of the consensus.
    pub listing: Listing,
    /// Share of the entry weight and of the exit weight that the adversary was to hold.
    pub share: f64,
    /// Shares of weight that the adversary actually held.
    pub holding: Holding,
    /// Number of draws of the adversary.
    pub draws: usize,
    /// Rows by number of legs.
    pub rows: Vec<PathRow>,
}

/// Results of the year for one consensus and one adversary.
#[derive(Clone, Debug, PartialEq)]
pub struct YearTable {
    /// Properties of the consensus.
    pub listing: Listing,
    /// Name of the adversary.
    pub variant: String,
    /// Number of guards that a client with one leg uses.
    pub in_use: usize,
    /// Days on which clients were counted.
    pub days: Vec<u64>,
    /// Number of draws of the adversary.
    pub draws: usize,
    /// Number of clients in each draw, for each number of legs.
    pub clients: u64,
    /// Rows for one, two and three legs, and for the mixture COMB.
    pub rows: Vec<YearRow>,
}

/// Results about guard fingerprints, for one consensus.
#[derive(Clone, Debug, PartialEq)]
pub struct FingerprintTable {
    /// Properties of the consensus.
    pub listing: Listing,
    /// Number of guards that a client with one leg uses.
    pub in_use: usize,
    /// Rows for one, two and three legs.
    pub rows: Vec<FingerprintRow>,
}

impl Summary {
    /// Summarises the results of units.
    #[must_use]
    pub fn of(records: &[Analysed]) -> Summary {
        let mut summary = Summary::default();
        let mut years: Vec<(&Analysed, &str, usize, Vec<DrawTally>)> = Vec::new();
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

    /// Returns the consensus to which all adversaries are applied: that of the first record.
    /// `None` if there is no record.
    #[must_use]
    pub fn first(&self) -> Option<&Listing> {
        let years = self.years.iter().map(|table| &table.listing);
        self.paths.iter().map(|table| &table.listing).chain(years).next()
    }

    /// Returns the year of Figure 5: for the first consensus and the first adversary, if a client
    /// with one leg uses one guard. `None` if it was not simulated.
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
    (record, variant, in_use, mut tallies): (&Analysed, &str, usize, Vec<DrawTally>),
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

/// A row of the table of all values: one measured number.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Name of the consensus.
    pub consensus: String,
    /// Kind of analysis: `paths`, `year` or `fingerprints`.
    pub analysis: &'static str,
    /// For paths, the share that the adversary was to hold; for a year, the adversary's name.
    /// Empty for fingerprints.
    pub adversary: String,
    /// Number of legs of a circuit; 0 for the mixture COMB of one, two and three legs.
    pub legs: usize,
    /// Number of guards in use by a client; 0 for the mixture COMB.
    pub in_use: usize,
    /// Day, in the analysis of a year; 0 in the analyses of paths and fingerprints.
    pub day: u64,
    /// Name of the measure.
    pub measure: &'static str,
    /// The value; if it was drawn, the mean over draws.
    pub mean: f64,
    /// Lower bound: for paths, of the 95 % interval over draws; for other analyses, the 5 %
    /// quantile of the draws. Equals `mean` if nothing was drawn.
    pub low: f64,
    /// Upper bound: for paths, of the 95 % interval over draws; for other analyses, the 95 %
    /// quantile of the draws. Equals `mean` if nothing was drawn.
    pub high: f64,
    /// Number of clients in each draw; for paths, the number of all circuits that were built.
    pub clients: u64,
    /// Number of draws of the adversary; for fingerprints, the number of populations.
    pub draws: usize,
}

/// Returns all values of `summary`, as rows of the table.
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
            ("merge", "merge_closed", row.merge),
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
        let at = days.flat_map(|(&day, at): (&u64, &Compromised)| {
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
