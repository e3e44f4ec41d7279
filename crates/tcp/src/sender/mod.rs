//! The sending half of a connection: written data, data in flight, and the decision when to send.
//!
//! * `scoreboard`: the segments in flight. `rack`: detection, by time, which of them are lost.
//! * `ack`: effects of an acknowledgement. `recovery`: the states of loss recovery, with PRR and
//!   undo. `timeout`: effects of timers.
//! * `copies`: segments at the beginning of the stream, which are sent twice.
//! * `rate`: the delivery rate. `leg`: a path, with its measurements and congestion control.

mod ack;
mod copies;
mod leg;
mod rack;
mod rate;
mod recovery;
mod scoreboard;
mod timeout;

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_multipath::{PathView, Time};

pub(crate) use ack::AckSegment;

use crate::config::{Config, MAX_LEGS};
use crate::congestion::Control;
use crate::rtt::Rtt;
use crate::stats::Stats;
use crate::timers::{Timer, Timers};
use copies::Copies;
use leg::Leg;
use recovery::Recovery;
use scoreboard::{Scoreboard, Sent};
use timeout::TailProbe;

/// A part of the stream that one segment carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) start: u64,
    /// Stream offset after the part's last byte, or after its FIN.
    pub(crate) end: u64,
    pub(crate) fin: bool,
    /// Whether the segment has the PSH flag, because no more data are queued.
    pub(crate) push: bool,
}

/// A function that chooses the path of the next segment with new data. It receives the paths'
/// states and the number of waiting segments. It returns `None` to defer new data.
pub(crate) type ChooseLeg<'a> = dyn FnMut(&[PathView], u64) -> Option<usize> + 'a;

/// Receive window that the peer advertises.
#[derive(Clone, Copy, Debug, Default)]
struct PeerWindow {
    /// Stream offset after the last byte that the peer accepts.
    end: u64,
    /// Largest receive window of the peer so far, in bytes.
    max: u64,
    /// Sequence number of the segment that last updated the window (RFC 9293, `SND.WL1`).
    seq: u64,
    /// Acknowledgement in the segment that last updated the window (RFC 9293, `SND.WL2`).
    ack: u64,
}

/// Use of the congestion window by the sender, in the current round trip and since the window was
/// last full (RFC 7661, with Linux's rules).
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    /// Whether the congestion window has limited the sender in this round trip.
    limited: bool,
    /// Maximum number of segments in flight in this round trip.
    max_in_flight: u32,
    /// Stream offset whose acknowledgement ends this round trip.
    round: u64,
    /// Maximum number of segments in flight since the time `used_at`.
    used: u32,
    /// Time at which the congestion window was last fully used.
    used_at: Time,
}

/// The sending half of a connection.
#[derive(Debug)]
pub(crate) struct Sender {
    mss: usize,
    sack: bool,
    initial_window: u32,
    capacity: usize,
    /// Bytes that were written and are not acknowledged, beginning with the stream offset `base`.
    buffer: VecDeque<u8>,
    base: u64,
    /// Stream offset of the first unacknowledged byte.
    una: u64,
    /// Stream offset of the first byte that was never sent.
    nxt: u64,
    /// Whether a FIN follows the written data.
    closed: bool,
    peer: PeerWindow,
    board: Scoreboard,
    /// State of each path (leg); at least one. Loss-based congestion control allows only one.
    legs: Vec<Leg>,
    /// Index of the path on which the last segment was sent.
    current: usize,
    recovery: Recovery,
    usage: Usage,
    /// Number of consecutive retransmission timeouts.
    retries: u32,
    /// Number of consecutive probes of a closed window.
    probes: u32,
    last_sent: Time,
    copies: Copies,
    /// Whether a tail loss probe must be sent.
    probe_due: bool,
    tail_probe: Option<TailProbe>,
    /// Whether a probe of the peer's receive window must be sent.
    window_probe_due: bool,
    pub(crate) stats: Stats,
}

impl Sender {
    pub(crate) fn new(config: &Config) -> Sender {
        let supports_legs = config.congestion.supports_legs();
        let legs = if supports_legs { config.legs.clamp(1, MAX_LEGS) } else { 1 };
        Sender {
            mss: usize::from(config.mss),
            sack: false,
            initial_window: config.initial_window,
            capacity: config.send_buffer,
            buffer: VecDeque::new(),
            base: 1,
            una: 0,
            nxt: 1,
            closed: false,
            peer: PeerWindow::default(),
            board: Scoreboard::default(),
            legs: (0..legs).map(|_| Leg::new(config)).collect(),
            current: 0,
            recovery: Recovery::default(),
            usage: Usage::default(),
            retries: 0,
            probes: 0,
            last_sent: Time::ZERO,
            copies: Copies::new(config.doubled),
            probe_due: false,
            tail_probe: None,
            window_probe_due: false,
            stats: Stats::default(),
        }
    }

