//! The population of entry relays over a simulated year. The population consists of places with a
//! fixed weight. When a relay leaves the network, another relay of the same weight takes its
//! place. Relays and places are identified by indices.

use anabranch_multipath::seed::Stream;
use anabranch_onion::directory::network::{Network, Position};
use anabranch_onion::draw::below;
use anabranch_onion::guards::Listing;
use rand_core::Rng;

/// Length of a day in seconds.
pub const DAY: u64 = 86_400;
/// Maximum number of random draws in search of a relay that is not already taken. After that, the
/// relay is drawn from a list of the relays that are not taken, which is slower.
const TRIES: usize = 64;

/// The population of entry relays over a simulated year. It has a fixed number of places
/// (positions), and each place has one relay at a time. A relay is identified by the index of its
/// `RelayLifetime` in `lives`.
#[derive(Clone, Debug)]
pub struct Population {
    /// Cumulative weights of the places (positions of relays). Entry `n` is the total weight of
    /// the places before `n`, so the first entry is 0.
    sums: Vec<u64>,
    /// For each place, the index of its first relay in `lives`. The later relays of the place have
    /// the next indices. The last element is the number of all relays.
    first: Vec<u32>,
    lives: Vec<RelayLifetime>,
}

/// The time of a relay in the network: its place in the population, and the times at which it
/// joins and leaves the network, in seconds.
#[derive(Clone, Copy, Debug)]
struct RelayLifetime {
    place: u32,
    born: u64,
    gone: u64,
}

/// The relays that are in the network at one moment of the simulated year.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The population of relays.
    pub population: &'a Population,
    /// Simulated time in seconds, counted from the beginning of the population.
    pub now: u64,
}

/// Returns the identities and weights of the relays that may be entries and have a weight above
/// zero. Other relays are never chosen as entries.
#[must_use]
pub fn entries(network: &Network) -> Vec<([u8; 20], u64)> {
    let mut all = network.weights(Position::Guard);
    all.retain(|(_, weight)| *weight > 0);
    all
}

impl Population {
    /// Creates a population with one relay for each entry of `weights`. The relays never leave the
    /// network. A relay and its place have the same index.
    #[must_use]
    pub fn still(weights: &[u64]) -> Population {
        Population::of(weights, |_| vec![u64::MAX])
    }

    /// Creates a population in which relays leave and are replaced, over `days` days. It has a
    /// place for each entry of `weights`. A relay leaves after an exponentially distributed time
    /// with a mean of `mean` days, and another relay takes its place. If `stays[i]` is true, the
    /// relay of place `i` never leaves.
    #[must_use]
    pub fn with_churn(
        weights: &[u64],
        (mean, days): (f64, u64),
        stays: &[bool],
        rng: &mut Stream,
    ) -> Population {
        Population::of(weights, |place| {
            let (mut ends, mut now) = (Vec::new(), 0);
            let leaves = !stays.get(place).copied().unwrap_or(false);
            while leaves && now <= days * DAY {
                // The value is above 0 and at most 1, so that no time is infinite.
                let even = ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
                now += 1 + (-even.ln() * mean * DAY as f64) as u64;
                ends.push(now);
            }
            ends.push(u64::MAX);
            ends
        })
    }

    fn of(weights: &[u64], mut ends: impl FnMut(usize) -> Vec<u64>) -> Population {
        let mut population = Population { sums: vec![0], first: vec![0], lives: Vec::new() };
        for (place, &weight) in weights.iter().enumerate() {
            let mut born = 0;
            for gone in ends(place) {
                population.lives.push(RelayLifetime { place: number(place), born, gone });
                born = gone;
            }
            population.sums.push(population.sums[place] + weight);
            population.first.push(number(population.lives.len()));
        }
        population
    }

    /// Returns the place (position in the population) that a relay has or had.
    #[must_use]
    pub fn place(&self, relay: u32) -> usize {
        self.lives[relay as usize].place as usize
    }

