//! Claims of the DBSec 2019 paper about its Figures 2, 3 and 4, each with our verdict.
//!
//! Each verdict is computed from the results by the rule of its claim, and none is judged by hand.

use std::collections::BTreeSet;

use super::summary::{
    ByRun, Measure, Ratio, bulk_first, bulk_speed, by_run, paired, web_first, web_speed,
};
use super::{ARMS_GROWN, Arm, Measured, Schedule};

/// Minimum number of random networks for a confidence interval.
const FEWEST_NETWORKS: usize = 3;
/// Number of clients from which on the download speed stays constant, according to the DBSec 2019
/// paper.
const FLOOR: usize = 140;
/// Tolerance for equal results: a ratio of two results that differs from 1 by at most this counts
/// as 1.
const EQUAL: f64 = 0.1;

/// Verdict on a claim of the DBSec 2019 paper, from the confidence interval of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The claim holds: the whole confidence interval of the ratio satisfies it.
    Holds,
    /// The claim does not hold: the whole confidence interval of the ratio contradicts it.
    HoldsNot,
    /// The claim cannot be judged. The field is the reason.
    Open(&'static str),
}

impl Verdict {
    /// Returns the verdict as text.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Verdict::Holds => "holds".to_owned(),
            Verdict::HoldsNot => "does not hold".to_owned(),
            Verdict::Open(why) => format!("cannot be judged: {why}"),
        }
    }
}

/// A claim of the DBSec 2019 paper about one design (a protocol that uses several paths), with our
/// result.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Text of the claim.
    pub statement: &'static str,
    /// Number of the figure in the DBSec 2019 paper on which the claim is based.
    pub figure: &'static str,
    /// Design that the claim is about.
    pub design: String,
    /// The ratio in our results that decides the claim; `None` without simulations.
    pub ours: Option<Ratio>,
    /// Verdict on the claim.
    pub verdict: Verdict,
    /// Definition of the ratio that decides the claim.
    pub rule: &'static str,
}

const NO_RUNS: &str = "no downloads to compare";
const FEW_NETWORKS: &str = "an interval needs results from three random networks or more";
const BOTH_SIDES: &str = "the interval contains the limit of the claim";
/// Returns all claims, in the order of the DBSec 2019 paper's figures. `clients` is the number of
/// clients with which Figures 2 and 3 were simulated.
#[must_use]
pub fn claims(records: &[Measured], clients: usize) -> Vec<Claim> {
    let mut claims = udp_claims(records, clients);
    let sets = ["conflux", "conflux-2013", "mtor", "merged", "anabranch"];
    let sets = || sets.iter().flat_map(|design| [2, 3].map(|legs| (*design, legs)));
    let turns = |(design, legs)| Arm::of(design, legs, Schedule::RoundRobin);
    let own = |(design, legs)| Arm::of(design, legs, Schedule::Own);
    claims.extend(sets().map(|set| more_help_bulk(records, &turns(set), clients)));
    claims.extend(sets().map(|set| turns_beat_own(records, [&turns(set), &own(set)], clients)));
    let fewest = records.iter().map(|run| run.clients).min().unwrap_or(clients);
    let grown = || ARMS_GROWN.iter().map(|design| (*design, 2));
    claims.extend(
        grown().map(|set| own_beats_turns(records, [&own(set), &turns(set)], (fewest, clients))),
    );
    let alone = [Arm::tor(), Arm::tor_fixed()];
    let both = grown().flat_map(|set| [turns(set), own(set)]);
    let all: Vec<Arm> = alone.into_iter().chain(both).collect();
    claims.extend(all.iter().map(|arm| floor(records, arm, (fewest, clients))));
    claims.extend(all[2..].iter().map(|arm| constant(records, arm, clients)));
    claims
}

/// Returns the claims about the UDP designs, both as published (with CUBIC) and as in our work
/// (with BBR).
fn udp_claims(records: &[Measured], clients: usize) -> Vec<Claim> {
    let sets = [2, 3].into_iter().flat_map(|legs| [true, false].map(|it| Arm::mudp_or(legs, it)));
    let arms: Vec<Arm> = [true, false].map(Arm::udp_or).into_iter().chain(sets).collect();
    let fewest = records.iter().map(|run| run.clients).min().unwrap_or(clients);
    let mut claims: Vec<Claim> =
        arms.iter().map(|arm| udp_answers_first(records, arm, clients)).collect();
    claims.extend(arms.iter().map(|arm| udp_is_slower(records, arm, clients)));
    let grown = [true, false].map(|is_published| Arm::mudp_or(2, is_published));
    claims.extend(grown.iter().map(|arm| keeps_first_byte(records, arm, (fewest, clients))));
    claims
}

