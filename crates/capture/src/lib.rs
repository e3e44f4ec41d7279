//! Captures of the traffic that an observer of each path would see, written to files.
//!
//! A driver passes every batch of datagrams that it forwards to its taps:
//!
//! * [`TraceTap`] writes the project's trace (Parquet, a row per datagram; `docs/formats.md`);
//! * [`PcapTap`] writes a pcapng file per path, for standard tools.
//!
//! [`Trace`] reads a trace back and rejects other files. [`Summary`] condenses it, and [`Courses`]
//! follow it over time.
//!
//! Taps never delay a driver by more than [`PATIENCE`]: encoding and writing happen on a separate
//! thread. A tap that fails reports it once; its driver then drops it and continues forwarding.
//! Files receive their names with the first content that [`Tap::flush`] has written. They stay,
//! readable up to the last flush, if a tap fails or the program is killed. A tap without traffic
//! leaves no file.

mod course;
mod draft;
mod facts;
mod histogram;
mod lengths;
mod live;
mod pcap;
mod read;
mod summary;
mod trace;
mod worker;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anabranch_multipath::Time;

pub use course::{Course, Courses, Lane, LaneWay, RUNS, Run, STEPS, Ways};
pub use draft::Draft;
pub use facts::{SCHEMA, SizeUnit, TraceFacts};
pub use histogram::Histogram;
pub use pcap::{PcapLimits, PcapTap};
pub use read::{Trace, TraceError};
pub use summary::{Flow, PathSummary, Session, Spread, Summary, SummaryBuilder};
pub use trace::{Row, RowLabels, TraceTap, TraceWriter};
pub use worker::PATIENCE;

/// Bytes of a UDP header.
const UDP_HEADER: usize = 8;

/// One batch of datagrams as an observer of the path sees it.
#[derive(Clone, Copy, Debug)]
pub struct ObservedBatch<'a> {
    /// Time at which the batch was received from the path's socket, or passed to it.
    pub time: Time,
    /// The session of the batch.
    pub session: u64,
    /// The path, as an index into the names that the tap was created with.
    pub path: u16,
    /// Whether it goes from the client to the server.
    pub outward: bool,
    /// The path socket's local address.
    pub client_end: SocketAddr,
    /// The server's address.
    pub server: SocketAddr,
    /// The two ECN bits of the IP header (RFC 3168).
    pub ecn: u8,
    /// The UDP payloads, back to back.
    pub bytes: &'a [u8],
    /// Length of each datagram in `bytes`; the last may be shorter. Zero means one datagram.
    pub stride: usize,
}

impl<'a> ObservedBatch<'a> {
    /// The UDP payloads of the batch, in order; an empty batch is one empty datagram.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        cut(self.bytes, self.stride)
    }

    /// Bytes of the IP and UDP headers of each payload: 28 for IPv4, 48 for IPv6.
    pub fn overhead(&self) -> usize {
        match self.server.ip().to_canonical() {
            IpAddr::V4(_) => 20 + UDP_HEADER,
            IpAddr::V6(_) => 40 + UDP_HEADER,
        }
    }
}

/// An observer of all traffic that a driver forwards.
pub trait Tap: Send {
    /// Records a batch. Times must not decrease from one call to the next.
    ///
    /// # Errors
    /// The file cannot be written, the disk is too slow, or the batch is malformed. The tap is
    /// unusable then: drop it, which keeps the data written so far.
    fn seen(&mut self, seen: &ObservedBatch<'_>) -> io::Result<()>;

    /// Records that packets of `protocol` (a machine-readable name) are numbered in clear.
    fn numbered(&mut self, protocol: &str) {
        let _ = protocol;
    }

    /// Writes the records from before `now`, if the last write is at least a second ago. A trace,
    /// whose parts have an overhead, waits for 1/32 of its duration if that is longer.
    ///
    /// # Errors
    /// Same as [`Tap::seen`].
    fn flush(&mut self, now: Time) -> io::Result<()>;

    /// Completes the files.
    ///
    /// # Errors
    /// Something could not be written; data flushed before is kept.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// Time from one flush to the next.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// Splits a batch into datagrams, for [`ObservedBatch::datagrams`].
fn cut(bytes: &[u8], stride: usize) -> impl Iterator<Item = &[u8]> {
    let stride = if stride == 0 { bytes.len().max(1) } else { stride };
    let empty = bytes.is_empty().then_some(bytes);
    empty.into_iter().chain(bytes.chunks(stride))
}

/// Compares two labels; most labels are empty.
///
/// Empty strings may point to unmapped memory, and a vectorised `memcmp` of length 0 on an unmapped
/// page costs hundreds of nanoseconds. That is many times the cost of the rest of a row.
fn same_label(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && (one.is_empty() || one == other)
}

/// Creates an error for a fault of the caller.
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
    }
}
