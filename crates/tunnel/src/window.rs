//! The window of one path: the maximum number of bytes in flight. It is computed from the other
//! end's acknowledgements.
//!
//! The window depends on rate and delay, as in BBR, and not on losses. The tunnel does not
//! retransmit packets. If a controller provoked losses to find its limit, each loss would slow the
//! TCP connections in the tunnel. Each path would have its own controller, and would add its own
//! losses.
//!
//! Names and sections without another source are from
//! draft-cardwell-iccrg-bbr-congestion-control-02, which draft-ietf-ccwg-bbr continues. Variables
//! that begin with `C.` (connection) or `P.` (packet) are from
//! draft-cheng-iccrg-delivery-rate-estimation-02. That draft also defines how delivery rates are
//! sampled. Once the path's [`Capacity`] is known, packets are paced by it, so that a burst does
//! not overflow the path's queue.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_multipath::{LegView, PathView, Time};

use crate::capacity::{Capacity, Train};

/// Window in bytes before the first rate and delay are measured (BBR's `InitialCwnd`): 32 packets.
const INITIAL_CWND: f64 = 32.0 * 1_400.0;
/// Minimum window, in packets (`BBRMinPipeCwnd`, BBR draft -02, section 2.8).
const MIN_PIPE_CWND: f64 = 4.0;
/// Window in Startup, in bandwidth-delay products. This is the counterpart of `BBRStartupCwndGain`
/// (BBR draft -02, section 2.6), whose value in the draft is 2.
const STARTUP_CWND_GAIN: f64 = 3.0;
/// Window in ProbeBW, in bandwidth-delay products, one value per round. The cycle is the pacing
/// gain's cycle in the first BBR (draft-cardwell-iccrg-bbr-congestion-control-00), with 0.85 in
/// place of 0.75. One round probes for a higher rate, and the next round drains the queue of the
/// probe.
const CWND_GAIN_CYCLE: [f64; 8] = [1.25, 0.85, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Maximum queue that this end may build in the path, as the time that the path takes to forward
/// it. The queues of some paths hold little more. The limit applies to probes for a higher rate
/// (in ProbeBW), and to Startup once the capacity is known.
const PROBE: Duration = Duration::from_millis(10);
/// Number of rounds over which the maximum rate is taken: `BtlBwFilterLen` of the first BBR
/// (draft-cardwell-iccrg-bbr-congestion-control-00), 10 round trips.
const MAX_RATE_FILTER_LENGTH: u64 = 10;
/// Number of rounds without a growth of the rate by a quarter after which Startup ends. This is
/// the limit of `BBR.full_bw_count` (BBR draft -02, sections 2.13 and 4.3.1.2), whose value in the
/// draft is 3.
const FULL_BANDWIDTH_ROUNDS: u32 = 3;
/// Share of lost packets in a round (beyond two packets) above which Startup ends and the rates
/// are reduced (`BBRLossThresh`, BBR draft -02, section 2.8).
const LOSS_THRESHOLD: f64 = 0.02;
/// Mean packet length of a round trip, in bytes, below which the round trip counts as without bulk
/// data. It is less than half of a full packet, but more than a TCP acknowledgement.
const SHORT: i64 = 600;
/// Number of application-limited rounds with only short packets after which Startup begins again.
/// A program's handshake takes fewer rounds.
const IDLE: u32 = 10;
/// Factor for the reduction of the measured rates after a round with losses, at most once in a
/// cycle of [`CWND_GAIN_CYCLE`]. This is the counterpart of `BBRBeta` (BBR draft -02, section
/// 2.8), whose value in the draft is 0.7.
const BETA: f64 = 0.9;
/// Queueing delay that ends Startup, in addition to a sixteenth of `BBR.min_rtt`. A round's
/// queueing delay is its minimum round-trip time minus `BBR.min_rtt`. BBR draft -02 has no such
/// rule.
const LONGER: Duration = Duration::from_millis(2);
/// Length of the periods in which the minimum round-trip time is measured (`MinRTTFilterLen`, BBR
/// draft -02, section 2.14.1). The minimum of the previous period is used, too, so a sample counts
/// for one to two periods.
const MIN_RTT_FILTER_LENGTH: Duration = Duration::from_secs(10);
/// Round-trip time of a path before the first sample (`kInitialRtt`, RFC 9002, section 6.2.2).
const INITIAL_RTT: Duration = Duration::from_millis(333);
/// Time without an acknowledgement after which all packets in flight count as lost. If three round
/// trips take longer, that time applies.
const GIVE_UP: Duration = Duration::from_secs(1);
/// Number of packets after which an acknowledgement is sent at once, before [`DELAY`] has passed.
pub(crate) const STEP: u32 = 16;
/// Maximum delay of an acknowledgement, counted from the first packet that it acknowledges.
pub(crate) const DELAY: Duration = Duration::from_millis(5);

/// An acknowledgement: the other end's report on the packets that arrived on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receipt {
    /// The lowest 32 bits of the greatest packet number that arrived.
    pub(crate) largest: u32,
    /// The lowest 32 bits of the total number of packets that arrived.
    pub(crate) count: u32,
    /// Time since the packet with the greatest number arrived, in microseconds.
    pub(crate) ago: u32,
    /// Time in microseconds between two arrivals: the first one since the previous
    /// acknowledgement, and the arrival of the packet with the greatest number.
    pub(crate) span: u32,
}

