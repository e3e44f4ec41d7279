//! Texts about the results of the experiment `anonymity`, shared by the HTML page, the Markdown
//! file and the terminal output.

use anabranch_anonymity::figures::{Band, Share};
use anabranch_anonymity::fingerprints::Sharing;
use anabranch_anonymity::year::{CompromisedShares, YearRow};
use anabranch_experiment::anonymity::claims::Claim;
use anabranch_experiment::anonymity::summary::{FingerprintTable, PathTable, Summary, YearTable};
use anabranch_experiment::anonymity::{Listing, Outcome, UnitResult, VARIANTS};
use anabranch_pages::figures::grouped;
use serde_json::Value;

/// Data for the HTML page, the SVG file, the Markdown file and the terminal output.
pub(super) struct ReportData<'a> {
    /// First line of the journal `units.jsonl`: the settings, and the program and machine of the
    /// measurements.
    pub(super) header: &'a Value,
    /// Summary of the results.
    pub(super) summary: &'a Summary,
    /// Claims of "Analysis of Multi-path Onion Routing", each with its verdict.
    pub(super) claims: &'a [Claim],
}

/// One interpretation of the paper's Figure 5: a definition of the clients that count as
/// compromised.
pub(super) struct Kind {
    /// Name for headings.
    pub(super) name: &'static str,
    /// Function that selects the share of compromised clients on one day.
    pub(super) of: fn(&CompromisedShares) -> Band,
}

/// The four interpretations of the paper's Figure 5: definitions of the clients that count as
/// compromised.
pub(super) const KINDS: [Kind; 4] = [
    Kind { name: "Model 1, by this day: one entry was hostile", of: |at| at.any_ever },
    Kind {
        name: "Model 2, by this day: all entries of a circuit were hostile",
        of: |at| at.all_ever,
    },
    Kind { name: "Model 1, on this day: one entry is hostile", of: |at| at.any_now },
    Kind {
        name: "Model 2, on this day: all entries of a circuit are hostile",
        of: |at| at.all_now,
    },
];

/// Days of the simulated year that the tables show. The figures show all days.
const TABLE_DAYS: [u64; 4] = [30, 90, 182, 365];

/// Describes the result of a unit (one part of the analysis) in a few words.
pub(super) fn outcome(record: &UnitResult) -> String {
    match &record.outcome {
        Outcome::Paths { draws, .. } => {
            format!("{} random choices of the adversary's relays", draws.len())
        }
        Outcome::Year { tallies, .. } => {
            let clients: u64 = tallies.iter().map(|tally| tally.clients).sum();
            format!("{} simulated client-years for each number of entry relays", grouped(clients))
        }
        Outcome::Fingerprints { rows, .. } => {
            let unique = rows.get(1).map_or(0.0, |row| row.own.unique.mean);
            format!(
                "{:.1} % of clients have a pair of guards that no other client has",
                unique * 100.0
            )
        }
    }
}

/// Returns a sentence on the analysis: its consensuses, clients, random adversaries and seed.
pub(super) fn description(report_data: &ReportData<'_>) -> String {
    let count = report_data.header["consensuses"].as_array().map_or(0, Vec::len);
    let number = |key: &str| grouped(report_data.header[key].as_u64().unwrap_or(0));
    let first =
        report_data.summary.first().map_or("none".to_owned(), |listing| listing.name.clone());
    format!(
        "{count} consensuses; the first is that of {first}. A year from the first one is simulated \
         with {} clients, and the adversary's relays are chosen at random {} times. The sets of \
         guards (entry relays) of {} clients are compared. Seed {}",
        number("clients"),
        number("draws"),
        number("fingerprints"),
        report_data.header["seed"]
    )
}

/// Returns the name and version of the program, and the machine, that computed the analysis.
pub(super) fn origin(header: &Value) -> String {
    let header_text = |key: &str| header[key].as_str().unwrap_or("not noted").to_owned();
    format!("Program: {}. Machine: {}.", header_text("program"), header_text("machine"))
}

/// Returns a note about the data that a consensus lacks (exit policies, families). The note is
/// empty if the consensus is complete.
pub(super) fn limits(listing: &Listing) -> &'static str {
    match (listing.has_policies, listing.has_families) {
        (true, true) => "",
        (true, false) => "no families",
        (false, true) => "no exit policies",
        (false, false) => "no exit policies, no families",
    }
}

fn consensus(listing: &Listing) -> String {
    match limits(listing) {
        "" => listing.name.clone(),
        limits => format!("{} ({limits})", listing.name),
    }
}

/// Column headings of the table of the paper's claims.
pub(super) const CLAIM_HEAD: [&str; 4] = ["claim of the paper", "paper's value", "verdict", "ours"];

/// Returns the paper's claims, with verdicts, as rows of a table.
pub(super) fn claim_rows(claims: &[Claim]) -> Vec<[String; 4]> {
    let row = |claim: &Claim| {
        let ours = if claim.ours.is_empty() { "–".to_owned() } else { claim.ours.clone() };
        [claim.statement.to_owned(), claim.paper.to_owned(), claim.verdict.words().to_owned(), ours]
    };
    claims.iter().map(row).collect()
}

fn share(share: Share) -> String {
    format!("{:.4} ({:.4} to {:.4})", share.value, share.low, share.high)
}

fn band(band: Band, digits: usize) -> String {
    format!("{:.digits$} ({:.digits$} to {:.digits$})", band.mean, band.low, band.high)
}

/// Column headings of the table of probabilities that a stream is compromised.
pub(super) const PATH_HEAD: [&str; 9] = [
    "consensus",
    "hostile share of entries/exits",
    "circuits per stream",
    "one entry and the exit: formula",
    "simulated",
    "all entries and the exit: formula",
    "simulated",
    "one entry and the middle relay where circuits join",
    "bytes that hostile entries see",
];

