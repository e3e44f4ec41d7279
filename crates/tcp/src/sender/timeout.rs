//! Timers of the sending half: retransmission, tail loss probe, reordering window, closed receive
//! window.

use anabranch_multipath::Time;

use super::leg::Leg;
use super::recovery::{Phase, Progress};
use super::{AckSegment, Chunk, Sender};
use crate::constants::{DATA_RETRIES, TIMEOUT_MIN, TLP_MAX_ACK_DELAY, TLP_SRTT_FACTOR};
use crate::timers::{Timer, Timers};

/// A tail loss probe that is in flight (RFC 8985, section 7.4).
#[derive(Clone, Copy, Debug)]
pub(crate) struct TailProbe {
    /// Stream offset of the probe's end (`TLP.end_seq` of RFC 8985).
    end: u64,
    /// Whether the probe is a retransmission (`TLP.is_retrans` of RFC 8985).
    is_retransmission: bool,
}

impl Sender {
    /// Processes the timers that have expired. Returns false if the peer has not answered for too
    /// long.
    pub(crate) fn expire(&mut self, now: Time, timers: &mut Timers) -> bool {
        // `next_copy` sends the copies that are due.
        timers.expire(now, Timer::Copy);
        if timers.expire(now, Timer::Reorder) {
            self.reordering_over(now, timers);
        }
        if timers.expire(now, Timer::Probe) && !self.board.is_empty() {
            self.probe_due = true;
            timers.set(Timer::Retransmit, now + self.rtt().rto());
        }
        if timers.expire(now, Timer::Persist) {
            self.probes += 1;
            self.retries += 1;
            self.window_probe_due = true;
            timers.set(Timer::Persist, now + self.rtt().doubled(self.probes));
        }
        if timers.expire(now, Timer::Retransmit) && !self.board.is_empty() {
            self.retransmission_timeout(now, timers);
        }
        self.retries <= DATA_RETRIES
    }

    /// Marks segments as lost whose reordering window has passed (RFC 8985, section 6.3).
    fn reordering_over(&mut self, now: Time, timers: &mut Timers) {
        let mut progress = Progress::default();
        self.find_losses(now, &mut progress, timers);
        if progress.lost == 0 {
            return;
        }
        let was_open = self.recovery.is_open();
        self.update_recovery(&progress, timers);
        if was_open && self.recovery.phase == Phase::Recovery {
            progress.delivered = 1;
            self.reduce_proportionally(&progress);
        }
        timers.set(Timer::Retransmit, now + self.rtt().rto());
    }

    fn retransmission_timeout(&mut self, now: Time, timers: &mut Timers) {
        self.stats.timeouts += 1;
        self.probe_due = false;
        self.tail_probe = None;
        let reneged = self.board.front().is_some_and(|first| first.sacked);
        if reneged || !self.sack {
            // The peer has dropped data that it had reported, or it reports nothing. Everything
            // counts as lost.
            self.board.renege();
        } else {
            self.time_out_legs(now);
        }
        self.enter_loss();
        self.retries += 1;
        self.legs.iter_mut().for_each(|leg| leg.rtt.back_off());
        timers.stop(Timer::Probe);
        timers.stop(Timer::Reorder);
        timers.set(Timer::Retransmit, now + self.rtt().rto());
    }

    /// Marks segments as lost after a timeout: the first segment, and on each path all segments
    /// whose reordering window has passed. If there are several paths, the first segment's path is
    /// not used for a time.
    fn time_out_legs(&mut self, now: Time) {
        if let Some((first, _)) = self.board.first_and_last() {
            self.board.mark_lost(first);
        }
        for (place, leg) in self.legs.iter_mut().enumerate() {
            leg.rack.on_timeout(now, (&mut self.board, place), &leg.rtt);
        }
        if let Some(first) = self.board.front().filter(|_| self.has_legs()) {
            self.legs[first.leg].note_timeout(now);
        }
        if !self.legs.iter().any(|leg| leg.is_usable(now)) {
            self.legs.iter_mut().for_each(Leg::end_rest);
        }
    }