/// A packet in flight.
struct Sent {
    number: u64,
    at: Time,
    bytes: u32,
    /// Bytes that had been delivered when this packet was sent (`P.delivered`).
    delivered: f64,
    /// Time at which the last of the `delivered` bytes had arrived (`P.delivered_time`).
    delivered_at: Time,
    /// Time at which the last packet of the `delivered` bytes had been sent (`P.first_sent_time`).
    first_at: Time,
    /// Whether the window was full within the last round trip: the opposite of `P.is_app_limited`.
    /// The path, not the program, then limits the measured rate.
    network_limited: bool,
}

/// The window of one path.
pub(crate) struct Window {
    sent: VecDeque<Sent>,
    inflight: u64,
    /// Number of packets that arrived, as the other end counts them.
    count: u32,
    /// Number of bytes that arrived (`C.delivered`).
    delivered: f64,
    /// Time at which the last of the `delivered` bytes arrived (`C.delivered_time`).
    delivered_at: Time,
    /// Time at which the last of the `delivered` bytes had been sent (`C.first_sent_time`).
    first_at: Time,
    /// Time at which the window was last full; `None` if it never was.
    full_at: Option<Time>,
    /// Candidates for `BBR.max_bw` (`BBR.MaxBwFilter`), the highest rate first. Each has the
    /// number of the round in which it was measured, and the rate in bytes per second.
    rates: VecDeque<(u64, f64)>,
    round: Round,
    srtt: Option<Duration>,
    least: Least,
    /// State of Startup (BBR draft -02, section 2.13): the best rate (`BBR.full_bw`), and the
    /// number of rounds since this rate last grew (`BBR.full_bw_count`). `None` in ProbeBW.
    search: Option<(f64, u32)>,
    /// Number of rounds of short packets since the last round that was not limited by the
    /// application (app-limited).
    short: u32,
    /// Number of the round from which losses may reduce the measured rates again. They are reduced
    /// at most once in a cycle of [`CWND_GAIN_CYCLE`].
    cut: u64,
    capacity: Capacity,
}

/// A packet-timed round trip (BBR draft -02, section 4.5.1), from the sending of a packet to its
/// acknowledgement.
#[derive(Clone, Copy, Default)]
struct Round {
    /// Number of rounds that were not app-limited (`BBR.round_count` counts all rounds).
    number: u64,
    /// Bytes that must have been delivered when a packet is sent, so that its acknowledgement ends
    /// the round (`BBR.next_round_delivered`).
    ends: f64,
    least: Option<Duration>,
    sent: u32,
    /// Total bytes of the packets that `sent` counts.
    bytes: i64,
    lost: i64,
    /// Whether the round has a sample that is not app-limited.
    network_limited: bool,
}

/// The minimum round-trip times in the current [`MIN_RTT_FILTER_LENGTH`] and in the previous one,
/// for `BBR.min_rtt`.
#[derive(Clone, Copy, Default)]
struct Least {
    spans: [Option<Duration>; 2],
    until: Time,
}

impl Least {
    fn note(&mut self, now: Time, rtt: Duration) {
        if now >= self.until {
            (self.spans, self.until) = ([None, self.spans[0]], now + MIN_RTT_FILTER_LENGTH);
        }
        self.spans[0] = Some(self.spans[0].map_or(rtt, |least| least.min(rtt)));
    }

