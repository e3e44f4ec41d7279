//! uTLS (unordered TLS) for TLS 1.3: opens records before their turn. Nowlan, Wolinsky and Ford
//! ("Reducing Latency in Tor Circuits with Unordered Delivery", FOCI 2013, section 4.2) did this
//! with TLS 1.2.
//!
//! A TCP socket delivers bytes in order. A *tap*, a capture of the connection's segments, may also
//! show segments that the kernel has received but not delivered, because an earlier one was lost.
//! From an agreed record on, all records of the peer have one size. The offset of a record in the
//! stream then gives its number, which is all that the receiver needs, besides the keys, to open a
//! TLS 1.3 record.
//!
//! * [`Origin`]: maps TCP sequence numbers to offsets in the stream.
//! * [`Anchor`]: maps offsets to record numbers.
//! * [`Reassembler`]: stores pieces of the stream by offset, until a record is complete.
//! * [`RecordLayer`]: decides which complete records to open early, and remembers which were
//!   opened.
//! * [`TrialBudget`]: limits how many records may fail to open.
//!
//! A tap may lose, duplicate, change or forge bytes. At worst this delays data: a record opens only
//! under the number with which the peer sealed it, and each number is delivered once. All records
//! that were not opened early arrive through the stream, which is authoritative.

mod anchor;
mod budget;
mod reassembler;
pub(crate) mod record_layer;

pub use anchor::{Anchor, Origin};
pub use budget::TrialBudget;
pub use reassembler::Reassembler;
pub use record_layer::{EarlyCounts, RecordLayer};
