//! Processing of arriving segments (RFC 9293, section 3.10.7.4, with RFC 5961).

use anabranch_multipath::{Core as _, Time};

use super::{Connection, Ending, State};
use crate::constants::{CHALLENGE_ACK_INTERVAL, TIME_WAIT};
use crate::receiver::Arrival;
use crate::segment::{Flags, Segment};
use crate::sender::AckSegment;
use crate::timers::Timer;

impl Connection {
    /// Processes a segment that the peer sent and that arrived by the path `leg`. Acknowledgements
    /// without data are sent on the same path.
    pub fn handle_by(&mut self, now: Time, leg: usize, segment: Segment) {
        self.answer_by(leg);
        self.handle(now, segment);
    }

    pub(super) fn handle_synchronized(&mut self, now: Time, segment: Segment) {
        let Some(start) = segment.seq.offset(self.irs, self.receiver.nxt()) else { return };
        if self.is_first_syn_again(&segment, start) {
            self.syn_due = true;
            return;
        }
        if self.crosses(&segment, start) {
            self.receiver.ack_now = true;
            return self.establish(now, segment.options.timestamps);
        }
        let reset = segment.flags.has(Flags::RST);
        let stamps = segment.options.timestamps;
        if !reset && self.paws && self.stamps.is_old(now, stamps) {
            self.receiver.ack_now = true;
            return;
        }
        if !self.receiver.accepts(start, segment.length()) {
            if !reset {
                self.answer_unacceptable(now, &segment, start);
            }
            return;
        }
        if reset {
            return self.take_reset(now, start);
        }
        if segment.flags.has(Flags::SYN) {
            return self.challenge(now);
        }
        self.stamps.take(now, start, stamps);
        if segment.flags.has(Flags::ACK) {
            self.take_accepted(now, start, segment);
        }
    }

    /// Returns whether `segment` repeats the peer's SYN. The peer repeats it if our SYN-ACK was
    /// lost.
    fn is_first_syn_again(&self, segment: &Segment, start: u64) -> bool {
        let flags = segment.flags;
        let alone = flags.has(Flags::SYN) && !flags.has(Flags::RST) && !flags.has(Flags::ACK);
        alone && self.state == State::SynReceived && start == 0
    }

    /// Returns whether `segment` is the SYN-ACK that completes a simultaneous open: both ends have
    /// sent a SYN (RFC 9293, section 3.5).
    fn crosses(&self, segment: &Segment, start: u64) -> bool {
        let flags = segment.flags;
        let answers = flags.has(Flags::SYN | Flags::ACK) && !flags.has(Flags::RST);
        answers && self.awaits_handshake() && start == 0 && segment.ack == self.iss + 1
    }

    /// Answers a segment outside the receive window with an acknowledgement, from which the peer
    /// learns our state. Examples of such segments are window probes and retransmitted FINs. The
    /// acknowledgement inside the segment is processed nevertheless if the segment ends at the
    /// next expected byte, or if our window is closed (RFC 9293, section 3.10.7.4).
    fn answer_unacceptable(&mut self, now: Time, segment: &Segment, start: u64) {
        self.receiver.ack_now = true;
        if start + segment.payload.len() as u64 <= self.receiver.nxt()
            && !segment.payload.is_empty()
        {
            self.sender.stats.duplicates += 1;
            self.receiver.report(start, start + segment.payload.len() as u64);
        }
        if self.state == State::TimeWait && segment.flags.has(Flags::FIN) {
            self.wait_for_old_segments(now);
        }
        if !segment.flags.has(Flags::SYN)
            && segment.flags.has(Flags::ACK)
            && start <= self.receiver.nxt()
        {
            let end = start + segment.length();
            if end == self.receiver.nxt() || self.receiver.window() == 0 {
                self.take_ack(now, start, segment);
                self.settle(now);
            }
        }
        if segment.flags.has(Flags::SYN) {
            self.receiver.ack_now = false;
            self.challenge(now);
        }
    }

