//! Paths that are byte streams, for both ends: a `Connection` carries packets of the tunnel on a
//! socket, with their lengths ([`anabranch_tunnel::carrier`]), in TLS where the program brings that
//! ([`TlsEnd`]).

mod connection;
mod ending;
mod tls;
mod wire;

pub use connection::AGE;
pub use tls::{TlsEnd, TlsError, TlsStream};

pub(crate) use connection::{Connection, prepare};
pub(crate) use ending::Ending;
pub(crate) use wire::{Passed, Wire, is_passing};
