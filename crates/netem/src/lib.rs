#![doc = include_str!("../README.md")]
//!
//! # Tour
//!
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
//! knows only how many bytes that is. The caller passes the time.
//!
//! The emulator (`anabranch emulate`) and the in-memory networks of the cores' tests use it.

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
