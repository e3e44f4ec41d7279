//! The settings of a node.

/// Default content of a packet in bytes. With the overhead of Sphinx and of QUIC, the packet then
/// fits a UDP datagram of 1,200 bytes, which every path with QUIC carries (RFC 9000, section 14).
pub const PAYLOAD: usize = 795;
/// Content in bytes of a packet that carries the data of one of Tor's relay cells, as the paper's
/// prototype did.
pub const CELL_PAYLOAD: usize = 498;
/// Minimum content in bytes: a reply block, and an acknowledgement with three SACK blocks.
pub const MIN_PAYLOAD: usize = 450;
/// Maximum number of nodes on a path (`MAX_PATH_LENGTH` of `sphinx-packet`).
pub const MAX_HOPS: usize = 5;

/// Settings of a [`MoreNode`](crate::MoreNode). All nodes of a network must have the same
/// `payload`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Content of a packet in bytes, at least [`MIN_PAYLOAD`].
    pub payload: usize,
    /// Number of nodes on a path from the client, including the exit: 2 to [`MAX_HOPS`]. A reply
    /// passes one relay less than `hops`, and then ends at the client.
    pub hops: usize,
    /// Maximum number of packets' tags that are stored to detect replayed packets. The default
    /// suffices for 13,900 packets a second, and takes about 32 MiB if it is used up.
    pub tags: usize,
    /// Maximum number of streams that end at this node, as client and as exit together.
    pub streams: usize,
    /// Maximum bytes of a stream in its receive buffer, and in its send buffer.
    pub buffer: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config { payload: PAYLOAD, hops: 3, tags: 1 << 21, streams: 512, buffer: 256 << 10 }
    }
}
