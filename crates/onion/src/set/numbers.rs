//! Statistics of sets of parallel circuits (legs) for display. They contain no nonces or
//! addresses.

use std::time::Duration;

/// Statistics of a set that may have several parallel circuits (legs), as seen from one of its
/// ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetNumbers {
    /// Name of the method that gives the circuit set's messages sequence numbers
    /// ([`Numbering::name`](crate::conflux::Numbering::name)). The method depends on the set's
    /// design.
    pub design: &'static str,
    /// Scheduler of this end, and the number of consecutive cells that it sends on one circuit
    /// (`--every`), in the syntax of the command line.
    pub schedule: String,
    /// Number of streams in the circuit set.
    pub streams: usize,
    /// Number of stream bytes received, and number sent.
    pub transferred: [u64; 2],
    /// Bytes of received messages that wait for earlier messages on other legs (parallel
    /// circuits).
    pub reordered: usize,
    /// Largest value of `reordered` so far.
    pub most_reordered: usize,
    /// Bytes of sent messages that are stored until they are acknowledged; 0 if the design does
    /// not retransmit.
    pub kept: usize,
    /// Present limit on `reordered`, the bytes that wait for earlier messages.
    pub budget: usize,
    /// True if the circuit set's streams are paused (XOFF) because too many bytes wait for earlier
    /// messages.
    pub paused: bool,
    /// The set's parallel circuits (legs), by slot.
    pub legs: Vec<LegNumbers>,
}

/// Statistics of a leg (one of the parallel circuits of a set).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LegNumbers {
    /// Identifier that the caller of the client's core assigned to the circuit; `None` at a relay.
    pub circuit: Option<u64>,
    /// True if both ends have linked the leg (parallel circuit). Otherwise it carries no data.
    pub is_linked: bool,
    /// Number of cells received, and number sent. A client counts all cells of the circuit, as the
    /// guard sees them; a relay counts only cells with DATA.
    pub cells: [u64; 2],
    /// Smoothed round-trip time, measured with SENDMEs. Until the first SENDME arrives, it is the
    /// time that linking took. `None` if neither is known.
    pub rtt: Option<Duration>,
    /// Minimum round-trip time, measured with SENDMEs. Until the first SENDME arrives, it is the
    /// time that linking took. `None` if neither is known.
    pub least_rtt: Option<Duration>,
    /// Congestion window for cells that this end sends, in cells.
    pub window: u64,
    /// Number of cells in flight on the leg (parallel circuit).
    pub inflight: u64,
    /// Number of cells of the leg (parallel circuit) that wait for its link.
    pub queued: u64,
}

impl LegNumbers {
    /// Returns the sum of the leg's received and sent cells.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.cells.iter().sum()
    }
}

impl SetNumbers {
    /// Returns each circuit's share of the set's received cells and of its sent cells, in the
    /// order of the circuits. Shares are 0 if there were no cells.
    #[must_use]
    pub fn shares(&self) -> Vec<[f64; 2]> {
        let all = [0, 1].map(|way| self.legs.iter().map(|leg| leg.cells[way]).sum::<u64>());
        let share =
            |leg: &LegNumbers| [0, 1].map(|way| leg.cells[way] as f64 / all[way].max(1) as f64);
        self.legs.iter().map(share).collect()
    }
}

/// Summary (count, sum, minimum, maximum) of one quantity over many items, such as the windows of
/// circuits. Summaries of several shards (parallel cores) can be combined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumberSpread {
    /// Number of items.
    pub count: u64,
    /// Sum of the quantity over all items.
    pub sum: u64,
    /// Smallest value; 0 if there are no items.
    pub least: u64,
    /// Largest value; 0 if there are no items.
    pub most: u64,
}

impl NumberSpread {
    /// Returns the summary over the items of both `self` and `other`.
    #[must_use]
    pub fn with(self, other: NumberSpread) -> NumberSpread {
        match (self.count, other.count) {
            (0, _) => other,
            (_, 0) => self,
            _ => NumberSpread {
                count: self.count + other.count,
                sum: self.sum + other.sum,
                least: self.least.min(other.least),
                most: self.most.max(other.most),
            },
        }
    }

    /// Returns the mean; `None` if there are no items.
    #[must_use]
    pub fn mean(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }
}

impl FromIterator<u64> for NumberSpread {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> NumberSpread {
        let one = |number| NumberSpread { count: 1, sum: number, least: number, most: number };
        numbers.into_iter().map(one).fold(NumberSpread::default(), NumberSpread::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_each_way_for_itself_and_nothing_has_none() {
        let leg = |received, sent| LegNumbers { cells: [received, sent], ..LegNumbers::default() };
        let legs = vec![leg(30, 0), leg(10, 0)];
        let set = SetNumbers { legs, ..SetNumbers::default() };
        assert_eq!(set.shares(), [[0.75, 0.0], [0.25, 0.0]]);
        assert_eq!(set.legs[0].total(), 30);
    }

    #[test]
    fn spreads_of_two_cores_are_the_spread_of_all() {
        let numbers = [7, 3, 12, 5];
        let parts: [NumberSpread; 3] =
            [&numbers[..1], &[], &numbers[1..]].map(|part| part.iter().copied().collect());
        let whole = parts.into_iter().fold(NumberSpread::default(), NumberSpread::with);
        assert_eq!(whole, numbers.into_iter().collect());
        assert_eq!((whole.least, whole.most, whole.mean()), (3, 12, Some(6.75)));
        assert_eq!(NumberSpread::default().mean(), None);
    }
}
