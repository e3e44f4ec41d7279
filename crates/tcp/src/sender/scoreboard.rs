//! The segments in flight and their state (the scoreboard of RFC 6675).

use std::collections::{BTreeSet, VecDeque};

use anabranch_multipath::Time;

use super::rate::Snapshot;
use crate::config::MAX_LEGS;
use crate::ranges::Ranges;

/// A segment that was sent and is not acknowledged cumulatively.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) sent_at: Time,
    /// Number of times that the segment was sent so far.
    pub(crate) count: u32,
    pub(crate) sacked: bool,
    pub(crate) lost: bool,
    /// Whether a retransmission of the segment is in flight.
    pub(crate) retransmitted: bool,
    pub(crate) rate: Snapshot,
    /// Path on which the segment was last sent.
    pub(crate) leg: usize,
}

impl Sent {
    /// Returns whether the last transmission of the segment is still in flight.
    fn is_flying(&self) -> bool {
        !self.sacked && (!self.lost || self.retransmitted)
    }
}

/// The segments in flight, each with an identifier that counts up in the order of the stream.
/// Segments are never split or merged, so their identifiers never change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scoreboard {
    first: u64,
    segments: VecDeque<Sent>,
    sacked: u32,
    lost: u32,
    retransmitted: u32,
    /// Number of duplicate acknowledgements from a peer without SACK. Each stands for a segment
    /// that arrived.
    duplicates: u32,
    sacked_ranges: Ranges,
    /// Identifiers of lost segments that were not sent again yet.
    pending: BTreeSet<u64>,
    /// Transmissions on each path in order of time: for each, the segment's identifier, and the
    /// number of times that the segment had been sent. An entry is valid only for the last
    /// transmission of its segment.
    order: [VecDeque<(u64, u32)>; MAX_LEGS],
    /// Number of segments in flight on each path. A segment counts on the path of its last
    /// transmission.
    flying: [u32; MAX_LEGS],
}

