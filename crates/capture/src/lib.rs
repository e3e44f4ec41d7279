//! Writes captures: files with the traffic that an observer of each path would see.
//!
//! The writers are *taps* ([`Tap`]). A driver (the loop that moves datagrams between sockets)
//! passes every batch of datagrams that it forwards to each tap.
//!
//! * [`TraceTap`] writes this project's trace format (Parquet, a row per datagram;
//!   `docs/formats.md`).
//! * [`PcapTap`] writes a pcapng file per path, for standard tools.
//!
//! [`Trace`] reads a trace and rejects other files. [`Summary`] computes statistics of a trace, and
//! [`TraceTimeSeries`] its traffic over time.
//!
//! Taps never delay a driver by more than [`PATIENCE`], because encoding and writing happen on a
//! separate thread. A tap that fails reports this once; the driver then drops the tap and
//! continues forwarding. A file has a temporary name until [`Tap::flush`] first writes content. If
//! a tap fails or the program is killed, the tap's files remain and are readable up to the last
//! flush. Without traffic, [`Tap::finish`] leaves files without rows or packets. A tap without
//! traffic that is dropped without a call of [`Tap::finish`] leaves no file.

mod draft;
mod facts;
mod histogram;
mod lengths;
mod live;
mod pcap;
mod read;
mod summary;
mod time_series;
mod trace;
mod worker;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anabranch_multipath::Time;

pub use draft::Draft;
pub use facts::{SCHEMA, SizeUnit, TraceFacts};
pub use histogram::Histogram;
pub use pcap::{PcapLimits, PcapTap};
pub use read::{Trace, TraceError};
pub use summary::{Flow, PathSummary, Session, Spread, Summary, SummaryBuilder};
pub use time_series::{
    DirectionTraffic, PathSeries, PerDirection, RUNS, Run, STEPS, TimeSeries, TraceTimeSeries,
};
pub use trace::{Row, RowLabels, TraceTap, TraceWriter};
pub use worker::PATIENCE;

/// Length of a UDP header, in bytes.
const UDP_HEADER: usize = 8;
/// Length of a TCP header with timestamps, as Linux sends it, in bytes (RFC 7323, section 3.2).
const TCP_HEADER: usize = 20 + 12;

/// The transport protocol of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// UDP: each datagram of a batch is the payload of one UDP datagram.
    #[default]
    Udp,
    /// TCP: each datagram of a batch is the payload of one TCP segment.
    Tcp,
}

/// A batch of datagrams, as an observer of the path sees it.
#[derive(Clone, Copy, Debug)]
pub struct ObservedBatch<'a> {
    /// Time at which the batch was received from the path's socket, or sent to that socket.
    pub time: Time,
    /// Identifier of the session (traffic of one client) that the batch belongs to.
    pub session: u64,
    /// The path, as an index into the names with which the writer (tap) was created.
    pub path: u16,
    /// The protocol of the path's socket.
    pub transport: Transport,
    /// Whether the batch goes from the client to the server.
    pub outward: bool,
    /// Local address of the path's socket, which an observer of the path sees as the client's
    /// address.
    pub client_end: SocketAddr,
    /// The server's address.
    pub server: SocketAddr,
    /// The two ECN bits of the IP header (RFC 3168).
    pub ecn: u8,
    /// The payloads of UDP datagrams or TCP segments, one directly after the other.
    pub bytes: &'a [u8],
    /// Length in bytes of each datagram; the last one may be shorter. Zero means that there is one
    /// datagram.
    pub stride: usize,
}

impl<'a> ObservedBatch<'a> {
    /// Returns the payloads of the batch, in order. If the batch has no bytes, it holds one
    /// datagram without a payload, so one empty slice is returned.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        cut(self.bytes, self.stride)
    }

    /// Returns the length in bytes of the headers of each datagram: with UDP 28 for IPv4 and 48
    /// for IPv6, with TCP 52 and 72.
    pub fn overhead(&self) -> usize {
        let ip = match self.server.ip().to_canonical() {
            IpAddr::V4(_) => 20,
            IpAddr::V6(_) => 40,
        };
        match self.transport {
            Transport::Udp => ip + UDP_HEADER,
            Transport::Tcp => ip + TCP_HEADER,
        }
    }
}

