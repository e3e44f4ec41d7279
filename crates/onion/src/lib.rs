//! The Tor protocol as state machines without I/O (*cores*): how a relay and a client process the
//! bytes of their links.
//!
//! From the wire up:
//!
//! * **Bytes.** [`wire`] parses and writes cells, messages, documents and keys. It is the only
//!   module that uses the `tor-*` crates.
//! * **A link.** [`channel`] is the link handshake (VERSIONS to NETINFO). `channels` has all links
//!   of a core, their circuit tables (`slots`) and their cell queues (`queue`). [`circuitmux`]
//!   chooses the circuit of the next cell, [`padding`] schedules padding cells on idle links, and
//!   [`bucket`] limits bytes per second. `transport` has the operating system's statistics of the
//!   connection below a link.
//! * **A circuit.** [`handshake`] agrees on keys and [`crypto`] uses them. `leg` is the flow
//!   control of one circuit; its window comes from [`congestion`]. A `set` has the circuits that
//!   lead to one endpoint (its *legs*), and the streams on them (`streams`, `stream`). [`conflux`]
//!   distributes messages among several legs, and restores their order.
//! * **A role.** [`relay`] (guard, middle, exit) and [`client`] are the two cores. Each is a
//!   [`Node`], which contains the code that both share and the state of its role. `io` defines a
//!   core's inputs and outputs, and `table` allocates the identifiers of circuits and streams.
//!   [`points`] has the introduction and rendezvous points of onion services. [`claims`] lets
//!   several relay cores of one process share links. [`newcomers`] decides which connections to
//!   accept, and [`clocks`] detects wrong clocks.
//! * **Client decisions.** [`circmgr`] chooses the circuits to build and the circuit of each
//!   stream. [`guards`] chooses the guards. The crate `proxy` parses the requests of programs.
//! * **The directory.** [`directory`] has descriptors, documents, requests for documents, the
//!   network and path selection. [`authority`] tests relays and signs the documents about them.
//!
//! [`Event`] is a notice for the operator, [`Violation`] a peer's breach of the protocol, and
//! [`SetNumbers`] the statistics of a set. To read the code, begin with [`client`] and
//! `client/build.rs`, then [`relay`] and `relay/circuit.rs`.
//!
//! The caller passes the time (a [`Moment`] where both clocks matter), the random generators and
//! the bytes. A core returns the actions to perform.
//!
//! The design and its reasons: `docs/design/onion.md`.

pub mod authority;
pub mod bucket;
pub mod channel;
mod channels;
pub mod circmgr;
pub mod circuitmux;
pub mod claims;
pub mod client;
pub mod clocks;
pub mod conflux;
pub mod congestion;
pub mod crypto;
pub mod directory;
pub mod draw;
mod ending;
mod event;
pub mod guards;
pub mod handshake;
mod io;
mod leg;
mod moment;
pub mod newcomers;
mod node;
pub mod order;
pub mod padding;
pub mod points;
mod queue;
pub mod relay;
mod set;
pub mod set_table;
mod slots;
mod stream;
mod streams;
mod table;
#[cfg(test)]
mod test_keys;
mod transport;
pub mod wire;

pub use anabranch_tcp::Congestion as LossyCongestion;
pub use channels::LinkId;
pub use event::{CarrierFault, CircuitFault, Event, LinkFault, Neighbour, Violation};
pub use io::{LinkCore, LinkInput, LinkOutput, StreamOutput};
pub use moment::Moment;
pub use node::{LossyStats, LossyTraffic, Node};
pub use set::numbers::{LegNumbers, NumberSpread, SetNumbers};
pub use stream::StreamKey;