    fn get(&self) -> Option<Duration> {
        self.spans.iter().flatten().min().copied()
    }
}

impl Default for Window {
    fn default() -> Window {
        Window {
            sent: VecDeque::new(),
            inflight: 0,
            count: 0,
            delivered: 0.0,
            delivered_at: Time::ZERO,
            first_at: Time::ZERO,
            full_at: None,
            rates: VecDeque::new(),
            round: Round::default(),
            srtt: None,
            least: Least::default(),
            search: Some((0.0, 0)),
            short: 0,
            cut: 0,
            capacity: Capacity::default(),
        }
    }
}

impl Window {
    /// Records that the packet with the packet number `number` and a length of `bytes` was sent.
    pub(crate) fn sent(&mut self, now: Time, number: u64, bytes: usize) {
        if self.sent.is_empty() {
            (self.delivered_at, self.first_at) = (now, now);
        }
        let bytes = bytes as u32;
        self.inflight += u64::from(bytes);
        self.capacity.sent(now, f64::from(bytes));
        if self.window_room() == 0 {
            self.full_at = Some(now);
        }
        let lately = self.srtt.unwrap_or(GIVE_UP);
        let network_limited = self.full_at.is_some_and(|full| now.since(full) <= lately);
        let (delivered, delivered_at) = (self.delivered, self.delivered_at);
        let first_at = self.first_at;
        self.sent.push_back(Sent {
            number,
            at: now,
            bytes,
            delivered,
            delivered_at,
            first_at,
            network_limited,
        });
    }

    /// Processes an acknowledgement.
    pub(crate) fn acknowledged(&mut self, now: Time, receipt: Receipt) {
        let fresh = receipt.count.wrapping_sub(self.count).cast_signed();
        let place = self.sent.iter().position(|sent| sent.number as u32 == receipt.largest);
        let known = place.map_or(0, |place| place + 1);
        // Packets that were given up as lost may still arrive. A packet that was not sent cannot
        // arrive.
        if fresh <= 0 || place.is_none() && !self.is_past(receipt.largest) {
            return;
        }
        self.count = receipt.count;
        let Some(last) = place.map(|place| &self.sent[place]) else {
            self.round.lost -= i64::from(fresh);
            return;
        };
        let (at, network_limited) = (last.at, last.network_limited);
        let began = (last.delivered, last.delivered_at, last.first_at);
        let first = self.sent[known.saturating_sub(fresh as usize)].at;
        let bytes: u64 = self.sent.drain(..known).map(|sent| u64::from(sent.bytes)).sum();
        self.capacity.note(&Train {
            packets: fresh.unsigned_abs(),
            bytes: bytes as f64 / known as f64,
            sent: at.since(first),
            arrived: Duration::from_micros(receipt.span.into()),
        });
        self.inflight -= bytes;
        self.delivered += bytes as f64 * (f64::from(fresh) / known as f64).min(1.0);
        self.round.lost += known as i64 - i64::from(fresh);
        self.round.sent += known as u32;
        self.round.bytes += bytes as i64;
        let last_arrival =
            Time::from_nanos(now.nanos().saturating_sub(u64::from(receipt.ago) * 1_000));
        (self.delivered_at, self.first_at) = (last_arrival.max(self.delivered_at), at);
        self.note_delay(now, last_arrival.since(at));
        self.note_rate(began, at, network_limited);
        if began.0 >= self.round.ends {
            self.end_round();
        }
    }

    /// Returns whether all packets in flight have greater packet numbers than the number whose
    /// lowest 32 bits are `largest`.
    fn is_past(&self, largest: u32) -> bool {
        let Some(first) = self.sent.front() else { return true };
        largest.wrapping_sub(first.number as u32).cast_signed() < 0
    }

    fn note_delay(&mut self, now: Time, rtt: Duration) {
        self.least.note(now, rtt);
        self.srtt = Some(self.srtt.map_or(rtt, |srtt| (srtt * 7 + rtt) / 8));
        let least = self.round.least;
        self.round.least = Some(least.map_or(rtt, |least| least.min(rtt)));
    }

