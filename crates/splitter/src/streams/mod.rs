//! Paths that are byte streams, for both ends: a [`Connection`] carries packets of the tunnel on a
//! socket, with their lengths ([`anabranch_tunnel::carrier`]).

mod connection;

pub(crate) use connection::{Connection, Ending, prepare};
