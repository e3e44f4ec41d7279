//! The congestion control TOR_VEGAS (proposal 324, section 3.3). The window depends on the number
//! of cells that are queued anywhere on the circuit. This number is estimated as the window, minus
//! the cells that the circuit can hold at the minimum round-trip time.

use std::time::Duration;

use anabranch_multipath::{LegView, PathView};

use super::{Control, Outlet, Params};

/// Maximum ratio of a round-trip time to the average. A measurement with a larger ratio is
/// discarded, because a clock or the peer has stalled, which is no sign of congestion.
const JUMP: u64 = 5_000;

/// The congestion window of a circuit's sender.
#[derive(Clone, Debug)]
pub struct Vegas {
    params: Params,
    sendme_inc: u64,
    window: u64,
    inflight: u64,
    slow_start: bool,
    /// True if the window was used completely in the recent past; only then may it grow.
    full: bool,
    blocked: bool,
    /// Number of SENDMEs until the window may change again.
    until_change: u64,
    /// Number of SENDMEs until a whole window of cells has been acknowledged.
    until_window: u64,
    rtt: Rtt,
}

/// Round-trip times in microseconds; 0 if unknown.
#[derive(Clone, Debug, Default)]
struct Rtt {
    average: u64,
    least: u64,
}

impl Vegas {
    /// Returns the window of a new circuit.
    pub fn new(sendme_inc: u8, params: &Params) -> Vegas {
        let mut vegas = Vegas {
            params: params.clone(),
            sendme_inc: u64::from(sendme_inc),
            window: params.cwnd_init,
            inflight: 0,
            slow_start: true,
            full: false,
            blocked: false,
            until_change: 0,
            until_window: 0,
            rtt: Rtt::default(),
        };
        vegas.until_change = vegas.change_rate();
        vegas
    }

    /// Returns the number of SENDMEs that acknowledge one window of cells.
    fn per_window(&self) -> u64 {
        ((self.window + self.sendme_inc / 2) / self.sendme_inc).max(1)
    }

    /// Returns the number of SENDMEs between two changes of the window.
    fn change_rate(&self) -> u64 {
        if self.slow_start {
            return 1;
        }
        let rate = self.params.cwnd_inc_rate * self.sendme_inc;
        ((self.window + rate / 2) / rate).max(1)
    }

    /// Adds a measured round-trip time. Returns false if the measurement is discarded.
    fn measure(&mut self, rtt: u64) -> bool {
        let stalled = rtt == 0
            || (self.rtt.average > 0
                && !self.slow_start
                && rtt > self.rtt.average.saturating_mul(JUMP));
        if stalled {
            return false;
        }
        let span = self.span();
        self.rtt.average = match self.rtt.average {
            0 => rtt,
            average => (2 * rtt + (span - 1) * average) / (span + 1),
        };
        let average = self.rtt.average;
        if self.rtt.least == 0 {
            self.rtt.least = average;
        } else if self.window == self.params.cwnd_min && !self.slow_start {
            // Otherwise a single measurement that is too low would hold the window at its minimum
            // permanently.
            let (high, low) = (average.max(self.rtt.least), average.min(self.rtt.least));
            let pct = self.params.rtt_reset_pct;
            self.rtt.least = (pct * high + (100 - pct) * low) / 100;
        } else {
            self.rtt.least = self.rtt.least.min(average);
        }
        true
    }

    /// Returns the number of SENDMEs over which round-trip times are averaged.
    fn span(&self) -> u64 {
        let span = match self.slow_start {
            true => self.params.ewma_ss,
            false => {
                (self.change_rate() * self.params.ewma_cwnd_pct / 100).min(self.params.ewma_max)
            }
        };
        span.max(2)
    }

    /// Returns the number of cells that the circuit can hold without queues: the bandwidth-delay
    /// product.
    fn bdp(&self) -> u64 {
        match self.rtt.average {
            0 => self.window,
            average => self.window * self.rtt.least / average,
        }
    }

