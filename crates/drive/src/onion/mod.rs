//! The onion network on a machine: sockets, files and clocks around the cores of `onion` and `links`.
//!
//! * [`store`]: a relay's keys and other state on disk.
//! * [`authorities`]: whom a user trusts, as torrc names them.
//! * [`office`]: the thread that talks to authorities.

pub mod authorities;
pub mod office;
pub mod store;
