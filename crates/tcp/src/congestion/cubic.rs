//! CUBIC (RFC 9438), with two additions of Linux: HyStart, and slow growth before the first loss.

use std::time::Duration;

use anabranch_multipath::Time;

use super::hystart::HyStart;
use super::{AckSample, CongestionWindow, Control, Controller, Family};
use crate::constants::{
    CUBIC_ALPHA, CUBIC_BETA, CUBIC_C, CUBIC_FIRST_GROWTH, CUBIC_MAX_GROWTH, MIN_SSTHRESH,
};

/// The congestion control `cubic`: help text and constructor.
pub(super) const FAMILY: Family = Family {
    name: "cubic",
    about: "CUBIC (RFC 9438), the default of Linux: the window shrinks after each loss.",
    supports_legs: false,
    build: |_| Control::Losses(Box::new(Cubic::default())),
};

/// Time after the start of a period of congestion avoidance during which delay samples are ignored
/// (Linux).
const SETTLING: Duration = Duration::from_secs(1);

/// CUBIC's state, with the names of RFC 9438, section 4.1.2.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cubic {
    hystart: HyStart,
    /// Minimum round-trip time of the connection; `None` before the first sample.
    delay_min: Option<Duration>,
    /// Congestion window before the last reduction, in segments. After fast convergence (RFC 9438,
    /// section 4.7), it is lower than that window.
    w_max: f64,
    epoch: Option<Epoch>,
    /// Growth of the congestion window that is not applied yet, as a fraction of a segment.
    credit: f64,
}

/// A period of congestion avoidance without loss (an epoch in RFC 9438).
#[derive(Clone, Debug)]
struct Epoch {
    start: Time,
    /// Seconds from the start of the period until the window reaches its plateau (`K` of RFC
    /// 9438).
    k: f64,
    origin: f64,
    /// Congestion window that Reno would have, in segments.
    w_est: f64,
}

impl Epoch {
    fn new(now: Time, cwnd: f64, w_max: f64) -> Epoch {
        let origin = w_max.max(cwnd);
        Epoch { start: now, k: cube_root((origin - cwnd) / CUBIC_C), origin, w_est: cwnd }
    }

    /// Returns CUBIC's window in segments at `t` seconds after the start of the epoch (RFC 9438,
    /// equation 1).
    fn w_cubic(&self, t: f64) -> f64 {
        let from_plateau = t - self.k;
        CUBIC_C * from_plateau * from_plateau * from_plateau + self.origin
    }
}

/// Returns the cube root of `x` by Newton's method. Unlike `f64::cbrt`, it returns the same value
/// on every machine.
fn cube_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    // A division of the exponent by three gives a start value within a few per cent.
    let mut root = f64::from_bits(x.to_bits() / 3 + (682u64 << 52));
    for _ in 0..5 {
        root = (2.0 * root + x / (root * root)) / 3.0;
    }
    root
}

impl Cubic {
    /// Returns the growth of the window for each acknowledged segment, as a fraction of a segment.
    fn growth(&mut self, cwnd: u32, ack: &AckSample) -> f64 {
        let window = f64::from(cwnd);
        let (w_max, first) = (self.w_max, self.w_max == 0.0);
        let epoch = self.epoch.get_or_insert_with(|| Epoch::new(ack.now, window, w_max));
        let t = ack.now.since(epoch.start) + self.delay_min.unwrap_or_default();
        let target = epoch.w_cubic(t.as_secs_f64());
        let mut growth = ((target - window) / window).max(0.01 / window);
        if first {
            growth = growth.max(CUBIC_FIRST_GROWTH);
        }
        epoch.w_est += CUBIC_ALPHA * f64::from(ack.delivered) / window;
        if epoch.w_est > window {
            growth = growth.max((epoch.w_est - window) / window);
        }
        growth.min(CUBIC_MAX_GROWTH)
    }
}

