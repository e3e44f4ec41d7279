//! What there is to see of sets and their legs, for people: numbers alone. The nonce is not among
//! them, nor anybody's address.

use std::time::Duration;

/// A set that several circuits may join, as one of its ends sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetNumbers {
    /// How messages are numbered ([`Numbering::name`](crate::conflux::Numbering::name)).
    pub design: &'static str,
    /// By which scheduler and in which runs this end deals, as on a command line.
    pub schedule: String,
    /// Streams on it.
    pub streams: usize,
    /// Bytes of streams so far: received, sent.
    pub carried: [u64; 2],
    /// Bytes that wait for messages of other legs.
    pub reordered: usize,
    /// The most that ever waited.
    pub most_reordered: usize,
    /// Bytes that were sent and are not acknowledged, where that is kept.
    pub kept: usize,
    /// How many may wait now.
    pub budget: usize,
    /// Its streams were told to rest (XOFF): too much waits.
    pub resting: bool,
    /// Its legs, by their places.
    pub legs: Vec<LegNumbers>,
}

/// A leg of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LegNumbers {
    /// The number that a client's owner gave to its circuit; a relay's have none.
    pub circuit: Option<u64>,
    /// Whether both ends have linked it: else it carries no data.
    pub is_linked: bool,
    /// Cells so far: received, sent. At a client all of its circuit, as its guard sees them; at a
    /// relay those with DATA.
    pub cells: [u64; 2],
    /// The round-trip time, smoothed, by SENDMEs; before the first one that of linking.
    pub rtt: Option<Duration>,
    /// The least round-trip time, by the same.
    pub least_rtt: Option<Duration>,
    /// The congestion window of what this end sends, in cells.
    pub window: u64,
    /// Cells of it in flight.
    pub inflight: u64,
    /// Cells that wait for the link.
    pub queued: u64,
}

impl LegNumbers {
    /// All cells, both ways.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.cells.iter().sum()
    }
}

impl SetNumbers {
    /// The part of the set's cells that each leg carried, by way: received, sent; 0 where none
    /// were. In the order of the legs.
    #[must_use]
    pub fn shares(&self) -> Vec<[f64; 2]> {
        let all = [0, 1].map(|way| self.legs.iter().map(|leg| leg.cells[way]).sum::<u64>());
        let share =
            |leg: &LegNumbers| [0, 1].map(|way| leg.cells[way] as f64 / all[way].max(1) as f64);
        self.legs.iter().map(share).collect()
    }
}

/// How a number is spread over many things: what two cores have can be put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumberSpread {
    /// How many things.
    pub count: u64,
    /// All their numbers together.
    pub sum: u64,
    /// The least; 0 of nothing.
    pub least: u64,
    /// The most; 0 of nothing.
    pub most: u64,
}

impl NumberSpread {
    /// Of both together.
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

    /// The mean; `None` of nothing.
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
