//! Statistics over several random repetitions (draws) of the simulation, each with another random
//! adversary or other clients.

use serde::{Deserialize, Serialize};

/// Mean of a quantity over the random repetitions (draws) of a simulation, and the range from its
/// 5 % to its 95 % quantile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Band {
    /// Mean of the quantity over the repetitions (draws).
    pub mean: f64,
    /// The 5 % quantile of the quantity over the repetitions (draws).
    pub low: f64,
    /// The 95 % quantile of the quantity over the repetitions (draws).
    pub high: f64,
}

impl Band {
    /// Computes the mean and quantiles of `values`, which has one value for each repetition
    /// (draw). All fields are zero if `values` is empty.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Band {
        values.sort_by(f64::total_cmp);
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        Band { mean, low: quantile(&values, 0.05), high: quantile(&values, 0.95) }
    }
}

/// Returns the quantile of the sorted values for the probability `share` (from 0 to 1),
/// interpolated between the two nearest values.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = share * last as f64;
    let (below, above) = (at.floor() as usize, at.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * at.fract()
}

/// A proportion found by counting cases, with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The counted cases divided by all cases, from 0 to 1.
    pub value: f64,
    /// Lower end of the confidence interval.
    pub low: f64,
    /// Upper end of the confidence interval.
    pub high: f64,
}

impl Share {
    /// Computes a share over the repetitions (draws) of a simulation. Each element of `draws` is a
    /// count of cases and the number of all cases. The interval is a Student's t interval of the
    /// repetitions' shares, so it includes the variation between them. For a single repetition, it
    /// is Wilson's interval.
    #[must_use]
    pub fn over(draws: &[(u64, u64)]) -> Share {
        let (count, all) = draws.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let all = all.max(1);
        if draws.len() < 2 {
            return Share::of(count, all);
        }
        let value = count as f64 / all as f64;
        let shares = draws.iter().map(|(count, all)| *count as f64 / (*all).max(1) as f64);
        let squares: f64 = shares.map(|share| (share - value) * (share - value)).sum();
        let free = draws.len() - 1;
        let error = (squares / free as f64 / draws.len() as f64).sqrt() * student(free);
        Share { value, low: (value - error).max(0.0), high: (value + error).min(1.0) }
    }

    /// Computes the share of `count` cases in `all` cases, with Wilson's confidence interval.
    /// `all` must not be zero.
    #[must_use]
    pub fn of(count: u64, all: u64) -> Share {
        const Z: f64 = 1.96;
        let (value, all) = (count as f64 / all as f64, all as f64);
        let centre = (value + Z * Z / (2.0 * all)) / (1.0 + Z * Z / all);
        let spread = (value * (1.0 - value) / all + Z * Z / (4.0 * all * all)).sqrt();
        let spread = Z * spread / (1.0 + Z * Z / all);
        Share { value, low: (centre - spread).max(0.0), high: (centre + spread).min(1.0) }
    }
}

/// Returns the 97.5 % quantile of Student's t-distribution with `free` degrees of freedom. From
/// five degrees on, the value comes from an expansion around the normal quantile (Abramowitz and
/// Stegun, 26.7.5), accurate to 0.01.
fn student(free: usize) -> f64 {
    const FEW: [f64; 4] = [12.706, 4.303, 3.182, 2.776];
    const Z: f64 = 1.96;
    let few = free.checked_sub(1).and_then(|place| FEW.get(place));
    let (n, [third, fifth, seventh]) = (free as f64, [3, 5, 7].map(|power| Z.powi(power)));
    let terms = [
        (third + Z) / 4.0,
        (5.0 * fifth + 16.0 * third + 3.0 * Z) / 96.0,
        (3.0 * seventh + 19.0 * fifth + 17.0 * third - 15.0 * Z) / 384.0,
    ];
    few.copied().unwrap_or(Z + terms[0] / n + terms[1] / n.powi(2) + terms[2] / n.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_is_between_the_outer_twentieths() {
        let band = Band::of((0..=100).rev().map(f64::from).collect());
        assert_eq!(band, Band { mean: 50.0, low: 5.0, high: 95.0 });
        assert_eq!(Band::of(vec![3.0]), Band { mean: 3.0, low: 3.0, high: 3.0 });
        assert_eq!(Band::of(Vec::new()), Band::default());
    }

    #[test]
    fn an_interval_holds_what_was_counted() {
        let share = Share::of(100, 1000);
        assert!((0.082..0.083).contains(&share.low) && (0.120..0.121).contains(&share.high));
        assert_eq!(Share::of(0, 50).low, 0.0);
    }

    #[test]
    fn an_interval_over_draws_holds_what_they_differ_by() {
        assert_eq!(Share::over(&[(100, 1000)]), Share::of(100, 1000));
        let alike = Share::over(&[(100, 1000), (100, 1000), (100, 1000)]);
        assert_eq!((alike.value, alike.low, alike.high), (0.1, 0.1, 0.1));
        // Four draws have the mean .1 and the standard deviation .02. The interval is 3.182 × .01
        // on either side.
        let spread = [(80, 1000), (120, 1000), (100, 1000), (100, 1000)];
        let share = Share::over(&spread);
        let half = 3.182 * (2.0 * 0.02f64 * 0.02 / 3.0 / 4.0).sqrt();
        assert!((share.high - 0.1 - half).abs() < 1e-9 && (0.1 - share.low - half).abs() < 1e-9);
    }

    #[test]
    fn quantiles_of_student_are_those_of_tables() {
        for (free, table) in [(1, 12.706), (4, 2.776), (5, 2.571), (9, 2.262), (19, 2.093)] {
            assert!((student(free) - table).abs() < 0.01, "{free}: {}", student(free));
        }
    }
}
