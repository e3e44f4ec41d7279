//! Congestion control: the common traits, the algorithms, and the table of their names.
//!
//! To add an algorithm, write its file with its [`Family`], declare the file here, and add the
//! family to [`FAMILIES`]. It then appears in `--udp-or-congestion` and in scenario files, and the
//! conformance tests run on it.

mod bbr;
mod cubic;
mod family;
mod hystart;
mod reno;

use std::fmt;
use std::time::Duration;

use anabranch_multipath::Time;

pub(crate) use bbr::{Bbr, ModelSample, RateSample};
pub use family::{Congestion, Family, UnknownCongestion};

/// All congestion control algorithms. The first is the default.
pub const FAMILIES: &[&Family] = &[&cubic::FAMILY, &reno::FAMILY, &bbr::FAMILY];

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

    /// Increases the window by `acked` segments, at most to `ssthresh` (RFC 5681, section 3.1).
    /// Returns the number of segments left over at `ssthresh`.
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
    /// Number of segments newly known to have arrived.
    pub(crate) delivered: u32,
    /// Round-trip time of the acknowledged segment that was sent last; `None` without a sample.
    pub(crate) rtt: Option<Duration>,
    /// Stream offset up to which data are acknowledged cumulatively.
    pub(crate) una: u64,
    /// Stream offset up to which data have been sent.
    pub(crate) nxt: u64,
    /// Whether segments are paced.
    pub(crate) paced: bool,
}

/// A congestion control algorithm.
pub(crate) trait Controller: fmt::Debug + Send {
    /// Processes the measurements of an acknowledgement, whether or not the window may grow.
    fn measure(&mut self, _window: &mut CongestionWindow, _ack: &AckSample) {}

    /// Increases the window. Called outside recovery, if the window limits the sender.
    fn grow(&mut self, window: &mut CongestionWindow, ack: &AckSample);

    /// Returns the new slow-start threshold after a congestion event, in segments. `cwnd` is the
    /// window at the event, in segments.
    fn ssthresh(&mut self, cwnd: u32) -> u32;

    /// Resets what is known about the path, after a retransmission timeout.
    fn on_timeout(&mut self) {}

    /// Adjusts the state after a pause of the length `idle`, during which nothing was in flight.
    fn on_resume(&mut self, _idle: Duration) {}
}

/// The congestion control of one path.
#[derive(Debug)]
pub(crate) enum Control {
    /// A loss-based algorithm: it reduces the window after losses.
    Losses(Box<dyn Controller>),
    /// A model-based algorithm: it derives the window and the pacing rate from a model of the path.
    Model(Box<Bbr>),
}

impl Control {
    /// Returns the model of the path; `None` if the algorithm is loss-based.
    pub(crate) fn model(&mut self) -> Option<&mut Bbr> {
        match self {
            Control::Model(bbr) => Some(bbr),
            Control::Losses(_) => None,
        }
    }

    /// Returns the loss-based algorithm; `None` if the algorithm is model-based.
    pub(crate) fn losses(&mut self) -> Option<&mut dyn Controller> {
        match self {
            Control::Losses(controller) => Some(&mut **controller),
            Control::Model(_) => None,
        }
    }
}
