//! What came of a unit, and of all of them as rows.

use anabranch_anonymity::consensus::Listed;
use anabranch_anonymity::fingerprints::FingerprintRow;
use anabranch_anonymity::paths::PathDraw;
use anabranch_anonymity::town::entries;
use anabranch_anonymity::year::DrawTally;
use serde::{Deserialize, Serialize};

use super::super::runner;
use super::super::table::{Column, Rows};
use super::summary::Value;

/// What a consensus holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// The hour from which it is valid.
    pub name: String,
    /// All relays.
    pub relays: usize,
    /// Those that may be entries and have weight for it.
    pub entries: usize,
    /// Whether it says which ports exits let through. If not, the flag Exit counts for all.
    pub has_policies: bool,
    /// Whether it says who belongs together. If not, nobody does.
    pub has_families: bool,
    /// Guards that a client with one leg uses.
    pub in_use: usize,
}

impl Listing {
    pub(super) fn of(name: &str, listed: &Listed) -> Listing {
        Listing {
            name: name.to_owned(),
            relays: listed.network.relays().count(),
            entries: entries(&listed.network).len(),
            has_policies: listed.has_policies,
            has_families: listed.has_families,
            in_use: listed.network.params().guards.primary_to_use,
        }
    }
}

/// What came of an analysis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Circuits against each draw of the adversary.
    Paths {
        /// Its share of entries and of exits.
        share: f64,
        /// Each draw.
        draws: Vec<PathDraw>,
    },
    /// A part of a year.
    Year {
        /// The adversary's name.
        variant: String,
        /// Guards in use by a client with one leg.
        in_use: usize,
        /// The days at which was counted.
        days: Vec<u64>,
        /// Each draw of the adversary.
        tallies: Vec<DrawTally>,
    },
    /// Guard fingerprints.
    Fingerprints {
        /// Guards in use by a client with one leg.
        in_use: usize,
        /// One, two and three legs.
        rows: Vec<FingerprintRow>,
    },
}

/// What came of a unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Analysed {
    /// The unit.
    pub unit: String,
    /// The consensus.
    pub listing: Listing,
    /// The rest.
    pub outcome: Outcome,
}

impl runner::Record for Analysed {
    fn unit(&self) -> &str {
        &self.unit
    }
}

/// A row for each value that was found.
#[must_use]
pub fn columns(values: &[Value]) -> Vec<Column> {
    let rows = Rows(values);
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    vec![
        rows.text("consensus", |one| one.consensus.clone()),
        rows.text("analysis", |one| one.analysis.to_owned()),
        rows.text("adversary", |one| one.adversary.clone()),
        rows.int("legs", |one| small(one.legs)),
        rows.int("in_use", |one| small(one.in_use)),
        rows.int("day", |one| u32::try_from(one.day).unwrap_or(u32::MAX)),
        rows.text("measure", |one| one.measure.to_owned()),
        rows.double("mean", |one| one.mean),
        rows.double("low", |one| one.low),
        rows.double("high", |one| one.high),
        rows.long("clients", |one| one.clients),
        rows.int("draws", |one| small(one.draws)),
    ]
}
