//! Limits on failed attempts to decrypt records before earlier ones have arrived.

use anabranch_multipath::Time;

/// Maximum number of failed decryptions per key. RFC 9147 (section 4.5.3) and RFC 9001 (section
/// 6.6) allow 2^36 and more.
const PER_KEY: u32 = 1 << 20;
/// Maximum number of failed decryptions per second, which is also the maximum burst.
const PER_SECOND: u32 = 1 << 10;

/// Limits on failed attempts to decrypt a record early, per key and per second. Decryption in
/// order needs no limit, because a failure ends the link.
#[derive(Clone, Debug)]
pub struct TrialBudget {
    left: u32,
    /// Number of failed attempts that are allowed now, in billionths of an attempt.
    free: u64,
    counted: Time,
}

impl TrialBudget {
    const BILLION: u64 = 1_000_000_000;

    /// Returns limits without any failed attempt so far.
    #[must_use]
    pub fn new(now: Time) -> TrialBudget {
        TrialBudget { left: PER_KEY, free: u64::from(PER_SECOND) * Self::BILLION, counted: now }
    }

    /// Returns true if one more failed attempt is allowed.
    pub fn allows(&mut self, now: Time) -> bool {
        let most = u64::from(PER_SECOND) * Self::BILLION;
        let since = now.nanos().saturating_sub(self.counted.nanos());
        let grown = since.saturating_mul(u64::from(PER_SECOND));
        self.free = self.free.saturating_add(grown).min(most);
        self.counted = self.counted.max(now);
        self.left > 0 && self.free >= Self::BILLION
    }

    /// Counts a failed attempt.
    pub fn failed(&mut self) {
        self.left = self.left.saturating_sub(1);
        self.free = self.free.saturating_sub(Self::BILLION);
    }

    /// Allows the full number of failed decryptions per key again, after a key change.
    pub fn renew(&mut self) {
        self.left = PER_KEY;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Counts failed attempts until no more are allowed, and returns their number.
    fn spent(budget: &mut TrialBudget, now: Time) -> u32 {
        let mut count = 0;
        while budget.allows(now) {
            budget.failed();
            count += 1;
        }
        count
    }

    #[test]
    fn a_second_has_so_many_failures_and_silence_saves_up_no_more() {
        let mut now = Time::from_secs(5);
        let mut budget = TrialBudget::new(now);
        assert_eq!(spent(&mut budget, now), PER_SECOND);
        now += Duration::from_millis(500);
        assert_eq!(spent(&mut budget, now), PER_SECOND / 2);
        now += Duration::from_secs(1_000);
        assert_eq!(spent(&mut budget, now), PER_SECOND);
        assert_eq!(spent(&mut budget, Time::ZERO), 0, "time does not go back");
    }

    #[test]
    fn a_key_has_so_many_failures_and_the_next_key_as_many() {
        let mut now = Time::ZERO;
        let mut budget = TrialBudget::new(now);
        for _ in 0..2 {
            let mut failed = 0;
            for _ in 0..2_000 {
                failed += spent(&mut budget, now);
                now += Duration::from_secs(1);
            }
            assert_eq!(failed, PER_KEY);
            budget.renew();
        }
    }
}
