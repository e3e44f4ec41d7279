//! Schedulers of circuits, which choose the circuit whose cell a link sends next.
//!
//! A scheduler implements [`Policy`]. [`RoundRobin`] and [`Random`] treat all circuits alike.
//! [`Ewma`] prefers circuits with little recent traffic. [`Kist`] has the same preference, but
//! keeps cells queued until the kernel has room for them. The order of the queued cells can change
//! until then.

use anabranch_multipath::Time;

mod ewma;
pub mod kist;
mod random;
mod round_robin;

pub use ewma::Ewma;
pub use kist::Kist;
pub use random::Random;
pub use round_robin::RoundRobin;

/// Scheduler of the circuits of one link. A circuit is identified by its ID on the link.
pub trait Policy: Send {
    /// Adds a circuit that now has cells to send.
    fn activate(&mut self, circuit: u32);
    /// Returns the circuit whose cell is sent next. The circuit stays in the set of circuits with
    /// cells. Returns `None` if no circuit has cells.
    fn next(&mut self) -> Option<u32>;
    /// Records that a cell of `circuit` was sent, after [`next`](Policy::next) had returned
    /// `circuit`. `more` is true if the circuit has further cells.
    fn sent(&mut self, now: Time, circuit: u32, more: bool);
    /// Removes a closed circuit.
    fn remove(&mut self, circuit: u32);
}

/// The available scheduling policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// The scheduler [`RoundRobin`].
    RoundRobin,
    /// The scheduler [`Random`].
    Random,
    /// The scheduler [`Ewma`] with C tor's half-life.
    #[default]
    Ewma,
    /// The scheduler [`Kist`].
    Kist,
}

impl Kind {
    /// Returns a scheduler with this policy for the new link with the index `link`.
    pub fn policy(self, link: u64) -> Box<dyn Policy> {
        match self {
            Kind::RoundRobin => Box::new(RoundRobin::default()),
            Kind::Random => Box::new(Random::new(link)),
            Kind::Ewma => Box::new(Ewma::default()),
            Kind::Kist => Box::new(Kist::default()),
        }
    }

    /// Returns true if the policy keeps cells queued until the kernel has [room](kist::room) for
    /// them.
    pub fn waits_for_room(self) -> bool {
        self == Kind::Kist
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Kind; 4] = [Kind::RoundRobin, Kind::Random, Kind::Ewma, Kind::Kist];

    #[test]
    fn every_policy_serves_who_has_cells_and_nobody_else() {
        for kind in ALL {
            let mut policy = kind.policy(1);
            assert_eq!(policy.next(), None);
            let mut left = [0, 2, 2, 2];
            [3, 1, 2].into_iter().for_each(|circuit| policy.activate(circuit));
            for turn in 0..6 {
                let circuit = policy.next().unwrap();
                assert_eq!(policy.next(), Some(circuit), "asking changes nothing: {kind:?}");
                left[circuit as usize] -= 1;
                policy.sent(Time::from_millis(turn), circuit, left[circuit as usize] > 0);
            }
            assert_eq!(left, [0; 4], "{kind:?}");
            assert_eq!(policy.next(), None, "nobody has cells: {kind:?}");
            policy.activate(7);
            policy.activate(8);
            policy.remove(7);
            assert_eq!(policy.next(), Some(8));
            policy.remove(8);
            assert_eq!(policy.next(), None);
        }
    }

    #[test]
    fn every_policy_but_chance_serves_equals_equally() {
        for kind in ALL.into_iter().filter(|kind| *kind != Kind::Random) {
            let mut policy = kind.policy(1);
            [3, 1, 2].into_iter().for_each(|circuit| policy.activate(circuit));
            let served: Vec<u32> = (0..3)
                .map(|turn| {
                    let circuit = policy.next().unwrap();
                    policy.sent(Time::from_millis(turn), circuit, true);
                    circuit
                })
                .collect();
            let mut sorted = served.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [1, 2, 3], "{kind:?}: {served:?}");
        }
    }
}
