//! Segments at the beginning of the stream that are sent twice ("Proactive" of Flach et al.,
//! "Reducing Web Latency: the Virtue of Gentle Aggression", SIGCOMM 2013).
//!
//! A copy is not a retransmission. It does not count as in flight or for pacing, and it changes no
//! congestion window.

use std::collections::VecDeque;

use anabranch_multipath::Time;

use super::{Chunk, Sender};
use crate::constants::{COPY_DELAY, COPY_DIVISOR};
use crate::timers::{Timer, Timers};

/// The part of the stream whose segments are sent twice, and the second transmissions (copies)
/// that are still to be sent.
#[derive(Clone, Debug)]
pub(super) struct Copies {
    /// Segments that begin before this stream offset are sent twice.
    until: u64,
    /// The copies to send: for each, its time, and the identifier of its segment on the
    /// scoreboard.
    waiting: VecDeque<(Time, u64)>,
}

impl Copies {
    /// Creates the state of a stream whose first `bytes` bytes are sent twice.
    pub(super) fn new(bytes: u64) -> Copies {
        // The SYN occupies the first offset.
        Copies { until: 1 + bytes, waiting: VecDeque::new() }
    }

    /// Returns whether segments with the stream offset `start` are sent twice. If so, a duplicate
    /// that the peer reports (DSACK) is this copy, and does not show an unnecessary
    /// retransmission.
    pub(super) fn explain(&self, start: u64) -> bool {
        start < self.until
    }
}

impl Sender {
    /// Schedules a copy of the segment that carries `chunk` and was sent on the path `leg`. Does
    /// nothing if `chunk` is after the part of the stream that is sent twice.
    pub(super) fn schedule_copy(
        &mut self,
        now: Time,
        leg: usize,
        chunk: Chunk,
        timers: &mut Timers,
    ) {
        if !self.copies.explain(chunk.start) {
            return;
        }
        let Some((_, id)) = self.board.first_and_last() else { return };
        let rtt = self.legs[leg].rtt.expected();
        let at = now + rtt.map_or(COPY_DELAY, |rtt| rtt / COPY_DIVISOR);
        self.copies.waiting.push_back((at, id));
        timers.start(Timer::Copy, at);
    }

    /// Returns the data of the copy that is due at `now`, and its path; `None` if none is due.
    pub(super) fn next_copy(&mut self, now: Time, timers: &mut Timers) -> Option<(Chunk, usize)> {
        while let Some((_, id)) = self.copies.waiting.pop_front_if(|(at, _)| *at <= now) {
            let Some(sent) = self.board.get(id).filter(|sent| sent.count == 1 && !sent.sacked)
            else {
                continue;
            };
            let (chunk, leg) = (self.chunk(sent.start, sent.end), sent.leg);
            self.stats.copies += 1;
            return Some((chunk, self.other_leg(now, leg)));
        }
        if let Some((next, _)) = self.copies.waiting.front() {
            timers.start(Timer::Copy, *next);
        }
        None
    }

    /// Returns the usable path with the lowest expected round-trip time except `leg`, or `leg` if
    /// there is no other.
    fn other_leg(&self, now: Time, leg: usize) -> usize {
        let legs = self.legs.iter().enumerate();
        let others = legs.filter(|(place, other)| *place != leg && other.is_usable(now));
        others.min_by_key(|(_, other)| other.expected_rtt()).map_or(leg, |(place, _)| place)
    }
}
