//! A network link as an object: rate, delay, jitter, loss, a queue and an MTU, without I/O and
//! without a clock.
//!
//! ```text
//! push ─▶ MTU? ─▶ queue (drop-tail, CoDel) ─▶ wire (rate) ─▶ loss ─▶ delay ± jitter ─▶ pop
//! ```
//!
//! Chance is drawn where a unit enters, once for loss and once for jitter, for each unit: its luck
//! is a function of the seed and of how many entered before it, whatever the queue did to them.
//!
//! A [`Link`] is one direction. It carries whatever it is given (a packet, a buffer's index) and
//! knows only how many bytes that is. The caller says what time it is:
//!
//! ```
//! use anabranch_multipath::Time;
//! use anabranch_netem::{Link, LinkSettings};
//! use std::time::Duration;
//!
//! let delay = Duration::from_millis(10);
//! let settings = LinkSettings { delay, ..LinkSettings::with_rate(100_000_000) };
//! let mut link = Link::new(settings, 7, 0);
//! link.push(Time::ZERO, "packet", 1500).unwrap();
//! // 1500 bytes take 120 µs at 100 Mbit/s, then 10 ms to the other end.
//! assert_eq!(link.next_timeout(), Some(Time::from_micros(10_120)));
//! assert_eq!(link.pop(Time::from_micros(10_119)), None);
//! assert_eq!(link.pop(Time::from_micros(10_120)), Some("packet"));
//! ```
//!
//! The same link stands under the tests of all cores and under the emulator (`emulator`).

mod codel;
mod counters;
mod link;
mod loss;
mod settings;

pub use codel::Codel;
pub use counters::{Count, Counters};
pub use link::{Dropped, Link};
pub use loss::Loss;
pub use settings::{DelayLaw, LinkSettings};
