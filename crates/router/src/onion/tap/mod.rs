//! What lets us see segments of a TCP connection that the kernel holds back, because one before
//! them was lost: a *tap* beside the socket, which stays the truth.
//!
//! Three are tried, in this order:
//!
//! * `filter`: an eBPF socket filter on the connection itself, which copies what comes out of
//!   order into a ring. It sees its own socket's data alone, and nothing while nothing is lost. To
//!   load it takes CAP_BPF, and to use it nothing.
//! * `packets`: a packet socket, which sees all TCP of its network namespace and picks out ours.
//!   To open it takes CAP_NET_RAW.
//! * None: links are in order, as they are without all this.
//!
//! What they need is taken before the first thread starts ([`Tap::open_all`]); then the
//! capabilities go.

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

/// Capabilities that taps need, and nothing else does.
const NEEDED: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::NET_RAW);

/// Which tap is at work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TapKind {
    /// None: the capabilities for another were not granted.
    #[default]
    None,
    /// A packet socket.
    Packets,
    /// A socket filter on each connection.
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

/// One thread's tap.
#[derive(Debug)]
pub struct Tap(Kind);

#[derive(Debug)]
enum Kind {
    None,
    Packets(Packets),
    Filter(Filter),
}

/// Bytes that came ahead of their turn, maybe changed or forged; or the beginning of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment<'a> {
    /// Whose it is.
    pub(super) cookie: Cookie,
    /// The TCP sequence number of the first byte, or of the SYN.
    pub(super) number: u32,
    /// The bytes; `None` of a SYN.
    pub(super) bytes: Option<&'a [u8]>,
}

impl Tap {
    /// One tap for each of so many threads, the best that there is; then gives up the capabilities
    /// that they needed, which no thread that starts later has.
    #[must_use]
    pub fn open_all(threads: usize) -> Vec<Tap> {
        let taps = (0..threads).map(|_| Tap::open()).collect();
        renounce();
        taps
    }

    /// Whether the calling thread still has what taps need, though [`Tap::open_all`] was to give it
    /// up: whatever confines the program has refused that.
    #[must_use]
    pub fn keeps_capabilities() -> bool {
        capabilities(None).is_ok_and(|held| held.permitted.intersects(NEEDED))
    }

    /// The best that there is.
    #[must_use]
    pub fn open() -> Tap {
        let filter = || Filter::open().map(Kind::Filter);
        let packets = |_| Packets::open().map(Kind::Packets);
        Tap(filter().or_else(packets).unwrap_or(Kind::None))
    }

    /// None at all.
    #[must_use]
    pub fn none() -> Tap {
        Tap(Kind::None)
    }

    /// Which it is.
    #[must_use]
    pub fn kind(&self) -> TapKind {
        match &self.0 {
            Kind::None => TapKind::None,
            Kind::Packets(_) => TapKind::Packets,
            Kind::Filter(_) => TapKind::SocketFilter,
        }
    }

    /// The file that is readable when segments have come.
    pub(super) fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            Kind::None => None,
            Kind::Packets(packets) => Some(packets.as_fd()),
            Kind::Filter(filter) => Some(filter.as_fd()),
        }
    }

    /// Watches a socket, which may not be connected yet: its SYN, if that comes later, is shown.
    /// `None` if it cannot be watched.
    pub(super) fn attach(&mut self, socket: BorrowedFd<'_>) -> Option<Cookie> {
        match &mut self.0 {
            Kind::None => None,
            Kind::Packets(_) => Cookie::of(socket).ok(),
            Kind::Filter(filter) => filter.attach(socket).ok(),
        }
    }

    /// A socket that is watched has addresses now.
    pub(super) fn connected(&mut self, cookie: Cookie, socket: &TcpStream, peer: SocketAddr) {
        if let (Kind::Packets(packets), Ok(own)) = (&mut self.0, socket.local_addr()) {
            packets.watch(cookie, [own, peer]);
        }
    }

    /// From now on segments that begin behind this number are shown: what is before it has been
    /// read. False if that cannot be.
    pub(super) fn begin(&mut self, cookie: Cookie, number: u32) -> bool {
        match &mut self.0 {
            Kind::None => false,
            Kind::Packets(packets) => packets.expect(cookie, number),
            Kind::Filter(filter) => filter.begin(cookie, number),
        }
    }

    /// The stream was read up to this number.
    pub(super) fn advance(&mut self, cookie: Cookie, number: u32) {
        match &mut self.0 {
            Kind::None => {}
            Kind::Packets(packets) => drop(packets.expect(cookie, number)),
            Kind::Filter(filter) => filter.advance(cookie, number),
        }
    }

    /// A connection is over.
    pub(super) fn end(&mut self, cookie: Cookie) {
        match &mut self.0 {
            Kind::None => {}
            Kind::Packets(packets) => packets.end(cookie),
            Kind::Filter(filter) => filter.end(cookie),
        }
    }

    /// Shows all that has come.
    pub(super) fn drain(&mut self, mut show: impl FnMut(Segment<'_>)) {
        match &mut self.0 {
            Kind::None => {}
            Kind::Packets(packets) => packets.drain(&mut show),
            Kind::Filter(filter) => filter.drain(&mut show),
        }
    }
}

/// Gives up what taps needed, for this thread and all that it starts.
fn renounce() {
    let Ok(CapabilitySets { effective, permitted, inheritable }) = capabilities(None) else {
        return;
    };
    let [effective, permitted, inheritable] =
        [effective, permitted, inheritable].map(|set| set.difference(NEEDED));
    // Fewer are always granted, unless the call itself is forbidden: `Tap::keeps_capabilities`.
    let _ = set_capabilities(None, CapabilitySets { effective, permitted, inheritable });
}

#[cfg(test)]
mod tests;
