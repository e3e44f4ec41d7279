//! Claims of the DBSec 2019 paper about anonymity (section 6), our results, and whether the claims
//! hold.
//!
//! Each verdict is computed from the results by the claim's rule, and none is judged by hand. A
//! rule may have several interpretations of the paper's wording, or apply to several networks.

use anabranch_anonymity::figures::Band;
use anabranch_anonymity::fingerprints::{FingerprintRow, combinations};
use anabranch_anonymity::paths::{Chance, PathRow};
use anabranch_anonymity::year::{CompromisedShares, YearRow};

use super::super::ratio;
use super::SHARES;
use super::summary::{FingerprintTable, PathTable, Summary, YearTable};

/// Verdict on whether a claim of the DBSec 2019 paper agrees with our results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The claim holds in each interpretation of the DBSec 2019 paper's wording.
    Holds,
    /// The claim holds in some interpretations of the paper's wording or on some networks, but not
    /// in all.
    Depends,
    /// The claim holds in no interpretation of the paper's wording.
    HoldsNot,
    /// Our analysis does not cover the subject of the claim.
    Unknown,
}

/// A claim of the DBSec 2019 paper about anonymity, with our results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Statement of the claim.
    pub statement: &'static str,
    /// The number or the wording with which the DBSec 2019 paper makes the claim.
    pub paper: &'static str,
    /// Our results for the claim, with intervals, as text.
    pub ours: String,
    /// Verdict on the claim.
    pub verdict: Verdict,
    /// The rule for the verdict: the condition under which the claim holds, and its
    /// interpretations.
    pub rule: &'static str,
}

impl Verdict {
    /// Returns the verdict as text.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Depends => "depends on the interpretation",
            Verdict::HoldsNot => "does not hold",
            Verdict::Unknown => "not analysed",
        }
    }

    /// Derives the verdict from `readings`. Each entry is true if the claim holds in one
    /// interpretation of the paper's wording.
    fn of(readings: &[bool]) -> Verdict {
        let good = readings.iter().filter(|good| **good).count();
        match (good, readings.len()) {
            (_, 0) => Verdict::Unknown,
            (0, _) => Verdict::HoldsNot,
            (good, all) if good == all => Verdict::Holds,
            _ => Verdict::Depends,
        }
    }

    /// Returns the verdict on the claim that a quantity has the value `paper`. The DBSec 2019
    /// paper measured it in one network; `found` has its value in each of several networks. A
    /// value agrees with the paper if it differs from `paper` by at most `near`.
    ///
    /// Returns [`Verdict::Holds`] if all values agree, and [`Verdict::Depends`] if only some
    /// agree. If no value agrees, returns [`Verdict::Depends`] if `paper` is between the smallest
    /// and the largest value, and otherwise [`Verdict::HoldsNot`]. Without values, returns
    /// [`Verdict::Unknown`].
    fn between(paper: f64, found: &[f64], near: f64) -> Verdict {
        let readings: Vec<bool> = found.iter().map(|one| (one - paper).abs() <= near).collect();
        let (least, most) = found
            .iter()
            .fold((f64::MAX, f64::MIN), |(least, most), one| (least.min(*one), most.max(*one)));
        match Verdict::of(&readings) {
            Verdict::HoldsNot if (least..=most).contains(&paper) => Verdict::Depends,
            verdict => verdict,
        }
    }
}

/// Returns the verdicts on all claims, in the order of the DBSec 2019 paper.
#[must_use]
pub fn claims(summary: &Summary) -> Vec<Claim> {
    vec![
        circuits(
            summary,
            1,
            (
                "share of streams over one circuit that an adversary with 20 % of entries and \
                 exits compromises",
                "4 %",
                0.04,
            ),
        ),
        circuits(
            summary,
            3,
            (
                "share of streams over three circuits that an adversary with 20 % of entries and \
              exits compromises (paper's footnote 14; three entry relays)",
                "9.8 %",
                0.098,
            ),
        ),
        formula(
            summary,
            (
                "probability that at least one of m entries and the exit are hostile",
                "f_x (1 - (1 - f_g)^m)",
                |row| row.any,
            ),
        ),
        formula(
            summary,
            ("probability that all m entries and the exit are hostile", "f_x f_g^m", |row| row.all),
        ),
        twice(summary),
        exponentially(summary),
        thousand(summary),
        shared(summary),
        unique(summary),
        largest(summary),
    ]
}

