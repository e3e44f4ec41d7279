#![doc = include_str!("../README.md")]
//!
//! # Tour
//!
//! The core of the splitter (CoMPS, PETS 2022). It receives the datagrams of a user's existing
//! sessions and chooses a path for each datagram. It does no I/O.
//!
//! * [`Core`] is the entry point. It implements the trait [`Core`](anabranch_multipath::Core),
//!   which several crates of this project share. An [`Input`] is a batch from a client, a batch
//!   from the server, or an event of a path or socket. An [`Output`] is an action of the driver.
//! * A *session* is one client address and its server. Each session has its own random draw of the
//!   schedule and its own view of each path's health.
//! * [`Core::reconfigure`] changes the settings of a running core. Its sessions continue.
//! * A *tuple* is a path with one of its source ports; with the server's address it is a
//!   four-tuple. The driver opens a socket for a tuple when the first datagram names it.
//! * [`protocol`] recognises the protocol of a session. For QUIC it follows the handshake of each
//!   connection, and keeps the connection on one path until the server has confirmed the
//!   handshake.
//!
//! The core deliberately does not decrypt anything: it sees only what an observer sees. It adds no
//! packets of its own except copies of live datagrams. It uses no path that the user did not name.
//!
//! The design and its reasons: `docs/design/splitter.md`.

mod batch;
mod config;
mod core;
mod down;
mod event;
mod health;
mod io;
mod looped;
pub mod protocol;
mod renumber;
mod rtt;
mod session;
mod stats;
mod timers;
mod tuples;
mod waiting;

pub use batch::Batch;
pub use config::{Config, EVERY, FAR_END_EVERY, FAR_END_SCHEDULE, Guess, SCHEDULE};
pub use core::Core;
pub use event::{CloseReason, DownReason, Event, SessionId, StayReason};
pub use io::{Failure, HeldDatagrams, Input, Output, Payload};
pub use protocol::Protocol;
pub use renumber::Renumbering;
pub use stats::{
    Drops, FarEndCounters, Flow, PathCounters, Pinned, Silent, Snapshot, StreamCounters, Unsplit,
};
pub use timers::{JitterTooLong, check_jitter};
pub use tuples::TupleId;
