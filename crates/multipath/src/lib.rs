#![doc = include_str!("../README.md")]
//!
//! # Tour
//!
//! The shared vocabulary of everything that splits and merges.
//!
//! The splitter and the lab use what is here, and whatever else will split; there is no second
//! scheduler anywhere. A tour, in the order in which a unit meets it:
//!
//! * [`PathView`] is what a scheduler may know of a path: usable or not, its round-trip time, its
//!   window, and with a window (a circuit) the state of that and of the first hop's link
//!   ([`LegView`], [`LinkView`]).
//! * A [`Scheduler`](schedule::Scheduler) names the path of the next run of units. One algorithm a
//!   file in [`schedule`]; [`schedule::FAMILIES`] lists them for command lines and documentation.
//!   Those that need windows are for circuits alone.
//! * A [`Boundary`] says when a run ends: after N packets or T milliseconds, fixed, of random
//!   length or growing with the load.
//! * A [`Splitter`] joins the two, turns the choice of a path with a closed window into *hold*, and
//!   draws both anew after silences where that is wanted.
//! * In a [`DelayQueue`] units wait before the split for a time drawn from a [`Jitter`].
//! * [`Decoys`] says what paths that rest are to carry for show, within a [`DecoyBudget`].
//! * A [`Backlog`] is what waits while no window has room.
//! * A [`Merger`] (with [`Reorder`] inside) puts the units of several paths back in order at the
//!   other end.
//! * [`Replay`] tells which numbers have come, where each counts once.
//! * [`trace`] splits what was recorded, for the lab, with the same [`Splitter`].
//!
//! Deliberately absent: clocks, entropy, sockets, threads. [`Time`] is handed in; chance comes from
//! [`seed::stream`], so a run is a function of its scenario and its seed.

mod backlog;
mod boundary;
pub mod conformance;
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
mod splitter;
mod time;
pub mod trace;

pub use backlog::Backlog;
pub use boundary::{Boundary, Every, EveryError};
pub use decoys::{DecoyBudget, DecoyBudgetError, Decoys};
pub use jitter::{DELAYED_BYTES, DelayQueue, Jitter, JitterError};
pub use merger::Merger;
pub use path::{LegView, LinkView, PathId, PathView};
pub use reorder::{Insertion, Reorder};
pub use replay::Replay;
pub use silence::{Silence, SilenceError};
pub use splitter::{Assignment, DrawSchedule, Splitter};
pub use time::Time;
