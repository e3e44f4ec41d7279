//! Tables of quantiles. The rates of a network's access lines, and its delays, are drawn from
//! them.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use anabranch_multipath::seed::{Stream, stream};
use rand::RngExt;

use crate::latency::Latencies;

/// Maximum number of places in a core network with random delays. A place is a point at which
/// hosts join the core network. Further hosts share places.
const MAX_PLACES: usize = 512;

/// A table of values that are drawn with equal probabilities. The tables in the folder `data`
/// contain quantiles of measured data, at 0.5 %, 1.5 %, ..., 99.5 %.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantileTable {
    values: Arc<[u64]>,
}

impl QuantileTable {
    /// Returns the table of `values`; `None` if `values` is empty.
    pub fn new(values: Vec<u64>) -> Option<QuantileTable> {
        (!values.is_empty()).then(|| QuantileTable { values: values.into() })
    }

    /// Returns a table with a single value.
    pub fn one(value: u64) -> QuantileTable {
        QuantileTable { values: Arc::new([value]) }
    }

    /// Parses a text with one value in each line. Each value is multiplied by `unit`. Lines that
    /// begin with `#` are comments.
    fn read(text: &str, unit: u64) -> QuantileTable {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let values = lines
            .map(|line| line.parse::<u64>().expect("the built-in tables contain only numbers"));
        let values: Vec<u64> = values.map(|value| value * unit).collect();
        QuantileTable::new(values).expect("the built-in tables are not empty")
    }

    /// Returns the values in the given order.
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// Returns the value if the table has only one value, which all draws then give. Returns
    /// `None` for other tables.
    fn only(&self) -> Option<u64> {
        (self.values.len() == 1).then(|| self.values[0])
    }

    /// Draws one of the values. All are equally likely.
    pub fn draw(&self, rng: &mut Stream) -> u64 {
        self.only().unwrap_or_else(|| self.values[rng.random_range(0..self.values.len())])
    }
}

/// Rates of hosts' access lines in bits per second, by the kind of host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineRates {
    /// Rates of the access lines of relays that are not exits.
    pub relays: QuantileTable,
    /// Rates of exits.
    pub exits: QuantileTable,
    /// Rates of web servers.
    pub servers: QuantileTable,
    /// Rates of clients.
    pub clients: QuantileTable,
}

/// Rates of the access lines of relays in the public Tor network in 2018.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublicRates {
    /// The whole capacity of the relays' access lines.
    Tor2018,
    /// The spare capacity of the relays' access lines, without the traffic of the public network.
    Tor2018Spare,
}

impl PublicRates {
    /// All variants.
    pub const ALL: [PublicRates; 2] = [PublicRates::Tor2018, PublicRates::Tor2018Spare];

    /// Returns the name of these rates in scenarios.
    pub fn name(self) -> &'static str {
        match self {
            PublicRates::Tor2018 => "tor-2018",
            PublicRates::Tor2018Spare => "tor-2018-spare",
        }
    }

    /// Returns the rates of relays that are not exits, and the rates of exits.
    pub fn tables(self) -> [QuantileTable; 2] {
        let texts = match self {
            PublicRates::Tor2018 => [
                include_str!("../../data/relays-2018.txt"),
                include_str!("../../data/exits-2018.txt"),
            ],
            PublicRates::Tor2018Spare => [
                include_str!("../../data/relays-2018-spare.txt"),
                include_str!("../../data/exits-2018-spare.txt"),
            ],
        };
        texts.map(|text| QuantileTable::read(text, 1))
    }
}

/// Returns one-way delays between hosts of PlanetLab, in nanoseconds.
pub fn planetlab_delays() -> QuantileTable {
    QuantileTable::read(include_str!("../../data/planetlab.txt"), 1_000)
}

/// Draws the rate of an access line in bits per second, with the seed `network`. `entity` is the
/// identifier of the host.
pub(super) fn rate(
    table: &QuantileTable,
    (network, entity): (u64, usize),
    purpose: &str,
) -> NonZeroU64 {
    let rate = table.draw(&mut stream(network, entity as u64, purpose));
    NonZeroU64::new(rate).unwrap_or(NonZeroU64::MIN)
}

