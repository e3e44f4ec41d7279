//! What a consensus says about guards (param-spec; guard-spec, appendix A.1).

use std::collections::BTreeMap;

const DAY: u64 = 86_400;

/// The `guard-…` parameters. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardParams {
    /// `guard-n-primary-guards`.
    pub primary: usize,
    /// `guard-n-primary-guards-to-use`: of the primary guards that can be reached, so many are
    /// used.
    pub primary_to_use: usize,
    /// `guard-n-primary-dir-guards-to-use`: the same for directory requests.
    pub primary_for_directory: usize,
    /// `guard-min-filtered-sample-size`: so many usable guards the sample should have.
    pub min_filtered_sample: usize,
    /// `guard-max-sample-size`: the sample has no more.
    pub max_sample: usize,
    /// `guard-max-sample-threshold-percent`: nor more than these percent of all guards.
    pub max_sample_percent: usize,
    /// `guard-lifetime-days`: how long a guard is kept.
    pub lifetime: u64,
    /// `guard-confirmed-min-lifetime-days`: a confirmed one is kept so long at least.
    pub confirmed_lifetime: u64,
    /// `guard-remove-unlisted-guards-after-days`.
    pub unlisted_lifetime: u64,
    /// `guard-internet-likely-down-interval`: after so long without a circuit, guards are not to
    /// blame.
    pub internet_likely_down: u64,
    /// `guard-nonprimary-guard-connect-timeout`: so long a circuit that is being built is waited
    /// for.
    pub connect_timeout: u64,
    /// `guard-nonprimary-guard-idle-timeout`: so long a built circuit waits for better ones.
    pub idle_timeout: u64,
    /// `guard-meaningful-restriction-percent`: a user who allows less than this has a sample apart.
    pub meaningful_restriction: u64,
    /// `guard-extreme-restriction-percent`: a user who allows less than this is warned.
    pub extreme_restriction: u64,
}

impl GuardParams {
    /// Reads the parameters of a consensus: what is absent has its default, what is out of bounds
    /// is at them.
    #[must_use]
    pub fn new(values: &BTreeMap<String, i32>) -> GuardParams {
        let read = |name: &str, default: i32, least: i32, most: i32| {
            let value = values.get(name).copied().unwrap_or(default).clamp(least, most);
            u64::try_from(value).expect("no bound is below zero")
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

    /// The same for a client whose circuits have up to so many legs, each with a primary guard of
    /// its own: the larger of `guard-n-primary-guards-to-use` and `legs` are in use, and no fewer
    /// are primary.
    #[must_use]
    pub fn for_legs(&self, legs: usize) -> GuardParams {
        let primary_to_use = self.primary_to_use.max(legs);
        GuardParams { primary_to_use, primary: self.primary.max(primary_to_use), ..self.clone() }
    }

    /// The same for a client that enters by bridges: all of them are in the sample, in their order.
    #[must_use]
    pub fn for_bridges(&self) -> GuardParams {
        // There are never so many: the sample grows until there are no more.
        GuardParams { min_filtered_sample: usize::MAX, ..self.clone() }
    }

    /// How large the sample may be where so many relays could be guards.
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
        let said = [("guard-n-primary-guards-to-use", 2), ("guard-lifetime-days", 99_999)];
        let values = said.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        let params = GuardParams::new(&values);
        assert_eq!((params.primary_to_use, params.primary), (2, 3));
        assert_eq!(params.lifetime, 3650 * DAY);
    }
}
