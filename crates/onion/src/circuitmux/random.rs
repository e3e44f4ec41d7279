//! Schedules circuits at random, all with the same probability.

use anabranch_multipath::Time;
use anabranch_multipath::seed::{self, Stream};
use rand_core::Rng;

use super::Policy;

/// Scheduler that draws the next circuit at random, with the same probability for each. It is fair
/// only in the long term, and exists for comparison.
#[derive(Clone, Debug)]
pub struct Random {
    dice: Stream,
    circuits: Vec<u32>,
    /// Index, among the circuits with cells to send, of the next circuit; `None` if it is not
    /// chosen yet.
    drawn: Option<usize>,
}

impl Random {
    /// Returns a scheduler with a separate sequence of random numbers for each `link`.
    #[must_use]
    pub fn new(link: u64) -> Random {
        Random { dice: seed::stream(0, link, "circuitmux"), circuits: Vec::new(), drawn: None }
    }

    fn remove(&mut self, circuit: u32) {
        if let Some(place) = self.circuits.iter().position(|other| *other == circuit) {
            self.circuits.swap_remove(place);
            self.drawn = None;
        }
    }
}

impl Policy for Random {
    fn activate(&mut self, circuit: u32) {
        self.circuits.push(circuit);
        self.drawn = None;
    }

    fn next(&mut self) -> Option<u32> {
        if self.drawn.is_none() && !self.circuits.is_empty() {
            // Each circuit's probability is biased by less than 2^-32.
            let place = (u64::from(self.dice.next_u32()) * self.circuits.len() as u64) >> 32;
            self.drawn = Some(place as usize);
        }
        self.drawn.map(|place| self.circuits[place])
    }

    fn sent(&mut self, _now: Time, circuit: u32, more: bool) {
        self.drawn = None;
        if !more {
            self.remove(circuit);
        }
    }

    fn remove(&mut self, circuit: u32) {
        self.remove(circuit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_circuit_has_the_same_chance_and_no_turn() {
        let mut policy = Random::new(7);
        (1..=4).for_each(|circuit| policy.activate(circuit));
        let served: Vec<u32> = (0..4_000)
            .map(|_| {
                let circuit = policy.next().unwrap();
                policy.sent(Time::ZERO, circuit, true);
                circuit
            })
            .collect();
        for circuit in 1..=4 {
            let count = served.iter().filter(|other| **other == circuit).count();
            // The mean is 1,000. The bounds are five standard deviations of 27 each.
            assert!((865..=1_135).contains(&count), "{circuit}: {count}");
        }
        let again = served.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!((800..=1_200).contains(&again), "one in four follows itself: {again}");
    }
}
