//! The sending half of a connection: written data, data in flight, and the permission to send.
//!
//! * `scoreboard`: the segments in flight. `rack`: which of these are lost, by time.
//! * `ack`: effects of an acknowledgement. `recovery`: the states of loss recovery, with PRR and
//!   undo. `timeout`: effects of timers.
//! * `rate`: the delivery rate.

mod ack;
mod rack;
mod rate;
mod recovery;
mod scoreboard;
mod timeout;

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_multipath::Time;

pub(crate) use ack::AckSegment;

use crate::config::Config;
use crate::congestion::{CongestionWindow, Controller};
use crate::constants::{INIT_CWND, PACING_AVOIDANCE, PACING_SLOW_START};
use crate::rtt::Rtt;
use crate::stats::Stats;
use crate::timers::{Timer, Timers};
use rack::Rack;
use rate::Rate;
use recovery::Recovery;
use scoreboard::{Scoreboard, Sent};
use timeout::TailProbe;

/// A part of the stream to be sent in one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) start: u64,
    /// Offset after the chunk's last byte, or after its FIN.
    pub(crate) end: u64,
    pub(crate) fin: bool,
    /// Whether the segment has the PSH flag, because no more data are queued.
    pub(crate) push: bool,
}

/// The window that the peer advertises.
#[derive(Clone, Copy, Debug, Default)]
struct PeerWindow {
    /// Offset after the last byte that the peer accepts.
    end: u64,
    /// Largest size of the window so far.
    max: u64,
    /// Offset of the segment that last updated the window; its acknowledgement follows (RFC 9293,
    /// `SND.WL1` and `SND.WL2`).
    seq: u64,
    ack: u64,
}

/// The use of the congestion window (RFC 7661, with Linux's rules).
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    /// Whether the congestion window has limited the sender in this round.
    limited: bool,
    /// Maximum number of segments in flight in this round, which ends at the offset `round`.
    max_in_flight: u32,
    round: u64,
    /// Maximum number of segments in flight since the window was last fully used, at `used_at`.
    used: u32,
    used_at: Time,
}

/// The sending half of a connection.
#[derive(Debug)]
pub(crate) struct Sender {
    mss: usize,
    sack: bool,
    pacing: bool,
    capacity: usize,
    /// Written bytes, beginning with the offset `base`.
    buffer: VecDeque<u8>,
    base: u64,
    /// Offset of the first unacknowledged byte.
    una: u64,
    /// Offset of the first unsent byte.
    nxt: u64,
    /// Whether a FIN follows the buffer.
    closed: bool,
    peer: PeerWindow,
    board: Scoreboard,
    rtt: Rtt,
    rack: Rack,
    rate: Rate,
    recovery: Recovery,
    control: Box<dyn Controller>,
    window: CongestionWindow,
    usage: Usage,
    /// Number of consecutive retransmission timeouts.
    retries: u32,
    /// Number of consecutive probes of a closed window.
    probes: u32,
    last_sent: Time,
    /// Time at which pacing allows the next segment.
    paced_until: Time,
    /// Whether a tail loss probe is due.
    probe_due: bool,
    tail_probe: Option<TailProbe>,
    /// Whether a probe of the peer's window is due.
    window_probe_due: bool,
    pub(crate) stats: Stats,
}

impl Sender {
    pub(crate) fn new(config: &Config) -> Sender {
        Sender {
            mss: usize::from(config.mss),
            sack: false,
            pacing: config.pacing,
            capacity: config.send_buffer,
            buffer: VecDeque::new(),
            base: 1,
            una: 0,
            nxt: 1,
            closed: false,
            peer: PeerWindow::default(),
            board: Scoreboard::default(),
            rtt: Rtt::default(),
            rack: Rack::default(),
            rate: Rate::default(),
            recovery: Recovery::default(),
            control: config.congestion.controller(),
            window: CongestionWindow { cwnd: INIT_CWND, ssthresh: u32::MAX },
            usage: Usage::default(),
            retries: 0,
            probes: 0,
            last_sent: Time::ZERO,
            paced_until: Time::ZERO,
            probe_due: false,
            tail_probe: None,
            window_probe_due: false,
            stats: Stats::default(),
        }
    }

    /// Opens the sender after the handshake. Segments have at most `mss` bytes. `sack` is whether
    /// the peer supports SACK, and `window` is its first window.
    pub(crate) fn open(&mut self, now: Time, mss: usize, sack: bool, window: u64) {
        (self.mss, self.sack) = (mss, sack);
        self.una = 1;
        self.usage.used_at = now;
        self.peer = PeerWindow { end: 1 + window, max: window, seq: 0, ack: 1 };
    }

    /// Removes the first `bytes` written bytes, which the peer has received with our SYN. Its
    /// window begins after them.
    pub(crate) fn take_syn_data(&mut self, bytes: u32) {
        let first = 1 + u64::from(bytes);
        self.buffer.drain(..(bytes as usize).min(self.buffer.len()));
        (self.base, self.una, self.nxt) = (first, first, first);
        self.peer.end += u64::from(bytes);
        self.peer.ack = first;
    }

