//! Bytes sent and received by a path's stream, for captures, which show them in TCP segments as an
//! observer of the path sees them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anabranch_multipath::PathId;

use crate::streams::{Wire, WireTraffic};

/// Assumed payload of a segment in bytes, if another program of this machine (OpenSSH, a local
/// proxy) makes the connection to the network. It is 1,500 for the MTU, less 20 for the IPv4
/// header and 32 for the TCP header with timestamps.
const SEGMENT: usize = 1_500 - 20 - 32;
/// Placeholder for the addresses of both ends, which this program does not know if OpenSSH makes
/// the connection.
const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Bytes sent and received by the socket of a stream.
#[derive(Debug)]
pub(in crate::split) struct StreamBytes {
    pub(in crate::split) path: PathId,
    /// Our own address, and the address of the first hop. Both are unspecified if OpenSSH makes
    /// the connection.
    pub(in crate::split) ends: (SocketAddr, SocketAddr),
    /// Maximum payload of a segment, in bytes.
    pub(in crate::split) segment: usize,
    pub(in crate::split) passed: WireTraffic,
}

impl StreamBytes {
    /// Returns the bytes that `wire` has recorded since the last call; `None` if there are none.
    pub(super) fn of(path: PathId, wire: &mut Wire) -> Option<StreamBytes> {
        let passed = wire.take_passed()?;
        let ends = wire.ends().unwrap_or((UNKNOWN, UNKNOWN));
        let is_ours = !ends.1.ip().is_unspecified() && !ends.1.ip().is_loopback();
        let segment = wire.segment().filter(|&bytes| is_ours && bytes > 0).unwrap_or(SEGMENT);
        Some(StreamBytes { path, ends, segment, passed })
    }
}
