//! uTLS (unordered TLS) for TLS 1.3: records are decrypted even if earlier records have not
//! arrived. Nowlan, Wolinsky and Ford ("Reducing Latency in Tor Circuits with Unordered Delivery",
//! FOCI 2013, section 4.2) did this with TLS 1.2.
//!
//! A TCP socket delivers bytes in order. If a segment is lost, the kernel receives later segments
//! but does not deliver them. A *tap*, a capture of the connection's segments, may show them. From
//! an agreed record on, all records have one size, so the offset of a record in the stream gives
//! its number. To open a TLS 1.3 record, the receiver needs only this number and the keys.
//!
//! * [`Origin`]: maps TCP sequence numbers to offsets in the stream.
//! * [`Anchor`]: maps offsets to record numbers.
//! * [`Reassembler`]: stores pieces of the stream by offset, until a record is complete.
//! * [`RecordLayer`]: decides which complete records to open early, and remembers which were
//!   opened.
//! * [`TrialBudget`]: limits the number of records that fail to decrypt.
//!
//! A tap may lose, duplicate, change or forge bytes. At worst this delays data: a record can be
//! decrypted only under the number with which the peer encrypted it, and each number is delivered
//! once. Records that were not opened early arrive through the stream, which is authoritative.

mod anchor;
mod budget;
mod reassembler;
pub(crate) mod record_layer;

pub use anchor::{Anchor, Origin};
pub use budget::TrialBudget;
pub use reassembler::Reassembler;
pub use record_layer::{EarlyCounts, RecordLayer};