impl Controller for Cubic {
    fn measure(&mut self, window: &mut CongestionWindow, ack: &AckSample) {
        self.hystart.begin_round(ack);
        let Some(rtt) = ack.rtt else { return };
        if self.epoch.as_ref().is_some_and(|epoch| ack.now.since(epoch.start) < SETTLING) {
            return;
        }
        let delay_min = self.delay_min.map_or(rtt, |least| least.min(rtt));
        self.delay_min = Some(delay_min);
        self.hystart.sample(window, ack, (rtt, delay_min));
    }

    fn grow(&mut self, window: &mut CongestionWindow, ack: &AckSample) {
        let mut left = ack.delivered;
        if window.in_slow_start() {
            left = window.slow_start(left);
        }
        if left == 0 {
            return;
        }
        self.credit +=
            self.growth(window.cwnd, &AckSample { delivered: left, ..*ack }) * f64::from(left);
        let whole = self.credit as u32;
        self.credit -= f64::from(whole);
        window.cwnd = window.cwnd.saturating_add(whole);
    }

    fn ssthresh(&mut self, cwnd: u32) -> u32 {
        self.epoch = None;
        let window = f64::from(cwnd);
        // This is fast convergence (RFC 9438, section 4.7).
        let converging = window < self.w_max;
        self.w_max = if converging { window * (1.0 + CUBIC_BETA) / 2.0 } else { window };
        ((window * CUBIC_BETA) as u32).max(MIN_SSTHRESH)
    }

    fn on_timeout(&mut self) {
        *self = Cubic::default();
    }

    fn on_resume(&mut self, idle: Duration) {
        // CUBIC's clock is stopped while nothing is sent (RFC 9438, section 5.8).
        if let Some(epoch) = &mut self.epoch {
            epoch.start += idle;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(now: Time, delivered: u32) -> AckSample {
        AckSample { now, delivered, rtt: None, una: 0, nxt: 0, paced: false }
    }

    #[test]
    fn cube_roots_are_exact() {
        for x in [1e-9, 0.3, 1.0, 8.0, 12345.678, 1e15] {
            let root = cube_root(x);
            assert!((root * root * root / x - 1.0).abs() < 1e-12, "{x}: {root}");
        }
        assert_eq!(cube_root(-1.0), 0.0);
    }

    /// Returns the window after `seconds` seconds. In each round trip of `rtt` milliseconds, the
    /// whole window is acknowledged.
    fn after(cubic: &mut Cubic, window: &mut CongestionWindow, seconds: u64, rtt: u64) -> u32 {
        for round in 1..=seconds * 1000 / rtt {
            let acked = window.cwnd;
            for part in 0..acked / 2 {
                let now = Time::from_millis(round * rtt) + Duration::from_micros(u64::from(part));
                cubic.grow(window, &ack(now, 2));
            }
        }
        window.cwnd
    }

    #[test]
    fn the_window_returns_to_its_old_value_at_k() {
        let mut cubic = Cubic { delay_min: Some(Duration::from_millis(200)), ..Cubic::default() };
        let ssthresh = cubic.ssthresh(1000);
        assert_eq!(ssthresh, 700);
        let mut window = CongestionWindow { cwnd: ssthresh, ssthresh };
        // K = cbrt(300 / 0.4) = 9.09 s.
        let early = after(&mut cubic.clone(), &mut window.clone(), 4, 200);
        assert!((930..965).contains(&early), "{early}");
        let plateau = after(&mut cubic, &mut window, 9, 200);
        assert!((990..=1002).contains(&plateau), "{plateau}");
    }

    #[test]
    fn small_windows_grow_as_reno_would() {
        let mut cubic = Cubic { delay_min: Some(Duration::from_millis(10)), ..Cubic::default() };
        let ssthresh = cubic.ssthresh(20);
        let mut window = CongestionWindow { cwnd: ssthresh, ssthresh };
        // Reno with beta = 0.7 gains 0.53 segments a round.
        let grown = after(&mut cubic, &mut window, 1, 10);
        assert!((60..70).contains(&grown), "{grown}");
    }

    #[test]
    fn a_loss_below_the_last_one_lowers_the_plateau() {
        let mut cubic = Cubic::default();
        cubic.ssthresh(100);
        cubic.ssthresh(80);
        assert_eq!(cubic.w_max, 68.0);
    }
}