fn udp_answers_first(records: &[Measured], arm: &Arm, clients: usize) -> Claim {
    let of = |arm| by_run(records, (arm, clients), web_first);
    let ours = paired(&of(&Arm::tor()), &of(arm));
    Claim {
        statement: "UDP-based designs have the shortest time to first byte",
        figure: "2",
        design: arm.to_string(),
        ours,
        verdict: above(ours),
        rule: "time to first byte of web downloads with Tor, divided by that with this row's \
               design, at the largest number of clients. The claim holds if the ratio is above 1",
    }
}

fn udp_is_slower(records: &[Measured], arm: &Arm, clients: usize) -> Claim {
    let of = |arm| by_run(records, (arm, clients), bulk_speed);
    let ours = paired(&of(&Arm::tor()), &of(arm));
    Claim {
        statement: "TCP-based designs download faster than UDP-based ones",
        figure: "3",
        design: arm.to_string(),
        ours,
        verdict: above(ours),
        rule: "speed of bulk downloads with Tor, divided by that with this row's design, at the \
               largest number of clients. The claim holds if the ratio is above 1",
    }
}

fn keeps_first_byte(records: &[Measured], arm: &Arm, (fewest, most): (usize, usize)) -> Claim {
    let of = |clients| by_run(records, (arm, clients), web_first);
    let ours = paired(&of(most), &of(fewest)).filter(|_| fewest < most);
    Claim {
        statement: "mUDP-OR keeps its time to first byte as clients are added",
        figure: "4",
        design: arm.to_string(),
        ours,
        verdict: equal(ours),
        rule: "time to first byte of web downloads at the largest number of clients, divided by \
               that at the smallest. The claim holds if the ratio is 0.9 to 1.1",
    }
}

/// Returns the verdict on the claim that `ratio` is above 1. `ratio` is `None` if the simulations
/// for it are missing.
fn above(ratio: Option<Ratio>) -> Verdict {
    match ratio {
        None => Verdict::Open(NO_RUNS),
        Some(ratio) if ratio.networks < FEWEST_NETWORKS => Verdict::Open(FEW_NETWORKS),
        Some(ratio) if ratio.low > 1.0 => Verdict::Holds,
        Some(ratio) if ratio.high < 1.0 => Verdict::HoldsNot,
        Some(_) => Verdict::Open(BOTH_SIDES),
    }
}

/// Returns the verdict on the claim that `ratio` is 1. `ratio` is `None` if the simulations for it
/// are missing.
fn equal(ratio: Option<Ratio>) -> Verdict {
    let (least, most) = (1.0 - EQUAL, 1.0 + EQUAL);
    match ratio {
        None => Verdict::Open(NO_RUNS),
        Some(ratio) if ratio.networks < FEWEST_NETWORKS => Verdict::Open(FEW_NETWORKS),
        Some(ratio) if ratio.low >= least && ratio.high <= most => Verdict::Holds,
        Some(ratio) if ratio.high < least || ratio.low > most => Verdict::HoldsNot,
        Some(_) => Verdict::Open(BOTH_SIDES),
    }
}

/// Returns the quotient `part / whole` for each simulation (random network and seed) that has both
/// values.
fn quotient(part: &ByRun, whole: &ByRun) -> ByRun {
    let of = |(run, part): (&(u64, u64), &f64)| Some((*run, part / whole.get(run)?));
    part.iter().filter_map(of).collect()
}

/// Returns the values of `measure` for one setting. Each is divided by the value for a single path
/// with the same network and seed, so that a value above 1 is a gain.
fn gain(records: &[Measured], (arm, clients): (&Arm, usize), measure: Measure) -> ByRun {
    let alone = arm.alone();
    quotient(
        &by_run(records, (arm, clients), measure),
        &by_run(records, (&alone, clients), measure),
    )
}

