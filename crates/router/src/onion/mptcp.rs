//! Links over several network paths (MPTCP, RFC 8684). The choice between TCP and MPTCP is made
//! when a socket is created. The kernel's path manager, which `ip mptcp` configures, opens further
//! subflows. If a neighbour does not support MPTCP, the connection to it uses TCP.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use anabranch_os::socket_option;

/// Level of the socket options for MPTCP, a constant of Linux.
const SOL_MPTCP: i32 = 284;
/// Socket option that returns a connection's MPTCP state (`linux/mptcp.h`).
const MPTCP_INFO: i32 = 1;

/// Transport protocol of the sockets of a relay's links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TcpKind {
    /// Plain TCP.
    #[default]
    Single,
    /// MPTCP, or TCP if the kernel does not support it.
    Multipath,
}

/// Counts of a relay's open links with and without MPTCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MptcpCounts {
    /// Number of links that use MPTCP.
    pub links: usize,
    /// Number of MPTCP subflows of all links; each subflow uses one network path.
    pub subflows: usize,
    /// Number of links that use plain TCP, because the other end or the kernel does not support
    /// MPTCP, or a middlebox has removed the option.
    pub fell_back: usize,
}

impl MptcpCounts {
    /// Returns the sums of the counts of two of the relay's threads.
    #[must_use]
    pub fn with(self, other: MptcpCounts) -> MptcpCounts {
        MptcpCounts {
            links: self.links + other.links,
            subflows: self.subflows + other.subflows,
            fell_back: self.fell_back + other.fell_back,
        }
    }

    /// Counts a link. `subflows` is the number of its MPTCP subflows; `None` if the link uses
    /// plain TCP.
    pub(super) fn note(&mut self, subflows: Option<usize>) {
        match subflows {
            Some(subflows) => {
                (self.links, self.subflows) = (self.links + 1, self.subflows + subflows)
            }
            None => self.fell_back += 1,
        }
    }
}

impl TcpKind {
    /// Creates a socket for a link to `address`, or for listening at `address`.
    ///
    /// # Errors
    /// A system call fails.
    pub(super) fn socket(self, address: SocketAddr) -> io::Result<Socket> {
        let of = |protocol| Socket::new(Domain::for_address(address), Type::STREAM, Some(protocol));
        match self {
            TcpKind::Single => of(Protocol::TCP),
            TcpKind::Multipath => of(Protocol::MPTCP).or_else(|_| of(Protocol::TCP)),
        }
    }

    /// Creates a socket that listens at `at`.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub(super) fn listen(self, at: SocketAddr) -> io::Result<TcpListener> {
        let socket = self.socket(at)?;
        // The standard library's listeners also set this option.
        socket.set_reuse_address(true)?;
        socket.bind(&at.into())?;
        socket.listen(libc::SOMAXCONN)?;
        Ok(socket.into())
    }
}

/// Returns whether MPTCP is currently enabled in the kernel (the sysctl `net.mptcp.enabled`).
pub(super) fn is_there() -> bool {
    Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).is_ok()
}

/// Returns whether `socket` is an MPTCP socket. The socket of an accepted connection is a TCP
/// socket if the other end does not use MPTCP.
pub(super) fn is_multipath(socket: &TcpStream) -> bool {
    SockRef::from(socket).protocol().is_ok_and(|protocol| protocol == Some(Protocol::MPTCP))
}

/// Returns the number of MPTCP subflows of `socket`; `None` if the connection has fallen back to
/// TCP.
pub(super) fn subflows(socket: &TcpStream) -> Option<usize> {
    // The structure's first member, `mptcpi_subflows`, counts the subflows without the first
    // subflow.
    let mut further = [0_u8; 1];
    let length = socket_option::get(socket.as_fd(), [SOL_MPTCP, MPTCP_INFO], &mut further).ok()?;
    // The kernel returns nothing for a connection that fell back.
    (length > 0).then(|| usize::from(further[0]) + 1)
}

#[cfg(test)]
mod tests;
