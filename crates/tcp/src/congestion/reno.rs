//! Reno (RFC 5681).

use super::{AckSample, CongestionWindow, Control, Controller, Family};
use crate::constants::{MIN_SSTHRESH, RENO_BETA};

/// The congestion control `reno`: help text and constructor.
pub(super) const FAMILY: Family = Family {
    name: "reno",
    about: "Reno (RFC 5681): the window grows by one segment for each round trip, and is halved \
            after a loss.",
    supports_legs: false,
    build: |_| Control::Losses(Box::new(Reno::default())),
};

/// Reno's congestion avoidance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reno {
    /// Number of segments acknowledged since the congestion window last grew.
    acked: u32,
}

impl Controller for Reno {
    fn grow(&mut self, window: &mut CongestionWindow, ack: &AckSample) {
        let left =
            if window.in_slow_start() { window.slow_start(ack.delivered) } else { ack.delivered };
        // The window grows by one segment for each window that is acknowledged (RFC 3465, section
        // 2.1).
        self.acked = self.acked.saturating_add(left);
        if left > 0 && self.acked >= window.cwnd {
            self.acked -= window.cwnd;
            window.cwnd = window.cwnd.saturating_add(1);
        }
    }

    fn ssthresh(&mut self, cwnd: u32) -> u32 {
        ((f64::from(cwnd) * RENO_BETA) as u32).max(MIN_SSTHRESH)
    }

    fn on_timeout(&mut self) {
        self.acked = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_multipath::Time;

    fn ack(delivered: u32) -> AckSample {
        AckSample { now: Time::ZERO, delivered, rtt: None, una: 0, nxt: 0, paced: false }
    }

    #[test]
    fn the_window_doubles_in_slow_start_and_grows_by_one_a_round_after() {
        let mut reno = Reno::default();
        let mut window = CongestionWindow { cwnd: 10, ssthresh: 20 };
        (0..5).for_each(|_| reno.grow(&mut window, &ack(2)));
        assert_eq!(window.cwnd, 20);
        (0..10).for_each(|_| reno.grow(&mut window, &ack(2)));
        assert_eq!(window.cwnd, 21);
        assert_eq!([reno.ssthresh(21), reno.ssthresh(3)], [10, 2]);
    }
}
