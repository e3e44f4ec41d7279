//! The consensus parameters for guards (param-spec; guard-spec, appendix A.1).

use std::collections::BTreeMap;

const DAY: u64 = 86_400;

/// The `guard-…` parameters. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardParams {
    /// `guard-n-primary-guards`: the number of primary guards.
    pub primary: usize,
    /// `guard-n-primary-guards-to-use`: the number of primary guards from which a circuit's guard
    /// is chosen.
    pub primary_to_use: usize,
    /// `guard-n-primary-dir-guards-to-use`: the number of primary guards from which the guard for
    /// a directory request is chosen.
    pub primary_for_directory: usize,
    /// `guard-min-filtered-sample-size`: the target number of usable guards among the relays drawn
    /// as possible guards (the sample).
    pub min_filtered_sample: usize,
    /// `guard-max-sample-size`: the maximum number of relays drawn as possible guards (the
    /// sample).
    pub max_sample: usize,
    /// `guard-max-sample-threshold-percent`: the maximum number of relays drawn as possible guards
    /// (the sample), in percent of all guards.
    pub max_sample_percent: usize,
    /// `guard-lifetime-days`: the time after which a guard is removed from the sample.
    pub lifetime: u64,
    /// `guard-confirmed-min-lifetime-days`: the minimum time that a guard stays in the sample
    /// after it was confirmed.
    pub confirmed_lifetime: u64,
    /// `guard-remove-unlisted-guards-after-days`: the time after which a guard that is no longer
    /// listed in consensuses is removed from the sample.
    pub unlisted_lifetime: u64,
    /// `guard-internet-likely-down-interval`: the time without a built circuit after which
    /// failures are not attributed to guards.
    pub internet_likely_down: u64,
    /// `guard-nonprimary-guard-connect-timeout`: the maximum time for which a circuit under
    /// construction makes other circuits wait.
    pub connect_timeout: u64,
    /// `guard-nonprimary-guard-idle-timeout`: the maximum time for which a built circuit waits for
    /// circuits with better guards.
    pub idle_timeout: u64,
    /// `guard-meaningful-restriction-percent`: a user who allows less than this share of all
    /// guards (in percent) has a separate sample of guards.
    pub meaningful_restriction: u64,
    /// `guard-extreme-restriction-percent`: a user who allows less than this share of all guards
    /// (in percent) is warned.
    pub extreme_restriction: u64,
}

impl GuardParams {
    /// Parses the parameters of a consensus. Absent values have the default, and values outside
    /// the bounds are clamped.
    #[must_use]
    pub fn new(values: &BTreeMap<String, i32>) -> GuardParams {
        let read = |name: &str, default: i32, least: i32, most: i32| {
            let value = values.get(name).copied().unwrap_or(default).clamp(least, most);
            u64::try_from(value).expect("the lower bound of each parameter is 0 or more")
        };
        let many = |name, default| read(name, default, 1, i32::MAX);
        let days = |name, default| read(name, default, 1, 3650) * DAY;
        GuardParams {
            primary: many("guard-n-primary-guards", 3) as usize,
            primary_to_use: many("guard-n-primary-guards-to-use", 1) as usize,
            primary_for_directory: many("guard-n-primary-dir-guards-to-use", 3) as usize,
            min_filtered_sample: many("guard-min-filtered-sample-size", 20) as usize,
            max_sample: many("guard-max-sample-size", 60) as usize,
            max_sample_percent: read("guard-max-sample-threshold-percent", 20, 1, 100) as usize,
            lifetime: days("guard-lifetime-days", 120),
            confirmed_lifetime: days("guard-confirmed-min-lifetime-days", 60),
            unlisted_lifetime: days("guard-remove-unlisted-guards-after-days", 20),
            internet_likely_down: many("guard-internet-likely-down-interval", 600),
            connect_timeout: many("guard-nonprimary-guard-connect-timeout", 15),
            idle_timeout: many("guard-nonprimary-guard-idle-timeout", 600),
            meaningful_restriction: read("guard-meaningful-restriction-percent", 20, 1, 100),
            extreme_restriction: read("guard-extreme-restriction-percent", 1, 1, 100),
        }
    }

    /// Adapts the parameters to sets of up to `legs` parallel circuits, in which each circuit has
    /// a different primary guard. The number of guards in use is the larger of
    /// `guard-n-primary-guards-to-use` and `legs`. The number of primary guards is at least as
    /// large.
    #[must_use]
    pub fn for_legs(&self, legs: usize) -> GuardParams {
        let primary_to_use = self.primary_to_use.max(legs);
        GuardParams { primary_to_use, primary: self.primary.max(primary_to_use), ..self.clone() }
    }

    /// Adapts the parameters to a client with bridges, whose sample of guards contains all bridges
    /// in the user's order.
    #[must_use]
    pub fn for_bridges(&self) -> GuardParams {
        // An unreachable target makes the sample grow until it contains all bridges.
        GuardParams { min_filtered_sample: usize::MAX, ..self.clone() }
    }

    /// Returns the maximum number of relays to draw as possible guards if `count` relays could be
    /// guards.
    #[must_use]
    pub fn most_sampled(&self, count: usize) -> usize {
        let share = count * self.max_sample_percent / 100;
        share.min(self.max_sample).max(self.min_filtered_sample)
    }
}

impl Default for GuardParams {
    fn default() -> GuardParams {
        GuardParams::new(&BTreeMap::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_bounded_by_a_share_a_number_and_a_least_size() {
        let params = GuardParams::default();
        assert_eq!(params.most_sampled(4), 20);
        assert_eq!(params.most_sampled(200), 40);
        assert_eq!(params.most_sampled(5000), 60);
    }

    #[test]
    fn three_legs_need_no_more_primary_guards_than_one_and_more_legs_do() {
        let params = GuardParams::default();
        let of = |legs| {
            let params = params.for_legs(legs);
            (params.primary_to_use, params.primary)
        };
        assert_eq!([1, 2, 3, 5].map(of), [(1, 3), (2, 3), (3, 3), (5, 5)]);
    }

    #[test]
    fn what_a_consensus_says_counts_within_bounds() {
        let pairs = [("guard-n-primary-guards-to-use", 2), ("guard-lifetime-days", 99_999)];
        let values = pairs.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        let params = GuardParams::new(&values);
        assert_eq!((params.primary_to_use, params.primary), (2, 3));
        assert_eq!(params.lifetime, 3650 * DAY);
    }
}
