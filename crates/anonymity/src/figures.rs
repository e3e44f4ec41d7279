//! What many draws come to.

/// A mean over draws with the band that nine tenths of them lie in.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Band {
    /// The mean.
    pub mean: f64,
    /// The 5 % quantile.
    pub low: f64,
    /// The 95 % quantile.
    pub high: f64,
}

impl Band {
    /// Of one value for each draw; all zero if there is none.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Band {
        values.sort_by(f64::total_cmp);
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        Band { mean, low: quantile(&values, 0.05), high: quantile(&values, 0.95) }
    }
}

/// Linear between the two values that are next to it.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = share * last as f64;
    let (below, above) = (at.floor() as usize, at.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * at.fract()
}

/// A share that was counted, with its 95 % interval (Wilson's).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// What was counted, of all.
    pub value: f64,
    /// The least that it may be.
    pub low: f64,
    /// The most.
    pub high: f64,
}

impl Share {
    /// Of `count` among `all`, which is not zero.
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
}