impl Scoreboard {
    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Returns the number of segments that are not acknowledged cumulatively.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.segments.len()).unwrap_or(u32::MAX)
    }

    /// Returns the number of segments known to have arrived out of order.
    pub(crate) fn sacked(&self) -> u32 {
        self.sacked + self.duplicates
    }

    pub(crate) fn lost(&self) -> u32 {
        self.lost
    }

    /// Returns the number of retransmissions in flight.
    pub(crate) fn retransmitted(&self) -> u32 {
        self.retransmitted
    }

    /// Returns the estimated number of segments in the network (RFC 6675's pipe).
    pub(crate) fn in_flight(&self) -> u32 {
        (self.count() + self.retransmitted).saturating_sub(self.sacked() + self.lost)
    }

    /// Returns the number of segments in flight on the path `leg`.
    pub(crate) fn flying(&self, leg: usize) -> u32 {
        self.flying[leg]
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Sent> {
        self.segments.get(usize::try_from(id.checked_sub(self.first)?).ok()?)
    }

    fn get_mut(&mut self, id: u64) -> Option<&mut Sent> {
        self.segments.get_mut(usize::try_from(id.checked_sub(self.first)?).ok()?)
    }

    pub(crate) fn front(&self) -> Option<&Sent> {
        self.segments.front()
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut Sent> {
        self.segments.front_mut()
    }

    /// Returns the identifiers of the first and of the last segment; `None` if there are none.
    pub(crate) fn first_and_last(&self) -> Option<(u64, u64)> {
        let last = (self.segments.len() as u64).checked_sub(1)?;
        Some((self.first, self.first + last))
    }

    /// Adds a segment that is sent for the first time, after all earlier segments.
    pub(crate) fn push(&mut self, sent: Sent) {
        let id = self.first + self.segments.len() as u64;
        self.order[sent.leg].push_back((id, sent.count));
        self.flying[sent.leg] += u32::from(sent.is_flying());
        self.segments.push_back(sent);
    }

    /// Removes and returns the first segment; `None` if there is none.
    pub(crate) fn pop(&mut self) -> Option<Sent> {
        let sent = self.segments.pop_front()?;
        self.pending.remove(&self.first);
        self.first += 1;
        self.sacked -= u32::from(sent.sacked);
        self.lost -= u32::from(sent.lost);
        self.retransmitted -= u32::from(sent.retransmitted);
        self.flying[sent.leg] -= u32::from(sent.is_flying());
        self.sacked_ranges.trim(sent.end);
        // `oldest`, which removes outdated entries, is never called if the peer has no SACK. So
        // they are removed here, too.
        while self.order[sent.leg].pop_front_if(|(id, _)| *id < self.first).is_some() {}
        Some(sent)
    }

    /// Adds the bytes `start..end` to the ranges known to have arrived. Marks the segments that
    /// are now covered completely, and returns their identifiers.
    pub(crate) fn sack(&mut self, start: u64, end: u64) -> Vec<u64> {
        let mut fresh = Vec::new();
        for (from, until) in self.sacked_ranges.insert(start, end) {
            let at = self.segments.partition_point(|sent| sent.end <= from);
            for id in self.first + at as u64.. {
                let Some(sent) = self.get(id).filter(|sent| sent.start < until) else { break };
                if !sent.sacked && sent.end <= self.sacked_until(sent.start) {
                    fresh.push(id);
                }
            }
        }
        fresh.dedup();
        fresh.iter().for_each(|&id| self.mark_sacked(id));
        fresh
    }

    /// Returns the end of the range of arrived bytes that contains `offset`; 0 if there is none.
    fn sacked_until(&self, offset: u64) -> u64 {
        self.sacked_ranges.around(offset).map_or(0, |(_, end)| end)
    }

    fn mark_sacked(&mut self, id: u64) {
        let Some(sent) = self.get_mut(id) else { return };
        let (lost, again) = (sent.lost, sent.retransmitted);
        let (leg, was_flying) = (sent.leg, sent.is_flying());
        (sent.sacked, sent.lost, sent.retransmitted) = (true, false, false);
        self.flying[leg] -= u32::from(was_flying);
        self.sacked += 1;
        self.lost -= u32::from(lost);
        self.retransmitted -= u32::from(again);
        self.pending.remove(&id);
    }

    /// Marks the latest transmission of a segment as lost. Returns false if no transmission of the
    /// segment is in flight.
    pub(crate) fn mark_lost(&mut self, id: u64) -> bool {
        let Some(sent) = self.get_mut(id).filter(|sent| sent.is_flying()) else { return false };
        let (lost, again, leg) = (sent.lost, sent.retransmitted, sent.leg);
        (sent.lost, sent.retransmitted) = (true, false);
        self.flying[leg] -= 1;
        self.lost += u32::from(!lost);
        self.retransmitted -= u32::from(again);
        self.pending.insert(id);
        true
    }

    /// Returns the identifier of the lowest segment that is lost and was not sent again; `None` if
    /// there is none.
    pub(crate) fn next_lost(&self) -> Option<u64> {
        self.pending.first().copied()
    }

    /// Records that a segment was sent again, on the path `leg`.
    pub(crate) fn sent_again(&mut self, id: u64, now: Time, leg: usize, rate: Snapshot) {
        let Some(sent) = self.get_mut(id) else { return };
        let (before, was_flying) = (sent.leg, sent.is_flying());
        let already = std::mem::replace(&mut sent.retransmitted, true);
        sent.count += 1;
        (sent.sent_at, sent.rate, sent.leg) = (now, rate, leg);
        let (count, is_flying) = (sent.count, sent.is_flying());
        self.flying[before] -= u32::from(was_flying);
        self.flying[leg] += u32::from(is_flying);
        self.retransmitted += u32::from(!already);
        self.pending.remove(&id);
        self.order[leg].push_back((id, count));
    }

    /// Returns the segment in flight on the path `leg` that was sent earliest, and its identifier;
    /// `None` if there is none.
    pub(crate) fn oldest(&mut self, leg: usize) -> Option<(u64, &Sent)> {
        while let Some(&(id, count)) = self.order[leg].front() {
            let is_last = |sent: &Sent| sent.count == count && sent.is_flying();
            if self.get(id).is_some_and(is_last) {
                return self.get(id).map(|sent| (id, sent));
            }
            self.order[leg].pop_front();
        }
        None
    }

    /// Marks all segments in flight on the path `leg` as lost. Returns their number.
    pub(crate) fn lose_leg(&mut self, leg: usize) -> u32 {
        let mut count = 0;
        while let Some((id, _)) = self.oldest(leg) {
            self.mark_lost(id);
            count += 1;
        }
        count
    }

    /// Marks all segments as lost. Discards the peer's SACK reports: the peer has dropped data
    /// that it had reported, as RFC 2018, section 8, permits.
    pub(crate) fn renege(&mut self) {
        self.sacked_ranges.clear();
        self.sacked = 0;
        self.duplicates = 0;
        for sent in &mut self.segments {
            self.flying[sent.leg] += u32::from(std::mem::take(&mut sent.sacked));
        }
        (self.first..self.first + self.segments.len() as u64).for_each(|id| {
            self.mark_lost(id);
        });
    }

    /// Removes the mark "lost" from all segments, because the reduction of the congestion window
    /// was undone: nothing was lost.
    pub(crate) fn unmark_lost(&mut self) {
        self.pending.clear();
        let first = self.first;
        for (sent, id) in self.segments.iter_mut().zip(first..) {
            if sent.lost && !sent.retransmitted {
                self.order[sent.leg].push_back((id, sent.count));
                self.flying[sent.leg] += u32::from(!sent.sacked);
            }
            sent.lost = false;
        }
        self.lost = 0;
    }

    /// Counts a duplicate acknowledgement from a peer without SACK. Returns false if all segments
    /// in flight are already counted as arrived.
    pub(crate) fn add_duplicate(&mut self) -> bool {
        let room = self.count().saturating_sub(self.lost + self.duplicates) > 0;
        self.duplicates += u32::from(room);
        room
    }

    /// Subtracts `count` from the number of counted duplicate acknowledgements.
    pub(crate) fn take_duplicates(&mut self, count: u32) {
        self.duplicates = self.duplicates.saturating_sub(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(number: u64) -> Sent {
        Sent {
            start: number * 100,
            end: number * 100 + 100,
            sent_at: Time::from_millis(number),
            count: 1,
            sacked: false,
            lost: false,
            retransmitted: false,
            rate: Snapshot::default(),
            leg: 0,
        }
    }

    #[test]
    fn blocks_mark_whole_segments_once() {
        let mut board = Scoreboard::default();
        (0..10).for_each(|number| board.push(sent(number)));
        assert_eq!(board.sack(150, 350), [2], "the first and the last are covered in part");
        assert_eq!(board.sack(350, 450), [3], "together with what was there");
        assert_eq!(board.sack(100, 500), [1, 4]);
        assert_eq!(board.sack(100, 500), []);
        assert_eq!((board.sacked(), board.in_flight()), (4, 6));
    }

    #[test]
    fn the_pipe_counts_what_is_in_the_network() {
        let mut board = Scoreboard::default();
        (0..10).for_each(|number| board.push(sent(number)));
        board.sack(500, 1_000);
        assert!(board.mark_lost(0) && board.mark_lost(1) && !board.mark_lost(7));
        assert_eq!((board.in_flight(), board.next_lost()), (3, Some(0)));
        board.sent_again(0, Time::from_secs(1), 0, Snapshot::default());
        assert_eq!((board.in_flight(), board.next_lost()), (4, Some(1)));
        assert!(board.mark_lost(0), "the retransmission is lost, too");
        assert_eq!((board.in_flight(), board.lost()), (3, 2));
        board.pop();
        assert_eq!((board.in_flight(), board.lost(), board.next_lost()), (3, 1, Some(1)));
        assert_eq!(board.oldest(0).map(|(id, _)| id), Some(2));
        assert_eq!(board.flying(0), 3);
        board.renege();
        assert_eq!((board.in_flight(), board.sacked(), board.lost()), (0, 0, 9));
        assert_eq!(board.flying(0), 0);
    }

    #[test]
    fn transmissions_are_forgotten_with_their_segments() {
        let mut board = Scoreboard::default();
        for number in 0..1_000 {
            board.push(sent(number));
            board.sent_again(number, Time::from_secs(1), 0, Snapshot::default());
            board.pop();
        }
        assert!(board.order[0].len() <= 2, "{}", board.order[0].len());
    }

    #[test]
    fn each_leg_knows_what_is_in_flight_on_it() {
        let mut board = Scoreboard::default();
        (0..9).for_each(|number| board.push(Sent { leg: number as usize % 3, ..sent(number) }));
        let flying = |board: &Scoreboard| [0, 1, 2].map(|leg| board.flying(leg));
        assert_eq!(flying(&board), [3, 3, 3]);
        assert!(board.mark_lost(0));
        board.sent_again(0, Time::from_secs(1), 2, Snapshot::default());
        assert_eq!(flying(&board), [2, 3, 4]);
        assert_eq!(board.oldest(0).map(|(id, _)| id), Some(3));
        board.sack(100, 300);
        assert_eq!(flying(&board), [2, 2, 3]);
        assert_eq!(board.lose_leg(1), 2);
        assert_eq!((flying(&board), board.next_lost()), ([2, 0, 3], Some(4)));
        board.unmark_lost();
        assert_eq!(flying(&board), [2, 2, 3]);
        for _ in 0..9 {
            board.pop();
        }
        assert_eq!(flying(&board), [0, 0, 0]);
    }
}
