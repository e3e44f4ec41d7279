//! Distributions of any number of lengths of bursts (in packets or milliseconds) in bounded
//! memory.

/// Number of low bits of a double's 52-bit mantissa in which the lengths of one bucket may differ.
/// The upper 9 bits are equal, so a bucket is at most 0.2 % wide.
const DROPPED: u32 = 52 - 9;

/// A distribution of lengths, which are non-negative numbers.
///
/// Lengths that agree in their first ten binary digits share a bucket. The bucket records their
/// count and sum. There are at most 512 buckets per doubling, and each whole number up to 1,023
/// has its own bucket.
#[derive(Clone, Debug, Default)]
pub(super) struct Lengths {
    /// Buckets in ascending order. Many sessions have few bursts; for them, a tree would need
    /// several times the memory of this vector.
    buckets: Vec<Bucket>,
    count: u64,
    longest: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// The leading bits that all lengths in the bucket share, as doubles. For non-negative
    /// doubles, the order of these bits is the order of the lengths.
    key: u32,
    count: u64,
    sum: f64,
}

impl Lengths {
    /// Adds a length.
    pub(super) fn add(&mut self, length: f64) {
        debug_assert!(length >= 0.0, "time runs backwards: {length}");
        let key = u32::try_from(length.to_bits() >> DROPPED).unwrap_or(u32::MAX);
        self.put(Bucket { key, count: 1, sum: length });
        self.longest = self.longest.max(length);
    }

    /// Adds all lengths of `other`.
    pub(super) fn absorb(&mut self, other: &Lengths) {
        other.buckets.iter().for_each(|bucket| self.put(*bucket));
        self.longest = self.longest.max(other.longest);
    }

    fn put(&mut self, more: Bucket) {
        self.count += more.count;
        match self.buckets.binary_search_by_key(&more.key, |bucket| bucket.key) {
            Ok(at) => {
                self.buckets[at].count += more.count;
                self.buckets[at].sum += more.sum;
            }
            Err(at) => self.buckets.insert(at, more),
        }
    }

    /// Returns how many lengths were added.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the greatest length; 0 if the distribution is empty.
    pub(super) fn longest(&self) -> f64 {
        self.longest
    }

    /// Returns the median; 0 if there is no length. For an even number of lengths, the median is
    /// the mean of the middle two. It is exact to the width of a bucket.
    pub(super) fn median(&self) -> f64 {
        let Some(last) = self.count.checked_sub(1) else { return 0.0 };
        (self.at(last / 2) + self.at(self.count / 2)) / 2.0
    }

    /// Returns the length at position `rank` (counted from 0) of the lengths in rising order. Its
    /// value is approximate: the mean of the bucket that contains it.
    fn at(&self, rank: u64) -> f64 {
        let mut below = 0;
        for bucket in &self.buckets {
            below += bucket.count;
            if rank < below {
                return bucket.sum / bucket.count as f64;
            }
        }
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(values: impl IntoIterator<Item = f64>) -> Lengths {
        let mut lengths = Lengths::default();
        values.into_iter().for_each(|value| lengths.add(value));
        lengths
    }

    #[test]
    fn small_whole_numbers_are_kept_exactly() {
        let all = lengths((0..=1023).map(f64::from));
        assert_eq!(all.buckets.len(), 1024);
        assert_eq!((all.median(), all.longest(), all.count()), (511.5, 1023.0, 1024));
    }

    #[test]
    fn the_median_of_many_is_nearly_exact_and_their_memory_bounded() {
        let uneven = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) as f64 / 1e16;
        let all = lengths((0..500_000).map(uneven));
        let mut sorted: Vec<f64> = (0..500_000).map(uneven).collect();
        sorted.sort_by(f64::total_cmp);
        let exact = sorted[250_000];
        assert!((all.median() / exact - 1.0).abs() < 0.002, "{} for {exact}", all.median());
        // Ten octaves contain all lengths except a thousandth, and the other octaves have few
        // lengths.
        assert!(all.buckets.len() < 512 * 11 + 500, "{}", all.buckets.len());
    }

    #[test]
    fn two_halves_make_the_whole() {
        let mut half = lengths([1.0, 5.0]);
        half.absorb(&lengths([3.0, 700.5]));
        assert_eq!((half.median(), half.longest(), half.count()), (4.0, 700.5, 4));
        assert_eq!(lengths([]).median(), 0.0);
    }
}
