//! The Tor protocol as cores without I/O: what a relay and a client do with the bytes of their
//! links, and when.
//!
//! The tour, from the wire up:
//!
//! * **Bytes.** [`wire`] turns bytes into cells, messages, documents and keys, and back. It alone
//!   knows the `tor-*` crates.
//! * **A link.** [`channel`] is its handshake (VERSIONS to NETINFO). `channels` has all links of a
//!   core, which circuit is which on each, and the cells that wait in `queue`; [`circuitmux`] names
//!   the circuit whose cell goes next, [`padding`] says when a silent link carries a cell,
//!   [`bucket`] how many bytes it may carry a second. `transport` is what the system tells of the
//!   connection below.
//! * **A circuit.** [`handshake`] agrees on its keys and [`crypto`] uses them. `leg` is its flow
//!   control, whose window [`congestion`] sets. A `set` is the legs that lead to one other end and
//!   its streams (`streams`, each a `stream`); [`conflux`] is what it takes to have several legs.
//! * **A role.** [`relay`] (guard, middle, exit) and [`client`] are the two cores, each a [`Node`]:
//!   what both do alike, and what the role adds. `io` is what the outside tells a core and hears
//!   from it, `table` numbers circuits and streams; [`points`] says where onion services meet their
//!   clients; [`claims`] lets several relay cores of one
//!   process share links. [`newcomers`] says whose connections are taken at all,
//!   [`clocks`] whose clock is wrong.
//! * **A client's decisions.** [`circmgr`] says which circuits to build and which stream goes by
//!   which; [`guards`] by which relays to enter. What programs ask for is read by the crate
//!   `proxy`.
//! * **The directory.** [`directory`]: descriptors, documents, who asks whom for which, the network
//!   and the choice of paths. [`authority`] judges relays and signs what is said of them.
//!
//! [`Event`] is what a core tells the person who runs it, [`Violation`] what a peer did wrong, and
//! [`SetNumbers`] what there is to see of a set.
//! To begin reading: [`client`] with `client/build.rs`, then [`relay`] with `relay/circuit.rs`.
//!
//! Time is given (where both clocks matter, as a [`Moment`]), random generators are given, bytes
//! are given; what is to be done outside comes back.
//!
//! The design, with its reasons: `docs/design/onion.md`.

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
mod stream;
mod streams;
mod table;
mod transport;
pub mod wire;

pub use channels::LinkId;
pub use event::{CarrierFault, CircuitFault, Event, LinkFault, Neighbour, Violation};
pub use io::{Core, LinkInput, LinkOutput, StreamOutput};
pub use moment::Moment;
pub use node::Node;
pub use set::numbers::{LegNumbers, NumberSpread, SetNumbers};
pub use stream::StreamKey;
