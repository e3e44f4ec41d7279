//! Sequence numbers of messages in the design [`Design::Resilient`](super::Design::Resilient)
//! (`docs/spec/resilient-legs.md#numbers`). The circuits of a set are its legs. A *run* is a
//! sequence of consecutive messages on one leg. In short runs, each message carries its sequence
//! number. In long runs, SWITCH messages convey the sequence numbers.

use anabranch_multipath::PathId;

use super::explicit::nearest;
use super::fault::ConfluxFault;
use super::legs::Legs;
use super::numbering::{AHEAD, Bases, Mark, Numbering};
use crate::wire::resilient::LegSwitch;

/// Minimum length of a long run (consecutive messages on one of the parallel circuits), in
/// messages. For a run of this length, both encodings of the sequence numbers cost about one cell:
/// 4 bytes in each message, or one SWITCH message before the run.
const LONG: u64 = 124;
/// Length of a message's sequence number in bytes.
const NUMBER: usize = 4;

/// Scheme of sequence numbers in which each leg (parallel circuit) has one of two states,
/// separately in each direction. In one state, its messages carry the low 32 bits of their
/// sequence numbers, as in [`ExplicitNumbering`](super::ExplicitNumbering). In the other state,
/// the numbers are consecutive and messages do not carry them. SWITCH changes the state, or sets
/// the next of the consecutive sequence numbers.
///
/// A run is a sequence of consecutive messages on one leg. A sender cannot know the length of a
/// run in advance, and assumes that it equals the length of the previous run. After a long run it
/// begins with SWITCH. After a short run it first writes the sequence numbers into messages. It
/// sends SWITCH once these numbers have cost as many bytes as a SWITCH.
#[derive(Debug, Default)]
pub struct Adaptive {
    legs: Legs<LegSequence>,
    sent: u64,
    /// The leg of the present run (consecutive messages on one of the parallel circuits); `None`
    /// before the first message, or after the loss of that leg.
    current: Option<PathId>,
    /// Number of messages in the present run (consecutive messages on one of the parallel
    /// circuits) so far.
    length: u64,
    /// Number of messages in the previous run (consecutive messages on one of the parallel
    /// circuits).
    previous: u64,
}

/// Sequence numbers of the next messages to send and to receive on a leg (parallel circuit). A
/// field is `Some` while the messages are numbered consecutively and do not carry their numbers.
#[derive(Clone, Copy, Debug, Default)]
struct LegSequence {
    sends: Option<u64>,
    receives: Option<u64>,
    /// True if a SWITCH message has arrived and no other message has followed it yet.
    switched: bool,
    /// The highest sequence number of a message received on the leg (parallel circuit).
    highest: u64,
}

impl Adaptive {
    /// Returns a numbering scheme that has no legs (parallel circuits) yet. It supports sending a
    /// message again on another leg after the message was lost with its leg.
    #[must_use]
    pub fn new() -> Adaptive {
        Adaptive::default()
    }

    /// Records that the next message is sent on `leg`. Returns true if the present run
    /// (consecutive messages on this parallel circuit) counts as long, so that SWITCH conveys the
    /// sequence numbers of its messages.
    fn is_in_long_run(&mut self, leg: PathId) -> bool {
        if self.current != Some(leg) {
            (self.previous, self.length) = (self.length, 0);
            self.current = Some(leg);
        }
        self.length += 1;
        self.length > LONG || self.previous >= LONG
    }
}

impl LegSequence {
    /// Returns the encoding that conveys a message's sequence number `number` to the other end.
    /// `by_switch` is true in a long run of consecutive messages on one leg (parallel circuit).
    fn mark(&mut self, number: u64, by_switch: bool) -> Mark {
        let low = number as u32;
        let follows = self.sends == Some(number);
        if follows || by_switch {
            self.sends = Some(number + 1);
            return if follows { Mark::Nothing } else { Mark::Run(low) };
        }
        let bears = low.to_be_bytes();
        if self.sends.take().is_some() { Mark::Singly(bears) } else { Mark::Prefix(bears) }
    }
}

