//! A set of stream offsets, stored as disjoint ranges.

use std::collections::BTreeMap;

/// A set of stream offsets: disjoint half-open ranges with at least one missing offset between two
/// ranges.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges {
    ends: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Adds `start..end` to the set. Returns the parts that were missing, in order.
    pub(crate) fn insert(&mut self, start: u64, end: u64) -> Vec<(u64, u64)> {
        if start >= end {
            return Vec::new();
        }
        let (mut gaps, mut at) = (Vec::new(), start);
        let (mut low, mut high) = (start, end);
        // The last range that begins at or before `start` may overlap or touch it.
        let first = self.ends.range(..=start).next_back().filter(|&(_, &until)| until >= start);
        let first = first.map_or(start, |(&from, _)| from);
        let touched: Vec<(u64, u64)> =
            self.ends.range(first..=end).map(|(&a, &b)| (a, b)).collect();
        for (from, until) in touched {
            if from > at {
                gaps.push((at, from));
            }
            at = at.max(until);
            (low, high) = (low.min(from), high.max(until));
            self.ends.remove(&from);
        }
        if at < end {
            gaps.push((at, end));
        }
        self.ends.insert(low, high);
        gaps
    }

    /// Removes all offsets below `until`.
    pub(crate) fn trim(&mut self, until: u64) {
        while let Some((&from, &end)) = self.ends.first_key_value().filter(|entry| *entry.0 < until)
        {
            self.ends.remove(&from);
            if end > until {
                self.ends.insert(until, end);
            }
        }
    }

    /// Returns the range that contains `offset`; `None` if there is none.
    pub(crate) fn around(&self, offset: u64) -> Option<(u64, u64)> {
        let (&from, &end) = self.ends.range(..=offset).next_back()?;
        (offset < end).then_some((from, end))
    }

    /// Returns the lowest range; `None` if the set is empty.
    pub(crate) fn first(&self) -> Option<(u64, u64)> {
        self.ends.first_key_value().map(|(&from, &end)| (from, end))
    }

    /// Returns the ranges, the highest first.
    pub(crate) fn descending(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ends.iter().rev().map(|(&from, &end)| (from, end))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.ends.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_multipath::seed::stream;
    use rand::RngExt;

    #[test]
    fn ranges_are_those_of_a_set_of_numbers() {
        let mut dice = stream(1, 0, "ranges");
        for _ in 0..200 {
            let (mut ranges, mut set) = (Ranges::default(), [false; 64]);
            for _ in 0..12 {
                let start = dice.random_range(0..60u64);
                let end = start + dice.random_range(0..10u64).min(64 - start);
                let gaps = ranges.insert(start, end);
                let missing: Vec<u64> = (start..end).filter(|&n| !set[n as usize]).collect();
                assert_eq!(gaps.iter().flat_map(|&(a, b)| a..b).collect::<Vec<_>>(), missing);
                missing.iter().for_each(|&n| set[n as usize] = true);
                for n in 0..64 {
                    assert_eq!(ranges.around(n).is_some(), set[n as usize], "{n} in {ranges:?}");
                }
            }
            ranges.trim(30);
            assert!((0..64).all(|n| ranges.around(n).is_some() == (n >= 30 && set[n as usize])));
        }
    }
}
