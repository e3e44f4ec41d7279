//! Flow control by XON and XOFF (proposal 324, section 4). If a program reads slowly, its end of
//! the stream asks the peer to pause (XOFF). Later it sends the program's reading rate (XON).

use std::sync::Arc;

use anabranch_multipath::{PathId, Time};

use super::{ArrivedCell, Broken, Flow, Replies, Side};
use crate::bucket::Bucket;
use crate::congestion::Params;
use crate::wire::message::{DATA, RelayCommand, put_xon};

/// Flow control by rates for both directions of one stream.
pub(super) struct Rates {
    params: Arc<Params>,
    /// Number of bytes waiting for our program above which we send XOFF.
    limit: usize,
    /// Number of bytes waiting for the peer's program above which the peer sends XOFF.
    peers_limit: u64,
    sent_xoff: bool,
    /// True while the peer must pause because all streams of the circuit set are paused.
    paused: bool,
    /// Total number of bytes received.
    received: u64,
    /// Number of XOFF messages sent to the peer.
    stopped_peer: u64,
    drain: Drain,
    /// True if the peer has sent XOFF and no XON since then.
    stopped: bool,
    /// Limit on our sending rate, as the peer requested; `None` if there is no limit.
    bucket: Option<Bucket>,
    /// Total number of bytes sent.
    sent: u64,
    /// Number of XOFF messages received from the peer.
    stops: u64,
}

/// Measurement of the rate at which our program reads.
#[derive(Default)]
struct Drain {
    since: Option<Time>,
    bytes: u64,
    /// Average rate at which our program reads, in kilobytes a second; 0 if unknown.
    average: u64,
    /// Reading rate that was last sent to the peer, in kilobytes a second; 0 if unknown.
    advertised: u64,
}

impl Rates {
    pub(super) fn new(side: Side, params: &Arc<Params>) -> Rates {
        let (ours, peers) = match side {
            Side::Client => (params.xoff_client, params.xoff_exit),
            Side::Exit => (params.xoff_exit, params.xoff_client),
        };
        Rates {
            params: Arc::clone(params),
            limit: ours as usize * DATA,
            peers_limit: peers * DATA as u64,
            sent_xoff: false,
            paused: false,
            received: 0,
            stopped_peer: 0,
            drain: Drain::default(),
            stopped: false,
            bucket: None,
            sent: 0,
            stops: 0,
        }
    }

    /// Returns true if more bytes wait for our program (`waiting`) than the peer can have sent
    /// before it received our XOFF. An excess of up to `burst` bytes is allowed, because a missing
    /// message can release many bytes at once.
    fn is_flooded(&self, waiting: usize, burst: usize) -> bool {
        waiting.saturating_sub(burst)
            > self.limit + self.params.ss_cwnd_max.min(self.params.cwnd_max) as usize * DATA
    }

    /// Notes that `waiting` received bytes wait for our program. Returns true if an XOFF message
    /// must be sent.
    fn filled(&mut self, now: Time, waiting: usize) -> bool {
        if self.sent_xoff {
            // The pause would distort the measured reading rate.
            return false;
        }
        self.drain.since.get_or_insert(now);
        if waiting <= self.limit {
            return false;
        }
        self.stop();
        true
    }

    fn stop(&mut self) {
        self.sent_xoff = true;
        self.stopped_peer += 1;
        self.drain = Drain::default();
    }

    /// Notes that our program has read `bytes` bytes, and that `waiting` bytes are left. Returns
    /// the rate for an XON message, if one must be sent.
    fn drained(&mut self, now: Time, bytes: usize, waiting: usize) -> Option<u32> {
        self.measure(now, bytes as u64);
        if waiting == 0 {
            self.drain.since = None;
            self.raise();
        }
        let due = if self.sent_xoff { waiting == 0 && !self.paused } else { self.rate_changed() };
        due.then(|| self.release())
    }

    /// Ends the pause of the peer. Returns the rate for the XON message.
    fn release(&mut self) -> u32 {
        self.sent_xoff = false;
        self.drain.advertised = self.drain.average;
        u32::try_from(self.drain.average).unwrap_or(u32::MAX)
    }

