//! What a session carries.

/// A protocol that the splitter knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A WireGuard tunnel: the server answers to the address of the last authenticated packet.
    WireGuard,
    /// QUIC version 1 or 2 (RFC 9000, RFC 9369).
    Quic,
    /// The Mosh State Synchronization Protocol.
    Mosh,
    /// DNS queries: each is answered to the four-tuple that asked.
    Dns,
    /// Something else: split as the user asked.
    Other,
}
