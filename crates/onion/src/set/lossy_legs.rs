//! The parallel lossy circuits (legs) of a set, whose cells travel in datagrams, and the scheduler
//! that chooses the leg of each cell. All circuits of a set lead to one exit, as in the published
//! design mUDP-OR.
//!
//! The schedulers of the published mUDP-OR need no windows. With such a scheduler, each TCP
//! connection has one window for all legs. With a scheduler that needs windows, each TCP
//! connection has a separate window on each leg.

use std::time::Duration;

use anabranch_multipath::{Assignment, PathView, Splitter, Time, seed};

use crate::conflux::LegScheduler;
use crate::wire::conflux::SetNonce;

/// Maximum number of parallel circuits (legs) in a set of lossy circuits.
pub(crate) const MOST_LEGS: usize = 8;
/// Time limit for the exit's answer to the client's request to add a circuit to a set.
pub(crate) const LINKING: Duration = Duration::from_secs(10);

/// One of the parallel lossy circuits (legs) of a set.
#[derive(Clone, Copy, Debug)]
struct LossyLeg {
    circuit: u32,
    /// Time of the client's request to link the leg (parallel circuit). `None` once the exit has
    /// answered, and always at the exit.
    requested: Option<Time>,
    /// Time from the client's request to link the leg (parallel circuit) to the exit's answer.
    /// `None` at the exit.
    rtt: Option<Duration>,
}

/// The legs (parallel circuits) of one circuit set. The slot of a leg never changes.
pub(crate) struct LossyLegs {
    nonce: SetNonce,
    legs: [Option<LossyLeg>; MOST_LEGS],
    splitter: Splitter,
    has_windows: bool,
    /// The slot that the scheduler chose last, and the number of cells still to send on it; `None`
    /// if there are none. Used only if the legs (parallel circuits) have windows.
    run: Option<(usize, u64)>,
}

impl LossyLegs {
    /// Returns the state of a circuit set without legs. `nonce` identifies the set. `dealing`
    /// configures the scheduler that distributes cells, and `seed` is the scheduler's only source
    /// of randomness. Returns `None` if this scheduler does not support [`MOST_LEGS`] legs.
    pub(crate) fn new(nonce: SetNonce, dealing: &LegScheduler, seed: u64) -> Option<LossyLegs> {
        let dice = move |purpose: &str| seed::stream(seed, 0, purpose);
        let LegScheduler { schedule, every, redraw } = dealing;
        let splitter = Splitter::drawn(schedule, MOST_LEGS, *every, *redraw, dice).ok()?;
        let has_windows = schedule.family().needs_windows;
        Some(LossyLegs { nonce, legs: [None; MOST_LEGS], splitter, has_windows, run: None })
    }

    /// Returns true if each TCP connection has a separate window on each leg (parallel circuit).
    pub(crate) fn have_windows(&self) -> bool {
        self.has_windows
    }

    /// Returns the slots with legs (parallel circuits) that both ends have linked: bit `n` is set
    /// for slot `n`.
    pub(crate) fn linked(&self) -> u8 {
        let is_linked = |leg: &Option<LossyLeg>| leg.is_some_and(|leg| leg.requested.is_none());
        let legs = self.legs.iter().enumerate().filter(|(_, leg)| is_linked(leg));
        legs.fold(0, |bits, (slot, _)| bits | 1 << slot)
    }

    /// Returns the round-trip time of the leg (parallel circuit) in each slot, measured when the
    /// leg was linked. It is `None` for an empty slot, for a leg that is not linked yet, and
    /// always at the exit.
    pub(crate) fn rtts(&self) -> [Option<Duration>; MOST_LEGS] {
        self.legs.map(|leg| leg?.rtt)
    }

    /// Returns the slot (index) of the circuit `circuit` in the set; `None` if the circuit is not
    /// in the set.
    pub(crate) fn slot(&self, circuit: u32) -> Option<usize> {
        let is_it = |leg: &Option<LossyLeg>| leg.is_some_and(|leg| leg.circuit == circuit);
        self.legs.iter().position(is_it)
    }

    /// Returns the circuit in `slot` if both ends have linked it to the set, otherwise another
    /// linked circuit. Returns `None` if no circuit is linked.
    pub(crate) fn circuit_at(&self, slot: usize) -> Option<u32> {
        let linked = |leg: &Option<LossyLeg>| leg.filter(|leg| leg.requested.is_none());
        let wanted = self.legs.get(slot).and_then(linked);
        wanted.or_else(|| self.legs.iter().find_map(linked)).map(|leg| leg.circuit)
    }

    /// Returns the slot of the leg (parallel circuit) for the next cell of a connection with a
    /// separate window on each leg. `views` describes the connection's legs. `waiting` is the
    /// number of cells that wait to be sent. Returns `None` if these cells must wait longer.
    pub(crate) fn choose_by(
        &mut self,
        now: Time,
        views: &[PathView],
        waiting: u64,
    ) -> Option<usize> {
        if let Some((slot, left)) = self.run.take()
            && views.get(slot).is_some_and(|view| view.usable && view.has_room())
        {
            self.run = (left > 1).then_some((slot, left - 1));
            return Some(slot);
        }
        match self.splitter.assign(now, views, waiting) {
            Assignment::Send { path, units, .. } => {
                self.run = (units > 1).then_some((path.index(), units - 1));
                Some(path.index())
            }
            Assignment::Hold | Assignment::Nowhere => None,
        }
    }

    /// Returns the circuit set's nonce, which identifies the set.
    pub(crate) fn nonce(&self) -> &SetNonce {
        &self.nonce
    }

