//! One direction of a host's access line.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_multipath::seed::{self, Stream};
use rand::RngExt;

/// Properties of one direction of a host's access line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineSettings {
    /// Rate in bits per second.
    pub rate: NonZeroU64,
    /// Maximum number of bytes that wait to be sent or are being sent. A packet that would exceed
    /// this limit is dropped, unless the line is idle.
    pub queue: usize,
    /// Share of packets that are lost after they have been sent, in `0.0..=1.0`.
    pub loss: f64,
}

impl LineSettings {
    /// Returns the settings of an access line without random loss. Its queue has room for the
    /// bytes that the line sends in `delay`.
    pub fn with_queue(rate: NonZeroU64, delay: Duration) -> LineSettings {
        let bytes = u128::from(rate.get()) * delay.as_nanos() / 8_000_000_000;
        LineSettings { rate, queue: usize::try_from(bytes).unwrap_or(usize::MAX), loss: 0.0 }
    }

    /// Returns the time that sending `bytes` bytes takes, rounded up to a nanosecond.
    pub fn serialization(&self, bytes: u16) -> Duration {
        Duration::from_nanos((u64::from(bytes) * 8_000_000_000).div_ceil(self.rate.get()))
    }
}

/// The reason why an access line dropped a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineDrop {
    /// The queue was full.
    QueueFull,
    /// The packet was sent, and then lost at random.
    Lost,
}

/// Counters of one direction of an access line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineStats {
    /// Number of packets that the access line carried.
    pub packets: u64,
    /// Total bytes of the packets that the line carried.
    pub bytes: u64,
    /// Number of packets for which the queue had no room.
    pub queue_full: u64,
    /// Number of packets that were lost at random.
    pub lost: u64,
}

/// One direction of an access line: a rate with a drop-tail queue. It behaves like the emulator's
/// link (`anabranch_netem::Link`) with rate, queue and loss. The properties of the line never
/// change, so the time at which a packet leaves is known as soon as the packet is queued.
#[derive(Debug)]
pub struct Line {
    settings: LineSettings,
    /// Generator of random numbers for losses; `None` if the line loses no packets.
    dice: Option<Stream>,
    /// Time at which all queued packets will have been sent.
    free: Time,
    /// For each queued packet, the time at which it will have been sent, and its size in bytes.
    waiting: VecDeque<(Time, u16)>,
    waiting_bytes: usize,
    stats: LineStats,
}

impl Line {
    /// Creates one direction of an access line. The random numbers for its losses depend on `seed`
    /// and on `entity`, an identifier of this direction.
    pub fn new(settings: LineSettings, seed: u64, entity: u64) -> Line {
        Line {
            settings,
            dice: (settings.loss > 0.0).then(|| seed::stream(seed, entity, "line loss")),
            free: Time::ZERO,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            stats: LineStats::default(),
        }
    }

    /// Sends a packet of `bytes` bytes. Returns the time at which the packet will have been sent
    /// completely.
    ///
    /// # Errors
    /// [`LineDrop`] if the packet is dropped.
    pub fn push(&mut self, now: Time, bytes: u16) -> Result<Time, LineDrop> {
        let lost = self.dice.as_mut().is_some_and(|dice| dice.random_bool(self.settings.loss));
        self.advance(now);
        let full = self.waiting_bytes + usize::from(bytes) > self.settings.queue;
        if full && !self.waiting.is_empty() {
            self.stats.queue_full += 1;
            return Err(LineDrop::QueueFull);
        }
        self.free = self.free.max(now) + self.settings.serialization(bytes);
        self.waiting.push_back((self.free, bytes));
        self.waiting_bytes += usize::from(bytes);
        if lost {
            self.stats.lost += 1;
            return Err(LineDrop::Lost);
        }
        self.stats.packets += 1;
        self.stats.bytes += u64::from(bytes);
        Ok(self.free)
    }

    /// Returns the number of bytes that wait to be sent or are being sent.
    pub fn backlog(&mut self, now: Time) -> usize {
        self.advance(now);
        self.waiting_bytes
    }

    /// Returns the counters of carried and dropped packets.
    pub fn stats(&self) -> LineStats {
        self.stats
    }

