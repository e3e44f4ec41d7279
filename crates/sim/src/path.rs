//! Lines, loss and varying delay between two places of the core network.

use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_multipath::seed::{self, Stream};
use rand::RngExt;

use crate::line::{Line, LineDrop, LineSettings};

/// Properties of the core network in one direction between two places, in addition to its latency.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreImpairment {
    /// Line that all packets between the two places share. The latency begins at the end of this
    /// line. `None` if only the hosts' access lines limit the rate of packets.
    pub line: Option<LineSettings>,
    /// Share of packets that are lost, in `0.0..=1.0`.
    pub loss: f64,
    /// Standard deviation of the delay, which is normally distributed around the latency. Packets
    /// keep their order.
    pub deviation: Duration,
}

/// Bit that distinguishes the random generator of a path's line from the generators of hosts'
/// access lines.
const OF_PATHS: u64 = 1 << 63;

/// State of the core network in one direction between two places (points at which access lines
/// join it).
#[derive(Debug)]
pub(crate) struct CorePath {
    settings: CoreImpairment,
    line: Option<Line>,
    dice: Stream,
    /// Time at which the latest packet arrives at the end of the path. Later packets do not arrive
    /// before it.
    last: Time,
}

impl CorePath {
    /// Creates a path from place `from` to place `to`. Its random numbers depend on `seed` and on
    /// the places.
    pub(crate) fn new(settings: CoreImpairment, seed: u64, [from, to]: [usize; 2]) -> CorePath {
        let entity = (from as u64) << 32 | to as u64;
        CorePath {
            settings,
            line: settings.line.map(|line| Line::new(line, seed, OF_PATHS | entity)),
            dice: seed::stream(seed, entity, "core path"),
            last: Time::ZERO,
        }
    }

    /// Returns whether the path has a line, which limits the rate of packets.
    pub(crate) fn has_line(&self) -> bool {
        self.line.is_some()
    }

    /// Sends a packet of `bytes` bytes over the path's line. Returns the time at which the packet
    /// will have been sent completely, which is `now` if the path has no line.
    ///
    /// # Errors
    /// [`LineDrop`] if the line drops the packet.
    pub(crate) fn enter(&mut self, now: Time, bytes: u16) -> Result<Time, LineDrop> {
        self.line.as_mut().map_or(Ok(now), |line| line.push(now, bytes))
    }

    /// Returns the arrival time of a packet that enters the path at `time` and whose mean delay is
    /// `latency`; `None` if the packet is lost.
    pub(crate) fn cross(&mut self, time: Time, latency: Duration) -> Option<Time> {
        let CoreImpairment { loss, deviation, .. } = self.settings;
        if loss > 0.0 && self.dice.random_bool(loss) {
            return None;
        }
        let mut delay = latency;
        if !deviation.is_zero() {
            let shift = deviation.as_secs_f64() * self.normal();
            delay = Duration::from_secs_f64((latency.as_secs_f64() + shift).max(0.0));
        }
        self.last = self.last.max(time + delay);
        Some(self.last)
    }

    /// Draws a number from the standard normal distribution (Box and Muller's method).
    fn normal(&mut self) -> f64 {
        let [radius, angle]: [f64; 2] = [self.dice.random(), self.dice.random()];
        (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn packets_are_lost_and_late_with_the_set_share_and_deviation() {
        let settings = CoreImpairment { loss: 0.05, deviation: 10 * MS, line: None };
        let mut path = CorePath::new(settings, 1, [2, 3]);
        // Packets are a second apart, so that none waits for another.
        let sent = (0..20_000).map(Time::from_secs);
        let delays: Vec<f64> = sent
            .filter_map(|time| Some(path.cross(time, 50 * MS)?.since(time).as_secs_f64() * 1e3))
            .collect();
        // The standard deviation of the count is 31.
        assert!((18_850..19_150).contains(&delays.len()), "{}", delays.len());
        let mean = delays.iter().sum::<f64>() / delays.len() as f64;
        let variance = delays.iter().map(|delay| (delay - mean).powi(2)).sum::<f64>();
        let deviation = (variance / delays.len() as f64).sqrt();
        assert!((49.7..50.3).contains(&mean) && (9.8..10.2).contains(&deviation), "{mean}");
    }

    #[test]
    fn packets_keep_their_order_and_a_path_without_impairments_has_its_latency() {
        let settings = CoreImpairment { loss: 0.0, deviation: 10 * MS, line: None };
        let mut path = CorePath::new(settings, 1, [0, 1]);
        let arrivals: Vec<Time> =
            (0..500).filter_map(|ms| path.cross(Time::from_millis(ms), 20 * MS)).collect();
        assert!(arrivals.len() == 500 && arrivals.is_sorted());
        let mut plain = CorePath::new(CoreImpairment::default(), 1, [0, 1]);
        assert_eq!(plain.cross(Time::ZERO, 20 * MS), Some(Time::from_millis(20)));
    }
}
