//! Summaries of all simulations, with confidence intervals over the random networks.

use std::collections::BTreeMap;

use super::super::Mean;
use super::{Arm, Measured, SHARES};

/// A value for each simulation, by the index of the random network and the seed.
pub type ByRun = BTreeMap<(u64, u64), f64>;

/// A ratio with its 95 % confidence interval over random networks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Geometric mean of the ratio, over the random networks.
    pub ratio: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
    /// Number of random networks.
    pub networks: usize,
}

/// Function that computes a value of one simulation; `None` if it has no such value.
pub type Measure = fn(&Measured) -> Option<f64>;

/// Returns the download speed of web clients in KiB/s: 320 KiB divided by the median download
/// time. Returns `None` without downloads.
#[must_use]
pub fn web_speed(run: &Measured) -> Option<f64> {
    run.web.last_median().map(|time| 320.0 / time)
}

/// Returns the download speed of bulk clients in KiB/s: 1 MiB divided by the median download time.
/// Returns `None` without downloads.
#[must_use]
pub fn bulk_speed(run: &Measured) -> Option<f64> {
    run.bulk.last_median().map(|time| 1024.0 / time)
}

/// Returns the median time to the first byte of web clients, in seconds; `None` without downloads.
#[must_use]
pub fn web_first(run: &Measured) -> Option<f64> {
    run.web.first_median()
}

/// Returns the median time to the first byte of bulk clients, in seconds; `None` without
/// downloads.
#[must_use]
pub fn bulk_first(run: &Measured) -> Option<f64> {
    run.bulk.first_median()
}

/// Returns the simulations of the setting `arm` with `clients` clients.
pub fn of<'a>(
    records: &'a [Measured],
    arm: &'a Arm,
    clients: usize,
) -> impl Iterator<Item = &'a Measured> + Clone {
    records.iter().filter(move |run| run.arm == *arm && run.clients == clients)
}

/// Returns the values of `measure` for the simulations of the setting `arm` with `clients`
/// clients.
#[must_use]
pub fn by_run(records: &[Measured], (arm, clients): (&Arm, usize), measure: Measure) -> ByRun {
    let runs = of(records, arm, clients);
    runs.filter_map(|run| Some(((run.network, run.seed), measure(run)?))).collect()
}

/// Returns the mean over random networks, with its 95 % confidence interval; `None` without
/// simulations.
#[must_use]
pub fn mean(values: &ByRun) -> Option<Mean> {
    Mean::of(&by_network(values))
}

/// Returns one value for each random network: the mean over the seeds.
fn by_network(values: &ByRun) -> Vec<f64> {
    let mut networks: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for ((network, _), value) in values {
        networks.entry(*network).or_default().push(*value);
    }
    networks.values().map(|of| of.iter().sum::<f64>() / of.len() as f64).collect()
}

/// Returns the mean ratio of `part` to `whole`, over pairs of simulations with the same network
/// and seed; `None` without pairs.
#[must_use]
pub fn paired(part: &ByRun, whole: &ByRun) -> Option<Ratio> {
    let both = part.iter().filter_map(|(run, part)| Some((run, part, whole.get(run)?)));
    let positive = both.filter(|(_, part, whole)| **part > 0.0 && **whole > 0.0);
    let logs: ByRun = positive.map(|(run, part, whole)| (*run, (part / whole).ln())).collect();
    let networks = by_network(&logs);
    let Mean { mean, half } = Mean::of(&networks)?;
    Some(Ratio {
        ratio: mean.exp(),
        low: (mean - half).exp(),
        high: (mean + half).exp(),
        networks: networks.len(),
    })
}

/// Returns the average quantiles of several simulations: for each of [`SHARES`], the mean over the
/// simulations. `None` without simulations.
#[must_use]
pub fn curve<'a>(runs: impl Iterator<Item = &'a [f64]>) -> Option<Vec<f64>> {
    let (mut sums, mut count) = (vec![0.0; SHARES.len()], 0);
    for run in runs {
        sums.iter_mut().zip(run).for_each(|(sum, value)| *sum += value);
        count += 1;
    }
    (count > 0).then(|| sums.into_iter().map(|sum| sum / f64::from(count)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_divided_pair_by_pair_and_networks_count() {
        let runs = |values: [f64; 4]| -> ByRun {
            [(1, 1), (1, 2), (2, 1), (2, 2)].into_iter().zip(values).collect()
        };
        // Networks differ by a factor of ten; the design is always twice as fast.
        let ratio = paired(&runs([2.0, 4.0, 20.0, 40.0]), &runs([1.0, 2.0, 10.0, 20.0])).unwrap();
        assert!((ratio.ratio - 2.0).abs() < 1e-9 && (ratio.high - ratio.low).abs() < 1e-9);
        assert_eq!(ratio.networks, 2, "two seeds of a network are one value");
        // A single network has no interval.
        let one: ByRun = [((1, 1), 3.0)].into();
        let ratio = paired(&one, &one).unwrap();
        assert!(ratio.low == 0.0 && ratio.high == f64::INFINITY, "{ratio:?}");
        assert_eq!(paired(&one, &ByRun::new()), None);
    }

    #[test]
    fn a_curve_is_the_mean_of_each_quantile() {
        let runs = [vec![1.0; SHARES.len()], vec![3.0; SHARES.len()]];
        assert_eq!(curve(runs.iter().map(Vec::as_slice)), Some(vec![2.0; SHARES.len()]));
        assert_eq!(curve(std::iter::empty()), None);
        assert!((SHARES[12] - 0.5).abs() < 1e-9, "the middle one is the median");
    }
}