fn more_help_bulk(records: &[Measured], arm: &Arm, clients: usize) -> Claim {
    let bulk = gain(records, (arm, clients), bulk_speed);
    let ours = paired(&bulk, &gain(records, (arm, clients), web_speed));
    Claim {
        statement: "several paths help bulk downloads more than web downloads",
        figure: "3",
        design: arm.to_string(),
        ours,
        verdict: above(ours),
        rule: "gain of bulk downloads, divided by the gain of web downloads. A gain is the speed \
               over several paths, divided by the speed over one path. The claim holds if the \
               ratio is above 1",
    }
}

fn turns_beat_own(records: &[Measured], [turns, own]: [&Arm; 2], clients: usize) -> Claim {
    let of = |arm| by_run(records, (arm, clients), bulk_speed);
    let ours = paired(&of(turns), &of(own));
    Claim {
        statement: "under load, round robin is faster than the congestion-based rule, most of all \
                    for bulk downloads",
        figure: "3",
        design: format!("{} × {}", turns.design, turns.legs),
        ours,
        verdict: above(ours),
        rule: "speed of bulk downloads with round robin, divided by that with the design's own \
               scheduler (the paper's congestion-based rule), at the largest number of clients. \
               The claim holds if the ratio is above 1",
    }
}

fn own_beats_turns(
    records: &[Measured],
    [own, turns]: [&Arm; 2],
    (fewest, most): (usize, usize),
) -> Claim {
    let of = |arm| by_run(records, (arm, fewest), bulk_speed);
    let ours = paired(&of(own), &of(turns)).filter(|_| fewest < most);
    Claim {
        statement: "in light load the congestion-based rule is faster than round robin",
        figure: "4",
        design: format!("{} × {}", own.design, own.legs),
        ours,
        verdict: above(ours),
        rule: "speed of bulk downloads with the design's own scheduler (the paper's \
               congestion-based rule), divided by that with round robin, at the smallest number \
               of clients. The claim holds if the ratio is above 1",
    }
}

fn floor(records: &[Measured], arm: &Arm, (fewest, most): (usize, usize)) -> Claim {
    let of = |clients| by_run(records, (arm, clients), bulk_speed);
    let ours = paired(&of(most), &of(FLOOR)).filter(|_| most > FLOOR);
    let falls = above(paired(&of(fewest), &of(FLOOR)).filter(|_| fewest < FLOOR));
    let verdict = match (falls, equal(ours)) {
        (Verdict::HoldsNot, _) | (_, Verdict::HoldsNot) => Verdict::HoldsNot,
        (Verdict::Holds, verdict) => verdict,
        (open, _) => open,
    };
    Claim {
        statement: "speed falls to its least at about 140 clients, and stays there",
        figure: "4",
        design: arm.to_string(),
        ours,
        verdict,
        rule: "speed of bulk downloads at the largest number of clients, divided by that with 140 \
               clients. The claim holds if the ratio is 0.9 to 1.1, and the speed at the smallest \
               number of clients is higher than with 140 clients",
    }
}

fn constant(records: &[Measured], arm: &Arm, most: usize) -> Claim {
    let of = |clients| gain(records, (arm, clients), bulk_speed);
    let ours = paired(&of(most), &of(FLOOR)).filter(|_| most > FLOOR);
    Claim {
        statement: "from about 140 clients on, differences between designs are constant",
        figure: "4",
        design: arm.to_string(),
        ours,
        verdict: equal(ours),
        rule: "gain of bulk downloads at the largest number of clients, divided by the gain with \
               140 clients. A gain is the speed over several paths, divided by the speed over one \
               path. The claim holds if the ratio is 0.9 to 1.1",
    }
}

/// Measured quantities of web and bulk clients, with their names.
pub const MEASURES: [(&str, Measure); 4] = [
    ("first byte, web (s)", web_first),
    ("first byte, bulk (s)", bulk_first),
    ("speed, web (KiB/s)", web_speed),
    ("speed, bulk (KiB/s)", bulk_speed),
];