    /// Adds `circuit` to the set. Returns false if the set is full. At the client, `requested` is
    /// the time of the link request; the circuit is used after the exit has answered this request.
    /// At the exit, `requested` is `None`.
    pub(crate) fn add(&mut self, circuit: u32, requested: Option<Time>) -> bool {
        let free = self.legs.iter_mut().find(|leg| leg.is_none());
        free.map(|leg| *leg = Some(LossyLeg { circuit, requested, rtt: None })).is_some()
    }

    /// Notes that the exit has answered the request to link the leg `circuit` (a circuit of the
    /// set). Returns the time from request to answer, or `None` if no answer was expected.
    pub(crate) fn answered(&mut self, now: Time, circuit: u32) -> Option<Duration> {
        let mut legs = self.legs.iter_mut().flatten();
        let leg = legs.find(|leg| leg.circuit == circuit)?;
        leg.rtt = Some(now.since(leg.requested.take()?));
        leg.rtt
    }

    /// Returns the legs (parallel circuits) for which the exit did not answer in time.
    pub(crate) fn late(&self, now: Time) -> Vec<u32> {
        let is_late =
            |leg: &&LossyLeg| leg.requested.is_some_and(|requested| now >= requested + LINKING);
        self.legs.iter().flatten().filter(is_late).map(|leg| leg.circuit).collect()
    }

    /// Returns the circuit for the next cell; `None` if both ends have not yet linked any circuit
    /// of the set.
    pub(crate) fn choose(&mut self, now: Time) -> Option<u32> {
        let view = |leg: &Option<LossyLeg>| match leg {
            Some(LossyLeg { requested: None, .. }) => PathView::open(),
            _ => PathView::dead(),
        };
        let views = self.legs.each_ref().map(view);
        match self.splitter.assign(now, &views, 1) {
            Assignment::Send { path, .. } => Some(self.legs[path.index()]?.circuit),
            Assignment::Hold | Assignment::Nowhere => None,
        }
    }

    /// Returns true if a leg (parallel circuit) is linked.
    pub(crate) fn is_linked(&self) -> bool {
        self.legs.iter().flatten().any(|leg| leg.requested.is_none())
    }

    /// Removes the circuit `circuit` from the set.
    pub(crate) fn lose(&mut self, circuit: u32) {
        for leg in &mut self.legs {
            leg.take_if(|leg| leg.circuit == circuit);
        }
    }

    /// Returns the first linked leg (parallel circuit), or the first leg if none is linked.
    /// Returns `None` if there is no leg.
    pub(crate) fn first(&self) -> Option<u32> {
        let legs = || self.legs.iter().flatten();
        let linked = legs().find(|leg| leg.requested.is_none());
        linked.or_else(|| legs().next()).map(|leg| leg.circuit)
    }
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::LegView;

    use super::*;

    fn legs(dealing: &str) -> Option<LossyLegs> {
        let dealing = LegScheduler::read(dealing, MOST_LEGS)?;
        LossyLegs::new(SetNonce::from([7; 32]), &dealing, 1)
    }

    #[test]
    fn cells_take_turns_in_runs_over_linked_legs() {
        let mut legs = legs("round-robin 2p").unwrap();
        let now = Time::from_secs(1);
        assert!(legs.add(10, None) && legs.add(11, None) && legs.add(12, Some(now)));
        let chosen = |legs: &mut LossyLegs| [(); 8].map(|()| legs.choose(now).unwrap());
        assert_eq!(chosen(&mut legs), [10, 10, 11, 11, 10, 10, 11, 11]);
        assert_eq!(legs.answered(now + LINKING, 12), Some(LINKING));
        assert_eq!(legs.answered(now, 12), None, "once");
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
    fn a_schedule_with_windows_knows_the_legs_that_are_linked() {
        let mut legs = legs("eta 1p").unwrap();
        let now = Time::from_secs(1);
        assert!(legs.add(10, None) && legs.add(11, Some(now)) && legs.add(12, None));
        assert_eq!((legs.have_windows(), legs.linked()), (true, 0b101));
        assert_eq!((legs.circuit_at(2), legs.circuit_at(1)), (Some(12), Some(10)));
        legs.answered(now + Duration::from_millis(80), 11);
        assert_eq!((legs.linked(), legs.rtts()[1]), (0b111, Some(Duration::from_millis(80))));
        let room = |ms, room| {
            // A leg without room has packets in flight. The scheduler `eta` waits only for such
            // legs.
            let inflight = if room == 0 { 60 } else { 0 };
            let leg = LegView { size: 100, bdp: 50, inflight, ..LegView::NOTHING };
            PathView::leg(Some(Duration::from_millis(ms)), room, leg)
        };
        let views = [room(50, 10), room(20, 0), room(80, 10)];
        assert_eq!(legs.choose_by(now, &views, 1), None, "the quickest has room soon");
        let views = [room(50, 10), room(20, 10), room(80, 10)];
        assert_eq!(legs.choose_by(now, &views, 1), Some(1));
        legs.lose(11);
        assert_eq!((legs.slot(11), legs.slot(12), legs.linked()), (None, Some(2), 0b101));
        assert!(!self::legs("uniform 1p").unwrap().have_windows());
    }

    #[test]
    fn there_are_no_more_legs_than_slots() {
        let mut full = legs("round-robin 1p").unwrap();
        assert!((0..MOST_LEGS as u32).all(|leg| full.add(leg, None)));
        assert!(!full.add(99, None));
    }
}