    fn advance(&mut self, now: Time) {
        while let Some((_, bytes)) = self.waiting.pop_front_if(|(leaves, _)| *leaves <= now) {
            self.waiting_bytes -= usize::from(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_netem::{Link, LinkSettings, Loss};

    fn settings(rate: u64, queue: usize) -> LineSettings {
        LineSettings { rate: NonZeroU64::new(rate).unwrap(), queue, loss: 0.0 }
    }

    #[test]
    fn packets_leave_one_after_another_at_the_rate() {
        let mut line = Line::new(settings(100_000_000, 100_000), 1, 0);
        let leaves = [0, 0, 1].map(|_| line.push(Time::ZERO, 1500).unwrap().nanos());
        assert_eq!(leaves, [120_000, 240_000, 360_000]);
        // An idle wire does not save up credit.
        let late = Time::from_millis(5);
        assert_eq!(line.push(late, 1500), Ok(late + Duration::from_micros(120)));
    }

    #[test]
    fn a_nanosecond_that_is_begun_counts() {
        assert_eq!(settings(3_000_000_000, 0).serialization(1), Duration::from_nanos(3));
        assert_eq!(settings(1, 0).serialization(u16::MAX), Duration::from_secs(524_280));
    }

    #[test]
    fn the_queue_drops_its_tail_and_an_idle_line_takes_any_packet() {
        let mut line = Line::new(settings(8_000_000, 3000), 1, 0);
        let taken = [0; 4].map(|_| line.push(Time::ZERO, 1000).is_ok());
        assert_eq!(taken, [true, true, true, false]);
        assert_eq!(line.backlog(Time::from_micros(999)), 3000);
        assert_eq!(line.backlog(Time::from_millis(1)), 2000);
        assert_eq!(line.push(Time::from_millis(1), 1001), Err(LineDrop::QueueFull));
        assert!(line.push(Time::from_millis(9), 9000).is_ok());
        let counted = line.stats();
        assert_eq!((counted.packets, counted.bytes, counted.queue_full), (4, 12_000, 2));
    }

    #[test]
    fn a_queue_in_time_is_that_many_bytes() {
        let rate = NonZeroU64::new(80_000_000).unwrap();
        assert_eq!(LineSettings::with_queue(rate, Duration::from_millis(10)).queue, 100_000);
    }

    #[test]
    fn losses_have_their_share_and_take_their_time() {
        let lossy = LineSettings { loss: 0.1, ..settings(8_000_000_000, usize::MAX) };
        let mut line = Line::new(lossy, 3, 4);
        let lost = (0..20_000).filter(|_| line.push(Time::ZERO, 1000).is_err()).count();
        // The standard deviation is 42.
        assert!((1_830..2_170).contains(&lost), "{lost}");
        assert_eq!(line.stats().lost, lost as u64);
        assert_eq!(line.backlog(Time::ZERO), 20_000_000);
    }

    /// Sends random packets through a [`Line`] and through a `netem::Link` with the same settings,
    /// and compares the results.
    #[test]
    fn a_line_does_what_a_netem_link_does() {
        let mut dice = seed::stream(9, 0, "packets");
        let of = settings(7_654_321, 20_000);
        let like = LinkSettings {
            queue: of.queue,
            loss: Loss::None,
            ..LinkSettings::with_rate(of.rate.get())
        };
        let (mut line, mut link) = (Line::new(of, 1, 0), Link::new(like, 1, 0));
        let (mut now, mut wanted, mut got) = (Time::ZERO, Vec::new(), Vec::new());
        let mut drain = |link: &mut Link<u32>, until: Time| {
            while let Some(time) = link.next_timeout().filter(|&time| time <= until) {
                wanted.extend(link.pop(time).map(|packet| (time, packet)));
            }
        };
        let mut dropped = 0;
        for packet in 0..5_000u32 {
            now += Duration::from_micros(dice.random_range(0..1400));
            drain(&mut link, now);
            let bytes = dice.random_range(40..=1500u16);
            let leaves = line.push(now, bytes);
            assert_eq!(leaves.is_ok(), link.push(now, packet, bytes.into()).is_ok());
            assert_eq!(line.backlog(now), link.backlog());
            dropped += u32::from(leaves.is_err());
            got.extend(leaves.map(|time| (time, packet)));
        }
        drain(&mut link, Time::MAX);
        assert_eq!(got, wanted);
        assert!(dropped > 100 && dropped < 2_500, "{dropped}");
    }
}
