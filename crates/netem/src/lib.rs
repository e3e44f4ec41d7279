#![doc = include_str!("../README.md")]
//!
//! # Tour
//!
//! A network link as a data structure: rate, delay, jitter, loss, a queue and an MTU, without I/O
//! and without a clock.
//!
//! ```text
//! push ─▶ MTU? ─▶ queue (drop-tail, CoDel) ─▶ wire (rate) ─▶ loss ─▶ delay ± jitter ─▶ pop
//! ```
//!
//! The link draws once for loss and once for jitter when a unit enters. A unit's loss and jitter
//! are therefore a function of the seed and of the number of earlier units, and do not depend on
//! the queue.
//!
//! A [`Link`] is one direction. It holds any type (a packet, the index of a buffer) and uses only
//! the length in bytes. The caller passes the time.
//!
//! The emulator (`anabranch emulate`) and the in-memory networks of the cores' tests use it.

mod counters;
mod link;
mod loss;
mod settings;

pub use anabranch_multipath::codel::Codel;
pub use counters::{Count, Counters};
pub use link::{Dropped, Link};
pub use loss::Loss;
pub use settings::{DelayLaw, LinkSettings};
