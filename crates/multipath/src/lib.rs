#![doc = include_str!("../README.md")]
//!
//! # Tour
//!
//! All programs of this workspace that split or merge traffic use this crate. The list follows the
//! order in which a unit (a packet, a cell, a chunk) passes through the types:
//!
//! * [`PathView`] is a path as a scheduler sees it: whether the path is usable, its round-trip
//!   time and its window. For a circuit it also has the state of the leg and of the first hop's
//!   link ([`LegView`], [`LinkView`]).
//! * [`SmoothedRtt`] estimates a round-trip time (`SRTT` and `RTTVAR` of RFC 6298).
//! * A [`Scheduler`](schedule::Scheduler) chooses the path of the next run. A *run* is a group of
//!   consecutive units on one path. [`schedule`] has one algorithm per file; [`schedule::FAMILIES`]
//!   lists them for command lines and documents. Algorithms that need windows serve circuits only.
//! * A [`Boundary`] decides when a run ends: after a number of packets or a time, which is fixed,
//!   random, or grows while the traffic continues.
//! * A [`Splitter`] combines a scheduler and a boundary. It returns *hold* when the window of the
//!   chosen path is closed. It can draw a new random schedule after each pause in the traffic.
//! * A [`DelayQueue`] delays units before the split by times drawn from a [`Jitter`].
//! * [`Decoys`] plans dummy traffic for idle paths within a [`DecoyBudget`].
//! * A [`Backlog`] queues units while no window has room.
//! * A [`Merger`], built on [`Reorder`], restores the order of units at the other end.
//! * [`Replay`] records received packet numbers, so that each packet is accepted only once.
//! * [`Core`] is the interface of every protocol core of the workspace.
//! * [`trace`] splits recorded traffic for the lab, with the same [`Splitter`].
//!
//! The crate has no clocks, sockets or threads, and reads no system entropy. The caller passes
//! [`Time`], and all randomness comes from [`seed::stream`]. So a result depends only on the
//! inputs and the seed.

mod backlog;
mod boundary;
pub mod codel;
pub mod conformance;
mod core;
mod decoys;
mod growth;
mod jitter;
mod merger;
mod path;
mod reorder;
mod replay;
pub mod schedule;
pub mod seed;
mod silence;
mod smoothed_rtt;
mod splitter;
mod time;
pub mod trace;

pub use self::core::Core;
pub use backlog::Backlog;
pub use boundary::{Boundary, Every, EveryError};
pub use decoys::{DecoyBudget, DecoyBudgetError, Decoys};
pub use jitter::{DELAYED_BYTES, DelayQueue, Jitter, JitterError};
pub use merger::Merger;
pub use path::{LegView, LinkView, PathId, PathView};
pub use reorder::{Insertion, Reorder};
pub use replay::Replay;
pub use silence::{Silence, SilenceError};
pub use smoothed_rtt::SmoothedRtt;
pub use splitter::{Assignment, DrawSchedule, Splitter};
pub use time::Time;
