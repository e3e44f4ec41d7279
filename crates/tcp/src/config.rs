//! The settings of a connection.

use crate::congestion::Congestion;
use crate::constants::INIT_CWND;

/// Settings of a [`Connection`](crate::Connection). The default is Linux's behaviour on a path
/// with an MTU of 1,500 bytes, with CUBIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Maximum segment size in bytes, both announced and used: the MTU minus 40 bytes over IPv4,
    /// or 60 over IPv6.
    pub mss: u16,
    /// Congestion control.
    pub congestion: Congestion,
    /// Whether segments are paced: spread over the round-trip time. With CUBIC, Linux does this
    /// only with the queueing discipline `fq`. BBR always paces.
    pub pacing: bool,
    /// Maximum bytes buffered for the reader, both in order and out of order.
    pub receive_buffer: usize,
    /// Maximum bytes that [`write`](crate::Connection::write) accepts before they are
    /// acknowledged.
    pub send_buffer: usize,
    /// Whether selective acknowledgements are offered (RFC 2018).
    pub sack: bool,
    /// Whether timestamps are offered (RFC 7323).
    pub timestamps: bool,
    /// Whether window scaling is offered (RFC 7323).
    pub window_scaling: bool,
    /// Offset of the timestamp clock, which counts milliseconds. A different offset for each
    /// connection hides the host's uptime (RFC 7323, section 5.4).
    pub timestamp_offset: u32,
    /// Whether data that arrive out of order are returned early
    /// ([`read_out_of_order`](crate::Connection::read_out_of_order)).
    pub out_of_order: bool,
    /// Whether data written before the handshake travel in the SYN, and a SYN with data is
    /// answered with data at once (RFC 7413, without its cookies). Both sides must agree on it
    /// beforehand, and the peer must be known by other means.
    pub fast_open: bool,
    /// Whether the first SYN is sent twice. This requires an expected round-trip time
    /// ([`expect_rtt`](crate::Connection::expect_rtt)). The loss of one of the two SYNs then costs
    /// no timeout (Vulimiri et al., "Low latency via redundancy", CoNEXT 2013, section 3.1).
    pub syn_copy: bool,
    /// Number of bytes at the beginning of the stream whose segments are sent twice, in addition
    /// to the SYN; 0 for none. The loss of one of the two copies then costs no round trip (Flach
    /// et al., "Reducing Web Latency: the Virtue of Gentle Aggression", SIGCOMM 2013, section 4.3,
    /// "Proactive"). If the connection has several legs (paths to the peer), the copy is sent on
    /// another leg.
    pub doubled: u64,
    /// Whether acknowledgements are sparse: about [`SPARSE_ACKS`](crate::constants::SPARSE_ACKS)
    /// in a round-trip time. The first acknowledgements of a connection are not sparse. The lower
    /// layer must carry [`Segment::more_blocks`](crate::Segment::more_blocks).
    pub sparse_acks: bool,
    /// Initial congestion window, in segments.
    pub initial_window: u32,
    /// Whether a segment with an old timestamp is dropped (PAWS, RFC 7323, section 5). PAWS also
    /// drops segments that a retransmission has overtaken. If false, the layer below must drop old
    /// duplicates.
    pub paws: bool,
    /// Number of legs, from 1 to [`MAX_LEGS`]: paths to the peer that have their own window,
    /// round-trip time and loss detection. More than one needs a congestion control that
    /// [supports legs](Congestion::supports_legs), and [`poll_by`](crate::Connection::poll_by).
    pub legs: usize,
}

/// Maximum number of legs (paths to the peer) of a connection.
pub const MAX_LEGS: usize = 8;

impl Default for Config {
    fn default() -> Config {
        Config {
            mss: 1460,
            congestion: Congestion::CUBIC,
            pacing: false,
            receive_buffer: 6 << 20,
            send_buffer: 4 << 20,
            sack: true,
            timestamps: true,
            window_scaling: true,
            timestamp_offset: 0,
            out_of_order: false,
            fast_open: false,
            syn_copy: false,
            doubled: 0,
            sparse_acks: false,
            initial_window: INIT_CWND,
            paws: true,
            legs: 1,
        }
    }
}