    /// Returns the first written bytes, at most `limit`, for a SYN.
    pub(crate) fn syn_data(&self, limit: usize) -> Vec<u8> {
        self.buffer.iter().take(limit).copied().collect()
    }

    /// Adds a round-trip time that was measured in the handshake.
    pub(crate) fn sample(&mut self, now: Time, rtt: Duration) {
        self.rtt.sample(now, rtt);
    }

    /// Reduces the window after the loss of a SYN, because the path may be congested (RFC 5681,
    /// section 3.1; Linux, from the second loss on).
    pub(crate) fn lost_syn(&mut self) {
        self.window.cwnd = 1;
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        let length = bytes.len().min(self.room());
        self.buffer.extend(&bytes[..length]);
        length
    }

    /// Returns the number of bytes that `write` accepts now.
    pub(crate) fn room(&self) -> usize {
        if self.closed { 0 } else { self.capacity.saturating_sub(self.buffer.len()) }
    }

    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Returns whether all data and the FIN have been acknowledged.
    pub(crate) fn is_finished(&self) -> bool {
        self.closed && self.una == self.end()
    }

    pub(crate) fn una(&self) -> u64 {
        self.una
    }

    pub(crate) fn nxt(&self) -> u64 {
        self.nxt
    }

    pub(crate) fn max_window(&self) -> u64 {
        self.peer.max
    }

    pub(crate) fn cwnd(&self) -> u32 {
        self.window.cwnd
    }

    pub(crate) fn ssthresh(&self) -> u32 {
        self.window.ssthresh
    }

    pub(crate) fn unacked(&self) -> u32 {
        self.board.count()
    }

    pub(crate) fn mss(&self) -> usize {
        self.mss
    }

    pub(crate) fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    pub(crate) fn delivery_rate(&self) -> u64 {
        self.rate.bytes_per_second()
    }