/// A recorder of all traffic that a driver (the loop that moves datagrams between sockets)
/// forwards.
pub trait Tap: Send {
    /// Records a batch of datagrams. The batches' times must not decrease from one call to the
    /// next.
    ///
    /// # Errors
    /// The file cannot be written, the disk is too slow, or the batch is malformed. The tap is
    /// then unusable. The caller has to drop it, which keeps the data written so far.
    fn seen(&mut self, seen: &ObservedBatch<'_>) -> io::Result<()>;

    /// Records, for the file's metadata, that packets of `protocol` (a machine-readable name)
    /// carry an unencrypted sequence number.
    fn numbered(&mut self, protocol: &str) {
        let _ = protocol;
    }

    /// Writes the records from before `now`. Does nothing if the last write was less than a second
    /// ago. A trace also waits until 1/32 of its duration has passed since the last write, because
    /// each write adds an overhead to the file.
    ///
    /// # Errors
    /// The errors of [`Tap::seen`].
    fn flush(&mut self, now: Time) -> io::Result<()>;

    /// Completes the files.
    ///
    /// # Errors
    /// Something could not be written. Data that were flushed before remain in the file.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// Minimum time from one write of a capture's records to the next, unless buffers are full.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// Splits `bytes` into datagrams of `stride` bytes, for [`ObservedBatch::datagrams`].
fn cut(bytes: &[u8], stride: usize) -> impl Iterator<Item = &[u8]> {
    let stride = if stride == 0 { bytes.len().max(1) } else { stride };
    let empty = bytes.is_empty().then_some(bytes);
    empty.into_iter().chain(bytes.chunks(stride))
}

/// Returns whether two labels of rows are equal. Most labels are empty.
///
/// Does not compare the bytes of empty labels. An empty string may point to unmapped memory, where
/// a vectorised `memcmp` of length 0 costs hundreds of nanoseconds, many times the cost of the
/// rest of a row.
fn same_label(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && (one.is_empty() || one == other)
}

/// Creates an error of the kind `InvalidInput`, for arguments that the caller must not pass.
fn invalid(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(bytes: &[u8], stride: usize) -> ObservedBatch<'_> {
        let end = "127.0.0.1:1".parse().unwrap();
        let (time, session) = (Time::ZERO, 1);
        let (path, outward, ecn) = (0, true, 0);
        ObservedBatch {
            time,
            session,
            path,
            transport: Transport::Udp,
            outward,
            client_end: end,
            server: end,
            ecn,
            bytes,
            stride,
        }
    }

    fn lengths(bytes: &[u8], stride: usize) -> Vec<usize> {
        batch(bytes, stride).datagrams().map(<[u8]>::len).collect()
    }

    #[test]
    fn a_batch_is_cut_at_its_stride() {
        assert_eq!(lengths(&[0; 25], 10), [10, 10, 5]);
        assert_eq!(lengths(&[0; 20], 10), [10, 10]);
        assert_eq!(lengths(&[0; 7], 0), [7]);
        assert_eq!(lengths(&[], 10), [0]);
        assert_eq!(lengths(&[], 0), [0]);
    }

    #[test]
    fn an_ipv4_address_in_an_ipv6_socket_counts_as_ipv4() {
        let server = "[::ffff:192.0.2.1]:443".parse().unwrap();
        assert_eq!(ObservedBatch { server, ..batch(&[0], 0) }.overhead(), 28);
        let server = "[2001:db8::1]:443".parse().unwrap();
        assert_eq!(ObservedBatch { server, ..batch(&[0], 0) }.overhead(), 48);
        let transport = Transport::Tcp;
        assert_eq!(ObservedBatch { server, transport, ..batch(&[0], 0) }.overhead(), 72);
        assert_eq!(ObservedBatch { transport, ..batch(&[0], 0) }.overhead(), 52);
    }
}