/// Formats the first, the smallest and the largest value in `found`, and the number of other
/// values. Each entry of `found` is a network's name, and a value with its interval. Values are
/// multiplied by `scale`, rounded to `digits` decimals and followed by `unit`.
fn listed(found: &[(&str, Band)], digits: usize, scale: f64, unit: &str) -> String {
    let order = |one: &&(&str, Band), other: &&(&str, Band)| one.1.mean.total_cmp(&other.1.mean);
    let ends = [found.first(), found.iter().min_by(order), found.iter().max_by(order)];
    let mut shown: Vec<&(&str, Band)> = Vec::new();
    for one in ends.into_iter().flatten().filter(|one| one.1.mean.is_finite()) {
        if !shown.iter().any(|other| other.0 == one.0) {
            shown.push(one);
        }
    }
    let one = |(name, band): &&(&str, Band)| {
        let [mean, low, high] = [band.mean, band.low, band.high].map(|value| value * scale);
        format!("{mean:.digits$}{unit} ({low:.digits$} to {high:.digits$}) in {name}")
    };
    let text: Vec<String> = shown.iter().map(one).collect();
    match found.len() > shown.len() {
        true => {
            format!("{}; {} more in between", text.join(", "), found.len() - shown.len())
        }
        false => text.join(", "),
    }
}

fn band(chance: &Chance) -> Band {
    Band { mean: chance.drawn.value, low: chance.drawn.low, high: chance.drawn.high }
}

/// Returns whether our result agrees with `number`, the paper's value. `drawn` has the mean and
/// the interval over random adversaries. Either the mean is within 0.005 of `number`, or the
/// interval includes `number`.
fn is_near(drawn: &Band, number: f64) -> bool {
    (drawn.mean - number).abs() <= 0.005 || (drawn.low..=drawn.high).contains(&number)
}

fn month(table: &str) -> &str {
    table.get(..7).unwrap_or(table)
}

fn circuits(summary: &Summary, legs: usize, claim: (&'static str, &'static str, f64)) -> Claim {
    let (statement, paper, value) = claim;
    let of = |table: &PathTable| table.share == SHARES[0].0;
    let found: Vec<(&str, Band)> = summary
        .paths
        .iter()
        .filter(|table| of(table))
        .filter_map(|table| {
            let row = table.rows.iter().find(|row| row.legs == legs)?;
            Some((month(&table.listing.name), band(&row.any)))
        })
        .collect();
    let good: Vec<bool> = found.iter().map(|(_, one)| is_near(one, value)).collect();
    Claim {
        statement,
        paper,
        ours: listed(&found, 2, 100.0, " %"),
        verdict: Verdict::of(&good),
        rule: "holds in networks where the simulated share differs from the paper's share by at \
               most 0.005, or where its 95 % interval contains the paper's share",
    }
}

/// Function that selects one of the probabilities in a row of results.
type OfRow = fn(&PathRow) -> Chance;

fn formula(summary: &Summary, claim: (&'static str, &'static str, OfRow)) -> Claim {
    let (statement, paper, of) = claim;
    let rows = || summary.paths.iter().flat_map(|table| &table.rows);
    let chances: Vec<Chance> = rows().map(of).collect();
    let apart = chances.iter().map(|one| (one.closed - one.drawn.value).abs());
    let most = apart.fold(0.0, f64::max);
    let ours = format!(
        "formula and simulation differ by at most {most:.4}, over {} networks and up to {} legs \
         (circuits per stream)",
        summary.paths.iter().filter(|table| table.share == SHARES[0].0).count(),
        rows().map(|row| row.legs).max().unwrap_or(0)
    );
    let good: Vec<bool> = chances.iter().map(|one| is_near(&band(one), one.closed)).collect();
    let rule = "holds where the simulated probability differs from the formula's value by at most \
                0.005, or where its 95 % interval contains the formula's value";
    Claim { statement, paper, ours, verdict: Verdict::of(&good), rule }
}

/// Formats a ratio; as a dash if it is undefined (`None`) because no client was compromised.
fn factor(found: Option<f64>, digits: usize) -> String {
    found.map_or_else(|| "–".to_owned(), |found| format!("{found:.digits$}"))
}

