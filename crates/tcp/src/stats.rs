//! The counters of a connection.

/// Counters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of sent segments with data or a FIN, including retransmissions.
    pub sent: u64,
    /// Number of retransmitted segments.
    pub retransmitted: u64,
    /// Number of segments at the beginning of the stream that were sent a second time
    /// ([`Config::doubled`](crate::Config::doubled)). They do not count in `sent`.
    pub copies: u64,
    /// Number of fast recoveries.
    pub recoveries: u64,
    /// Number of retransmission timeouts.
    pub timeouts: u64,
    /// Number of tail loss probes.
    pub probes: u64,
    /// Number of reductions of the congestion window that were undone because nothing was lost.
    pub undone: u64,
    /// Number of received segments whose data had already arrived.
    pub duplicates: u64,
    /// Number of received segments that arrived before earlier ones.
    pub out_of_order: u64,
    /// Number of challenge acknowledgements (RFC 5961).
    pub challenges: u64,
}
