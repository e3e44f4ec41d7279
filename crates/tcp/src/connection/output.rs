//! The segments that a connection sends.

use anabranch_multipath::{PathView, Time};

use super::{Connection, Ending, State};
use crate::options::Options;
use crate::segment::{Flags, Segment};
use crate::sender::Chunk;
use crate::seq::Seq;
use crate::timers::Timer;

impl Connection {
    /// Returns the next segment to send now, and its path (leg), like
    /// [`Core::poll`](anabranch_multipath::Core::poll). If there are several paths, `choose`
    /// selects the path of new data. `choose` receives the states of the paths and the number of
    /// waiting segments, and returns `None` to defer new data until the next call. Lost segments
    /// are sent on the path with the lowest round-trip time whose window has room.
    pub fn poll_by(
        &mut self,
        now: Time,
        choose: &mut dyn FnMut(&[PathView], u64) -> Option<usize>,
    ) -> Option<(usize, Segment)> {
        self.last_poll = now;
        self.expire(now);
        if let Some(segment) = self.outbox.pop_front() {
            return Some((self.leg, segment));
        }
        if self.syn_due {
            return Some((self.leg, self.syn(now)));
        }
        if self.copy_due {
            return Some((self.leg, self.syn_segment(now)));
        }
        let answers_at_once = self.state == State::SynReceived && self.fast_open.received;
        if !self.is_open() && !answers_at_once {
            return None;
        }
        // SACK blocks are sent first, in a segment of their own, because a full segment has no
        // room for them.
        if self.receiver.ack_now && self.receiver.has_blocks() {
            return Some((self.leg, self.acknowledgement(now)));
        }
        if (self.timers.get(Timer::Handshake).is_none() || self.fast_open.received)
            && let Some((chunk, leg)) = self.sender.next(now, &mut self.timers, choose)
        {
            return Some((leg, self.data(now, chunk)));
        }
        if self.sender.take_window_probe() {
            return Some((self.leg, self.window_probe(now)));
        }
        self.receiver.ack_now.then(|| (self.leg, self.acknowledgement(now)))
    }

    fn expire(&mut self, now: Time) {
        if self.timers.expire(now, Timer::Close) {
            self.end(Ending::Finished);
        }
        if self.timers.expire(now, Timer::Handshake) {
            self.repeat_syn();
        }
        self.copy_due |= self.timers.expire(now, Timer::SynCopy) && self.state == State::SynSent;
        if self.timers.expire(now, Timer::Ack) {
            self.receiver.ack_now = true;
        }
        if !self.sender.expire(now, &mut self.timers) {
            self.end(Ending::TimedOut);
        }
    }

    /// Returns a segment with the fields that all segments have: ports, acknowledgement and
    /// timestamps. Its window is still 0.
    pub(super) fn segment(&self, now: Time, flags: Flags, seq: Seq) -> Segment {
        Segment {
            source: self.ports.local,
            destination: self.ports.remote,
            seq,
            ack: if flags.has(Flags::ACK) { self.irs.at(self.receiver.nxt()) } else { Seq(0) },
            flags,
            window: 0,
            options: Options { timestamps: self.stamps.option(now), ..Options::default() },
            more_blocks: Vec::new(),
            payload: Vec::new(),
        }
    }

    /// Sets the window of `segment`, and records that an acknowledgement is sent at `now`.
    fn acknowledge(&mut self, now: Time, segment: &mut Segment) {
        segment.window = self.receiver.advertise();
        self.stamps.last_ack = self.receiver.nxt();
        let has_blocks = !segment.options.sack.as_slice().is_empty();
        self.receiver.acknowledged(now, has_blocks, &mut self.timers);
    }

    fn data(&mut self, now: Time, chunk: Chunk) -> Segment {
        let flag = |set: bool, flag: Flags| if set { flag } else { Flags::default() };
        let flags = Flags::ACK | flag(chunk.fin, Flags::FIN) | flag(chunk.push, Flags::PSH);
        let mut segment = self.segment(now, flags, self.iss.at(chunk.start));
        segment.payload = self.sender.payload(chunk);
        self.acknowledge(now, &mut segment);
        segment
    }

    /// Returns a segment with an acknowledgement and without data.
    pub(super) fn acknowledgement(&mut self, now: Time) -> Segment {
        let mut segment = self.segment(now, Flags::ACK, self.iss.at(self.sender.nxt()));
        if self.offers.sack {
            for (start, end) in self.receiver.take_blocks() {
                let block = (self.irs.at(start), self.irs.at(end));
                match self.receiver.is_sparse() {
                    true => segment.add_block(block),
                    false => _ = segment.options.sack.push(block.0, block.1),
                }
            }
        }
        self.acknowledge(now, &mut segment);
        segment
    }

    /// Returns a probe of the peer's window: an empty segment whose sequence number precedes the
    /// window, so that the peer must acknowledge it (RFC 9293, section 3.8.6.1; the form is
    /// Linux's).
    fn window_probe(&mut self, now: Time) -> Segment {
        let before = self.sender.una().wrapping_sub(1);
        let mut segment = self.segment(now, Flags::ACK, self.iss.at(before));
        self.acknowledge(now, &mut segment);
        segment
    }

    /// Returns a reset of this connection.
    pub(super) fn reset_segment(&self) -> Segment {
        let flags = if self.state == State::SynSent { Flags::RST } else { Flags::RST | Flags::ACK };
        let seq = self.iss.at(self.sender.nxt());
        let segment = Segment {
            source: self.ports.local,
            destination: self.ports.remote,
            seq,
            flags,
            ..Segment::default()
        };
        Segment { ack: self.irs.at(self.receiver.nxt()), ..segment }
    }
}