/// Returns the mean share of compromised clients on the last day: for clients with one, two and
/// three circuits per stream. `of` selects the kind of compromise. Returns `None` if a value is
/// missing.
fn factors(table: &YearTable, of: fn(&CompromisedShares) -> Band) -> Option<[f64; 3]> {
    let last = |row: &YearRow| row.at.last().map(|at| of(at).mean);
    let values: Vec<f64> = table.rows.iter().take(3).filter_map(last).collect();
    values.try_into().ok()
}

fn twice(summary: &Summary) -> Claim {
    let ratios = |of| {
        summary
            .figure_5()
            .and_then(|table| factors(table, of))
            .map(|[one, two, three]| [ratio(two, one), ratio(three, one)])
    };
    let (now, ever) = (ratios(|at| at.any_now), ratios(|at| at.any_ever));
    let all = now.iter().chain(&ever).flatten().flatten();
    let good: Vec<bool> = all.map(|ratio| (1.5..2.5).contains(ratio)).collect();
    let ours = match (now, ever) {
        (Some(now), Some(ever)) if !good.is_empty() => {
            let [two, three] = now.map(|found| factor(found, 2));
            let [two_ever, three_ever] = ever.map(|found| factor(found, 2));
            format!(
                "on one day, {two} times as many clients are vulnerable with two entry relays as \
                 with one, and {three} times as many with three; within a year, {two_ever} and \
                 {three_ever} times as many"
            )
        }
        _ => String::new(),
    };
    Claim {
        statement: "more clients are vulnerable with several entries than with one, if one hostile \
               entry makes a client vulnerable (model 1)",
        paper: "\"around twice\"",
        ours,
        verdict: Verdict::of(&good),
        rule: "there are four interpretations (two or three entries, on one day or within the \
               year). The claim holds in each in which the number of vulnerable clients is 1.5 to \
               2.5 times that with one entry",
    }
}

fn exponentially(summary: &Summary) -> Claim {
    let steps = |of| {
        summary
            .figure_5()
            .and_then(|table| factors(table, of))
            .map(|[one, two, three]| [ratio(one, two), ratio(two, three)])
    };
    let (now, ever) = (steps(|at| at.all_now), steps(|at| at.all_ever));
    let all = now.iter().chain(&ever);
    // A step whose value cannot be computed counts neither for nor against the claim.
    let falls = |steps: &[Option<f64>; 2]| match *steps {
        [Some(first), Some(second)] => Some(first >= 4.0 && second >= 4.0),
        [first, second] => first.or(second).filter(|step| *step < 4.0).map(|_| false),
    };
    let good: Vec<bool> = all.clone().filter_map(falls).collect();
    let ours = match (now, ever) {
        (Some(now), Some(ever)) if all.clone().flatten().any(Option::is_some) => {
            let [first, second] = now.map(|found| factor(found, 1));
            let [first_ever, second_ever] = ever.map(|found| factor(found, 1));
            format!(
                "on one day, a second entry relay lowers the share of vulnerable clients by a \
                 factor of {first}, and a third one by a further factor of {second}; within a \
                 year, the factors are {first_ever} and {second_ever}"
            )
        }
        _ => String::new(),
    };
    Claim {
        statement: "the share of vulnerable clients falls with the number of entries m, if only \
               clients whose entries are all hostile are vulnerable (model 2)",
        paper: "\"exponentially\"",
        ours,
        verdict: Verdict::of(&good),
        rule: "there are two interpretations (on one day, within the year). The claim holds in \
               each in which every further entry relay divides the share of vulnerable clients by \
               4 or more",
    }
}

/// Returns the results about guard fingerprints for clients with `legs` circuits per stream, each
/// result with the month of the consensus. Considers only tables in which a client with one
/// circuit uses one guard.
fn fingerprints(summary: &Summary, legs: usize) -> Vec<(&str, &FingerprintRow)> {
    let row = |table: &FingerprintTable| table.rows.iter().position(|row| row.legs == legs);
    let tables = summary.fingerprints.iter().filter(|table| table.in_use == 1);
    tables
        .filter_map(|table| Some((month(&table.listing.name), &table.rows[row(table)?])))
        .collect()
}

