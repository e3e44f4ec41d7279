//! Scheme of sequence numbers in which each message carries its own. Both ends must run this
//! project's software.

use anabranch_multipath::PathId;

use super::fault::ConfluxFault;
use super::legs::Legs;
use super::numbering::{AHEAD, Bases, Mark, Numbering};

/// Scheme in which the low 32 bits of a message's sequence number precede its data. They take 0.8
/// % of each cell, and a change of legs (parallel circuits) costs nothing. Conveying sequence
/// numbers by SWITCH costs the same if about 124 consecutive cells are sent on one leg before each
/// change.
///
/// Conflux of 2013 and mTor number their cells in this way. Such messages are sent only if both
/// ends have agreed to this scheme.
#[derive(Debug, Default)]
pub struct ExplicitNumbering {
    legs: Legs<Last>,
    sent: u64,
}

/// The sequence numbers of the last messages sent and received on a leg (parallel circuit).
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    sent: u64,
    received: u64,
}

impl ExplicitNumbering {
    /// Returns a numbering scheme that has no legs (parallel circuits) yet.
    #[must_use]
    pub fn new() -> ExplicitNumbering {
        ExplicitNumbering::default()
    }
}

/// Returns the sequence number nearest to `next` among the numbers whose low 32 bits are `low`.
pub(super) fn nearest(low: u32, next: u64) -> u64 {
    let ahead = low.wrapping_sub(next as u32).cast_signed();
    next.saturating_add_signed(ahead.into())
}

impl Numbering for ExplicitNumbering {
    fn name(&self) -> &'static str {
        "explicit"
    }

    fn turn(&self) -> u64 {
        0
    }

    fn join(&mut self, leg: PathId, bases: Bases) -> Result<(), ConfluxFault> {
        if bases.sent > self.sent {
            return Err(ConfluxFault::DataLoss);
        }
        self.legs.set(leg, Last { sent: bases.sent, received: bases.received });
        Ok(())
    }

    fn leave(&mut self, leg: PathId) {
        self.legs.remove(leg);
    }

    fn overhead(&self) -> usize {
        4
    }

    fn send(&mut self, leg: PathId) -> Result<Mark, ConfluxFault> {
        let last = self.legs.get_mut(leg)?;
        self.sent += 1;
        last.sent = self.sent;
        Ok(Mark::Prefix((self.sent as u32).to_be_bytes()))
    }

    fn switched(&mut self, _leg: PathId, _by: u32, _next: u64) -> Result<(), ConfluxFault> {
        Err(ConfluxFault::Role)
    }

    fn received<'d>(
        &mut self,
        leg: PathId,
        data: &'d [u8],
        next: u64,
    ) -> Result<(u64, &'d [u8]), ConfluxFault> {
        let last = self.legs.get_mut(leg)?;
        let (low, data) = data.split_first_chunk().ok_or(ConfluxFault::Unreadable)?;
        let number = nearest(u32::from_be_bytes(*low), next);
        if number > next.saturating_add(AHEAD) {
            return Err(ConfluxFault::TooFar);
        }
        last.received = last.received.max(number);
        Ok((number, data))
    }

    fn resends(&self) -> bool {
        false
    }

    fn leads(&self, leg: PathId) -> bool {
        let Ok(own) = self.legs.get(leg) else { return false };
        let others = || self.legs.iter().filter(|(at, _)| *at != leg).map(|(_, last)| last);
        own.sent > others().map(|last| last.sent).max().unwrap_or(0)
            || own.received > others().map(|last| last.received).max().unwrap_or(0)
    }

    fn backlog(&self, _leg: PathId) -> u64 {
        0
    }

    fn passed(&self, number: u64) -> bool {
        self.legs.iter().all(|(_, last)| last.received >= number)
    }

    fn last_sent(&self) -> u64 {
        self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_low_bits_name_the_nearest_number() {
        let turn = 1u64 << 32;
        for (low, next, number) in [
            (1, 1, 1),
            (5, 1, 5),
            (2, turn - 1, turn + 2),
            (u32::MAX, turn + 3, turn - 1),
            (9, 7 * turn + 9, 7 * turn + 9),
        ] {
            assert_eq!(nearest(low, next), number, "{low} where {next} is next");
        }
        assert_eq!(nearest(u32::MAX, 1), 0, "nothing is before the first");
    }

    #[test]
    fn a_message_bears_its_number_and_needs_no_switch() {
        let mut end = ExplicitNumbering::new();
        end.join(PathId(0), Bases::default()).unwrap();
        assert_eq!(end.send(PathId(0)), Ok(Mark::Prefix([0, 0, 0, 1])));
        assert_eq!(end.received(PathId(0), &[0, 0, 0, 3, 7], 1), Ok((3, &[7][..])));
        assert_eq!(end.received(PathId(0), &[0, 0, 3], 1), Err(ConfluxFault::Unreadable));
        assert_eq!(end.received(PathId(0), &[9, 0, 0, 3], 1), Err(ConfluxFault::TooFar));
        assert_eq!(end.switched(PathId(0), 1, 1), Err(ConfluxFault::Role));
        assert_eq!(end.send(PathId(1)), Err(ConfluxFault::NotLinked));
    }

    #[test]
    fn the_leg_with_the_highest_number_leads_as_nothing_is_sent_again() {
        let mut end = ExplicitNumbering::new();
        [0, 1].iter().for_each(|leg| end.join(PathId(*leg), Bases::default()).unwrap());
        end.send(PathId(0)).unwrap();
        assert_eq!([0, 1].map(|leg| end.leads(PathId(leg))), [true, false]);
        end.send(PathId(1)).unwrap();
        end.received(PathId(0), &[0, 0, 0, 9], 1).unwrap();
        assert_eq!([0, 1].map(|leg| end.leads(PathId(leg))), [true, true]);
        assert_eq!((end.resends(), end.passed(9)), (false, false));
    }
}
