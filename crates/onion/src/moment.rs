//! A moment by both clocks that cores use.

use anabranch_multipath::Time;

/// A moment by both clocks. Pauses and delays use the monotonic clock. The validity of documents
/// uses the system's clock, which may be wrong, or may be set while this process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Time of the monotonic clock.
    pub now: Time,
    /// Seconds since 1970.
    pub unix: u64,
}
