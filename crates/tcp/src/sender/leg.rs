//! A leg: the sender's state for one path to the peer, with its own round-trip time, loss
//! detection and congestion control. An ordinary connection has one leg. With several legs, the
//! caller decides which segments each path carries.

use std::time::Duration;

use anabranch_multipath::{LegView, PathView, Time};

use super::rack::Rack;
use super::rate::Rate;
use crate::config::Config;
use crate::congestion::{CongestionWindow, Control};
use crate::constants::{ACK_EVERY, LEG_RTT, PACING_AVOIDANCE, PACING_SLOW_START};
use crate::rtt::Rtt;

/// State of one of a connection's paths to the peer.
#[derive(Debug)]
pub(super) struct Leg {
    /// Whether segments may be sent on the path.
    pub(super) is_open: bool,
    pub(super) rtt: Rtt,
    pub(super) rack: Rack,
    pub(super) rate: Rate,
    pub(super) control: Control,
    pub(super) window: CongestionWindow,
    paces: bool,
    /// Earliest time at which pacing allows the next burst on the path.
    paced_until: Time,
    /// Number of bytes that pacing still allows in the current burst.
    burst: f64,
    /// Number of consecutive timeouts on the path. After a timeout, the path is avoided for the
    /// duration of the next timeout, unless no other path is usable.
    silent: u32,
    rests_until: Time,
    /// Number of segments found to be lost since the congestion control was last updated.
    pub(super) lost: u32,
    /// Effects that the current acknowledgement has on this path.
    pub(super) acked: Acked,
}

/// Effects of one acknowledgement on one path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Acked {
    /// Number of the path's segments that the acknowledgement reports for the first time.
    pub(super) delivered: u32,
    /// Latest transmission time of the reported segments that were sent only once; `None` if there
    /// are none.
    pub(super) newest: Option<Time>,
    /// Number of segments in flight on the path before the acknowledgement.
    pub(super) prior_in_flight: u32,
}

impl Leg {
    pub(super) fn new(config: &Config) -> Leg {
        let control = config.congestion.control(config.initial_window);
        let is_model = matches!(control, Control::Model(_));
        let rack = if is_model { Rack::expecting_jitter() } else { Rack::default() };
        Leg {
            is_open: true,
            rtt: Rtt::default(),
            rack,
            rate: Rate::default(),
            control,
            window: CongestionWindow { cwnd: config.initial_window, ssthresh: u32::MAX },
            paces: config.pacing || is_model,
            paced_until: Time::ZERO,
            burst: 0.0,
            silent: 0,
            rests_until: Time::ZERO,
            lost: 0,
            acked: Acked::default(),
        }
    }

    /// Returns whether pacing spreads the path's segments over time.
    pub(super) fn paces(&self) -> bool {
        self.paces
    }

    /// Returns whether the path may be used now, even if its window or pacing allows no segment at
    /// present.
    pub(super) fn is_usable(&self, now: Time) -> bool {
        self.is_open && self.rests_until <= now
    }

    /// Returns whether pacing forbids to send a segment on the path now.
    pub(super) fn is_paced(&self, now: Time) -> bool {
        self.paces && now < self.paced_until && self.burst < 1.0
    }

    /// Returns whether a segment may be sent on the path now. `in_flight` is the number of
    /// segments in flight on it.
    pub(super) fn is_ready(&self, now: Time, in_flight: u32) -> bool {
        self.is_usable(now) && !self.is_paced(now) && in_flight < self.window.cwnd
    }

    /// Returns the time at which pacing allows the next burst on the path. Returns `None` if
    /// pacing does not delay it, or if something else prevents sending, too.
    pub(super) fn paced_until(&self, now: Time, in_flight: u32) -> Option<Time> {
        let waits = self.is_usable(now) && self.is_paced(now) && in_flight < self.window.cwnd;
        waits.then_some(self.paced_until)
    }

    /// Records that a segment of `length` bytes was sent on the path.
    pub(super) fn note_sent(&mut self, now: Time, length: u64, mss: usize) {
        if !self.paces {
            return;
        }
        let (gap, quantum) = match &self.control {
            Control::Losses(_) => {
                let Some(gap) = self.gap(length, mss) else { return };
                (gap, 0.0)
            }
            Control::Model(bbr) => {
                let Some(rate) = bbr.pacing_rate() else { return };
                let gap = Duration::try_from_secs_f64(length as f64 / rate);
                (gap.unwrap_or_default(), bbr.send_quantum(mss))
            }
        };
        if now >= self.paced_until {
            self.burst = quantum;
        }
        self.burst = (self.burst - length as f64).max(0.0);
        self.paced_until = self.paced_until.max(now) + gap;
    }

    /// Returns the pause that pacing requires after a segment of `length` bytes, so that the
    /// window is spread over a round trip. `None` before the first round-trip time.
    fn gap(&self, length: u64, mss: usize) -> Option<Duration> {
        let is_slow_start = self.window.cwnd < self.window.ssthresh / 2;
        let share = if is_slow_start { PACING_SLOW_START } else { PACING_AVOIDANCE };
        let window = u128::from(self.window.cwnd) * mss as u128 * u128::from(share);
        let gap = self.rtt.srtt()?.as_nanos() * u128::from(length) * 100 / window.max(1);
        Some(Duration::from_nanos(u64::try_from(gap).unwrap_or(u64::MAX)))
    }

    /// Returns the path's `SRTT`. Before the first sample, returns the expected round-trip time,
    /// or else [`LEG_RTT`].
    pub(super) fn expected_rtt(&self) -> Duration {
        self.rtt.expected().unwrap_or(LEG_RTT)
    }

    /// Records a timeout of a segment on this path. The path is then not used for the duration of
    /// the next timeout.
    pub(super) fn note_timeout(&mut self, now: Time) {
        self.silent += 1;
        self.rests_until = now + self.rtt.doubled(self.silent);
    }

    /// Records that a segment sent on this path has arrived, so that the path can be used again
    /// after a timeout.
    pub(super) fn note_delivery(&mut self) {
        self.silent = 0;
        self.end_rest();
    }

    /// Makes the path usable again at once after a timeout.
    pub(super) fn end_rest(&mut self) {
        self.rests_until = Time::ZERO;
    }

    /// Returns the state of the path for a scheduler. `is_current` states whether the last segment
    /// was sent on it.
    pub(super) fn view(&self, now: Time, in_flight: u32, mss: usize, is_current: bool) -> PathView {
        if !self.is_usable(now) {
            return PathView::dead();
        }
        let Control::Model(bbr) = &self.control else { return PathView::open() };
        let per_segment = |bytes: f64| (bytes / mss as f64) as u64;
        let cwnd = self.window.cwnd;
        let room = if self.is_paced(now) { 0 } else { cwnd.saturating_sub(in_flight) };
        let rtt = self.expected_rtt();
        let view = LegView {
            least_rtt: self.rtt.least().unwrap_or(rtt),
            size: cwnd.into(),
            inflight: in_flight.into(),
            step: ACK_EVERY as u64,
            bdp: per_segment(bbr.bdp().unwrap_or_default()),
            slow_start: bbr.in_startup(),
            current: is_current,
            capacity: per_segment(bbr.btl_bw()),
            ..LegView::NOTHING
        };
        PathView::leg(Some(rtt), room.into(), view)
    }
}