    fn note_fullness(&mut self) {
        if self.inflight + self.params.cwnd_full_gap * self.sendme_inc >= self.window {
            self.full = true;
        } else if 100 * self.inflight < self.params.cwnd_full_minpct * self.window {
            self.full = false;
        }
    }

    fn note_blocking(&mut self, blocked: bool) {
        if self.blocked != blocked {
            self.blocked = blocked;
            self.until_change = 0;
        }
    }

    fn change(&mut self) {
        let queued = self.window.saturating_sub(self.bdp());
        if self.slow_start {
            self.start_slowly(queued);
        } else if self.until_change == 0 {
            self.avoid(queued);
        }
        self.window = self.window.min(self.params.cwnd_max);
    }

    fn start_slowly(&mut self, queued: u64) {
        if queued < self.params.gamma && !self.blocked {
            if self.full {
                let increment = self.slow_increment();
                self.window += increment;
                if increment * self.per_window() <= self.params.cwnd_inc * self.params.cwnd_inc_rate
                {
                    self.slow_start = false;
                }
            }
        } else {
            self.window = (self.bdp() + self.params.gamma).max(self.params.cwnd_min);
            self.slow_start = false;
        }
        if self.window >= self.params.ss_cwnd_max {
            self.window = self.params.ss_cwnd_max;
            self.slow_start = false;
        }
    }

    /// Returns the growth of the window in limited slow start (RFC 3742).
    fn slow_increment(&self) -> u64 {
        if self.window <= self.params.ss_cap {
            return (self.params.cwnd_inc_pct_ss * self.sendme_inc + 50) / 100;
        }
        ((self.sendme_inc * self.params.ss_cap + self.window) / (2 * self.window)).max(1)
    }

    fn avoid(&mut self, queued: u64) {
        let step = self.params.cwnd_inc;
        if queued > self.params.delta {
            self.window = (self.bdp() + self.params.delta).saturating_sub(step);
        } else if queued > self.params.beta || self.blocked {
            self.window = self.window.saturating_sub(step);
        } else if self.full && queued < self.params.alpha {
            self.window += step;
        }
        self.window = self.window.max(self.params.cwnd_min);
    }

    fn count_down(&mut self) {
        if self.until_window == 0 {
            self.until_window = self.per_window();
        }
        if self.until_change == 0 {
            self.until_change = self.change_rate();
        }
        let at_start = match self.params.cwnd_full_per_cwnd {
            true => self.until_window == self.per_window(),
            false => self.until_change == self.change_rate(),
        };
        if at_start {
            self.full = false;
        }
    }
}

impl Control for Vegas {
    fn room(&self) -> u64 {
        self.window.saturating_sub(self.inflight)
    }

    fn is_marked(&self) -> bool {
        (self.inflight + 1).is_multiple_of(self.sendme_inc)
    }

    fn sent(&mut self) {
        self.inflight += 1;
    }

    fn acknowledged(&mut self, rtt: Duration, outlet: Outlet) -> bool {
        if self.inflight < self.sendme_inc {
            return false;
        }
        self.until_change = self.until_change.saturating_sub(1);
        self.until_window = self.until_window.saturating_sub(1);
        let measured = self.measure(micros(rtt));
        self.note_blocking(outlet.blocked);
        if measured || outlet.blocked {
            self.note_fullness();
            self.change();
            self.count_down();
        }
        self.inflight -= self.sendme_inc;
        true
    }

