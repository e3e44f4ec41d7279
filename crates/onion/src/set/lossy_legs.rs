//! The legs of a set whose lossy circuits lead to the same exit (mUDP-OR), and the scheduler that
//! chooses the leg of each cell. Its TCP connections do not know of the legs.

use std::time::Duration;

use anabranch_multipath::{Assignment, PathView, Splitter, Time, seed};

use crate::conflux::Dealing;
use crate::wire::conflux::SetNonce;

/// Maximum number of legs of a set.
pub(crate) const MOST_LEGS: usize = 8;
/// Time limit for the exit's answer to a request to link a leg.
pub(crate) const LINKING: Duration = Duration::from_secs(10);

/// One leg.
#[derive(Clone, Copy, Debug)]
struct LossyLeg {
    circuit: u32,
    /// Time of the request to link the leg, until the exit has answered it.
    asked: Option<Time>,
}

/// The legs of one set, in slots that keep their numbers.
pub(crate) struct LossyLegs {
    nonce: SetNonce,
    legs: [Option<LossyLeg>; MOST_LEGS],
    splitter: Splitter,
}

impl LossyLegs {
    /// Returns a set without legs, whose cells are distributed by `dealing`. Returns `None` if the
    /// scheduler needs windows, which lossy circuits do not have, or not that many legs.
    pub(crate) fn new(nonce: SetNonce, dealing: &Dealing, seed: u64) -> Option<LossyLegs> {
        dealing.schedule.check_without_windows().ok()?;
        let dice = move |purpose: &str| seed::stream(seed, 0, purpose);
        let Dealing { schedule, every, redraw } = dealing;
        let splitter = Splitter::drawn(schedule, MOST_LEGS, *every, *redraw, dice).ok()?;
        Some(LossyLegs { nonce, legs: [None; MOST_LEGS], splitter })
    }

    /// Returns the set's nonce.
    pub(crate) fn nonce(&self) -> &SetNonce {
        &self.nonce
    }

    /// Adds a leg. `asked` is the time of the request that the exit must answer before the leg is
    /// used; `None` at the exit. Returns false if there is no room.
    pub(crate) fn add(&mut self, circuit: u32, asked: Option<Time>) -> bool {
        let free = self.legs.iter_mut().find(|leg| leg.is_none());
        free.map(|leg| *leg = Some(LossyLeg { circuit, asked })).is_some()
    }

    /// Notes the exit's answer for the leg `circuit`. Returns the time that it took; `None` if none
    /// was expected.
    pub(crate) fn linked(&mut self, now: Time, circuit: u32) -> Option<Duration> {
        let mut legs = self.legs.iter_mut().flatten();
        let asked = legs.find(|leg| leg.circuit == circuit)?.asked.take()?;
        Some(now.since(asked))
    }

    /// Returns the legs whose requests were not answered in time.
    pub(crate) fn late(&self, now: Time) -> Vec<u32> {
        let is_late = |leg: &&LossyLeg| leg.asked.is_some_and(|asked| now >= asked + LINKING);
        self.legs.iter().flatten().filter(is_late).map(|leg| leg.circuit).collect()
    }

    /// Returns the circuit for the next cell; `None` if no leg is linked.
    pub(crate) fn choose(&mut self, now: Time) -> Option<u32> {
        let view = |leg: &Option<LossyLeg>| match leg {
            Some(LossyLeg { asked: None, .. }) => PathView::open(),
            _ => PathView::dead(),
        };
        let views = self.legs.each_ref().map(view);
        match self.splitter.assign(now, &views, 1) {
            Assignment::Send { path, .. } => Some(self.legs[path.index()]?.circuit),
            Assignment::Hold | Assignment::Nowhere => None,
        }
    }

    /// Returns true if a leg is linked.
    pub(crate) fn is_linked(&self) -> bool {
        self.legs.iter().flatten().any(|leg| leg.asked.is_none())
    }

    /// Removes the leg `circuit`.
    pub(crate) fn lose(&mut self, circuit: u32) {
        for leg in &mut self.legs {
            leg.take_if(|leg| leg.circuit == circuit);
        }
    }

    /// Returns the first leg, linked ones before others; `None` if there is no leg.
    pub(crate) fn first(&self) -> Option<u32> {
        let legs = || self.legs.iter().flatten();
        let linked = legs().find(|leg| leg.asked.is_none());
        linked.or_else(|| legs().next()).map(|leg| leg.circuit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn legs(dealing: &str) -> Option<LossyLegs> {
        let dealing = Dealing::read(dealing, MOST_LEGS)?;
        LossyLegs::new(SetNonce::from([7; 32]), &dealing, 1)
    }

    #[test]
    fn cells_take_turns_in_runs_over_linked_legs() {
        let mut legs = legs("round-robin 2p").unwrap();
        let now = Time::from_secs(1);
        assert!(legs.add(10, None) && legs.add(11, None) && legs.add(12, Some(now)));
        let chosen = |legs: &mut LossyLegs| [(); 8].map(|()| legs.choose(now).unwrap());
        assert_eq!(chosen(&mut legs), [10, 10, 11, 11, 10, 10, 11, 11]);
        assert_eq!(legs.linked(now + LINKING, 12), Some(LINKING));
        assert_eq!(legs.linked(now, 12), None, "once");
        assert_eq!(chosen(&mut legs), [12, 12, 10, 10, 11, 11, 12, 12]);
        legs.lose(11);
        assert!(!chosen(&mut legs).contains(&11));
        assert_eq!(legs.first(), Some(10));
    }

    #[test]
    fn a_leg_that_is_not_answered_is_late_and_unused() {
        let mut legs = legs("uniform 1p").unwrap();
        let now = Time::from_secs(1);
        legs.add(10, Some(now));
        assert_eq!((legs.choose(now), legs.first()), (None, Some(10)));
        assert!(legs.late(now).is_empty());
        assert_eq!(legs.late(now + LINKING), [10]);
    }

    #[test]
    fn schedulers_that_need_windows_and_more_legs_than_slots_are_refused() {
        assert!(legs("pull 1p").is_none() && legs("lowrtt 1p").is_none());
        let mut full = legs("round-robin 1p").unwrap();
        assert!((0..MOST_LEGS as u32).all(|leg| full.add(leg, None)));
        assert!(!full.add(99, None));
    }
}
