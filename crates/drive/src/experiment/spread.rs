//! A few repetitions in three numbers.

/// Median, least and most of repetitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one; of an even count, the mean of the two in the middle.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
    /// How many there are.
    pub count: usize,
}

impl Spread {
    /// Of these values; `None` of none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let (&least, &most) = (values.first()?, values.last()?);
        let median = (values[(count - 1) / 2] + values[count / 2]) / 2.0;
        Some(Spread { median, least, most, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
