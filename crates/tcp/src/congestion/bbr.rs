//! BBR, version 1 (draft-cardwell-iccrg-bbr-congestion-control-00).
//!
//! BBR sends at the measured delivery rate and keeps about one bandwidth-delay product in flight.
//! A loss alone does not reduce its rate, so random losses of some per cent cost little more than
//! the lost segments. It can overflow shallow queues (Cardwell et al., "BBRv2", IETF 104), unless
//! the links of the path limit the sender by other means.
//!
//! Names are from the draft, without the prefix `BBR`. These details differ:
//!
//! * In Startup, the window is two bandwidth-delay products, and the first pacing rate follows
//!   from the first round-trip time, as in draft-cardwell-iccrg-bbr-congestion-control-02,
//!   sections 2.6 and 4.6.2.
//! * The bandwidth-delay product includes the jitter, which is measured by segments that later
//!   segments have overtaken. On some paths without congestion, `RTprop` is less than half of the
//!   mean round-trip time. Without the jitter, two products would be less than the data in flight
//!   at the path's rate, and the rate would collapse (Kumar et al., "TCP BBR for Ultra-Low Latency
//!   Networking", IFIP Networking 2019).
//! * In Startup, packets are not conserved after a loss. With random losses in every round trip,
//!   the rate would grow only in every second round trip, and Startup would end far below the
//!   path's rate.
//! * The phase in which ProbeBW begins follows from the amount of data delivered so far, because
//!   this crate has no entropy.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_multipath::Time;

use super::{Control, Family};

/// The congestion control `bbr`: help text and constructor.
pub(super) const FAMILY: Family = Family {
    name: "bbr",
    about: "BBR, version 1: sends at the rate at which data arrive. Random losses hardly slow it \
            down.",
    supports_legs: true,
    build: |initial_window| Control::Model(Box::new(Bbr::new(initial_window))),
};

/// Gain of the pacing rate in Startup: the minimum with which the rate doubles in each round trip,
/// 2 / ln 2 (`HighGain`, BBR draft -00, section 4.3.1).
const HIGH_GAIN: f64 = 2.89;
/// Gains of the pacing rate in the phases of ProbeBW (BBR draft -00, section 4.3.4.2).
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Factor between the congestion window and the bandwidth-delay product. In Startup, BBR draft -00
/// uses [`HIGH_GAIN`] instead, which overflows queues shorter than two bandwidth-delay products
/// (draft -02, section 2.6, `StartupCwndGain`).
const CWND_GAIN: f64 = 2.0;
/// Number of round trips over which the maximum rate is taken (`BtlBwFilterLen`, BBR draft -00,
/// section 4.1.1).
const BTL_BW_FILTER_LEN: u64 = 10;
/// Period over which the minimum round-trip time is taken (`RTpropFilterLen`, BBR draft -00,
/// section 4.1.2).
const RTPROP_FILTER_LEN: Duration = Duration::from_secs(10);
/// Minimum duration of ProbeRTT (`ProbeRTTDuration`, BBR draft -00, section 4.3.5).
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);
/// Minimum window, in segments (`MinPipeCwnd`, BBR draft -00, section 4.2.3.1).
const MIN_PIPE_CWND: u32 = 4;
/// Growth factor of the rate per round trip. Less growth is a sign that the path is full (BBR
/// draft -00, section 4.3.2.2).
const FULL_GROWTH: f64 = 1.25;
/// Number of round trips with a growth below [`FULL_GROWTH`] after which the path counts as full,
/// and Startup ends (BBR draft -00, section 4.3.2.2).
const FULL_ROUNDS: u32 = 3;
/// Number of bursts (send quanta) that the window allows in addition to the bandwidth-delay
/// product (BBR draft -00, section 4.2.3.2).
const QUANTA: f64 = 3.0;
/// Maximum duration of a burst at the pacing rate (BBR draft -00, section 4.2.2).
const QUANTUM: Duration = Duration::from_millis(1);
/// Maximum bytes of a burst (BBR draft -00, section 4.2.2).
const QUANTUM_MAX: f64 = 65_536.0;
/// Pacing rate, in bytes per second, below which a burst has only one segment: 1.2 Mbit/s.
const SLOW: f64 = 1.2e6 / 8.0;
/// Pacing rate, in bytes per second, below which a burst has at most two segments: 24 Mbit/s.
const MODERATE: f64 = 24e6 / 8.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

