//! What programs ask a proxy of ours for, as bytes: SOCKS5 with user and password (RFC 1928, RFC
//! 1929), SOCKS4 and 4a, Tor's RESOLVE and RESOLVE_PTR, and HTTP's CONNECT (RFC 9110, section
//! 9.3.6). No I/O, and nothing of what stands behind the proxy: an onion network's client, or a
//! transport.
//!
//! [`Dialogue`] reads what a program says ([`ProxyRequest`]) and words what came of it
//! ([`Outcome`]) in the program's own protocol (`answer`).
//!
//! User and password open nothing: streams that bear different ones never share a circuit.

use std::net::IpAddr;

mod answer;
mod dialogue;

pub use dialogue::{Dialogue, Nonsense};

/// What a program wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyRequest {
    /// A stream to a host, by name or address.
    Connect {
        /// The name, or the address without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// The addresses of a name.
    Resolve(String),
    /// The name of an address.
    Name(IpAddr),
}

/// What came of a request, to be told in the program's own protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The stream is open.
    Connected,
    /// A name has this address.
    Address(IpAddr),
    /// An address has this name.
    Name(String),
    /// It cannot be had.
    Failed(Reason),
}

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No circuit could be built, or the exit is at fault.
    General,
    /// No exit lets us go there.
    Forbidden,
    /// There is no such host, or no way to it.
    Unreachable,
    /// It is an onion service, and there is nobody here who reaches those.
    NoService,
    /// The host refused.
    Refused,
    /// It took too long.
    TimedOut,
}
