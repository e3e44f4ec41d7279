//! Counters of a node's packets.

/// The reason why a node has dropped a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// The source address of the datagram is not the address of a node in the network's list.
    UnknownSource,
    /// The datagram or its content is malformed.
    Malformed,
    /// The header's MAC is wrong: the header is forged, was changed on its way, or was made for
    /// another key.
    Forged,
    /// A packet with the same tag (identifying hash) was accepted before.
    Replayed,
    /// The packet has expired, or its expiry is too far in the future to be valid.
    Expired,
    /// The replay cache has no room for the packet's tag (identifying hash).
    Full,
    /// The next hop is this node, or the node from which the packet arrived.
    Looped,
    /// The packet's next hop is not in the network's list of nodes.
    NoRoute,
    /// The integrity check of the decrypted payload failed, so a relay or the network has changed
    /// the payload.
    Garbled,
    /// The packet's reply block was not issued by this node, or was already used.
    UnknownReply,
    /// The packet's content belongs to no open stream, and does not open a stream.
    UnknownStream,
    /// The queue of packets to send is full.
    Queue,
}

impl DropReason {
    /// All reasons, in the order of [`NodeCounters`].
    pub const ALL: [DropReason; 12] = [
        DropReason::UnknownSource,
        DropReason::Malformed,
        DropReason::Forged,
        DropReason::Replayed,
        DropReason::Expired,
        DropReason::Full,
        DropReason::Looped,
        DropReason::NoRoute,
        DropReason::Garbled,
        DropReason::UnknownReply,
        DropReason::UnknownStream,
        DropReason::Queue,
    ];

    /// Returns the name of the reason, as lines of counters contain it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DropReason::UnknownSource => "unknown-source",
            DropReason::Malformed => "malformed",
            DropReason::Forged => "forged",
            DropReason::Replayed => "replayed",
            DropReason::Expired => "expired",
            DropReason::Full => "full",
            DropReason::Looped => "looped",
            DropReason::NoRoute => "no-route",
            DropReason::Garbled => "garbled",
            DropReason::UnknownReply => "unknown-reply",
            DropReason::UnknownStream => "unknown-stream",
            DropReason::Queue => "queue",
        }
    }
}

/// Counts of packets since the start of a node.
///
/// `received` = `relayed` + `delivered` + the sum of [`NodeCounters::dropped`] over all reasons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounters {
    /// Datagrams received.
    pub received: u64,
    /// Packets passed on to the next hop.
    pub relayed: u64,
    /// Packets whose last hop is this node, and whose content was accepted.
    pub delivered: u64,
    /// Packets sent for streams that end at this node, as client or exit.
    pub sent: u64,
    /// Reply blocks (prepared headers with which exits reply) that this node has made as a client.
    pub reply_blocks: u64,
    dropped: [u64; DropReason::ALL.len()],
}

impl NodeCounters {
    /// Returns the number of packets dropped for `reason`.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Counts a packet dropped for `reason`.
    pub(crate) fn drop(&mut self, reason: DropReason) {
        self.dropped[reason as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_counter_and_word() {
        let mut counters = NodeCounters::default();
        for (times, reason) in DropReason::ALL.into_iter().enumerate() {
            (0..times).for_each(|_| counters.drop(reason));
        }
        let found = DropReason::ALL.map(|reason| counters.dropped(reason));
        assert!(found.into_iter().eq(0..12));
        let mut names = DropReason::ALL.map(DropReason::name);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