impl Numbering for Adaptive {
    fn name(&self) -> &'static str {
        "anabranch"
    }

    fn turn(&self) -> u64 {
        0
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
        self.current.take_if(|current| *current == leg);
    }

    fn overhead(&self) -> usize {
        NUMBER
    }

    fn send(&mut self, leg: PathId) -> Result<Mark, ConfluxFault> {
        self.legs.get(leg)?;
        let long = self.is_in_long_run(leg);
        self.sent += 1;
        Ok(self.legs.get_mut(leg)?.mark(self.sent, long))
    }

    fn switched(&mut self, _leg: PathId, _by: u32, _next: u64) -> Result<(), ConfluxFault> {
        Err(ConfluxFault::Role)
    }

    fn again(&mut self, leg: PathId, number: u64, spare: usize) -> Result<Mark, ConfluxFault> {
        Ok(self.legs.get_mut(leg)?.mark(number, spare < NUMBER))
    }

    fn renumbered(
        &mut self,
        leg: PathId,
        switch: LegSwitch,
        next: u64,
    ) -> Result<(), ConfluxFault> {
        let numbers = self.legs.get_mut(leg)?;
        let number = nearest(switch.number, next);
        if number > next.saturating_add(AHEAD) {
            return Err(ConfluxFault::TooFar);
        }
        let moves = match numbers.receives {
            Some(follows) => switch.singly || follows != number,
            None => !switch.singly,
        };
        if !moves {
            return Err(ConfluxFault::SwitchZero);
        }
        if numbers.switched {
            return Err(ConfluxFault::SwitchTwice);
        }
        numbers.receives = (!switch.singly).then_some(number);
        numbers.switched = true;
        Ok(())
    }

    fn received<'d>(
        &mut self,
        leg: PathId,
        data: &'d [u8],
        next: u64,
    ) -> Result<(u64, &'d [u8]), ConfluxFault> {
        let numbers = self.legs.get_mut(leg)?;
        let (number, data) = match numbers.receives {
            Some(number) => (number, data),
            None => {
                let (low, data) = data.split_first_chunk().ok_or(ConfluxFault::Unreadable)?;
                (nearest(u32::from_be_bytes(*low), next), data)
            }
        };
        if number > next.saturating_add(AHEAD) {
            return Err(ConfluxFault::TooFar);
        }
        if let Some(follows) = &mut numbers.receives {
            *follows = number.saturating_add(1);
        }
        (numbers.switched, numbers.highest) = (false, numbers.highest.max(number));
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
        self.legs.iter().all(|(_, leg)| leg.highest >= number)
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

    fn end() -> Adaptive {
        let mut end = Adaptive::new();
        [ONE, TWO].iter().for_each(|leg| end.join(*leg, Bases::default()).unwrap());
        end
    }

    #[test]
    fn short_runs_bear_numbers_and_long_ones_are_told_by_switch() {
        let mut end = end();
        let bears = |number: u32| Ok(Mark::Prefix(number.to_be_bytes()));
        (1..=124).for_each(|number| assert_eq!(end.send(ONE), bears(number)));
        assert_eq!(end.send(ONE), Ok(Mark::Run(125)));
        assert_eq!(end.send(ONE), Ok(Mark::Nothing));
        assert_eq!(end.send(TWO), Ok(Mark::Run(127)), "the run before was long");
        assert_eq!(end.send(TWO), Ok(Mark::Nothing));
        assert_eq!(end.send(ONE), Ok(Mark::Singly(129u32.to_be_bytes())), "it was short");
        assert_eq!(end.send(ONE), bears(130));
        assert_eq!(end.last_sent(), 130);
    }

    #[test]
    fn what_is_sent_again_bears_its_number_if_it_has_room_for_it() {
        let mut end = end();
        assert_eq!(end.again(ONE, 7, 4), Ok(Mark::Prefix([0, 0, 0, 7])));
        assert_eq!(end.again(ONE, 8, 3), Ok(Mark::Run(8)));
        assert_eq!(end.again(ONE, 9, 0), Ok(Mark::Nothing));
        assert_eq!(end.again(ONE, 12, 0), Ok(Mark::Run(12)));
        assert_eq!(end.again(ONE, 20, 4), Ok(Mark::Singly([0, 0, 0, 20])));
        assert_eq!(end.again(PathId(5), 20, 4), Err(ConfluxFault::NotLinked));
        assert_eq!(end.last_sent(), 0, "nothing new was sent");
    }

    #[test]
    fn a_receiver_follows_and_refuses_a_switch_that_moves_nothing() {
        let mut end = end();
        let switch = |singly, number| LegSwitch { singly, number };
        assert_eq!(end.renumbered(ONE, switch(true, 1), 1), Err(ConfluxFault::SwitchZero));
        assert_eq!(end.renumbered(ONE, switch(false, 1 << 25), 1), Err(ConfluxFault::TooFar));
        assert_eq!(end.renumbered(ONE, switch(false, 5), 1), Ok(()));
        assert_eq!(end.renumbered(ONE, switch(false, 9), 1), Err(ConfluxFault::SwitchTwice));
        assert_eq!(end.received(ONE, b"abc", 1), Ok((5, &b"abc"[..])));
        assert_eq!(end.received(ONE, b"", 1), Ok((6, &b""[..])));
        assert_eq!(end.renumbered(ONE, switch(false, 7), 1), Err(ConfluxFault::SwitchZero));
        assert_eq!(end.renumbered(ONE, switch(true, 3), 1), Ok(()));
        assert_eq!(end.received(ONE, &[0, 0, 0, 3, 8], 1), Ok((3, &[8][..])));
        assert_eq!(end.received(ONE, &[0, 0, 3], 1), Err(ConfluxFault::Unreadable));
        assert_eq!(end.switched(ONE, 1, 1), Err(ConfluxFault::Role));
        assert!(!end.passed(3) && !end.leads(ONE));
    }
}
