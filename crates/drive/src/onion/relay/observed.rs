//! What a relay was seen to carry, for its descriptor (dir-spec, "bandwidth").

use std::collections::VecDeque;

/// Seconds that count as one observation.
const SPAN: usize = 10;

/// The most that was carried both ways for ten seconds.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// Bytes received and sent until each of the last seconds.
    totals: VecDeque<[u64; 2]>,
    most: u64,
}

impl Observed {
    /// A second has passed: bytes received and sent so far.
    pub(super) fn note(&mut self, totals: [u64; 2]) {
        self.totals.push_back(totals);
        if self.totals.len() <= SPAN {
            return;
        }
        let first = self.totals.pop_front().expect("there are more than a span's");
        // What only came, or only went, was not carried.
        let carried = (totals[0] - first[0]).min(totals[1] - first[1]);
        self.most = self.most.max(carried / SPAN as u64);
    }

    /// Bytes a second.
    pub(super) fn most(&self) -> u64 {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_busy_seconds_count_and_what_comes_one_way_does_not() {
        let mut observed = Observed::default();
        (0..=10).for_each(|second| observed.note([second * 500, second * 300]));
        assert_eq!(observed.most(), 300);
        (0..50).for_each(|second| observed.note([5000 + second * 9000, 3000]));
        assert_eq!(observed.most(), 300, "it stays the most");
    }
}
