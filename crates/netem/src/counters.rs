//! Counters of the units that passed a link, and of the dropped ones.

/// A number of units and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of units.
    pub units: u64,
    /// Their bytes in total.
    pub bytes: u64,
}

impl Count {
    /// Adds a unit of `bytes` bytes.
    pub fn add(&mut self, bytes: usize) {
        self.units += 1;
        self.bytes += bytes as u64;
    }
}

/// The counters of a [`Link`](crate::Link) since its creation.
///
/// At any time `entered` = `delivered` + the five kinds of loss + the units in transit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Passed to the link, dropped ones included: the view of an observer at its beginning.
    pub entered: Count,
    /// Taken out at its end.
    pub delivered: Count,
    /// Lost by chance or by script.
    pub lost: Count,
    /// Dropped because the queue was full.
    pub queue_full: Count,
    /// Dropped by CoDel as they reached the wire.
    pub codel: Count,
    /// Dropped because they are larger than the MTU.
    pub too_big: Count,
    /// Sent while the link was down, or in transit when it went down.
    pub down: Count,
}
