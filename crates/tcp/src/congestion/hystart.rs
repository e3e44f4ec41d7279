//! HyStart: Linux's rule for the end of slow start before a loss (Ha and Rhee, "Taming the
//! elephants: New TCP slow start", Computer Networks 55, 2011).
//!
//! RFC 9406 (HyStart++) has the same rule for delays, with the same constants. After slow start,
//! HyStart++ keeps growing the window slowly for some rounds. Linux, and this code, enter
//! congestion avoidance at once.

use std::time::Duration;

use anabranch_multipath::Time;

use super::{AckSample, CongestionWindow};
use crate::constants::{
    HYSTART_ACK_DELAY, HYSTART_ACK_DELTA, HYSTART_DELAY_DIVISOR, HYSTART_DELAY_MAX,
    HYSTART_DELAY_MIN, HYSTART_LOW_WINDOW, HYSTART_MIN_SAMPLES,
};

/// HyStart's measurements in the current round trip.
#[derive(Clone, Debug, Default)]
pub(crate) struct HyStart {
    /// Whether the end of slow start has been found.
    found: bool,
    round: Option<Round>,
}

#[derive(Clone, Debug)]
struct Round {
    /// Stream offset whose acknowledgement ends the current round trip.
    end: u64,
    start: Time,
    last_ack: Time,
    samples: u32,
    least: Duration,
}

impl HyStart {
    /// Begins a new round trip if the data of the previous round trip have been acknowledged.
    pub(crate) fn begin_round(&mut self, ack: &AckSample) {
        if self.round.as_ref().is_none_or(|round| ack.una > round.end) {
            self.round = Some(Round {
                end: ack.nxt,
                start: ack.now,
                last_ack: ack.now,
                samples: 0,
                least: Duration::MAX,
            });
        }
    }

    /// Processes the round-trip time sample `rtt`. `delay_min` is the connection's minimum
    /// round-trip time. Ends slow start if the spacing of acknowledgements or the delay shows that
    /// the path is full.
    pub(crate) fn sample(
        &mut self,
        window: &mut CongestionWindow,
        ack: &AckSample,
        (rtt, delay_min): (Duration, Duration),
    ) {
        let Some(round) = &mut self.round else { return };
        if self.found || !window.in_slow_start() || window.cwnd < HYSTART_LOW_WINDOW {
            return;
        }
        if ack.now.since(round.last_ack) <= HYSTART_ACK_DELTA {
            round.last_ack = ack.now;
            // If segments are paced, a train of acknowledgements always takes as long as the round
            // trip.
            let longest = delay_min + HYSTART_ACK_DELAY;
            let longest = if ack.paced { longest } else { longest / 2 };
            self.found |= ack.now.since(round.start) > longest;
        }
        round.least = round.least.min(rtt);
        if round.samples < HYSTART_MIN_SAMPLES {
            round.samples += 1;
        } else {
            let growth = delay_min / HYSTART_DELAY_DIVISOR;
            let growth = growth.clamp(HYSTART_DELAY_MIN, HYSTART_DELAY_MAX);
            self.found |= round.least > delay_min + growth;
        }
        if self.found {
            window.ssthresh = window.cwnd;
        }
    }
}
