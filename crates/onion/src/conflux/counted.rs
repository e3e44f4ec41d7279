//! Sequence numbers of messages in proposal 329. Each leg (parallel circuit) counts its messages.
//! A SWITCH message carries the lag of its leg: the number of messages sent on other legs since
//! the last message on this leg.

use anabranch_multipath::PathId;

use super::fault::ConfluxFault;
use super::legs::Legs;
use super::numbering::{AHEAD, Bases, Mark, Numbering};

/// Counters of one leg (parallel circuit).
#[derive(Clone, Copy, Debug)]
struct Counters {
    bases: Bases,
    /// True if a SWITCH message has arrived and no other message has followed it yet.
    switched: bool,
}

/// Scheme of sequence numbers of proposal 329 (section 3; C tor's `last_seq_sent` and
/// `last_seq_recv`).
///
/// The leg (parallel circuit) that was used last always has the highest sequence number sent.
/// Before a sender changes to another leg, it sends SWITCH on the new leg. SWITCH contains the new
/// leg's lag (its distance from the highest sequence number sent), and raises the new leg's
/// sequence number by this lag. A message follows every SWITCH, and the lag in SWITCH is never 0.
/// Arti's receivers require both properties, although C tor's senders do not guarantee them.
#[derive(Debug, Default)]
pub struct CountedNumbering {
    legs: Legs<Counters>,
    sent: u64,
}

impl CountedNumbering {
    /// Returns a numbering scheme that has no legs (parallel circuits) yet.
    #[must_use]
    pub fn new() -> CountedNumbering {
        CountedNumbering::default()
    }
}