fn thousand(summary: &Summary) -> Claim {
    let paper: Vec<f64> = (1..=3).map(|legs| 2_000_000.0 / combinations(2000, legs)).collect();
    let arithmetic = [1000.0, 1.0005, 0.0015]
        .iter()
        .zip(&paper)
        .all(|(one, ours)| (one / ours - 1.0).abs() < 0.01);
    // The mean over clients is compared with the paper's formula, which is the mean over sets of
    // guards.
    let ratios: Vec<(&str, f64)> = fingerprints(summary, 1)
        .iter()
        .filter_map(|(name, row)| Some((*name, ratio(row.own.over_clients.mean, row.formula)?)))
        .collect();
    let mut good: Vec<bool> = ratios.iter().map(|(_, ratio)| *ratio < 1.1).collect();
    if !good.is_empty() {
        good.push(arithmetic);
    }
    let of = |ratio: &(&str, f64)| format!("{:.1} times in {}", ratio.1, ratio.0);
    let order = |one: &&(&str, f64), other: &&(&str, f64)| one.1.total_cmp(&other.1);
    let ends: Vec<String> = [ratios.iter().min_by(order), ratios.iter().max_by(order)]
        .into_iter()
        .flatten()
        .map(of)
        .collect();
    Claim {
        statement: "with 2,000,000 clients and 2000 entries, 2,000,000 / C(2000, m) clients share \
                    a set of m entries",
        paper: "1000; 1.0005; .0015",
        ours: format!(
            "{:.0} with one entry relay, {:.4} with two and {:.4} with three on average, if all \
             sets of entry relays are equally likely to be chosen. In real consensuses clients \
             choose entry relays of a high weight more often, so the number is higher than the \
             formula's: {}",
            paper[0],
            paper[1],
            paper[2],
            ends.join(", ")
        ),
        verdict: Verdict::of(&good),
        rule: "the formula gives the paper's numbers. For clients that choose relays by weight, \
               the claim holds in networks where the mean over clients exceeds the formula's \
               value by less than 10 %",
    }
}

fn shared(summary: &Summary) -> Claim {
    let rows = fingerprints(summary, 1);
    let clients: Vec<(&str, Band)> =
        rows.iter().map(|(name, row)| (*name, row.own.over_clients)).collect();
    let sets: Vec<(&str, Band)> =
        rows.iter().map(|(name, row)| (*name, row.own.over_sets)).collect();
    let found: Vec<f64> = clients.iter().chain(&sets).map(|(_, band)| band.mean).collect();
    Claim {
        statement: "with 83,000 clients that have one entry each, mean number of clients that \
                    share an entry",
        paper: "112",
        ours: format!(
            "mean over clients {}; mean over entries {}",
            listed(&clients, 1, 1.0, ""),
            listed(&sets, 1, 1.0, "")
        ),
        verdict: Verdict::between(112.0, &found, 11.2),
        rule: "there are two interpretations (mean over clients, mean over entries). The claim \
               holds in each network and interpretation in which the number differs from the \
               paper's by at most 10 %",
    }
}

fn unique(summary: &Summary) -> Claim {
    let rows = fingerprints(summary, 2);
    let found: Vec<(&str, Band)> = rows.iter().map(|(name, row)| (*name, row.own.unique)).collect();
    let values: Vec<f64> = found.iter().map(|(_, band)| band.mean).collect();
    Claim {
        statement: "with two entries, share of clients whose pair of entries no other client has",
        paper: "roughly 90 %",
        ours: listed(&found, 1, 100.0, " %"),
        verdict: Verdict::between(0.9, &values, 0.03),
        rule: "holds in networks where the share differs from the paper's by at most 3 percentage \
               points",
    }
}

fn largest(summary: &Summary) -> Claim {
    let rows = fingerprints(summary, 2);
    let others =
        |band: Band| Band { mean: band.mean - 1.0, low: band.low - 1.0, high: band.high - 1.0 };
    let found: Vec<(&str, Band)> =
        rows.iter().map(|(name, row)| (*name, others(row.own.largest))).collect();
    let good: Vec<bool> =
        found.iter().map(|(_, band)| (band.low..=band.high).contains(&14.0)).collect();
    let values: Vec<f64> = found.iter().map(|(_, band)| band.mean).collect();
    let verdict = match Verdict::of(&good) {
        Verdict::HoldsNot => Verdict::between(14.0, &values, 0.0),
        verdict => verdict,
    };
    Claim {
        statement: "with two entries, number of other clients with the most common pair",
        paper: "14",
        ours: listed(&found, 1, 1.0, ""),
        verdict,
        rule: "the claim holds in networks where the interval of the simulated number contains \
               the paper's number",
    }
}