    /// Records the delivery rate of a sample: a packet that was sent at `at` has arrived. The
    /// tuple has the fields `delivered`, `delivered_at` and `first_at` of the packet. If
    /// `network_limited` is false, the sample is application-limited. It then counts only if it is
    /// not below `BBR.max_bw` (BBR draft -02, section 4.5.2.3).
    fn note_rate(
        &mut self,
        (delivered, last_arrival, sent): (f64, Time, Time),
        at: Time,
        network_limited: bool,
    ) {
        let elapsed = self.delivered_at.since(last_arrival).max(at.since(sent));
        if elapsed < self.least.get().unwrap_or_default() / 2 || elapsed.is_zero() {
            return;
        }
        let rate = (self.delivered - delivered) / elapsed.as_secs_f64();
        self.round.network_limited |= network_limited;
        if !network_limited && rate < self.rate() {
            return;
        }
        while self.rates.back().is_some_and(|(_, before)| *before <= rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((self.round.number, rate));
        while self
            .rates
            .front()
            .is_some_and(|(round, _)| round + MAX_RATE_FILTER_LENGTH < self.round.number)
        {
            self.rates.pop_front();
        }
    }

    fn end_round(&mut self) {
        let round = std::mem::take(&mut self.round);
        let number = round.number + u64::from(round.network_limited);
        self.round = Round { number, ends: self.delivered, ..Round::default() };
        let lossy = round.lost as f64 > f64::from(round.sent) * LOSS_THRESHOLD + 2.0;
        // The rates are reduced at most once in a cycle, so that random losses do not close the
        // window.
        if lossy && number >= self.cut {
            self.cut = number + CWND_GAIN_CYCLE.len() as u64;
            self.rates.iter_mut().for_each(|(_, rate)| *rate *= BETA);
        }
        self.go_on_searching(&round, lossy);
    }

    /// Ends Startup if the path is full (BBRCheckStartupFullBandwidth, BBR draft -02, section
    /// 4.3.1.2). Begins Startup again in the first round that is not application-limited after
    /// [`IDLE`] application-limited rounds of short packets. Rounds of short packets show nothing
    /// about the path, but Startup may have ended in such a round because of a queue in the return
    /// direction. `lossy` is whether too many packets of the round were lost ([`LOSS_THRESHOLD`]).
    fn go_on_searching(&mut self, round: &Round, lossy: bool) {
        if !round.network_limited && round.bytes < i64::from(round.sent) * SHORT {
            self.short += 1;
        }
        if round.network_limited && std::mem::take(&mut self.short) >= IDLE && self.search.is_none()
        {
            self.search = Some((self.rate(), 0));
            return;
        }
        let (rate, Some((best, flat))) = (self.rate(), self.search) else { return };
        let least = self.least.get().unwrap_or_default();
        let queued = round.least.is_some_and(|rtt| rtt > least + least / 16 + LONGER);
        // Losses below the capacity are random, because packets that are paced at the capacity
        // overflow no queue.
        let below = self.capacity.limit().is_some_and(|limit| rate < 0.9 * limit);
        self.search = match () {
            () if queued || lossy && !below => None,
            () if rate >= best * 1.25 => Some((rate, 0)),
            () if !round.network_limited => Some((best, flat)),
            () if flat + 1 >= FULL_BANDWIDTH_ROUNDS => None,
            () => Some((best, flat + 1)),
        };
    }

    /// Returns the maximum delivery rate, in bytes per second (`BBR.max_bw`).
    fn rate(&self) -> f64 {
        self.rates.front().map_or(0.0, |(_, rate)| *rate)
    }

    /// Returns the bandwidth-delay product in bytes (`BBR.bdp`): the maximum bytes in flight that
    /// need no queue. `None` before the first sample.
    fn product(&self) -> Option<f64> {
        let product = self.rate() * self.least.get()?.as_secs_f64();
        (product > 0.0).then_some(product)
    }

    /// Returns the minimum round-trip time of the last 10 to 20 s (`BBR.min_rtt`); `None` before
    /// the first sample.
    pub(crate) fn least_rtt(&self) -> Option<Duration> {
        self.least.get()
    }

    /// Returns the window (`cwnd`): the maximum bytes in flight.
    fn size(&self) -> f64 {
        let unit = self.unit();
        let Some(product) = self.product() else { return INITIAL_CWND };
        // Acknowledgements are delayed, so packets that have arrived may not be acknowledged yet
        // and still count as in flight.
        let late = (self.rate() * DELAY.as_secs_f64()).min(f64::from(STEP) * unit);
        if self.search.is_some() {
            let sought = (STARTUP_CWND_GAIN * product + late).max(INITIAL_CWND);
            let bound = self.bound().map(|bound| (bound + late + 2.0 * unit).max(INITIAL_CWND));
            return bound.map_or(sought, |bound| sought.min(bound));
        }
        let gain = CWND_GAIN_CYCLE[(self.round.number % CWND_GAIN_CYCLE.len() as u64) as usize];
        let probed = ((gain - 1.0) * product).min(self.rate() * PROBE.as_secs_f64());
        (product + probed + late + 2.0 * unit).max(MIN_PIPE_CWND * unit)
    }

    /// Returns the maximum window in Startup, in bytes: the capacity times `BBR.min_rtt`, plus a
    /// queue of a quarter of `BBR.min_rtt`, at most [`PROBE`]. `None` if the capacity is unknown.
    fn bound(&self) -> Option<f64> {
        let (rate, least) = self.capacity.limit().zip(self.least.get())?;
        Some(rate * (least + (least / 4).min(PROBE)).as_secs_f64())
    }

    /// Returns the average size of a packet in flight, in bytes.
    fn unit(&self) -> f64 {
        let packets = self.sent.len() as f64;
        if packets < 1.0 { 1_400.0 } else { self.inflight as f64 / packets }
    }

    /// Returns the number of packets for which the window has room.
    fn window_room(&self) -> u64 {
        ((self.size() - self.inflight as f64) / self.unit()).max(0.0) as u64
    }

    /// Returns the number of packets that may be sent now.
    fn room(&self, now: Time) -> u64 {
        let unit = self.unit();
        self.window_room().min((self.capacity.room(now, unit) / unit) as u64)
    }

    /// Returns the path's state for a scheduler. `rtt` is the path's round-trip time measured by
    /// probes, which is used until the window has a sample. `current` is whether this path carried
    /// the last packet.
    pub(crate) fn view(&self, now: Time, rtt: Option<Duration>, current: bool) -> PathView {
        let (unit, rtt) = (self.unit(), self.srtt.or(rtt).unwrap_or(INITIAL_RTT));
        let leg = LegView {
            least_rtt: self.least.get().unwrap_or(rtt),
            size: (self.size() / unit) as u64,
            inflight: self.sent.len() as u64,
            step: STEP.into(),
            bdp: (self.product().unwrap_or_default() / unit) as u64,
            queued: 0,
            slow_start: self.search.is_some(),
            current,
            switch_cost: 0,
            capacity: self.capacity.rate().map_or(0, |rate| (rate / unit) as u64),
            max_rate: self.capacity.limit().map_or(0, |rate| (rate / unit) as u64),
            link: None,
        };
        PathView::leg(Some(rtt), self.room(now), leg)
    }

    /// Counts all packets in flight as lost if nothing was acknowledged for too long. Returns
    /// whether it did so.
    pub(crate) fn expire(&mut self, now: Time) -> bool {
        self.capacity.on_time(now);
        let over = self.given_up_at().is_some_and(|due| now >= due);
        if over {
            // The count of arrived packets continues, because the other end continues to count.
            *self = Window { count: self.count, srtt: self.srtt, ..Window::default() };
        }
        over
    }

    /// Returns the time at which [`Window::expire`] has to be called, or pacing allows packets
    /// again; `None` if there is no such time.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        [self.given_up_at(), self.capacity.opens()].into_iter().flatten().min()
    }

