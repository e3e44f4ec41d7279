//! Which circuit's cell a link sends next.
//!
//! A policy is one [`Policy`]: [`RoundRobin`], or [`Ewma`], which prefers quiet circuits.

use anabranch_multipath::Time;

mod ewma;
mod round_robin;

pub use ewma::Ewma;
pub use round_robin::RoundRobin;

/// An order among the circuits of one link that have cells to send. Circuits are named by their ID
/// on the link.
pub trait Policy: Send {
    /// A circuit has cells from now on.
    fn woke(&mut self, circuit: u32);
    /// The circuit whose cell goes next; it stays among those that have cells.
    fn next(&mut self) -> Option<u32>;
    /// The circuit that [`next`](Policy::next) named sent a cell, and has more of them or not.
    fn sent(&mut self, now: Time, circuit: u32, more: bool);
    /// The circuit is gone.
    fn gone(&mut self, circuit: u32);
}

/// The policies by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// [`RoundRobin`].
    RoundRobin,
    /// [`Ewma`] with C tor's half-life.
    #[default]
    Ewma,
}

impl Kind {
    /// The policy for a new link.
    pub fn policy(self) -> Box<dyn Policy> {
        match self {
            Kind::RoundRobin => Box::new(RoundRobin::default()),
            Kind::Ewma => Box::new(Ewma::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What any policy must hold.
    fn conforms(kind: Kind) {
        let mut policy = kind.policy();
        assert_eq!(policy.next(), None);
        [3, 1, 2].into_iter().for_each(|circuit| policy.woke(circuit));
        let mut served = Vec::new();
        for turn in 0..6 {
            let circuit = policy.next().unwrap();
            assert_eq!(policy.next(), Some(circuit), "asking changes nothing");
            policy.sent(Time::from_millis(turn), circuit, turn < 3);
            served.push(circuit);
        }
        served.sort_unstable();
        assert_eq!(served, [1, 1, 2, 2, 3, 3], "equals are served equally");
        assert_eq!(policy.next(), None, "nobody has cells");
        policy.woke(7);
        policy.woke(8);
        policy.gone(7);
        assert_eq!(policy.next(), Some(8));
        policy.gone(8);
        assert_eq!(policy.next(), None);
    }

    #[test]
    fn every_policy_serves_who_has_cells() {
        conforms(Kind::RoundRobin);
        conforms(Kind::Ewma);
    }
}
