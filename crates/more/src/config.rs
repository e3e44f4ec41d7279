//! The settings of a node of a MORE network, and their limits.

/// Default size of a packet's content, in bytes. With the overhead of Sphinx and QUIC, the packet
/// fits into a UDP datagram of 1,200 bytes, which every path with QUIC carries (RFC 9000, section
/// 14).
pub const PAYLOAD: usize = 795;
/// Size in bytes of a packet's content that corresponds to the data of one Tor relay cell. The
/// prototype of de la Cadena et al. (DBSec 2019) uses this size.
pub const CELL_PAYLOAD: usize = 498;
/// Minimum size in bytes of a packet's content. It has room for a reply block (a prepared header
/// for a reply), and an acknowledgement with three SACK blocks.
pub const MIN_PAYLOAD: usize = 450;
/// Maximum number of nodes on a packet's path (`MAX_PATH_LENGTH` of the crate `sphinx-packet`).
pub const MAX_HOPS: usize = 5;

/// Settings of a [`MoreNode`](crate::MoreNode). All nodes of a network must have the same
/// `payload`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Size of a packet's content in bytes, at least [`MIN_PAYLOAD`].
    pub payload: usize,
    /// Number of nodes on a path from the client, including the exit: 2 to [`MAX_HOPS`]. A reply's
    /// path has the same length: `hops` - 1 relays, and then the client.
    pub hops: usize,
    /// Maximum number of tags (hashes of packets) that are stored to detect replays. The default
    /// suffices for 13,900 packets a second, and takes about 32 MiB.
    pub tags: usize,
    /// Maximum number of streams that end at this node, as client and as exit together.
    pub streams: usize,
    /// Size in bytes of a stream's receive buffer, and of its send buffer.
    pub buffer: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config { payload: PAYLOAD, hops: 3, tags: 1 << 21, streams: 512, buffer: 256 << 10 }
    }
}
