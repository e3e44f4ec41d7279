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
//! A *unit* is a packet or whatever else the caller sends. The link draws the random numbers for
//! loss and jitter when a unit enters. The numbers therefore depend only on the seed and on the
//! number of earlier units, not on the state of the queue.
//!
//! A [`Link`] is one direction of a network link. Its units may be of any type (a packet, the
//! index of a buffer), because the link uses only their length in bytes. The caller passes the
//! present time with each call.
//!
//! The emulator (`anabranch emulate`) and the in-memory networks of the cores' tests use this
//! crate.

mod counters;
mod link;
mod loss;
mod settings;

pub use anabranch_multipath::codel::Codel;
pub use counters::{Count, Counters};
pub use link::{Link, LinkDrop};
pub use loss::Loss;
pub use settings::{DelayLaw, LinkSettings};
