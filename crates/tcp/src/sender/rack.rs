//! Detection of lost segments by time (RACK, RFC 8985, section 6).

use std::time::Duration;

use anabranch_multipath::Time;

use super::scoreboard::{Scoreboard, Sent};
use crate::constants::{
    DUP_THRESH, LATENESS_WEIGHT, MAX_REORDERING, RACK_MAX_REO_WND_MULT, RACK_REO_WND_DIVISOR,
    RACK_REO_WND_PERSIST,
};
use crate::rtt::Rtt;

/// The state of RACK, named as in RFC 8985, section 5.
#[derive(Clone, Debug)]
pub(crate) struct Rack {
    xmit_ts: Time,
    end_seq: u64,
    rtt: Duration,
    /// Highest stream offset that is known to have arrived at the peer.
    fack: u64,
    /// Time at which an acknowledgement reported the segment that ends at `fack`.
    fack_at: Time,
    /// Round-trip time of the segment that ends at `fack`; `None` if it was sent more than once.
    fack_rtt: Option<Duration>,
    lateness: Lateness,
    reordering_seen: bool,
    /// Measured degree of reordering, in segments: the distance over which segments overtake each
    /// other.
    reordering: u32,
    reo_wnd_mult: u32,
    reo_wnd_persist: u32,
    /// Stream offset that must be acknowledged before another duplicate report (DSACK) widens the
    /// reordering window; `None` before the first report.
    dsack_round: Option<u64>,
    /// Whether the reordering window covers the measured delay of overtaken segments, which may
    /// exceed `SRTT`.
    expects_jitter: bool,
}

/// Number of mean deviations above the mean that few segments exceed in lateness: `K` of RFC 6298,
/// section 2.3.
const LATENESS_DEVIATIONS: u32 = 4;

/// Mean and mean deviation of the lateness of acknowledged segments. A segment is late if a segment
/// with a higher offset was acknowledged before it. Its lateness is its round-trip time minus that
/// of the acknowledged segment with the highest offset. Other segments have a lateness of 0. A
/// queue does not reorder segments, so lateness measures only jitter.
#[derive(Clone, Copy, Debug, Default)]
struct Lateness {
    mean: Duration,
    deviation: Duration,
}

impl Lateness {
    fn add(&mut self, late: Duration) {
        let off = self.mean.abs_diff(late);
        self.deviation = self.deviation - self.deviation / LATENESS_WEIGHT + off / LATENESS_WEIGHT;
        self.mean = self.mean - self.mean / LATENESS_WEIGHT + late / LATENESS_WEIGHT;
    }

    /// Returns a lateness that few segments exceed: the mean and four deviations, as in the
    /// timeout of RFC 6298.
    fn bound(&self) -> Duration {
        self.mean + self.deviation * LATENESS_DEVIATIONS
    }
}

/// Result of the search for lost segments after an acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Losses {
    pub(crate) count: u32,
    /// Whether a retransmission is among the lost segments.
    pub(crate) retransmission: bool,
    /// Time at which further segments may count as lost; `None` if there are no such segments.
    pub(crate) next: Option<Time>,
}

impl Default for Rack {
    fn default() -> Rack {
        Rack {
            xmit_ts: Time::ZERO,
            end_seq: 0,
            rtt: Duration::ZERO,
            fack: 0,
            fack_at: Time::ZERO,
            fack_rtt: None,
            lateness: Lateness::default(),
            reordering_seen: false,
            reordering: DUP_THRESH,
            reo_wnd_mult: 1,
            reo_wnd_persist: 0,
            dsack_round: None,
            expects_jitter: false,
        }
    }
}

impl Rack {
    /// Creates the state for a path whose jitter may exceed its delay. RFC 8985 recommends `SRTT`
    /// as the maximum of the reordering window (section 3.3.2). On a path of this kind, most
    /// segments may be late by more than `SRTT`.
    pub(crate) fn expecting_jitter() -> Rack {
        Rack { expects_jitter: true, ..Rack::default() }
    }

    /// Processes the first report that the segment `sent` has arrived (RFC 8985, section 6.2,
    /// steps 2 and 3). `least` is the minimum round-trip time, `None` if unknown. `mss` is the
    /// maximum segment size in bytes.
    pub(crate) fn on_delivered(
        &mut self,
        now: Time,
        sent: &Sent,
        least: Option<Duration>,
        mss: u64,
    ) {
        let rtt = now.since(sent.sent_at);
        if sent.end > self.fack {
            self.fack = sent.end;
            (self.fack_at, self.fack_rtt) = (now, (sent.count == 1).then_some(rtt));
            self.lateness.add(Duration::ZERO);
        } else if sent.count == 1 {
            // The order of arrival within one report is unknown.
            let was_overtaken = self.fack_at < now;
            if let Some(of_fack) = self.fack_rtt {
                let late = if was_overtaken { rtt.saturating_sub(of_fack) } else { Duration::ZERO };
                self.lateness.add(late);
            }
            self.reordering_seen |= was_overtaken || !self.expects_jitter;
            let degree = u32::try_from((self.fack - sent.start).div_ceil(mss)).unwrap_or(u32::MAX);
            self.reordering = self.reordering.max(degree.min(MAX_REORDERING));
        }
        if sent.count > 1 && least.is_some_and(|least| rtt < least) {
            // The acknowledgement belongs to an earlier transmission of the segment.
            return;
        }
        if (sent.sent_at, sent.end) > (self.xmit_ts, self.end_seq) {
            (self.xmit_ts, self.end_seq) = (sent.sent_at, sent.end);
        }
        self.rtt = rtt;
    }

