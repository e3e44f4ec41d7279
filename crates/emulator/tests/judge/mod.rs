//! Goodput of a TCP connection over one emulated link, between Linux and `anabranch-tcp`.
//!
//! ```text
//!  Linux in a namespace ─ TUN ─┐                                ┌─ TUN ─ Linux in a namespace
//!                              ├─▶ netem::Link ─▶ netem::Link ◀─┤
//!       anabranch_tcp ─────────┘        in real time            └───────── anabranch_tcp
//! ```

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ends;
pub mod grid;
mod line;

use std::time::Duration;

pub use ends::{Stack, can_run};
pub use line::measure;

/// A link between two hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Rate in Mbit/s.
    pub rate: u32,
    /// Round-trip time without queues, in ms.
    pub rtt: u32,
    /// Share of data segments that are lost, in per cent.
    pub loss: f64,
    /// Bytes of the queue, as a multiple of rate times round-trip time.
    pub queue: f64,
    /// Whether the link reorders segments: the delay of each differs by up to a tenth of the
    /// one-way delay.
    pub reorders: bool,
}

impl Cell {
    /// Returns the bandwidth-delay product in bytes.
    fn bdp(&self) -> f64 {
        f64::from(self.rate) * 1e6 / 8.0 * f64::from(self.rtt) / 1e3
    }

    /// Returns the duration of a measurement, which has some losses and many round trips.
    pub fn span(&self) -> Duration {
        Duration::from_millis(u64::from(self.rtt) * 100)
            .clamp(Duration::from_secs(6), Duration::from_secs(20))
    }

    /// Returns the rate in Mbit/s that a connection may reach (Mathis et al., 1997). The number of
    /// concurrent runs depends on it.
    pub fn expected(&self) -> f64 {
        let rate = f64::from(self.rate);
        if self.loss == 0.0 {
            return rate;
        }
        let limit = 1448.0 * 8.0 / (f64::from(self.rtt) * 1e3) * 1.22 / (self.loss / 100.0).sqrt();
        rate.min(2.0 * limit)
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Cell { rate, rtt, loss, queue, reorders } = self;
        let order = if *reorders { ", reordered" } else { "" };
        write!(f, "{rate} Mbit/s, {rtt} ms, {loss} %, {queue} BDP{order}")
    }
}

/// Results of one run.
#[derive(Clone, Copy, Debug)]
pub struct Goodput {
    /// Mbit/s of payload that the reader received, from the SYN on.
    pub rate: f64,
    /// Data segments that the link lost or dropped, of 1,000.
    pub dropped: f64,
}
