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

/// Lower quartile, median and upper quartile; between two values where none is in its place. `None`
/// of none.
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