    fn sendme_inc(&self) -> u64 {
        self.sendme_inc
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn view(&self) -> PathView {
        let average = (self.rtt.average > 0).then(|| Duration::from_micros(self.rtt.average));
        let leg = LegView {
            least_rtt: Duration::from_micros(self.rtt.least),
            size: self.window,
            inflight: self.inflight,
            step: self.sendme_inc,
            bdp: average.map_or(0, |_| self.bdp()),
            slow_start: self.slow_start,
            ..LegView::default()
        };
        PathView::leg(average, self.room(), leg)
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use anabranch_multipath::Time;

    use super::*;

    /// Simulates, for `seconds`, a path with a queue, which forwards `rate` cells a second. Each
    /// acknowledgement arrives `delay` after its cell left the queue. Sends as much as the window
    /// allows, and returns the final state.
    fn drive(rate: f64, delay: Duration, seconds: f64) -> Vegas {
        let mut vegas = Vegas::new(31, &Params::default());
        let mut arrivals: VecDeque<(Time, Time)> = VecDeque::new();
        let (mut now, mut free) = (Time::ZERO, Time::ZERO);
        while now.secs_f64() < seconds {
            while vegas.room() > 0 {
                free = free.max(now) + Duration::from_secs_f64(1.0 / rate);
                if vegas.is_marked() {
                    arrivals.push_back((now, free + delay));
                }
                vegas.sent();
            }
            let (sent, arrived) = arrivals.pop_front().expect("a full window has marked cells");
            now = arrived;
            assert!(
                vegas.acknowledged(now.since(sent), Outlet { wanting: true, ..Outlet::default() })
            );
        }
        vegas
    }

    #[test]
    fn the_window_settles_where_the_path_is_full_and_the_queue_short() {
        let (rate, delay) = (10_000.0, Duration::from_millis(100));
        let vegas = drive(rate, delay, 60.0);
        let path = rate * delay.as_secs_f64();
        let window = vegas.window() as f64;
        assert!(!vegas.slow_start);
        assert!(window > path && window < path + 400.0, "{window} cells on a path of {path}");
    }

    #[test]
    fn a_scheduler_sees_window_round_trip_time_and_what_the_path_holds() {
        let fresh = Vegas::new(31, &Params::default()).view();
        assert_eq!((fresh.usable, fresh.rtt, fresh.window), (false, None, Some(124)));
        assert!(fresh.leg.slow_start);
        let vegas = drive(10_000.0, Duration::from_millis(100), 60.0);
        let PathView { rtt, leg, .. } = vegas.view();
        let rtt = rtt.unwrap();
        // About 1,000 cells are in flight at 10,000 cells a second. The other cells of the window
        // wait in a queue.
        assert!((100..140).contains(&rtt.as_millis()), "{rtt:?}");
        assert!((990..1_100).contains(&leg.bdp), "{} cells", leg.bdp);
        assert_eq!((leg.size, leg.inflight, leg.step), (vegas.window, vegas.inflight, 31));
        assert!(!leg.slow_start);
    }

    #[test]
    fn an_idle_window_does_not_grow() {
        let mut vegas = Vegas::new(31, &Params::default());
        vegas.params.cwnd_full_gap = 0;
        for _ in 0..100 {
            (0..31).for_each(|_| vegas.sent());
            assert!(vegas.acknowledged(Duration::from_millis(50), Outlet::default()));
        }
        assert_eq!(vegas.window(), 124);
    }

    #[test]
    fn a_blocked_outlet_ends_slow_start_and_shrinks_the_window_to_its_least() {
        let mut vegas = Vegas::new(31, &Params::default());
        let blocked = Outlet { blocked: true, wanting: true, queued: 100 };
        for _ in 0..200 {
            (0..31).for_each(|_| vegas.sent());
            assert!(vegas.acknowledged(Duration::from_millis(50), blocked));
        }
        assert!(!vegas.slow_start);
        assert_eq!(vegas.window(), 124);
    }

    #[test]
    fn an_acknowledgement_that_is_not_owed_is_told() {
        let mut vegas = Vegas::new(31, &Params::default());
        let acknowledged =
            |vegas: &mut Vegas| vegas.acknowledged(Duration::from_millis(1), Outlet::default());
        (0..30).for_each(|_| vegas.sent());
        assert!(!acknowledged(&mut vegas));
        vegas.sent();
        assert!(acknowledged(&mut vegas));
        assert!(!acknowledged(&mut vegas));
    }
}