    fn measure(&mut self, now: Time, bytes: u64) {
        let drain = &mut self.drain;
        let since = *drain.since.get_or_insert(now);
        drain.bytes = drain.bytes.saturating_add(bytes);
        let micros = now.since(since).as_micros() as u64;
        if drain.bytes < self.params.xon_rate * DATA as u64 || micros == 0 {
            return;
        }
        let rate = (drain.bytes * 1000 / micros).max(1);
        let span = self.params.xon_ewma_cnt;
        drain.average = match drain.average {
            0 => rate,
            average => (2 * rate + (span - 1) * average) / (span + 1),
        };
        (drain.since, drain.bytes) = (Some(now), 0);
    }

    /// Doubles the average reading rate, as C tor does, if our program has read at least
    /// `xon_rate` cells and no bytes are left. In that case the program could have read faster
    /// than the rate that was sent to the peer.
    fn raise(&mut self) {
        let drain = &mut self.drain;
        if drain.advertised > 0 && drain.bytes >= self.params.xon_rate * DATA as u64 {
            drain.average = drain.average.max(drain.advertised) * 2;
            drain.bytes = 0;
        }
    }

    fn rate_changed(&self) -> bool {
        let (now, advertised, pct) =
            (self.drain.average, self.drain.advertised, self.params.xon_change_pct);
        advertised > 0
            && (now * 100 > advertised * (100 + pct) || now * 100 < advertised * (100 - pct))
    }
}

impl Flow for Rates {
    fn may_send(&mut self, now: Time, _by: &[PathId]) -> bool {
        if self.stopped {
            return false;
        }
        self.bucket.as_mut().is_none_or(|bucket| bucket.left(now) >= DATA as u64)
    }

    fn wake_at(&self) -> Option<Time> {
        let bucket = self.bucket.as_ref().filter(|_| !self.stopped)?;
        bucket.when(DATA as u64)
    }

    fn sent(&mut self, _by: PathId, bytes: usize) {
        self.sent += bytes as u64;
        if let Some(bucket) = &mut self.bucket {
            bucket.take(bytes as u64);
        }
    }

    fn received(
        &mut self,
        now: Time,
        ArrivedCell { bytes, waiting, burst, .. }: ArrivedCell,
        replies: &mut Replies<'_>,
    ) -> Result<(), Broken> {
        self.received += bytes as u64;
        if self.is_flooded(waiting, burst) {
            return Err(Broken::Flood);
        }
        if self.filled(now, waiting) {
            replies.push(RelayCommand::XOFF, vec![0]);
        }
        Ok(())
    }

    /// Asks the peer to pause if `pause` is true, and to resume otherwise. The peer accepts at most
    /// one XOFF for each `limit` bytes that it has sent. A stream that has carried less data is
    /// therefore not paused.
    fn set_paused(&mut self, _now: Time, pause: bool, waiting: usize, replies: &mut Replies<'_>) {
        let may_stop = self.received >= self.limit as u64 * (self.stopped_peer + 1);
        if pause && !self.sent_xoff && may_stop {
            self.stop();
            replies.push(RelayCommand::XOFF, vec![0]);
        }
        if !pause && self.paused && self.sent_xoff && waiting == 0 {
            let rate = self.release();
            replies.push(RelayCommand::XON, put_xon(rate).to_vec());
        }
        self.paused = pause;
    }

    fn consumed(&mut self, now: Time, bytes: usize, waiting: usize, replies: &mut Replies<'_>) {
        if let Some(rate) = self.drained(now, bytes, waiting) {
            replies.push(RelayCommand::XON, put_xon(rate).to_vec());
        }
    }

    fn acknowledged(&mut self, _by: PathId) -> Result<(), Broken> {
        Err(Broken::OutOfPlace)
    }

