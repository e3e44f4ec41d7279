//! QUIC links (RFC 9000) as cores: a stream for each lane, so that a lost datagram holds up the
//! lanes of which it had bytes, and no other.
//!
//! A QUIC link carries *units*, cells for the layer above. Each names its lane. Lane 0 is the
//! link's own and has the first stream, which who opened the link opens; each other lane has a
//! bidirectional stream of its own from the unit that makes it to the unit that ends it
//! ([`Units`] tells which these are). Units of a lane arrive in order, units of different lanes in
//! whatever order the network brings them.
//!
//! If both ends configure it ([`Units::lossy`]), a link also carries *lossy units*: in datagrams
//! alongside the streams, each at most once, and never sent again.
//!
//! * [`Endpoint`]: one UDP socket's links. It is handed datagrams and gives datagrams.
//! * [`QuicLink`]: one of them: units in, units out.
//! * [`Place`]: which of several sockets at one address an endpoint has.
//! * [`UnitReader`]: a stream's bytes, in whatever pieces, as units.
//!
//! Identities are as over TLS: any certificate is taken, provided that the peer holds its key, and
//! the layer above binds who speaks to the connection by certificate and exporter. There is no
//! 0-RTT, no resumption and no migration. Packets, losses, congestion and keys are `quinn-proto`'s.

mod config;
mod endpoint;
mod epoch;
mod lanes;
mod link;
mod lossy;
mod place;
mod units;

pub use config::Congestion;
pub use endpoint::{Arrival, ConnId, Endpoint, EndpointCounts, Packets};
pub use link::QuicLink;
pub use lossy::LossyCounts;
pub use place::Place;
pub use units::{Head, UnitReader, Units};
