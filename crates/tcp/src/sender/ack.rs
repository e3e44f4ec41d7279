//! Processing of acknowledgements in the sending half of a connection.

use std::time::Duration;

use anabranch_multipath::Time;

use super::Sender;
use super::leg::{Acked, Leg};
use super::recovery::{Phase, Progress};
use super::scoreboard::Sent;
use crate::congestion::{AckSample, Control, ModelSample};
use crate::constants::{DUP_THRESH, TIMEOUT_MIN};
use crate::timers::{Timer, Timers};

/// An acknowledgement with the other fields of its segment. Sequence numbers are converted to
/// stream offsets.
#[derive(Clone, Debug, Default)]
pub(crate) struct AckSegment {
    pub(crate) seq: u64,
    pub(crate) ack: u64,
    /// Receive window of the peer in bytes, after scaling.
    pub(crate) window: u64,
    /// SACK blocks in the order in which the option has them.
    pub(crate) sacks: Vec<(u64, u64)>,
    /// Whether the segment carries data or a FIN.
    pub(crate) has_data: bool,
    /// Time since the echoed timestamp was sent; `None` without timestamps.
    pub(crate) echo_age: Option<Duration>,
}

/// Transmission times of the segments that an acknowledgement covers, for round-trip time samples.
#[derive(Clone, Copy, Debug, Default)]
struct Samples {
    /// First transmission time of the segments that are acknowledged cumulatively and were sent
    /// only once; `None` if there are none.
    first: Option<Time>,
    /// Last transmission time of the segments that are acknowledged cumulatively and were sent
    /// only once; `None` if there are none.
    last: Option<Time>,
    /// Latest transmission time of the segments that SACK blocks report for the first time; `None`
    /// if there are none.
    sacked: Option<Time>,
    /// Whether one of the acknowledged segments was sent several times, so that its round-trip
    /// time is unclear.
    ambiguous: bool,
}

impl Sender {
    /// Processes an acknowledgement. The offset that `segment` acknowledges must not exceed the
    /// offset sent so far. It may be below `una`, if a later acknowledgement has overtaken this
    /// one.
    pub(crate) fn on_ack(&mut self, now: Time, segment: &AckSegment, timers: &mut Timers) {
        let prior = (self.una, self.peer.end);
        self.take_window(segment, timers);
        for place in 0..self.legs.len() {
            let prior_in_flight = self.flying(place);
            self.legs[place].acked = Acked { prior_in_flight, ..Acked::default() };
        }
        let mut samples = Samples::default();
        let mut progress = Progress {
            // The paths' delays differ, so an echo shows nothing about the order of transmissions.
            echo: segment.echo_age.filter(|_| !self.has_legs()).map(|age| now - age),
            advanced: segment.ack > self.una,
            ..Progress::default()
        };
        self.take_sacks(now, segment, &mut progress, &mut samples);
        self.take_cumulative(now, segment.ack, &mut progress, &mut samples);
        self.take_rtt(now, segment, &progress, samples);
        if !self.sack {
            let duplicate = segment.ack == prior.0 && self.peer.end == prior.1 && !segment.has_data;
            self.count_duplicate(duplicate, &mut progress);
        }
        self.find_losses(now, &mut progress, timers);
        self.check_probe(segment, &progress);
        self.update_recovery(&progress, timers);
        match self.legs[0].control {
            Control::Losses(_) => self.update_window(now, &progress, samples),
            Control::Model(_) => self.update_models(now, samples),
        }
        if self.board.is_empty() {
            self.retries = 0;
        }
        self.restart_timers(now, &progress, timers);
    }

    /// Updates the peer's window from a segment (RFC 9293, section 3.10.7.4).
    fn take_window(&mut self, segment: &AckSegment, timers: &mut Timers) {
        let newer = segment.seq > self.peer.seq
            || (segment.seq == self.peer.seq && segment.ack >= self.peer.ack);
        if !newer {
            return;
        }
        (self.peer.seq, self.peer.ack) = (segment.seq, segment.ack);
        self.peer.max = self.peer.max.max(segment.window);
        let end = segment.ack + segment.window;
        if end > self.peer.end {
            timers.stop(Timer::Persist);
            self.probes = 0;
        }
        self.peer.end = end;
    }

