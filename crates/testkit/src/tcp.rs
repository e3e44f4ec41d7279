//! A model of a bulk transfer by TCP, with the mechanisms that determine goodput: CUBIC (RFC
//! 9438), selective acknowledgements, time-based loss detection (RACK, RFC 8985) and an
//! acknowledgement for every second segment. Slow start ends early as in Linux (HyStart).

#![allow(missing_docs, reason = "helpers of tests, named by what they do")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anabranch_multipath::Time;

/// Size in bytes of a TCP segment, including headers.
pub const SEGMENT: usize = 1_380;
/// Size in bytes of an acknowledgement, including headers.
const ACK: usize = 100;
/// Constant C of CUBIC, which scales the growth of the congestion window (RFC 9438, section 5).
const C: f64 = 0.4;
/// Factor that reduces the congestion window of CUBIC after a loss (RFC 9438, section 4.6).
const BETA: f64 = 0.7;
/// Minimum retransmission timeout, as in Linux.
const LEAST_RTO: Duration = Duration::from_millis(200);

/// The sending end of the modelled TCP transfer, which always has data.
pub struct Sender {
    next: u32,
    /// Segments in flight by sequence number: the time of sending, and whether the segment counts
    /// as lost.
    out: BTreeMap<u32, (Time, bool)>,
    /// Sequence numbers of retransmitted segments. The round trips of these segments are not
    /// measured, because an acknowledgement may be for either copy (RFC 6298, section 3).
    again: BTreeSet<u32>,
    lost: BTreeSet<u32>,
    window: f64,
    threshold: f64,
    most: f64,
    epoch: Option<Time>,
    /// Sequence number of the first segment that was sent after the current loss recovery began. A
    /// loss of an earlier segment belongs to this recovery, and does not reduce the window again.
    recovery: u32,
    srtt: Duration,
    least: Duration,
    /// Current round of HyStart (the early end of slow start): the sequence number at the round's
    /// end, the minimum round-trip time, and the number of samples.
    round: (u32, Duration, u32),
    /// Times of the first and of the last acknowledgement in the current sequence of closely
    /// spaced acknowledgements (HyStart).
    train: (Time, Time),
    /// Whether HyStart has ended slow start before the first loss.
    early: bool,
    /// Latest send time among all acknowledged segments, with which RACK detects losses.
    newest: Time,
    acked_at: Time,
}

impl Sender {
    pub fn new(now: Time) -> Sender {
        Sender {
            next: 0,
            out: BTreeMap::new(),
            again: BTreeSet::new(),
            lost: BTreeSet::new(),
            window: 10.0,
            threshold: f64::MAX,
            most: 0.0,
            epoch: None,
            recovery: 0,
            srtt: Duration::from_millis(100),
            least: Duration::from_secs(9),
            round: (0, Duration::from_secs(9), 0),
            train: (now, now),
            early: false,
            newest: Time::ZERO,
            acked_at: now,
        }
    }

    /// Returns the next segment to send; `None` if the congestion window is full.
    pub fn poll(&mut self, now: Time) -> Option<Vec<u8>> {
        if self.out.len() - self.lost.len() >= self.window as usize {
            return None;
        }
        let number = match self.lost.pop_first() {
            Some(number) => {
                self.again.insert(number);
                number
            }
            None => {
                self.next += 1;
                self.next - 1
            }
        };
        self.out.insert(number, (now, false));
        let mut segment = vec![0; SEGMENT];
        segment[..4].copy_from_slice(&number.to_be_bytes());
        Some(segment)
    }

    pub fn acknowledged(&mut self, now: Time, ack: &[u8]) {
        self.acked_at = now;
        let numbers = ack.chunks_exact(4).map(|four| u32::from_be_bytes(four.try_into().unwrap()));
        let numbers: Vec<u32> = numbers.collect();
        let (cumulative, arrived) = (numbers[0], &numbers[2..2 + numbers[1] as usize]);
        let mut fresh = 0.0;
        let all: Vec<u32> = self
            .out
            .range(..cumulative)
            .map(|(one, _)| *one)
            .chain(arrived.iter().copied())
            .collect();
        for number in all {
            let Some((sent, _)) = self.out.remove(&number) else { continue };
            self.lost.remove(&number);
            fresh += 1.0;
            self.newest = self.newest.max(sent);
            if self.again.remove(&number) {
                continue;
            }
            let rtt = now.since(sent);
            self.least = self.least.min(rtt);
            self.srtt = (self.srtt * 7 + rtt) / 8;
            self.hystart(now, number, rtt);
        }
        self.grow(now, fresh);
        let window = self.least / 4;
        let newest = self.newest;
        let late = |sent: Time| sent + window < newest;
        let late: Vec<u32> = self
            .out
            .iter()
            .filter(|(_, (sent, lost))| !lost && late(*sent))
            .map(|(number, _)| *number)
            .collect();
        self.lose(now, &late);
    }