    /// Starts to send after the handshake. Segments have at most `mss` bytes. `sack` states
    /// whether the peer supports SACK, and `window` is its first receive window.
    pub(crate) fn open(&mut self, now: Time, mss: usize, sack: bool, window: u64) {
        (self.mss, self.sack) = (mss, sack);
        self.una = 1;
        self.usage.used_at = now;
        self.peer = PeerWindow { end: 1 + window, max: window, seq: 0, ack: 1 };
    }

    /// Removes the first `bytes` written bytes, which the peer has received with our SYN. The
    /// peer's receive window begins after these bytes.
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

    /// Adds a round-trip time of the path `leg` that was measured in the handshake.
    pub(crate) fn sample(&mut self, now: Time, leg: usize, rtt: Duration) {
        if let Some(leg) = self.legs.get_mut(leg) {
            leg.rtt.sample(now, rtt);
        }
    }

    pub(crate) fn expect_rtt(&mut self, leg: usize, rtt: Duration) {
        self.legs.get_mut(leg).into_iter().for_each(|leg| leg.rtt.expect(rtt));
    }

    pub(crate) fn leg_rtt(&self, leg: usize) -> Option<Duration> {
        self.legs.get(leg)?.rtt.srtt()
    }

    /// Returns the lowest round-trip time of an open path, measured or expected; `None` if none is
    /// known.
    pub(crate) fn least_expected_rtt(&self) -> Option<Duration> {
        let open = self.legs.iter().filter(|leg| leg.is_open);
        open.filter_map(|leg| leg.rtt.expected()).min()
    }

    /// Returns whether the connection has several paths.
    pub(crate) fn has_legs(&self) -> bool {
        self.legs.len() > 1
    }

    /// Opens the paths (legs) whose bits are set in `open`, and closes all other paths. Segments
    /// in flight on a closed path count as lost.
    pub(crate) fn set_legs(&mut self, open: u8) {
        for (place, leg) in self.legs.iter_mut().enumerate() {
            let is_open = open >> place & 1 == 1;
            if leg.is_open && !is_open {
                self.board.lose_leg(place);
            }
            leg.is_open = is_open;
            leg.end_rest();
        }
    }

