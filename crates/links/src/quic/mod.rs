//! QUIC links (RFC 9000) with one stream for each circuit. A lost datagram delays only the circuits
//! that have bytes in it.
//!
//! A QUIC link transfers the *cells* of the layer above. Each cell has the ID of its circuit.
//! Circuit 0 belongs to the link itself and uses the first stream, which the side that opened the
//! link opens. Each other circuit uses a separate bidirectional stream, from the cell that opens
//! the circuit to the cell that ends it ([`CellFormat`] recognises both). Cells of a circuit arrive
//! in order; cells of different circuits arrive in any order.
//!
//! If both ends configure it ([`CellFormat::lossy`]), a link also transfers *lossy cells*, in
//! datagrams alongside the streams. Each lossy cell arrives at most once and is never
//! retransmitted.
//!
//! * [`Endpoint`]: the links of one UDP socket. It receives and returns datagrams.
//! * [`QuicLink`]: one link, which receives and returns cells.
//! * [`SocketIndex`]: the index of an endpoint's socket among several sockets at one address.
//! * [`CellReader`]: splits a stream's bytes, which arrive in arbitrary pieces, into cells.
//!
//! Identities work as over TLS: any certificate is accepted, provided that the peer holds the
//! certificate's key. The layer above binds the peer's identity to the connection by certificate
//! and exporter. There is no 0-RTT, no resumption and no migration. The library `quinn-proto`
//! handles packets, loss recovery, congestion control and keys.

mod buffers;
mod cells;
mod circuit_streams;
mod config;
mod endpoint;
mod epoch;
mod fair_queue;
mod link;
mod lossy;
mod socket_index;

pub use cells::{CellFormat, CellReader, Head};
pub use config::Congestion;
pub use endpoint::{
    Arrival, ConnId, Endpoint, EndpointCounts, EndpointInput, EndpointOutput, Packets,
};
pub use link::QuicLink;
pub use lossy::{LossyCounts, RECEIVING, TOGETHER};
pub use socket_index::SocketIndex;

/// Number of bytes of cells to write to a link before sending the link's datagrams. It is about
/// one segmented send (UDP GSO).
pub const WRITTEN: usize = 40 << 10;
