//! What a link is like.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::{Codel, Loss};

/// The properties of one direction of a link. The default is a perfect one: no limit, no delay, no
/// loss.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSettings {
    /// Bits per second; `None` for a wire that takes no time.
    pub rate: Option<NonZeroU64>,
    /// From the last bit's sending to its arrival.
    pub delay: Duration,
    /// Each unit's delay is uniform in `delay ± jitter`, never below zero.
    pub jitter: Duration,
    /// Whether jitter may let a unit overtake another. If not, it waits for its predecessor.
    pub reorder: bool,
    /// Which units are lost. They take their time on the wire before.
    pub loss: Loss,
    /// Bytes that wait for the wire or are on it. A unit that would exceed this is dropped, unless
    /// it finds the link idle.
    pub queue: usize,
    /// Keeps the queue short beside that limit; `None` for drop-tail alone.
    pub codel: Option<Codel>,
    /// Larger units are dropped.
    pub mtu: usize,
    /// Whether the link is cut: then everything is dropped.
    pub down: bool,
}

impl Default for LinkSettings {
    fn default() -> LinkSettings {
        LinkSettings {
            rate: None,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            reorder: false,
            loss: Loss::None,
            queue: usize::MAX,
            codel: None,
            mtu: usize::MAX,
            down: false,
        }
    }
}

impl LinkSettings {
    /// A perfect link, but for its rate in bits per second. Zero means no limit.
    pub fn with_rate(bits_per_second: u64) -> LinkSettings {
        LinkSettings { rate: NonZeroU64::new(bits_per_second), ..LinkSettings::default() }
    }

    /// The time that `bytes` bytes take on the wire, rounded up to a nanosecond.
    pub fn serialization(&self, bytes: usize) -> Duration {
        let Some(rate) = self.rate else { return Duration::ZERO };
        let bit_nanos = bytes as u128 * 8 * 1_000_000_000;
        let nanos = bit_nanos.div_ceil(u128::from(rate.get()));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}