    /// Returns the number of bytes that were written but never sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.data_end().saturating_sub(self.nxt)
    }

    /// Returns the offset after the last written byte.
    fn data_end(&self) -> u64 {
        self.base + self.buffer.len() as u64
    }

    /// Returns the offset after the last written byte and, if there is one, the FIN.
    fn end(&self) -> u64 {
        self.data_end() + u64::from(self.closed)
    }

    /// Returns the bytes of a chunk, without its FIN.
    pub(crate) fn payload(&self, chunk: Chunk) -> Vec<u8> {
        let place = |offset: u64| (offset.min(self.data_end()) - self.base) as usize;
        let (from, until) = (place(chunk.start), place(chunk.end));
        let (front, back) = self.buffer.as_slices();
        let split = front.len();
        let mut payload = Vec::with_capacity(until - from);
        payload.extend_from_slice(&front[from.min(split)..until.min(split)]);
        payload.extend_from_slice(&back[from.max(split) - split..until.max(split) - split]);
        payload
    }

    /// Returns the next chunk to send now, and counts it as sent. Returns `None` if nothing may be
    /// sent.
    pub(crate) fn next(&mut self, now: Time, timers: &mut Timers) -> Option<Chunk> {
        if self.probe_due {
            self.probe_due = false;
            return self.tail_probe(now, timers);
        }
        if let Some(chunk) = self.override_chunk() {
            return Some(self.transmit(now, chunk, timers));
        }
        if self.pacing && now < self.paced_until {
            return None;
        }
        let room = self.board.in_flight() < self.window.cwnd;
        if let Some(id) = self.board.next_lost().filter(|_| room) {
            return self.retransmit(now, id, timers);
        }
        let new = self.new_chunk();
        let chunk = if room { new } else { None };
        match chunk {
            Some(chunk) => Some(self.transmit(now, chunk, timers)),
            None => {
                self.validate(now, new.is_some());
                self.await_window(now, timers);
                None
            }
        }
    }

    /// Returns the time at which pacing allows the next segment; `None` unless only pacing
    /// prevents it from being sent.
    pub(crate) fn paced_until(&self, now: Time) -> Option<Time> {
        let waits = self.pacing && self.paced_until > now;
        let waits = waits && self.board.in_flight() < self.window.cwnd;
        let something = waits && (self.board.next_lost().is_some() || self.new_chunk().is_some());
        something.then_some(self.paced_until)
    }

    /// Returns the next unsent chunk, as far as the peer's window has room; `None` if there is
    /// none.
    fn new_chunk(&self) -> Option<Chunk> {
        let wanted = self.end().saturating_sub(self.nxt).min(self.mss as u64);
        let length = wanted.min(self.peer.end.saturating_sub(self.nxt));
        // Silly window avoidance (RFC 9293, section 3.8.6.2.1): a partial segment is not sent if
        // the peer has accepted larger windows; the persist timer overrides this.
        if length == 0 || (length < wanted && length < self.peer.max / 2) {
            return None;
        }
        Some(self.chunk(self.nxt, self.nxt + length))
    }

    fn chunk(&self, start: u64, end: u64) -> Chunk {
        let fin = end > self.data_end();
        Chunk { start, end, fin, push: end >= self.data_end() }
    }

    fn transmit(&mut self, now: Time, chunk: Chunk, timers: &mut Timers) -> Chunk {
        let idle = self.board.is_empty();
        if idle {
            self.resume(now);
        }
        let rate = self.rate.on_send(now, idle);
        self.board.push(Sent {
            start: chunk.start,
            end: chunk.end,
            sent_at: now,
            count: 1,
            sacked: false,
            lost: false,
            again: false,
            rate,
        });
        self.nxt = self.nxt.max(chunk.end);
        self.count_transmission(now, chunk);
        timers.start(Timer::Retransmit, now + self.rtt.rto());
        timers.stop(Timer::Persist);
        self.schedule_probe(now, timers);
        chunk
    }

    fn retransmit(&mut self, now: Time, id: u64, timers: &mut Timers) -> Option<Chunk> {
        let sent = self.board.get(id)?;
        let chunk = self.chunk(sent.start, sent.end);
        let is_first = sent.start <= self.una;
        let rate = self.rate.on_send(now, false);
        self.recovery.on_retransmit(now);
        self.board.sent_again(id, now, rate);
        self.stats.retransmitted += 1;
        self.count_transmission(now, chunk);
        if is_first || timers.get(Timer::Retransmit).is_none() {
            timers.set(Timer::Retransmit, now + self.rtt.rto());
        }
        Some(chunk)
    }

    fn count_transmission(&mut self, now: Time, chunk: Chunk) {
        self.recovery.on_sent();
        self.last_sent = now;
        self.stats.sent += 1;
        if !self.pacing {
            return;
        }
        let share = if self.window.cwnd < self.window.ssthresh / 2 {
            PACING_SLOW_START
        } else {
            PACING_AVOIDANCE
        };
        let Some(srtt) = self.rtt.srtt() else { return };
        let window = u128::from(self.window.cwnd) * self.mss as u128 * u128::from(share);
        let length = u128::from(chunk.end - chunk.start) * 100;
        let gap = srtt.as_nanos() * length / window.max(1);
        let gap = Duration::from_nanos(u64::try_from(gap).unwrap_or(u64::MAX));
        self.paced_until = self.paced_until.max(now) + gap;
    }

    /// Resumes transmission after a pause. A window that was not used for a retransmission timeout
    /// may no longer fit the path (RFC 5681, section 4.1). Linux halves it for each timeout, as in
    /// RFC 2861.
    fn resume(&mut self, now: Time) {
        let idle = now.since(self.last_sent);
        if self.stats.sent == 0 {
            return;
        }
        self.control.on_resume(idle);
        let (rto, mut left) = (self.rtt.base_rto(), idle);
        let restart = INIT_CWND.min(self.window.cwnd);
        if idle > rto {
            self.window.ssthresh = self.recovery.threshold(&self.window);
            while left > rto && self.window.cwnd > restart {
                self.window.cwnd /= 2;
                left -= rto;
            }
            self.window.cwnd = self.window.cwnd.max(restart);
            self.usage.used = 0;
            self.usage.used_at = now;
        }
    }

    /// Records whether the congestion window limits the sender. `more` is whether data wait for
    /// the window (RFC 7661, section 4.3).
    fn validate(&mut self, now: Time, more: bool) {
        let count = self.board.count();
        let usage = &mut self.usage;
        let limited = more && self.board.in_flight() >= self.window.cwnd;
        let over = self.una >= usage.round || (!usage.limited && count > usage.max_in_flight);
        if over || limited {
            usage.limited = limited;
            usage.max_in_flight = count;
            usage.round = self.nxt;
        }
        if self.unsent() == 0 {
            self.rate.on_app_limited(self.nxt - self.una);
        }
        if self.is_limited() {
            (self.usage.used, self.usage.used_at) = (0, now);
            return;
        }
        self.usage.used = self.usage.used.max(count);
        if now.since(self.usage.used_at) >= self.rtt.base_rto() && self.recovery.is_open() {
            self.shrink_unused(now);
        }
    }

    /// Reduces a window that the application has not fully used for a retransmission timeout (RFC
    /// 2861, section 3.2).
    fn shrink_unused(&mut self, now: Time) {
        let used = self.usage.used.max(INIT_CWND);
        if used < self.window.cwnd {
            self.window.ssthresh = self.recovery.threshold(&self.window);
            self.window.cwnd = self.window.cwnd.midpoint(used);
        }
        (self.usage.used, self.usage.used_at) = (0, now);
    }

    /// Returns whether the window may grow, which is so if it limits the sender.
    fn is_limited(&self) -> bool {
        if self.usage.limited {
            return true;
        }
        // In slow start, a window that is half used must not limit later data.
        self.window.in_slow_start() && self.window.cwnd < 2 * self.usage.max_in_flight
    }

    /// Starts the persist timer if only the peer's window prevents data from being sent.
    fn await_window(&mut self, now: Time, timers: &mut Timers) {
        if self.board.is_empty() && self.nxt < self.end() && self.una > 0 {
            timers.start(Timer::Persist, now + self.rtt.doubled(self.probes));
        }
    }
}