    /// Returns an estimate of the time that jitter adds to the minimum round-trip time: the mean
    /// lateness of segments plus the mean deviation. If few segments are in flight, the mean alone
    /// would be too small. Lateness is relative to the overtaking segment, and jitter delays that
    /// segment, too.
    pub(crate) fn jitter(&self) -> Duration {
        self.lateness.mean + self.lateness.deviation
    }

    /// Widens the reordering window after the peer reported a duplicate (DSACK), which shows an
    /// unnecessary retransmission (RFC 8985, section 6.2, step 4). `una` and `nxt` are the
    /// sender's first unacknowledged and first unsent stream offset. The window grows at most once
    /// per round trip.
    pub(crate) fn on_dsack(&mut self, una: u64, nxt: u64) {
        if self.dsack_round.is_some_and(|round| una < round) {
            return;
        }
        self.dsack_round = Some(nxt);
        self.reo_wnd_mult = (self.reo_wnd_mult + 1).min(RACK_MAX_REO_WND_MULT);
        self.reo_wnd_persist = RACK_REO_WND_PERSIST;
    }

    /// Counts a recovery that has ended. A widened reordering window returns to its normal size
    /// after [`RACK_REO_WND_PERSIST`] recoveries.
    pub(crate) fn on_recovered(&mut self) {
        self.reo_wnd_persist = self.reo_wnd_persist.saturating_sub(1);
        if self.reo_wnd_persist == 0 {
            self.reo_wnd_mult = 1;
        }
    }

    /// Returns the measured degree of reordering in segments; [`DUP_THRESH`] before the first
    /// measurement.
    pub(crate) fn reordering(&self) -> u32 {
        self.reordering
    }

    /// Returns the reordering window: the time for which an overtaken segment does not count as
    /// lost (RFC 8985, section 6.2, step 4). `sacked` is the number of segments that have arrived
    /// out of order. `recovering` is whether loss recovery is in progress.
    fn window(&self, rtt: &Rtt, sacked: u32, recovering: bool) -> Duration {
        if !self.reordering_seen && (recovering || sacked >= DUP_THRESH) {
            return Duration::ZERO;
        }
        let least = rtt.least().unwrap_or_default();
        let window = least * self.reo_wnd_mult / RACK_REO_WND_DIVISOR;
        let window = window.min(rtt.srtt().unwrap_or_default());
        match self.expects_jitter {
            true => window.max(self.lateness.bound()).min(rtt.base_rto()),
            false => window,
        }
    }

    /// Marks the segments of the path `leg` that count as lost now (RFC 8985, section 6.2, step
    /// 5).
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
            losses.retransmission |= sent.retransmitted;
            losses.count += 1;
            board.mark_lost(id);
        }
        losses
    }

    /// Marks the lost segments of the path `leg` after a timeout: all segments whose reordering
    /// window has passed (RFC 8985, section 6.3).
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

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns a segment of 100 bytes that was sent once.
    fn sent(number: u64, at: u64) -> Sent {
        Sent {
            start: number * 100,
            end: (number + 1) * 100,
            sent_at: Time::from_millis(at),
            count: 1,
            sacked: false,
            lost: false,
            retransmitted: false,
            rate: super::super::rate::Snapshot::default(),
            leg: 0,
        }
    }

    #[test]
    fn segments_that_were_overtaken_are_late_and_others_are_not() {
        let mut rack = Rack::expecting_jitter();
        let mut arrive = |number, sent_at, at| {
            rack.on_delivered(Time::from_millis(at), &sent(number, sent_at), None, 100);
            rack.lateness.mean
        };
        // A queue grows: each segment takes longer than the one before.
        assert_eq!((0..50).map(|n| arrive(n, 10 * n, 100 + 20 * n)).max(), Some(Duration::ZERO));
        // One acknowledgement reports a segment and the segment before it.
        arrive(51, 510, 1_200);
        assert_eq!(arrive(50, 500, 1_200), Duration::ZERO);
        // Segment 53 takes 1,100 ms, segment 52 takes 1,132 ms and arrives after it.
        arrive(53, 530, 1_630);
        assert_eq!(arrive(52, 520, 1_652), 32 * MS / LATENESS_WEIGHT);
    }

    #[test]
    fn lateness_has_the_mean_and_the_bound_of_its_samples() {
        let mut lateness = Lateness::default();
        (0..400).for_each(|number| lateness.add(MS * [0, 40][number % 2]));
        assert!(lateness.mean.abs_diff(20 * MS) < MS, "{lateness:?}");
        assert!(lateness.bound().abs_diff(100 * MS) < 5 * MS, "{lateness:?}");
    }
}
