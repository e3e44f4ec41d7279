//! Consensus parameters of sets of circuits (proposal 329, section 5; C tor's `conflux_params.c`).

use std::collections::BTreeMap;

/// Consensus parameters of sets of circuits. Absent values have their defaults, and present values
/// are clamped to their bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfluxParams {
    /// `cfx_enabled`: true if circuits may be linked at all.
    pub enabled: bool,
    /// `cfx_num_legs_set`: number of circuits that a client launches for one set.
    pub legs: usize,
    /// `cfx_max_legs_set`: maximum number of circuits that a set has at a time.
    pub max_legs: usize,
    /// `cfx_max_unlinked_leg_retry`: number of circuits that a client launches to replace failed
    /// ones.
    pub retries: usize,
    /// `cfx_low_exit_threshold`: minimum share of exits with `Conflux=1`, in units of 1/10,000.
    /// Below it, clients keep no set of circuits ready.
    pub low_exits: u32,
}

impl ConfluxParams {
    /// Reads the parameters of a consensus.
    #[must_use]
    pub fn new(values: &BTreeMap<String, i32>) -> ConfluxParams {
        let read = |name: &str, default: i32, least: i32, most: i32| {
            let value = values.get(name).copied().unwrap_or(default).clamp(least, most);
            value.unsigned_abs()
        };
        let count = |name, default, least| read(name, default, least, 255) as usize;
        ConfluxParams {
            enabled: read("cfx_enabled", 1, 0, 1) == 1,
            legs: count("cfx_num_legs_set", 2, 0),
            max_legs: count("cfx_max_legs_set", 8, 3),
            retries: count("cfx_max_unlinked_leg_retry", 3, 0),
            low_exits: read("cfx_low_exit_threshold", 6_000, 0, 10_000),
        }
    }
}

impl Default for ConfluxParams {
    fn default() -> ConfluxParams {
        ConfluxParams::new(&BTreeMap::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_consensus_says_counts_within_bounds() {
        let pairs = [("cfx_enabled", 0), ("cfx_num_legs_set", 300), ("cfx_max_legs_set", 1)];
        let values = pairs.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        let params = ConfluxParams::new(&values);
        assert_eq!((params.enabled, params.legs, params.max_legs), (false, 255, 3));
        let usual = ConfluxParams::default();
        assert_eq!((usual.enabled, usual.legs, usual.max_legs), (true, 2, 8));
        assert_eq!((usual.retries, usual.low_exits), (3, 6_000));
    }
}
