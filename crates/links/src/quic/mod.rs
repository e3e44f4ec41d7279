//! QUIC links (RFC 9000) with one stream for each lane (the order domain of one circuit). A lost
//! datagram delays only the lanes that have bytes in it.
//!
//! A QUIC link transfers *units*: the cells of the layer above. Each unit names its lane, which is
//! the circuit of the cell. Lane 0 belongs to the link itself and uses the first stream, which the
//! side that opened the link opens. Each other lane uses a separate bidirectional stream, from the
//! unit that opens the lane to the unit that ends it ([`Units`] recognises both). Units of a lane
//! arrive in order; units of different lanes arrive in any order.
//!
//! If both ends configure it ([`Units::lossy`]), a link also transfers *lossy units*, in datagrams
//! alongside the streams. Each lossy unit arrives at most once and is never retransmitted.
//!
//! * [`Endpoint`]: the links of one UDP socket. It receives and returns datagrams.
//! * [`QuicLink`]: one link, which receives and returns units.
//! * [`SocketIndex`]: the index of an endpoint's socket among several sockets at one address.
//! * [`UnitReader`]: splits a stream's bytes, which arrive in arbitrary pieces, into units.
//!
//! Identities work as over TLS: any certificate is accepted, provided that the peer holds the
//! certificate's key. The layer above binds the peer's identity to the connection by certificate
//! and exporter. There is no 0-RTT, no resumption and no migration. The library `quinn-proto`
//! handles packets, loss recovery, congestion control and keys.

mod buffers;
mod config;
mod endpoint;
mod epoch;
mod fair_queue;
mod lanes;
mod link;
mod lossy;
mod socket_index;
mod units;

pub use config::Congestion;
pub use endpoint::{
    Arrival, ConnId, Endpoint, EndpointCounts, EndpointInput, EndpointOutput, Packets,
};
pub use link::QuicLink;
pub use lossy::LossyCounts;
pub use socket_index::SocketIndex;
pub use units::{Head, UnitReader, Units};
