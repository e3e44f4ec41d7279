//! The states of loss recovery: fast recovery with proportional rate reduction (RFC 9937),
//! recovery after a timeout, and undo (RFC 3522, RFC 3708).

use std::time::Duration;

use anabranch_multipath::Time;

use super::Sender;
use super::leg::Leg;
use crate::congestion::{CongestionWindow, Control};
use crate::constants::MIN_SSTHRESH;
use crate::timers::Timers;

/// Resolution of the timestamps that the peer echoes.
const TICK: Duration = Duration::from_millis(1);

/// The phases of a sender's loss recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No segment is known to be lost.
    #[default]
    Open,
    /// Fast recovery is in progress.
    Recovery,
    /// Recovery after a retransmission timeout is in progress.
    Loss,
}

/// State of a sender's loss recovery.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recovery {
    pub(crate) phase: Phase,
    /// `RecoveryPoint` of RFC 9937: the offset whose acknowledgement ends recovery.
    pub(crate) point: u64,
    /// Stream offset of the first unacknowledged byte (`una`) at the beginning of recovery.
    marker: u64,
    /// Whether the retransmission timeout may turn out to be spurious (F-RTO, RFC 5682).
    may_be_spurious: bool,
    /// Congestion window at the beginning of recovery, in segments. It is used for RFC 9937's
    /// `RecoverFS`.
    prior_cwnd: u32,
    prior_ssthresh: u32,
    prr_delivered: u32,
    prr_out: u32,
    /// Whether the reduction of the congestion window may turn out to be unnecessary.
    undoable: bool,
    /// Number of retransmissions that the peer has not reported as duplicates (DSACK); `None` if
    /// they cannot be counted.
    undo_retransmissions: Option<u32>,
    /// Time of the first retransmission in this recovery; `None` before that.
    first_retransmission: Option<Time>,
}

impl Recovery {
    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Returns the slow-start threshold in segments. Outside recovery, it is at least three
    /// quarters of the congestion window (Linux, `tcp_current_ssthresh`).
    pub(crate) fn threshold(&self, window: &CongestionWindow) -> u32 {
        if self.is_open() {
            window.ssthresh.max(window.cwnd / 2 + window.cwnd / 4)
        } else {
            window.ssthresh
        }
    }

    pub(crate) fn on_sent(&mut self) {
        self.prr_out += 1;
    }

    pub(crate) fn on_retransmit(&mut self, now: Time) {
        self.first_retransmission.get_or_insert(now);
        if let Some(count) = &mut self.undo_retransmissions {
            *count += 1;
        }
    }

    /// Processes the peer's report (DSACK) that it received a segment twice. The segment ends at
    /// the stream offset `end`.
    pub(crate) fn on_dsack(&mut self, end: u64) {
        if let Some(count) = self.undo_retransmissions.as_mut().filter(|_| end > self.marker) {
            *count = count.saturating_sub(1);
        }
    }

    /// Returns whether an acknowledgement shows that the original of the first retransmission
    /// arrived (RFC 3522, section 3.2). The acknowledgement echoes a timestamp, which was sent at
    /// the time `echo`.
    fn is_delayed(&self, echo: Option<Time>) -> bool {
        self.first_retransmission.zip(echo).is_some_and(|(first, echo)| echo + TICK <= first)
    }

    fn all_reported(&self) -> bool {
        self.undo_retransmissions == Some(0) && self.first_retransmission.is_some()
    }
}

/// Effects of an acknowledgement that matter for loss recovery.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Number of segments that the acknowledgement reports for the first time.
    pub(crate) delivered: u32,
    /// Whether the first unacknowledged offset (`una`) has advanced.
    pub(crate) advanced: bool,
    /// Number of segments that the acknowledgement shows to be lost.
    pub(crate) lost: u32,
    /// Whether a retransmitted segment was lost again.
    pub(crate) lost_again: bool,
    /// Whether the acknowledgement reports a segment that was sent before recovery began, and was
    /// never retransmitted.
    pub(crate) original: bool,
    /// Whether the peer has reported data that arrived twice (DSACK).
    pub(crate) dsack: bool,
    /// Earliest time at which the echoed timestamp may have been sent, given the resolution of the
    /// timestamp clock; `None` without timestamps.
    pub(crate) echo: Option<Time>,
}

impl Sender {
    /// Updates the phase of loss recovery after an acknowledgement.
    pub(super) fn update_recovery(&mut self, progress: &Progress, timers: &mut Timers) {
        if !self.recovery.is_open() && self.una >= self.recovery.point {
            self.leave_recovery(progress);
        }
        match self.recovery.phase {
            Phase::Open => {
                if progress.dsack && self.recovery.undoable && self.recovery.all_reported() {
                    self.undo();
                }
                if self.board.lost() > 0 {
                    self.enter_recovery();
                }
            }
            Phase::Recovery => {
                let delayed = progress.advanced && self.recovery.is_delayed(progress.echo);
                if self.recovery.undoable && (delayed || self.recovery.all_reported()) {
                    self.undo();
                }
            }
            Phase::Loss => self.work_off_timeout(progress),
        }
        if !self.recovery.is_open() {
            timers.stop(crate::timers::Timer::Probe);
        }
    }

    fn work_off_timeout(&mut self, progress: &Progress) {
        // F-RTO (RFC 5682, section 3.1): the arrival of an original shows that the timeout was
        // spurious. Without SACK, the original may have arrived before the timeout.
        let early = self.sack && progress.original && self.recovery.may_be_spurious;
        let delayed = progress.advanced && self.recovery.is_delayed(progress.echo);
        if self.recovery.undoable && (early || delayed || self.recovery.all_reported()) {
            self.undo();
            return;
        }
        self.recovery.may_be_spurious &= !progress.advanced;
        if progress.lost_again {
            self.enter_recovery();
        }
    }

