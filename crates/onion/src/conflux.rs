//! Sets of several circuits to one end (proposal 329, "Conflux", and the designs that came before
//! it): the parts that know no circuit.
//!
//! * [`Design`]: which designs there are, and in what they differ.
//! * [`numbering`]: which number a message has, and what must be said for the other end to know it.
//!   [`Counted`] is proposal 329's, [`Explicit`] that of Conflux of 2013 and mTor, [`Adaptive`]
//!   ours, [`Runs`] that of cells which pass where legs join; [`conformance`] holds for all.
//! * [`retransmitter`]: what was sent and is not acknowledged, where a leg may die and nothing is
//!   lost.
//! * [`reorder`]: messages that wait for others, bounded in bytes.
//! * [`Dealing`]: by which scheduler, and in which runs.
//! * [`ends`]: one end of a set. Who may join it, with which numbers; what comes by a leg, in
//!   order; what the loss of a leg means.
//!
//! Legs are known by their places in the set ([`PathId`](anabranch_multipath::PathId)), as
//! schedulers know them. A relay or a client says what came by which leg and does what the set
//! says; keys, windows and cells are its own affair: `set` joins the two.

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
pub use counted::Counted;
pub use dealing::Dealing;
pub(crate) use design::StreamWindows;
pub use design::{Design, Over, UnknownDesign};
pub use ends::{Arrival, ConfluxEnd, Fate, Limits, may_carry};
pub use explicit::Explicit;
pub use fault::{Closes, ConfluxFault};
pub use numbering::{Bases, Mark, Numbering, is_counted};
pub use params::ConfluxParams;
pub use reorder::{Held, Offer, ReorderQueue};
pub use retransmitter::{Acknowledged, LegAction, Retransmitter, SentMessage};
pub use runs::Runs;
