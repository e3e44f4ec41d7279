//! Opening of records before their turn: uTLS for TLS 1.3. Nowlan, Wolinsky and Ford ("Reducing
//! Latency in Tor Circuits with Unordered Delivery", FOCI 2013, section 4.2) did this with TLS
//! 1.2.
//!
//! A TCP socket delivers bytes in order. A *tap* may also show segments that the kernel has
//! received but holds back, because an earlier one was lost. From some point on all records of the
//! peer have one size. The place of a record in the stream then gives its number, and this number
//! suffices to open a TLS 1.3 record.
//!
//! * [`Origin`]: maps TCP sequence numbers to offsets in the stream.
//! * [`Anchor`]: maps offsets to record numbers.
//! * [`Reassembler`]: stores pieces of the stream by offset, until a record is complete.
//! * [`RecordLayer`]: decides which complete records to open early, and remembers which were
//!   opened.
//! * [`TrialBudget`]: limits how many records may fail to open.
//!
//! A tap may lose, duplicate, change or forge bytes. At worst this delays data: only records that
//! the peer sealed under a number open under it, and each number is delivered once. All records
//! that were not opened early arrive through the stream, which is authoritative.

mod anchor;
mod budget;
mod reassembler;
pub(crate) mod record_layer;

pub use anchor::{Anchor, Origin};
pub use budget::TrialBudget;
pub use reassembler::Reassembler;
pub use record_layer::{EarlyCounts, RecordLayer};