    fn given_up_at(&self) -> Option<Time> {
        let since = self.sent.front()?.at.max(self.delivered_at);
        Some(since + GIVE_UP.max(self.srtt.unwrap_or_default() * 3))
    }
}

/// Counts of the packets that arrived on one path, and the state of the next acknowledgement for
/// them.
#[derive(Clone, Default)]
pub(crate) struct Tally {
    count: u32,
    largest: u64,
    last_arrival: Time,
    unacknowledged: u32,
    /// Arrival time of the first packet that no acknowledgement has reported yet.
    first: Time,
    due: Option<Time>,
}

impl Tally {
    /// Records that the packet with the packet number `number`, which needs an acknowledgement,
    /// has arrived.
    pub(crate) fn note(&mut self, now: Time, number: u64) {
        self.count = self.count.wrapping_add(1);
        if number >= self.largest {
            (self.largest, self.last_arrival) = (number, now);
        }
        if self.unacknowledged == 0 {
            self.first = now;
        }
        self.unacknowledged += 1;
        self.due.get_or_insert(now + DELAY);
        if self.unacknowledged >= STEP {
            self.due = Some(now);
        }
    }

    /// Returns the acknowledgement that is due at `now`; `None` if none is due.
    pub(crate) fn take(&mut self, now: Time) -> Option<Receipt> {
        self.due.take_if(|due| *due <= now)?;
        self.unacknowledged = 0;
        let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let (ago, span) =
            (micros(now.since(self.last_arrival)), micros(self.last_arrival.since(self.first)));
        Some(Receipt { largest: self.largest as u32, count: self.count, ago, span })
    }