    /// Returns the time at which `relay` leaves the network, in seconds from the beginning of the
    /// population; `u64::MAX` if it never leaves.
    #[must_use]
    pub fn gone(&self, relay: u32) -> u64 {
        self.lives[relay as usize].gone
    }

    /// Returns the relay that is at the index `place` of the population at time `now`.
    fn holder(&self, place: usize, now: u64) -> u32 {
        let lives = &self.lives[self.first[place] as usize..self.first[place + 1] as usize];
        self.first[place] + number(lives.partition_point(|life| life.gone <= now))
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("relays are fewer than 2^32")
}

impl Listing<u32> for Moment<'_> {
    fn count(&self) -> usize {
        self.population.first.len() - 1
    }

    fn lists(&self, relay: u32) -> bool {
        let life = self.population.lives[relay as usize];
        (life.born..life.gone).contains(&self.now)
    }

    fn allows(&self, _: u32) -> bool {
        true
    }

    fn draw(&self, taken: &dyn Fn(u32) -> bool, rng: &mut dyn Rng) -> Option<u32> {
        let sums = &self.population.sums;
        let total = *sums.last()?;
        if total == 0 {
            return None;
        }
        let drawn = (0..TRIES).find_map(|_| {
            let point = below(total, rng);
            let place = sums.partition_point(|&sum| sum <= point) - 1;
            Some(self.population.holder(place, self.now)).filter(|&relay| !taken(relay))
        });
        drawn.or_else(|| self.weigh(taken, rng))
    }
}

impl Moment<'_> {
    fn weigh(&self, taken: &dyn Fn(u32) -> bool, rng: &mut dyn Rng) -> Option<u32> {
        let sums = &self.population.sums;
        let free: Vec<(u32, u64)> = (0..self.count())
            .map(|place| (self.population.holder(place, self.now), sums[place + 1] - sums[place]))
            .filter(|(relay, weight)| *weight > 0 && !taken(*relay))
            .collect();
        let total: u64 = free.iter().map(|(_, weight)| weight).sum();
        let mut left = below(total.max(1), rng);
        let found = free.iter().find(|(_, weight)| {
            let here = left < *weight;
            left = left.saturating_sub(*weight);
            here
        });
        found.map(|(relay, _)| *relay)
    }
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed::stream;

    use super::*;

    #[test]
    fn relays_are_drawn_by_weight_and_none_that_is_taken() {
        let population = Population::still(&[1, 0, 3, 6]);
        let (now, mut rng) = (Moment { population: &population, now: 5 }, stream(1, 0, "town"));
        let mut counts = [0; 4];
        (0..10_000).for_each(|_| counts[now.draw(&|_| false, &mut rng).unwrap() as usize] += 1);
        assert!((900..1100).contains(&counts[0]) && counts[1] == 0, "{counts:?}");
        assert!((5800..6200).contains(&counts[3]), "{counts:?}");
        assert_eq!(now.draw(&|relay| relay != 0, &mut rng), Some(0));
        assert_eq!(now.draw(&|relay| relay != 1, &mut rng), None, "it has no weight");
    }

    #[test]
    fn who_goes_leaves_the_place_to_another_and_who_stays_does_not() {
        let mut rng = stream(2, 0, "town");
        let mut periods = vec![false; 1000];
        periods[..100].fill(true);
        let population = Population::with_churn(&[1; 1000], (300.0, 365), &periods, &mut rng);
        let at = |day: u64| Moment { population: &population, now: day * DAY };
        for place in 0..1000 {
            let holders = [0, 100, 365].map(|day| population.holder(place, day * DAY));
            assert!(holders.iter().zip([0, 100, 365]).all(|(&id, day)| at(day).lists(id)));
            assert!(holders.iter().all(|&id| population.place(id) == place));
            assert!(place >= 100 || holders[0] == holders[2]);
        }
        let stayed = (100..1000)
            .filter(|&place| population.holder(place, 30 * DAY) == population.first[place]);
        let share = stayed.count() as f64 / 900.0;
        assert!((0.87..0.94).contains(&share), "e^-0.1 are still there after 30 days: {share}");
    }
}
