//! Paths that are byte streams, for both ends. A `Connection` carries packets of the tunnel on a
//! socket, each preceded by its length ([`anabranch_tunnel::carrier`]). TLS is optional, and
//! implemented by the calling program ([`TlsEnd`]).

mod connection;
mod ending;
mod tls;
mod wire;

pub use connection::AGE;
pub use tls::{TlsEnd, TlsError, TlsStream};

pub(crate) use connection::{Connection, prepare};
pub(crate) use ending::Ending;
pub(crate) use wire::{Wire, WireTraffic, is_passing};
