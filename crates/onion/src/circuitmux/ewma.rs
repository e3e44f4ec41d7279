//! Scheduler that serves the circuit with the fewest recently sent cells first. Web pages thus
//! overtake bulk transfers (Tang and Goldberg, CCS 2010).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anabranch_multipath::Time;

use super::Policy;

/// Half-life of the counts of sent cells: C tor's default of `CircuitPriorityHalflifeMsec`.
const HALF_LIFE: Duration = Duration::from_secs(30);
/// Number of half-lives after which all counts and the weight are scaled down to prevent overflow.
const REBASE: f64 = 500.0;

/// Scheduler that prefers the circuit with the lowest count of sent cells. The weight of a cell in
/// this count halves after each half-life.
///
/// Only the order of the counts matters. Instead of reducing all counts over time, the scheduler
/// increases the weight of new cells.
///
/// A busy circuit often sends many cells in a row. The field `front` therefore holds the next
/// circuit, and an ordered set holds the others. The circuit stays in `front` until another
/// circuit has a lower count.
#[derive(Clone, Debug)]
pub struct Ewma {
    half_life: Duration,
    base: Time,
    /// Weight of a cell that is sent now (second value), and the time for which this weight was
    /// computed (first value).
    weight: (Time, f64),
    /// Counts of all circuits that have sent cells. For the circuit in `front` the count here is
    /// outdated; the rank in `front` contains the current count.
    counts: BTreeMap<u32, f64>,
    /// The circuit that sends the next cell, if it is known.
    front: Option<Rank>,
    /// Circuits that have cells to send, except the circuit in `front`.
    waiting: BTreeSet<Rank>,
}

/// A circuit's rank: the bits of its count (a float), and its ID. The bits of non-negative floats
/// have the same order as the floats.
type Rank = (u64, u32);

impl Default for Ewma {
    fn default() -> Ewma {
        Ewma::new(HALF_LIFE)
    }
}

impl Ewma {
    /// Returns a scheduler with this half-life.
    pub fn new(half_life: Duration) -> Ewma {
        Ewma {
            half_life,
            base: Time::ZERO,
            weight: (Time::ZERO, 1.0),
            counts: BTreeMap::new(),
            front: None,
            waiting: BTreeSet::new(),
        }
    }

    fn rank(&self, circuit: u32) -> Rank {
        (self.counts.get(&circuit).copied().unwrap_or(0.0).to_bits(), circuit)
    }

    /// Puts the circuit in `front` back into the ordered set of circuits with cells.
    fn put_back(&mut self) {
        if let Some((count, circuit)) = self.front.take() {
            self.counts.insert(circuit, f64::from_bits(count));
            self.waiting.insert((count, circuit));
        }
    }

    /// Removes `circuit` from the ordered set of circuits with cells, and returns its rank.
    fn take(&mut self, circuit: u32) -> Rank {
        if let Some(front) = self.front.take_if(|(_, front)| *front == circuit) {
            return front;
        }
        self.put_back();
        let rank = self.rank(circuit);
        self.waiting.remove(&rank);
        rank
    }

    fn weigh(&mut self, now: Time) -> f64 {
        let (at, weight) = self.weight;
        if at == now {
            return weight;
        }
        let mut halves = now.since(self.base).as_secs_f64() / self.half_life.as_secs_f64();
        if halves >= REBASE {
            self.rebase(now, (-halves).exp2());
            halves = 0.0;
        }
        self.weight = (now, halves.exp2());
        self.weight.1
    }

    fn rebase(&mut self, now: Time, shrink: f64) {
        self.put_back();
        self.counts.values_mut().for_each(|count| *count *= shrink);
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting = waiting.into_iter().map(|(_, circuit)| self.rank(circuit)).collect();
        self.base = now;
    }
}

impl Policy for Ewma {
    fn activate(&mut self, circuit: u32) {
        let rank = self.rank(circuit);
        match self.front {
            None if self.waiting.is_empty() => self.front = Some(rank),
            _ => drop(self.waiting.insert(rank)),
        }
    }

