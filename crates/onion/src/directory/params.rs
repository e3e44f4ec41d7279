//! The parameters of a consensus that circuits and guards go by, each with its default and bounds
//! (param-spec). What is absent or out of bounds is as if it had been within.

use std::collections::BTreeMap;

use crate::guards::GuardParams;
use crate::padding::PaddingParams;

/// Numbers by name, clamped to what param-spec allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// `circwindow`: cells that a circuit without congestion control may have under way.
    pub circuit_window: u32,
    /// `sendme_emit_min_version`: the form of SENDMEs that we send at least.
    pub sendme_version: u8,
    /// How circuit build timeouts are learnt (path-spec 2.4).
    pub timeouts: TimeoutParams,
    /// How guards are chosen and kept.
    pub guards: GuardParams,
    /// When links are padded, and how long what nobody uses is kept.
    pub padding: PaddingParams,
}

/// The `cbt…` parameters. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeoutParams {
    /// `cbtdisabled`: the initial timeout is kept for good.
    pub disabled: bool,
    /// `cbtnummodes`: how many of the fullest bins tell where the distribution begins.
    pub modes: usize,
    /// `cbtrecentcount`: how many of the latest circuits tell of a change of network.
    pub recent: usize,
    /// `cbtmaxtimeouts`: so many timeouts among them, and all is learnt anew.
    pub most_timeouts: usize,
    /// `cbtmincircs`: circuits that must have been built before a timeout is computed.
    pub least_circuits: usize,
    /// `cbtquantile`: the share of circuits that are to be built in time, percent.
    pub quantile: u32,
    /// `cbtclosequantile`: circuits beyond this one are given up, percent.
    pub close_quantile: u32,
    /// `cbtmintimeout`: never less.
    pub least: u64,
    /// `cbtinitialtimeout`: before anything is learnt.
    pub initial: u64,
}

impl Params {
    /// Reads the parameters of a consensus.
    #[must_use]
    pub fn new(values: &BTreeMap<String, i32>) -> Params {
        let read = |name: &str, default: i32, least: i32, most: i32| {
            u32::try_from(values.get(name).copied().unwrap_or(default).clamp(least, most))
                .expect("no bound is below zero")
        };
        let count = |name, default, least, most| read(name, default, least, most) as usize;
        let quantile = read("cbtquantile", 80, 10, 99);
        let least = read("cbtmintimeout", 10, 10, i32::MAX);
        Params {
            circuit_window: read("circwindow", 1000, 100, 1000),
            sendme_version: u8::try_from(read("sendme_emit_min_version", 1, 0, 255))
                .expect("its upper bound is that of a byte"),
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
        let said = [("circwindow", 900), ("cbtquantile", 200), ("cbtmintimeout", -5)];
        let values = said.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        let params = Params::new(&values);
        assert_eq!(params.circuit_window, 900);
        assert_eq!((params.timeouts.quantile, params.timeouts.least), (99, 10));
        assert_eq!(params.timeouts.initial, Params::default().timeouts.initial);
    }
}
