//! Loss detection by time (RACK, RFC 8985, section 6).

use std::time::Duration;

use anabranch_multipath::Time;

use super::scoreboard::{Scoreboard, Sent};
use crate::constants::{
    DUP_THRESH, MAX_REORDERING, RACK_MAX_REO_WND_MULT, RACK_REO_WND_DIVISOR, RACK_REO_WND_PERSIST,
};
use crate::rtt::Rtt;

/// The state of RACK, named as in RFC 8985, section 5.
#[derive(Clone, Debug)]
pub(crate) struct Rack {
    xmit_ts: Time,
    end_seq: u64,
    rtt: Duration,
    /// Highest offset that has arrived at the peer.
    fack: u64,
    reordering_seen: bool,
    /// Measured degree of reordering, in segments.
    reordering: u32,
    reo_wnd_mult: u32,
    reo_wnd_persist: u32,
    /// Offset before whose acknowledgement further DSACKs do not widen the reordering window.
    dsack_round: Option<u64>,
}

/// The segments that an acknowledgement reveals as lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Losses {
    pub(crate) count: u32,
    /// Whether a retransmission is among the lost segments.
    pub(crate) again: bool,
    /// Time at which further segments may count as lost; `None` if there are none.
    pub(crate) next: Option<Time>,
}

impl Default for Rack {
    fn default() -> Rack {
        Rack {
            xmit_ts: Time::ZERO,
            end_seq: 0,
            rtt: Duration::ZERO,
            fack: 0,
            reordering_seen: false,
            reordering: DUP_THRESH,
            reo_wnd_mult: 1,
            reo_wnd_persist: 0,
            dsack_round: None,
        }
    }
}

impl Rack {
    /// Processes a segment that is newly known to have arrived (steps 2 and 3). `mss` converts a
    /// distance in bytes to segments.
    pub(crate) fn on_delivered(
        &mut self,
        now: Time,
        sent: &Sent,
        least: Option<Duration>,
        mss: u64,
    ) {
        if sent.end > self.fack {
            self.fack = sent.end;
        } else if sent.count == 1 {
            self.reordering_seen = true;
            let degree = u32::try_from((self.fack - sent.start).div_ceil(mss)).unwrap_or(u32::MAX);
            self.reordering = self.reordering.max(degree.min(MAX_REORDERING));
        }
        let rtt = now.since(sent.sent_at);
        if sent.count > 1 && least.is_some_and(|least| rtt < least) {
            // The acknowledgement belongs to an earlier transmission of the segment.
            return;
        }
        if (sent.sent_at, sent.end) > (self.xmit_ts, self.end_seq) {
            (self.xmit_ts, self.end_seq) = (sent.sent_at, sent.end);
        }
        self.rtt = rtt;
    }

    /// Widens the reordering window after a DSACK for an unnecessary retransmission (step 4).
    /// `una` and `nxt` are those of the sender.
    pub(crate) fn on_dsack(&mut self, una: u64, nxt: u64) {
        if self.dsack_round.is_some_and(|round| una < round) {
            return;
        }
        self.dsack_round = Some(nxt);
        self.reo_wnd_mult = (self.reo_wnd_mult + 1).min(RACK_MAX_REO_WND_MULT);
        self.reo_wnd_persist = RACK_REO_WND_PERSIST;
    }

    /// Updates how long a widened reordering window lasts, at the end of a recovery.
    pub(crate) fn on_recovered(&mut self) {
        self.reo_wnd_persist = self.reo_wnd_persist.saturating_sub(1);
        if self.reo_wnd_persist == 0 {
            self.reo_wnd_mult = 1;
        }
    }

    /// Returns the number of segments that must arrive out of order before a loss is assumed
    /// without waiting.
    pub(crate) fn reordering(&self) -> u32 {
        self.reordering
    }

    /// Returns the reordering window (step 4).
    fn window(&self, rtt: &Rtt, sacked: u32, recovering: bool) -> Duration {
        if !self.reordering_seen && (recovering || sacked >= DUP_THRESH) {
            return Duration::ZERO;
        }
        let least = rtt.least().unwrap_or_default();
        let window = least * self.reo_wnd_mult / RACK_REO_WND_DIVISOR;
        window.min(rtt.srtt().unwrap_or_default())
    }

    /// Marks lost segments of `leg` (step 5).
    pub(crate) fn detect(
        &self,
        now: Time,
        (board, leg): (&mut Scoreboard, usize),
        rtt: &Rtt,
        recovering: bool,
    ) -> Losses {
        let wait = self.rtt + self.window(rtt, board.sacked(), recovering);
        let mut losses = Losses::default();
        while let Some((id, sent)) = board.oldest(leg) {
            if (sent.sent_at, sent.end) >= (self.xmit_ts, self.end_seq) {
                break;
            }
            let due = sent.sent_at + wait;
            if due > now {
                losses.next = Some(due);
                break;
            }
            losses.again |= sent.again;
            losses.count += 1;
            board.mark_lost(id);
        }
        losses
    }

    /// Marks lost segments of `leg` after a timeout: each whose reordering window has passed
    /// (section 6.3).
    pub(crate) fn on_timeout(&self, now: Time, (board, leg): (&mut Scoreboard, usize), rtt: &Rtt) {
        let wait = self.rtt + self.window(rtt, board.sacked(), true);
        while let Some((id, sent)) = board.oldest(leg) {
            if sent.sent_at + wait > now {
                break;
            }
            board.mark_lost(id);
        }
    }
}
