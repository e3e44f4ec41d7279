//! Comparison of the measured and the simulated download times of the network.

use super::super::circuits::simulated::{Combination, Quantity, TimeComparison};
use super::super::spread::{middle, quartiles};
use super::measured::Measured;
use super::plan::simulated;

/// The download times that are compared.
pub const QUANTITIES: [Quantity; 3] = [Quantity::FirstByte, Quantity::Web, Quantity::Bulk];
/// Names of the quartiles that are compared for each download time.
pub const QUARTILES: [&str; 3] = ["lower quartile", "median", "upper quartile"];

/// Comparison of a quartile of measured times with the same quartile of simulated times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuartileComparison {
    /// Index of the quartile in [`QUARTILES`].
    pub quartile: usize,
    /// The measured and the simulated value.
    pub times: TimeComparison,
}

/// Returns the measured designs, in the order of the records.
#[must_use]
pub fn arms(records: &[Measured]) -> Vec<Combination> {
    let mut found = Vec::new();
    for arm in records.iter().filter(|run| !run.simulated).map(Measured::arm) {
        if !found.contains(&arm) {
            found.push(arm);
        }
    }
    found
}

/// Returns the three quartiles of `quantity` in each run of `arm`.
fn by_run(
    records: &[Measured],
    (arm, is_simulated): (Combination, bool),
    quantity: Quantity,
) -> Vec<[f64; 3]> {
    let is_bulk = quantity == Quantity::Bulk;
    let of = |run: &Measured| {
        let counted = run.transfers.iter().filter(|one| one.bulk == is_bulk);
        quartiles(counted.map(|one| match quantity {
            Quantity::FirstByte | Quantity::OptimisticFirstByte => one.first,
            Quantity::Web | Quantity::Bulk => one.last,
        }))
    };
    let runs = records.iter().filter(|run| (run.arm(), run.simulated) == (arm, is_simulated));
    runs.filter_map(of).collect()
}

/// Compares all measured designs with their simulations. Each compared value is the median, over
/// the runs, of a quartile of each run. Times that were not measured, or not simulated, are left
/// out.
#[must_use]
pub fn compare(records: &[Measured]) -> Vec<QuartileComparison> {
    let arms = arms(records).into_iter();
    arms.flat_map(|arm| QUANTITIES.into_iter().flat_map(move |it| compare_one(records, arm, it)))
        .collect()
}

fn compare_one(
    records: &[Measured],
    arm: Combination,
    quantity: Quantity,
) -> Vec<QuartileComparison> {
    let theirs = by_run(records, (arm, false), quantity);
    let ours = by_run(records, (simulated(arm), true), quantity);
    let compared = |quartile: usize| {
        let of = |runs: &[[f64; 3]]| runs.iter().map(|run| run[quartile]).collect::<Vec<f64>>();
        let rounds = of(&theirs);
        let bound = |pick: fn(f64, f64) -> f64| rounds.iter().copied().reduce(pick);
        let times = TimeComparison {
            combination: arm,
            quantity,
            measured: middle(&rounds)?,
            range: [bound(f64::min)?, bound(f64::max)?],
            simulated: middle(&of(&ours))?,
        };
        Some(QuartileComparison { quartile, times })
    };
    (0..QUARTILES.len()).filter_map(compared).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::circuits::Design;
    use super::super::measured::tests::run;
    use super::super::plan::RunSource;
    use super::*;

    fn records() -> Vec<Measured> {
        vec![
            run((Design::Tor, 1), RunSource::Emulated(0), 1.0),
            run((Design::Stock, 1), RunSource::Emulated(0), 2.0),
            run((Design::Tor, 1), RunSource::Emulated(1), 1.2),
            run((Design::Tor, 1), RunSource::Simulated(1), 1.2),
            run((Design::Tor, 1), RunSource::Simulated(2), 1.4),
        ]
    }

    #[test]
    fn medians_and_quartiles_are_compared_for_each_design() {
        let found = compare(&records());
        assert_eq!(found.len(), 2 * 3 * 3);
        let of = |design: Design, quantity: Quantity| {
            let is_it = |one: &&QuartileComparison| {
                (one.times.combination.design, one.times.quantity) == (design, quantity)
            };
            found.iter().filter(is_it).map(|one| one.times).collect::<Vec<_>>()
        };
        let web = of(Design::Tor, Quantity::Web);
        assert_eq!((web[1].measured, web[1].range), (1.1, [1.0, 1.2]));
        assert!((web[1].simulated - 1.3).abs() < 1e-9 && !web[1].is_within());
        assert_eq!(web[0].measured, 0.825);
        // C tor is compared with the simulation of our program.
        let stock = of(Design::Stock, Quantity::Bulk);
        assert!((stock[1].ratio() - 1.3 / 2.0).abs() < 1e-9);
        assert!((of(Design::Tor, Quantity::FirstByte)[1].measured - 0.275).abs() < 1e-9);
    }

    #[test]
    fn what_was_not_simulated_is_not_compared() {
        let measured: Vec<_> = records().into_iter().filter(|run| !run.simulated).collect();
        assert_eq!((compare(&measured).len(), compare(&[]).len()), (0, 0));
        assert_eq!(arms(&measured).len(), 2);
    }
}