#[cfg(test)]
mod tests {
    use super::super::Listing;
    use super::*;

    #[test]
    fn a_verdict_is_that_of_all_readings() {
        assert_eq!(Verdict::of(&[]), Verdict::Unknown);
        assert_eq!(Verdict::of(&[true, true]), Verdict::Holds);
        assert_eq!(Verdict::of(&[true, false]), Verdict::Depends);
        assert_eq!(Verdict::of(&[false]), Verdict::HoldsNot);
        let between = |found: &[f64]| Verdict::between(112.0, found, 11.2);
        assert_eq!(between(&[105.0, 120.0]), Verdict::Holds);
        assert_eq!(between(&[80.0, 230.0]), Verdict::Depends, "some network between them has it");
        assert_eq!(between(&[40.0, 80.0]), Verdict::HoldsNot);
        assert_eq!(between(&[]), Verdict::Unknown);
    }

    #[test]
    fn what_is_told_names_the_first_the_least_and_the_greatest() {
        let one = |mean: f64| Band { mean, low: mean - 1.0, high: mean + 1.0 };
        let found = [("a", one(5.0)), ("b", one(9.0)), ("c", one(2.0)), ("d", one(6.0))];
        let text = listed(&found, 0, 1.0, " %");
        let expected =
            "5 % (4 to 6) in a, 2 % (1 to 3) in c, 9 % (8 to 10) in b; 1 more in between";
        assert_eq!(text, expected);
        assert_eq!(listed(&found[..1], 0, 1.0, ""), "5 (4 to 6) in a");
        assert_eq!(listed(&[], 0, 1.0, ""), "");
    }

    /// Returns a summary with one simulated year. `shares` are the shares of compromised clients
    /// with one, two and three legs.
    fn year(shares: [f64; 3]) -> Summary {
        let listing = Listing {
            name: "2026-01-01T00".to_owned(),
            relays: 8,
            entries: 8,
            has_policies: true,
            has_families: true,
            in_use: 1,
        };
        let band = |mean| Band { mean, low: mean, high: mean };
        let row = |(share, legs)| {
            let share = band(share);
            let at = CompromisedShares {
                any_ever: share,
                all_ever: share,
                any_now: band(0.0),
                all_now: band(0.0),
            };
            YearRow { legs: Some(legs), in_use: Some(legs), guards: 1.0, at: vec![at] }
        };
        let table = YearTable {
            listing,
            variant: super::super::VARIANTS[0].name.to_owned(),
            in_use: 1,
            days: vec![365],
            draws: 1,
            clients: 10,
            rows: shares.into_iter().zip(1..).map(row).collect(),
        };
        Summary { years: vec![table], ..Summary::default() }
    }

    #[test]
    fn where_nobody_was_compromised_nothing_is_a_multiple_of_it() {
        let summary = year([0.1, 0.2, 0.0]);
        assert!(summary.figure_5().is_some());
        let [twice, falls] = [twice(&summary), exponentially(&summary)];
        let expected = "on one day, – times as many clients are vulnerable with two entry relays \
                        as with one, and – times as many with three; within a year, 2.00 and 0.00 \
                        times as many";
        assert_eq!((twice.ours.as_str(), twice.verdict), (expected, Verdict::Depends));
        let expected = "on one day, a second entry relay lowers the share of vulnerable clients by \
                        a factor of –, and a third one by a further factor of –; within a year, \
                        the factors are 0.5 and –";
        assert_eq!((falls.ours.as_str(), falls.verdict), (expected, Verdict::HoldsNot));
        let never = year([0.0; 3]);
        for claim in claims(&never) {
            assert!(!claim.ours.contains("NaN") && !claim.ours.contains("inf"), "{claim:?}");
        }
        let Claim { ours, verdict, .. } = super::twice(&never);
        assert_eq!((ours.as_str(), verdict), ("", Verdict::Unknown));
    }

    #[test]
    fn before_anything_was_analysed_nothing_is_claimed() {
        let claims = claims(&Summary::default());
        assert_eq!(claims.len(), 10);
        assert!(claims.iter().all(|claim| claim.verdict == Verdict::Unknown), "{claims:?}");
    }
}