    /// Returns the time at which [`Tally::take`] will have an acknowledgement; `None` if all
    /// packets were reported.
    pub(crate) fn due(&self) -> Option<Time> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const BYTES: usize = 1_400;

    /// A path of 28 Mbit/s (one packet takes 400 µs) and 20 ms in each direction, with a queue of
    /// `queue` packets. Its window is always used up.
    struct Path {
        window: Window,
        tally: Tally,
        now: Time,
        number: u64,
        /// Arrival time and number of each packet under way.
        arrivals: VecDeque<(Time, u64)>,
        /// Arrival time and content of each acknowledgement under way.
        back: VecDeque<(Time, Receipt)>,
        free: Time,
        queue: u64,
        arrived: u64,
        lost: u64,
        /// Time for which each of the two ends runs in turn, if both share a core; `None` if each
        /// has its own core.
        shift: Option<Duration>,
    }

    const EACH: Duration = Duration::from_micros(400);

    impl Path {
        fn new(queue: u64) -> Path {
            Path {
                window: Window::default(),
                tally: Tally::default(),
                now: Time::from_secs(1),
                number: 0,
                arrivals: VecDeque::new(),
                back: VecDeque::new(),
                free: Time::ZERO,
                queue,
                arrived: 0,
                lost: 0,
                shift: None,
            }
        }

        /// Returns whether the sending end (0) or the receiving end (1) runs now.
        fn runs(&self, end: u128) -> bool {
            let at = Duration::from_nanos(self.now.nanos());
            self.shift.is_none_or(|shift| at.as_micros() / shift.as_micros() % 2 == end)
        }

        /// Runs the path for `time`. One packet in `lossy` is lost on the way (0: none).
        fn run(&mut self, time: Duration, lossy: u64) {
            let end = self.now + time;
            while self.now < end {
                if self.runs(0) {
                    while self.window.room(self.now) > 0 {
                        self.send(lossy);
                    }
                }
                if self.runs(1) {
                    self.receive();
                }
                if self.runs(0) {
                    self.hear();
                }
                self.now += MS / 10;
            }
        }

        fn receive(&mut self) {
            while let Some((_, number)) = self.arrivals.pop_front_if(|(at, _)| *at <= self.now) {
                self.arrived += 1;
                self.tally.note(self.now, number);
            }
            if let Some(receipt) = self.tally.take(self.now) {
                self.back.push_back((self.now + MS * 20, receipt));
            }
        }

        fn hear(&mut self) {
            while let Some((_, receipt)) = self.back.pop_front_if(|(at, _)| *at <= self.now) {
                self.window.acknowledged(self.now, receipt);
            }
            self.window.expire(self.now);
        }

        fn send(&mut self, lossy: u64) {
            self.send_of(BYTES, lossy);
        }

        fn send_of(&mut self, bytes: usize, lossy: u64) {
            self.window.sent(self.now, self.number, bytes);
            self.number += 3;
            let waits = self.free.since(self.now).as_micros() / EACH.as_micros();
            let is_lost = lossy > 0 && self.number.is_multiple_of(lossy * 3);
            if is_lost || waits as u64 >= self.queue {
                self.lost += 1;
                return;
            }
            self.free = self.free.max(self.now) + EACH * bytes as u32 / BYTES as u32;
            self.arrivals.push_back((self.free + MS * 20, self.number - 3));
        }

        /// Sends `burst` packets of `bytes` bytes every 5 ms, as a program without more data does.
        fn trickle(&mut self, time: Duration, burst: u64, bytes: usize) {
            let end = self.now + time;
            while self.now < end {
                if self.now.nanos().is_multiple_of(5_000_000) {
                    (0..burst).for_each(|_| self.send_of(bytes, 0));
                }
                self.receive();
                self.hear();
                self.now += MS / 10;
            }
        }

