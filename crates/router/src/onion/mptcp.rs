//! Links over several paths of the kernel (MPTCP, RFC 8684). A socket is of that protocol from its
//! making on; whether there is a second path, and by which addresses, is the kernel's path
//! manager's to say (`ip mptcp`). A neighbour that knows none of it gets TCP.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use anabranch_os::socket_option;

/// Of `linux/mptcp.h`: the level of MPTCP's options, and the one that tells of a connection.
const SOL_MPTCP: i32 = 284;
const MPTCP_INFO: i32 = 1;

/// Of which protocol a relay's sockets for links are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TcpKind {
    /// TCP.
    #[default]
    Single,
    /// MPTCP, or TCP where the kernel has none.
    Multipath,
}

/// Open links of a relay whose sockets are of MPTCP where that can be had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MptcpCounts {
    /// Those whose neighbour has agreed.
    pub links: usize,
    /// Their subflows: one for each path.
    pub subflows: usize,
    /// Those that are TCP: the neighbour knows nothing else, the kernel has none, or something on
    /// the way has removed the option.
    pub fell_back: usize,
}

impl MptcpCounts {
    /// Those of two cores.
    #[must_use]
    pub fn with(self, other: MptcpCounts) -> MptcpCounts {
        MptcpCounts {
            links: self.links + other.links,
            subflows: self.subflows + other.subflows,
            fell_back: self.fell_back + other.fell_back,
        }
    }

    /// A link whose socket has so many subflows; `None` if it is TCP.
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
    /// A socket for links to, or at, this address.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn socket(self, address: SocketAddr) -> io::Result<Socket> {
        let of = |protocol| Socket::new(Domain::for_address(address), Type::STREAM, Some(protocol));
        match self {
            TcpKind::Single => of(Protocol::TCP),
            TcpKind::Multipath => of(Protocol::MPTCP).or_else(|_| of(Protocol::TCP)),
        }
    }

    /// A socket at which links come in.
    ///
    /// # Errors
    /// The address cannot be had.
    pub(super) fn listen(self, at: SocketAddr) -> io::Result<TcpListener> {
        let socket = self.socket(at)?;
        // As the standard library has it.
        socket.set_reuse_address(true)?;
        socket.bind(&at.into())?;
        socket.listen(libc::SOMAXCONN)?;
        Ok(socket.into())
    }
}

/// Whether the kernel has MPTCP, here and now (`net.mptcp.enabled`).
pub(super) fn is_there() -> bool {
    Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).is_ok()
}

/// Whether a socket was made for several paths. What a listener gives for a neighbour without MPTCP
/// was not.
pub(super) fn is_multipath(socket: &TcpStream) -> bool {
    SockRef::from(socket).protocol().is_ok_and(|protocol| protocol == Some(Protocol::MPTCP))
}

/// By how many subflows a connection goes; `None` if it is TCP, though its socket may be of MPTCP.
pub(super) fn subflows(socket: &TcpStream) -> Option<usize> {
    // The structure's first member, `mptcpi_subflows`: those besides the first.
    let mut further = [0_u8; 1];
    let length = socket_option::get(socket.as_fd(), [SOL_MPTCP, MPTCP_INFO], &mut further).ok()?;
    // Of a connection that fell back the kernel tells nothing.
    (length > 0).then(|| usize::from(further[0]) + 1)
}

#[cfg(test)]
mod tests;
