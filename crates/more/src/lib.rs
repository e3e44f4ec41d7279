#![doc = include_str!("../README.md")]
//!
//! # Tour
//!
//! A [`MoreNode`] is relay, client and exit in one. It is a [`Core`](anabranch_multipath::Core):
//! it receives [`Datagram`]s, and returns datagrams to send and the streams' [`Event`]s.
//!
//! ```text
//!  open, write ─▶ TCP ─▶ segments, reply blocks ─▶ Sphinx ─▶ relay ─▶ relay ─▶ exit
//!  read ◀─ TCP ◀─ segments ◀─ client's keys ◀─ relay ◀─ relay ◀─ reply block ◀─┘
//! ```
//!
//! * [`Network`] lists the nodes, and draws paths by weight.
//! * `sphinx` builds and unwraps packets of the crate `sphinx-packet`. `header` makes headers.
//!   `layer` removes a hop's layer from them with the keys in `secrets`.
//! * [`wire`] defines the content of packets: a segment, and reply blocks for the exit.
//! * [`tags`] defines the expiry of packets, in ticks of 30 s, and protects against replay.
//! * `supply` keeps an exit's stock of reply blocks filled.
//! * `stream` is one end of a stream, and `node` connects all parts.
//!
//! The specification is `docs/spec/more.md`.
//!
//! Deliberately absent: mixing and delays, cover traffic, names (the exit connects to addresses),
//! forward secrecy within the lifetime of a node's key, clocks, sockets. All random bytes are from
//! the node's own generator.

#![forbid(unsafe_code)]

mod config;
mod counters;
mod header;
mod layer;
mod network;
mod node;
mod secrets;
mod sphinx;
mod stream;
mod supply;
pub mod tags;
pub mod wire;

pub use config::{CELL_PAYLOAD, Config, MAX_HOPS, MIN_PAYLOAD, PAYLOAD};
pub use counters::{DropReason, NodeCounters};
pub use network::{KEY, Network, NetworkError, PREFIX, Peer};
pub use node::{Datagram, MoreNode, NodeError, OpenError, Output};
pub use sphinx::{OVERHEAD, ReplyBlock, SURB_LENGTH, SecretKey};
pub use stream::{Ending, Event, Refusal, StreamId};