/// Returns the statement and the rule of each claim, without repeated statements.
#[must_use]
pub fn rules(claims: &[Claim]) -> Vec<(&'static str, &'static str)> {
    let mut seen = BTreeSet::new();
    let claims = claims.iter().filter(|claim| seen.insert(claim.statement));
    claims.map(|one| (one.statement, one.rule)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Class, SHARES};
    use super::*;

    fn class(last: f64) -> Class {
        let all = |value: f64| vec![value; SHARES.len()];
        Class { downloads: 9, failed: 0, first: all(last / 4.0), last: all(last) }
    }

    /// Returns runs on three networks. Each web download takes about `web` seconds, and each bulk
    /// download about `bulk` seconds.
    fn runs(arm: &Arm, clients: usize, [web, bulk]: [f64; 2]) -> Vec<Measured> {
        let run = |network: u64| {
            let slower = 1.0 + network as f64 / 100.0;
            Measured {
                unit: format!("{arm} {clients} {network}"),
                arm: arm.clone(),
                clients,
                network,
                seed: 1,
                hash: String::new(),
                events: 1,
                loads: [0.5; 2],
                elapsed: 1.0,
                web: class(web * slower),
                bulk: class(bulk * slower),
            }
        };
        (1..=3).map(run).collect()
    }

    fn verdict<'a>(claims: &'a [Claim], statement: &str, design: &str) -> &'a Claim {
        claims.iter().find(|one| one.statement.contains(statement) && one.design == design).unwrap()
    }

    #[test]
    fn verdicts_follow_the_intervals() {
        let (turns, own) =
            (Arm::of("conflux", 2, Schedule::RoundRobin), Arm::of("conflux", 2, Schedule::Own));
        let all = [
            runs(&Arm::tor(), 228, [2.0, 8.0]),
            runs(&turns, 228, [1.9, 5.0]),
            runs(&own, 228, [1.0, 6.0]),
            runs(&Arm::tor(), 140, [2.0, 8.0]),
            runs(&Arm::tor(), 20, [1.0, 4.0]),
            runs(&turns, 140, [1.9, 4.0]),
            runs(&turns, 20, [1.0, 3.0]),
            runs(&own, 20, [1.0, 2.0]),
            runs(&Arm::mudp_or(2, true), 228, [1.2, 12.0]),
            runs(&Arm::mudp_or(2, true), 20, [1.18, 3.0]),
        ]
        .concat();
        let claims = claims(&all, 228);
        let of = |statement, design| verdict(&claims, statement, design).verdict;
        assert_eq!(of("help bulk", "conflux × 2, round robin"), Verdict::Holds);
        assert_eq!(of("round robin is faster", "conflux × 2"), Verdict::Holds);
        assert_eq!(of("in light load", "conflux × 2"), Verdict::Holds);
        assert_eq!(of("falls to its least", "tor"), Verdict::Holds);
        assert_eq!(of("falls to its least", "conflux × 2, round robin"), Verdict::HoldsNot);
        assert_eq!(of("are constant", "conflux × 2, round robin"), Verdict::HoldsNot);
        assert_eq!(of("help bulk", "mtor × 2, round robin"), Verdict::Open(NO_RUNS));
        let published = "mudp-or-cubic × 2, round robin";
        assert_eq!(of("shortest time", published), Verdict::Holds);
        assert_eq!(of("faster than UDP", published), Verdict::Holds);
        assert_eq!(of("keeps its time", published), Verdict::Holds);
        assert_eq!(of("shortest time", "mudp-or × 3, eta"), Verdict::Open(NO_RUNS));
        assert!(rules(&claims).len() >= 5);
    }

    #[test]
    fn two_networks_and_intervals_with_both_sides_judge_nothing() {
        let ratio = |low, high, networks| Some(Ratio { ratio: 1.0, low, high, networks });
        assert_eq!(above(ratio(1.1, 1.2, 2)), Verdict::Open(FEW_NETWORKS));
        assert_eq!(above(ratio(0.9, 1.2, 5)), Verdict::Open(BOTH_SIDES));
        assert_eq!(above(ratio(0.8, 0.9, 5)), Verdict::HoldsNot);
        assert_eq!(equal(ratio(0.95, 1.05, 5)), Verdict::Holds);
        assert_eq!(equal(ratio(0.8, 1.05, 5)), Verdict::Open(BOTH_SIDES));
        assert_eq!(equal(ratio(1.2, 1.3, 5)), Verdict::HoldsNot);
        assert_eq!(above(None), Verdict::Open(NO_RUNS));
    }
}
