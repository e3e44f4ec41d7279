//! Counters.

/// Counters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Sent segments with data or a FIN, including retransmissions.
    pub sent: u64,
    /// Retransmitted segments.
    pub retransmitted: u64,
    /// Fast recoveries.
    pub recoveries: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Tail loss probes.
    pub probes: u64,
    /// Reductions of the window that were undone because nothing was lost.
    pub undone: u64,
    /// Segments whose data had already arrived.
    pub duplicates: u64,
    /// Segments that arrived before others.
    pub out_of_order: u64,
    /// Challenge acknowledgements (RFC 5961).
    pub challenges: u64,
}