    /// Reduces the congestion window after the loss of a SYN, because the path may be congested
    /// (RFC 5681, section 3.1; Linux, from the second loss on).
    pub(crate) fn lost_syn(&mut self) {
        self.legs.iter_mut().for_each(|leg| leg.window.cwnd = 1);
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

    /// Returns the number of bytes in memory, which are unsent or unacknowledged.
    pub(crate) fn held(&self) -> usize {
        self.buffer.len()
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

    /// Returns the sum of the open paths' congestion windows, in segments.
    pub(crate) fn cwnd(&self) -> u32 {
        let open = self.legs.iter().filter(|leg| leg.is_open);
        open.fold(0, |sum, leg| leg.window.cwnd.saturating_add(sum))
    }

    pub(crate) fn ssthresh(&self) -> u32 {
        self.legs[0].window.ssthresh
    }

    pub(crate) fn unacked(&self) -> u32 {
        self.board.count()
    }

    pub(crate) fn mss(&self) -> usize {
        self.mss
    }

    /// Returns the round-trip time estimates of the open path with the longest timeout. The timers
    /// of the connection depend on them.
    pub(crate) fn rtt(&self) -> &Rtt {
        let open = self.legs.iter().filter(|leg| leg.is_open && leg.rtt.expected().is_some());
        let slowest = open.max_by_key(|leg| leg.rtt.base_rto());
        &slowest.unwrap_or(&self.legs[0]).rtt
    }

    pub(crate) fn delivery_rate(&self) -> u64 {
        self.legs.iter().map(|leg| leg.rate.bytes_per_second()).sum()
    }

    /// Returns the number of bytes that were written but never sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.data_end().saturating_sub(self.nxt)
    }

    /// Returns the stream offset after the last written byte.
    fn data_end(&self) -> u64 {
        self.base + self.buffer.len() as u64
    }

    /// Returns the stream offset after the last written byte and, if there is one, after the FIN.
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

    /// Chooses the next data to send now, and the path for them. Counts the data as sent. Returns
    /// `None` if nothing may be sent. `choose` is called only if there are several paths.
    pub(crate) fn next(
        &mut self,
        now: Time,
        timers: &mut Timers,
        choose: &mut ChooseLeg<'_>,
    ) -> Option<(Chunk, usize)> {
        if let Some(copy) = self.next_copy(now, timers) {
            return Some(copy);
        }
        if self.probe_due {
            self.probe_due = false;
            return self.tail_probe(now, timers);
        }
        if let Some(chunk) = self.override_chunk() {
            let leg = self.best(|_, leg| leg.is_usable(now));
            let leg = leg.unwrap_or(0);
            return Some((self.transmit(now, leg, chunk, timers), leg));
        }
        if !self.has_legs() && self.legs[0].is_paced(now) {
            return None;
        }
        let ready = self.best(|flying, leg| leg.is_ready(now, flying));
        if let Some((id, leg)) = self.board.next_lost().zip(ready) {
            return self.retransmit(now, id, leg, timers);
        }
        let new = self.new_chunk();
        match new.filter(|_| ready.is_some()) {
            Some(chunk) => {
                let leg = if self.has_legs() { self.choose(now, choose)? } else { 0 };
                Some((self.transmit(now, leg, chunk, timers), leg))
            }
            None => {
                self.validate(now, new.is_some());
                self.await_window(now, timers);
                None
            }
        }
    }

    /// Returns the number of segments in flight on the path `leg`.
    fn flying(&self, leg: usize) -> u32 {
        if self.has_legs() { self.board.flying(leg) } else { self.board.in_flight() }
    }

    /// Returns the path with the lowest expected round-trip time among the paths that `suits`
    /// accepts; `None` if it accepts none. The first argument of `suits` is the number of segments
    /// in flight on the path.
    fn best(&self, suits: impl Fn(u32, &Leg) -> bool) -> Option<usize> {
        let legs = self.legs.iter().enumerate();
        let suited = legs.filter(|(place, leg)| suits(self.flying(*place), leg));
        suited.min_by_key(|(_, leg)| leg.expected_rtt()).map(|(place, _)| place)
    }

    /// Returns the path that `choose` selects for new data; `None` if nothing may be sent on it
    /// now.
    fn choose(&self, now: Time, choose: &mut ChooseLeg<'_>) -> Option<usize> {
        let legs = self.legs.iter().enumerate();
        let views: Vec<PathView> = legs
            .map(|(place, leg)| leg.view(now, self.flying(place), self.mss, place == self.current))
            .collect();
        let waiting = self.unsent().div_ceil(self.mss.max(1) as u64).max(1);
        let chosen = choose(&views, waiting)?;
        let leg = self.legs.get(chosen)?;
        leg.is_ready(now, self.flying(chosen)).then_some(chosen)
    }

    /// Returns the time at which pacing allows the next segment. Returns `None` if pacing does not
    /// delay it, or if something else prevents sending, too.
    pub(crate) fn paced_until(&self, now: Time) -> Option<Time> {
        let legs = self.legs.iter().enumerate();
        let paced = legs.filter_map(|(place, leg)| leg.paced_until(now, self.flying(place)));
        let until = paced.min()?;
        let something = self.board.next_lost().is_some() || self.new_chunk().is_some();
        something.then_some(until)
    }

    /// Returns the next part of the stream that was never sent, up to the end of the peer's
    /// receive window; `None` if there is none.
    fn new_chunk(&self) -> Option<Chunk> {
        let wanted = self.end().saturating_sub(self.nxt).min(self.mss as u64);
        let length = wanted.min(self.peer.end.saturating_sub(self.nxt));
        // Silly window avoidance (RFC 9293, section 3.8.6.2.1): if the window cuts a segment to
        // less than half of the peer's largest window, the segment is not sent. The persist timer
        // overrides this.
        if length == 0 || (length < wanted && length < self.peer.max / 2) {
            return None;
        }
        Some(self.chunk(self.nxt, self.nxt + length))
    }

    fn chunk(&self, start: u64, end: u64) -> Chunk {
        let fin = end > self.data_end();
        Chunk { start, end, fin, push: end >= self.data_end() }
    }

    fn transmit(&mut self, now: Time, leg: usize, chunk: Chunk, timers: &mut Timers) -> Chunk {
        let idle = if self.has_legs() { self.flying(leg) == 0 } else { self.board.is_empty() };
        if idle {
            self.resume(now, leg);
        }
        let rate = self.legs[leg].rate.on_send(now, idle);
        self.board.push(Sent {
            start: chunk.start,
            end: chunk.end,
            sent_at: now,
            count: 1,
            sacked: false,
            lost: false,
            retransmitted: false,
            rate,
            leg,
        });
        self.nxt = self.nxt.max(chunk.end);
        self.count_transmission(now, leg, chunk);
        timers.start(Timer::Retransmit, now + self.rtt().rto());
        timers.stop(Timer::Persist);
        self.schedule_probe(now, timers);
        self.schedule_copy(now, leg, chunk, timers);
        chunk
    }

    fn retransmit(
        &mut self,
        now: Time,
        id: u64,
        leg: usize,
        timers: &mut Timers,
    ) -> Option<(Chunk, usize)> {
        let sent = self.board.get(id)?;
        let chunk = self.chunk(sent.start, sent.end);
        let is_first = sent.start <= self.una;
        let rate = self.legs[leg].rate.on_send(now, false);
        self.recovery.on_retransmit(now);
        self.board.sent_again(id, now, leg, rate);
        self.stats.retransmitted += 1;
        self.count_transmission(now, leg, chunk);
        if is_first || timers.get(Timer::Retransmit).is_none() {
            timers.set(Timer::Retransmit, now + self.rtt().rto());
        }
        Some((chunk, leg))
    }

    fn count_transmission(&mut self, now: Time, leg: usize, chunk: Chunk) {
        self.recovery.on_sent();
        (self.last_sent, self.current) = (now, leg);
        self.stats.sent += 1;
        self.legs[leg].note_sent(now, chunk.end - chunk.start, self.mss);
    }

    /// Resumes transmission on a path after a pause. The congestion window may no longer fit the
    /// path (RFC 5681, section 4.1). Linux halves it for each retransmission timeout that the
    /// pause lasted, as in RFC 2861.
    fn resume(&mut self, now: Time, leg: usize) {
        let idle = now.since(self.last_sent);
        if self.stats.sent == 0 {
            return;
        }
        let Leg { control, window, rtt, .. } = &mut self.legs[leg];
        match control {
            Control::Losses(controller) => controller.on_resume(idle),
            Control::Model(bbr) => return bbr.on_restart(),
        }
        let (rto, mut left) = (rtt.base_rto(), idle);
        let restart = self.initial_window.min(window.cwnd);
        if idle > rto {
            window.ssthresh = self.recovery.threshold(window);
            while left > rto && window.cwnd > restart {
                window.cwnd /= 2;
                left -= rto;
            }
            window.cwnd = window.cwnd.max(restart);
            self.usage.used = 0;
            self.usage.used_at = now;
        }
    }

    /// Records whether the congestion window limits the sender. `more` states whether data wait
    /// for the window (RFC 7661, section 4.3).
    fn validate(&mut self, now: Time, more: bool) {
        if self.unsent() == 0 {
            self.note_app_limited();
        }
        let Control::Losses(_) = self.legs[0].control else { return };
        let count = self.board.count();
        let usage = &mut self.usage;
        let limited = more && self.board.in_flight() >= self.legs[0].window.cwnd;
        let over = self.una >= usage.round || (!usage.limited && count > usage.max_in_flight);
        if over || limited {
            usage.limited = limited;
            usage.max_in_flight = count;
            usage.round = self.nxt;
        }
        if self.is_limited() {
            (self.usage.used, self.usage.used_at) = (0, now);
            return;
        }
        self.usage.used = self.usage.used.max(count);
        let rto = self.legs[0].rtt.base_rto();
        if now.since(self.usage.used_at) >= rto && self.recovery.is_open() {
            self.shrink_unused(now);
        }
    }

    /// Records that the application has nothing to send. The next rate samples then do not count
    /// as the rate of the path.
    fn note_app_limited(&mut self) {
        if !self.has_legs() {
            return self.legs[0].rate.on_app_limited(self.nxt - self.una);
        }
        for (place, leg) in self.legs.iter_mut().enumerate() {
            let in_flight = u64::from(self.board.flying(place)) * self.mss as u64;
            leg.rate.on_app_limited(in_flight);
        }
    }

    /// Reduces the congestion window if the application has not fully used it for a retransmission
    /// timeout (RFC 2861, section 3.2).
    fn shrink_unused(&mut self, now: Time) {
        let used = self.usage.used.max(self.initial_window);
        let window = &mut self.legs[0].window;
        if used < window.cwnd {
            window.ssthresh = self.recovery.threshold(window);
            window.cwnd = window.cwnd.midpoint(used);
        }
        (self.usage.used, self.usage.used_at) = (0, now);
    }

    /// Returns whether the congestion window may grow: it limits the sender or, in slow start,
    /// more than half of it is used.
    fn is_limited(&self) -> bool {
        if self.usage.limited {
            return true;
        }
        // In slow start, the window grows before the application needs all of it.
        let window = &self.legs[0].window;
        window.in_slow_start() && window.cwnd < 2 * self.usage.max_in_flight
    }

    /// Starts the persist timer if only the peer's receive window prevents data from being sent.
    fn await_window(&mut self, now: Time, timers: &mut Timers) {
        if self.board.is_empty() && self.nxt < self.end() && self.una > 0 {
            timers.start(Timer::Persist, now + self.rtt().doubled(self.probes));
        }
    }
}
