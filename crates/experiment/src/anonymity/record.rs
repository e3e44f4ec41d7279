//! Results of units, and the table of all values.

use anabranch_anonymity::consensus::Listed;
use anabranch_anonymity::fingerprints::FingerprintRow;
use anabranch_anonymity::paths::PathDraw;
use anabranch_anonymity::town::entries;
use anabranch_anonymity::year::DrawTally;
use serde::{Deserialize, Serialize};

use super::super::runner;
use super::super::table::{Column, Rows};
use super::summary::Value;

/// Properties of a consensus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// Hour from which the consensus is valid, which is also its name.
    pub name: String,
    /// Number of all relays.
    pub relays: usize,
    /// Number of relays that may be entries and have a weight above zero.
    pub entries: usize,
    /// Whether the consensus has exit policies. If not, each relay with the flag Exit allows all
    /// ports.
    pub has_policies: bool,
    /// Whether the consensus has families. If not, no relay has a family.
    pub has_families: bool,
    /// Number of guards that a client with one leg uses.
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

/// Result of an analysis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Compromise of circuits by each draw of the adversary.
    Paths {
        /// The adversary's share of the entry weight and of the exit weight.
        share: f64,
        /// Counts by draw of the adversary.
        draws: Vec<PathDraw>,
    },
    /// Part of the simulation of a year.
    Year {
        /// Name of the adversary.
        variant: String,
        /// Number of guards that a client with one leg uses.
        in_use: usize,
        /// Days on which clients were counted.
        days: Vec<u64>,
        /// Counts by draw of the adversary.
        tallies: Vec<DrawTally>,
    },
    /// Sets of guards, which can identify clients.
    Fingerprints {
        /// Number of guards that a client with one leg uses.
        in_use: usize,
        /// Rows for one, two and three legs.
        rows: Vec<FingerprintRow>,
    },
}

/// Result of a unit, as the journal stores it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Analysed {
    /// Name of the unit.
    pub unit: String,
    /// Properties of the unit's consensus.
    pub listing: Listing,
    /// Result of the analysis.
    pub outcome: Outcome,
}

impl runner::Record for Analysed {
    fn unit(&self) -> &str {
        &self.unit
    }
}

/// Returns the columns of the table of all values, with one row per value.
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
