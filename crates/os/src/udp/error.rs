//! Errors in sending and receiving datagrams, and the origins of these errors.

use std::io;
use std::net::{IpAddr, SocketAddr};

use super::sys::RawError;

/// A kind of failure to send or receive datagrams. It combines the error numbers that mean the
/// same for the network path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// A buffer or a queue on this machine is full. The caller should drop and count the datagram.
    Full,
    /// The datagram exceeds the MTU. The caller should drop and count the datagram.
    TooBig,
    /// The peer's port is closed.
    Refused,
    /// There is no route, or no host at the end of the route, as reported by this machine or a
    /// router.
    Unreachable,
    /// The interface or the source address was removed or is down.
    Gone,
    /// A firewall or the kernel's policy forbids the datagram.
    Denied,
    /// Any other failure.
    Other,
}

impl Fault {
    /// Returns the kind of failure for an error number.
    pub fn of(errno: i32) -> Fault {
        match errno {
            libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM => Fault::Full,
            libc::EMSGSIZE => Fault::TooBig,
            libc::ECONNREFUSED => Fault::Refused,
            libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EHOSTDOWN | libc::ENONET => {
                Fault::Unreachable
            }
            libc::ENODEV | libc::ENXIO | libc::ENETDOWN | libc::EADDRNOTAVAIL => Fault::Gone,
            libc::EPERM | libc::EACCES => Fault::Denied,
            _ => Fault::Other,
        }
    }

    /// Returns the kind of failure for an error that this module returned.
    pub fn from_io(error: &io::Error) -> Fault {
        error.raw_os_error().map_or(Fault::Other, Fault::of)
    }
}

/// The origin of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This machine reported the error.
    Local,
    /// A router or the peer reported the error, by ICMP (RFC 792) or ICMPv6 (RFC 4443).
    Icmp {
        /// Type of the ICMP message.
        kind: u8,
        /// Code of the ICMP message.
        code: u8,
    },
    /// The kernel names another origin of the error, or none.
    Other,
}

/// An entry of a socket's error queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedError {
    /// The kind of failure.
    pub fault: Fault,
    /// The kernel's error number.
    pub errno: i32,
    /// The origin of the error.
    pub origin: Origin,
    /// The router or host that sent the ICMP message; `None` if unknown.
    pub offender: Option<IpAddr>,
    /// Destination of the datagram that caused the error; `None` if unknown.
    pub about: Option<SocketAddr>,
    /// For [`Fault::TooBig`], the MTU that the kernel reports with the error, in bytes, including
    /// the IP header; `None` for other errors, or if unknown.
    pub mtu: Option<u32>,
}

impl QueuedError {
    pub(super) fn from_raw(raw: RawError) -> Self {
        let fault = Fault::of(raw.errno);
        Self {
            fault,
            errno: raw.errno,
            origin: match raw.origin {
                libc::SO_EE_ORIGIN_LOCAL => Origin::Local,
                libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6 => {
                    Origin::Icmp { kind: raw.kind, code: raw.code }
                }
                _ => Origin::Other,
            },
            offender: raw.offender,
            about: raw.about,
            mtu: Some(raw.info).filter(|&mtu| fault == Fault::TooBig && mtu > 0),
        }
    }
}
