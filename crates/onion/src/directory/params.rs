//! The consensus parameters for circuits and guards, each with its default and bounds
//! (param-spec). Absent values have the default, and values outside the bounds are clamped.

use std::collections::BTreeMap;

use crate::guards::GuardParams;
use crate::padding::PaddingParams;

/// Consensus parameters, clamped to the bounds of param-spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// `circwindow`: cells that a circuit without congestion control may have in flight.
    pub circuit_window: u32,
    /// `sendme_emit_min_version`: the minimum version of SENDMEs that we send.
    pub sendme_version: u8,
    /// Parameters for learning circuit build timeouts (path-spec 2.4).
    pub timeouts: TimeoutParams,
    /// Parameters for the choice and the lifetime of guards.
    pub guards: GuardParams,
    /// Parameters for link padding, and for closing unused links and circuits.
    pub padding: PaddingParams,
}

/// Parameters of circuit build timeouts (`cbt…`). Times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeoutParams {
    /// `cbtdisabled`: true if no timeout is learnt, and the initial timeout is always used.
    pub disabled: bool,
    /// `cbtnummodes`: number of histogram bins (those with the most build times) from which the
    /// start of the distribution is estimated.
    pub modes: usize,
    /// `cbtrecentcount`: number of recent circuits that are examined to detect a change of the
    /// client's network.
    pub recent: usize,
    /// `cbtmaxtimeouts`: number of timeouts among the recent circuits after which all learnt build
    /// times are discarded.
    pub most_timeouts: usize,
    /// `cbtmincircs`: number of circuits that must be built before a timeout is computed.
    pub least_circuits: usize,
    /// `cbtquantile`: the percentage of circuits that should be built within the timeout.
    pub quantile: u32,
    /// `cbtclosequantile`: the percentile of build times after which circuits are closed.
    pub close_quantile: u32,
    /// `cbtmintimeout`: the minimum timeout.
    pub least: u64,
    /// `cbtinitialtimeout`: the timeout before any build times are known.
    pub initial: u64,
}

impl Params {
    /// Parses the parameters of a consensus.
    #[must_use]
    pub fn new(values: &BTreeMap<String, i32>) -> Params {
        let read = |name: &str, default: i32, least: i32, most: i32| {
            u32::try_from(values.get(name).copied().unwrap_or(default).clamp(least, most))
                .expect("the lower bound of each parameter is 0 or more")
        };
        let count = |name, default, least, most| read(name, default, least, most) as usize;
        let quantile = read("cbtquantile", 80, 10, 99);
        let least = read("cbtmintimeout", 10, 10, i32::MAX);
        Params {
            circuit_window: read("circwindow", 1000, 100, 1000),
            sendme_version: u8::try_from(read("sendme_emit_min_version", 1, 0, 255))
                .expect("the upper bound of the parameter is 255"),
            guards: GuardParams::new(values),
            padding: PaddingParams::new(values),
            timeouts: TimeoutParams {
                disabled: read("cbtdisabled", 0, 0, 1) == 1,
                modes: count("cbtnummodes", 10, 1, 20),
                recent: count("cbtrecentcount", 20, 3, 1000),
                most_timeouts: count("cbtmaxtimeouts", 18, 3, 10_000),
                least_circuits: count("cbtmincircs", 100, 1, 10_000),
                quantile,
                close_quantile: read("cbtclosequantile", 99, 10, 99).max(quantile),
                least: u64::from(least),
                initial: u64::from(read("cbtinitialtimeout", 60_000, 10, i32::MAX).max(least)),
            },
        }
    }
}

impl Default for Params {
    fn default() -> Params {
        Params::new(&BTreeMap::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_consensus_says_counts_within_bounds() {
        let pairs = [("circwindow", 900), ("cbtquantile", 200), ("cbtmintimeout", -5)];
        let values = pairs.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        let params = Params::new(&values);
        assert_eq!(params.circuit_window, 900);
        assert_eq!((params.timeouts.quantile, params.timeouts.least), (99, 10));
        assert_eq!(params.timeouts.initial, Params::default().timeouts.initial);
    }
}