    /// Handles XOFF or XON. The peer may send at most one XOFF for each `peers_limit` bytes that
    /// we have sent. With more XOFFs, the peer could imprint a recognisable pattern on our
    /// traffic.
    fn set_rate(&mut self, now: Time, rate: Option<u32>) -> Result<(), Broken> {
        let Some(rate) = rate else {
            self.stops += 1;
            if self.stopped || self.sent < self.peers_limit * self.stops {
                return Err(Broken::OutOfPlace);
            }
            self.stopped = true;
            return Ok(());
        };
        self.stopped = false;
        let rate = u64::from(rate) * 1000;
        // The bucket holds the bytes of one second, but at least those of one cell.
        self.bucket = (rate > 0).then(|| Bucket::full(now, rate, rate.max(DATA as u64)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn rates(side: Side) -> Rates {
        Rates::new(side, &Arc::new(Params::default()))
    }

    #[test]
    fn a_program_that_does_not_read_stops_the_peer_once_and_lets_it_go_on_when_it_has_read() {
        let mut ours = rates(Side::Client);
        assert!(!ours.filled(Time::ZERO, 500 * DATA));
        assert!(ours.filled(Time::ZERO, 501 * DATA));
        assert!(!ours.filled(Time::ZERO, 502 * DATA));
        assert_eq!(ours.drained(Time::from_secs(100), 2 * DATA, 500 * DATA), None);
        assert_eq!(ours.drained(Time::from_secs(101), 400 * DATA, 100 * DATA), None);
        let advertised = ours.drained(Time::from_secs(102), 100 * DATA, 0).unwrap();
        assert!((100..=200).contains(&advertised), "{advertised} kB/s: 250 kB in two seconds");
    }

    #[test]
    fn a_program_that_takes_all_that_comes_is_told_to_take_more() {
        let mut ours = rates(Side::Client);
        assert!(ours.filled(Time::ZERO, 501 * DATA));
        ours.drained(Time::from_secs(1), DATA, 500 * DATA);
        let first = ours.drained(Time::from_secs(21), 500 * DATA, 0).unwrap();
        let mut advertised = first;
        for second in 22..200u64 {
            let now = Time::from_secs(second);
            ours.filled(now, 30 * DATA);
            advertised = ours.drained(now, 30 * DATA, 0).unwrap_or(advertised);
        }
        assert!(advertised >= 4 * first, "{first} and then {advertised} kB/s");
    }

    #[test]
    fn a_stopped_stream_holds_no_more_than_was_under_way() {
        let ours = rates(Side::Client);
        assert!(!ours.is_flooded(5500 * DATA, 0) && ours.is_flooded(5501 * DATA, 0));
    }

    #[test]
    fn a_stop_before_anything_was_sent_is_a_signal_to_somebody_else() {
        let mut ours = rates(Side::Exit);
        assert_eq!(ours.set_rate(Time::ZERO, None), Err(Broken::OutOfPlace));
        let mut ours = rates(Side::Exit);
        (0..500).for_each(|_| ours.sent(PathId(0), DATA));
        assert_eq!(ours.set_rate(Time::ZERO, None), Ok(()));
        assert!(!ours.may_send(Time::ZERO, &[]));
        assert_eq!(ours.set_rate(Time::ZERO, None), Err(Broken::OutOfPlace));
    }

    #[test]
    fn a_told_rate_is_kept() {
        let mut ours = rates(Side::Exit);
        ours.set_rate(Time::ZERO, Some(100)).unwrap();
        let (mut now, mut bytes) = (Time::ZERO, 0);
        while now < Time::from_secs(10) {
            while ours.may_send(now, &[]) {
                ours.sent(PathId(0), DATA);
                bytes += DATA;
            }
            now = ours.wake_at().unwrap();
        }
        let rate = bytes as f64 / 10.0;
        assert!((99_000.0..115_000.0).contains(&rate), "{rate} bytes a second");
        ours.set_rate(now, Some(0)).unwrap();
        assert!(ours.may_send(now, &[]) && ours.wake_at().is_none());
    }

    #[test]
    fn a_stream_that_has_brought_enough_rests_and_goes_on_when_it_may() {
        let mut ours = rates(Side::Client);
        let mut control = VecDeque::new();
        let mut set_paused = |ours: &mut Rates, pause| {
            let mut replies = Replies { stream: 7, by: None, control: &mut control };
            ours.set_paused(Time::ZERO, pause, 0, &mut replies);
            control.drain(..).map(|message| message.command).collect::<Vec<_>>()
        };
        assert_eq!(set_paused(&mut ours, true), [], "a stock peer would take it for a flood");
        set_paused(&mut ours, false);
        ours.received = 500 * DATA as u64;
        assert_eq!(set_paused(&mut ours, true), [RelayCommand::XOFF]);
        assert_eq!(set_paused(&mut ours, true), []);
        assert_eq!(ours.drained(Time::ZERO, DATA, 0), None, "its program does not end the rest");
        assert_eq!(set_paused(&mut ours, false), [RelayCommand::XON]);
        assert_eq!(set_paused(&mut ours, true), [], "not twice for the same bytes");
    }
}