    /// Handles the retransmission timeout if it has expired.
    pub fn tick(&mut self, now: Time) {
        let patience = LEAST_RTO.max(self.srtt * 2);
        if !self.out.is_empty() && now.since(self.acked_at) > patience {
            self.acked_at = now;
            let all: Vec<u32> =
                self.out.iter().filter(|(_, (_, lost))| !lost).map(|(number, _)| *number).collect();
            (self.most, self.early) = (self.window, false);
            self.threshold = self.window * BETA;
            (self.window, self.epoch, self.recovery) = (2.0, None, self.next);
            for number in all {
                self.mark(number);
            }
        }
    }

    fn mark(&mut self, number: u32) {
        if let Some(out) = self.out.get_mut(&number) {
            out.1 = true;
            self.lost.insert(number);
        }
    }

    fn lose(&mut self, now: Time, numbers: &[u32]) {
        for number in numbers {
            self.mark(*number);
            if *number >= self.recovery {
                self.recovery = self.next;
                (self.most, self.early) = (self.window, false);
                self.window = (self.window * BETA).max(2.0);
                self.threshold = self.window;
                self.epoch = Some(now);
            }
        }
    }

    /// Ends slow start as Linux's HyStart does (tcp_cubic.c), if one of two conditions holds.
    /// Either the first eight round-trip times of a round all exceed the minimum by an eighth (4
    /// to 16 ms). Or acknowledgements at most 2 ms apart keep arriving for half of the minimum
    /// round-trip time.
    fn hystart(&mut self, now: Time, number: u32, rtt: Duration) {
        if number >= self.round.0 {
            self.round = (self.next, rtt, 0);
            self.train = (now, now);
        }
        self.round.1 = self.round.1.min(rtt);
        self.round.2 += 1;
        if self.window >= self.threshold || self.window < 16.0 {
            return;
        }
        let step = (self.least / 8).clamp(Duration::from_millis(4), Duration::from_millis(16));
        let slower = self.round.2 == 8 && self.round.1 >= self.least + step;
        let mut long = false;
        if now.since(self.train.1) <= Duration::from_millis(2) {
            self.train.1 = now;
            long = now.since(self.train.0) > self.least / 2;
        }
        if slower || long {
            (self.threshold, self.most, self.early) = (self.window, self.window, true);
        }
    }

    fn grow(&mut self, now: Time, fresh: f64) {
        if self.window < self.threshold {
            self.window += fresh;
            return;
        }
        let epoch = *self.epoch.get_or_insert(now);
        let since = now.since(epoch).as_secs_f64() + self.srtt.as_secs_f64();
        let k = if self.early { 0.0 } else { (self.most * (1.0 - BETA) / C).cbrt() };
        let target = C * (since - k).powi(3) + self.most;
        let reno = self.most * if self.early { 1.0 } else { BETA }
            + 3.0 * (1.0 - BETA) / (1.0 + BETA) * since / self.srtt.as_secs_f64();
        let target = target.max(reno).min(self.window * 1.5);
        if target > self.window {
            self.window += fresh * (target - self.window) / self.window;
        }
    }
}

/// The receiving end of the modelled TCP transfer.
#[derive(Default)]
pub struct Receiver {
    next: u32,
    waiting: BTreeSet<u32>,
    owed: Vec<u32>,
    /// Number of bytes received in order.
    pub bytes: u64,
}

impl Receiver {
    /// Receives a segment. Returns the acknowledgement to send, or `None` if it is delayed.
    pub fn take(&mut self, segment: &[u8]) -> Option<Vec<u8>> {
        let number = u32::from_be_bytes(segment[..4].try_into().unwrap());
        if number >= self.next {
            self.waiting.insert(number);
        }
        while self.waiting.remove(&self.next) {
            self.next += 1;
            self.bytes += SEGMENT as u64;
        }
        self.owed.push(number);
        if self.owed.len() < 2 && self.waiting.is_empty() {
            return None;
        }
        let owed = std::mem::take(&mut self.owed);
        let numbers = [self.next, owed.len() as u32].into_iter().chain(owed);
        let mut ack: Vec<u8> = numbers.flat_map(u32::to_be_bytes).collect();
        ack.resize(ACK, 0);
        Some(ack)
    }
}
