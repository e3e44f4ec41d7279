#![doc = include_str!("../README.md")]
//!
//! # Tour
//!
//! A [`Connection`] is a [`Core`](anabranch_multipath::Core): segments in, segments out.
//!
//! ```text
//!  write ─▶ sender ─▶ poll ─▶ segments           handle ─▶ receiver ─▶ read
//!             ▲ scoreboard, RACK-TLP, PRR           │  reassembly, window ─▶ early
//!             └──────────── acknowledgements ◀──────┘
//! ```
//!
//! * [`Segment`] is a segment in the format of the wire, with its [`Options`] and [`Seq`]uence
//!   numbers. Inside a connection, positions are 64-bit offsets that never wrap.
//! * `connection`: the state machine of RFC 9293, with timestamps and the checks of RFC 5961.
//! * `sender`: the scoreboard, loss detection, recovery, timeouts, delivery rate, and legs (paths
//!   with windows of their own).
//! * `congestion`: CUBIC with HyStart, Reno, and BBR.
//! * `receiver`: reassembly, SACK blocks, delayed acknowledgements, the window, and early delivery
//!   of data out of order.
//! * [`constants`]: the protocol's constants, with their sources. BBR's constants are in
//!   `congestion`.
//!
//! Where RFCs leave a choice, this crate chooses as Linux does, because relays run Linux.
//!
//! Not implemented on purpose: IP, path MTU discovery, urgent data, ECN, the cookies of TCP Fast
//! Open, keep-alives, Nagle's algorithm, clocks, entropy.

#![forbid(unsafe_code)]

mod config;
mod congestion;
mod connection;
pub mod constants;
mod options;
mod ranges;
mod receiver;
mod rtt;
mod segment;
mod sender;
mod seq;
mod stats;
mod timers;

pub use config::{Config, MAX_LEGS};
pub use congestion::{Congestion, FAMILIES, Family, UnknownCongestion};
pub use connection::{Connection, Ending, Ports, State};
pub use options::{Options, SackBlocks, Timestamps};
pub use segment::{Flags, Malformed, Segment, checksum};
pub use seq::Seq;
pub use stats::Stats;