impl Numbering for CountedNumbering {
    fn name(&self) -> &'static str {
        "conflux"
    }

    /// Returns 1: a change from one leg (parallel circuit) to another costs one SWITCH cell.
    fn turn(&self) -> u64 {
        1
    }

    fn join(&mut self, leg: PathId, bases: Bases) -> Result<(), ConfluxFault> {
        if bases.sent > self.sent {
            return Err(ConfluxFault::DataLoss);
        }
        self.legs.set(leg, Counters { bases, switched: false });
        Ok(())
    }

    fn leave(&mut self, leg: PathId) {
        self.legs.remove(leg);
    }

    fn overhead(&self) -> usize {
        0
    }

    fn send(&mut self, leg: PathId) -> Result<Mark, ConfluxFault> {
        let last = self.sent;
        let counters = self.legs.get_mut(leg)?;
        let gap = last.checked_sub(counters.bases.sent).ok_or(ConfluxFault::Incoherent)?;
        let gap = u32::try_from(gap).ok().filter(|by| *by < u32::MAX);
        let by = gap.ok_or(ConfluxFault::Incoherent)?;
        counters.bases.sent = last + 1;
        self.sent = last + 1;
        Ok(if by == 0 { Mark::Nothing } else { Mark::Switch(by) })
    }

    fn switched(&mut self, leg: PathId, by: u32, next: u64) -> Result<(), ConfluxFault> {
        let counters = self.legs.get_mut(leg)?;
        let received = counters.bases.received.saturating_add(by.into());
        if by == 0 {
            return Err(ConfluxFault::SwitchZero);
        }
        if counters.switched {
            return Err(ConfluxFault::SwitchTwice);
        }
        if received > next.saturating_add(AHEAD) {
            return Err(ConfluxFault::TooFar);
        }
        *counters = Counters { bases: Bases { received, ..counters.bases }, switched: true };
        Ok(())
    }

    fn received<'d>(
        &mut self,
        leg: PathId,
        data: &'d [u8],
        next: u64,
    ) -> Result<(u64, &'d [u8]), ConfluxFault> {
        let counters = self.legs.get_mut(leg)?;
        let number = counters.bases.received.saturating_add(1);
        if number > next.saturating_add(AHEAD) {
            return Err(ConfluxFault::TooFar);
        }
        (counters.bases.received, counters.switched) = (number, false);
        Ok((number, data))
    }

    fn resends(&self) -> bool {
        false
    }

    fn leads(&self, leg: PathId) -> bool {
        let Ok(Counters { bases: own, .. }) = self.legs.get(leg) else { return false };
        let others = || self.legs.iter().filter(|(at, _)| *at != leg).map(|(_, one)| one.bases);
        own.sent > others().map(|bases| bases.sent).max().unwrap_or(0)
            || own.received > others().map(|bases| bases.received).max().unwrap_or(0)
    }

    fn backlog(&self, leg: PathId) -> u64 {
        self.legs.get(leg).map_or(0, |leg| self.sent.saturating_sub(leg.bases.sent))
    }

    fn passed(&self, number: u64) -> bool {
        self.legs.iter().all(|(_, leg)| leg.bases.received >= number)
    }

    fn last_sent(&self) -> u64 {
        self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: PathId = PathId(0);
    const SECOND: PathId = PathId(1);

    fn numbering() -> CountedNumbering {
        let mut numbering = CountedNumbering::new();
        [FIRST, SECOND].iter().for_each(|leg| numbering.join(*leg, Bases::default()).unwrap());
        numbering
    }

    #[test]
    fn after_n_messages_on_one_leg_the_first_switch_on_another_says_n() {
        let mut sender = numbering();
        let marks: Vec<Mark> =
            [0, 0, 0, 1, 1, 0, 0, 1].map(|leg| sender.send(PathId(leg)).unwrap()).to_vec();
        let (nothing, switch) = (Mark::Nothing, Mark::Switch);
        assert_eq!(
            marks,
            [nothing, nothing, nothing, switch(3), nothing, switch(2), nothing, switch(2)]
        );
        assert_eq!(sender.last_sent(), 8);
    }

    #[test]
    fn whichever_leg_is_used_first_begins_without_a_switch() {
        assert_eq!(numbering().send(SECOND), Ok(Mark::Nothing));
        let mut sender = numbering();
        sender.send(FIRST).unwrap();
        assert_eq!(sender.join(PathId(2), Bases::default()), Ok(()));
        assert_eq!(sender.send(PathId(2)), Ok(Mark::Switch(1)), "a leg that came late, by (0, 0)");
    }

    #[test]
    fn a_switch_by_nothing_twice_or_far_ahead_is_refused_and_changes_nothing() {
        let mut receiver = numbering();
        assert_eq!(receiver.switched(SECOND, 0, 1), Err(ConfluxFault::SwitchZero));
        assert_eq!(receiver.switched(SECOND, u32::MAX, 1), Err(ConfluxFault::TooFar));
        assert_eq!(receiver.switched(SECOND, 3, 1), Ok(()));
        assert_eq!(receiver.switched(SECOND, 3, 1), Err(ConfluxFault::SwitchTwice));
        assert_eq!(receiver.received(SECOND, b"x", 1), Ok((4, &b"x"[..])));
        assert_eq!(receiver.switched(SECOND, 3, 1), Ok(()));
        assert_eq!(receiver.received(SECOND, b"", 1), Ok((8, &b""[..])));
        assert_eq!(receiver.switched(PathId(7), 3, 1), Err(ConfluxFault::NotLinked));
    }

    #[test]
    fn bases_beyond_what_was_sent_are_refused_and_too_large_a_difference_is_never_told() {
        let mut sender = numbering();
        let beyond = Bases { sent: 1 << 63, received: 0 };
        assert_eq!(sender.join(PathId(2), beyond), Err(ConfluxFault::DataLoss));
        sender.sent = u64::from(u32::MAX);
        assert_eq!(sender.send(FIRST), Err(ConfluxFault::Incoherent));
        sender.sent -= 1;
        assert_eq!(sender.send(FIRST), Ok(Mark::Switch(u32::MAX - 1)));
    }

    #[test]
    fn the_leg_with_the_highest_number_sent_or_received_leads() {
        let mut end = numbering();
        assert!(!end.leads(FIRST) && !end.leads(SECOND), "nothing was sent");
        end.send(FIRST).unwrap();
        assert!(end.leads(FIRST) && !end.leads(SECOND));
        end.received(SECOND, b"", 1).unwrap();
        assert!(end.leads(SECOND));
        end.send(SECOND).unwrap();
        assert!(!end.leads(FIRST));
    }
}
