//! A point in time on the two clocks that the protocol state machines (cores) use.

use anabranch_multipath::Time;

/// A point in time on the monotonic clock and on the system's clock. Pauses and delays use the
/// monotonic clock. The validity of documents uses the system's clock, which may be wrong, and may
/// be set while this process is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Time of the monotonic clock.
    pub now: Time,
    /// Time of the system's clock, in seconds since 1970.
    pub unix: u64,
}