    fn take_sacks(
        &mut self,
        now: Time,
        segment: &AckSegment,
        progress: &mut Progress,
        samples: &mut Samples,
    ) {
        if !self.sack {
            return;
        }
        if let Some(&(start, end)) = segment.sacks.first() {
            let inside = segment.sacks.get(1).is_some_and(|&(a, b)| a <= start && end <= b);
            if (end <= segment.ack || inside) && !self.copies.explain(start) {
                progress.dsack = true;
                self.recovery.on_dsack(end);
                let (una, nxt) = (self.una, self.nxt);
                self.legs.iter_mut().for_each(|leg| leg.rack.on_dsack(una, nxt));
            }
        }
        for &(start, end) in &segment.sacks {
            // A block for data that was never sent is ignored.
            if start >= end || end > self.nxt || end <= segment.ack.max(self.una) {
                continue;
            }
            for id in self.board.sack(start.max(self.una), end) {
                let Some(sent) = self.board.get(id).cloned() else { continue };
                self.deliver(now, &sent, progress);
                if sent.count == 1 {
                    samples.sacked = samples.sacked.max(Some(sent.sent_at));
                }
            }
        }
    }

    /// Processes the first report that the segment `sent` has arrived.
    fn deliver(&mut self, now: Time, sent: &Sent, progress: &mut Progress) {
        progress.delivered += 1;
        progress.original |= sent.count == 1 && sent.end <= self.recovery.point;
        let Leg { rate, rack, rtt, acked, .. } = &mut self.legs[sent.leg];
        rate.on_delivered(now, sent.end - sent.start, sent.sent_at, sent.rate);
        rack.on_delivered(now, sent, rtt.least(), self.mss as u64);
        acked.delivered += 1;
        if sent.count == 1 {
            acked.newest = acked.newest.max(Some(sent.sent_at));
        }
        self.legs[sent.leg].note_delivery();
    }

    fn take_cumulative(
        &mut self,
        now: Time,
        ack: u64,
        progress: &mut Progress,
        samples: &mut Samples,
    ) {
        if !progress.advanced {
            return;
        }
        let mut count = 0;
        while self.board.front().is_some_and(|sent| sent.end <= ack) {
            let Some(sent) = self.board.pop() else { break };
            count += 1;
            if sent.sacked {
                continue;
            }
            self.deliver(now, &sent, progress);
            if sent.count > 1 {
                samples.ambiguous = true;
            } else {
                samples.first = samples.first.or(Some(sent.sent_at));
                samples.last = samples.last.max(Some(sent.sent_at));
            }
        }
        if let Some(sent) = self.board.front_mut() {
            sent.start = sent.start.max(ack);
        }
        if !self.sack {
            // Each duplicate acknowledgement was already counted as an arrived segment.
            let counted = self.board.sacked().min(count.max(1) - 1);
            progress.delivered = progress.delivered.saturating_sub(counted);
            self.board.take_duplicates(counted);
        }
        self.una = ack;
        let bytes = ack.min(self.data_end()).saturating_sub(self.base);
        self.buffer.drain(..bytes as usize);
        self.base += bytes;
        self.retries = 0;
    }

    fn take_rtt(&mut self, now: Time, segment: &AckSegment, progress: &Progress, samples: Samples) {
        if self.has_legs() {
            return self.take_rtts_of_legs(now, samples);
        }
        // The other segments may have arrived long before the retransmitted one (Karn's
        // algorithm).
        let sent_at = samples.first.or(samples.sacked).filter(|_| !samples.ambiguous);
        let echoed = segment.echo_age.filter(|_| progress.advanced);
        if let Some(rtt) = sent_at.map(|sent_at| now.since(sent_at)).or(echoed) {
            self.legs[0].rtt.sample(now, rtt);
        }
    }

    /// Adds a round-trip time sample for each path (leg) whose segments this acknowledgement
    /// reports for the first time. The acknowledgement may return on another path. The sample
    /// includes the delay of that path, because the delay is part of the control loop.
    fn take_rtts_of_legs(&mut self, now: Time, samples: Samples) {
        for leg in &mut self.legs {
            let newest = leg.acked.newest.filter(|_| !samples.ambiguous);
            if let Some(rtt) = newest.map(|sent_at| now.since(sent_at)) {
                leg.rtt.sample(now, rtt);
            }
        }
    }

