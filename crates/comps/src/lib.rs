#![doc = include_str!("../README.md")]
//!
//! # Tour
//!
//! The splitter's core (CoMPS, PETS 2022): it takes the datagrams of sessions that a user already
//! has and says by which path each of them goes. It does no I/O.
//!
//! The tour:
//!
//! * [`Core`] is the whole: [`Core::handle`] takes an [`Input`] (a batch from a client, a batch
//!   from the server, an error of a socket, a timeout), then [`Core::poll`] gives [`Output`]s until
//!   there is none, and [`Core::next_timeout`] says when to call again.
//! * A *session* is one client address and the server that it wants. It has its own draw of the
//!   schedule and its own view of each path's health.
//! * The settings may change under live sessions: [`Core::reconfigure`].
//! * A *tuple* is a path with one of its source ports: together with the server's address a
//!   four-tuple. The driver opens a socket for a tuple when the first datagram names it.
//! * [`protocol`] recognises what a session carries; for QUIC it follows each connection's
//!   handshake and keeps it on one path until the server has confirmed it.
//!
//! Deliberately absent: decryption (the core sees what an observer sees), any packet of our own
//! making (the only thing it ever adds is a copy of a live datagram), and any way out other than
//! the paths that the user named.
//!
//! The design, with its reasons: `docs/design/splitter.md`.

mod batch;
mod config;
mod core;
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
pub use event::{CloseReason, DownReason, Event, Kept, SessionId};
pub use io::{Failure, Held, Input, Output, Payload};
pub use protocol::Protocol;
pub use renumber::Renumbering;
pub use stats::{Drops, FarEndCounters, Flow, PathCounters, Pinned, Silent, Snapshot, Unsplit};
pub use timers::{JitterTooLong, check_jitter};
pub use tuples::TupleId;
