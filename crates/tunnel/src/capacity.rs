//! The capacity of a path: the rate at which the path forwards packets. It is estimated from
//! packet trains (Dovrolis, Ramanathan and Moore, INFOCOM 2001).
//!
//! A train is a group of packets that are sent one directly after the other. The slowest link of
//! the path determines the spacing with which the packets of a train arrive, so a few packets of
//! slow start suffice to measure the capacity. The delivery rate over a round trip shows the
//! capacity only once the window is full. Until then, it shows only the sending rate.

use std::time::Duration;

use anabranch_multipath::Time;

/// Minimum number of packets in a train (packets sent directly one after the other) that yields a
/// sample.
const TRAIN: u32 = 3;
/// Minimum bytes of a train that yields a sample, without its first packet. A receiver that waits
/// for a CPU core reads packets late. With trains of short packets, such as acknowledgements, the
/// sample would measure that wait instead of the capacity.
const TRAIN_BYTES: f64 = 2_400.0;
/// Weight of a new sample in the average, as for the smoothed round-trip time of RFC 6298.
const WEIGHT: f64 = 1.0 / 8.0;
/// Ratio that shows that the path, and not the sender, limited the rate of a packet train. It is
/// the time from the first to the last arrival, divided by the time from the first to the last
/// transmission.
const STRETCHED: f64 = 2.0;
/// Pacing rate as a multiple of the capacity. It is above 1 so that pacing does not hide a
/// capacity that has grown, and a sender that waited for a CPU core can catch up. With a factor of
/// 2, as Linux paces slow start, bursts overflowed queues of 100 kB. With 1.25, senders and
/// receivers that share a CPU core lost a tenth of the rate (`tests/goodput.rs`, `window.rs`).
const PACING_GAIN: f64 = 1.4;
/// Maximum size of a burst, as the time that the pacing rate needs for its bytes.
const BURST: Duration = Duration::from_millis(4);
/// Minimum size of a burst, in packets: large enough for a train that yields a sample.
const BURST_PACKETS: f64 = 4.0;
/// Lower bound of the average time between two bytes, in seconds (1e-11 s: 800 Gbit/s). At or
/// below this bound, the capacity counts as unknown, and packets are not paced. The average falls
/// below it if a receiver always reads whole packet trains at once.
const FASTEST: f64 = 1e-11;
/// Maximum delay of a sender for which pacing compensates. A sender that waits for a CPU core, for
/// example, calls too late. It may then send faster than the pacing rate, until it has caught up.
const LATE: Duration = Duration::from_millis(20);

/// A train of packets (sent directly one after the other), as one acknowledgement
/// ([`Receipt`](crate::window::Receipt)) reports it.
pub(crate) struct Train {
    pub(crate) packets: u32,
    /// Average size of a packet, in bytes.
    pub(crate) bytes: f64,
    /// Time from the sending of the first packet to the sending of the last.
    pub(crate) sent: Duration,
    /// Time from the arrival of the first packet to the arrival of the last.
    pub(crate) arrived: Duration,
}

/// The capacity of one path, and the pacing of its packets at a rate that follows from the
/// capacity.
#[derive(Default)]
pub(crate) struct Capacity {
    /// Average time between two bytes, in seconds; `None` before the first sample. Times are
    /// averaged instead of rates, because errors then cancel out: a receiver that reads several
    /// packets at once shortens one interval and lengthens another by the same time.
    interval: Option<f64>,
    /// Whether a packet train arrived more slowly than it was sent, by the factor [`STRETCHED`].
    /// If not, the capacity may be higher than the estimate.
    confirmed: bool,
    /// Time at which the path will have forwarded all packets sent until now, if it forwards them
    /// at the pacing rate.
    free: Time,
    /// Time at which pacing allows the next packets; `None` if pacing delays none.
    opens: Option<Time>,
    /// Lateness of the sender: the time between `opens` and its latest call. See [`LATE`].
    late: Duration,
}

