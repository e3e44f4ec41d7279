//! Transport of a session's packets on byte streams such as TCP connections, for paths that block
//! UDP datagrams (`docs/spec/far-end.md`, "Streams").
//!
//! ```text
//! stream = { length (2, big-endian) · packet }
//! ```
//!
//! [`Unframer`] splits a stream into packets; the bytes may arrive in pieces of any length.
//! [`PacketQueue`] holds the packets that a stream has not accepted yet. The queue drops packets
//! older than a limit, because a late datagram is worth less than a newer one.

mod queue;
mod unframer;

pub use queue::{PacketQueue, QueueCount};
pub use unframer::{LengthError, Unframer};

/// Bytes of the length field before each packet.
pub const PREFIX: usize = 2;
/// Length of the shortest packet of a session, in bytes: ID (4), packet number (4), one byte of
/// content, AEAD tag (16).
pub const SHORTEST: usize = 25;
/// Length of the longest packet, in bytes: the longest payload of a UDP datagram over IPv4.
pub const LONGEST: usize = 65_507;
/// Maximum length in bytes of a packet on a stream that is not yet known to belong to a client.
/// Handshakes have at most 512 bytes. The client (the near end, on the user's machine) begins each
/// stream with a packet below this length.
pub const LONGEST_FIRST: usize = 2_048;
