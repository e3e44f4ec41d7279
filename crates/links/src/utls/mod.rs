//! Records opened before their turn: what uTLS (Nowlan, Wolinsky and Ford, "Reducing Latency in Tor
//! Circuits with Unordered Delivery", FOCI 2013, section 4.2) did to TLS 1.2, for TLS 1.3.
//!
//! A TCP socket gives bytes in order. Beside it a *tap* may show segments that the kernel has
//! received and still holds back, because one before them was lost. All records of the peer have
//! one size from some point on, so where a record stands tells its number, and a record of TLS 1.3
//! is opened by its number.
//!
//! * [`Origin`]: which offset in the stream a TCP sequence number is.
//! * [`Anchor`]: which record begins at which offset.
//! * [`Reassembler`]: pieces of the stream, by offset, until a record of them is whole.
//! * [`RecordLayer`]: which of these records to open, and which were.
//! * [`TrialBudget`]: how many that do not open are enough.
//!
//! A tap may lose, double, change or forge bytes. What it shows costs at most earliness: only what
//! the peer sealed under a number opens under it, each number is delivered once, and whatever was
//! not opened early comes by the stream, which is the truth.

mod anchor;
mod budget;
mod reassembler;
pub(crate) mod record_layer;

pub use anchor::{Anchor, Origin};
pub use budget::TrialBudget;
pub use reassembler::Reassembler;
pub use record_layer::{EarlyCounts, RecordLayer};