impl Capacity {
    /// Updates the capacity with the measurements of a train of packets.
    pub(crate) fn note(&mut self, train: &Train) {
        let length = f64::from(train.packets.saturating_sub(1)) * train.bytes;
        if train.packets < TRAIN || length < TRAIN_BYTES {
            return;
        }
        let sample = train.arrived.as_secs_f64() / length;
        let stretched = train.arrived > train.sent.mul_f64(STRETCHED);
        self.confirmed |= stretched;
        self.interval = match self.interval {
            None => Some(sample),
            // Packets that were sent with pauses arrive with pauses, whatever the capacity is.
            Some(average) if !stretched && sample >= average => Some(average),
            Some(average) => Some(average + WEIGHT * (sample - average)),
        };
    }

    /// Returns the estimated capacity, in bytes per second: the path forwards packets at this rate
    /// or a higher one. Returns `None` if the capacity is unknown.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.interval.filter(|interval| *interval > FASTEST).map(|interval| 1.0 / interval)
    }

    /// Returns the estimated capacity in bytes per second, if the path is known to limit the rate:
    /// a packet train arrived more slowly than it was sent ([`STRETCHED`]). Otherwise returns
    /// `None`.
    pub(crate) fn limit(&self) -> Option<f64> {
        self.rate().filter(|_| self.confirmed)
    }

    /// Records that a packet of `bytes` is sent at `now`.
    pub(crate) fn sent(&mut self, now: Time, bytes: f64) {
        let Some(rate) = self.pace() else { return };
        self.free = self.begins(now) + seconds(bytes / rate);
        if self.room(now, bytes) < bytes {
            // The next packets may be sent once half of a burst is available again.
            let half = seconds(self.burst(bytes) / rate / 2.0);
            self.opens = Some(earlier(self.free, half)).filter(|due| *due > now);
            self.late = Duration::ZERO;
        }
    }

    /// Returns the time at which the path begins to forward packets sent at `now`, if it forwards
    /// at the pacing rate. By this time, the path has forwarded all earlier packets. If the
    /// sender's call was late, the result may be before `now`, by at most [`LATE`].
    fn begins(&self, now: Time) -> Time {
        let late = self.opens.filter(|due| *due <= now).map_or(self.late, |due| now.since(due));
        self.free.max(earlier(now, late.min(LATE)))
    }

    /// Returns the number of bytes that pacing allows at `now`, if each packet has `unit` bytes.
    /// Returns `f64::MAX` if packets are not paced.
    pub(crate) fn room(&self, now: Time, unit: f64) -> f64 {
        let Some(rate) = self.pace() else { return f64::MAX };
        let begins = self.begins(now);
        let ahead = begins.since(now).as_secs_f64() - now.since(begins).as_secs_f64();
        (self.burst(unit) - ahead * rate).max(0.0)
    }

    /// Returns the time at which pacing allows packets again; `None` if pacing delays none.
    pub(crate) fn opens(&self) -> Option<Time> {
        self.opens
    }

    /// Clears the time [`Capacity::opens`] if it has passed, and records how late the sender
    /// called.
    pub(crate) fn on_time(&mut self, now: Time) {
        if let Some(due) = self.opens.take_if(|due| *due <= now) {
            self.late = now.since(due);
        }
    }

    fn pace(&self) -> Option<f64> {
        self.limit().map(|rate| PACING_GAIN * rate)
    }

    fn burst(&self, unit: f64) -> f64 {
        let rate = self.pace().unwrap_or_default();
        (rate * BURST.as_secs_f64()).max(BURST_PACKETS * unit)
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

fn earlier(time: Time, by: Duration) -> Time {
    Time::from_nanos(time.nanos().saturating_sub(by.as_nanos() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const BYTES: f64 = 1_250.0;

    /// Returns a train of `packets` packets of 1,250 bytes. At 10 Mbit/s one packet takes 1 ms.
    fn train(packets: u32, sent: Duration, arrived: Duration) -> Train {
        Train { packets, bytes: BYTES, sent, arrived }
    }

    fn mbits(capacity: &Capacity) -> f64 {
        capacity.rate().unwrap() * 8.0 / 1e6
    }

    #[test]
    fn a_short_train_shows_the_slowest_link() {
        let mut capacity = Capacity::default();
        capacity.note(&train(2, Duration::ZERO, MS));
        assert_eq!(capacity.rate(), None);
        capacity.note(&train(4, Duration::ZERO, MS * 3));
        assert!((mbits(&capacity) - 10.0).abs() < 0.01 && capacity.limit().is_some());
    }

    #[test]
    fn trains_of_short_packets_show_nothing() {
        let mut capacity = Capacity::default();
        let bytes = 150.0;
        capacity.note(&Train { bytes, ..train(16, Duration::ZERO, MS * 9) });
        assert_eq!((capacity.rate(), capacity.limit()), (None, None));
    }

    #[test]
    fn packets_sent_with_pauses_show_a_lower_bound_and_start_no_pacing() {
        let mut capacity = Capacity::default();
        capacity.note(&train(3, MS * 20, MS * 20));
        assert!(mbits(&capacity) < 1.1 && capacity.limit().is_none());
        assert_eq!(capacity.room(Time::ZERO, BYTES), f64::MAX);
        capacity.note(&train(9, MS * 80, MS * 80));
        assert!(mbits(&capacity) > 0.9, "more of the same lowers nothing");
    }

    #[test]
    fn it_follows_a_capacity_that_grows_and_one_that_shrinks() {
        let mut capacity = Capacity::default();
        let mut settle = |sent: Duration, arrived: Duration| {
            (0..60).for_each(|_| capacity.note(&train(5, sent, arrived)));
            mbits(&capacity)
        };
        assert!((settle(Duration::ZERO, MS * 4) - 10.0).abs() < 0.1);
        // With the pacing gain, packets leave 0.8 ms apart. The path has a capacity of 50 Mbit/s
        // by now.
        let grown = settle(MS * 16 / 5, MS * 16 / 5);
        assert!(grown > 12.0, "{grown}");
        assert!((settle(MS, MS * 8) - 5.0).abs() < 0.1);
    }

    #[test]
    fn a_receiver_that_reads_several_packets_at_once_does_not_raise_it() {
        let mut capacity = Capacity::default();
        for round in 0..400 {
            let arrived = if round % 2 == 0 { Duration::ZERO } else { MS * 8 };
            capacity.note(&train(5, Duration::ZERO, arrived));
        }
        assert!((8.0..12.5).contains(&mbits(&capacity)), "{}", mbits(&capacity));
    }

    #[test]
    fn a_receiver_that_always_reads_whole_trains_never_stops_the_path() {
        let mut capacity = Capacity::default();
        capacity.note(&train(4, Duration::ZERO, MS * 3));
        let now = Time::from_secs(1);
        for round in 0..10_000 {
            capacity.note(&train(5, Duration::ZERO, Duration::ZERO));
            let room = capacity.room(now, BYTES);
            assert!(room >= BYTES, "round {round}: {room}");
        }
        assert_eq!(capacity.rate(), None);
    }

    #[test]
    fn pacing_allows_a_burst_and_then_the_pacing_rate() {
        let mut capacity = Capacity::default();
        capacity.note(&train(4, Duration::ZERO, MS * 3));
        let start = Time::from_secs(1);
        // 4 ms at 14 Mbit/s are 5.6 packets.
        for packet in 0..5 {
            assert!(capacity.room(start, BYTES) >= BYTES, "packet {packet}");
            capacity.sent(start, BYTES);
        }
        assert!(capacity.room(start, BYTES) < BYTES);
        // Five packets take 3.57 ms at 14 Mbit/s. Half a burst takes 2 ms of this time.
        let opens = capacity.opens().unwrap();
        assert_eq!(opens.since(start).as_micros(), 1_571);
        capacity.on_time(opens);
        assert_eq!(capacity.opens(), None);
        assert!((2.8 * BYTES - capacity.room(opens, BYTES)).abs() < 2.0);
    }

    #[test]
    fn a_caller_that_comes_late_catches_up() {
        let mut capacity = Capacity::default();
        capacity.note(&train(4, Duration::ZERO, MS * 3));
        let start = Time::from_secs(1);
        (0..5).for_each(|_| capacity.sent(start, BYTES));
        let late = capacity.opens().unwrap() + MS * 10;
        // The room is half a burst, and the packets of 10 ms at 14 Mbit/s.
        assert!((16.8 * BYTES - capacity.room(late, BYTES)).abs() < 20.0);
        let very_late = late + MS * 100;
        let most = capacity.room(very_late, BYTES);
        assert!(most < 34.0 * BYTES, "bounded: {most}");
    }
}
