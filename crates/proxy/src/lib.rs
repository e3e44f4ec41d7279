//! The messages between programs and a proxy. The protocols are SOCKS5 with user name and password
//! (RFC 1928, RFC 1929), SOCKS4, SOCKS4a, and HTTP's CONNECT (RFC 9110, section 9.3.6) with Tor's
//! headers (proposal 365). All SOCKS versions have Tor's command RESOLVE, and SOCKS5 also has
//! RESOLVE_PTR. The crate does no I/O. It is independent of the service that uses the proxy, such
//! as a Tor client or a pluggable transport.
//!
//! [`Dialogue`] parses a program's bytes into a [`ProxyRequest`]. It encodes the [`Outcome`] as an
//! answer in the protocol that the program uses (`answer`). `http` parses the head of an HTTP
//! request. [`client`] implements the client's side of SOCKS5 and CONNECT. Both sides share the
//! messages in `socks5`.
//!
//! User name and password do not authenticate a program to a Tor client. They isolate streams:
//! streams with different logins never share a circuit.

use std::net::IpAddr;

mod answer;
pub mod client;
mod dialogue;
mod http;
mod names;
mod reason;
mod socks5;

pub use answer::ProxyEnd;
pub use dialogue::Dialogue;
pub use reason::Reason;
pub use socks5::{SocksAddress, UnknownType};

/// The service that a proxy provides to programs. It determines which protocol extensions the
/// proxy supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Service {
    /// A pluggable transport. User name and password carry its options, and Tor's headers are
    /// ignored and never sent.
    #[default]
    Transport,
    /// A client of the Tor network.
    Tor {
        /// True if SOCKS5 answers use Tor's own codes for onion services (proposal 304). Not all
        /// programs support these codes.
        extended: bool,
    },
}

/// A program's request to the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyRequest {
    /// A request for a stream to a host, by name or address.
    Connect {
        /// The name, or the address without brackets, of the host.
        host: String,
        /// The port of the host.
        port: u16,
    },
    /// A request for the addresses of this name.
    Resolve(String),
    /// A request for the name of this address.
    Name(IpAddr),
}

/// The IP versions that a program allows for its stream (`Tor-Family-Preference`, proposal 365).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Both versions are allowed, and IPv4 is preferred.
    PreferV4,
    /// Both versions are allowed, and IPv6 is preferred.
    PreferV6,
    /// Only IPv4 is allowed.
    OnlyV4,
    /// Only IPv6 is allowed.
    OnlyV6,
}

/// The outcome of a program's request, which the proxy reports to the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The stream is open.
    Connected,
    /// The name has this address.
    Address(IpAddr),
    /// The address has this name.
    Name(String),
    /// The request failed, for this reason.
    Failed(Reason),
}