/// A measurement of the delivery rate by one acknowledgement
/// (draft-cheng-iccrg-delivery-rate-estimation-02).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateSample {
    /// Delivery rate in bytes per second; `None` if the sample is too short.
    pub(crate) rate: Option<u64>,
    /// Bytes that had been delivered on the path when the latest acknowledged segment was sent.
    pub(crate) prior_delivered: u64,
    /// Bytes delivered on the path so far.
    pub(crate) delivered: u64,
    /// Whether the application, rather than the network, limited the rate.
    pub(crate) app_limited: bool,
}

/// An acknowledgement, as BBR's model processes it. All counts concern segments that were sent on
/// one path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelSample {
    pub(crate) now: Time,
    /// Number of segments that this acknowledgement shows to have arrived.
    pub(crate) delivered: u32,
    /// Number of segments that this acknowledgement shows to be lost.
    pub(crate) lost: u32,
    /// Number of segments in flight before the acknowledgement.
    pub(crate) prior_in_flight: u32,
    /// Number of segments in flight after the acknowledgement.
    pub(crate) in_flight: u32,
    /// Round-trip time of the acknowledged segment that was sent last; `None` without a sample.
    pub(crate) rtt: Option<Duration>,
    /// Time that jitter adds to the minimum round-trip time on average.
    pub(crate) jitter: Duration,
    pub(crate) rate: Option<RateSample>,
    /// Whether loss recovery is in progress.
    pub(crate) recovering: bool,
    /// Size of a segment in bytes.
    pub(crate) mss: usize,
}

/// BBR's model of one path, and its state machine.
#[derive(Clone, Debug)]
pub(crate) struct Bbr {
    state: State,
    /// Candidates for the maximum bandwidth `BtlBw`, the highest rate first. Each has the number
    /// of the round trip in which it was measured, and the rate in bytes per second.
    rates: VecDeque<(u64, f64)>,
    round_count: u64,
    next_round_delivered: u64,
    round_start: bool,
    rtprop: Option<Duration>,
    rtprop_stamp: Time,
    rtprop_expired: bool,
    /// Time that jitter adds to the minimum round-trip time `RTprop` on average.
    jitter: Duration,
    pacing_gain: f64,
    cwnd_gain: f64,
    /// Pacing rate in bytes per second; `None` before the first round-trip time.
    pacing_rate: Option<f64>,
    filled_pipe: bool,
    full_bw: f64,
    full_bw_count: u32,
    cycle_index: usize,
    cycle_stamp: Time,
    /// Earliest end of ProbeRTT; `None` until at most [`MIN_PIPE_CWND`] segments are in flight.
    probe_rtt_done: Option<Time>,
    probe_rtt_round_done: bool,
    idle_restart: bool,
    packet_conservation: bool,
    recovering: bool,
    prior_cwnd: u32,
    initial_cwnd: u32,
}

impl Bbr {
    /// Creates the model of a path that was not measured yet, with a window of `initial_cwnd`
    /// segments.
    pub(crate) fn new(initial_cwnd: u32) -> Bbr {
        Bbr {
            state: State::Startup,
            rates: VecDeque::new(),
            round_count: 0,
            next_round_delivered: 0,
            round_start: false,
            rtprop: None,
            rtprop_stamp: Time::ZERO,
            rtprop_expired: false,
            jitter: Duration::ZERO,
            pacing_gain: HIGH_GAIN,
            cwnd_gain: CWND_GAIN,
            pacing_rate: None,
            filled_pipe: false,
            full_bw: 0.0,
            full_bw_count: 0,
            cycle_index: 0,
            cycle_stamp: Time::ZERO,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            idle_restart: false,
            packet_conservation: false,
            recovering: false,
            prior_cwnd: 0,
            initial_cwnd,
        }
    }

    /// Returns the maximum bandwidth `BtlBw` in bytes per second; 0 before the first sample.
    pub(crate) fn btl_bw(&self) -> f64 {
        self.rates.front().map_or(0.0, |(_, rate)| *rate)
    }

    /// Returns the bandwidth-delay product, in bytes; `None` before the first sample.
    pub(crate) fn bdp(&self) -> Option<f64> {
        let product = self.btl_bw() * (self.rtprop? + self.jitter).as_secs_f64();
        (product > 0.0).then_some(product)
    }

    /// Returns whether BBR is in Startup, which searches for the rate.
    pub(crate) fn in_startup(&self) -> bool {
        self.state == State::Startup
    }

    /// Returns whether BBR is in ProbeRTT, which keeps the window small to measure the delay.
    pub(crate) fn probes_rtt(&self) -> bool {
        self.state == State::ProbeRtt
    }

    /// Returns the pacing rate in bytes per second; `None` before the first round-trip time.
    pub(crate) fn pacing_rate(&self) -> Option<f64> {
        self.pacing_rate
    }