/// Returns the probabilities that a stream is compromised, as rows of a table. The headings are
/// [`PATH_HEAD`].
pub(super) fn path_rows(tables: &[PathTable]) -> Vec<Vec<String>> {
    let rows = tables.iter().flat_map(|table| table.rows.iter().map(move |row| (table, row)));
    rows.map(|(table, row)| {
        vec![
            consensus(&table.listing),
            format!("{:.4}/{:.4}", table.holding.entry, table.holding.exit),
            row.legs.to_string(),
            format!("{:.4}", row.any.closed),
            share(row.any.drawn),
            format!("{:.4}", row.all.closed),
            share(row.all.drawn),
            share(row.merge_point.drawn),
            format!("{:.4}", row.bytes),
        ]
    })
    .collect()
}

/// Formats the number of entry relays (one for each circuit of a stream) of a row for a table. If
/// clients have different numbers, returns `COMB`, the paper's name for this mixture.
pub(super) fn entries(row: &YearRow) -> String {
    row.legs.map_or("COMB".to_owned(), |legs| legs.to_string())
}

/// Formats the number of entry relays (one for each circuit of a stream) of a row for a legend.
pub(super) fn legend(row: &YearRow) -> String {
    match row.legs {
        Some(1) => "one entry".to_owned(),
        Some(legs) => format!("{legs} entries"),
        None => entries(row),
    }
}

/// Returns the column headings of the table with the shares of compromised clients by day.
pub(super) fn day_head(table: &YearTable) -> Vec<String> {
    let days = table.days.iter().filter(|day| TABLE_DAYS.contains(day));
    let days = days.map(|day| format!("day {day}"));
    ["entries".to_owned(), "guards a year".to_owned()].into_iter().chain(days).collect()
}

/// Returns the shares of compromised clients on the days of a year, as rows of a table.
pub(super) fn day_rows(table: &YearTable, kind: &Kind) -> Vec<Vec<String>> {
    let row = |row: &YearRow| {
        let days = table.days.iter().zip(&row.at).filter(|(day, _)| TABLE_DAYS.contains(day));
        let days = days.map(|(_, at)| band((kind.of)(at), 4));
        [entries(row), format!("{:.1}", row.guards)].into_iter().chain(days).collect()
    };
    table.rows.iter().map(row).collect()
}

/// Column headings of the table with the shares of compromised clients on the last day of the
/// year, for all adversaries and consensuses.
pub(super) const LAST_HEAD: [&str; 9] = [
    "consensus",
    "adversary",
    "guards in use with one circuit",
    "clients × draws",
    "one entry",
    "any of two entries",
    "any of three entries",
    "both of two entries",
    "all of three entries",
];

/// Returns the shares of compromised clients on the last day of each year, as rows of a table.
pub(super) fn last_rows(tables: &[YearTable]) -> Vec<Vec<String>> {
    let row = |table: &YearTable| {
        let last = |row: usize, of: fn(&CompromisedShares) -> Band| {
            let at = table.rows.get(row).and_then(|row| row.at.last());
            at.map_or("–".to_owned(), |at| band(of(at), 4))
        };
        vec![
            table.listing.name.clone(),
            table.variant.clone(),
            table.in_use.to_string(),
            format!("{} × {}", grouped(table.clients), table.draws),
            last(0, |at| at.any_ever),
            last(1, |at| at.any_ever),
            last(2, |at| at.any_ever),
            last(1, |at| at.all_ever),
            last(2, |at| at.all_ever),
        ]
    };
    tables.iter().map(row).collect()
}

/// Returns the adversaries, with their descriptions, as rows of a table.
pub(super) fn variant_rows() -> Vec<Vec<String>> {
    VARIANTS.iter().map(|one| vec![one.name.to_owned(), one.about.to_owned()]).collect()
}

/// Column headings of the table of guard fingerprints (how many clients share their set of
/// guards).
pub(super) const SHARING_HEAD: [&str; 9] = [
    "consensus",
    "entries",
    "in use",
    "formula",
    "over sets",
    "over clients",
    "unique",
    "largest",
    "effective",
];

/// Returns the numbers of clients that share their set of guards, as rows of a table. `of` selects
/// one of two cases: each client draws its guards at random, or clients get fixed sets of guards.
pub(super) fn sharing_rows(
    tables: &[FingerprintTable],
    of: fn(&anabranch_anonymity::fingerprints::FingerprintRow) -> &Sharing,
) -> Vec<Vec<String>> {
    let rows = tables.iter().flat_map(|table| table.rows.iter().map(move |row| (table, row)));
    rows.map(|(table, row)| {
        let sharing = of(row);
        vec![
            table.listing.name.clone(),
            row.legs.to_string(),
            row.in_use.to_string(),
            formula(row.formula),
            format!("{:.2}", sharing.over_sets.mean),
            band(sharing.over_clients, 2),
            band(sharing.unique, 3),
            band(sharing.largest, 0),
            format!("{:.1}", sharing.effective.mean),
        ]
    })
    .collect()
}

fn formula(value: f64) -> String {
    if value < 0.01 { format!("{value:.1e}") } else { format!("{value:.2}") }
}

/// Returns the results as text for a terminal.
pub(super) fn plain(report_data: &ReportData<'_>) -> String {
    let line = |claim: &Claim| {
        let ours = if claim.ours.is_empty() { "not analysed yet" } else { &claim.ours };
        format!("{}: {} — {}\n  {ours}\n", claim.statement, claim.paper, claim.verdict.words())
    };
    report_data.claims.iter().map(line).collect()
}
