//! Sequence numbers of cells that pass a relay where the circuits (legs) of a set join
//! (`docs/spec/middle-merge.md#numbers`).

use anabranch_multipath::PathId;

use super::explicit::nearest;
use super::fault::ConfluxFault;
use super::legs::Legs;
use super::numbering::{AHEAD, Bases, Mark, Numbering};
use crate::wire::resilient::LegSwitch;

/// Numbering scheme for cells that have no room for a sequence number. Consecutive cells on a leg
/// (parallel circuit) have consecutive sequence numbers, from 1. A SWITCH message sets the
/// sequence number of the leg's next cell.
#[derive(Debug, Default)]
pub struct Runs {
    legs: Legs<LegSequence>,
    sent: u64,
}

/// The sequence numbers of the next cells to send and to receive on a leg (parallel circuit).
#[derive(Clone, Copy, Debug)]
struct LegSequence {
    sends: u64,
    receives: u64,
    /// True if a SWITCH message has arrived and no cell has followed it yet.
    switched: bool,
}

impl Default for LegSequence {
    fn default() -> LegSequence {
        LegSequence { sends: 1, receives: 1, switched: false }
    }
}

impl LegSequence {
    /// Returns the encoding that conveys the cell's sequence number `number` to the other end.
    fn mark(&mut self, number: u64) -> Mark {
        let follows = self.sends == number;
        self.sends = number + 1;
        if follows { Mark::Nothing } else { Mark::Run(number as u32) }
    }
}

impl Runs {
    /// Returns a numbering scheme that has no legs (parallel circuits) yet. It supports sending a
    /// cell again on another leg after the cell was lost with its leg.
    #[must_use]
    pub fn new() -> Runs {
        Runs::default()
    }
}

impl Numbering for Runs {
    fn name(&self) -> &'static str {
        "merged"
    }

    fn turn(&self) -> u64 {
        1
    }

    fn join(&mut self, leg: PathId, bases: Bases) -> Result<(), ConfluxFault> {
        if bases.sent > self.sent {
            return Err(ConfluxFault::DataLoss);
        }
        self.legs.set(leg, LegSequence::default());
        Ok(())
    }

    fn leave(&mut self, leg: PathId) {
        self.legs.remove(leg);
    }

    fn overhead(&self) -> usize {
        0
    }

    fn send(&mut self, leg: PathId) -> Result<Mark, ConfluxFault> {
        let numbers = self.legs.get_mut(leg)?;
        self.sent += 1;
        Ok(numbers.mark(self.sent))
    }

    fn switched(&mut self, _leg: PathId, _by: u32, _next: u64) -> Result<(), ConfluxFault> {
        Err(ConfluxFault::Role)
    }

    fn again(&mut self, leg: PathId, number: u64, _spare: usize) -> Result<Mark, ConfluxFault> {
        Ok(self.legs.get_mut(leg)?.mark(number))
    }

    fn renumbered(
        &mut self,
        leg: PathId,
        switch: LegSwitch,
        next: u64,
    ) -> Result<(), ConfluxFault> {
        let numbers = self.legs.get_mut(leg)?;
        let number = nearest(switch.number, next);
        if switch.singly {
            return Err(ConfluxFault::Unreadable);
        }
        if number > next.saturating_add(AHEAD) {
            return Err(ConfluxFault::TooFar);
        }
        if number == numbers.receives {
            return Err(ConfluxFault::SwitchZero);
        }
        if numbers.switched {
            return Err(ConfluxFault::SwitchTwice);
        }
        (numbers.receives, numbers.switched) = (number, true);
        Ok(())
    }

    fn received<'d>(
        &mut self,
        leg: PathId,
        data: &'d [u8],
        next: u64,
    ) -> Result<(u64, &'d [u8]), ConfluxFault> {
        let numbers = self.legs.get_mut(leg)?;
        let number = numbers.receives;
        if number > next.saturating_add(AHEAD) {
            return Err(ConfluxFault::TooFar);
        }
        (numbers.receives, numbers.switched) = (number.saturating_add(1), false);
        Ok((number, data))
    }

    fn resends(&self) -> bool {
        true
    }

    fn leads(&self, _leg: PathId) -> bool {
        false
    }

    fn backlog(&self, _leg: PathId) -> u64 {
        0
    }

    fn passed(&self, number: u64) -> bool {
        self.legs.iter().all(|(_, leg)| leg.receives > number)
    }

    fn last_sent(&self) -> u64 {
        self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: PathId = PathId(0);
    const TWO: PathId = PathId(1);

    fn end() -> Runs {
        let mut end = Runs::new();
        [ONE, TWO].iter().for_each(|leg| end.join(*leg, Bases::default()).unwrap());
        end
    }

    #[test]
    fn a_change_of_legs_is_told_and_what_follows_on_a_leg_is_not() {
        let mut end = end();
        assert_eq!([end.send(ONE), end.send(ONE)], [Ok(Mark::Nothing); 2]);
        assert_eq!([end.send(TWO), end.send(TWO)], [Ok(Mark::Run(3)), Ok(Mark::Nothing)]);
        assert_eq!(end.send(ONE), Ok(Mark::Run(5)));
        assert_eq!(end.again(TWO, 2, 0), Ok(Mark::Run(2)), "it is sent again");
        assert_eq!(end.again(TWO, 3, 0), Ok(Mark::Nothing));
        assert_eq!(end.send(TWO), Ok(Mark::Run(6)));
        assert_eq!(
            (end.again(PathId(5), 1, 0), end.last_sent()),
            (Err(ConfluxFault::NotLinked), 6)
        );
    }

    #[test]
    fn a_receiver_counts_on_and_refuses_a_switch_that_moves_nothing() {
        let mut end = end();
        let run = |number| LegSwitch { singly: false, number };
        assert_eq!(end.renumbered(ONE, run(1), 1), Err(ConfluxFault::SwitchZero));
        assert_eq!(end.renumbered(ONE, run(1 << 25), 1), Err(ConfluxFault::TooFar));
        let singly = LegSwitch { singly: true, number: 7 };
        assert_eq!(end.renumbered(ONE, singly, 1), Err(ConfluxFault::Unreadable));
        assert_eq!(end.renumbered(ONE, run(5), 1), Ok(()));
        assert_eq!(end.renumbered(ONE, run(9), 1), Err(ConfluxFault::SwitchTwice));
        assert_eq!(end.received(ONE, b"abc", 1), Ok((5, &b"abc"[..])));
        assert_eq!(end.received(ONE, b"", 1), Ok((6, &b""[..])));
        assert_eq!(end.received(TWO, b"", 1), Ok((1, &b""[..])));
        assert_eq!(end.switched(ONE, 1, 1), Err(ConfluxFault::Role));
        assert!(end.passed(1) && !end.passed(2) && !end.leads(ONE));
    }
}