    fn next(&mut self) -> Option<u32> {
        let first = self.waiting.first().copied();
        if let Some(first) = first.filter(|first| self.front.is_none_or(|front| *first < front)) {
            self.waiting.pop_first();
            self.put_back();
            self.front = Some(first);
        }
        self.front.map(|(_, circuit)| circuit)
    }

    fn sent(&mut self, now: Time, circuit: u32, more: bool) {
        let weight = self.weigh(now);
        let (count, _) = self.take(circuit);
        let count = f64::from_bits(count) + weight;
        match more {
            true => self.front = Some((count.to_bits(), circuit)),
            false => drop(self.counts.insert(circuit, count)),
        }
    }

    fn remove(&mut self, circuit: u32) {
        self.take(circuit);
        self.counts.remove(&circuit);
    }
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed;
    use rand::RngExt;

    use super::*;

    #[test]
    fn a_quiet_circuit_passes_a_busy_one() {
        let mut policy = Ewma::default();
        policy.activate(1);
        (0..1000).for_each(|n| policy.sent(Time::from_millis(n), 1, true));
        policy.activate(2);
        for _ in 0..900 {
            assert_eq!(policy.next(), Some(2));
            policy.sent(Time::from_secs(1), 2, true);
        }
    }

    #[test]
    fn what_was_sent_long_ago_weighs_little() {
        let mut policy = Ewma::default();
        policy.activate(1);
        (0..1000).for_each(|_| policy.sent(Time::ZERO, 1, true));
        policy.activate(2);
        let later = Time::from_secs(30 * 600);
        policy.sent(later, 2, true);
        assert_eq!(policy.next(), Some(1));
        policy.sent(later, 1, true);
        policy.sent(later, 1, true);
        assert_eq!(policy.next(), Some(2));
    }

    /// Reference for the tests: chooses the circuit with the lowest count, as [`Ewma`] does, by a
    /// search through all circuits for each cell.
    #[derive(Default)]
    struct ReferenceScheduler {
        counts: BTreeMap<u32, f64>,
        active: BTreeSet<u32>,
    }

    impl ReferenceScheduler {
        fn next(&self) -> Option<u32> {
            let count = |circuit: &u32| self.counts.get(circuit).copied().unwrap_or(0.0);
            let least = |a: &u32, b: &u32| count(a).total_cmp(&count(b)).then(a.cmp(b));
            self.active.iter().copied().min_by(least)
        }
    }

    #[test]
    fn whatever_happens_the_least_goes_first() {
        let mut rng = seed::stream(1, 0, "ewma");
        // During the test, all counts are scaled down once.
        let half_life = Duration::from_millis(30);
        let (mut policy, mut reference) = (Ewma::new(half_life), ReferenceScheduler::default());
        let mut now = Time::ZERO;
        let mut served = BTreeSet::new();
        for step in 0..20_000 {
            now += Duration::from_millis(rng.random_range(0..3));
            let circuit = rng.random_range(0..6);
            match rng.random_range(0..8) {
                0..2 if reference.active.insert(circuit) => policy.activate(circuit),
                2 if rng.random_range(0..20) == 0 => {
                    policy.remove(circuit);
                    reference.active.remove(&circuit);
                    reference.counts.remove(&circuit);
                }
                _ => {
                    assert_eq!(policy.next(), reference.next(), "step {step}");
                    let Some(circuit) = reference.next() else { continue };
                    let more = rng.random_range(0..10) > 0;
                    policy.sent(now, circuit, more);
                    let weight = (now.secs_f64() / half_life.as_secs_f64()).exp2();
                    *reference.counts.entry(circuit).or_default() += weight;
                    if !more {
                        reference.active.remove(&circuit);
                    }
                    served.insert(circuit);
                }
            }
        }
        assert_eq!(served.len(), 6);
        assert!(now.secs_f64() > REBASE * half_life.as_secs_f64());
    }
}
