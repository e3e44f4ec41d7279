//! Comparison with the results of an independent implementation of the same rules, with the
//! weights of the same consensuses. That implementation simulated a year in steps of a day, with
//! 4,000 clients and ten draws of the adversary.
//!
//! The weights, without names, are from two days of the public network. The simulation of a year
//! and of fingerprints depends on nothing else. Where the settings are the same, the results agree
//! within .015.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use anabranch_anonymity::Workers;
use anabranch_anonymity::fingerprints::{FingerprintSettings, fingerprints};
use anabranch_anonymity::hostile::Spread;
use anabranch_anonymity::year::{Adversary, YearRow, YearSettings, year};
use anabranch_onion::guards::GuardParams;
use anabranch_os::threads::share_out;

const TWO: Workers = Workers { threads: 2, run: share_out };

const NEAR: f64 = 0.015;

fn weights(text: &str) -> Vec<u64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.flat_map(str::split_whitespace).map(|weight| weight.parse().unwrap()).collect()
}

/// Returns the weights of October 2015.
fn early() -> Vec<u64> {
    weights(include_str!("data/entry-weights-2015-10-10.txt"))
}

/// Returns the weights of March 2017.
fn late() -> Vec<u64> {
    weights(include_str!("data/entry-weights-2017-03-10.txt"))
}

fn run(adversary: Adversary, churn: Option<f64>, (clients, draws): (usize, usize)) -> Vec<YearRow> {
    let settings =
        YearSettings { clients, draws, adversary, churn, workers: TWO, ..YearSettings::default() };
    year(&early(), &GuardParams::default(), &settings).unwrap()
}

/// Returns the shares of clients compromised within a year: with any of `m` entries hostile, and
/// with all of `m` entries hostile.
fn last(rows: &[YearRow]) -> ([f64; 3], [f64; 3]) {
    let of = |row: usize| rows[row].at.last().unwrap();
    ([0, 1, 2].map(|row| of(row).any_ever.mean), [0, 1, 2].map(|row| of(row).all_ever.mean))
}

fn near(found: &[f64], expected: &[f64], what: &str) {
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= NEAR, "{what}: {found} and not {expected}");
    }
}

#[test]
fn a_year_of_entries_taken_over_by_lot_comes_to_the_reference() {
    assert_eq!(early().len(), 1032);
    let rows = run(Adversary::Replaces(Spread::Random), None, (8000, 10));
    let expected = [
        ([0.098, 0.098, 0.267, 0.468], [0.098, 0.098, 0.267, 0.468]),
        ([0.188, 0.188, 0.455, 0.713], [0.010, 0.010, 0.042, 0.093]),
        ([0.272, 0.272, 0.598, 0.850], [0.001, 0.001, 0.005, 0.013]),
        ([0.151, 0.151, 0.371, 0.594], [0.061, 0.061, 0.169, 0.302]),
    ];
    for (row, (any, all)) in rows.iter().zip(expected) {
        let of = |at: fn(&anabranch_anonymity::year::CompromisedShares) -> f64| -> Vec<f64> {
            row.at.iter().map(at).collect()
        };
        near(&of(|at| at.any_ever.mean), &any, &format!("any of {:?}", row.legs));
        near(&of(|at| at.all_ever.mean), &all, &format!("all of {:?}", row.legs));
    }
    for (row, guards) in rows.iter().zip([5.9, 11.7, 17.4]) {
        // The reference has steps of a day, so it sees each change half a day late. A guard is
        // used for 61 days on average.
        assert!((row.guards / guards - 1.0).abs() < 0.02, "{} guards", row.guards);
    }
}

#[test]
fn a_year_with_four_large_relays_added_comes_to_the_reference() {
    let (any, all) = last(&run(Adversary::Adds(4), None, (2500, 4)));
    near(&any, &[0.401, 0.653, 0.794], "any, four added");
    near(&all, &[0.401, 0.053, 0.004], "all, four added");
}

#[test]
fn a_year_in_which_honest_relays_go_comes_to_the_reference() {
    let (any, all) = last(&run(Adversary::Adds(100), Some(300.0), (1000, 10)));
    near(&any, &[0.617, 0.849, 0.939], "any, 1/300 a day");
    near(&all, &[0.617, 0.189, 0.039], "all, 1/300 a day");
    let (any, all) = last(&run(Adversary::Adds(100), Some(500.0), (1000, 10)));
    near(&any, &[0.555, 0.801, 0.911], "any, 1/500 a day");
    near(&all, &[0.555, 0.144, 0.026], "all, 1/500 a day");
}

/// Shares must agree within .015, and mean sizes within 2 %. The median is the size of one set,
/// which differs by a tenth between populations; the largest set differs by a third.
#[test]
fn fingerprints_come_to_the_reference() {
    assert_eq!(late().len(), 1889);
    let settings =
        FingerprintSettings { legs: 3, draws: 1, workers: TWO, ..FingerprintSettings::default() };
    let of = |weights: &[u64]| fingerprints(weights, &GuardParams::default(), &settings).unwrap();
    let cases = [
        (of(&early()), [80.4, 228.0, 125.0], [0.557, 0.990], 34.0),
        (of(&late()), [43.9, 105.0, 70.0], [0.818, 0.999], 15.0),
    ];
    for (rows, [sets, clients, median], unique, largest) in cases {
        let one = rows[0].own;
        for (found, expected, near) in [
            (one.over_sets, sets, 0.02),
            (one.over_clients, clients, 0.02),
            (one.median, median, 0.1),
        ] {
            assert!((found.mean / expected - 1.0).abs() < near, "{} for {expected}", found.mean);
        }
        near(&[rows[1].own.unique.mean, rows[2].own.unique.mean], &unique, "unique");
        assert!((rows[1].own.largest.mean / largest - 1.0).abs() < 0.35, "{:?}", rows[1].own);
    }
}
