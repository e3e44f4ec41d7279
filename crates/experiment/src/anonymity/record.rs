//! Results of the units (parts that take seconds) of the anonymity analysis, and the columns of
//! the table of all values.

use anabranch_anonymity::consensus::ListedConsensus;
use anabranch_anonymity::fingerprints::FingerprintRow;
use anabranch_anonymity::paths::PathDraw;
use anabranch_anonymity::population::entries;
use anabranch_anonymity::year::DrawTally;
use serde::{Deserialize, Serialize};

use super::super::runner;
use super::super::table::{Column, Rows};
use super::summary::Value;

/// Properties of an analysed consensus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// Hour from which the consensus is valid, which is also its name.
    pub name: String,
    /// Number of relays in the consensus.
    pub relays: usize,
    /// Number of relays that may be entries (the first hops of circuits) and have a weight above
    /// zero.
    pub entries: usize,
    /// True if the consensus has exit policies. If not, each relay with the flag Exit is assumed
    /// to allow all ports.
    pub has_policies: bool,
    /// True if the consensus has relay families. If not, relays are assumed to have no families.
    pub has_families: bool,
    /// Number of guards that a client with one circuit per stream uses.
    pub in_use: usize,
}

impl Listing {
    pub(super) fn of(name: &str, listed: &ListedConsensus) -> Listing {
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

/// Result of one unit of the analysis, by kind of analysis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Compromise of random circuits by each random adversary.
    Paths {
        /// The adversary's share of the network's entry weight and exit weight.
        share: f64,
        /// Counts for each random adversary.
        draws: Vec<PathDraw>,
    },
    /// Compromise of clients over a year: the results of one unit (a part of the analysis).
    Year {
        /// Name of the adversary.
        variant: String,
        /// Number of guards that a client with one circuit per stream uses.
        in_use: usize,
        /// Days of the year on which compromised clients were counted.
        days: Vec<u64>,
        /// Counts for each random adversary.
        tallies: Vec<DrawTally>,
    },
    /// Comparison of clients' sets of guards. A rare set identifies a client.
    Fingerprints {
        /// Number of guards that a client with one circuit per stream uses.
        in_use: usize,
        /// Results for clients with one, two and three circuits per stream.
        rows: Vec<FingerprintRow>,
    },
}

/// Result of one unit (a part that takes seconds) of the analysis: one line of the journal, the
/// file with the results so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnitResult {
    /// Name of the unit (the part of the analysis).
    pub unit: String,
    /// Properties of the analysed consensus.
    pub listing: Listing,
    /// Result of the analysis.
    pub outcome: Outcome,
}

impl runner::Record for UnitResult {
    fn unit(&self) -> &str {
        &self.unit
    }
}

/// Returns the columns of the Parquet table of all values. Each element of `values` becomes a row.
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
