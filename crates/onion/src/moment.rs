//! One moment by both clocks that cores are told.

use anabranch_multipath::Time;

/// One moment by both clocks: pauses and delays are counted by ours, documents' validity by the
/// world's, which may be wrong or set while we run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// By the clock that only goes forward.
    pub now: Time,
    /// Seconds since 1970.
    pub unix: u64,
}
