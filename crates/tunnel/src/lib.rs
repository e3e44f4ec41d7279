#![doc = include_str!("../README.md")]
//!
//! # Tour
//!
//! A session connects a near end (on the user's machine) and a far end (in front of the servers)
//! over several paths. The packets of one path do not reveal what the other paths carried
//! (`docs/spec/far-end.md`).
//!
//! Many protocols send a counter in clear, for example in each packet of WireGuard and Mosh. From
//! gaps in the counter, the observer of one path learns how many packets the other paths carried.
//! Between a near end and a far end, the whole datagram is encrypted, including its counter. The
//! tunnel's own packet number is hidden as QUIC hides its packet numbers.
//!
//! Modules, from the lowest layer up:
//!
//! * [`keys`]: the keys that both ends have before the handshake.
//! * `disguise` hides the protocol from anybody who does not know the far end's public key.
//!   `noise` is the handshake, built on the primitives of `suite`. `hello` has the handshake's
//!   messages.
//! * `epoch`: the keys of one handshake, which encrypt and decrypt packets. Each packet number is
//!   accepted once ([`anabranch_multipath::Replay`]).
//! * [`Inner`]: the addresses of both ends if the tunnel carries IP packets.
//! * `frame`: the content of a packet. `resequencer`: restores order and spacing, with `delays`
//!   (the differences between the paths) and the `pacer`.
//! * `parts`: splits datagrams that are too long for one packet.
//! * `capacity`: the rate at which each path forwards packets, and pacing at that rate.
//! * `round_trip`: the round-trip time of each path, and its timeout.
//! * [`carrier`]: packets on a byte stream, for paths that are TCP connections.
//! * `window`: the limit on the data in flight on each path, for schedules that need one.
//! * Decoys ([`Session::send_decoys`]) look like data, and the other end drops them.
//!   [`anabranch_multipath::Decoys`] plans their times and paths.
//! * [`Session`]: the state that both ends keep: packet numbers, keys, and the order of received
//!   packets. [`NearEnd`] opens a session with one far end. [`FarSide`] has the sessions of many
//!   clients.
//!
//! Not in this crate: the choice of a path (see `multipath`), sockets, clocks and entropy.

mod capacity;
pub mod carrier;
mod datagram;
mod delays;
mod disguise;
mod epoch;
mod far;
mod frame;
mod hello;
mod inner;
pub mod keys;
mod near;
mod noise;
mod pacer;
mod parts;
mod piece;
mod resequencer;
mod round_trip;
mod session;
mod spare;
mod suite;
mod window;

pub use datagram::Datagram;
pub use delays::LONGEST as LONGEST_PATIENCE;
pub use far::{ClientId, FarSide, NewRun, PacketKind, Peer};
pub use hello::LONGEST_LABEL;
pub use inner::{INTERFACE, Inner};
pub use near::{NearEnd, NearError, State};
pub use parts::{PADDED_OVERHEAD, pieces};
pub use piece::Piece;
pub use session::{DecoyCount, OVERHEAD, Session};