        /// Runs the path for `time`. Returns the number of packets per second that arrive.
        fn rate(&mut self, time: Duration, lossy: u64) -> f64 {
            let before = self.arrived;
            self.run(time, lossy);
            (self.arrived - before) as f64 / time.as_secs_f64()
        }
    }

    #[test]
    fn it_finds_the_rate_of_a_path_and_leaves_its_queue_alone() {
        let mut path = Path::new(100);
        path.run(MS * 1_500, 0);
        path.lost = 0;
        let rate = path.rate(MS * 8_000, 0);
        assert!(rate > 2_500.0 * 0.97, "{rate} of 2,500");
        assert_eq!(path.lost, 0);
        let view = path.window.view(path.now, None, false);
        assert!((95..=110).contains(&view.leg.bdp), "{view:?}");
        assert!(view.rtt.unwrap() < MS * 60, "{view:?}");
    }

    #[test]
    fn losses_by_chance_do_not_close_it() {
        for (one_in, least) in [(100, 0.9), (20, 0.7)] {
            let mut path = Path::new(100);
            path.run(MS * 2_000, one_in);
            let rate = path.rate(MS * 5_000, one_in) / (1.0 - 1.0 / one_in as f64);
            assert!(rate > 2_500.0 * least, "one in {one_in}: {rate} of 2,500");
        }
    }

    #[test]
    fn ends_that_have_to_wait_for_a_core_do_not_close_it() {
        for shift in [2, 5, 10, 15] {
            let mut path = Path::new(100);
            path.shift = Some(MS * shift);
            path.run(MS * 3_000, 0);
            let rate = path.rate(MS * 8_000, 0);
            assert!(rate > 2_500.0 * 0.9, "{shift} ms each: {rate} of 2,500");
        }
    }

    /// The end behaves like a server to which a client uploads: it sends only TCP
    /// acknowledgements.
    #[test]
    fn short_packets_of_an_idle_program_do_not_keep_a_path_slow() {
        let mut path = Path::new(100);
        path.trickle(MS * 3_000, 3, 150);
        path.window.search = None;
        assert_eq!(path.window.capacity.limit(), None, "trains of short packets show nothing");
        path.run(MS * 500, 0);
        let rate = path.rate(MS * 1_000, 0);
        assert!(rate > 2_500.0 * 0.95, "{rate} of 2,500 half a second later");
    }

    #[test]
    fn nothing_heard_opens_it_again_after_a_second() {
        let mut path = Path::new(100);
        path.run(MS * 500, 0);
        path.arrivals.clear();
        path.run(MS * 900, 1);
        let receipts = path.window.count;
        assert_eq!(path.window.room(path.now), 0);
        path.run(MS * 200, 1);
        assert_eq!(path.window.count, receipts);
        assert_eq!(path.window.sent.len(), 32, "what was under way is given up");
        path.run(MS * 1_500, 0);
        assert!(path.rate(MS * 1_000, 0) > 2_400.0, "and it goes on");
    }

    #[test]
    fn receipts_that_cannot_be_are_not_believed() {
        let mut window = Window::default();
        (0..5).for_each(|number| window.sent(Time::from_secs(1), number, BYTES));
        let now = Time::from_secs(2);
        for receipt in [
            Receipt { largest: 9, count: 1, ago: 0, span: 0 },
            Receipt { largest: 4, count: 0, ago: 0, span: 0 },
            Receipt { largest: 4, count: u32::MAX, ago: 0, span: 0 },
        ] {
            window.acknowledged(now, receipt);
            assert_eq!(window.sent.len(), 5, "{receipt:?}");
        }
        window.acknowledged(now, Receipt { largest: 4, count: 1 << 30, ago: u32::MAX, span: 0 });
        assert!(window.size().is_finite() && window.size() < 1e6, "{}", window.size());
    }

    #[test]
    fn a_tally_is_told_after_sixteen_packets_or_five_milliseconds() {
        let (mut tally, start) = (Tally::default(), Time::from_secs(1));
        tally.note(start, 7);
        assert_eq!((tally.take(start + MS * 4), tally.due()), (None, Some(start + DELAY)));
        let receipt = tally.take(start + MS * 6);
        assert_eq!(receipt, Some(Receipt { largest: 7, count: 1, ago: 6_000, span: 0 }));
        (0..16).for_each(|number| tally.note(start + MS * 7, 10 + number));
        assert!(tally.take(start + MS * 7).is_some_and(|receipt| receipt.count == 17));
        assert_eq!(tally.due(), None);
    }
}
