//! Congestion control: a small trait, and one algorithm per file.

mod cubic;
mod hystart;
mod reno;

use std::fmt;
use std::time::Duration;

use anabranch_multipath::Time;

pub(crate) use cubic::Cubic;
pub(crate) use reno::Reno;

/// The congestion window, in segments.
#[derive(Clone, Debug)]
pub(crate) struct CongestionWindow {
    pub(crate) cwnd: u32,
    pub(crate) ssthresh: u32,
}

impl CongestionWindow {
    pub(crate) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Grows by `acked` segments up to `ssthresh` (RFC 5681, section 3.1), and returns the rest of
    /// them.
    pub(crate) fn slow_start(&mut self, acked: u32) -> u32 {
        let grown = self.cwnd.saturating_add(acked).min(self.ssthresh);
        let left = acked - (grown - self.cwnd);
        self.cwnd = grown;
        left
    }
}

/// An acknowledgement, as congestion control sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckSample {
    pub(crate) now: Time,
    /// Segments newly known to have arrived.
    pub(crate) delivered: u32,
    /// Round-trip time of the most recently sent segment among those acknowledged.
    pub(crate) rtt: Option<Duration>,
    /// Offsets acknowledged cumulatively so far, and sent so far.
    pub(crate) una: u64,
    pub(crate) nxt: u64,
    /// Whether segments are paced.
    pub(crate) paced: bool,
}

/// A congestion control algorithm.
pub(crate) trait Controller: fmt::Debug + Send {
    /// Takes an acknowledgement's measurements, whether or not the window may grow.
    fn measure(&mut self, _window: &mut CongestionWindow, _ack: &AckSample) {}

    /// Grows the window. Called if the window limits the sender, outside recovery.
    fn grow(&mut self, window: &mut CongestionWindow, ack: &AckSample);

    /// Returns the slow-start threshold after congestion, at a window of `cwnd`.
    fn ssthresh(&mut self, cwnd: u32) -> u32;

    /// Forgets everything about the path after a retransmission timeout.
    fn on_timeout(&mut self) {}

    /// Adjusts to a pause of `idle` without anything in flight.
    fn on_resume(&mut self, _idle: Duration) {}
}
