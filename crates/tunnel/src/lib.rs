#![doc = include_str!("../README.md")]
//!
//! # Tour
//!
//! A session between two ends of ours, by several paths, so that nothing on a path tells what went
//! by another (`docs/spec/far-end.md`).
//!
//! An unaltered server's protocol often shows a counter: WireGuard's and Mosh's packets do. Whoever
//! sees one path reads from its gaps how much went by the others. Between two ends of ours the
//! whole datagram is encrypted, the counter with it, and our own number is hidden as QUIC hides its
//! own.
//!
//! The tour, from the wire up:
//!
//! * [`keys`]: what both ends hold before they speak.
//! * `disguise`: what the far end's public key hides from strangers; `noise`: the handshake, of
//!   `suite`'s primitives; `hello`: its messages.
//! * `epoch`: the keys of one handshake, packets sealed and opened; each number
//!   counts once ([`anabranch_multipath::Replay`]).
//! * [`Inner`]: addresses of the ends where what is carried are IP packets.
//! * `frame`: what is in a packet. `resequencer`: order and evenness of what came, by `delays` (how
//!   much the paths differ) and the `pacer`.
//! * `parts`: datagrams that are too long for a packet go in pieces.
//! * `window`: what may be under way on each path, for schedules that look at that.
//! * Decoys ([`Session::send_decoys`]) are packets like data that the other end drops; when they
//!   go, and by which path, [`anabranch_multipath::Decoys`] says.
//! * [`Session`]: both ends' part of a session: numbers, epochs, order. [`Near`] makes one with a
//!   far end, [`Far`] has those of many clients.
//!
//! Deliberately absent: the choice of a path (`multipath` has that), sockets, clocks, entropy.

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
mod session;
mod spare;
mod suite;
mod window;

pub use datagram::Datagram;
pub use far::{ClientId, Far, NewRun, PacketKind, Peer};
pub use hello::LONGEST_LABEL;
pub use inner::{INTERFACE, Inner};
pub use near::{Near, NearError, State};
pub use parts::{PADDED_OVERHEAD, pieces};
pub use piece::Piece;
pub use session::{DecoyCount, OVERHEAD, Session};
