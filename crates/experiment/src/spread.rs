//! Summaries of a few repetitions or rounds of a measurement.

use std::collections::BTreeMap;

/// Median, minimum and maximum of the repetitions of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Median of the values; for an even count, the mean of the two middle values.
    pub median: f64,
    /// Minimum of the values.
    pub least: f64,
    /// Maximum of the values.
    pub most: f64,
    /// Number of values.
    pub count: usize,
}

impl Spread {
    /// Computes the median, minimum and maximum of `values`; `None` if there is no value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let (&least, &most) = (values.first()?, values.last()?);
        let median = (values[(count - 1) / 2] + values[count / 2]) / 2.0;
        Some(Spread { median, least, most, count })
    }
}

/// Mean over rounds (independent repetitions), with half the width of its 95 % confidence
/// interval. The width is infinite for a single round.
///
/// The interval is based on Student's t-distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean of the rounds.
    pub mean: f64,
    /// Half the width of the 95 % confidence interval of the mean.
    pub half: f64,
}

/// Median over rounds (independent repetitions), with its 95 % interval ([`median_interval`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Median {
    /// Median of the rounds.
    pub median: f64,
    /// The 95 % confidence interval, valid for any distribution; `None` for fewer than six rounds.
    pub interval: Option<[f64; 2]>,
    /// Number of rounds.
    pub count: usize,
}

impl Median {
    /// Computes the median of `rounds`, which has one value for each round, and its confidence
    /// interval. Returns `None` if there are no values.
    #[must_use]
    pub fn of(rounds: &[f64]) -> Option<Median> {
        let median = middle(rounds)?;
        Some(Median { median, interval: median_interval(rounds), count: rounds.len() })
    }
}

/// Groups the values by round, and computes `amount` from the values of each round. Each entry of
/// `values` is a round's index and a value. Returns the result for each round, by the round's
/// index.
///
/// Values of one round are not independent, because they share programs, circuit and time. A
/// confidence interval over single values would be too narrow.
pub fn by_round(
    values: impl IntoIterator<Item = (u32, f64)>,
    amount: impl Fn(&[f64]) -> Option<f64>,
) -> BTreeMap<u32, f64> {
    let mut rounds = BTreeMap::<u32, Vec<f64>>::new();
    for (round, value) in values {
        rounds.entry(round).or_default().push(value);
    }
    rounds.into_iter().filter_map(|(round, of)| Some((round, amount(&of)?))).collect()
}

/// Returns the median of `values`; `None` if there is no value.
#[must_use]
pub fn middle(values: &[f64]) -> Option<f64> {
    Spread::of(values.iter().copied()).map(|spread| spread.median)
}

/// Returns the quotient `part / whole`; `None` if `whole` is 0 or both are infinite.
#[must_use]
pub fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole).filter(|ratio| !ratio.is_nan())
}

/// Returns the mean of `values`; `None` if there is no value.
#[must_use]
pub fn average(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Returns lower quartile, median and upper quartile of `values`, interpolated where necessary.
/// `None` if there are no values.
pub fn quartiles(values: impl IntoIterator<Item = f64>) -> Option<[f64; 3]> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    let at = |share: f64| {
        let place = share * last as f64;
        let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
        below + (above - below) * place.fract()
    };
    Some([0.25, 0.5, 0.75].map(at))
}

/// Factors of Student's t-distribution for a 95 % confidence interval, for 1 to 30 degrees of
/// freedom.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

impl Mean {
    /// Computes the mean of `rounds`, which has one value for each round, and its confidence
    /// interval. Returns `None` if there are no values.
    #[must_use]
    pub fn of(rounds: &[f64]) -> Option<Mean> {
        let (mean, count) = (average(rounds)?, rounds.len() as f64);
        let free = rounds.len() - 1;
        let squares: f64 = rounds.iter().map(|one| (one - mean).powi(2)).sum();
        let half = match free {
            0 => f64::INFINITY,
            _ => {
                let student = STUDENT.get(free - 1).copied().unwrap_or(1.96);
                student * (squares / free as f64 / count).sqrt()
            }
        };
        Some(Mean { mean, half })
    }

    /// Returns whether the mean's confidence interval is as narrow as the intervals in the DBSec
    /// 2019 paper: at most 10 % of the mean in each direction.
    #[must_use]
    pub fn is_narrow(&self) -> bool {
        self.half <= 0.1 * self.mean
    }
}