    /// Returns the maximum bytes of a burst (`send_quantum`). `mss` is the size of a segment in
    /// bytes.
    pub(crate) fn send_quantum(&self, mss: usize) -> f64 {
        let mss = mss as f64;
        match self.pacing_rate.unwrap_or_default() {
            rate if rate < SLOW => mss,
            rate if rate < MODERATE => 2.0 * mss,
            rate => (rate * QUANTUM.as_secs_f64()).min(QUANTUM_MAX),
        }
    }

    /// Updates the model with an acknowledgement, and sets the congestion window `cwnd`, in
    /// segments.
    pub(crate) fn on_ack(&mut self, cwnd: &mut u32, sample: &ModelSample) {
        self.update_btl_bw(sample);
        self.check_cycle_phase(sample);
        self.check_full_pipe(sample);
        self.check_drain(sample);
        self.update_rtprop(sample);
        self.check_probe_rtt(cwnd, sample);
        self.set_pacing_rate(self.pacing_gain, sample);
        self.set_cwnd(cwnd, sample);
    }

    fn update_btl_bw(&mut self, sample: &ModelSample) {
        self.round_start = false;
        let Some(at) = sample.rate else { return };
        if at.prior_delivered >= self.next_round_delivered {
            self.next_round_delivered = at.delivered;
            self.round_count += 1;
            self.round_start = true;
        }
        let Some(rate) = at.rate.map(|rate| rate as f64) else { return };
        if at.app_limited && rate < self.btl_bw() {
            return;
        }
        while self.rates.back().is_some_and(|(_, before)| *before <= rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((self.round_count, rate));
        let oldest = self.round_count.saturating_sub(BTL_BW_FILTER_LEN);
        while self.rates.front().is_some_and(|(round, _)| *round < oldest) {
            self.rates.pop_front();
        }
    }

    fn update_rtprop(&mut self, sample: &ModelSample) {
        let now = sample.now;
        self.jitter = sample.jitter;
        self.rtprop_expired = self.rtprop.is_some() && now > self.rtprop_stamp + RTPROP_FILTER_LEN;
        let Some(rtt) = sample.rtt else { return };
        if self.rtprop_expired || self.rtprop.is_none_or(|least| rtt <= least) {
            (self.rtprop, self.rtprop_stamp) = (Some(rtt), now);
        }
    }

    /// Returns the target for the data in flight, in segments: `gain` bandwidth-delay products and
    /// [`QUANTA`] bursts (BBR draft -00, section 4.2.3.2). Returns `None` before the first sample.
    fn inflight(&self, gain: f64, mss: usize) -> Option<f64> {
        let bytes = gain * self.bdp()? + QUANTA * self.send_quantum(mss);
        Some((bytes / mss as f64).ceil())
    }

    fn check_cycle_phase(&mut self, sample: &ModelSample) {
        if self.state == State::ProbeBw && self.is_next_cycle_phase(sample) {
            self.cycle_index = (self.cycle_index + 1) % CYCLE.len();
            self.cycle_stamp = sample.now;
            self.pacing_gain = CYCLE[self.cycle_index];
        }
    }

    fn is_next_cycle_phase(&self, sample: &ModelSample) -> bool {
        let is_full_length = sample.now.since(self.cycle_stamp) > self.rtprop.unwrap_or_default();
        let reaches = |gain| {
            let target = self.inflight(gain, sample.mss);
            target.is_none_or(|target| f64::from(sample.prior_in_flight) >= target)
        };
        match self.pacing_gain {
            gain if gain > 1.0 => is_full_length && (sample.lost > 0 || reaches(gain)),
            gain if gain < 1.0 => is_full_length || !reaches(1.0),
            _ => is_full_length,
        }
    }

    fn check_full_pipe(&mut self, sample: &ModelSample) {
        let limited = sample.rate.is_some_and(|at| at.app_limited);
        if self.filled_pipe || !self.round_start || limited {
            return;
        }
        if self.btl_bw() >= self.full_bw * FULL_GROWTH {
            (self.full_bw, self.full_bw_count) = (self.btl_bw(), 0);
            return;
        }
        self.full_bw_count += 1;
        self.filled_pipe = self.full_bw_count >= FULL_ROUNDS;
    }

    fn check_drain(&mut self, sample: &ModelSample) {
        if self.state == State::Startup && self.filled_pipe {
            self.state = State::Drain;
            (self.pacing_gain, self.cwnd_gain) = (1.0 / HIGH_GAIN, CWND_GAIN);
        }
        let target = self.inflight(1.0, sample.mss);
        let drained = target.is_some_and(|target| f64::from(sample.in_flight) <= target);
        if self.state == State::Drain && drained {
            self.enter_probe_bw(sample.now);
        }
    }

    fn enter_probe_bw(&mut self, now: Time) {
        self.state = State::ProbeBw;
        self.cwnd_gain = CWND_GAIN;
        // Any phase except the one that drains the queue.
        let phase = (self.next_round_delivered % 7) as usize;
        self.cycle_index = if phase == 0 { 0 } else { phase + 1 };
        self.cycle_stamp = now;
        self.pacing_gain = CYCLE[self.cycle_index];
    }

    fn check_probe_rtt(&mut self, cwnd: &mut u32, sample: &ModelSample) {
        if self.state != State::ProbeRtt && self.rtprop_expired && !self.idle_restart {
            self.save_cwnd(*cwnd);
            self.state = State::ProbeRtt;
            (self.pacing_gain, self.cwnd_gain) = (1.0, 1.0);
            self.probe_rtt_done = None;
        }
        if self.state == State::ProbeRtt {
            self.handle_probe_rtt(cwnd, sample);
        }
        if sample.delivered > 0 {
            self.idle_restart = false;
        }
    }

    fn handle_probe_rtt(&mut self, cwnd: &mut u32, sample: &ModelSample) {
        let now = sample.now;
        let Some(done) = self.probe_rtt_done else {
            if sample.in_flight <= MIN_PIPE_CWND {
                self.probe_rtt_done = Some(now + PROBE_RTT_DURATION);
                self.probe_rtt_round_done = false;
                if let Some(at) = sample.rate {
                    self.next_round_delivered = at.delivered;
                }
            }
            return;
        };
        self.probe_rtt_round_done |= self.round_start;
        if self.probe_rtt_round_done && now > done {
            self.rtprop_stamp = now;
            *cwnd = (*cwnd).max(self.prior_cwnd);
            match self.filled_pipe {
                true => self.enter_probe_bw(now),
                false => {
                    self.state = State::Startup;
                    (self.pacing_gain, self.cwnd_gain) = (HIGH_GAIN, CWND_GAIN);
                }
            }
        }
    }

    fn set_pacing_rate(&mut self, gain: f64, sample: &ModelSample) {
        if self.pacing_rate.is_none()
            && let Some(rtt) = sample.rtt.or(self.rtprop).filter(|rtt| !rtt.is_zero())
        {
            let window = f64::from(self.initial_cwnd) * sample.mss as f64;
            self.pacing_rate = Some(HIGH_GAIN * window / rtt.as_secs_f64());
        }
        let (rate, now) = (gain * self.btl_bw(), self.pacing_rate);
        if rate > 0.0 && now.is_some_and(|now| self.filled_pipe || rate > now) {
            self.pacing_rate = Some(rate);
        }
    }

    fn set_cwnd(&mut self, cwnd: &mut u32, sample: &ModelSample) {
        let target = self.inflight(self.cwnd_gain, sample.mss).map_or(u32::MAX, |it| it as u32);
        *cwnd = cwnd.saturating_sub(sample.lost).max(1);
        if sample.recovering && !self.recovering {
            self.save_cwnd(*cwnd);
            if self.state != State::Startup {
                self.conserve_packets(cwnd, sample);
            }
        } else if self.recovering && !sample.recovering {
            self.packet_conservation = false;
            *cwnd = (*cwnd).max(self.prior_cwnd);
        } else if self.round_start {
            self.packet_conservation = false;
        }
        self.recovering = sample.recovering;
        if self.packet_conservation {
            *cwnd = (*cwnd).max(sample.in_flight + sample.delivered);
        } else {
            let begins = sample
                .rate
                .is_none_or(|at| at.delivered < u64::from(self.initial_cwnd) * sample.mss as u64);
            if self.filled_pipe {
                *cwnd = cwnd.saturating_add(sample.delivered).min(target);
            } else if *cwnd < target || begins {
                *cwnd = cwnd.saturating_add(sample.delivered);
            }
            *cwnd = (*cwnd).max(MIN_PIPE_CWND);
        }
        if self.state == State::ProbeRtt {
            *cwnd = (*cwnd).min(MIN_PIPE_CWND);
        }
    }

    /// Limits transmissions for one round trip to the number of segments that arrive at the peer
    /// (packet conservation).
    fn conserve_packets(&mut self, cwnd: &mut u32, sample: &ModelSample) {
        *cwnd = sample.in_flight + sample.delivered.max(1);
        self.packet_conservation = true;
        if let Some(at) = sample.rate {
            self.next_round_delivered = at.delivered;
        }
    }

    fn save_cwnd(&mut self, cwnd: u32) {
        let is_reduced = self.recovering || self.state == State::ProbeRtt;
        self.prior_cwnd = if is_reduced { self.prior_cwnd.max(cwnd) } else { cwnd };
    }

    /// Stores the congestion window before a retransmission timeout reduces it. It is restored
    /// when recovery ends.
    pub(crate) fn on_timeout(&mut self, cwnd: u32) {
        self.save_cwnd(cwnd);
        self.recovering = true;
        self.packet_conservation = false;
    }

    /// Resumes after a pause without data in flight (BBR draft -00, section 4.4.3).
    pub(crate) fn on_restart(&mut self) {
        self.idle_restart = true;
        if self.state == State::ProbeBw && self.btl_bw() > 0.0 {
            self.pacing_rate = Some(self.btl_bw());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: usize = 1_000;
    const RTT: Duration = Duration::from_millis(100);

    /// A path of 1,000 segments per second, with one acknowledgement per round trip of 100 ms.
    struct Rounds {
        bbr: Bbr,
        cwnd: u32,
        now: Time,
        delivered: u64,
    }

    impl Rounds {
        fn new() -> Rounds {
            Rounds { bbr: Bbr::new(10), cwnd: 10, now: Time::from_secs(1), delivered: 0 }
        }

        /// Simulates a round trip in which the sender sends its whole window, but at most 110
        /// segments. `lost` of them are lost. `recovering` is whether the sender is in loss
        /// recovery. The measured rate is at most the path's rate.
        fn round(&mut self, lost: u32, recovering: bool) {
            let sent = self.cwnd.min(100 + 10);
            let prior_delivered = self.delivered;
            self.now += RTT;
            self.delivered += u64::from(sent) * MSS as u64;
            let rate = (f64::from(sent.min(100)) * MSS as f64 / RTT.as_secs_f64()) as u64;
            let rate = RateSample {
                rate: Some(rate),
                prior_delivered,
                delivered: self.delivered,
                app_limited: false,
            };
            let sample = ModelSample {
                now: self.now,
                delivered: sent - lost,
                lost,
                prior_in_flight: sent,
                in_flight: 0,
                rtt: Some(RTT),
                jitter: Duration::ZERO,
                rate: Some(rate),
                recovering,
                mss: MSS,
            };
            self.bbr.on_ack(&mut self.cwnd, &sample);
        }
    }

    #[test]
    fn startup_ends_three_rounds_after_the_rate_has_stopped_growing() {
        let mut path = Rounds::new();
        let mut rounds = 0;
        while path.bbr.in_startup() {
            path.round(0, false);
            rounds += 1;
        }
        // Windows of 10, 20, 40, 80 and 100 segments, and three further rounds.
        assert!((7..=9).contains(&rounds), "{rounds}");
        assert_eq!(path.bbr.btl_bw(), 1e6);
        assert_eq!(path.bbr.bdp(), Some(100.0 * MSS as f64));
    }

    #[test]
    fn a_loss_in_each_round_leaves_rate_and_window() {
        let mut path = Rounds::new();
        (0..20).for_each(|_| path.round(0, false));
        for round in 0..40 {
            path.round(5, round % 3 != 2);
        }
        assert_eq!(path.bbr.btl_bw(), 1e6);
        path.round(0, false);
        path.round(0, false);
        assert!(path.cwnd >= 200, "two products of rate and delay: {}", path.cwnd);
    }

    #[test]
    fn the_delay_is_measured_again_after_ten_seconds() {
        let mut path = Rounds::new();
        (0..20).for_each(|_| path.round(0, false));
        let stamp = path.bbr.rtprop_stamp;
        path.bbr.rtprop = Some(RTT / 2);
        path.now = stamp + RTPROP_FILTER_LEN;
        path.round(0, false);
        assert!(path.bbr.probes_rtt());
        assert_eq!(path.cwnd, MIN_PIPE_CWND);
        (0..5).for_each(|_| path.round(0, false));
        assert!(!path.bbr.probes_rtt() && path.cwnd > 100, "{}", path.cwnd);
        assert_eq!(path.bbr.rtprop, Some(RTT));
    }

    #[test]
    fn after_a_timeout_the_window_returns_with_the_end_of_recovery() {
        let mut path = Rounds::new();
        (0..20).for_each(|_| path.round(0, false));
        let before = path.cwnd;
        path.bbr.on_timeout(path.cwnd);
        path.cwnd = 1;
        path.round(0, true);
        assert!(path.cwnd < 20, "{}", path.cwnd);
        path.round(0, false);
        assert_eq!(path.cwnd, before);
    }
}
