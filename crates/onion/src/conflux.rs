//! Sets of several circuits that carry the same streams (proposal 329, "Conflux", and other
//! designs). This module is independent of circuits and cells.
//!
//! * [`Design`]: the designs, and their differences.
//! * [`numbering`]: the sequence numbers of messages, and how the other end learns them. Proposal
//!   329 uses [`CountedNumbering`]. Conflux of 2013 and mTor use [`ExplicitNumbering`], and this
//!   project's design uses [`Adaptive`]. [`Runs`] numbers the cells of a circuit whose legs join
//!   at a middle relay. [`conformance`] tests every numbering.
//! * [`retransmitter`]: storage of unacknowledged messages, for designs in which a leg (one
//!   circuit of a set) may fail without loss.
//! * [`reorder`]: a queue of limited size for messages that wait for earlier ones.
//! * [`LegScheduler`]: the scheduler, and the number of consecutive messages that it sends on one
//!   leg.
//! * [`ends`]: one end of a set. It decides whether a leg may join and where its sequence numbers
//!   start, puts received messages in order, and handles the loss of a leg.
//!
//! A leg is identified by its slot in the set, a [`PathId`](anabranch_multipath::PathId), which
//! schedulers use too. The client or relay reports which message arrived on which leg, and
//! executes the set's decisions. Keys, windows and cells are outside this module. The module `set`
//! connects the client or relay with this module.

mod adaptive;
pub mod conformance;
mod counted;
mod dealing;
mod design;
pub mod ends;
mod explicit;
mod fault;
pub(crate) mod legs;
pub mod numbering;
mod params;
pub mod reorder;
pub mod retransmitter;
mod runs;

#[cfg(test)]
mod tests;

pub use adaptive::Adaptive;
pub use counted::CountedNumbering;
pub use dealing::LegScheduler;
pub(crate) use design::StreamWindows;
pub use design::{Design, FlowControl, UnknownDesign};
pub use ends::{Arrival, ConfluxEnd, Fate, Limits, may_carry};
pub use explicit::ExplicitNumbering;
pub use fault::{Closes, ConfluxFault};
pub use numbering::{Bases, Mark, Numbering, is_counted};
pub use params::ConfluxParams;
pub use reorder::{HeldMessage, Offer, ReorderQueue};
pub use retransmitter::{Acknowledged, LegAction, Retransmitter, SentMessage};
pub use runs::Runs;