    /// Sets the timers of the data in flight again after the handshake has measured the round-trip
    /// time. Until then, these timers were too long (Linux, `tcp_rcv_synrecv_state_fastopen`).
    pub(crate) fn handshake_over(&mut self, now: Time, timers: &mut Timers) {
        if !self.board.is_empty() {
            timers.set(Timer::Retransmit, now + self.rtt().rto());
            self.schedule_probe(now, timers);
        }
    }

    /// Sets the timer of the tail loss probe (RFC 8985, section 7.2).
    pub(super) fn schedule_probe(&mut self, now: Time, timers: &mut Timers) {
        let allowed = self.sack && self.recovery.is_open() && self.tail_probe.is_none();
        if !allowed || self.board.is_empty() || self.board.sacked() > 0 {
            timers.stop(Timer::Probe);
            return;
        }
        let Some(srtt) = self.rtt().srtt() else { return };
        let alone = self.board.count() == 1;
        let allowance = if alone { TLP_MAX_ACK_DELAY } else { TIMEOUT_MIN };
        let at = now + srtt * TLP_SRTT_FACTOR + allowance;
        // If the retransmission timeout is earlier, the probe is sent at that time instead.
        timers.set(Timer::Probe, timers.get(Timer::Retransmit).map_or(at, |rto| at.min(rto)));
    }

    /// Chooses the data of a tail loss probe: new data if there are any, otherwise the last
    /// segment again (RFC 8985, section 7.3). Counts the data as sent. Returns the data with their
    /// path; `None` if there are no data.
    pub(super) fn tail_probe(&mut self, now: Time, timers: &mut Timers) -> Option<(Chunk, usize)> {
        self.stats.probes += 1;
        let new = self.new_chunk();
        let leg = self.best(|_, leg| leg.is_usable(now)).unwrap_or(0);
        let chunk = if let Some(chunk) = new {
            Some((self.transmit(now, leg, chunk, timers), leg))
        } else {
            let (_, last) = self.board.first_and_last()?;
            self.retransmit(now, last, leg, timers)
        };
        self.tail_probe = Some(TailProbe { end: self.nxt, is_retransmission: new.is_none() });
        timers.stop(Timer::Probe);
        timers.set(Timer::Retransmit, now + self.rtt().rto());
        chunk
    }

    /// Checks whether a tail loss probe has repaired a loss (RFC 8985, section 7.4).
    pub(super) fn check_probe(&mut self, segment: &AckSegment, progress: &Progress) {
        let Some(probe) = self.tail_probe.filter(|probe| segment.ack >= probe.end) else { return };
        if !probe.is_retransmission || progress.dsack {
            self.tail_probe = None;
        } else if segment.ack > probe.end {
            // The peer has not reported data that arrived twice, so the probe has repaired a loss.
            self.tail_probe = None;
            if self.recovery.is_open() {
                self.reduce_for_probe();
            }
        } else if !progress.advanced && progress.delivered == 0 {
            // The acknowledgement is a duplicate, so the original has arrived, too.
            self.tail_probe = None;
        }
    }

    /// Returns whether the peer's receive window must be probed now, by a segment without data.
    /// Clears the request, so that the next call returns false.
    pub(crate) fn take_window_probe(&mut self) -> bool {
        std::mem::take(&mut self.window_probe_due)
    }

    /// Returns the part of the next segment that fits into the peer's receive window, if the
    /// persist timer has expired. Sending a part avoids a deadlock with silly window avoidance,
    /// which waits for room for the whole segment (RFC 9293, section 3.8.6.2.1). Returns `None` if
    /// the timer has not expired, or if nothing fits.
    pub(super) fn override_chunk(&mut self) -> Option<Chunk> {
        let room = self.peer.end.saturating_sub(self.nxt);
        let length = self.end().saturating_sub(self.nxt).min(self.mss as u64).min(room);
        if !self.window_probe_due || length == 0 {
            return None;
        }
        self.window_probe_due = false;
        Some(self.chunk(self.nxt, self.nxt + length))
    }
}
