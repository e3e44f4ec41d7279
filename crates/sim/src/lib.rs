//! Simulates hosts, their TCP connections and the onion network's protocol state machines (cores)
//! in virtual time.
//!
//! ```text
//!  program ─▶ Stack ─▶ line up ─▶ core (latency) ─▶ line down ─▶ Stack ─▶ program
//!             TCP      rate, queue, loss             rate, queue, loss
//! ```
//!
//! * [`EventQueue`]: future events, ordered by time, host and counter.
//! * [`Line`]: one direction of an access line, with its drop-tail queue. [`Latencies`]: the core
//!   network between the lines. [`CoreImpairment`]: loss and varying delay in it.
//! * [`Network`]: hosts and packets. [`Stack`]: the TCP connections of a host.
//! * [`Simulation`]: hosts, each with a [`HostProgram`]. [`TraceHash`]: the hash of all events.
//! * [`onion`]: relays and clients of the onion network, and web servers.
//! * [`flows`]: bulk transfers, for measurements of the simulator itself.
//!
//! The events of a simulation depend only on the programs, the settings and the seed. Nothing
//! reads a clock or iterates over a hash map. All random numbers are from seeded generators. Code
//! draws a random number only if the settings need it: a line without random loss draws none.
//!
//! The design and its reasons: `docs/design/simulator.md`.

#![forbid(unsafe_code)]

pub mod flows;
mod latency;
mod line;
mod network;
pub mod onion;
mod path;
mod queue;
mod simulation;
mod stack;
mod trace;

pub use anabranch_tcp::{Config as TcpConfig, Congestion, UnknownCongestion};
pub use latency::{Latencies, NotSquare};
pub use line::{Line, LineDrop, LineSettings, LineStats};
pub use network::{HostEvent, HostSettings, Network};
pub use path::CoreImpairment;
pub use queue::{EventQueue, HostId};
pub use simulation::{HostProgram, Io, Simulation, UdpOutbox};
pub use stack::{ConnId, Stack, TcpEvent};
pub use trace::{Kind, TraceHash};