/// Returns two values of `rounds` that enclose the median with a probability of at least 95 %, for
/// any distribution. Returns `None` for fewer than six rounds, because no two values then have
/// this probability.
#[must_use]
pub fn median_interval(rounds: &[f64]) -> Option<[f64; 2]> {
    let mut rounds = rounds.to_vec();
    rounds.sort_by(f64::total_cmp);
    let count = rounds.len();
    // `chance` is the probability that exactly `place` of the rounds are below the median.
    // `outside` is the sum of these probabilities so far, for both sides.
    let (mut chance, mut outside, mut found) = (0.5_f64.powi(count as i32), 0.0, None);
    for place in 0..count / 2 {
        outside += 2.0 * chance;
        if outside > 0.05 {
            break;
        }
        found = Some([rounds[place], rounds[count - 1 - place]]);
        chance *= (count - place) as f64 / (place + 1) as f64;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_cut_the_values_into_four_parts() {
        assert_eq!(quartiles([5.0, 1.0, 3.0, 2.0, 4.0]), Some([2.0, 3.0, 4.0]));
        assert_eq!(quartiles([1.0, 2.0, 3.0, 4.0]), Some([1.75, 2.5, 3.25]));
        assert_eq!(quartiles([7.0]), Some([7.0; 3]));
        assert_eq!(quartiles([]), None);
    }

    #[test]
    fn a_ratio_has_something_to_divide_by() {
        assert_eq!((ratio(1.0, 2.0), ratio(0.0, 2.0)), (Some(0.5), Some(0.0)));
        assert_eq!((ratio(0.0, 0.0), ratio(1.0, 0.0)), (None, None));
        assert_eq!(ratio(f64::INFINITY, f64::INFINITY), None);
        assert_eq!(ratio(f64::INFINITY, 2.0), Some(f64::INFINITY), "it never ended");
    }

    #[test]
    fn an_interval_is_that_of_the_rounds_means() {
        let mean = Mean::of(&[1.0, 2.0, 3.0]).unwrap();
        assert_eq!(mean.mean, 2.0);
        assert!((mean.half - 4.303 / 3.0_f64.sqrt()).abs() < 1e-9);
        assert_eq!(Mean::of(&[5.0]), Some(Mean { mean: 5.0, half: f64::INFINITY }));
        assert_eq!(Mean::of(&[]), None);
        assert!(
            Mean { mean: 1.0, half: 0.1 }.is_narrow()
                && !Mean { mean: 1.0, half: 0.11 }.is_narrow()
        );
    }

    #[test]
    fn a_median_lies_between_rounds_that_are_far_enough_apart() {
        let rounds = |count: u32| (1..=count).rev().map(f64::from).collect::<Vec<_>>();
        assert_eq!(median_interval(&rounds(5)), None, "94 % lie between the first and the last");
        assert_eq!(median_interval(&rounds(6)), Some([1.0, 6.0]));
        // Tables of the sign test give the ranks 2 and 9 for 10 values, and 6 and 15 for 20
        // values.
        assert_eq!(median_interval(&rounds(10)), Some([2.0, 9.0]));
        assert_eq!(median_interval(&rounds(20)), Some([6.0, 15.0]));
    }

    #[test]
    fn what_was_measured_in_a_round_counts_once() {
        let values = [(1, 9.0), (0, 1.0), (0, 2.0), (0, 6.0), (1, f64::INFINITY)];
        assert_eq!(by_round(values, middle), [(0, 2.0), (1, f64::INFINITY)].into());
        assert_eq!(by_round(values[..4].to_vec(), average), [(0, 3.0), (1, 9.0)].into());
        assert_eq!((middle(&[]), average(&[]), Median::of(&[])), (None, None, None));
        let six = Median::of(&[6.0, 5.0, 4.0, 3.0, 2.0, 1.0]).unwrap();
        assert_eq!((six.median, six.interval, six.count), (3.5, Some([1.0, 6.0]), 6));
    }

    #[test]
    fn the_middle_is_the_middle() {
        let median = |values: &[f64]| Spread::of(values.iter().copied()).unwrap().median;
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[7.0]), 7.0);
        assert_eq!(Spread::of([]), None);
        let all = Spread::of([2.0, 9.0, 4.0]).unwrap();
        assert_eq!((all.least, all.most, all.count), (2.0, 9.0, 3));
    }
}
