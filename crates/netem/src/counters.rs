//! What went through a link, and what did not.

/// Units and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// How many.
    pub units: u64,
    /// Their bytes in total.
    pub bytes: u64,
}

impl Count {
    /// One more unit of `bytes` bytes.
    pub fn add(&mut self, bytes: usize) {
        self.units += 1;
        self.bytes += bytes as u64;
    }
}

/// The counters of a [`Link`](crate::Link), all since it was made.
///
/// At any time `entered` = `delivered` + the five kinds of loss + what is on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Handed to the link, dropped ones included: what an observer at its beginning sees.
    pub entered: Count,
    /// Taken out at its end.
    pub delivered: Count,
    /// Lost by chance or by script.
    pub lost: Count,
    /// Found the queue full.
    pub queue_full: Count,
    /// Dropped by CoDel as they reached the wire.
    pub codel: Count,
    /// Larger than the MTU.
    pub too_big: Count,
    /// Sent while the link was down, or on the way when it went down.
    pub down: Count,
}