    /// Processes a reset. It is valid only with exactly the expected sequence number (RFC 5961,
    /// section 3.2).
    fn take_reset(&mut self, now: Time, start: u64) {
        if start != self.receiver.nxt() {
            return self.challenge(now);
        }
        match self.state {
            State::TimeWait => {}
            State::SynReceived => self.end(Ending::Refused),
            State::Closing | State::LastAck => self.end(Ending::Finished),
            _ => self.end(Ending::Reset),
        }
    }

    /// Sends a challenge acknowledgement, which asks the peer to confirm a segment (RFC 5961).
    /// Sends at most one in [`CHALLENGE_ACK_INTERVAL`].
    fn challenge(&mut self, now: Time) {
        let early = |last| now.since(last) < CHALLENGE_ACK_INTERVAL;
        if self.last_challenge.is_some_and(early) {
            return;
        }
        self.last_challenge = Some(now);
        self.sender.stats.challenges += 1;
        let answer = self.acknowledgement(now);
        self.outbox.push_back(answer);
    }

    fn take_accepted(&mut self, now: Time, start: u64, segment: Segment) {
        if !self.take_ack(now, start, &segment) {
            return;
        }
        let fin = segment.flags.has(Flags::FIN);
        let reads = matches!(self.state, State::Established | State::FinWait1 | State::FinWait2);
        if reads && (fin || !segment.payload.is_empty()) {
            let arrival = Arrival { start, bytes: segment.payload, fin };
            self.receiver.expect_rtt(self.sender.least_expected_rtt());
            if let Some(stamps) = segment.options.timestamps {
                self.receiver.note_stamp(self.leg, stamps.value);
            }
            self.receiver.take(now, arrival, &mut self.timers, &mut self.sender.stats);
        }
        self.settle(now);
    }

    /// Processes the acknowledgement in a segment. Returns false if the segment must be dropped.
    fn take_ack(&mut self, now: Time, start: u64, segment: &Segment) -> bool {
        let (una, nxt) = (self.sender.una(), self.sender.nxt());
        let Some(ack) = segment.ack.offset(self.iss, una) else {
            self.challenge(now);
            return false;
        };
        if self.awaits_handshake() {
            if ack < 1 || ack > nxt {
                self.outbox.extend(segment.reset());
                return false;
            }
            self.establish(now, segment.options.timestamps);
        }
        if ack > nxt || ack + self.sender.max_window() < una {
            // The segment acknowledges data that were never sent, or its sender has guessed its
            // numbers (RFC 5961, section 5.2).
            self.challenge(now);
            return false;
        }
        self.last_heard = now;
        // Without PAWS, the path may reorder segments. An acknowledgement that was overtaken may
        // then still report segments, so it is processed.
        if ack < una && self.paws {
            return true;
        }
        let block = |&(from, until): &(crate::Seq, crate::Seq)| {
            Some((from.offset(self.iss, una)?, until.offset(self.iss, una)?))
        };
        let acknowledgement = AckSegment {
            seq: start,
            ack,
            window: u64::from(segment.window) << self.peer_scale,
            sacks: segment.blocks().filter_map(block).collect(),
            has_data: segment.length() > 0,
            echo_age: segment.options.timestamps.and_then(|stamps| self.stamps.age(now, stamps)),
        };
        self.sender.on_ack(now, &acknowledgement, &mut self.timers);
        true
    }

    /// Returns whether our SYN has not been acknowledged. [`State`] alone does not show this,
    /// because this side may close the connection before the acknowledgement.
    fn awaits_handshake(&self) -> bool {
        self.state == State::SynReceived
            || self.timers.get(Timer::Handshake).is_some()
            || self.syn_due
    }

    /// Enters the state TIME-WAIT, in which old segments may still arrive.
    pub(super) fn wait_for_old_segments(&mut self, now: Time) {
        self.timers.set(Timer::Close, now + TIME_WAIT);
    }
}
