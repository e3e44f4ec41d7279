//! Logarithmic histograms of the lengths of runs (consecutive packets on one path), in packets or
//! milliseconds, for figures.

/// Number of classes (bins) of the histogram per power of ten.
const CLASSES: usize = 4;

/// Number of powers of ten that the histogram's classes (bins) cover, beginning with 0.01.
const DECADES: usize = 9;

/// Lower bound of each class (bin) of a histogram except the first. Each class for lengths from 1
/// on contains at least one whole number. For example, the lengths from 1 to 9 have the classes 1,
/// 2 to 3, 4 to 5, and 6 to 9.
const EDGES: [f64; CLASSES * DECADES] = edges();

const fn edges() -> [f64; CLASSES * DECADES] {
    let mut edges = [0.0; CLASSES * DECADES];
    let (mut decade, mut ten) = (0, 0.01);
    while decade < DECADES {
        edges[CLASSES * decade] = ten;
        edges[CLASSES * decade + 1] = 1.78 * ten;
        edges[CLASSES * decade + 2] = 3.16 * ten;
        edges[CLASSES * decade + 3] = 5.62 * ten;
        (decade, ten) = (decade + 1, ten * 10.0);
    }
    edges
}

/// A logarithmic histogram of lengths: the total weight in each class (bin), with four classes per
/// power of ten.
///
/// Class 0 contains all lengths below 0.01; the last class has no upper bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    weights: [u64; EDGES.len() + 1],
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { weights: [0; EDGES.len() + 1] }
    }
}

impl Histogram {
    /// The number of classes (bins) of a histogram.
    pub const LEN: usize = EDGES.len() + 1;

    /// Number of classes (bins) per power of ten. The first of these classes begins at the power
    /// of ten itself.
    pub const PER_DECADE: usize = CLASSES;

    /// Adds `weight` to the class that contains `length`.
    pub fn add(&mut self, length: f64, weight: u64) {
        self.weights[EDGES.partition_point(|&edge| edge <= length)] += weight;
    }

    /// Returns the weight in each class.
    pub fn weights(&self) -> &[u64] {
        &self.weights
    }

    /// Returns the lower bound of `class`: 0 for the first class.
    pub fn from(class: usize) -> f64 {
        class.checked_sub(1).map_or(0.0, |at| EDGES[at.min(EDGES.len() - 1)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(length: f64) -> usize {
        let mut histogram = Histogram::default();
        histogram.add(length, 3);
        assert_eq!(histogram.weights().iter().sum::<u64>(), 3);
        histogram.weights().iter().position(|&weight| weight == 3).unwrap()
    }

    #[test]
    fn every_length_has_the_class_that_begins_at_or_below_it() {
        for length in [0.0, 0.009, 0.01, 0.5, 1.0, 9.99, 10.0, 99.0, 100.0, 1e6, 1e300] {
            let at = class(length);
            assert!(Histogram::from(at) <= length, "{length}");
            assert!(at + 1 >= Histogram::LEN || length < Histogram::from(at + 1), "{length}");
        }
        assert_eq!((class(0.0), class(1e300)), (0, Histogram::LEN - 1));
    }

    #[test]
    fn powers_of_ten_begin_a_class() {
        for power in [0.01, 0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0] {
            assert_eq!(Histogram::from(class(power)), power);
        }
    }

    #[test]
    fn no_class_of_whole_numbers_is_empty() {
        let mut histogram = Histogram::default();
        (1..=10_000).for_each(|n| histogram.add(f64::from(n), 1));
        let used = &histogram.weights()[class(1.0)..=class(10_000.0)];
        assert!(used.len() == 17 && used.iter().all(|&weight| weight > 0));
    }
}
