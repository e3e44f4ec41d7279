//! The messages between programs and a proxy: SOCKS5 with user and password (RFC 1928, RFC 1929),
//! SOCKS4 and 4a, Tor's RESOLVE and RESOLVE_PTR, and HTTP's CONNECT (RFC 9110, section 9.3.6) with
//! Tor's headers (proposal 365). The crate does no I/O, and knows nothing of the service that the
//! proxy leads to: an onion network's client, or a transport.
//!
//! [`Dialogue`] reads a program's bytes into a [`ProxyRequest`] and writes the [`Outcome`] in the
//! program's own protocol (`answer`). `http` reads the head of an HTTP request. [`client`] has the
//! other side of SOCKS5 and CONNECT; both sides share the messages in `socks5`.
//!
//! User and password do not authenticate: streams with different ones never share a circuit.

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

/// The service that a proxy leads to, which determines the features of its dialogues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Service {
    /// A pluggable transport: user and password carry its options, and none of Tor's headers is
    /// read or sent.
    #[default]
    Transport,
    /// A client of the Tor network. If `extended`, SOCKS5 answers use Tor's own codes for onion
    /// services (proposal 304), which not all programs support.
    Tor {
        /// Whether the codes of proposal 304 are used.
        extended: bool,
    },
}

/// A program's request.
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

/// The IP versions that a program allows for its stream (`Tor-Family-Preference`, proposal 365).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Either, IPv4 where there is a choice.
    PreferV4,
    /// Either, IPv6 where there is a choice.
    PreferV6,
    /// IPv4 alone.
    OnlyV4,
    /// IPv6 alone.
    OnlyV6,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The stream is open.
    Connected,
    /// A name has this address.
    Address(IpAddr),
    /// An address has this name.
    Name(String),
    /// The request failed.
    Failed(Reason),
}
