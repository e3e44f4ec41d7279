//! Counters of the units (such as packets) that passed a link, and of the units that it dropped.

/// A number of units (such as packets) and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of units.
    pub units: u64,
    /// Total bytes of these units (such as packets).
    pub bytes: u64,
}

impl Count {
    /// Counts one more unit (such as a packet), which has `bytes` bytes.
    pub fn add(&mut self, bytes: usize) {
        self.units += 1;
        self.bytes += bytes as u64;
    }
}

/// The counters of a [`Link`](crate::Link) since the link's creation.
///
/// At any time, `entered` is the sum of all other counters and the units in transit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Units (such as packets) passed to the link, including units that the link then drops.
    pub entered: Count,
    /// Units (such as packets) that have left the link at its end
    /// ([`Link::pop`](crate::Link::pop)).
    pub delivered: Count,
    /// Units (such as packets) lost by the loss rule ([`Loss`](crate::Loss)).
    pub lost: Count,
    /// Units (such as packets) dropped because the queue was full.
    pub queue_full: Count,
    /// Units (such as packets) that CoDel dropped before they were sent.
    pub codel: Count,
    /// Units (such as packets) dropped because they are larger than the MTU.
    pub too_big: Count,
    /// Units (such as packets) sent while the link was down, or in transit when it went down.
    pub down: Count,
}
