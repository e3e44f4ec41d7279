//! A moment by both clocks that cores use.

use anabranch_multipath::Time;

/// A moment by both clocks. Pauses and delays use ours, the validity of documents uses the world's,
/// which may be wrong or set while we run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Time of the monotonic clock.
    pub now: Time,
    /// Seconds since 1970.
    pub unix: u64,
}
