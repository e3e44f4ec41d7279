//! The circuit that sent least lately goes first (Tang and Goldberg, CCS 2010): web pages pass bulk.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anabranch_multipath::Time;

use super::Policy;

/// C tor's `CircuitPriorityHalflifeMsec`.
const HALF_LIFE: Duration = Duration::from_secs(30);
/// Half-lives after which counts are brought back to small numbers.
const REBASE: f64 = 500.0;

/// Counts cells, each of which weighs half after a half-life.
///
/// Rather than let all counts decay, new cells weigh more and more: only the order matters.
#[derive(Clone, Debug)]
pub struct Ewma {
    half_life: Duration,
    base: Time,
    counts: BTreeMap<u32, f64>,
    /// Those that have cells, least first. Non-negative floats are ordered as their bits are.
    active: BTreeSet<(u64, u32)>,
}

impl Default for Ewma {
    fn default() -> Ewma {
        Ewma::new(HALF_LIFE)
    }
}

impl Ewma {
    /// With this half-life.
    pub fn new(half_life: Duration) -> Ewma {
        Ewma { half_life, base: Time::ZERO, counts: BTreeMap::new(), active: BTreeSet::new() }
    }

    fn key(&self, circuit: u32) -> (u64, u32) {
        (self.counts.get(&circuit).copied().unwrap_or(0.0).to_bits(), circuit)
    }

    fn weight(&mut self, now: Time) -> f64 {
        let age = |base| now.since(base).as_secs_f64() / self.half_life.as_secs_f64();
        let halves = age(self.base);
        if halves < REBASE {
            return halves.exp2();
        }
        let shrink = (-halves).exp2();
        self.counts.values_mut().for_each(|count| *count *= shrink);
        let active: Vec<u32> = self.active.iter().map(|&(_, circuit)| circuit).collect();
        self.active = active.into_iter().map(|circuit| self.key(circuit)).collect();
        self.base = now;
        1.0
    }
}

impl Policy for Ewma {
    fn woke(&mut self, circuit: u32) {
        self.active.insert(self.key(circuit));
    }

    fn next(&mut self) -> Option<u32> {
        self.active.first().map(|&(_, circuit)| circuit)
    }

    fn sent(&mut self, now: Time, circuit: u32, more: bool) {
        let weight = self.weight(now);
        self.active.remove(&self.key(circuit));
        *self.counts.entry(circuit).or_default() += weight;
        if more {
            self.active.insert(self.key(circuit));
        }
    }

    fn gone(&mut self, circuit: u32) {
        self.active.remove(&self.key(circuit));
        self.counts.remove(&circuit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_circuit_passes_a_busy_one() {
        let mut policy = Ewma::default();
        policy.woke(1);
        (0..1000).for_each(|n| policy.sent(Time::from_millis(n), 1, true));
        policy.woke(2);
        for _ in 0..900 {
            assert_eq!(policy.next(), Some(2));
            policy.sent(Time::from_secs(1), 2, true);
        }
    }

    #[test]
    fn what_was_sent_long_ago_weighs_little() {
        let mut policy = Ewma::default();
        policy.woke(1);
        (0..1000).for_each(|_| policy.sent(Time::ZERO, 1, true));
        policy.woke(2);
        let later = Time::from_secs(30 * 600);
        policy.sent(later, 2, true);
        assert_eq!(policy.next(), Some(1));
        policy.sent(later, 1, true);
        policy.sent(later, 1, true);
        assert_eq!(policy.next(), Some(2));
    }
}