/// Draws the core network between `hosts` hosts with the seed `network`. Returns its latencies,
/// and the place (the row and column of the latencies) at which each host joins it.
///
/// The delay of each pair of places is drawn separately, and is the same in both directions. It
/// depends only on the two places. A network with more hosts therefore has the same delays between
/// its first hosts.
pub(super) fn core(table: &QuantileTable, network: u64, hosts: usize) -> (Latencies, Vec<usize>) {
    if let Some(delay) = table.only() {
        return (Latencies::uniform(Duration::from_nanos(delay)), vec![0; hosts]);
    }
    let places = hosts.clamp(1, MAX_PLACES);
    let least = table.values().iter().min().copied().unwrap_or_default();
    let delay = |from: usize, to: usize| {
        let (low, high) = (from.min(to), from.max(to));
        if low == high {
            return Duration::from_nanos(least);
        }
        let pair = (high * (high - 1) / 2 + low) as u64;
        Duration::from_nanos(table.draw(&mut stream(network, pair, "delay of a pair")))
    };
    let row = |from| (0..places).map(|to| delay(from, to)).collect::<Vec<Duration>>();
    let delays: Vec<Vec<Duration>> = (0..places).map(row).collect();
    let core = Latencies::matrix(&delays).expect("the matrix has as many rows as columns");
    (core, (0..hosts).map(|host| host % places).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_have_a_hundred_quantiles_that_rise() {
        let rates = PublicRates::ALL.into_iter().flat_map(PublicRates::tables);
        for table in rates.chain([planetlab_delays()]) {
            assert_eq!(table.values().len(), 100);
            assert!(table.values().is_sorted());
            assert!(table.values()[0] > 0 && table.values()[99] > 10 * table.values()[0]);
        }
        // At each quantile, the capacity that the load left free is at most the whole capacity.
        let [[_, whole], [_, spare]] = PublicRates::ALL.map(PublicRates::tables);
        assert!(spare.values().iter().zip(whole.values()).all(|(spare, whole)| spare <= whole));
        assert_eq!(planetlab_delays().values()[50], 68_155_000);
    }

    #[test]
    fn draws_follow_their_table_and_their_network() {
        let table = QuantileTable::new(vec![1, 2, 3, 4]).unwrap();
        let of = |network| -> Vec<u64> {
            (0..400).map(|host| rate(&table, (network, host), "line").get()).collect()
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        for value in 1..=4 {
            let count = of(1).iter().filter(|&&rate| rate == value).count();
            // The standard deviation is 8.7.
            assert!((65..=135).contains(&count), "{value}: {count}");
        }
        assert_eq!(QuantileTable::new(Vec::new()), None);
    }

    #[test]
    fn delays_are_symmetric_and_the_same_in_a_larger_network() {
        let table = planetlab_delays();
        let (small, _) = core(&table, 3, 5);
        let (large, places) = core(&table, 3, 9);
        assert_eq!((small.places(), large.places()), (5, 9));
        assert_eq!(places, (0..9).collect::<Vec<_>>());
        for (from, to) in [(0, 1), (2, 4), (3, 0)] {
            assert_eq!(small.between(from, to), large.between(from, to));
            assert_eq!(large.between(from, to), large.between(to, from));
        }
        assert_ne!(core(&table, 4, 5).0, small);
        let (many, places) = core(&table, 3, MAX_PLACES + 2);
        assert_eq!((many.places(), places[MAX_PLACES + 1]), (MAX_PLACES, 1));
    }

    #[test]
    fn one_value_needs_no_places() {
        let (core, places) = core(&QuantileTable::one(5_000_000), 1, 3);
        assert_eq!(core, Latencies::uniform(Duration::from_millis(5)));
        assert_eq!(places, [0; 3]);
    }
}