    /// Processes an acknowledgement of a peer without SACK (RFC 6582, section 3.2). `duplicate` is
    /// true for a duplicate acknowledgement, which shows that some later segment has arrived. The
    /// first unacknowledged segment counts as lost after the third duplicate and, in recovery,
    /// after a partial acknowledgement.
    fn count_duplicate(&mut self, duplicate: bool, progress: &mut Progress) {
        let recovering = self.recovery.phase == Phase::Recovery;
        if duplicate && !self.board.is_empty() && self.board.add_duplicate() {
            progress.delivered += 1;
        }
        let Some((first, _)) = self.board.first_and_last() else { return };
        let partial = recovering && progress.advanced && self.una < self.recovery.point;
        let third = self.recovery.is_open()
            && self.board.sacked() >= DUP_THRESH
            && self.una >= self.recovery.point;
        if (partial || third) && self.board.mark_lost(first) {
            progress.lost += 1;
        }
    }

    pub(super) fn find_losses(&mut self, now: Time, progress: &mut Progress, timers: &mut Timers) {
        if !self.sack {
            return;
        }
        let recovering = !self.recovery.is_open();
        let mut next: Option<Time> = None;
        for (place, leg) in self.legs.iter_mut().enumerate() {
            let losses = leg.rack.detect(now, (&mut self.board, place), &leg.rtt, recovering);
            leg.lost += losses.count;
            progress.lost += losses.count;
            progress.lost_again |= losses.retransmission;
            next = next.into_iter().chain(losses.next).min();
        }
        match next {
            Some(at) => timers.set(Timer::Reorder, at + TIMEOUT_MIN),
            None => timers.stop(Timer::Reorder),
        }
    }

    fn update_window(&mut self, now: Time, progress: &Progress, samples: Samples) {
        let sent_at = samples.last.or(samples.sacked).filter(|_| !samples.ambiguous);
        let sample = AckSample {
            now,
            delivered: progress.delivered,
            rtt: sent_at.map(|sent_at| now.since(sent_at)),
            una: self.una,
            nxt: self.nxt,
            paced: self.legs[0].paces(),
        };
        let Leg { window, control, rate, rtt, .. } = &mut self.legs[0];
        rate.finish(rtt.least());
        let Some(controller) = control.losses() else { return };
        controller.measure(window, &sample);
        if self.recovery.phase == Phase::Recovery {
            self.reduce_proportionally(progress);
            return;
        }
        // If segments overtake each other, an arrival out of order also counts as progress.
        let forward = progress.advanced || self.legs[0].rack.reordering() > DUP_THRESH;
        if forward && progress.delivered > 0 && self.is_limited() {
            let Leg { window, control, .. } = &mut self.legs[0];
            control.losses().into_iter().for_each(|controller| controller.grow(window, &sample));
        }
    }

    /// Updates the congestion control model of each path that the acknowledgement concerns.
    fn update_models(&mut self, now: Time, samples: Samples) {
        let recovering = !self.recovery.is_open();
        for place in 0..self.legs.len() {
            let in_flight = self.flying(place);
            let Leg { rtt, rack, rate, control, window, lost, acked, .. } = &mut self.legs[place];
            let Some(bbr) = control.model() else { continue };
            if acked.delivered == 0 && *lost == 0 {
                continue;
            }
            let newest = acked.newest.filter(|_| !samples.ambiguous);
            let sample = ModelSample {
                now,
                delivered: acked.delivered,
                lost: std::mem::take(lost),
                prior_in_flight: acked.prior_in_flight,
                in_flight,
                rtt: newest.map(|sent_at| now.since(sent_at)),
                // Without this bound, a peer's reports could make the bandwidth-delay product
                // arbitrarily large.
                jitter: rack.jitter().min(rtt.srtt().unwrap_or_default()),
                rate: rate.finish(rtt.least()),
                recovering,
                mss: self.mss,
            };
            bbr.on_ack(&mut window.cwnd, &sample);
            if bbr.probes_rtt() {
                rate.on_app_limited(u64::from(in_flight) * self.mss as u64);
            }
        }
    }

    fn restart_timers(&mut self, now: Time, progress: &Progress, timers: &mut Timers) {
        if self.board.is_empty() {
            timers.stop(Timer::Retransmit);
            timers.stop(Timer::Probe);
            timers.stop(Timer::Reorder);
        } else if progress.advanced {
            timers.set(Timer::Retransmit, now + self.rtt().rto());
            self.schedule_probe(now, timers);
        }
    }
}
