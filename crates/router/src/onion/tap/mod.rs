//! Packet taps: access to TCP segments that the kernel holds back because an earlier segment was
//! lost. The data of the socket stays authoritative; a tap only delivers the same bytes earlier.
//!
//! The kinds of taps are tried in this order:
//!
//! * `filter`: an eBPF socket filter on each connection, which copies out-of-order data into a
//!   ring buffer. It sees only the data of that socket, and copies nothing while there are no
//!   losses. Loading it requires CAP_BPF; using it requires no capability.
//! * `packets`: a packet socket, which sees all TCP segments of its network namespace and selects
//!   the segments of our connections. Opening it requires CAP_NET_RAW.
//! * No tap: all links are ordered.
//!
//! Taps are opened before the first thread starts ([`Tap::open_all`]). Then the capabilities are
//! dropped.

use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use filter::Filter;
use packets::Packets;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

mod filter;
mod packets;
mod program;
mod syn;

pub(super) use syn::{Cookie, save_syns, saved_syn};

/// Capabilities that are needed only for opening packet taps. Afterwards they are dropped.
const NEEDED: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::NET_RAW);

/// Kind of a packet tap, which delivers TCP segments out of order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TapKind {
    /// No tap, because the program lacks the capabilities for any other kind.
    #[default]
    None,
    /// A packet socket that sees all TCP segments of the network namespace.
    Packets,
    /// An eBPF socket filter on each connection.
    SocketFilter,
}

impl fmt::Display for TapKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            TapKind::None => "none",
            TapKind::Packets => "packets",
            TapKind::SocketFilter => "socket filter",
        })
    }
}

/// A packet tap, which delivers TCP segments out of order. It belongs to one thread.
#[derive(Debug)]
pub struct Tap(Kind);

#[derive(Debug)]
enum Kind {
    None,
    Packets(Packets),
    Filter(Filter),
}

/// Bytes of a connection that arrived out of order, or the connection's SYN. The bytes may have
/// been changed or forged in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment<'a> {
    /// The kernel's identifier of the connection's socket.
    pub(super) cookie: Cookie,
    /// TCP sequence number of the first byte, or of the SYN.
    pub(super) number: u32,
    /// Bytes of the segment's payload; `None` for a SYN.
    pub(super) bytes: Option<&'a [u8]>,
}

impl Tap {
    /// Opens the best available packet tap for each of `threads` threads. Then drops the
    /// capabilities that taps need, also for threads that are started later.
    #[must_use]
    pub fn open_all(threads: usize) -> Vec<Tap> {
        let taps = (0..threads).map(|_| Tap::open()).collect();
        renounce();
        taps
    }

    /// Returns whether the calling thread still has the capabilities that [`Tap::open_all`] should
    /// have dropped. This is the case if a sandbox refuses the system call.
    #[must_use]
    pub fn keeps_capabilities() -> bool {
        capabilities(None).is_ok_and(|held| held.permitted.intersects(NEEDED))
    }

    /// Opens the best packet tap that is available.
    #[must_use]
    pub fn open() -> Tap {
        let filter = || Filter::open().map(Kind::Filter);
        let packets = |_| Packets::open().map(Kind::Packets);
        Tap(filter().or_else(packets).unwrap_or(Kind::None))
    }

    /// Returns a packet tap of the kind `None`, which delivers nothing.
    #[must_use]
    pub fn none() -> Tap {
        Tap(Kind::None)
    }

    /// Returns the kind of this packet tap.
    #[must_use]
    pub fn kind(&self) -> TapKind {
        match &self.0 {
            Kind::None => TapKind::None,
            Kind::Packets(_) => TapKind::Packets,
            Kind::Filter(_) => TapKind::SocketFilter,
        }
    }

    /// Returns a file that becomes readable when segments have arrived; `None` for a tap that
    /// delivers nothing.
    pub(super) fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            Kind::None => None,
            Kind::Packets(packets) => Some(packets.as_fd()),
            Kind::Filter(filter) => Some(filter.as_fd()),
        }
    }

    /// Starts to watch `socket`. If the socket is not connected yet, the tap will deliver the SYN
    /// that opens its connection. Returns the connection's identifier, or `None` if the socket
    /// cannot be watched.
    pub(super) fn attach(&mut self, socket: BorrowedFd<'_>) -> Option<Cookie> {
        match &mut self.0 {
            Kind::None => None,
            Kind::Packets(_) => Cookie::of(socket).ok(),
            Kind::Filter(filter) => filter.attach(socket).ok(),
        }
    }

    /// Records the addresses of the connection `cookie`, which `socket` is now opening to `peer`.
    pub(super) fn connected(&mut self, cookie: Cookie, socket: &TcpStream, peer: SocketAddr) {
        if let (Kind::Packets(packets), Ok(own)) = (&mut self.0, socket.local_addr()) {
            packets.watch(cookie, [own, peer]);
        }
    }

    /// Starts to deliver the segments of `cookie` that begin after the TCP sequence number
    /// `number`. The stream was read up to `number`. Returns false if this tap cannot deliver
    /// them: its kind is `None`, the connection is not watched, or its slot in the socket filter's
    /// table is in use.
    pub(super) fn begin(&mut self, cookie: Cookie, number: u32) -> bool {
        match &mut self.0 {
            Kind::None => false,
            Kind::Packets(packets) => packets.expect(cookie, number),
            Kind::Filter(filter) => filter.begin(cookie, number),
        }
    }

    /// Records that the stream of the connection `cookie` was read up to the TCP sequence number
    /// `number`.
    pub(super) fn advance(&mut self, cookie: Cookie, number: u32) {
        match &mut self.0 {
            Kind::None => {}
            Kind::Packets(packets) => drop(packets.expect(cookie, number)),
            Kind::Filter(filter) => filter.advance(cookie, number),
        }
    }

    /// Stops watching the connection `cookie`.
    pub(super) fn end(&mut self, cookie: Cookie) {
        match &mut self.0 {
            Kind::None => {}
            Kind::Packets(packets) => packets.end(cookie),
            Kind::Filter(filter) => filter.end(cookie),
        }
    }

    /// Calls `show` for each segment that has arrived.
    pub(super) fn drain(&mut self, mut show: impl FnMut(Segment<'_>)) {
        match &mut self.0 {
            Kind::None => {}
            Kind::Packets(packets) => packets.drain(&mut show),
            Kind::Filter(filter) => filter.drain(&mut show),
        }
    }
}

/// Drops the capabilities that packet taps need, for this thread and for threads that it starts
/// later.
fn renounce() {
    let Ok(CapabilitySets { effective, permitted, inheritable }) = capabilities(None) else {
        return;
    };
    let [effective, permitted, inheritable] =
        [effective, permitted, inheritable].map(|set| set.difference(NEEDED));
    // The kernel always allows a process to drop capabilities, unless a sandbox forbids the call;
    // see `Tap::keeps_capabilities`.
    let _ = set_capabilities(None, CapabilitySets { effective, permitted, inheritable });
}

#[cfg(test)]
mod tests;