    fn enter_recovery(&mut self) {
        self.stats.recoveries += 1;
        self.tail_probe = None;
        self.begin_recovery(Phase::Recovery);
    }

    /// Begins a phase of loss recovery, and lowers the slow-start threshold.
    fn begin_recovery(&mut self, phase: Phase) {
        let again = self.board.retransmitted();
        let Leg { window, control, .. } = &mut self.legs[0];
        self.recovery = Recovery {
            phase,
            point: self.nxt,
            marker: self.una,
            may_be_spurious: phase == Phase::Loss,
            prior_cwnd: window.cwnd,
            prior_ssthresh: self.recovery.threshold(window),
            prr_delivered: 0,
            prr_out: 0,
            undoable: true,
            undo_retransmissions: Some(again),
            // While retransmissions are in flight, acknowledgements of them echo their times.
            first_retransmission: self.recovery.first_retransmission.filter(|_| again > 0),
        };
        if let Some(controller) = control.losses() {
            window.ssthresh = controller.ssthresh(window.cwnd);
        }
    }

    /// Enters [`Phase::Loss`] after a retransmission timeout (RFC 5681, section 3.1; RFC 6298,
    /// section 5).
    pub(super) fn enter_loss(&mut self) {
        // In recovery, the window has already been reduced for the data in flight.
        let again = !self.recovery.is_open() && self.una < self.recovery.point && self.retries > 0;
        let reduced = self.recovery.phase == Phase::Recovery && self.una < self.recovery.point;
        if again || reduced {
            self.recovery.phase = Phase::Loss;
            self.recovery.point = self.nxt;
            self.recovery.may_be_spurious = false;
        } else {
            self.begin_recovery(Phase::Loss);
        }
        self.recovery.prr_out = 0;
        self.recovery.prr_delivered = 0;
        let place = self.board.front().map_or(0, |first| first.leg);
        let in_flight = self.flying(place);
        let Leg { window, control, .. } = &mut self.legs[place];
        match control {
            Control::Losses(controller) => controller.on_timeout(),
            Control::Model(bbr) => bbr.on_timeout(window.cwnd),
        }
        window.cwnd = in_flight + 1;
    }

    fn leave_recovery(&mut self, progress: &Progress) {
        let delayed = self.recovery.is_delayed(progress.echo);
        if self.recovery.undoable && (delayed || self.recovery.all_reported()) {
            self.undo();
        } else if self.recovery.phase == Phase::Recovery
            && let Some(window) = self.window_of_losses()
        {
            window.cwnd = window.ssthresh.max(MIN_SSTHRESH);
        }
        self.legs.iter_mut().for_each(|leg| leg.rack.on_recovered());
        self.board.take_duplicates(u32::MAX);
        self.recovery.phase = Phase::Open;
    }

    /// Restores the congestion window after an unnecessary reduction: nothing was lost.
    fn undo(&mut self) {
        self.stats.undone += 1;
        self.board.unmark_lost();
        let (cwnd, ssthresh) = (self.recovery.prior_cwnd, self.recovery.prior_ssthresh);
        if let Some(window) = self.window_of_losses() {
            window.cwnd = window.cwnd.max(cwnd);
            window.ssthresh = window.ssthresh.max(ssthresh);
        }
        self.recovery.undoable = false;
        self.recovery.phase = Phase::Open;
    }

    /// Returns the congestion window; `None` if the congestion control is model-based (BBR).
    fn window_of_losses(&mut self) -> Option<&mut CongestionWindow> {
        let Leg { window, control, .. } = &mut self.legs[0];
        matches!(control, Control::Losses(_)).then_some(window)
    }

    /// Reduces the congestion window after a tail loss probe has repaired a loss (RFC 8985,
    /// section 7.4).
    pub(super) fn reduce_for_probe(&mut self) {
        let Leg { window, control, .. } = &mut self.legs[0];
        if let Some(controller) = control.losses() {
            window.ssthresh = controller.ssthresh(window.cwnd);
            window.cwnd = window.ssthresh;
        }
    }

    /// Sets the congestion window by proportional rate reduction (RFC 9937, section 6).
    pub(super) fn reduce_proportionally(&mut self, progress: &Progress) {
        let Control::Losses(_) = self.legs[0].control else { return };
        if progress.delivered == 0 {
            return;
        }
        let recovery = &mut self.recovery;
        let pipe = self.board.in_flight();
        recovery.prr_delivered += progress.delivered;
        let ssthresh = self.legs[0].window.ssthresh;
        let send = if pipe > ssthresh {
            let delivered = u64::from(recovery.prr_delivered) * u64::from(ssthresh);
            let allowed = delivered.div_ceil(u64::from(recovery.prior_cwnd.max(1)));
            u32::try_from(allowed).unwrap_or(u32::MAX).saturating_sub(recovery.prr_out)
        } else {
            // If the acknowledgement shows progress without loss, the bound is that of slow start.
            // Otherwise the conservative bound applies.
            let safe = progress.advanced && progress.lost == 0;
            let owed = recovery.prr_delivered.saturating_sub(recovery.prr_out);
            let bound = owed.max(progress.delivered) + u32::from(safe);
            bound.min(ssthresh - pipe)
        };
        // The first retransmission is sent at once. If the peer has no SACK, the retransmission
        // after a partial acknowledgement is also sent at once (RFC 6582, section 3.2).
        let partial = !self.sack && progress.advanced && progress.lost > 0;
        let send = send.max(u32::from(recovery.prr_out == 0 || partial));
        self.legs[0].window.cwnd = (pipe + send).max(1);
    }
}
